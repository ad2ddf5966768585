//! Runs of the simulator: some that nobody has looked at, and those that have found something.

use mayfly_daemon::Directories;
use mayfly_sim::{
    client::Opening,
    fuse::Place,
    node::Chunks,
    plan::{Plan, Shape, Trouble},
    shrink::Part,
    world::{Options, run},
};

const SEEDS: u64 = 150;
/// Histories among them in which too much is possible to tell.
const UNDECIDED_MAX: usize = 6;
/// The same where a write that is made twice counts as two.
const UNDECIDED_TWICE_MAX: usize = 30;

fn find_nothing(shape: Shape, options: Options) {
    let mut undecided = 0;
    for seed in 1..=SEEDS {
        let report = run(&Plan::draw(seed, shape), options);
        let repeat = format!("cargo run --release -p mayfly-sim -- --seed {seed}");
        assert!(report.wrong.is_empty(), "{repeat}\n{:#?}", report.wrong);
        undecided += report.undecided;
    }
    let most = if options.own { UNDECIDED_TWICE_MAX } else { UNDECIDED_MAX };
    assert!(undecided <= most, "{undecided} histories could not be decided");
}

#[test]
fn some_hundred_seeds_find_nothing() {
    find_nothing(Shape::default(), Options::default());
}

/// To be repeated with `--striped`. These found that an append for which there was no space made
/// the file longer (seed 92), and that a truncate whose cut was made said that it was not (60).
#[test]
fn they_find_nothing_either_where_the_chunks_of_files_go_round_the_nodes() {
    find_nothing(Shape::default(), Options { chunks: Chunks::OnAll, ..Options::default() });
}

/// To be repeated with `--striped --roles`.
#[test]
fn they_find_nothing_either_where_some_nodes_own_nothing() {
    let shape = Shape { roles: true, ..Shape::default() };
    find_nothing(shape, Options { chunks: Chunks::OnAll, ..Options::default() });
}

/// To be repeated with `--local`.
#[test]
fn nor_where_files_are_on_the_nodes_that_make_them() {
    find_nothing(Shape::default(), Options { chunks: Chunks::AtMaker, ..Options::default() });
}

/// To be repeated with `--outgrowing`, and `--bytes`, `--scraps` or `--own --bytes`.
#[test]
fn nor_where_files_outgrow_their_homes() {
    let options = Options { chunks: Chunks::Outgrowing, ..Options::default() };
    find_nothing(Shape { bytes: true, ..Shape::default() }, options);
    find_nothing(Shape { scraps: true, ..Shape::default() }, options);
    find_nothing(Shape { bytes: true, ..Shape::default() }, Options { own: true, ..options });
}

/// To be repeated with `--striped --by-name`.
#[test]
fn nor_where_files_are_open_for_a_write_or_a_read_only_and_cut_by_their_names() {
    let (chunks, opening) = (Chunks::OnAll, Opening::Brief);
    find_nothing(Shape::default(), Options { chunks, opening, ..Options::default() });
}

/// To be repeated with `--bytes`.
#[test]
fn nor_where_all_work_on_one_file_and_daemons_die_often() {
    let shape = Shape { bytes: true, ..Shape::default() };
    find_nothing(shape, Options::default());
    find_nothing(shape, Options { chunks: Chunks::AtMaker, ..Options::default() });
}

/// To be repeated with `--bytes --striped`.
#[test]
fn nor_where_that_file_is_striped() {
    let shape = Shape { bytes: true, ..Shape::default() };
    find_nothing(shape, Options { chunks: Chunks::OnAll, ..Options::default() });
}

/// To be repeated with `--scraps`, and `--striped`, `--local` or `--striped --roles`.
#[test]
fn files_that_come_are_cut_and_go_leave_nothing() {
    let shape = Shape { scraps: true, ..Shape::default() };
    find_nothing(shape, Options::default());
    find_nothing(shape, Options { chunks: Chunks::AtMaker, ..Options::default() });
    find_nothing(shape, Options { chunks: Chunks::OnAll, ..Options::default() });
    let shape = Shape { roles: true, ..shape };
    find_nothing(shape, Options { chunks: Chunks::OnAll, ..Options::default() });
}

