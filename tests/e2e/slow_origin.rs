//! Origins on a slow, busy file system that counts its calls (`tests/outside`): nothing is asked
//! twice there, what fails is told and tried again, and many readers are one.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Scratch, Turn, skip};
use outside::{Call, Outside, Speeds};

const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORIES: usize = 3;
/// In each of them.
const FILES: usize = 20;
const FILE_BYTES: usize = 3_000;
/// Files of a large directory: looks at all of them keep the one queue for half a minute.
const MANY: u64 = 30_000;

/// An instance that shows what is shown slowly.
struct Slow<'a> {
    instance: Instance<'a>,
    below: PathBuf,
    outside: Outside,
}

fn is_possible() -> bool {
    skip::unless_mountable("slow origins")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of this suite is text")
}

fn plant(below: &Path) -> Result<()> {
    for directory in 0..DIRECTORIES {
        let directory = below.join(format!("d{directory}"));
        fs::create_dir_all(&directory)?;
        for file in 0..FILES {
            fs::write(directory.join(format!("f{file}")), vec![b'a' + file as u8; FILE_BYTES])?;
        }
    }
    Ok(())
}

impl<'a> Slow<'a> {
    fn start(scratch: &'a Scratch, name: &str, speeds: Speeds) -> Result<Slow<'a>> {
        let (below, shown) = (scratch.join(format!("{name}-below")), scratch.join("shown"));
        plant(&below)?;
        fs::create_dir(&shown)?;
        let outside = Outside::show(&below, &shown, speeds)?;
        let instance = Instance::named(scratch, name)?;
        let mount = scratch.join(format!("{name}-mnt"));
        let start = instance.command("start").args(["--mount", text(&mount)?, "--origin"]);
        start.args([text(&shown)?, "--validate", "1h"]).run_ok()?;
        Ok(Slow { instance, below, outside })
    }

    fn sh(&self, script: &str) -> Result<String> {
        let script = format!("cd \"$MAYFLY_MOUNT\" && {{ {script}\n}}");
        let outcome = self.instance.shell("job", &script).deadline(PATIENCE).run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).trim().to_owned())
    }
}

#[test]
fn a_tree_that_is_read_twice_costs_one_listing_a_directory_and_one_look_and_open_a_file()
-> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slow-twice")?;
    let metadata = Duration::from_millis(1);
    let slow = Slow::start(&scratch, "twice", Speeds { metadata, ..Speeds::default() })?;
    slow.outside.pace().reset();
    let read = "find . -type f -size +0 | wc -l; cat d*/f* | wc -c";
    let all = format!("{}\n{}", DIRECTORIES * FILES, DIRECTORIES * FILES * FILE_BYTES);
    for _ in 0..2 {
        ensure!(slow.sh(read)? == all, "what is read differs");
    }
    let calls = slow.outside.pace().calls();
    // Attributes of the open file are asked for before its bytes are read and afterwards.
    for (call, most) in [(Call::List, 1), (Call::Lookup, 1), (Call::Open, 1), (Call::Stat, 2)] {
        let made = calls.most(call);
        ensure!(made <= most, "{}: {made} times for one path: {}", call.name(), calls.as_json());
    }
    ensure!(calls.bytes_read == (DIRECTORIES * FILES * FILE_BYTES) as u64, "{}", calls.bytes_read);
    slow.instance.stop().map(drop)
}

/// Otherwise the first sample of a million would be there when all of them were looked at.
#[test]
fn a_file_of_a_large_directory_is_read_before_all_of_it_is_listed() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slow-large")?;
    let metadata = Duration::from_millis(1);
    let slow = Slow::start(&scratch, "large", Speeds { metadata, ..Speeds::default() })?;
    fs::create_dir(slow.below.join("many"))?;
    for number in 0..MANY {
        fs::write(slow.below.join(format!("many/{number}")), format!("{number}"))?;
    }
    let read = "cat many/777; cat many/none 2> /dev/null || echo ' none'; echo x > many/new; \
                cat many/new; rm many/778; test ! -e many/778";
    ensure!(slow.sh(read)? == "777 none\nx", "what is read differs");
    let listed = slow.outside.pace().calls().of(Call::Lookup);
    ensure!(listed < MANY, "all {listed} were looked at by then");
    slow.instance.stop()?;
    ensure!(fs::read(slow.below.join("many/new"))? == b"x\n", "it is not outside");
    ensure!(!slow.below.join("many/778").exists(), "it is there outside");
    Ok(())
}

#[test]
fn what_many_read_at_the_same_time_is_fetched_once() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slow-many")?;
    let bytes = 8 << 20;
    let speeds = Speeds { bytes_per_second: 32 << 20, ..Speeds::default() };
    let slow = Slow::start(&scratch, "many", speeds)?;
    fs::write(slow.below.join("large"), vec![b'x'; bytes])?;
    slow.outside.pace().reset();
    let many = "for i in 1 2 3 4 5 6 7 8; do wc -c < large & done; wait";
    let said = slow.sh(many)?;
    ensure!(said.lines().filter(|line| line.trim() == bytes.to_string()).count() == 8, "{said}");
    slow.sh("for i in 1 2 3 4 5 6 7 8; do cat large | cksum & done; wait")?;
    let calls = slow.outside.pace().calls();
    ensure!(calls.bytes_read == bytes as u64, "{} of {bytes} bytes", calls.bytes_read);
    ensure!(calls.of(Call::Open) == 1, "{} opens", calls.of(Call::Open));
    slow.instance.stop().map(drop)
}

#[test]
fn a_fetch_that_fails_outside_fails_here_with_its_errno_and_is_tried_again() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slow-fails")?;
    let slow = Slow::start(&scratch, "fails", Speeds::default())?;
    slow.sh("ls d0 d1 > /dev/null")?;
    for (call, path, errno, says) in [
        (Call::Open, "d0/f0", libc::EACCES, "Permission denied"),
        (Call::Read, "d0/f1", libc::EIO, "Input/output error"),
    ] {
        // The kernel tries by itself to read what it failed to read ahead.
        slow.outside.pace().fail(call, errno, 1_000);
        let script = format!("LC_ALL=C cat {path} 2>&1 > /dev/null || true");
        let said = slow.sh(&script)?;
        slow.outside.pace().fail(call, errno, 0);
        ensure!(said.contains(says), "{}: {said:?}", call.name());
        let count = slow.sh(&format!("wc -c < {path}"))?;
        ensure!(count == FILE_BYTES.to_string(), "{path} has {count} bytes afterwards");
    }
    // Names, too: the file is there when it is there outside.
    slow.outside.pace().fail(Call::Create, libc::ENOSPC, 1);
    let said = slow.sh("(LC_ALL=C; export LC_ALL; echo x > d1/new) 2>&1 || true")?;
    ensure!(said.contains("No space left"), "{said:?}");
    ensure!(!slow.below.join("d1/new").exists(), "it is there all the same");
    slow.sh("echo x > d1/new && cat d1/new")?;
    ensure!(slow.below.join("d1/new").exists(), "it was not made outside");
    slow.instance.stop()?;
    ensure!(fs::read(slow.below.join("d1/new"))? == b"x\n", "what was written is not there");
    Ok(())
}
