//! The inputs that fuzzing has found worth keeping, and small changes of them, on every test run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use fuzzed::{TARGETS, Target, inputs};

/// For each target; all eight together are to take less than 40 s.
const PATIENCE: Duration = Duration::from_secs(4);

fn kept(target: &Target) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    inputs::read(&inputs::file(&root, target.name)).expect("every target has kept inputs")
}

fn run(target: &Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{}: {digits}", target.name);
    }
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let (kept, seeds) = (kept(target), (target.seeds)());
    assert!(kept.len() >= 10, "only {} inputs are kept for {name}", kept.len());
    let start = Instant::now();
    for input in kept.iter().chain(&seeds) {
        run(target, input);
    }
    // The same numbers in each run, so that a failure comes again.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    while start.elapsed() < PATIENCE {
        let mut input = kept[next() % kept.len()].clone();
        for _ in 0..=next() % 4 {
            let at = next() % input.len();
            input[at] = next() as u8;
        }
        if next() % 4 == 0 {
            input.truncate(1 + next() % input.len());
        }
        run(target, &input);
    }
}

#[test]
fn requests_and_replies_of_any_bytes_are_read_or_refused() {
    replay("wire");
}

#[test]
fn words_between_nodes_of_any_bytes_are_read_or_refused() {
    replay("words");
}

#[test]
fn strangers_and_wrong_peers_are_believed_nothing_and_bounded() {
    replay("connections");
}

#[test]
fn a_mad_process_harms_only_its_own_lanes() {
    replay("ring");
}

#[test]
fn a_mad_process_that_gives_up_gets_its_own_answers_and_all_of_its_lanes() {
    replay("lanes");
}

#[test]
fn records_of_any_bytes_are_read_or_refused() {
    replay("records");
}

#[test]
fn changed_pages_are_errors_or_wrong_answers_and_nothing_worse() {
    replay("pages");
}

#[test]
fn lists_of_hosts_and_sizes_of_any_text_are_read_or_refused() {
    replay("lists");
}
