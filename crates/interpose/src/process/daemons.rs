//! Which of its host's daemons a program uses (`--daemons`).
//!
//! A launcher of parallel programs tells each of them its *local rank*: the how manieth it is on
//! its host. Rank R uses daemon R modulo the number of daemons. A program without a rank uses the
//! first one: what a shell or `make` starts works in the same directories, and those are at one
//! daemon.
//!
//! **When.** At the start of each program, by its own environment: the launcher itself has no rank
//! and must not decide for those that it starts. A fork goes on with its parent's daemon.
//!
//! **What is inherited.** An open file description belongs to one daemon. A program that inherits
//! descriptors uses the daemon that has them, whatever its rank is: the link of such a descriptor
//! in procfs says which ([`crate::descriptors::identity`]). A working directory belongs to none.
//!
//! **Where they are.** Daemon D of a host is found by the link `daemons/D` in the run directory of
//! the first one, and its objects by `objects` in its own (`mayfly_deploy`'s `instance::daemons`).

use mayfly_sys::{
    file::{self, AT_FDCWD},
    text::{PathText, parse_decimal},
};
use mayfly_types::limits::DAEMONS_MAX;

use super::{environment, settings};
use crate::descriptors::listing::each_in_kernel;

/// The user's choice: the number of a daemon.
const CHOSEN: &[u8] = b"MAYFLY_DAEMON";
/// Local ranks. A launcher that may run within another one comes before it: torchrun, Open MPI,
/// MPICH and Intel MPI, MVAPICH, PALS, Flux, Slurm, which gives one even to a batch script.
const RANKS: [&[u8]; 7] = [
    b"LOCAL_RANK",
    b"OMPI_COMM_WORLD_LOCAL_RANK",
    b"MPI_LOCALRANKID",
    b"MV2_COMM_WORLD_LOCAL_RANK",
    b"PALS_LOCAL_RANKID",
    b"FLUX_TASK_LOCAL_ID",
    b"SLURM_LOCALID",
];

/// How many daemons the host has, where there are several.
///
/// # Safety
/// `envp` is a valid environment array.
pub(super) unsafe fn count(envp: *const *const u8) -> Option<u32> {
    // SAFETY: passed on to the caller.
    let value = unsafe { environment::find(envp, environment::DAEMONS) };
    let count = value.and_then(parse_decimal).and_then(|count| u32::try_from(count).ok())?;
    (2..=DAEMONS_MAX).contains(&count).then_some(count)
}

/// The run directory and the objects of the daemon that this program uses; `None` for the first
/// one, whose run directory is `first`, or when another one is not to be found.
///
/// # Safety
/// `envp` is a valid environment array.
#[inline(never)]
pub(super) unsafe fn choose(
    envp: *const *const u8,
    count: u32,
    first: &PathText,
) -> Option<(PathText, PathText)> {
    // SAFETY: passed on to the caller.
    let (inherited, wanted) = unsafe {
        (environment::find(envp, environment::DESCRIPTORS), number(envp) % u64::from(count))
    };
    let run = match holder(inherited, first.as_bytes()) {
        Some(run) => run,
        None if wanted == 0 => return None,
        None => {
            let mut link = PathText::from_bytes(first.as_bytes()).ok()?;
            link.push(b"/daemons/").ok()?;
            link.push_decimal(wanted).ok()?;
            target(&link)?
        }
    };
    if run.as_bytes() == first.as_bytes() {
        return None;
    }
    let mut link = PathText::from_bytes(run.as_bytes()).ok()?;
    link.push(b"/objects").ok()?;
    Some((run, target(&link)?))
}

/// What the user, or a launcher, has said.
///
/// # Safety
/// `envp` is a valid environment array.
unsafe fn number(envp: *const *const u8) -> u64 {
    // SAFETY: passed on to the caller.
    let value = |name: &&[u8]| unsafe { environment::find(envp, name) }.and_then(parse_decimal);
    value(&CHOSEN).or_else(|| RANKS.iter().find_map(value)).unwrap_or(0)
}

fn target(link: &PathText) -> Option<PathText> {
    let mut text = PathText::new();
    file::read_link(AT_FDCWD, link, &mut text).ok()?;
    text.as_bytes().starts_with(b"/").then_some(text)
}

