//! Nodes whose root shows a directory outside.

use mayfly_daemon::Planted;
use mayfly_sim::{
    origin::{Bug, Options, Plan, run},
    shrink::Part,
};

const SEEDS: u64 = 150;
/// Seeds that may be needed to meet a bug.
const SEEDS_TO_BUG: u64 = 200;

/// What is wrong with the first run that shows the bug.
fn found(bug: Bug) -> String {
    let options = Options { bug: Some(bug), ..Options::default() };
    let wrong = (1..=SEEDS_TO_BUG).find_map(|seed| {
        let wrong = run(&Plan::draw(seed, None), options).wrong;
        wrong.first().map(|wrong| format!("seed {seed}: {wrong}"))
    });
    let wrong = wrong.unwrap_or_else(|| panic!("{bug:?} goes unnoticed"));
    println!("{bug:?}: {wrong}");
    wrong
}

fn finds_nothing(seed: u64, nodes: Option<u32>, part: &str) {
    let mut plan = Plan::draw(seed, nodes);
    if !part.is_empty() {
        let part: Part = part.parse().expect("a part as it is printed");
        plan = part.of(&plan);
    }
    let wrong = run(&plan, Options::default()).wrong;
    let repeat = format!("cargo run --release -p mayfly-sim -- --origin --seed {seed}");
    assert!(wrong.is_empty(), "{repeat} --part {part}\n{wrong:#?}");
}

#[test]
fn some_hundred_seeds_find_nothing() {
    (1..=SEEDS).for_each(|seed| finds_nothing(seed, None, ""));
}

#[test]
fn they_do_many_things_and_meet_conflicts() {
    let outcomes = (1..=30).map(|seed| run(&Plan::draw(seed, None), Options::default()));
    let (mut jobs, mut items, mut conflicts) = (0, 0, 0);
    for outcome in outcomes {
        jobs += outcome.jobs;
        items += outcome.items;
        conflicts += outcome.conflicts;
    }
    assert!(jobs > 2000 && items > 2000 && conflicts > 5, "{jobs} {items} {conflicts}");
}

#[test]
fn what_was_not_written_back_and_is_forgotten_by_the_next_daemon_is_found() {
    let wrong = found(Bug::Daemon(Planted::DirtyForgotten));
    assert!(wrong.contains("nowhere outside"), "{wrong}");
}

#[test]
fn a_flush_that_was_not_done_is_found() {
    let wrong = found(Bug::LosesFlushes);
    assert!(wrong.contains("nowhere outside") || wrong.contains("without its"), "{wrong}");
}

#[test]
fn a_flush_that_overwrites_without_a_look_is_found() {
    let wrong = found(Bug::FlushesUnseen);
    assert!(wrong.contains("and is flushed as"), "{wrong}");
}

#[test]
fn a_keeper_that_says_that_nothing_has_changed_is_found() {
    found(Bug::SeesNothing);
}

#[test]
fn a_daemon_that_never_looks_again_is_found() {
    let wrong = found(Bug::Daemon(Planted::NeverLooksAgain));
    assert!(wrong.contains("for long") || wrong.contains("is there"), "{wrong}");
}

#[test]
fn bytes_that_are_said_to_be_there_before_they_are_written_are_found() {
    let wrong = found(Bug::TellsEarly);
    assert!(wrong.contains("not whole"), "{wrong}");
}

#[test]
fn a_flushed_file_that_is_taken_for_somebody_elses_is_found() {
    let wrong = found(Bug::ForgetsNotes);
    assert!(wrong.contains("no conflict"), "{wrong}");
}
