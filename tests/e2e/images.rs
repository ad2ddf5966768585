//! Programs whose C library has no image when they start.
//!
//! A copy of a C library with another build id is one that this machine's preparation did not know:
//! a container's, or a second one. Each test has a cache of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Turn, process, skip};
use rustix::process::Signal;

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
/// The wait for an image is bounded at 2 s; the rest is for a busy machine.
const UNSERVED_AFTER: Duration = Duration::from_secs(6);

/// Changes the build id of the library, or takes it away: a note of another kind is none.
fn rewrite_build_id(path: &Path, change: impl FnOnce(&mut [u8], usize)) -> Result<()> {
    let mut bytes = fs::read(path)?;
    // Bytes of the id, kind 3, its owner.
    let head = [&20_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"GNU\0"].concat();
    let place = bytes.windows(head.len()).position(|window| window == head);
    let place = place.with_context(|| format!("{} has no build id", path.display()))?;
    change(&mut bytes, place);
    Ok(fs::write(path, bytes)?)
}

fn another_build(bytes: &mut [u8], place: usize) {
    bytes[place + 12] ^= 0xff;
}

fn no_build(bytes: &mut [u8], place: usize) {
    bytes[place + 4] = 99;
}

/// Changes a byte of code that is never executed: padding between functions.
fn change_padding(path: &Path) -> Result<()> {
    let mut bytes = fs::read(path)?;
    // A return, and a filler up to the next boundary.
    let filler = [0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
    let place = bytes.windows(filler.len()).position(|window| window == filler);
    bytes[place.context("no padding")? + 7] = 1;
    Ok(fs::write(path, bytes)?)
}

/// Makes the library's code writable, which no image of it is.
fn make_code_writable(path: &Path) -> Result<()> {
    let mut bytes = fs::read(path)?;
    let (start, bytes_each) = (64, 56);
    let headers = bytes[start..].chunks_exact_mut(bytes_each).take(16);
    // Loaded, readable and executable.
    let mut code = headers.filter(|header| header[..8] == [1, 0, 0, 0, 5, 0, 0, 0]);
    code.next().context("the library has no code")?[4] = 7;
    Ok(fs::write(path, bytes)?)
}

/// Copies of the machine's loader and C library in `directory`.
fn copy_glibc(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    fs::copy(LOADER, directory.join("ld-linux-x86-64.so.2"))?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let libc = maps.lines().find_map(|line| {
        let path = line.get(line.find('/')?..)?;
        path.ends_with("/libc.so.6").then_some(path)
    });
    fs::copy(libc.context("this suite runs with glibc")?, directory.join("libc.so.6"))?;
    Ok(())
}

struct Setting<'a> {
    scratch: &'a Scratch,
    instance: Instance<'a>,
}

impl<'a> Setting<'a> {
    /// An instance with a cache of its own and a file.
    fn new(scratch: &'a Scratch, name: &str) -> Result<Setting<'a>> {
        let instance = Instance::named(scratch, name)?;
        // Through a mount a program would find the file without its image, too.
        let start = instance.command("start").args(["--access", "preload"]);
        start.env("XDG_CACHE_HOME", scratch.join("cache")).run_ok()?;
        instance.shell("write", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
        Ok(Setting { scratch, instance })
    }

    /// Runs `script` in the instance with `LIB` set to `libraries`.
    fn run(&self, label: &str, libraries: &Path, script: &str) -> Result<Outcome> {
        let job = self.instance.shell(label, script);
        job.env("LIB", libraries).env("MAYFLY_REPORT", "1").run()
    }

    fn images(&self) -> Result<usize> {
        let entries = fs::read_dir(self.scratch.join("cache/mayfly/images"))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter(|name| name.ends_with(".img")).count())
    }

    /// How often the supervisor's log says that an image of a library in `directory` was made.
    fn made(&self, directory: &Path) -> Result<usize> {
        let log = self.scratch.join("run/mayfly").join(self.instance.name()).join("log");
        let line = format!("made an image of {}", directory.display());
        Ok(fs::read_to_string(log)?.matches(&line).count())
    }
}

const READ: &str = r#""$LIB/ld-linux-x86-64.so.2" --library-path "$LIB" \
    /bin/cat "$MAYFLY_MOUNT/file""#;

fn expect_text(outcome: &Outcome) -> Result<()> {
    let error = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.stdout == b"text\n", "the file reads {:?}\n{error}", outcome.stdout);
    ensure!(!error.contains("has no image"), "{error}");
    Ok(())
}

/// The program ran, did not see the instance, and said why.
fn expect_unserved(outcome: &Outcome, reason: &str) -> Result<()> {
    let error = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.code == 1 && outcome.stdout.is_empty(), "it was served: {error}");
    ensure!(error.contains("Too many levels of symbolic links"), "{error}");
    let line = format!("libc.so.6 is not served, it has no image: {reason}");
    ensure!(error.contains(&line), "the report does not say {line:?}: {error}");
    Ok(())
}

#[test]
fn a_program_with_another_c_library_is_served_from_its_first_start() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("img-other")?;
    let setting = Setting::new(&scratch, "img-other")?;
    let (prepared, libraries) = (setting.images()?, scratch.join("lib"));
    copy_glibc(&libraries)?;
    for name in ["ld-linux-x86-64.so.2", "libc.so.6"] {
        rewrite_build_id(&libraries.join(name), another_build)?;
    }
    for round in ["first", "second"] {
        expect_text(&setting.run(round, &libraries, READ)?)?;
    }
    ensure!(setting.images()? == prepared + 2, "{} images", setting.images()?);
    ensure!(setting.made(&libraries)? == 2, "made {} times", setting.made(&libraries)?);
    setting.instance.stop()
}