/// The run directory of the daemon whose descriptions this program inherits. The list of the
/// program before may be stale, so the kernel is asked; without a list all descriptors are looked
/// at.
fn holder(inherited: Option<&[u8]>, first: &[u8]) -> Option<PathText> {
    let Some(list) = inherited else {
        let mut found = None;
        let mut look = |descriptor| {
            if found.is_none() {
                found = holder_of(descriptor, first);
            }
        };
        (0..3).for_each(&mut look);
        each_in_kernel(|descriptor| {
            if descriptor > 2 {
                look(descriptor);
            }
        });
        return found;
    };
    list.split(|byte| *byte == b',').find_map(|item| {
        let number = parse_decimal(item.split(|byte| *byte == b':').next()?)?;
        holder_of(i32::try_from(number).ok()?, first)
    })
}

fn holder_of(descriptor: i32, first: &[u8]) -> Option<PathText> {
    let mut link = PathText::new();
    file::descriptor_link(descriptor, &mut link).ok()?;
    PathText::from_bytes(run_directory_in(link.as_bytes(), first)?).ok()
}

/// The run directory in the link of a slot file, if it is that of a daemon of this host.
fn run_directory_in<'l>(link: &'l [u8], first: &[u8]) -> Option<&'l [u8]> {
    let (run, inside) = divide(link, first)?;
    parse_decimal(inside.strip_prefix(b"ofd/")?)?;
    Some(run)
}

/// The part of a link's text that is below the run directory of a daemon of this host.
pub(crate) fn inside(link: &[u8]) -> Option<&[u8]> {
    let (_, inside) = divide(link, settings::get()?.host_run.as_bytes())?;
    Some(inside)
}

/// The run directory of a daemon, and what is below it: the first one's, or the same with `@` and
/// a number.
fn divide<'l>(link: &'l [u8], first: &[u8]) -> Option<(&'l [u8], &'l [u8])> {
    let rest = link.strip_prefix(first)?;
    let length = rest.iter().position(|byte| *byte == b'/')?;
    let (other, inside) = (rest.get(..length)?, rest.get(length + 1..)?);
    let fine =
        other.is_empty() || other.strip_prefix(b"@").is_some_and(|at| parse_decimal(at).is_some());
    fine.then_some((link.get(..first.len() + length)?, inside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn number_of(variables: &[&[u8]]) -> u64 {
        let mut pointers: Vec<*const u8> = variables.iter().map(|text| text.as_ptr()).collect();
        pointers.push(core::ptr::null());
        // SAFETY: the array above is terminated, and its strings too.
        unsafe { number(pointers.as_ptr()) }
    }

    #[test]
    fn the_innermost_launcher_says_the_rank_and_the_user_before_all() {
        assert_eq!(number_of(&[b"PATH=/bin\0"]), 0);
        assert_eq!(number_of(&[b"SLURM_LOCALID=3\0"]), 3);
        // mpiexec in a batch script of Slurm.
        assert_eq!(number_of(&[b"SLURM_LOCALID=0\0", b"MPI_LOCALRANKID=2\0"]), 2);
        // torchrun in a rank of mpirun.
        assert_eq!(number_of(&[b"OMPI_COMM_WORLD_LOCAL_RANK=0\0", b"LOCAL_RANK=5\0"]), 5);
        assert_eq!(number_of(&[b"LOCAL_RANK=5\0", b"MAYFLY_DAEMON=1\0"]), 1);
        assert_eq!(number_of(&[b"MAYFLY_DAEMON=\0", b"LOCAL_RANK=x\0"]), 0);
    }

    #[test]
    fn a_slot_file_tells_the_daemon_and_what_only_looks_like_one_does_not() {
        let first = b"/run/mayfly/job";
        let is = |link: &'static [u8]| run_directory_in(link, first);
        assert_eq!(is(b"/run/mayfly/job/ofd/7"), Some(&first[..]));
        assert_eq!(is(b"/run/mayfly/job@3/ofd/7"), Some(&b"/run/mayfly/job@3"[..]));
        for other in [
            &b"/run/mayfly/job2/ofd/7"[..],
            b"/run/mayfly/job@/ofd/7",
            b"/run/mayfly/job@3x/ofd/7",
            b"/run/mayfly/job@3/ofd/x",
            b"/run/mayfly/job@3/special/7",
            b"/run/mayfly/job/more/ofd/7",
            b"pipe:[7]",
            b"",
        ] {
            assert_eq!(is(other), None, "{}", std::string::String::from_utf8_lossy(other));
        }
    }
}
