//! Programs and libraries that make system calls by instructions of their own, and static programs,
//! without a mount: they are served like those that call a shared C library.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, skip};

const WITHOUT_A_MOUNT: &[&str] = &["--access", "preload"];

struct Compiler<'a> {
    scratch: &'a Scratch,
}

impl Compiler<'_> {
    fn compile(&self, name: &str, options: &[&str]) -> Result<PathBuf> {
        let path = self.scratch.join(name);
        let source = binary::workspace().join("tests/apps/own_calls.c");
        let job = Job::new(self.scratch, "gcc", "gcc").args(["-O2", "-Wall", "-Werror", "-o"]);
        job.args([&path, &source]).args(options).run_ok()?;
        Ok(path)
    }
}

/// Programs of each kind that there is.
fn programs(scratch: &Scratch) -> Result<Vec<PathBuf>> {
    let compiler = Compiler { scratch };
    // So much that it is not looked through twice.
    let large = "-Wl,--defsym=unused=0";
    let padded = scratch.join("padding.c");
    let lines: String = (0..4000)
        .map(|n| format!("int padding_{n}(int a) {{ return a * {n} + a % {}; }}\n", n + 7))
        .collect();
    fs::write(&padded, lines)?;
    let padded = padded.to_string_lossy().into_owned();
    let library = compiler.compile("libown.so", &["-shared", "-fPIC", "-DLIBRARY"])?;
    let place = format!("-Wl,-rpath,{}", scratch.path().display());
    let library = library.to_string_lossy().into_owned();
    Ok(vec![
        compiler.compile("plain", &[])?,
        compiler.compile("placed", &["-no-pie", "-fno-pie"])?,
        compiler.compile("nameless", &["-Wl,--build-id=none"])?,
        compiler.compile("large", &[large, &padded])?,
        compiler.compile("large-placed", &["-no-pie", "-fno-pie", &padded])?,
        compiler.compile("linked", &["-DLINKED", &library, &place])?,
        compiler.compile("static", &["-static"])?,
        compiler.compile("static-anywhere", &["-static-pie", "-fPIE"])?,
    ])
}

fn start<'a>(scratch: &'a Scratch, options: &[&str]) -> Result<Instance<'a>> {
    Instance::start_with(scratch, "own", &scratch.join("mount"), options)
}

fn run(instance: &Instance<'_>, program: &Path) -> Result<()> {
    let script = format!("MAYFLY_REPORT=1 {} \"$MAYFLY_MOUNT\"", program.display());
    let done = instance.shell("own", &script).run_ok()?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let report = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(said == "all right\n", "{}: {said}{report}", program.display());
    ensure!(!report.contains("no image"), "{}: {report}", program.display());
    Ok(())
}

fn are_served(options: &[&str]) -> Result<()> {
    if !skip::unless_installed("own calls", &["gcc"], "gcc libc6-dev") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("own")?;
    let programs = programs(&scratch)?;
    let instance = start(&scratch, options)?;
    for program in &programs {
        for _again in 0..2 {
            run(&instance, program)?;
        }
    }
    instance.stop()
}

#[test]
fn programs_and_libraries_with_calls_of_their_own_are_served() -> Result<()> {
    are_served(WITHOUT_A_MOUNT)
}

#[test]
fn programs_and_libraries_with_calls_of_their_own_are_served_over_nodes() -> Result<()> {
    are_served(&["--access", "preload", "--nodes", "local:4"])
}

/// Those of another C library, with threads, signals, children and a shell: what is installed.
#[test]
fn static_programs_work_in_the_instance_as_on_a_local_disk() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("own")?;
    let instance = start(&scratch, WITHOUT_A_MOUNT)?;
    let place = scratch.join("native");
    fs::create_dir(&place)?;
    if skip::unless_installed("own calls: musl", &["musl-gcc"], "musl-tools") {
        let source = binary::workspace().join("tests/apps/own_calls.c");
        for (name, options) in [("musl", &["-static"][..]), ("musl-pie", &["-static-pie", "-fPIE"])]
        {
            let program = scratch.join(name);
            let job = Job::new(&scratch, "musl-gcc", "musl-gcc").args(["-O2", "-o"]);
            job.args([&program, &source]).args(options).run_ok()?;
            run(&instance, &program)?;
        }
    }
    if skip::unless_installed("own calls: busybox", &["busybox"], "busybox-static") {
        let script = scratch.join("script");
        fs::write(&script, BUSYBOX)?;
        let natively = Job::new(&scratch, "native", "sh").args([&script, &place]).run_ok()?.stdout;
        let here = format!("sh {} \"$MAYFLY_MOUNT\"", script.display());
        let seen = instance.shell("here", &here).run_ok()?.stdout;
        let text = |output: Vec<u8>, place: &Path| {
            String::from_utf8_lossy(&output).replace(&*place.to_string_lossy(), "PLACE")
        };
        let (natively, seen) = (text(natively, &place), text(seen, &scratch.join("mount")));
        ensure!(natively.contains("trapped"), "{natively}");
        ensure!(natively == seen, "natively:\n{natively}in the instance:\n{seen}");
    }
    instance.stop()
}