#[test]
fn a_program_whose_c_library_has_no_build_id_is_served() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("img-none")?;
    let setting = Setting::new(&scratch, "img-none")?;
    let (prepared, libraries) = (setting.images()?, scratch.join("lib"));
    copy_glibc(&libraries)?;
    for name in ["ld-linux-x86-64.so.2", "libc.so.6"] {
        rewrite_build_id(&libraries.join(name), no_build)?;
    }
    for round in ["first", "second"] {
        expect_text(&setting.run(round, &libraries, READ)?)?;
    }
    ensure!(setting.images()? == prepared + 2, "{} images", setting.images()?);
    // Other code under the same names is another library: one instruction of padding changed.
    let other = scratch.join("other");
    copy_glibc(&other)?;
    for name in ["ld-linux-x86-64.so.2", "libc.so.6"] {
        rewrite_build_id(&other.join(name), no_build)?;
    }
    change_padding(&other.join("libc.so.6"))?;
    expect_text(&setting.run("other", &other, READ)?)?;
    ensure!(setting.images()? == prepared + 3, "{} images", setting.images()?);
    setting.instance.stop()
}

#[test]
fn programs_that_start_at_once_have_one_image_made() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("img-crowd")?;
    let setting = Setting::new(&scratch, "img-crowd")?;
    let libraries = scratch.join("lib");
    copy_glibc(&libraries)?;
    rewrite_build_id(&libraries.join("libc.so.6"), another_build)?;
    let script = format!("for i in $(seq 50); do {READ} & done | sort | uniq -c; wait");
    let outcome = setting.run("crowd", &libraries, &script)?;
    let found = String::from_utf8_lossy(&outcome.stdout).trim().to_owned();
    ensure!(found == "50 text", "{found}\n{}", String::from_utf8_lossy(&outcome.stderr));
    ensure!(setting.made(&libraries)? == 1, "made {} times", setting.made(&libraries)?);
    setting.instance.stop()
}

#[test]
fn a_program_with_another_musl_is_served() -> Result<()> {
    serve_musl("img-musl", another_build)
}

#[test]
fn a_program_with_a_musl_without_build_id_is_served() -> Result<()> {
    serve_musl("img-alpine", no_build)
}

fn serve_musl(name: &str, change: fn(&mut [u8], usize)) -> Result<()> {
    if !skip::unless_installed("another musl", &["musl-gcc"], "musl-tools") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new(name)?;
    let setting = Setting::new(&scratch, name)?;
    let libraries = scratch.join("lib");
    fs::create_dir_all(&libraries)?;
    let loader = libraries.join("ld-musl-x86_64.so.1");
    fs::copy(MUSL, &loader)?;
    rewrite_build_id(&loader, change)?;
    let source = libraries.join("cat.c");
    fs::write(&source, CAT)?;
    let mut linker = std::ffi::OsString::from("-Wl,--dynamic-linker=");
    linker.push(&loader);
    let program: PathBuf = libraries.join("cat");
    let compile = Job::new(&scratch, "musl-gcc", "musl-gcc").args([linker]).args(["-o"]);
    compile.args([&program, &source]).run_ok()?;
    let read = r#""$LIB/cat" "$MAYFLY_MOUNT/file""#;
    expect_text(&setting.run("read", &libraries, read)?)?;
    ensure!(setting.made(&libraries)? == 1, "made {} times", setting.made(&libraries)?);
    setting.instance.stop()
}

const CAT: &str = r#"
#include <stdio.h>
int main(int count, char **names) {
    FILE *file = fopen(names[1], "r");
    for (int c; file && (c = getc(file)) != EOF;) putchar(c);
    return file == NULL;
}
"#;

#[test]
fn a_library_that_cannot_have_an_image_leaves_its_program_unserved_and_says_so() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("img-unfit")?;
    let setting = Setting::new(&scratch, "img-unfit")?;
    let prepared = setting.images()?;
    let libraries = scratch.join("lib");
    copy_glibc(&libraries)?;
    rewrite_build_id(&libraries.join("libc.so.6"), another_build)?;
    make_code_writable(&libraries.join("libc.so.6"))?;
    expect_unserved(&setting.run("unfit", &libraries, READ)?, "Exec format error")?;
    ensure!(setting.images()? == prepared, "an image was made");
    setting.instance.stop()
}

#[test]
fn a_program_waits_a_bounded_time_for_an_image() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("img-wait")?;
    let setting = Setting::new(&scratch, "img-wait")?;
    let libraries = scratch.join("lib");
    copy_glibc(&libraries)?;
    for name in ["ld-linux-x86-64.so.2", "libc.so.6"] {
        rewrite_build_id(&libraries.join(name), another_build)?;
    }
    let all = process::marked(scratch.mark());
    let supervisor = all.iter().find(|process| process.command.contains(" __supervise "));
    let supervisor = supervisor.context("there is no supervisor")?.pid;
    process::signal(supervisor, Signal::STOP);
    let start = Instant::now();
    let outcome = setting.run("unserved", &libraries, READ)?;
    let took = start.elapsed();
    process::signal(supervisor, Signal::CONT);
    expect_unserved(&outcome, "Connection timed out")?;
    ensure!(took < UNSERVED_AFTER, "it waited {took:?}");
    expect_text(&setting.run("served", &libraries, READ)?)?;
    setting.instance.stop()
}
