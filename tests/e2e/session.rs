//! Session consistency: the kernel caches for readers of the mount, and who opens a file sees what
//! was closed before, on whichever side.
//!
//! The test itself is a program that somebody started elsewhere: it goes through the kernel.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, process};
use mayfly_tests::mount::{Bench, PATIENCE, inside, server, wait_until};
use rustix::process::Signal;

/// What is told of a name holds for one second; the kernel counts in ticks of its own.
const VALID: Duration = Duration::from_millis(1100);

fn start(name: &str, further: &[&str]) -> Result<Option<Bench>> {
    let Some(bench) = Bench::new(name)? else { return Ok(None) };
    bench.start_with("both", &[&["--consistency", "session"], further].concat())?;
    Ok(Some(bench))
}

fn instance(bench: &Bench) -> Result<Instance<'_>> {
    Instance::named(&bench.scratch, "fuse")
}

/// Reads a file three times through the kernel, the last time from pages that were kept.
fn expect(path: &Path, content: &str) -> Result<()> {
    for pause_ms in [0, 30, 0] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        let read = fs::read_to_string(path)?;
        ensure!(read == content, "{}: {} bytes of old content", path.display(), read.len());
        let length = fs::metadata(path)?.len();
        ensure!(length == content.len() as u64, "{}: old length {length}", path.display());
    }
    Ok(())
}

#[test]
fn who_opens_a_file_sees_what_was_closed_before_on_the_other_side() -> Result<()> {
    for times in ["mtime", "none"] {
        let Some(bench) = start("session", &["--times", times])? else { return Ok(()) };
        let instance = instance(&bench)?;
        let (small, large) = (bench.mount.join("small"), bench.mount.join("large"));
        for round in 10..18 {
            // The same length each time, and the same time of modification.
            let word = format!("round {round}");
            let line = format!("{word}\n");
            let script = format!(
                "yes '{word}' | head -c 18 > small; yes '{word}' | head -c 180000 > large; \
                 touch -d @1000000000 small large"
            );
            inside(&instance, &script)?;
            expect(&small, &line.repeat(2))?;
            expect(&large, &line.repeat(20_000))?;
            fs::write(&large, line.repeat(9))?;
            let back = inside(&instance, "cat large; printf more >> large")?;
            ensure!(back == line.repeat(9), "what the kernel's side wrote is not seen: {back}");
            expect(&large, &(line.repeat(9) + "more"))?;
        }
        bench.finish(&instance)?;
    }
    Ok(())
}

#[test]
fn an_open_by_name_gets_the_file_that_has_the_name_now() -> Result<()> {
    let Some(bench) = start("renames", &[])? else { return Ok(()) };
    let instance = instance(&bench)?;
    let name = bench.mount.join("name");
    inside(&instance, "echo 0 > name")?;
    let mut held = Vec::new();
    for round in 1..20 {
        // Who has the old file open keeps it alive, and in the kernel's memory.
        held.push(File::open(&name)?);
        inside(&instance, &format!("echo {round} > new; mv new name"))?;
        let read = fs::read_to_string(&name)?;
        ensure!(read == format!("{round}\n"), "round {round} reads {read}");
    }
    for (round, file) in held.iter().enumerate() {
        let mut bytes = [0; 8];
        let count = file.read_at(&mut bytes, 0)?;
        ensure!(bytes[..count] == *format!("{round}\n").as_bytes(), "an open file changed");
    }
    inside(&instance, "rm name")?;
    let gone = File::open(&name).err().map(|error| error.kind());
    ensure!(gone == Some(std::io::ErrorKind::NotFound), "opened after its removal: {gone:?}");
    drop(held);
    bench.finish(&instance)
}

