//! What this machine has of what Mayfly needs or makes use of: `docs/reference/requirements.md`,
//! for one machine and the user who asks.

use std::{
    env, fs, io,
    process::{Command, Stdio},
};

use mayfly_fuse::{Audience, Way};
use rustix::{
    fs::{Access, StatVfsMountFlags, access, statfs, statvfs},
    io::Errno,
    process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open},
    system::uname,
};
use serde::Serialize;

use crate::{instance::places, size};

/// The oldest kernel that Mayfly runs on.
const OLDEST_KERNEL: (u32, u32) = (4, 18);
/// Queues that an instance takes on a node.
const QUEUES_OF_AN_INSTANCE: u64 = 2;
/// Instances of a user on one node that ought to be possible.
const INSTANCES_WANTED: u64 = 8;
/// Descriptors that a node should be able to have.
const DESCRIPTORS_WANTED: u64 = 4096;
/// Free bytes below which a data directory is called small.
const DATA_BYTES_WANTED: u64 = 1 << 30;
/// Processes at once of which each has three descriptors in the supervisor.
const DESCRIPTORS_OF_A_PROCESS: u64 = 3;

/// How well one need is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All that is made use of is there.
    Fine,
    /// Mayfly works, with less than it could have.
    Less,
    /// It does not start.
    Missing,
}

/// What was found of one need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: `kernel`, `mount`, …
    pub subject: &'static str,
    /// How well it is met.
    pub level: Level,
    /// What is there.
    pub found: String,
    /// What does not work without it, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn fine(subject: &'static str, found: impl Into<String>) -> Finding {
        Finding { subject, level: Level::Fine, found: found.into(), advice: None }
    }

    fn less(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Less, advice: Some(advice.into()), ..Finding::fine(subject, found) }
    }

    fn missing(
        subject: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Missing, ..Finding::less(subject, found, advice) }
    }
}

/// Looks at everything that `docs/reference/requirements.md` lists, in its order.
#[must_use]
pub fn look() -> Vec<Finding> {
    vec![
        kernel(&uname().release().to_string_lossy()),
        ends_of_processes(),
        mount(),
        libc(),
        run_directory(),
        data_directory(),
        inotify(),
        descriptors(),
        launchers(),
    ]
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    match version {
        Some(version) if version < OLDEST_KERNEL => Finding::missing(
            "kernel",
            format!("Linux {release}"),
            "Linux 4.18 or newer is needed (MAP_FIXED_NOREPLACE, MADV_WIPEONFORK)",
        ),
        _ => Finding::fine("kernel", format!("Linux {release}")),
    }
}

fn ends_of_processes() -> Finding {
    const SUBJECT: &str = "ends of processes";
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Err(Errno::NOSYS) => Finding::less(
            SUBJECT,
            "looked for every 10 ms",
            "pidfd_open is not known here (Linux 5.3 and newer): what a killed process held is \
             free a little later",
        ),
        _ => Finding::fine(SUBJECT, "told by the kernel (pidfd_open)"),
    }
}

fn mount() -> Finding {
    let way = |audience| mayfly_fuse::way(audience, None);
    match (way(Audience::Everybody), way(Audience::Command)) {
        (Ok(way), _) => Finding::fine("mount", format!("possible, by {}", way.word())),
        (Err(error), Ok(Way::Namespace)) => Finding::less(
            "mount",
            "for the command of `mayfly run` only, in a user namespace",
            format!("{error:#}"),
        ),
        (Err(error), _) => Finding::less(
            "mount",
            "none: programs that the library serves are served, and no others",
            format!("{error:#}"),
        ),
    }
}

fn libc() -> Finding {
    const SUBJECT: &str = "C library";
    let mut asked = Command::new("getconf");
    let told = asked.arg("GNU_LIBC_VERSION").stderr(Stdio::null()).stdin(Stdio::null()).output();
    let told = told.ok().filter(|told| told.status.success());
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    let version =
        told.as_deref().and_then(|told| told.strip_prefix("glibc ")).and_then(two_numbers);
    match (told, version) {
        (Some(told), Some(version)) if version < (2, 17) => Finding::less(
            SUBJECT,
            told,
            "programs are served from glibc 2.17 on; older ones use the mount",
        ),
        (Some(told), _) => Finding::fine(SUBJECT, told),
        (None, _) => Finding::fine(SUBJECT, "not told (no getconf): glibc from 2.17 on, or musl"),
    }
}

fn two_numbers(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn run_directory() -> Finding {
    const SUBJECT: &str = "run directory";
    let root = places::default_run_root();
    let found = root.display().to_string();
    let there = places::existing(&root);
    if !there.is_dir() || access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Finding::missing(
            SUBJECT,
            found,
            format!("nothing can be made in {}: set TMPDIR or MAYFLY_RUN_ROOT", there.display()),
        );
    }
    let flags = statvfs(there).map(|status| status.f_flag);
    if flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::NOEXEC)) {
        return Finding::less(
            SUBJECT,
            found,
            "it is mounted noexec, so that the loader refuses the preload library: set \
             MAYFLY_RUN_ROOT to a directory of yours that may execute",
        );
    }
    Finding::fine(SUBJECT, found)
}

