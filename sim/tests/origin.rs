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
    found_in(bug, |seed| Plan::draw(seed, None))
}

fn found_in(bug: Bug, plan: impl Fn(u64) -> Plan) -> String {
    let options = Options { bug: Some(bug), ..Options::default() };
    let wrong = (1..=SEEDS_TO_BUG).find_map(|seed| {
        let wrong = run(&plan(seed), options).wrong;
        wrong.first().map(|wrong| format!("seed {seed}: {wrong}"))
    });
    let wrong = wrong.unwrap_or_else(|| panic!("{bug:?} goes unnoticed"));
    println!("{bug:?}: {wrong}");
    wrong
}

fn finds_nothing(seed: u64, nodes: Option<u32>, part: &str) {
    finds_nothing_in(Plan::draw(seed, nodes), "", part);
}

/// The same with all that a plan can have.
fn finds_nothing_wide(seed: u64, part: &str) {
    finds_nothing_in(Plan::draw(seed, None).widened(), " --wide", part);
}

fn finds_nothing_in(mut plan: Plan, wide: &str, part: &str) {
    if !part.is_empty() {
        let part: Part = part.parse().expect("a part as it is printed");
        plan = part.of(&plan);
    }
    let (seed, wrong) = (plan.seed, run(&plan, Options::default()).wrong);
    let repeat = format!("cargo run --release -p mayfly-sim -- --origin{wide} --seed {seed}");
    assert!(wrong.is_empty(), "{repeat} --part {part}\n{wrong:#?}");
}

#[test]
fn some_hundred_seeds_find_nothing() {
    (1..=SEEDS).for_each(|seed| finds_nothing(seed, None, ""));
}

#[test]
fn directories_that_move_and_little_space_find_nothing() {
    (1..=SEEDS).for_each(|seed| finds_nothing_wide(seed, ""));
}

#[test]
fn names_that_are_looked_at_alone_while_all_are_listed_find_nothing() {
    for seed in 1..=SEEDS {
        finds_nothing_in(Plan::draw(seed, None).hurried(), " --hurried", "");
        finds_nothing_in(Plan::draw(seed, None).widened().hurried(), " --wide --hurried", "");
    }
}

/// A close did not wait for the flush of a file that was at home at another node.
#[test]
fn what_is_closed_at_another_node_is_outside() {
    [2, 3, 6].into_iter().for_each(|seed| finds_nothing_wide(seed, ""));
}

/// A file could not be made outside, since others had made it. The note of that stayed when the
/// request had found theirs, and the next daemon kept the file's flushes waiting for it. Nobody
/// connected to a node either, whose daemon had died with a request, before there was another one.
#[test]
fn what_could_not_be_made_outside_keeps_nothing_waiting() {
    [1201797, 1100491].into_iter().for_each(|seed| finds_nothing_wide(seed, ""));
}

/// Two files were here in part and dirty, and there was no room for the rest of either.
#[test]
fn what_is_here_in_part_is_flushed_however_little_space_there_is() {
    [1100133].into_iter().for_each(|seed| finds_nothing_wide(seed, ""));
}

/// Others removed a directory that had its seat at another node, and made another one. The seat was
/// gone, and the daemon of its name died before that went, too: it led nowhere for good. What a
/// keeper was at took longer than all flushes that were tried meanwhile.
#[test]
fn a_directory_that_is_there_again_gets_another_seat() {
    [1502498, 1500916].into_iter().for_each(|seed| finds_nothing_wide(seed, ""));
}

/// A file was removed, and others made it again before that was known here. A look meanwhile took
/// it for the one that was being removed, and the directory for listed.
#[test]
fn a_file_that_is_there_again_is_found_when_its_removal_is_known() {
    finds_nothing(2008015, None, "");
}

/// What was fetched ahead took the place of the chunk that was about to be read.
#[test]
fn what_is_about_to_be_read_makes_no_room_for_what_comes_behind_it() {
    [1405967, 1401440, 1402439].into_iter().for_each(|seed| finds_nothing_wide(seed, ""));
}

/// The keeper failed a move that it had made for the daemon before, without a look; or the daemon
/// failed the call before it asked. The judge took what was dirty below for nobody's conflict.
#[test]
fn a_directory_may_have_been_moved_for_a_call_that_failed() {
    [1302162, 1303839].into_iter().for_each(|seed| finds_nothing_wide(seed, ""));
}

/// Space was short for a fetch, and what another shard has set aside could not be asked for: the
/// read failed with EIO, not with ENOSPC. What somebody has added to a file that was emptied before
/// was none of the judge's contents.
#[test]
fn a_read_that_finds_no_space_is_told_so() {
    [2004, 4874].into_iter().for_each(|seed| finds_nothing_wide(seed, ""));
}

/// All of a file was wanted that is longer than there was space. Its first bytes went for its last
/// ones, were fetched once more, and then it was said to have changed: EIO.
#[test]
fn a_file_for_which_there_is_no_space_is_not_fetched_ahead() {
    finds_nothing_wide(9700056, "");
}

/// A request that changes names outside is run again when that was done, and looked at the
/// directory anew: a rename that was done failed with ENOENT, and a flush put a copy beside the
/// file that it had moved.
#[test]
fn what_a_request_changes_outside_is_not_taken_from_it_by_a_look() {
    finds_nothing(22, None, "");
}

