//! Single calls, one by one: what docs/reference/semantics.md says of each is shown here.
//!
//! Each test is a function of the same name in `apps/calls/`. `same`: it prints the same in a mount
//! as on the local file system. `stated`: it runs in a mount only and states what it expects.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use mayfly_tests::calls;

macro_rules! checks {
    ($(fn $name:ident = $kind:ident;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                calls::$kind(stringify!($name))
            }
        )*

        const CHECKS: &[&str] = &[$(stringify!($name)),*];
        const KINDS: &[&str] = &[$(stringify!($kind)),*];
    };
}

#[test]
fn every_check_of_the_program_is_run() -> Result<()> {
    let Some(names) = calls::names()? else { return Ok(()) };
    let there: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let run: BTreeSet<&str> = CHECKS.iter().copied().collect();
    let differ: Vec<_> = there.symmetric_difference(&run).collect();
    ensure!(differ.is_empty(), "only in the program, or only here: {differ:?}");
    Ok(())
}

/// What docs/design/fuse.md says is different through the mount.
const DIFFERENT_THROUGH_THE_KERNEL: &[&str] = &[
    // A file can be waited for.
    "poll_select_and_epoll_treat_files_as_files",
    // Another user or group sees nothing.
    "a_process_that_changes_its_user_goes_on",
    "new_files_have_the_group_that_a_thread_has_then",
];

/// All checks through the mount of one instance take minutes; so each part has its own, beside the
/// others.
mod single_calls_through_the_kernel_do_what_a_local_file_system_does_but_for_what_is_listed {
    use super::*;

    const PARTS: usize = 4;

    fn part(number: usize) -> Result<()> {
        let same = CHECKS.iter().zip(KINDS).filter(|(_, kind)| **kind == "same");
        let same = same.map(|(name, _)| *name);
        let same = same.filter(|name| !DIFFERENT_THROUGH_THE_KERNEL.contains(name));
        let of_part = |names: Vec<&'static str>| -> Vec<&'static str> {
            names.into_iter().skip(number).step_by(PARTS).collect()
        };
        calls::through_the_kernel(
            &of_part(same.collect()),
            &of_part(DIFFERENT_THROUGH_THE_KERNEL.to_vec()),
        )
    }

    macro_rules! parts {
        ($(fn $name:ident = $number:expr;)*) => {
            $(
                #[test]
                fn $name() -> Result<()> {
                    part($number)
                }
            )*

            const _: () = assert!([$($number),*].len() == PARTS);
        };
    }

    parts! {
        fn part_1 = 0;
        fn part_2 = 1;
        fn part_3 = 2;
        fn part_4 = 3;
    }
}

