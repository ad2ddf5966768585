//! What procfs shows of a process that works in the instance: its descriptors and its working
//! directory, to itself, to other programs of the instance, and to programs outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, skip};

/// Looks at its own shell from other processes. `$1` is the directory to work in.
const LOOK: &str = r#"
exec 2>&1
mkdir -p "$1/dir"; cd "$1/dir"; me=$$
exec 7<>file; echo hello >&7
for name in /proc/self/fd/7 /dev/fd/7 /proc/$me/fd/7 /proc/$me/task/$me/fd/7 /proc/thread-self/fd/7
do cat $name; stat -L -c '%s %F' $name; readlink $name; done
(cd /proc/$me/fd; cat 7; readlink 7; stat -c %F 7; cd ..; readlink cwd; cat fd/7)
echo more >> /proc/$me/fd/7; cat /proc/$me/fd/7; echo less > /proc/$me/fd/7; cat file
[ file -ef /proc/$me/fd/7 ] && echo the same
mv file moved; readlink /proc/$me/fd/7; cat /proc/$me/fd/7
ln moved second; rm second; readlink /proc/$me/fd/7
rm moved; cat /proc/$me/fd/7
exec 8< .; ls /proc/$me/fd/8/; ls /proc/$me/cwd/; echo beside > /proc/$me/cwd/beside; cat beside
cat /proc/$me/fd/8/beside; readlink /proc/$me/cwd /proc/$me/fd/8
sh -c 'sleep 10 & cat /proc/$!/cwd/beside; readlink /proc/$!/cwd; kill $!'
mv ../dir ../other; readlink /proc/$me/cwd; (cd /proc/$me/cwd; echo *)
mkdir a b; for turn in $(seq 100); do cd ../other/a; cd ../b; done
readlink /proc/$me/cwd; sh -c 'readlink /proc/self/cwd /proc/$PPID/cwd'
echo there > here; cat ../b/here
cd /; readlink /proc/$me/cwd
"#;

struct Bench {
    scratch: Scratch,
    script: PathBuf,
    native: String,
    _turn: Turn,
}

impl Bench {
    fn new(name: &str, script: &str) -> Result<Bench> {
        let turn = Turn::take()?;
        let scratch = Scratch::new(name)?;
        let path = scratch.join("script");
        fs::write(&path, script)?;
        let place = scratch.join("native");
        fs::create_dir(&place)?;
        let job = Job::new(&scratch, "native", "bash").args([&path, &place]);
        let native = shown(&job.run_ok()?.stdout, &place);
        Ok(Bench { scratch, script: path, native, _turn: turn })
    }

    /// The script does the same in an instance that is started with these options.
    fn expect_same(&self, options: &[&str]) -> Result<()> {
        let instance = start(&self.scratch, options)?;
        let script = format!("bash {} \"$MAYFLY_MOUNT\"", self.script.display());
        let seen = instance.shell("look", &script).deadline(Duration::from_secs(60)).run_ok()?;
        let seen = shown(&seen.stdout, &self.scratch.join("mount"));
        instance.stop()?;
        let native = &self.native;
        ensure!(*native == seen, "{options:?}: natively:\n{native}in the instance:\n{seen}");
        Ok(())
    }
}

/// The instance, mounted or reached at `mount` in the scratch directory.
fn start<'a>(scratch: &'a Scratch, options: &[&str]) -> Result<Instance<'a>> {
    Instance::start_with(scratch, "procfs", &scratch.join("mount"), options)
}

fn shown(output: &[u8], place: &Path) -> String {
    String::from_utf8_lossy(output).replace(&*place.to_string_lossy(), "PLACE")
}

#[test]
fn descriptors_and_directories_of_other_processes_are_seen_by_procfs() -> Result<()> {
    let bench = Bench::new("procfs", LOOK)?;
    ensure!(bench.native.contains("PLACE/other"), "it shows nothing: {}", bench.native);
    bench.expect_same(&["--access", "preload"])?;
    bench.expect_same(&["--access", "preload", "--nodes", "local:4"])?;
    if skip::unless_mountable("procfs: with a mount") {
        bench.expect_same(&["--access", "both"])?;
    }
    Ok(())
}

#[test]
fn a_program_outside_gets_to_a_working_directory_in_the_mount() -> Result<()> {
    if !skip::unless_mountable("procfs: outside") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("outside")?;
    let instance = start(&scratch, &["--access", "both"])?;
    let script = r#"mkdir "$MAYFLY_MOUNT/dir"; cd "$MAYFLY_MOUNT/dir"; echo text > file
                    sleep 60 > /dev/null & printf %s $!"#;
    let told = instance.shell("start", script).run_ok()?;
    let process = String::from_utf8(told.stdout)?;
    let place = PathBuf::from(format!("/proc/{process}/cwd"));
    let link = fs::read_link(&place).with_context(|| format!("{}", place.display()))?;
    ensure!(link == scratch.join("mount/dir"), "{}", link.display());
    ensure!(fs::read_to_string(place.join("file"))? == "text\n", "another file");
    fs::write(place.join("made"), "outside")?;
    let seen = instance.shell("look", "cat \"$MAYFLY_MOUNT/dir/made\"").run_ok()?;
    ensure!(seen.stdout == b"outside", "{seen:?}");
    instance.shell("end", &format!("kill {process}")).run_ok()?;
    instance.stop()
}

#[test]
fn a_core_dump_lands_in_the_working_directory_where_there_is_a_mount() -> Result<()> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    if pattern.starts_with(['|', '/']) {
        skip::note("core dumps", "kernel.core_pattern sends them elsewhere");
        return Ok(());
    }
    if !skip::unless_mountable("core dumps") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("core")?;
    let instance = start(&scratch, &[])?;
    let script = r#"mkdir "$MAYFLY_MOUNT/dir"; cd "$MAYFLY_MOUNT/dir"; ulimit -c unlimited
                    sh -c 'kill -SEGV $$'; cat core* | head -c 4; stat -c ' %s' core*"#;
    let told = instance.shell("crash", script).run()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let (magic, bytes) = told.split_once(' ').context(told.clone())?;
    ensure!(magic == "\u{7f}ELF", "{told}");
    // The memory that the process shares with the daemon is not in it.
    ensure!(bytes.trim().parse::<u64>()? < 32 << 20, "{told}");
    instance.stop()
}
