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

/// How often the library is mapped and whether images are.
fn mapped(left: &hosttest::Left) -> (usize, bool) {
    let first_page = |line: &&str| {
        line.contains("libmayfly_preload.so") && line.split(' ').nth(2) == Some("00000000")
    };
    (left.output.lines().filter(first_page).count(), left.output.contains(".img"))
}

#[test]
fn named_as_audit_library_and_preloaded_it_is_there_once() {
    let mut command = hosttest::command("cat", Mode::Audited);
    let left = hosttest::run(command.arg("/proc/self/maps"));
    assert_eq!(mapped(&left), (1, true), "{left:?}");
    let mut command = hosttest::command("env", Mode::Audited);
    let left = hosttest::run(&mut command);
    let list = format!("LD_PRELOAD={}\n", hosttest::library().display());
    assert!(left.output.contains(&list), "the environment is as it was given: {left:?}");
}

#[test]
fn a_second_copy_leaves_a_served_process_alone() {
    let link = std::env::temp_dir().join(format!("mayfly-second-{}.so", std::process::id()));
    std::os::unix::fs::symlink(hosttest::library(), &link).unwrap();
    let mut command = hosttest::command("cat", Mode::Audited);
    let left = hosttest::run(command.env("LD_AUDIT", &link).arg("/proc/self/maps"));
    std::fs::remove_file(&link).unwrap();
    assert_eq!(mapped(&left), (2, true), "{left:?}");
    assert_eq!(left.code, Some(0));
}

#[test]
fn an_audit_library_without_an_instance_is_unloaded() {
    let mut command = hosttest::command("cat", Mode::Audited);
    command.env_remove("MAYFLY_RUN").env_remove("LD_PRELOAD");
    let left = hosttest::run(command.arg("/proc/self/maps"));
    assert_eq!(mapped(&left), (0, false), "{left:?}");
}

#[test]
fn a_preloaded_library_of_the_hosts_stays_beside_an_audit_library() {
    if !hosttest::skip::unless_installed("beside", &["gcc"], "gcc libc6-dev") {
        return;
    }
    let other = hosttest::compile("gcc", "other.c", &["-shared", "-fPIC"]);
    let list = format!("{}:{}", hosttest::library().display(), other.display());
    for mode in [Mode::All, Mode::Audited] {
        let mut command = hosttest::command("env", mode);
        let left = hosttest::run(command.env("LD_PRELOAD", &list));
        assert!(left.output.starts_with("the other library\n"), "{left:?}");
        assert!(left.output.contains(&format!("LD_PRELOAD={list}\n")), "{left:?}");
    }
}
