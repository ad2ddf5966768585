//! Every system call of the kernel's x86-64 table is decided upon: served, refused, passed on
//! purpose, or about neither a path nor a descriptor.
//!
//! A call that a newer kernel brings is in none of the lists below, and fails here until somebody
//! has read what it takes.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_interpose::class::{CLASSES, PASS, PASS_WATCHED};

/// The numbers that the product knows, and where each call is sent.
const NUMBERS: &str = include_str!("../../sys/src/number.rs");
const DISPATCH: &str = include_str!("../src/calls.rs");
const REFUSED: &str = include_str!("../src/calls/refused.rs");
const SEMANTICS: &str = include_str!("../../../docs/reference/semantics.md");
/// The C library's copy of the kernel's table, as old as the machine.
const HEADER: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// Calls that take a path or a descriptor and go to the kernel as they are; the table `Calls that
/// pass` of docs/reference/semantics.md says why.
const PASSED: &str = "
    accept accept4 getsockopt listen recvfrom setsockopt shutdown
    epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old inotify_rm_watch
    signalfd signalfd4 timerfd_gettime timerfd_settime
    mq_getsetattr mq_notify mq_timedreceive mq_timedsend
    pidfd_getfd pidfd_send_signal process_madvise process_mrelease waitid
    bpf fsconfig fsmount io_uring_enter io_uring_register kexec_file_load landlock_add_rule
    landlock_restrict_self perf_event_open";

/// Looked at for the report at the end; it takes neither.
const COUNTED: &str = "exit_group";

/// Calls that take neither.
const NEITHER: &str = "
    _sysctl add_key adjtimex afs_syscall alarm arch_prctl brk capget capset clock_adjtime
    clock_getres clock_gettime clock_nanosleep clock_settime create_module delete_module
    epoll_create epoll_create1 eventfd eventfd2 exit fanotify_init fsopen futex futex_requeue
    futex_wait futex_waitv futex_wake get_kernel_syms get_mempolicy get_robust_list
    get_thread_area getcpu getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid
    getpmsg getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid
    gettimeofday getuid init_module inotify_init inotify_init1 io_cancel io_destroy io_getevents
    io_pgetevents io_setup ioperm iopl ioprio_get ioprio_set kexec_load keyctl kill
    landlock_create_ruleset listmount listns lookup_dcookie lsm_get_self_attr lsm_list_modules
    lsm_set_self_attr madvise map_shadow_stack mbind membarrier memfd_create memfd_secret
    migrate_pages mincore mlock mlock2 mlockall modify_ldt move_pages mprotect mq_open mq_unlink
    mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep
    nfsservctl pause personality pidfd_open pipe pipe2 pkey_alloc pkey_free pkey_mprotect prctl
    prlimit64 process_vm_readv process_vm_writev ptrace putpmsg query_module reboot
    remap_file_pages request_key restart_syscall rseq rseq_slice_yield rt_sigaction
    rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield seccomp security semctl semget
    semop semtimedop set_mempolicy set_mempolicy_home_node set_robust_list set_thread_area
    set_tid_address setdomainname setgroups sethostname setitimer setpgid setpriority setrlimit
    setsid settimeofday shmat shmctl shmdt shmget sigaltstack socket socketpair statmount sysfs
    sysinfo syslog tgkill time timer_create timer_delete timer_getoverrun timer_gettime
    timer_settime timerfd_create times tkill tuxcall uname uprobe uretprobe userfaultfd ustat
    vhangup vserver wait4";

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// The calls by their names: those that the product knows, and those of the machine's header.
fn kernel_table() -> BTreeMap<String, usize> {
    let mut table = BTreeMap::new();
    for line in NUMBERS.lines() {
        let Some((name, number)) =
            line.strip_prefix("pub const ").and_then(|line| line.split_once(": usize = "))
        else {
            continue;
        };
        let number = number.trim_end_matches(';').parse().expect("a number stands there");
        table.insert(name.to_lowercase(), number);
    }
    assert!(table.len() > 370, "number.rs was not read: {} calls", table.len());
    for line in std::fs::read_to_string(HEADER).unwrap_or_default().lines() {
        let Some(rest) = line.strip_prefix("#define __NR_") else { continue };
        let (name, number) = rest.split_once(' ').expect("a name and a number");
        let number = number.trim().parse().expect("a number stands there");
        let known = *table.entry(name.to_owned()).or_insert(number);
        assert_eq!(known, number, "{name} has another number in the kernel's header");
    }
    table
}

fn stands_in(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).any(|part| part == word)
}

#[test]
fn every_system_call_is_served_refused_passed_on_purpose_or_about_neither() {
    let (passed, neither, counted) = (words(PASSED), words(NEITHER), words(COUNTED));
    let mut wrong = Vec::new();
    for (name, number) in kernel_table() {
        let class = CLASSES.get(number).copied().unwrap_or(PASS);
        let looked_at = class != PASS && class != PASS_WATCHED;
        let lists = [&passed, &neither, &counted].map(|list| list.contains(name.as_str()));
        match (looked_at, lists) {
            (true, [false, false, true]) | (false, [false, true, false]) => {}
            (false, [true, false, false]) => {
                if class == PASS {
                    wrong.push(format!("{name} passes even where a number is kept"));
                }
                if !stands_in(SEMANTICS, &name) {
                    wrong.push(format!(
                        "{name} passes, and docs/reference/semantics.md does not say so"
                    ));
                }
            }
            (true, [false, false, false]) => {
                let constant = name.to_uppercase();
                if !stands_in(DISPATCH, &constant) && !stands_in(REFUSED, &constant) {
                    wrong.push(format!("{name} is looked at, and then passes for no reason"));
                }
                if !stands_in(SEMANTICS, &name) {
                    wrong
                        .push(format!("docs/reference/semantics.md does not say what {name} does"));
                }
            }
            (false, [false, false, false]) => {
                wrong.push(format!("{name} ({number}) is new: what does it take?"));
            }
            _ => wrong.push(format!("{name} stands in several lists")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_lists_name_calls_that_the_kernel_has() {
    let table = kernel_table();
    // Newer than what the product and most machines know.
    let newer = words(
        "futex_requeue futex_wait futex_wake listns lsm_get_self_attr lsm_list_modules mseal
        lsm_set_self_attr rseq_slice_yield uprobe uretprobe",
    );
    let lists = [PASSED, NEITHER, COUNTED].map(words);
    let unknown: Vec<_> = lists
        .iter()
        .flatten()
        .filter(|name| !table.contains_key(**name) && !newer.contains(**name))
        .collect();
    assert!(unknown.is_empty(), "no such call: {unknown:?}");
}