/// A directory that was being made was found by a look, and got a seat at another node that no
/// name led to.
#[test]
fn a_directory_that_is_being_made_gets_no_second_seat() {
    [73, 77, 299].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A write was on its way to the disk when the flush of its file began. The file was taken for
/// clean, and lost the write when its bytes were evicted.
#[test]
fn a_write_that_is_under_way_when_a_flush_begins_is_not_lost() {
    [1371, 2669].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// Something was changed outside for a request, and a flush of the file began before the request
/// had changed it here: it met another file, or none, and put a copy beside it.
#[test]
fn a_flush_does_not_meet_a_change_of_names_half_way() {
    [1279, 1592, 2921, 2960].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A name was left out of what a look had found, since something was being done about it, and the
/// directory was known as it was. No later look told of the name.
#[test]
fn a_name_that_a_look_has_left_out_is_found_by_the_next_one() {
    [3520, 4250, 5659].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A read waited for a look that the keeper had begun before, and missed what was there since.
#[test]
fn who_waits_for_a_look_gets_none_from_before() {
    [3135, 5535].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A read was on its way to the disk when what was fetched of its file went, since that was another
/// one outside: it failed with ENOENT instead of ESTALE.
#[test]
fn a_read_of_a_file_that_is_another_one_outside_is_stale() {
    [5797, 11296].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// Somebody else's file was in the way of one that was to be made, and the daemon and its keeper
/// died. The next keeper took it for the file that had been made before.
#[test]
fn what_others_have_made_is_not_taken_for_what_was_made_before() {
    [20597, 23014, 30293, 108554].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A seat was given for a directory that was gone outside when the daemon which had asked died.
#[test]
fn an_empty_seat_may_be_left_for_who_finds_its_path_again() {
    [40077, 42378].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A keeper made an object that an earlier daemon had wanted, after the next one had removed it,
/// and died before it was told that nobody wants it.
#[test]
fn an_object_that_a_keeper_made_late_goes_when_the_keeper_is_gone() {
    [23109, 23395, 31262].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A file was moved, or its mode set, outside for a call that failed here: another directory had
/// gone, or the keeper had died and could not do it again. The next flush of the dirty file took
/// that for somebody else's change.
#[test]
fn what_was_changed_outside_for_a_call_that_fails_makes_no_conflict() {
    [104382, 202161].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A look did not tell that a name was gone, since the keeper was looking at that name, too.
#[test]
fn a_name_that_is_gone_goes_though_somebody_waits_for_its_attributes() {
    finds_nothing(206612, None, "");
}

/// A file was gone when the keeper looked at it, and there again when the directory was listed,
/// which was told earlier. Its name went, and no look found it until the directory changed.
#[test]
fn a_name_that_is_listed_later_is_not_gone() {
    finds_nothing(300323, None, "0,3,5-6/2,4,6,8/0-1/0-5/0-6/0-6");
}

/// A file was moved outside, and the daemon died. Others set its mode, and the next daemon's move
/// took their time of change for that of the move: the old mode stayed here.
#[test]
fn a_mode_that_others_set_before_a_move_is_made_again_is_seen() {
    finds_nothing(409491, None, "");
}

/// A file was appended to before any of it was here, and was changed or removed outside. It could
/// never be flushed; then it was beside, and its length was unsettled without a record.
#[test]
fn what_is_appended_to_a_file_that_others_change_is_outside_at_the_end() {
    [600029, 600094, 600223].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// There was no space for the first bytes that were to be written to a long file of which nothing
/// was here. It was dirty from then on, and there was nothing to flush.
#[test]
fn a_write_that_finds_no_space_leaves_nothing_dirty() {
    finds_nothing(2921, None, "0-1//0-1/0/0/0-1,3");
}

/// A mode was set outside for a call that failed, and the file's bytes were wanted for its flush by
/// the time before that: it was taken for somebody else's, and was flushed nowhere.
#[test]
fn what_is_unsure_is_fetched_by_the_time_that_it_has_now() {
    finds_nothing(803544, None, "");
}

/// The judge compared what different programs had written, and missed what was being written to a
/// file that others replaced just then.
#[test]
fn what_others_replace_while_it_is_written_may_go() {
    [801451, 801901].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// An object of which a chunk was being read ahead stayed until a slow keeper had ended that, and
/// the judge took it for one that stays.
#[test]
fn an_object_that_a_slow_keeper_is_at_goes_later() {
    [108826, 110026].into_iter().for_each(|seed| finds_nothing(seed, None, ""));
}

/// A file was flushed by the path of a directory that was being moved, where another one had been
/// made since.
#[test]
fn what_is_below_a_directory_is_not_flushed_while_that_is_moved() {
    finds_nothing_wide(4002725, "//0-7/0-1,3-7/0-4/0-10,12-23");
}

/// The judge took a conflict for none, where others had removed what was to be moved.
#[test]
fn others_may_remove_what_is_moved_once_more() {
    finds_nothing(11530, None, "");
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

#[test]
fn a_change_for_a_call_that_failed_that_is_taken_for_somebody_elses_is_found() {
    let wrong = found(Bug::TakesOwnForOthers);
    assert!(wrong.contains("no conflict"), "{wrong}");
}

#[test]
fn a_close_that_does_not_wait_for_the_flush_is_found() {
    let bug = Bug::Daemon(Planted::CloseDoesNotWait);
    let wrong = found_in(bug, |seed| Plan::draw(seed, None).widened());
    assert!(wrong.contains("is closed"), "{wrong}");
}

#[test]
fn a_dirty_file_that_goes_when_space_is_short_is_found() {
    let bug = Bug::Daemon(Planted::EvictsDirty);
    let wrong = found_in(bug, |seed| Plan::draw(seed, None).widened());
    assert!(wrong.contains("without its") || wrong.contains("nowhere outside"), "{wrong}");
}
