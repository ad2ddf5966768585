//! Runs under session consistency: what was sent on before it was closed is seen by who opens
//! later.

use mayfly_daemon::Planted;
use mayfly_sim::{
    client::Opening,
    node::Chunks,
    plan::{Plan, Shape},
    world::{Bug, Options, Report, run},
};

const SEEDS: u64 = 150;
/// Histories among them in which too much is possible to tell.
const UNDECIDED_MAX: usize = 20;

const BYTES: Shape = Shape {
    bytes: true,
    nodes: None,
    shards: None,
    roles: false,
    scraps: false,
    locks: false,
    entries: false,
    within: false,
};

fn of_seed(seed: u64, shape: Shape, options: Options) -> Report {
    let options = Options { opening: Opening::Session, ..options };
    run(&Plan::draw(seed, shape), options)
}

fn find_nothing(shape: Shape, options: Options) {
    let mut undecided = 0;
    for seed in 1..=SEEDS {
        let report = of_seed(seed, shape, options);
        let repeat = format!("cargo run --release -p mayfly-sim -- --session --seed {seed}");
        assert!(report.wrong.is_empty(), "{repeat}\n{:#?}", report.wrong);
        undecided += report.undecided;
    }
    // Who has leave to write has to ask once more behind an append, so more happens at once.
    let most = if options.own { 2 * UNDECIDED_MAX } else { UNDECIDED_MAX };
    assert!(undecided <= most, "{undecided} histories could not be decided");
}

/// To be repeated with `--session`, `--session --bytes`, and these with `--outgrowing`.
#[test]
fn nodes_may_be_ahead_and_behind_of_each_other_between_opens_and_closes_only() {
    for chunks in [Chunks::AtHome, Chunks::Outgrowing] {
        find_nothing(BYTES, Options { chunks, ..Options::default() });
        find_nothing(Shape::default(), Options { chunks, ..Options::default() });
    }
}

/// To be repeated with `--session --bytes --local`, and with `--own`.
#[test]
fn nor_otherwise_where_files_are_on_the_nodes_that_make_them() {
    find_nothing(BYTES, Options { chunks: Chunks::AtMaker, ..Options::default() });
    find_nothing(BYTES, Options { chunks: Chunks::AtMaker, own: true, ..Options::default() });
}

/// To be repeated with `--session --bytes --within`, with cargo's profile `sim`.
#[test]
fn nor_where_daemons_die_in_the_middle_of_what_they_do() {
    find_nothing(Shape { within: true, ..BYTES }, Options::default());
}

/// Who closes goes on before what he wrote is at the file's home, and who opens later reads what
/// was there before.
#[test]
fn a_close_that_does_not_wait_for_what_is_behind_is_found() {
    let bug = Some(Bug::Daemon(Planted::CloseDoesNotWait));
    let shape = Shape { nodes: Some(3), ..BYTES };
    let found = (1..=SEEDS).any(|seed| {
        let wrong = of_seed(seed, shape, Options { bug, ..Options::default() }).wrong;
        wrong.iter().any(|wrong| wrong.0.contains("content of file"))
    });
    assert!(found, "it goes unnoticed");
}
