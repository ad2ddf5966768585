//! A process that writes a tree as fast as it can is killed at random moments. The tree then holds
//! exactly what its transactions, up to the one that it says, have made; and none that was reported
//! is missing.
//!
//! The test starts itself as the victim. What a transaction does follows from its number alone.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use mayfly_meta::{Scan, Store, TreeOptions, TreeStore};

const VICTIM: &str = "MAYFLY_TEST_TREE_DIRECTORY";
const TEST: &str = "a_killed_process_leaves_whole_transactions_and_all_that_it_reported";
const ROUNDS: u64 = 10;
/// Few enough that pages are split and joined all the time.
const KEYS: u64 = 4000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// What transaction `number` does: values of new lengths, some of them long, and removals, more of
/// either by turns.
fn changes(number: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let emptying = number / 3000 % 2;
    let change = |at: u64| {
        let random = mixed(number.wrapping_mul(31) + at);
        let key = [b"K".as_slice(), &(mixed(random % KEYS)).to_be_bytes(), b"name"].concat();
        let length = match random >> 32 & 63 {
            0 => 5000,
            1 => 1500,
            other => 90 + other,
        };
        let removed = random >> 40 & 7 < 2 + 4 * emptying;
        (key, (!removed).then(|| vec![number as u8; length as usize]))
    };
    (0..1 + number % 7).map(change).collect()
}

fn open(directory: &Path) -> TreeStore {
    TreeStore::open(&TreeOptions {
        directory: directory.to_owned(),
        limit_bytes: 1 << 30,
        boot_id: b"boot".to_vec(),
    })
    .unwrap()
}

fn be_the_victim(directory: &Path) -> ! {
    let mut store = open(directory);
    let mut output = std::io::stdout();
    loop {
        let number = store.committed_transaction() + 1;
        for (key, value) in changes(number) {
            match value {
                Some(value) => store.put(&key, &value).unwrap(),
                None => drop(store.delete(&key).unwrap()),
            }
        }
        // It changes something in any case.
        store.put(b"last", &number.to_le_bytes()).unwrap();
        assert_eq!(store.commit().unwrap(), number);
        output.write_all(format!(" {number}\n").as_bytes()).unwrap();
        output.flush().unwrap();
    }
}

#[test]
fn a_killed_process_leaves_whole_transactions_and_all_that_it_reported() {
    if let Some(directory) = std::env::var_os(VICTIM) {
        be_the_victim(&PathBuf::from(directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut model, mut modelled) = (Model::new(), 0);
    for round in 0..ROUNDS {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(VICTIM, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(victim.stdout.take().unwrap());
        // A pipe that nobody empties would stop the victim between two transactions.
        let reader = std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).last()
        });
        std::thread::sleep(Duration::from_millis(60 + round * 37 % 90));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let reported = reader.join().unwrap().unwrap_or(0);
        let mut store = open(directory.path());
        let committed = store.committed_transaction();
        assert!(reported <= committed, "{reported} was reported, {committed} is there");
        for number in modelled + 1..=committed {
            for (key, value) in changes(number) {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            model.insert(b"last".to_vec(), number.to_le_bytes().to_vec());
        }
        modelled = committed;
        let mut found = Model::new();
        store
            .scan(b"", b"\0", &mut |key, value| {
                found.insert(key.to_vec(), value.to_vec());
                Scan::More
            })
            .unwrap();
        assert!(found == model, "round {round}: not the state after transaction {committed}");
    }
    assert!(modelled > 100, "only {modelled} transactions");
}