/// To be repeated with `--own --striped`, and `--bytes`, `--scraps` or neither.
#[test]
fn nor_where_processes_read_and_write_by_themselves_and_stand_still_in_between() {
    let options = Options { chunks: Chunks::OnAll, own: true, ..Options::default() };
    for (bytes, scraps) in [(false, false), (true, false), (false, true)] {
        find_nothing(Shape { bytes, scraps, ..Shape::default() }, options);
    }
}

/// To be repeated with `--locks`.
#[test]
fn nor_where_all_lock_two_files_and_daemons_and_processes_die() {
    find_nothing(Shape { locks: true, ..Shape::default() }, Options::default());
}

/// To be repeated with `--within`, and `--bytes`, `--scraps`, `--locks` or neither, with cargo's
/// profile `sim`.
#[test]
fn nor_where_daemons_die_in_the_middle_of_what_they_do() {
    let within = Shape { within: true, ..Shape::default() };
    let options = Options { chunks: Chunks::OnAll, ..Options::default() };
    find_nothing(within, options);
    find_nothing(Shape { bytes: true, ..within }, Options::default());
    find_nothing(Shape { scraps: true, ..within }, options);
    find_nothing(Shape { locks: true, ..within }, Options::default());
}

#[test]
fn a_seed_decides_everything() {
    for seed in 1..=30 {
        let plan = Plan::draw(seed, Shape::default());
        let first = run(&plan, Options::default());
        let second = run(&plan, Options::default());
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Runs that went wrong once.
fn regressions(runs: &[(u64, &str)]) {
    regressions_of(Shape::default(), runs);
}

/// The same for other numbers of nodes and shards.
fn regressions_of(shape: Shape, runs: &[(u64, &str)]) {
    regressions_where(Chunks::AtHome, shape, runs);
}

/// The same where the chunks of files go round the nodes.
fn regressions_striped(shape: Shape, runs: &[(u64, &str)]) {
    regressions_where(Chunks::OnAll, shape, runs);
}

/// The same for other places of chunks.
fn regressions_where(chunks: Chunks, shape: Shape, runs: &[(u64, &str)]) {
    regressions_with(Options { chunks, ..Options::default() }, shape, runs);
}

/// They went wrong when all directories were spread from their beginning.
fn regressions_with(options: Options, shape: Shape, runs: &[(u64, &str)]) {
    let options = Options { directories: Some(Directories::Spread), ..options };
    for (seed, part) in runs {
        let part: Part = part.parse().expect("a part of a plan");
        let plan = part.of(&Plan::draw(*seed, shape));
        let wrong = run(&plan, options).wrong;
        assert!(wrong.is_empty(), "seed {seed}, part {part}: {wrong:#?}");
    }
}

/// `rename(a, b)` and `rename(b, a)` at the same time: while the first was carried out both names
/// stood for the file, and the second took them for two links, which stay. Or it had asked for one
/// name before the first rename, and looked at the other after it.
#[test]
fn a_rename_back_is_not_taken_for_one_of_two_links() {
    regressions(&[
        (88, "/1-2,8//20/1,3,7/0-1/0/"),
        (637, "0,2//1/0/9-10/0/8/10,13"),
        (1366, "//0,3-5,7-9,16,18-19,22,24-25/10/0,2,4-6,8,11-16/0-8,10,12-15/1-13"),
    ]);
}

/// Three daemons were killed. One came back and had not heard yet that a link had been decided of
/// which it was to make the name; it promised that name to a rename of a directory, which then
/// disappeared.
#[test]
fn a_node_that_comes_back_promises_nothing_before_it_knows_what_was_decided() {
    regressions(&[(753, "0-2/0-9/0-1/0-6/0/0/0")]);
}

/// The process ended while its daemon was away; nobody told the others, which kept its last answer
/// (and would have kept its locks). Or the others were restarted too and did not know any more for
/// whom they kept it.
#[test]
fn a_session_that_ends_while_its_daemon_is_away_ends_everywhere() {
    regressions(&[
        (48, "0//////0,2-10,12-13,16-17//"),
        (67, "2///0-12,15,18-19/0-1"),
        (29, "4,14/0-3///"),
        (85, "13,19/0-3,5/2-3"),
    ]);
}

/// A node had heard of a session's end and died before that was committed; nobody told its
/// successor.
#[test]
fn a_sessions_end_that_was_heard_and_lost_is_told_again() {
    regressions(&[(2574, "1///3-6,8-9,12-13,18-19,21-23")]);
}

/// The node that had passed a request on to a third one did not hear of the session's end from the
/// client's node, but the third one had to, and did not.
#[test]
fn a_node_that_a_request_reached_by_way_of_another_one_hears_of_the_sessions_end() {
    regressions(&[(138, "//////1/1-2/0-1")]);
}

/// An append was noted, the file was cut below where it had ended then, the bytes were appended,
/// and the daemon died. Its successor looked for them behind that place, and appended them again.
#[test]
fn an_append_beside_a_cut_is_not_done_twice_when_the_daemon_dies() {
    let part = "1,3/0-1/0,2-4,8-10/0-1,3,5-7,10-11/1-2,4,7-12,14/0-1,4,6-9/0-4,7-10,12/1-2,4,6";
    regressions_of(Shape { nodes: Some(1), shards: Some(4), ..Shape::default() }, &[(625, part)]);
}

/// A node had asked what a directory's name stands for and stood still for 10 s before it took the
/// answer in. The directory was removed and made again meanwhile, without waiting for that node any
/// longer than a deadline; it believed the answer for a whole lease, and made a file in the
/// directory that was gone.
#[test]
fn an_answer_about_a_name_is_believed_from_the_question_on() {
    let part = "0,3,18/0-3,5-8/0-3,8-9/2,4-9/0,2-7,9,15/0-2,4/0-1,4-9,11";
    regressions_of(Shape { roles: true, ..Shape::default() }, &[(5037, part)]);
}

/// A part did not take an append, and its process was told EIO. Its place stayed noted, so the next
/// append stood behind a hole of its length.
#[test]
fn an_append_that_failed_leaves_no_hole_before_the_next_one() {
    regressions_striped(Shape::default(), &[(3671, "1,8,10,17/3/0-4,6")]);
    let part = "0,5,15//0-2/1-2,5,7/30-31/1-12,14-25,29/0-5//0-1,4-6,11";
    regressions_striped(Shape { roles: true, ..Shape::default() }, &[(1210, part)]);
}

/// A stat found a file by a name that a link had just made. Before it looked at the file that name
/// was removed again, and the file had one name, another one. So it is in a kernel; the judge took
/// the two for one moment.
#[test]
fn a_stat_tells_how_many_names_a_file_has_that_it_found_before() {
    let part = "0-2/0-14/1-4,6-8,10,12-15,18-22/0-10,15/0-5,7-8,11-12/8-12/0-16,18-20";
    regressions_where(Chunks::AtMaker, Shape::default(), &[(321, part)]);
}

/// A node stood still for longer than the deadline of an open that was on its way to it. It was
/// executed when nobody waited for it any more, and its description stayed.
#[test]
fn an_open_that_was_given_up_leaves_no_description() {
    regressions_where(Chunks::AtHome, Shape::default(), &[(272, "0//////0//")]);
}

/// A daemon that came back could not say for which descriptions it stood, since the other node was
/// away, too, or cut off, for longer than it waited; or the other one had not yet executed an open
/// of its predecessor. Nobody gave up what it did not know of.
#[test]
fn a_node_that_can_be_reached_again_is_asked_for_what_it_stands() {
    let runs = [
        (75, "0,13,17///0"),
        (164, "0-1//////"),
        (260, "0,3,5//////0//"),
        (288, "0,8///////0,2"),
        (330, "2,18/0-1,3-7///"),
        (807, "0-1///4/0-1,9,11/0-3/0-4"),
    ];
    regressions_where(Chunks::AtHome, Shape::default(), &runs);
}

/// A connection broke while an open was executed, and its answer arrived by the next one. The
/// description was ended since nobody had stood for it in between.
#[test]
fn an_open_whose_connection_breaks_stays_open() {
    regressions_striped(Shape { roles: true, ..Shape::default() }, &[(129, "0///0/0/0,2-3//")]);
}

/// An operation was over, and its coordinator was killed before it could say so to a node that was
/// cut off from it for longer than it waited when it was back. What that had of the operation
/// stayed.
#[test]
fn a_node_that_can_be_reached_again_is_asked_what_is_over() {
    let part = "1,3,5-6/0/0/0-1/0-1/0/0-1,6/0-1";
    regressions_where(Chunks::AtMaker, Shape { roles: true, ..Shape::default() }, &[(931, part)]);
}

/// A truncate was decided, its coordinator was killed and finished it when it was back. Somebody
/// wrote behind the cut; then the request came again, and cut that off. In the second run the
/// coordinator was killed when the cut was made and the request not answered.
#[test]
fn a_cut_that_was_decided_is_not_made_once_more_when_its_request_comes_again() {
    let parts = [(2486, "0-1/0-2/0-2/0-1/0,2/0/0/0"), (6406, "1/0-1,4-6/0-1,3-4/0-5/0/0-5/0-6")];
    regressions_striped(Shape { roles: true, ..Shape::default() }, &parts);
}

/// The process was killed while its truncate was made; what was kept in case its request came again
/// stayed.
#[test]
fn nothing_is_kept_of_a_cut_whose_process_has_ended() {
    let shape = Shape { roles: true, ..Shape::default() };
    regressions_striped(shape, &[(3337, "0/1-6,8-10//1/16,21//")]);
}

/// An append had found the end of the file. Before its bytes were there somebody wrote further on,
/// in another part, and somebody read the hole.
#[test]
fn nobody_makes_a_file_longer_while_bytes_are_appended_to_it() {
    let part = "0-1,3,7-8,10-11/0-1,3-18,20,22-24/0-7,9-15,17,19,21/0-8,10-11,13-17,19-21/0-5,9-10\
                /0-7,9-10,13/0-8,13-14";
    regressions_striped(Shape { roles: true, ..Shape::default() }, &[(393, part)]);
}

/// A read ended early and asked for the file's length. Before it used the answer the file was cut,
/// so that it read nothing below that length and took it for a hole.
#[test]
fn what_was_cut_off_while_a_read_asked_for_the_length_is_not_a_hole() {
    let part = "0/0-9,11-12,14-18/0-20/0-11,13/0-7,12-15/0-17/0-6,8-15/0-16/0,2-5,7-10";
    regressions_striped(Shape { roles: true, ..Shape::default() }, &[(1303, part)]);
}

/// Bytes were written at an offset for a process of another node, which was killed before the
/// answer came. Somebody appended behind them and somebody cut the file below. Then the node was
/// back, the request came again, and the bytes that had been cut off were there again. In the
/// second run the node that had written them was killed too before the request came again.
#[test]
fn a_write_that_comes_again_is_not_done_again_behind_a_cut() {
    let parts = ["0/3/1-2/////0,2", "0-1/1,3/0,2/4/2/1/1/0,2"];
    regressions_where(Chunks::AtMaker, Shape::default(), &parts.map(|part| (327, part)));
}

/// A shard had done the last wave of an operation and had given its claims back. The coordinator
/// forgot the operation, and died before it had said that all was over; when it came back it was
/// asked about claims alone, and the mark of the wave stayed.
#[test]
fn a_coordinator_that_comes_back_is_asked_about_waves_that_were_done() {
    let shape = Shape { nodes: Some(2), ..Shape::default() };
    regressions_where(Chunks::OnAll, shape, &[(1664, "0/0,4-5/0-4,7/0-8")]);
}

/// A daemon had passed an unlink on to another node, which executed it, and was killed before the
/// answer came. Meanwhile somebody removed the directory. The request came again, its path led
/// nowhere any more, and the process was told that the file had not been there.
#[test]
fn a_request_that_another_node_executed_goes_there_again_wherever_its_path_leads_now() {
    let part = "0/0-2,4-6/0-5/1-9/0,9-12/0-3/0,3-6/0-2,4,30";
    regressions_striped(Shape { roles: true, ..Shape::default() }, &[(2206, part)]);
}

/// The place of an append was noted, and before its first byte was written the daemons of the file
/// and of the process were killed. The process gave up, and the next append stood behind a hole.
#[test]
fn an_append_that_was_never_begun_leaves_no_hole_either() {
    let part = "0,2/0-6/0-1,4,6";
    regressions_striped(Shape { roles: true, ..Shape::default() }, &[(41340, part)]);
}

/// A directory had its new name, and its old one was about to go. Another rename over the new name
/// removed the directory, since what had been done there was not claimed any more; the old name
/// stood for a directory that was gone.
#[test]
fn the_new_name_of_a_rename_stays_until_the_old_one_has_gone() {
    regressions(&[(20015, "1-2,12,17//13/0,10-12,28,35/2,4/3,10-11,19,25,34")]);
    let part = "0,12,17//12-13/0,10-12,28,35/2,4/3,10-11,19,25,34";
    regressions_where(Chunks::AtMaker, Shape::default(), &[(20015, part)]);
}

/// A file was made on the node of its process, and removed by its name before that had opened it.
/// The request began anew and made the file once more. The judge took the answer to the create for
/// the moment of its name, though the file had none any more when it was opened.
#[test]
fn a_file_that_is_removed_before_its_maker_has_opened_it_is_not_made_again() {
    let part = "0-1/0-10,12-15/6//0-9,11-13/0-13/0-17/0-7,13/0,6-8,10-11";
    regressions_where(Chunks::AtMaker, Shape::default(), &[(1367, part)]);
}

/// An object was cut, and its daemon was killed before the request was answered. Somebody appended
/// behind the cut; then the request came again, and cut that off.
#[test]
fn a_cut_of_one_object_is_not_made_once_more_either() {
    let part = "1/0-8/0-4/0-7/0-3/1-3,6-8,12/2-5,8/0-7/0-7";
    regressions_of(Shape { roles: true, ..Shape::default() }, &[(457, part)]);
}

/// A daemon that came back held an open while earlier operations were being finished. Meanwhile the
/// node that asked got a new daemon, too, which was asked for what it stood; only then was the open
/// executed, for the daemon that was gone.
#[test]
fn an_open_that_was_held_is_not_executed_for_a_daemon_that_is_gone() {
    let part = "0,3,10/0-1,3-5///3,5//0-4,6,8";
    regressions_where(Chunks::OnAll, Shape::default(), &[(2016, part)]);
    let shape = Shape { roles: true, ..Shape::default() };
    regressions_where(Chunks::OnAll, shape, &[(7305, "0,5,13,16//////0-1/0-1/")]);
}

/// An open was executed, and both connection and daemon were lost before it was answered. The node
/// that had asked left it out of what it was asked about, since it was to be sent again; then its
/// process was killed, and it was not.
#[test]
fn an_open_that_is_not_sent_again_since_its_process_ended_is_given_up() {
    regressions_where(Chunks::AtHome, Shape::default(), &[(20150, "0,2,4,7,9-10,16/0,3-6,8/0-1")]);
}

/// The bytes of a write had reached the object, and the daemon died before it answered. Its
/// successor served others before the request came again: in the first run the disk was full by
/// then and the process was told so, while others saw the bytes; in the second somebody had seen
/// that the file was longer, and had cut it.
#[test]
fn a_write_that_a_daemon_had_begun_when_it_died_is_made_before_others_are_served() {
    let roles = Shape { roles: true, ..Shape::default() };
    regressions_where(Chunks::AtMaker, roles, &[(60943, "1-2////0-2")]);
    let part = "1,4,6,8-9,11,14-15,18-19/0-2,4,7-8/0-7/0-8";
    regressions_where(Chunks::AtMaker, Shape::default(), &[(61958, part)]);
}

/// The same with a write for a process of another node, which was answered or not.
#[test]
fn nor_is_a_write_of_another_node_made_twice() {
    let parts = [
        (552, "1,3/0-14,17-18,20-26,30/0-3/0-2/0-2/0-15,17-22"),
        (984, "0,3///0,3/1////0-2"),
        (958, "0-1,7-8/0-3/0-8"),
    ];
    regressions_of(Shape { bytes: true, ..Shape::default() }, &parts);
    let parts = [(562, "0,8/0,2-3/0-2/0/0-1/0-2/2")];
    regressions_where(Chunks::AtMaker, Shape { bytes: true, ..Shape::default() }, &parts);
}

/// An append was done and not answered, somebody saw how long the file was and cut it, and the
/// bytes were appended once more: the next daemon looked for them where they had been cut off.
#[test]
fn nor_before_an_append_that_was_begun() {
    let parts = [(1, "1/0-3/0,2/0-6/1-2/0-2/0-2/0-1/0,2,4"), (1060, "0/0-2/0/0-4/0/0/0-2/0/0-3")];
    regressions_where(Chunks::AtMaker, Shape { bytes: true, ..Shape::default() }, &parts);
}

/// The last bytes of what somebody had written where an append was in doubt were as the appended
/// ones begin. They were taken for these, and the rest was appended behind them.
#[test]
fn bytes_of_others_are_not_taken_for_the_beginning_of_an_append() {
    let shape = Shape { bytes: true, roles: true, ..Shape::default() };
    regressions_where(Chunks::AtMaker, shape, &[(220648, "0-2/0-2/0-1/0-3")]);
}

/// A write for a process of another node was answered, somebody cut the file, and the daemon died
/// before the answer had arrived. The next one does not make it once more.
#[test]
fn a_write_whose_answer_was_lost_is_answered_again_and_not_made_behind_a_cut() {
    let parts =
        [(210651, "0/0/0/2-4/0-2,4/0/0-1,3-4/0/0-4"), (211727, "0-1/0-5/0-7/0-5/0-4/0-4,6")];
    regressions_of(Shape { bytes: true, ..Shape::default() }, &parts);
    regressions_striped(Shape { bytes: true, ..Shape::default() }, &[(693, "0,2/0-1,4/0-1,5-9")]);
}

/// A link was counted at the file's home before its name was made at another node. In between a
/// stat said that there were two, and an unlink of the second said that there was none.
#[test]
fn a_link_is_not_counted_before_its_name_is_there() {
    let part = "0-5,7/0-2,4-8/0-10/0-5/0,2-10/0-7/0-8/0,2,4-6/0-11";
    regressions(&[(1494, part)]);
}

/// The home of a striped file died when bytes had been appended and its process was not answered.
/// Before the append came again others had cut the file, or appended, or written over the bytes;
/// then it was made once more.
#[test]
fn an_append_to_a_striped_file_that_was_made_is_not_made_again_behind_others() {
    let parts = [
        (1271, "0/0-5/0-3/0-3/0-4/0-2/0-5"),
        (220501, "1,3/0-1/0-3/0/0-1"),
        (984, "0,2/0//0/0-2/0-1/0-1/0-1/0"),
        (1202, "0,2,4-5/1-6/0-7/0-1,4-7/0-5/0/0-7/0-1,3-7"),
        (222588, "0-6,8,10//0-5/0-19/0-19/0-18/0-19/0-17"),
    ];
    regressions_striped(Shape { bytes: true, ..Shape::default() }, &parts);
}

/// The node of a part died when bytes had been appended there, and before they were appended again
/// its disk was full; or when bytes had been written there, and others used them before they were
/// written again.
#[test]
fn what_a_part_has_got_already_needs_no_space_and_comes_before_others() {
    let parts =
        [(1166, "1,3/0-1,3/0/0-1/0-1"), (461, "0-1/0-10/0-6/0-9/0-7/0-5,8-9/0-7/0-6/0-2,4,6-8")];
    regressions_striped(Shape { bytes: true, ..Shape::default() }, &parts);
}

/// The node of a part died when bytes had been appended there, and before the file's home asked for
/// them again somebody wrote over them. The part refused them then, and they got another place as
/// well.
#[test]
fn what_a_part_has_got_of_an_append_comes_before_others_too() {
    let shape = Shape { bytes: true, roles: true, ..Shape::default() };
    regressions_striped(shape, &[(320559, "0/0-2/0-1/0-3/0-2/0-2/0-3")]);
}

/// Eight clients wrote, appended and cut. Somebody who looked how long the file was heard something
/// else in each round of the parts, and took the last one: one part before it was cut, and the
/// other behind.
#[test]
fn a_size_that_does_not_come_to_rest_is_one_that_the_file_had() {
    let shape = Shape { bytes: true, roles: true, ..Shape::default() };
    let part = "0-2,8/0-3/0-6/0-3/0-10/0-7,9-18/0-2,4-10/0/0-4";
    regressions_striped(shape, &[(500022, part)]);
}

/// The last of those who had a striped file open closed it, and it was cut by its name at the same
/// time. The home began to settle the size while the cut was made, and heard of a part how far that
/// had reached before: the file had the length from before the cut for good. Nobody had to die for
/// that; where the home did it was found first, by random calls of a program (690606813987).
#[test]
fn a_size_is_not_settled_by_what_parts_said_before_they_were_cut() {
    let options = Options { chunks: Chunks::OnAll, opening: Opening::Brief, ..Options::default() };
    regressions_with(options, Shape::default(), &[(127, "/0-7/0-8/1-7/0-2,4-6/0-6/0-4/0-5/0-7")]);
    let shape = Shape { bytes: true, roles: true, ..Shape::default() };
    regressions_with(options, shape, &[(1225, "//////0/")]);
}

/// A process of another node had given up an open, and another one on its lane was executed when
/// the daemon died. Both came again, the one that was given up first: then nobody thought of what
/// the other one had opened before.
#[test]
fn what_a_request_has_opened_goes_when_it_comes_again_behind_one_that_was_given_up() {
    regressions(&[(2_100_979, "0,6,13,15,19/////0-8,10-14,16/0-10")]);
}

/// A disk was full when the object of a part was made, and the file went meanwhile: the mark that
/// the object was to go stayed, since nobody committed anything any more.
#[test]
fn the_mark_of_a_part_that_was_not_made_goes_without_another_commit() {
    let shape = Shape { scraps: true, ..Shape::default() };
    let part = "0-2,4/0-42,44-46/0-17/0-2,4-13,15-27,31-38,40-46,48-55/0-3,5-24/\
                0-10,12,14,16-22,24-47/0-31,34-39,41,43-47/0-58/0-16";
    regressions_striped(shape, &[(61, part)]);
}

/// A file was cut by its name, the daemon died before it had said so, and the request came again
/// when the name was another file's. That was cut for the same request, and what was noted of the
/// first cut stayed for ever.
#[test]
fn what_is_noted_of_a_cut_goes_when_its_request_cuts_another_file() {
    let shape = Shape { scraps: true, roles: true, ..Shape::default() };
    regressions_striped(shape, &[(16, "0//0,3-4/0//0-5/1-3/0/0-2")]);
}

/// The home of a file died in the middle of a cut, and the process that had the file open, without
/// a name, with it. The next daemon removed the file before it took up the cut, and asked a server
/// for its part, which that had not made yet.
#[test]
fn a_file_that_goes_at_a_restart_goes_behind_its_cut() {
    let shape = Shape { nodes: Some(2), shards: Some(1), scraps: true, ..Shape::default() };
    regressions_striped(shape, &[(4_201_470, "0-1/0-2,4/0-3/0-6/0-3/0-4/0,2-4,7/0-6/0-1")]);
}

/// An open was executed at another node, whose daemon died before it had said so. When it came
/// again its name led to a file elsewhere. What it had opened stayed for ever: its node had left it
/// out when it was asked what it stood for, since the request was under way.
#[test]
fn what_a_request_has_opened_goes_when_it_comes_again_and_leads_elsewhere() {
    let shape = Shape { scraps: true, ..Shape::default() };
    let part = "0-1,3/0-6,9/0-9/0-5,7,10,13-15/0-11/0-1,3-16,18,21/0-4";
    regressions_where(Chunks::AtMaker, shape, &[(4_201_744, part)]);
}

/// A process had a POSIX lock at another node, whose daemon died. Before that was there again the
/// process ended, and the daemon of its own node died too. Nobody could tell the former of the end
/// then: who was there, it heard, but not which processes those were, and the lock stayed for ever.
#[test]
fn a_lock_goes_whose_process_ended_between_the_deaths_of_both_daemons() {
    let shape = Shape { locks: true, ..Shape::default() };
    regressions_where(Chunks::AtHome, shape, &[(4_600_207, "2,4/17,21,25,27///1-2,4-5,7")]);
}

/// A daemon asked for a claim at a node that was being restarted, and died before it had heard.
/// That node stood still until the next daemon had given up telling it that it was back; then it
/// gave the claim, to nobody, and the file could never be removed or renamed again.
#[test]
fn what_a_dead_daemon_asked_for_is_not_given_to_it() {
    let shape = Shape { within: true, ..Shape::default() };
    let part: Part = "0///0-5/2-4/0-3,6/0-5,7".parse().expect("a part");
    let mut plan = part.of(&Plan::draw(4_720_152, shape));
    let within = |node, place, count, down_ns| Trouble::Within(node, place, count, down_ns);
    plan.troubles = vec![
        (121_746_000, within(0, Place::BehindCommit, 2, 1_199_844_743)),
        (922_258_000, within(2, Place::BeforeMessage, 7, 9_071_148)),
        (964_553_000, Trouble::Pause(0, 10_211_562_752)),
    ];
    let directories = Some(Directories::Spread);
    let report = run(&plan, Options { chunks: Chunks::OnAll, directories, ..Options::default() });
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

/// A node of several shards was restarted and held what clients of others asked for. Its shards
/// were ready in the middle of a turn, in which it heard of a session's end, before what that had
/// asked for earlier; the answer to this was kept for ever.
#[test]
fn what_was_held_at_a_restart_goes_before_what_comes_then() {
    let shape = Shape { within: true, scraps: true, ..Shape::default() };
    regressions_striped(shape, &[(4_781_046, "0,6/0-1/0,2/0-6/0")]);
}