/// A child of musl's posix_spawn has 5 KiB of its parent's stack. When exec came to look at one
/// thing more, it wrote over its parent's return address.
#[test]
fn children_with_a_stack_of_five_kib_execute_programs() -> Result<()> {
    if !skip::unless_installed("own calls: musl", &["musl-gcc"], "musl-tools") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("own")?;
    let instance = start(&scratch, WITHOUT_A_MOUNT)?;
    let source = binary::workspace().join("tests/apps/threads.c");
    for (name, options) in [("dynamic", &["-pthread"][..]), ("static", &["-pthread", "-static"])] {
        let program = scratch.join(name);
        let job = Job::new(&scratch, "musl-gcc", "musl-gcc").args(["-O2", "-o"]);
        job.args([&program, &source]).args(options).run_ok()?;
        let script = format!(
            "mkdir \"$MAYFLY_MOUNT/{name}\"; cd \"$MAYFLY_MOUNT/{name}\"; {} 100 4 1",
            program.display()
        );
        let said = instance.shell(name, &script).run_ok()?.stdout;
        ensure!(said == b"400 steps, 0 wrong\n", "{name}: {}", String::from_utf8_lossy(&said));
    }
    instance.stop()
}

/// In the directory `$1`.
const BUSYBOX: &str = r#"
cd "$1"
cat > script <<'END'
#!/bin/busybox sh
mkdir -p d/e; echo hello > d/e/f; cat d/e/f; ls -R d
tar cf t.tar d; rm -r d; tar xf t.tar; cat d/e/f; find . -name f; pwd
(cd d; pwd; echo sub > x); sed s/sub/SUB/ d/x
head -c 1000000 /dev/zero | gzip -c > z.gz; gzip -dc z.gz | wc -c
trap 'echo trapped' TERM; kill -TERM $$
cat < d/e/f > copy 2>> errors; cmp d/e/f copy && echo same
sh -c 'echo $0 $1 "$(pwd)"' name argument
/bin/echo of another program; /bin/sh -c 'busybox cat copy; cd d; busybox pwd'
cat /proc/$$/comm; cat missing || echo $?
END
chmod +x script; ./script name
cp "$(command -v busybox)" here; busybox ln -s here cat
./cat copy; ./here 2>&1 | head -1 | cut -c1-7
busybox env -i busybox cat copy; exec busybox ls -1
"#;

/// They run from an object there, or from a copy in memory when somebody has it open for writing.
#[test]
fn programs_of_the_mount_with_calls_of_their_own_are_served() -> Result<()> {
    if !skip::unless_installed("own calls in the mount", &["gcc"], "gcc libc6-dev") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("own")?;
    let programs = programs(&scratch)?;
    let instance = start(&scratch, WITHOUT_A_MOUNT)?;
    let names: Vec<String> =
        programs.iter().map(|program| program.to_string_lossy().into_owned()).collect();
    let copy =
        format!("cp {} {} \"$MAYFLY_MOUNT\"", names.join(" "), scratch.join("libown.so").display());
    instance.shell("copy", &copy).run_ok()?;
    for program in &programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        for hold in ["", "exec 9<>./$name; "] {
            let hold = hold.replace("$name", &name);
            let script =
                format!("cd \"$MAYFLY_MOUNT\"; {hold}LD_LIBRARY_PATH=$PWD ./{name} \"$PWD\"");
            let done = instance.shell("own", &script).run_ok()?;
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            ensure!(said == "all right\n", "{name} {hold}: {said}");
        }
    }
    instance.stop()
}
