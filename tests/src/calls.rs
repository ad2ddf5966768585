//! The checks of single calls: a C program with one function for each, run natively and in a mount.
//!
//! The program is in `apps/calls/`, its form is explained in `check.h`. It is compiled when a test
//! first needs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Turn, binary, skip};

/// Longer than the program's own alarm.
const DEADLINE: Duration = Duration::from_secs(90);

/// A check that is not the same on four nodes, for a file at home on another one, and the first
/// line that shows it there; docs/design/nodes.md has the list.
#[derive(Debug)]
struct OverNodes {
    name: &'static str,
    /// Where the instance is mounted; none where it is the same there.
    mounted: Option<&'static str>,
    alone: &'static str,
}

const OVER_NODES: [OverNodes; 6] = [
    OverNodes {
        name: "a_mapping_is_protected_grown_and_moved",
        mounted: None,
        alone: "map == MAP_FAILED = 1",
    },
    OverNodes {
        name: "a_mapping_outlives_the_descriptor_and_the_name",
        mounted: Some("rewritten: 4 bytes \"anew\""),
        alone: "map == MAP_FAILED = 1",
    },
    OverNodes {
        name: "a_small_file_can_be_mapped_shared_and_then_written",
        mounted: Some("file: 10 bytes \"0123456789\""),
        alone: "map == MAP_FAILED = 1",
    },
    OverNodes {
        name: "two_processes_share_a_writable_mapping",
        mounted: None,
        alone: "map == MAP_FAILED = 1",
    },
    OverNodes {
        name: "data_and_holes_of_a_large_file_are_found",
        mounted: Some("lseek(fd, 0, SEEK_DATA) = 0"),
        alone: "lseek(fd, 0, SEEK_DATA) = 0",
    },
    OverNodes {
        name: "fallocate_takes_and_gives_back_space",
        mounted: Some("lseek(fd, 1 << 20, SEEK_HOLE) = 4194304"),
        alone: "lseek(fd, 1 << 20, SEEK_HOLE) = 4194304",
    },
];

/// What is compiled.
#[derive(Debug)]
struct Programs {
    calls: PathBuf,
    library: PathBuf,
    small: PathBuf,
    alone: PathBuf,
}

/// Without a mount.
const ALONE: [&str; 2] = ["--access", "preload"];

/// The check prints the same in a mount as on the local file system.
pub fn same(name: &str) -> Result<()> {
    same_with(name, &[])
}

/// The same where there is nothing but the library.
pub fn same_by_the_library(name: &str) -> Result<()> {
    same_with(name, &ALONE)
}

fn same_with(name: &str, options: &[&str]) -> Result<()> {
    let Some(programs) = programs(name)? else { return Ok(()) };
    let turn = Turn::take()?;
    let scratch = Scratch::new("calls")?;
    let mount = scratch.join("mount");
    fs::create_dir(&mount)?;
    let job = Job::new(&scratch, "native", &programs.calls).args([mount.as_os_str()]).args([name]);
    let native = programs.given_to(job).run()?;
    scratch.rename("mount", "native")?;
    expect_end(&native).context("natively")?;
    let run = |options: &[&str]| programs.mounted(&turn, &scratch, name, options);
    let Some(differs) = over_nodes(name) else { return expect_same(&native, &run(options)?) };
    if skip::unless_mountable(name) {
        let mounted = run(options)?;
        match differs.mounted {
            Some(line) => expect_difference(&native, &mounted, line)?,
            None => expect_same(&native, &mounted)?,
        }
    }
    expect_difference(&native, &run(&ALONE)?, differs.alone)
}

/// In what the check differs, if the files of this run are at other nodes than its program.
fn over_nodes(name: &str) -> Option<&'static OverNodes> {
    std::env::var_os("MAYFLY_SERVERS")?;
    OVER_NODES.iter().find(|other| other.name == name)
}

/// The check runs in a mount and finds what it states.
pub fn stated(name: &str) -> Result<()> {
    stated_with(name, &[])
}

/// The same where there is nothing but the library.
pub fn stated_by_the_library(name: &str) -> Result<()> {
    stated_with(name, &ALONE)
}

/// The same on an instance without locks.
pub fn stated_without_locks(name: &str) -> Result<()> {
    stated_with(name, &["--locks", "off"])
}

fn stated_with(name: &str, options: &[&str]) -> Result<()> {
    let Some(programs) = programs(name)? else { return Ok(()) };
    let turn = Turn::take()?;
    let scratch = Scratch::new("calls")?;
    let outcome = programs.mounted(&turn, &scratch, name, options)?;
    expect_end(&outcome)?;
    let text = String::from_utf8_lossy(&outcome.stdout);
    let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("WRONG ")).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Checks through the mount by the kernel, all on one instance, and natively: `same` print the
