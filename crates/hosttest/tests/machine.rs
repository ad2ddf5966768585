//! The contract of code in a host process, line by line, shown by programs in `programs/`.

use mayfly_hosttest::{self as hosttest, MODES, Mode};

#[test]
fn results_registers_and_errno_are_the_kernels() {
    hosttest::assert_content_in_all_modes("machine", "machine.c");
}

#[test]
fn the_host_reads_back_the_signal_actions_it_set() {
    hosttest::assert_content_in_all_modes("actions", "actions.c");
}

#[test]
fn a_handler_never_runs_inside_a_hook() {
    hosttest::assert_content_in_all_modes("storm", "storm.c");
}

#[test]
fn a_deferred_signal_arrives_as_it_was_sent() {
    hosttest::assert_content_in_all_modes("deferral", "deferral.c");
}

#[test]
fn a_cancelled_cpp_thread_runs_its_destructors() {
    if hosttest::skip::unless_installed("cancel", &["g++"], "g++") {
        let program = hosttest::compile("g++", "cancel.cpp", &[]);
        hosttest::assert_content(&program, Mode::Without);
        MODES.iter().for_each(|mode| hosttest::assert_content(&program, *mode));
    }
}

#[test]
fn a_cancelled_c_thread_runs_its_cleanup_handlers() {
    hosttest::assert_content_in_all_modes("cancel", "cancel.c");
}

#[test]
fn two_thousand_threads_make_hooked_calls() {
    hosttest::assert_content_in_all_modes("threads", "threads.c");
}

#[test]
fn children_of_every_kind_are_hooked_and_harm_nothing() {
    hosttest::assert_content_in_all_modes("children", "children.c");
}

#[test]
fn faults_backtraces_and_dlopen_work() {
    hosttest::assert_content_in_all_modes("unwind", "unwind.c");
}

#[test]
fn a_bug_ends_the_process_loudly() {
    if hosttest::skip::unless_installed("bug", &["gcc"], "gcc libc6-dev") {
        let program = hosttest::compile("gcc", "bug.c", &[]);
        let left = hosttest::run(&mut hosttest::command(&program, Mode::Some));
        assert_eq!(left.code, None, "SIGABRT ends it: {left:?}");
        assert!(left.errors.starts_with("mayfly: bug in the preload library, "), "{left:?}");
        assert_eq!(left.errors.lines().count(), 1);
    }
}

#[test]
fn musl_programs_are_hooked() {
    if !hosttest::skip::unless_installed("musl", &["musl-gcc"], "musl-tools") {
        return;
    }
    for source in ["machine.c", "actions.c", "deferral.c", "cancel.c", "children.c"] {
        let program = hosttest::compile("musl-gcc", source, &[]);
        MODES.iter().for_each(|mode| hosttest::assert_content(&program, *mode));
    }
}

#[test]
fn without_an_instance_nothing_happens() {
    if !hosttest::skip::unless_installed("inert", &["cat"], "coreutils") {
        return;
    }
    let mut command = hosttest::command("cat", Mode::All);
    let left = hosttest::run(command.env_remove("MAYFLY_RUN").arg("/proc/self/maps"));
    assert!(left.output.contains("libmayfly_preload.so"), "the library is there: {left:?}");
    assert!(!left.output.contains(".img"), "and leaves the host alone: {left:?}");
}

#[test]
fn without_an_image_a_library_keeps_its_code() {
    let mut command = hosttest::command("cat", Mode::All);
    let left = hosttest::run(command.env("MAYFLY_IMAGES", "/nonexistent").arg("/proc/self/maps"));
    assert_eq!(left.code, Some(0));
    assert!(!left.output.contains(".img"), "{left:?}");
}

#[test]
fn an_image_open_to_others_is_not_mapped() {
    use std::os::unix::fs::PermissionsExt;
    let cache = std::env::temp_dir().join(format!("mayfly-open-images-{}", std::process::id()));
    std::fs::create_dir_all(&cache).unwrap();
    for entry in std::fs::read_dir(hosttest::images()).unwrap() {
        let entry = entry.unwrap();
        let copy = cache.join(entry.file_name());
        std::fs::copy(entry.path(), &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let mut command = hosttest::command("cat", Mode::All);
    let left = hosttest::run(command.env("MAYFLY_IMAGES", &cache).arg("/proc/self/maps"));
    std::fs::remove_dir_all(&cache).unwrap();
    assert_eq!(left.code, Some(0));
    assert!(!left.output.contains(".img"), "{left:?}");
}

#[test]
fn a_damaged_image_is_not_mapped() {
    let cache = std::env::temp_dir().join(format!("mayfly-bad-images-{}", std::process::id()));
    std::fs::create_dir_all(&cache).unwrap();
    for entry in std::fs::read_dir(hosttest::images()).unwrap() {
        let entry = entry.unwrap();
        let copy = cache.join(entry.file_name());
        std::fs::copy(entry.path(), &copy).unwrap();
        let length = std::fs::metadata(&copy).unwrap().len();
        std::fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(length / 2).unwrap();
    }
    let mut command = hosttest::command("cat", Mode::All);
    let left = hosttest::run(command.env("MAYFLY_IMAGES", &cache).arg("/proc/self/maps"));
    std::fs::remove_dir_all(&cache).unwrap();
    assert_eq!(left.code, Some(0));
    assert!(!left.output.contains(".img"), "{left:?}");
}
