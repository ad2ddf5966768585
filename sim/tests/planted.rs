//! Bugs that are put in on purpose are found.

use std::ops::RangeInclusive;

use mayfly_daemon::{Directories, Planted};
use mayfly_sim::{
    client::Opening,
    disk, network,
    node::Chunks,
    plan::{Plan, Shape},
    world::{Bug, Options, run},
};

/// Seeds that may be needed to meet one.
const SEEDS: u64 = 300;

/// What is wrong with the first run that shows the bug.
fn found(bug: Bug) -> String {
    found_with(bug, Shape::default(), Options::default(), "")
}

/// The same, if what is wrong has that in it.
fn found_with(bug: Bug, shape: Shape, options: Options, says: &str) -> String {
    found_among(1..=SEEDS, bug, shape, options, says)
}

/// The same among these seeds, for a bug that few show.
fn found_among(
    mut seeds: RangeInclusive<u64>,
    bug: Bug,
    shape: Shape,
    options: Options,
    says: &str,
) -> String {
    let options = Options { bug: Some(bug), ..options };
    let wrong = seeds.find_map(|seed| {
        let wrong = run(&Plan::draw(seed, shape), options).wrong;
        let wrong = wrong.into_iter().find(|wrong| wrong.0.contains(says));
        wrong.map(|wrong| format!("seed {seed}: {}", wrong.0))
    });
    wrong.unwrap_or_else(|| panic!("{bug:?} goes unnoticed"))
}

#[test]
fn a_store_that_forgets_what_it_acknowledged_is_found() {
    found(Bug::Forgetful);
}

#[test]
fn a_request_that_is_delivered_again_late_is_found() {
    found(Bug::Network(network::Planted::Twice));
}

#[test]
fn a_loss_that_is_not_told_is_found() {
    found(Bug::Network(network::Planted::Silent));
}

#[test]
fn a_disk_that_loses_writes_is_found() {
    let wrong = found(Bug::Disk(disk::Planted::LosesWrites));
    assert!(wrong.contains("content of file"), "{wrong}");
}

#[test]
fn a_disk_that_keeps_what_was_removed_is_found() {
    let wrong = found(Bug::Disk(disk::Planted::KeepsObjects));
    assert!(wrong.contains("is of no file"), "{wrong}");
}

#[test]
fn a_process_that_does_not_look_whether_its_leave_has_ended_is_found() {
    let shape = Shape { bytes: true, nodes: Some(2), ..Shape::default() };
    // Names that move take the clients' time, and few of them would meet the end of a leave.
    let directories = Some(Directories::Spread);
    let own = Options { own: true, opening: Opening::Brief, ..Options::default() };
    let options = Options { chunks: Chunks::OnAll, directories, ..own };
    found_among(1001..=1300, Bug::Blind, shape, options, "content of file");
}

/// An append that is made by itself while its file outgrows its home is made again by request. The
/// daemons once gave leave for it, to all but descriptions that were opened with O_APPEND.
#[test]
fn a_process_that_appends_by_itself_to_a_file_that_outgrows_its_home_is_found() {
    let shape = Shape { bytes: true, ..Shape::default() };
    let options = Options { chunks: Chunks::Outgrowing, own: true, ..Options::default() };
    found_with(Bug::Appending, shape, options, "content of file");
}

/// Two clients know that they hold locks that exclude each other.
#[test]
fn a_store_that_forgets_locks_is_found() {
    let shape = Shape { locks: true, ..Shape::default() };
    found_with(Bug::Forgetful, shape, Options::default(), "Held");
}

/// What is wrong with the first run of clients that make and remove names in two directories, and
/// submit what they have delegated.
fn found_in_entries(bug: Planted) -> String {
    let shape = Shape { shards: Some(1), entries: true, ..Shape::default() };
    let directories = Some(Directories::Whole);
    let options = Options { directories, submits: true, ..Options::default() };
    found_with(Bug::Daemon(bug), shape, options, "")
}

#[test]
fn a_watermark_that_goes_back_is_found() {
    found_in_entries(Planted::WatermarkGoesBack);
}

#[test]
fn a_name_that_is_at_two_owners_is_found() {
    found_in_entries(Planted::NamesAtBothOwners);
}

#[test]
fn a_directory_that_is_delegated_though_it_is_spread_is_found() {
    found_in_entries(Planted::DelegatedThoughSpread);
}

#[test]
fn a_directory_that_is_delegated_beside_prepare_locks_is_found() {
    found_in_entries(Planted::DelegatedBesidePrepareLocks);
}

#[test]
fn a_delegation_that_is_not_recalled_before_names_move_is_found() {
    found_in_entries(Planted::NotRecalledBeforeSpread);
}

#[test]
fn a_submitted_change_of_attributes_that_is_lost_is_found() {
    let wrong = found_in_entries(Planted::SubmittedChangeLost);
    assert!(wrong.contains("mode of"), "{wrong}");
}

#[test]
fn an_object_of_a_submitted_file_that_is_not_taken_is_found() {
    let wrong = found_in_entries(Planted::SubmittedObjectLost);
    assert!(wrong.contains("length of"), "{wrong}");
}

#[test]
fn content_that_was_submitted_for_a_file_that_is_there_and_is_lost_is_found() {
    let wrong = found_in_entries(Planted::ReplacedContentLost);
    assert!(wrong.contains("length of"), "{wrong}");
}

#[test]
fn what_was_submitted_to_be_added_to_a_file_and_is_lost_is_found() {
    let wrong = found_in_entries(Planted::AddedContentLost);
    assert!(wrong.contains("length of"), "{wrong}");
}

#[test]
fn a_name_that_stays_though_it_was_submitted_to_move_is_found() {
    found_in_entries(Planted::MovedNameStays);
}

#[test]
fn a_second_name_that_was_submitted_and_is_not_made_is_found() {
    found_in_entries(Planted::SubmittedLinkLost);
}

/// Clients that have the file open only for a moment look at its length by its name.
#[test]
fn a_file_that_changes_before_those_forget_it_who_know_it_is_found() {
    let shape = Shape { bytes: true, nodes: Some(3), ..Shape::default() };
    let options = Options { opening: Opening::Brief, ..Options::default() };
    found_with(Bug::Daemon(Planted::FileNotForgotten), shape, options, "content of file");
}