/// same, those of `different` do not. An error names all that are otherwise.
pub fn through_the_kernel(same: &[&str], different: &[&str]) -> Result<()> {
    if !skip::unless_mountable("single calls through the mount") {
        return Ok(());
    }
    let Some(programs) = programs("single calls through the mount")? else { return Ok(()) };
    // Whether such a one differs depends on where its file is at home.
    let same: Vec<&str> = same.iter().copied().filter(|name| over_nodes(name).is_none()).collect();
    let _turn = Turn::take()?;
    let scratch = Scratch::new("calls")?;
    // Paths are printed, so both are called the same.
    let mount = scratch.join("mount");
    let run_all = || -> Result<Vec<Outcome>> {
        let names = same.iter().map(|name| ("90", name)).chain(names_of(different));
        let run = |(seconds, name): (&str, &&str)| {
            let job = Job::new(&scratch, "check", "timeout").args([seconds]);
            let job = job.args([&programs.calls, &mount]).args([name]);
            let outcome = programs.given_to(job).run()?;
            fs::remove_dir_all(mount.join("d"))?;
            Ok(outcome)
        };
        names.map(run).collect()
    };
    fs::create_dir(&mount)?;
    let natively = run_all()?;
    scratch.rename("mount", "native")?;
    let instance = Instance::named(&scratch, "calls")?;
    let start = instance.command("start").args(["--access", "fuse", "--times", "all", "--mount"]);
    // The directory for temporary files is listed by one of them.
    let data = scratch.join("data");
    start.args([mount.as_os_str(), "--data-dir".as_ref(), data.as_os_str()]).run_ok()?;
    let mounted = run_all()?;
    instance.stop()?;
    let names = same.iter().chain(different);
    let outcomes = names.zip(natively.iter().zip(&mounted)).enumerate();
    let wrong = outcomes.filter_map(|(at, (name, (native, mounted)))| {
        match (at < same.len(), expect_same(native, mounted)) {
            (true, Err(error)) => Some(format!("{name}: {error:#}")),
            (false, Ok(())) => Some(format!("{name} is listed as different, and is not")),
            _ => None,
        }
    });
    let wrong: Vec<String> = wrong.collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// What is known to be different may also hang.
fn names_of<'a>(different: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a &'a str)> {
    different.iter().map(|name| ("5", name))
}

/// The names of the program's checks.
pub fn names() -> Result<Option<Vec<String>>> {
    let Some(programs) = programs("list of checks")? else { return Ok(None) };
    let output = Command::new(&programs.calls).arg("--list").output()?;
    Ok(Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()))
}

impl Programs {
    fn given_to<'a>(&self, job: Job<'a>) -> Job<'a> {
        let job = job.env("CALLS_LIBRARY", &self.library).env("CALLS_SMALL", &self.small);
        job.env("CALLS_STATIC", &self.alone).deadline(DEADLINE)
    }

    fn mounted(
        &self,
        _turn: &Turn,
        scratch: &Scratch,
        name: &str,
        options: &[&str],
    ) -> Result<Outcome> {
        let (mount, data) = (scratch.join("mount"), scratch.join("data"));
        let job = Job::new(scratch, "mounted", binary::mayfly()?)
            .args(["run", "--times", "all", "--mount"])
            .args([mount.as_os_str(), "--data-dir".as_ref(), data.as_os_str()])
            .args(options)
            .args(["--".as_ref(), self.calls.as_os_str(), mount.as_os_str(), name.as_ref()]);
        self.given_to(job).run()
    }
}

/// A check that did not come to its end has shown nothing.
fn expect_end(outcome: &Outcome) -> Result<()> {
    let (output, error) = (text(&outcome.stdout), text(&outcome.stderr));
    ensure!(
        outcome.code == 0 && output.ends_with("end\n"),
        "the check ended with {}\n{output}{error}",
        outcome.code
    );
    Ok(())
}

fn expect_same(native: &Outcome, mounted: &Outcome) -> Result<()> {
    let (here, there) = (text(&native.stdout), text(&mounted.stdout));
    for (line, (one, two)) in here.lines().zip(there.lines()).enumerate() {
        ensure!(one == two, "line {}\n  natively:     {one}\n  in the mount: {two}", line + 1);
    }
    expect_end(mounted).context("in the mount")?;
    ensure!(here == there, "{} and {} lines", here.lines().count(), there.lines().count());
    Ok(())
}

/// The first line that differs is this one.
fn expect_difference(native: &Outcome, mounted: &Outcome, line: &str) -> Result<()> {
    let (here, there) = (text(&native.stdout), text(&mounted.stdout));
    let first = here.lines().zip(there.lines()).find(|(one, two)| one != two);
    ensure!(first.is_some_and(|(_, two)| two == line), "not {line:?}, but {first:?}");
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles once for each run of a suite; nothing, and a note, without a compiler.
fn programs(check: &str) -> Result<Option<&'static Programs>> {
    static PROGRAMS: OnceLock<Result<Programs, String>> = OnceLock::new();
    if !skip::unless_installed(check, &["cc"], "gcc libc6-dev") {
        return Ok(None);
    }
    let built = PROGRAMS.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.as_ref().map(Some).map_err(|error| anyhow::anyhow!("{error}"))
}

fn build() -> Result<Programs> {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps");
    let target = binary::target_dir().join("test-programs");
    fs::create_dir_all(&target)?;
    let mut sources: Vec<PathBuf> = fs::read_dir(apps.join("calls"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    sources.retain(|path| path.extension().is_some_and(|kind| kind == "c"));
    let programs = Programs {
        calls: target.join("calls"),
        library: target.join("library.so"),
        small: target.join("small"),
        alone: target.join("static"),
    };
    compile(&programs.calls, &["-O1", "-pthread"], &sources)?;
    compile(&programs.library, &["-shared", "-fPIC"], &[apps.join("library.c")])?;
    compile(&programs.small, &["-s"], &[apps.join("small.c")])?;
    compile(&programs.alone, &["-static"], &[apps.join("small.c")])?;
    Ok(programs)
}

fn compile(target: &Path, options: &[&str], sources: &[PathBuf]) -> Result<()> {
    // Under its final name only when it is whole: another run may be executing the old one.
    let fresh = target.with_extension(format!("new.{}", std::process::id()));
    let mut command = Command::new("cc");
    command.args(options).arg("-o").arg(&fresh).args(sources).arg("-ldl");
    let output = command.output().context("starting cc")?;
    ensure!(output.status.success(), "{command:?}\n{}", text(&output.stderr));
    fs::rename(&fresh, target).with_context(|| format!("renaming to {}", target.display()))
}