checks! {
    fn open_makes_truncates_and_refuses_as_its_flags_say = same;
    fn open_sync_direct_and_nonblock_are_kept_and_reported = same;
    fn direct_io_is_accepted = stated;
    fn a_file_without_a_name_gets_one_by_a_link_and_goes_without = same;
    fn what_o_tmpfile_needs_is_asked_for = same;
    fn an_o_path_descriptor_names_and_does_not_read = same;
    fn openat2_keeps_to_one_file_system = stated;
    fn copies_of_a_descriptor_share_offset_and_flags = same;
    fn the_lowest_free_number_is_taken = same;
    fn numbers_are_the_kernels_whatever_is_opened_and_closed_between = same;
    fn a_handler_that_opens_and_closes_leaves_the_numbers_as_they_were = same;
    fn threads_that_open_and_close_never_share_a_number = same;
    fn close_range_closes_and_marks = same;
    fn a_hidden_descriptor_cannot_be_closed = stated;
    fn names_of_descriptors_in_procfs_open_and_read_back = same;
    fn poll_select_and_epoll_treat_files_as_files = same;
    fn ioctl_serves_what_files_have = same;
    fn a_descriptor_sent_to_another_process_is_the_same_file = same;

    fn positioned_and_vectored_io_leave_the_offset_alone = same;
    fn unknown_write_flags_are_refused = stated;
    fn appends_of_two_processes_are_whole_and_in_order = same;
    fn an_append_flag_set_later_counts = same;
    fn lseek_moves_and_refuses = same;
    fn data_and_holes_of_a_large_file_are_found = same;
    fn truncated_bytes_do_not_come_back_and_holes_read_as_zeros = same;
    fn a_write_beyond_the_limit_is_efbig_with_a_signal = same;
    fn private_mappings_see_the_file_and_do_not_write_it = same;
    fn two_processes_share_a_writable_mapping = same;
    fn a_small_file_can_be_mapped_shared_and_then_written = same;
    fn a_mapping_outlives_the_descriptor_and_the_name = same;
    fn sendfile_and_copy_file_range_copy = same;
    fn splice_moves_between_files_and_pipes = same;
    fn openat2_keeps_a_walk_beneath_a_directory = same;
    fn a_lock_of_no_type_is_einval = same;
    fn calls_without_a_counterpart_are_refused = stated;
    fn advice_is_accepted = same;
    fn sync_calls_succeed_on_files_and_directories = same;
    fn threads_share_descriptors_and_their_offset = same;
    fn a_file_that_others_change_is_read_as_it_is_now = same;
    fn threads_that_open_read_and_change_small_files_meet_no_old_bytes = same;
    fn fallocate_lengthens_and_zeroes_small_files = same;
    fn fallocate_takes_and_gives_back_space = same;
    fn fallocate_refuses_what_a_local_file_system_refuses = same;
    fn ranges_are_neither_collapsed_nor_inserted = stated;

    fn calls_relative_to_a_directory_descriptor_stay_there = same;
    fn attributes_agree_between_all_calls_that_report_them = same;
    fn access_tells_what_exists = same;
    fn rename_replaces_and_refuses_as_its_flags_say = same;
    fn exchange_swaps_two_names = same;
    fn exchange_swaps_directories_and_links_between_parents = same;
    fn whiteout_is_refused = stated;
    fn the_time_of_birth_is_told_and_stays = same;
    fn flags_that_a_call_does_not_know_are_refused = same;
    fn names_do_not_move_across_the_border = stated;
    fn a_bad_directory_is_told_before_the_border = same;
    fn links_count_and_unlinked_files_stay_open = same;
    fn mknod_makes_no_device = stated;
    fn pipes_have_names_links_and_attributes = same;
    fn pipes_wait_for_both_ends_and_carry_bytes = same;
    fn sockets_are_bound_to_names_and_found_by_them = same_by_the_library;
    fn datagrams_are_sent_to_names = same;
    fn directories_are_made_and_removed = same;
    fn a_way_leads_elsewhere_as_soon_as_a_directory_on_it_has_moved = same;
    fn a_listing_has_every_entry_once_and_can_be_moved = same;
    fn symbolic_links_lead_in_and_out = same;
    fn the_working_directory_moves_with_its_name = same;
    fn a_removed_working_directory_is_empty_and_has_no_name = same;
    fn dots_lead_out_of_the_mount_and_back = same;
    fn modes_are_stored_and_reported = same;
    fn the_mode_of_a_link_cannot_be_changed = stated;
    fn times_are_set_by_every_call_that_sets_them = same;
    fn extended_attributes_are_set_read_listed_and_removed = same;
    fn extended_attributes_refuse_what_a_local_file_system_refuses = same;
    fn cp_tar_and_python_keep_extended_attributes = same;
    fn other_namespaces_and_large_extended_attributes_are_refused = stated;
    fn extended_attributes_of_names_in_directories_are_served = stated;
    fn the_mask_takes_bits_of_new_files = same;
    fn new_files_have_the_group_that_a_thread_has_then = same;
    fn what_stat_tells_is_never_older_than_what_has_returned = same;
    fn a_listing_has_once_what_stays_while_another_process_makes_and_removes_entries = same;
    fn what_open_and_read_give_is_never_older_than_what_has_returned = same;
    fn a_listing_with_attributes_is_never_older_than_what_has_returned = same;
    fn statfs_tells_the_instance = stated;

    fn posix_locks_exclude_report_and_wait = same;
    fn closing_any_descriptor_of_the_file_frees_posix_locks = same;
    fn locks_of_descriptions_are_shared_by_fork_and_freed_by_the_last_close = same;
    fn flock_excludes_shares_and_waits = same;
    fn a_signal_interrupts_a_wait_for_a_lock = same;
    fn locks_are_free_when_their_process_has_ended = same;
    fn locks_are_free_when_their_process_was_killed = same;
    fn two_processes_that_wait_for_each_other_are_told = same;
    fn processes_that_wait_for_each_other_over_files_are_told = same;
    fn one_of_four_processes_in_a_circle_is_told_and_the_others_go_on = same;
    fn a_wait_that_a_signal_ended_is_part_of_no_circle = same;
    fn descriptions_that_wait_for_locks_are_part_of_no_circle = same;
    fn two_readers_that_both_want_to_write_are_told = same;
    fn locks_are_upgraded_and_downgraded = same;
    fn locks_are_given_in_the_order_in_which_they_were_asked_for = stated;
    fn locks_go_with_descriptors_and_processes_in_any_order = same;
    fn with_locks_off_every_lock_is_enolck = stated_without_locks;

    fn a_child_shares_offsets_and_not_new_files = same;
    fn exec_keeps_descriptors_but_those_marked = same;
    fn a_vfork_child_changes_nothing_of_its_parents = same;
    fn posix_spawn_performs_its_file_actions = same;
    fn programs_and_scripts_in_the_mount_are_executed = same;
    fn a_small_program_is_executed_from_the_mount = same;
    fn execveat_executes_descriptors_and_relative_names = same;
    fn a_library_in_the_mount_can_be_loaded = same;
    fn a_running_program_can_be_removed_and_replaced = same;
    fn standard_output_in_the_mount_is_shared_in_order = same;
    fn a_clone_with_a_stack_of_its_own_sees_the_files = same;

    fn names_of_255_bytes_are_served_and_longer_ones_refused = same;
    fn paths_over_path_max_are_refused_and_deeper_trees_are_served = same;
    fn every_byte_but_slash_and_zero_may_be_in_a_name = same;
    fn offsets_beyond_two_to_the_63_are_refused = same;
    fn lengths_beyond_the_largest_file_are_refused = stated;

    fn an_owner_for_signals_is_accepted = stated;
    fn unknown_fcntl_commands_are_refused = stated;
    fn io_uring_is_not_to_be_had = stated_by_the_library;
    fn asynchronous_requests_are_carried_out = same;
    fn asynchronous_requests_are_refused_as_they_should = same;
    fn two_descriptors_are_told_apart = same;
    fn calls_that_make_no_sense_on_files_are_refused = stated;
    fn an_open_file_whose_first_name_is_gone_has_a_made_up_one_in_procfs = stated;
    fn select_takes_high_descriptors = stated;
    fn bad_pointers_are_efault = same;
    fn memory_that_is_not_there_is_efault = same;
    fn memory_that_is_not_there_is_efault_with_handlers = same;
    fn memory_that_is_not_there_is_efault_when_its_signals_are_ignored = same;
    fn memory_that_is_not_there_is_efault_when_its_signals_are_blocked = same;
    fn faults_that_are_ignored_stay_so_over_exec = same;
    fn a_process_that_changes_its_user_goes_on = same;
    fn a_child_of_a_process_that_has_changed_its_user_is_refused = stated;
    fn a_clone_that_shares_descriptors_closes_them_for_both = stated;
    fn unshare_in_one_thread_keeps_working = same;
    fn a_program_with_an_empty_environment_is_served = same;
    fn a_static_program_in_the_mount_runs_without_the_instance = stated;

    fn locks_are_made_stronger_and_weaker = same;
    fn a_mapping_is_protected_grown_and_moved = same;
    fn a_shared_mapping_that_only_reads_is_served = same;
    fn a_file_that_a_rename_replaces_stays_open = same;
    fn directories_move_while_files_are_made_in_them = same;
    fn a_thread_that_is_cancelled_between_calls_on_files_cleans_up = same;
    fn a_program_with_threads_forks_while_they_use_files = same;
    fn children_of_a_program_with_threads_run_programs_while_these_use_files = same;
    fn a_handler_that_uses_files_as_a_vfork_begins_leaves_the_childs_descriptors_its_own = same;

    fn a_program_without_standard_descriptors_gets_the_lowest_numbers = same;
    fn flags_of_dup3_and_marks_for_exec_are_kept = same;
    fn times_may_be_null_in_every_call = same;
    fn a_file_replaced_or_closed_by_one_thread_is_whole_for_those_inside_it = same;
    fn a_vfork_child_that_closes_everything_leaves_its_parent_everything = same;
    fn a_signal_handler_uses_files_while_a_call_on_them_is_interrupted = same;
    fn checked_forms_of_calls_are_served = same;
    fn a_child_of_clone3_shares_what_a_child_of_fork_does = same;
}
