//! Programs that give themselves another view of the file system, or another root, while they work
//! in the instance.
//!
//! The root that they enter is put together from the machine's own shell, `cat` and `ls` and the
//! libraries that these need.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Turn, skip};

const DEADLINE: Duration = Duration::from_secs(60);

/// What each script is to print in the directory of the instance that it works in.
struct Case {
    name: &'static str,
    programs: &'static [&'static str],
    script: &'static str,
    prints: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "bubblewrap",
        programs: &["bwrap"],
        script: "bwrap --dev-bind / / sh -c 'pwd; cat b; echo new > c; ls'; cat c",
        prints: "PLACE/dir\ntext\nb\nc\nnew\n",
    },
    Case {
        name: "bubblewrap with a root of its own",
        programs: &["bwrap"],
        script: "exec 7> held
            bwrap --bind \"$ROOT\" / --proc /proc --dev /dev --bind \"$SCRATCH\" \"$SCRATCH\" \
            sh -c 'pwd; cat b; echo new > c; echo by descriptor >&7; ls'; cat c held",
        prints: "PLACE/dir\ntext\nb\nc\nheld\nnew\nby descriptor\n",
    },
    Case {
        name: "a mount namespace",
        programs: &["unshare"],
        script: "unshare --mount sh -c \
            'mount -t tmpfs none \"$SCRATCH/empty\"; pwd; cat b; cat \"$MAYFLY_MOUNT/dir/b\"'",
        prints: "PLACE/dir\ntext\ntext\n",
    },
    Case {
        name: "a user namespace",
        programs: &["unshare"],
        script: "unshare --map-root-user --mount sh -c 'pwd; cat b; echo new > c'; cat c",
        prints: "PLACE/dir\ntext\nnew\n",
    },
    Case {
        name: "a hidden run directory",
        programs: &["python3"],
        script: "python3 -c \"
import os
os.chroot(os.environ['ROOT'])
if os.fork() == 0:
    print(os.getcwd(), open('b').read(), end='', flush=True)
    open('c', 'w').write('new\\n')
    os.mkdir('sub'); os.chdir('sub'); open('d', 'w').write('below\\n')
    if os.fork() == 0:
        print(os.listdir('.'), open('../c').read(), end='', flush=True)
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
\"; cat c sub/d",
        prints: "PLACE/dir text\n['d'] new\nnew\nbelow\n",
    },
];

/// Needs root of its own namespaces; `false` after saying so.
fn is_possible(suite: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip::note(suite, "another root is root's to enter");
    false
}

/// A directory with a shell and two tools, which is enough of a root.
fn make_root(scratch: &Scratch) -> Result<PathBuf> {
    let root = scratch.join("root");
    for name in ["bin", "proc", "dev"] {
        fs::create_dir_all(root.join(name))?;
    }
    for name in ["sh", "cat", "ls"] {
        let program = skip::find(name).with_context(|| format!("no {name}"))?;
        fs::copy(&program, root.join("bin").join(name))?;
        let told = Job::new(scratch, "ldd", "ldd").args([&program]).run_ok()?.stdout;
        let told = String::from_utf8_lossy(&told).into_owned();
        for library in told.split_whitespace().filter(|word| word.starts_with('/')) {
            let to = root.join(library.trim_start_matches('/'));
            fs::create_dir_all(to.parent().context("a library at the root")?)?;
            fs::copy(library, to)?;
        }
    }
    Ok(root)
}

struct Bench {
    scratch: Scratch,
    root: PathBuf,
    _turn: Turn,
}

impl Bench {
    fn new(name: &str) -> Result<Bench> {
        let turn = Turn::take()?;
        let scratch = Scratch::new(name)?;
        let root = make_root(&scratch)?;
        fs::create_dir(scratch.join("empty"))?;
        Ok(Bench { scratch, root, _turn: turn })
    }

    fn start(&self, options: &[&str]) -> Result<Instance<'_>> {
        let instance = Instance::named(&self.scratch, "sandbox")?;
        let start = instance.command("start").args(options).args(["--mount"]);
        start.args([self.scratch.join("mount")]).run_ok()?;
        Ok(instance)
    }

    /// Runs a script in a new directory of the instance with one file.
    fn run(&self, instance: &Instance<'_>, script: &str) -> Result<Outcome> {
        let script = format!(
            "rm -rf \"$MAYFLY_MOUNT/dir\"; mkdir \"$MAYFLY_MOUNT/dir\"; cd \"$MAYFLY_MOUNT/dir\"
             echo text > b; {script}"
        );
        let job = instance.shell("inside", &script).env("ROOT", &self.root);
        job.env("SCRATCH", self.scratch.path()).deadline(DEADLINE).run()
    }

    fn expect_cases(&self, options: &[&str]) -> Result<()> {
        let instance = self.start(options)?;
        for case in CASES {
            let suite = format!("sandboxes: {}", case.name);
            if !skip::unless_installed(&suite, case.programs, "bubblewrap util-linux python3") {
                continue;
            }
            let seen = self.run(&instance, case.script)?;
            let printed = shown(&seen.stdout, &self.scratch.join("mount"));
            let told = String::from_utf8_lossy(&seen.stderr);
            ensure!(printed == case.prints, "{options:?}, {}: {printed}{told}", case.name);
        }
        instance.stop()
    }
}

fn shown(output: &[u8], place: &Path) -> String {
    String::from_utf8_lossy(output).replace(&*place.to_string_lossy(), "PLACE")
}

