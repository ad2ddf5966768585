//! A process that drives a core on files is killed at random moments. What it had acknowledged is
//! there afterwards.
//!
//! The test starts itself as the victim. The victim prints the number of each operation after its
//! commit; the pipe is the witness of what was acknowledged.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::{
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use mayfly_daemon::Config;
use support::{Node, config};

const VICTIM: &str = "MAYFLY_TEST_VICTIM_DIRECTORY";
const ROUNDS: u64 = 8;

fn node(directory: &Path, shards: u32) -> Node {
    Node::reopened(Config { io_threads: 1, ..config() }, directory, shards)
}

/// Operation `number`: a file is made and filled, an earlier one renamed, one before that removed.
fn step(node: &mut Node, number: u64) {
    let open = node.open(&format!("new{number}"), support::O_CREAT | support::O_RDWR).unwrap().0;
    let size = if number.is_multiple_of(5) { 10_000 } else { 100 };
    node.write(open, 0, &vec![number as u8; size]).unwrap();
    node.close(open);
    if number >= 10 {
        node.rename(&format!("new{}", number - 10), &format!("old{}", number - 10), 0).unwrap();
    }
    if number >= 20 {
        node.unlink(&format!("old{}", number - 20), false).unwrap();
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    kill_and_look("nothing_acknowledged_is_lost_when_the_process_is_killed", 1);
}

#[test]
fn nothing_acknowledged_is_lost_when_a_process_of_three_shards_is_killed() {
    kill_and_look("nothing_acknowledged_is_lost_when_a_process_of_three_shards_is_killed", 3);
}

/// `test` is the name of the test that the victim is started as.
fn kill_and_look(test: &str, shards: u32) {
    if let Some(directory) = std::env::var_os(VICTIM) {
        be_the_victim(&PathBuf::from(directory), shards);
    }
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = None;
    for round in 0..ROUNDS {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(VICTIM, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(victim.stdout.take().unwrap());
        // The test runner prints lines of its own.
        let number = |line: String| line.rsplit(' ').next().and_then(|word| word.parse().ok());
        let mut numbers = output.lines().map_while(Result::ok).filter_map(number);
        if round == 0 {
            // On a busy machine a process takes its time to begin.
            acknowledged = numbers.next();
        }
        std::thread::sleep(Duration::from_millis(150 + round * 37 % 100));
        victim.kill().unwrap();
        victim.wait().unwrap();
        acknowledged = numbers.last().or(acknowledged);
        let last: u64 = acknowledged.expect("the victim got something done");
        check(&mut node(directory.path(), shards), last);
    }
}

fn check(node: &mut Node, last: u64) {
    // Operations after the last acknowledged one may have happened too: the one that was not
    // acknowledged any more, and one for each victim that was killed before it acknowledged any.
    for number in last.saturating_sub(8)..=last {
        let renamed = |node: &mut Node| node.open(&format!("old{number}"), 0);
        let open = node.open(&format!("new{number}"), 0).or_else(|_| renamed(node));
        let open = open.unwrap_or_else(|error| panic!("{number} of {last}: {error:?}")).0;
        let size = if number.is_multiple_of(5) { 10_000 } else { 100 };
        assert_eq!(node.read(open, 0, 20_000).unwrap(), vec![number as u8; size], "{number}");
        node.close(open);
    }
    for number in last.saturating_sub(14)..last.saturating_sub(9) {
        assert!(node.stat(&format!("old{number}"), false).is_ok(), "old{number}");
    }
    if last >= 20 {
        assert!(node.stat(&format!("old{}", last - 20), false).is_err());
    }
    let counters = node.core().counters();
    assert_eq!((counters.open_files, counters.orphans), (0, 0));
}

fn be_the_victim(directory: &Path, shards: u32) -> ! {
    let mut node = node(directory, shards);
    let mut number = 0;
    while node.stat(&format!("new{number}"), false).is_ok()
        || node.stat(&format!("old{number}"), false).is_ok()
        || number < first_left(&mut node)
    {
        number += 1;
    }
    // The last operation may be half done; it is finished by hand, so that the steps go on in
    // order.
    clean_up(&mut node, number);
    loop {
        step(&mut node, number);
        println!(" {number}");
        std::io::stdout().flush().unwrap();
        number += 1;
    }
}

fn first_left(node: &mut Node) -> u64 {
    let root = node.open(".", 0).unwrap().0;
    let names = node.list(root, 100_000).unwrap();
    node.close(root);
    let number = |name: &[u8]| std::str::from_utf8(name.get(3..)?).ok()?.parse().ok();
    names.iter().filter_map(|(name, _)| number(name)).min().unwrap_or(0)
}

fn clean_up(node: &mut Node, next: u64) {
    let Some(number) = next.checked_sub(1) else { return };
    let open = node.open(&format!("new{number}"), support::O_RDWR).unwrap().0;
    let size = if number.is_multiple_of(5) { 10_000 } else { 100 };
    node.write(open, 0, &vec![number as u8; size]).unwrap();
    node.close(open);
    if number >= 10 {
        drop(node.rename(&format!("new{}", number - 10), &format!("old{}", number - 10), 0));
    }
    if number >= 20 {
        drop(node.unlink(&format!("old{}", number - 20), false));
    }
}