#[test]
fn new_names_are_seen_at_once_and_what_became_of_old_ones_after_a_second() -> Result<()> {
    let Some(bench) = start("names", &[])? else { return Ok(()) };
    let instance = instance(&bench)?;
    let new = bench.mount.join("new");
    for _ in 0..5 {
        ensure!(!new.exists(), "it was not made yet");
        inside(&instance, "echo text > new")?;
        ensure!(new.exists(), "the kernel remembers that it was not there");
        inside(&instance, "rm new")?;
        std::thread::sleep(VALID);
        ensure!(!new.exists(), "the kernel still believes in it");
    }
    inside(&instance, "mkdir d; echo a > d/a; chmod 600 d/a")?;
    let listed = bench.outside("ls -l $M/d")?;
    ensure!(listed.contains("-rw-------"), "listed as {listed}");
    inside(&instance, "chmod 640 d/a; echo longer > d/a; mv d/a d/b; mv d e")?;
    std::thread::sleep(VALID);
    let listed = bench.outside("ls -l $M/e; test ! -e $M/d")?;
    ensure!(listed.contains("-rw-r-----") && listed.contains(" b"), "listed as {listed}");
    bench.finish(&instance)
}

/// Whether no thread of a process that was told to stop goes on: one on another processor does for
/// a moment, and serves what is asked in it.
fn is_stopped(pid: u32) -> bool {
    let stands =
        |thread| process::field(thread, "State").is_some_and(|state| state.starts_with('T'));
    let threads = process::threads(pid);
    !threads.is_empty() && threads.into_iter().all(stands)
}

/// Reads from the kernel's memory, or not at all in time.
fn read_while_nobody_serves(file: &File, server: u32) -> Result<bool> {
    let file = file.try_clone()?;
    process::signal(server, Signal::STOP);
    wait_until("the server is stopped", || Ok(is_stopped(server)))?;
    let (said, heard) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 5000];
        said.send(()).ok();
        let read = file.read_at(&mut bytes, 0);
        said.send(()).ok();
        read.is_ok_and(|count| count == bytes.len())
    });
    heard.recv().context("the reader begins")?;
    let in_time = heard.recv_timeout(Duration::from_millis(400)).is_ok();
    process::signal(server, Signal::CONT);
    Ok(reader.join().is_ok_and(|whole| whole) && in_time)
}

#[test]
fn readers_of_a_session_are_served_by_the_kernel_alone_and_those_of_a_strict_one_never()
-> Result<()> {
    for (consistency, cached) in [("strict", false), ("session", true)] {
        let Some(bench) = Bench::new("pages")? else { return Ok(()) };
        let instance = bench.start_with("both", &["--consistency", consistency])?;
        let status = instance.status()?;
        let said = status["options"]["consistency"].as_str();
        ensure!(said == Some(consistency), "status says {said:?}");
        inside(&instance, "head -c 5000 /dev/urandom > file")?;
        let server = server(&bench, &bench.mount)?;
        // Attributes may have become old by the time of the look.
        let look = || -> Result<bool> {
            let file = File::open(bench.mount.join("file"))?;
            file.read_at(&mut [0; 5000], 0)?;
            read_while_nobody_serves(&file, server)
        };
        match cached {
            true => wait_until("the kernel serves a reader alone", look)?,
            false => ensure!(!look()?, "with strict consistency the kernel kept something"),
        }
        instance.expect_nothing_held(PATIENCE)?;
        bench.finish(&instance)?;
    }
    Ok(())
}

#[test]
fn a_session_lists_ten_thousand_files_with_their_attributes() -> Result<()> {
    let Some(bench) = start("listing", &[])? else { return Ok(()) };
    let instance = instance(&bench)?;
    inside(&instance, "mkdir d; cd d; seq 10000 | split -l 1 -a 4 --numeric-suffixes=0 - f")?;
    let count = "ls -l d | awk 'NR > 1 { n += 1; bytes += $5 } END { print n, bytes }'";
    let own = inside(&instance, count)?;
    ensure!(own == bench.outside(&format!("cd $M; {count}"))?, "inside {own}");
    ensure!(
        bench.outside("ls -A $M/d | sort | md5sum")?
            == inside(&instance, "ls -A d | sort | md5sum")?
    );
    bench.outside("rm -r $M/d")?;
    bench.finish(&instance)
}