fn data_directory() -> Finding {
    const SUBJECT: &str = "data directory";
    let directory = env::temp_dir();
    let path = directory.display();
    if access(&directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Finding::missing(
            SUBJECT,
            path.to_string(),
            "it cannot be written to: choose --data-dir, or set TMPDIR",
        );
    }
    let Ok(status) = statvfs(&directory) else {
        return Finding::fine(SUBJECT, path.to_string());
    };
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    let kind = statfs(&directory).ok().and_then(|status| kind_of(status.f_type));
    let found = match kind {
        Some(kind) => format!("{path} ({}), {} free", kind.name, size::show(free)),
        None => format!("{path}, {} free", size::show(free)),
    };
    if kind.is_some_and(|kind| kind.is_shared) {
        return Finding::less(
            SUBJECT,
            found,
            "it is a file system that all nodes share: Mayfly is for the nodes' own storage \
             (--data-dir /local/disk, or /dev/shm)",
        );
    }
    if free < DATA_BYTES_WANTED {
        return Finding::less(SUBJECT, found, "there is little room: choose --data-dir");
    }
    Finding::fine(SUBJECT, found)
}

/// A file system, as statfs tells it.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    is_shared: bool,
}

/// The magic numbers are those of `linux/magic.h`, and of the file systems' own sources.
fn kind_of(magic: i64) -> Option<Kind> {
    let (name, is_shared) = match magic {
        0x0102_1994 => ("tmpfs", false),
        0x8584_58f6 => ("ramfs", false),
        0xef53 => ("ext4", false),
        0x5846_5342 => ("xfs", false),
        0x9123_683e => ("btrfs", false),
        0x794c_7630 => ("overlay", false),
        0x6969 => ("NFS", true),
        0x0bd0_0bd0 => ("Lustre", true),
        0x1983_0326 => ("BeeGFS", true),
        0x4750_4653 => ("GPFS", true),
        0x00c3_6400 => ("Ceph", true),
        _ => return None,
    };
    Some(Kind { name, is_shared })
}

fn inotify() -> Finding {
    const SUBJECT: &str = "inotify";
    let setting = "/proc/sys/fs/inotify/max_user_instances";
    let most = fs::read_to_string(setting).and_then(|text| {
        text.trim().parse::<u64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    });
    match most {
        Ok(most) if most < INSTANCES_WANTED * QUEUES_OF_AN_INSTANCE => Finding::less(
            SUBJECT,
            format!("{most} queues a user"),
            "an instance takes two on each node, and without them looks for closed files once a \
             second: raise fs.inotify.max_user_instances",
        ),
        Ok(most) => Finding::fine(
            SUBJECT,
            format!(
                "{most} queues a user, enough for {} instances on a node",
                most / QUEUES_OF_AN_INSTANCE
            ),
        ),
        Err(error) => Finding::fine(SUBJECT, format!("not told ({error})")),
    }
}

fn descriptors() -> Finding {
    const SUBJECT: &str = "descriptors";
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < DESCRIPTORS_WANTED => Finding::less(
            SUBJECT,
            format!("{most} a process"),
            format!(
                "an instance serves some {} processes on a node: raise the hard limit \
                 (`ulimit -Hn`)",
                most / DESCRIPTORS_OF_A_PROCESS
            ),
        ),
        Some(most) => Finding::fine(SUBJECT, format!("{most} a process")),
        None => Finding::fine(SUBJECT, "no limit"),
    }
}

fn launchers() -> Finding {
    const SUBJECT: &str = "several nodes";
    let path = env::var_os("PATH").unwrap_or_default();
    let has = |name: &&str| env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let there: Vec<&str> = ["srun", "ssh"].into_iter().filter(has).collect();
    if there.is_empty() {
        return Finding::less(
            SUBJECT,
            "neither srun nor ssh",
            "an instance of several nodes needs one of them, or --launcher with a command of yours",
        );
    }
    Finding::fine(SUBJECT, format!("by {}", there.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_4_18_are_too_old_whatever_follows_their_number() {
        for (release, level) in [
            ("4.18.0-553.el8_10.x86_64", Level::Fine),
            ("6.1.0-28-amd64", Level::Fine),
            ("5.3", Level::Fine),
            ("4.9.0-8-amd64", Level::Missing),
            ("3.10.0-1160.el7.x86_64", Level::Missing),
            // A kernel that names itself in another way is tried.
            ("rolling", Level::Fine),
        ] {
            assert_eq!(kernel(release).level, level, "{release}");
        }
    }

    #[test]
    fn whatever_is_less_than_fine_says_what_to_do() {
        for finding in look() {
            assert_eq!(finding.advice.is_some(), finding.level != Level::Fine, "{finding:?}");
        }
    }
}