#[test]
fn programs_that_change_their_view_of_the_file_system_go_on_in_the_instance() -> Result<()> {
    if !is_possible("sandboxes") {
        return Ok(());
    }
    let bench = Bench::new("sandboxes")?;
    bench.expect_cases(&["--access", "preload"])?;
    bench.expect_cases(&["--access", "preload", "--nodes", "local:4"])?;
    if skip::unless_mountable("sandboxes: with a mount") {
        bench.expect_cases(&["--access", "both"])?;
    }
    Ok(())
}

#[test]
fn a_program_in_a_root_without_the_run_directory_is_told() -> Result<()> {
    if !is_possible("sandboxes: without the run directory") {
        return Ok(());
    }
    let bench = Bench::new("unbound")?;
    let instance = bench.start(&["--access", "preload"])?;
    for tool in ["chroot \"$ROOT\"", "unshare --root=\"$ROOT\""] {
        let seen = bench.run(&instance, &format!("{tool} /bin/sh -c 'echo hello; cat b'"))?;
        let told = String::from_utf8_lossy(&seen.stderr);
        ensure!(seen.stdout == b"hello\n" && seen.code != 0, "{seen:?}");
        let message = "mayfly: /bin/sh is not served: its root does not show ";
        ensure!(told.contains(message), "{tool}: {told}");
    }
    instance.stop()
}

/// A program that starts containers, with what it needs besides our words.
struct Starter {
    /// As `mayfly env --container` knows it.
    kind: &'static str,
    programs: &'static [&'static str],
    packages: &'static str,
    /// Before our words; ROOT and SCRATCH are paths.
    before: &'static str,
    /// Behind them, before the command.
    behind: &'static str,
}

const STARTERS: &[Starter] = &[
    Starter {
        kind: "bwrap",
        programs: &["bwrap"],
        packages: "bubblewrap",
        before: "bwrap --clearenv --bind ROOT / --proc /proc --dev /dev --setenv PATH /bin",
        behind: "",
    },
    // crun wants one hierarchy of cgroups. What limits a container gets by itself may be more than
    // its starter has.
    Starter {
        kind: "podman",
        programs: &["podman", "runc"],
        packages: "podman runc",
        before: "podman --runtime runc --root SCRATCH/podman/root --runroot SCRATCH/podman/run \
                 --storage-driver vfs run --rm --network none --ulimit nofile=1024:1024 \
                 --ulimit nproc=1024:1024 --env PATH=/bin",
        behind: "--rootfs ROOT",
    },
];

impl Starter {
    fn words(&self, text: &str, bench: &Bench) -> Vec<String> {
        let place = |word: &str| {
            let word = word.replace("ROOT", &bench.root.to_string_lossy());
            word.replace("SCRATCH", &bench.scratch.path().to_string_lossy())
        };
        text.split_whitespace().map(place).collect()
    }
}

/// As docs/guide/containers.md says it.
#[test]
fn a_container_gets_what_it_needs_to_be_in_the_instance() -> Result<()> {
    if !is_possible("containers") {
        return Ok(());
    }
    let bench = Bench::new("containers")?;
    for starter in STARTERS {
        let suite = format!("containers: {}", starter.kind);
        if !skip::unless_installed(&suite, starter.programs, starter.packages) {
            continue;
        }
        for access in ["preload", "auto"] {
            if access == "auto" && !skip::unless_mountable("containers: with a mount") {
                continue;
            }
            let instance = bench.start(&["--access", access])?;
            bench.expect_container(&instance, starter)?;
            instance.stop().with_context(|| format!("{} with {access}", starter.kind))?;
        }
    }
    Ok(())
}

impl Bench {
    fn expect_container(&self, instance: &Instance<'_>, starter: &Starter) -> Result<()> {
        let made = "mkdir \"$MAYFLY_MOUNT/dir\"; echo text > \"$MAYFLY_MOUNT/dir/b\"";
        instance.shell("before", made).run_ok()?;
        let words = instance.command("env").args(["--container", starter.kind]).run_ok()?.stdout;
        let words = String::from_utf8(words)?;
        let inside = "cd \"$MAYFLY_MOUNT/dir\" && pwd && cat b && echo new > c && ls
            echo large > d; ls /";
        // Nobody has entered the instance: the shell knows no more than the words.
        let mut before = starter.words(starter.before, self).into_iter();
        let program = before.next().context("a starter is a program")?;
        let job = Job::new(&self.scratch, "container", program).args(before);
        let job = job.args(words.split_whitespace()).args(starter.words(starter.behind, self));
        let seen = job.args(["sh", "-c", inside]).deadline(DEADLINE).run()?;
        let printed = shown(&seen.stdout, &self.scratch.join("mount"));
        let told = String::from_utf8_lossy(&seen.stderr);
        ensure!(
            printed.starts_with("PLACE/dir\ntext\nb\nc\n") && !printed.contains("\nhome\n"),
            "{}: {printed}{told}",
            starter.kind
        );
        let after = instance.shell("after", "cat \"$MAYFLY_MOUNT\"/dir/[cd]").run_ok()?;
        ensure!(after.stdout == b"new\nlarge\n", "{}: {after:?}", starter.kind);
        let needs = instance.command("env").args(["--json"]).run_ok()?.stdout;
        let needs: serde_json::Value = serde_json::from_slice(&needs)?;
        ensure!(needs["binds"].as_array().is_some_and(|binds| !binds.is_empty()), "{needs}");
        Ok(())
    }
}
