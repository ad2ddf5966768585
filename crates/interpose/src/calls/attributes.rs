//! Attributes: the stat family, access, chmod, chown, utimensat, truncate, statfs.

use mayfly_client::{Attributes, Stop};
use mayfly_sys::{
    Errno,
    file::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW},
    number,
    text::PathText,
    user,
};
use mayfly_types::{Attr, FileKind, Timestamp};
use mayfly_wire::{
    SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_SIZE, SET_UID,
    Target,
};

use super::{
    data,
    serve::{AT, PLAIN, PathArguments, are_refused, argument, done, with_path},
};
use crate::{
    Call, Outcome,
    descriptors::leased,
    paths::{cwd, locate::is_link_of_procfs},
    process::{flight, session},
};

/// Preferred size of a transfer that stat reports.
const BLOCK_BYTES: u64 = 65_536;
/// `f_type` of statfs: "MYFS". Programs that do not know it do not rely on inotify.
const FILE_SYSTEM_TYPE: u64 = 0x5346_594d;
/// That of tmpfs, where inotify tells everything.
const LOCAL_TYPE: u64 = 0x0102_1994;

/// `struct stat` of x86-64.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct KernelStat {
    device: u64,
    inode: u64,
    links: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    padding: u32,
    special_device: u64,
    size: i64,
    block_size: i64,
    blocks: i64,
    times: [i64; 6],
    unused: [i64; 3],
}

/// `struct statx`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct KernelStatx {
    mask: u32,
    block_size: u32,
    attributes: u64,
    links: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    padding: u16,
    inode: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    times: [KernelTime; 4],
    special_device: [u32; 2],
    device: [u32; 2],
    rest: [u64; 14],
}

/// `struct statx_timestamp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct KernelTime {
    seconds: i64,
    nanoseconds: u32,
    padding: i32,
}

const _: () = assert!(size_of::<KernelStat>() == 144);
const _: () = assert!(size_of::<KernelStatx>() == 256);

/// Device number in the kernel's encoding for user space, major 0.
fn device(minor: u32) -> u64 {
    u64::from(minor & 0xff) | (u64::from(minor & !0xff) << 12)
}

fn stat_of(attr: &Attr) -> KernelStat {
    let pair = |time: Timestamp| [time.seconds, i64::from(time.nanoseconds)];
    let ([a, b], [c, d], [e, f]) = (pair(attr.atime), pair(attr.mtime), pair(attr.ctime));
    KernelStat {
        device: device(session::device_minor()),
        inode: attr.id.0,
        links: u64::from(attr.links),
        mode: attr.kind.mode_bits() | attr.mode & 0o7777,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size_bytes as i64,
        block_size: BLOCK_BYTES as i64,
        blocks: attr.blocks as i64,
        times: [a, b, c, d, e, f],
        ..KernelStat::default()
    }
}

fn statx_of(attr: &Attr) -> KernelStatx {
    const BASIC_AND_BIRTH: u32 = 0xfff;
    let time = |time: Timestamp| KernelTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        padding: 0,
    };
    KernelStatx {
        mask: BASIC_AND_BIRTH,
        block_size: BLOCK_BYTES as u32,
        attributes: 0,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        mode: (attr.kind.mode_bits() | attr.mode & 0o7777) as u16,
        padding: 0,
        inode: attr.id.0,
        size: attr.size_bytes,
        blocks: attr.blocks,
        attributes_mask: 0,
        times: [time(attr.atime), time(attr.btime), time(attr.ctime), time(attr.mtime)],
        special_device: [0, 0],
        device: [0, session::device_minor()],
        rest: [0; 14],
    }
}

/// Does `work` with what an `*at` call with flags is about: with an empty path, the directory
/// descriptor itself.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn with_target(
    call: &Call,
    at: PathArguments,
    flags: usize,
    work: &mut dyn FnMut(Target<'_>, &mut PathText) -> Result<isize, Stop>,
) -> Outcome {
    if are_refused(call.number, flags) {
        return Outcome::Pass;
    }
    // A null path means an empty one to newer kernels.
    let empty = flags & AT_EMPTY_PATH != 0
        && (argument(call, at.path) == 0
            // SAFETY: passed on to the caller.
            || unsafe { at.path_of(call) } == Ok(b""));
    if empty {
        let directory = at.directory_of(call);
        let target = match directory {
            AT_FDCWD => cwd::target(),
            _ => match session::promised(directory) {
                Some((_, open)) => Some(Target::Open(open.reference)),
                None => match session::open_file(directory) {
                    Ok(open) => open.map(|open| Target::Open(open.reference)),
                    Err(errno) => return Outcome::Done(errno.as_result()),
                },
            },
        };
        let Some(target) = target else { return Outcome::Pass };
        return done(on_open(target, work));
    }
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let is_link = |path: &[u8]| is_link_of_procfs(at.directory_of(call), path);
    // SAFETY: passed on to the caller.
    if !follow && unsafe { at.path_of(call) }.is_ok_and(is_link) {
        // The link itself is the kernel's.
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    unsafe { with_path(call, at, &mut |place, escape| work(place.target(follow)?, escape)) }
}

/// Does `work` with something that is open, so that no path can lead away.
pub(super) fn on_open(
    target: Target<'_>,
    work: &mut dyn FnMut(Target<'_>, &mut PathText) -> Result<isize, Stop>,
) -> Result<isize, Errno> {
    let mut escape = PathText::new();
    match work(target, &mut escape) {
        Ok(value) => Ok(value),
        Err(Stop::Failed(errno)) => Err(errno),
        Err(Stop::Escaped) => Err(Errno::EIO),
    }
}

fn descriptor_target(call: &Call) -> Result<Target<'static>, Errno> {
    let (_, open) = session::require_open(argument(call, 0) as i32)?;
    Ok(Target::Open(open.reference))
}

/// As [`descriptor_target`], for calls that O_PATH descriptors refuse.
pub(super) fn opened_target(call: &Call) -> Result<Target<'static>, Errno> {
    let (_, open) = session::require_open(argument(call, 0) as i32)?;
    if open.is_path() { Err(Errno::EBADF) } else { Ok(Target::Open(open.reference)) }
}

fn attributes_of(target: Target<'_>, escape: &mut PathText) -> Result<Attr, Stop> {
    let session = session::get()?;
    if let Target::Open(open) = target
        && let Some(promised) = session.promised(open)
        && let Some(attr) = session.look_at_promised(promised)
    {
        return Ok(attr);
    }
    session.stat(target, escape)
}

/// What a descriptor stands for, made or not: whoever asks the daemon has what is promised made.
fn told_target(descriptor: i32) -> Result<Target<'static>, Errno> {
    match session::promised(descriptor) {
        Some((_, open)) => Ok(Target::Open(open.reference)),
        None => session::require_open(descriptor).map(|(_, open)| Target::Open(open.reference)),
    }
}

/// stat, lstat, fstat, newfstatat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn stat(call: &Call) -> Outcome {
    let buffer = match call.number {
        number::NEWFSTATAT => argument(call, 2),
        _ => argument(call, 1),
    } as *mut KernelStat;
    // SAFETY: passed on to the caller.
    if let Some(attr) = unsafe { leased::attributes(call) } {
        // SAFETY: the host wants a `struct stat` written there.
        return done(unsafe { user::write(&stat_of(&attr), buffer) }.map(|()| 0));
    }
    let mut work = |target: Target<'_>, escape: &mut PathText| {
        let attr = attributes_of(target, escape)?;
        // SAFETY: the host wants a `struct stat` written there.
        unsafe { user::write(&stat_of(&attr), buffer) }?;
        Ok(0)
    };
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            number::STAT => with_target(call, PLAIN, 0, &mut work),
            number::LSTAT => with_target(call, PLAIN, AT_SYMLINK_NOFOLLOW, &mut work),
            number::FSTAT => {
                let target = told_target(argument(call, 0) as i32);
                done(target.and_then(|target| on_open(target, &mut work)))
            }
            _ => with_target(call, AT, argument(call, 3), &mut work),
        }
    }
}

/// statx. The mask is a wish; everything is always filled in.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn statx(call: &Call) -> Outcome {
    const RESERVED: u32 = 0x8000_0000;
    const SYNC_TYPE: usize = 0x6000;
    let buffer = argument(call, 4) as *mut KernelStatx;
    let flags = argument(call, 2);
    if argument(call, 3) as u32 & RESERVED != 0
        || flags & SYNC_TYPE == SYNC_TYPE
        || are_refused(call.number, flags)
    {
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    if let Some(attr) = unsafe { leased::attributes(call) } {
        // SAFETY: the host wants a `struct statx` written there.
        return done(unsafe { user::write(&statx_of(&attr), buffer) }.map(|()| 0));
    }
    // SAFETY: passed on to the caller.
    unsafe {
        with_target(call, AT, flags, &mut |target, escape| {
            let attr = attributes_of(target, escape)?;
            user::write(&statx_of(&attr), buffer)?;
            Ok(0)
        })
    }
}

/// access, faccessat, faccessat2. Only the user of the instance is here, so it comes down to
/// existence; a file that nobody may execute is not executable to root either.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn access(call: &Call) -> Outcome {
    const X_OK: usize = 1;
    let (at, mode, flags) = match call.number {
        number::ACCESS => (PLAIN, argument(call, 1), 0),
        number::FACCESSAT => (AT, argument(call, 2), 0),
        _ => (AT, argument(call, 2), argument(call, 3)),
    };
    // SAFETY: passed on to the caller.
    unsafe {
        with_target(call, at, flags, &mut |target, escape| {
            if mode as u32 & !7 != 0 {
                return Err(Stop::Failed(Errno::EINVAL));
            }
            let attr = session::get()?.stat(target, escape)?;
            if mode & X_OK != 0 && attr.kind == FileKind::Regular && attr.mode & 0o111 == 0 {
                return Err(Stop::Failed(Errno::EACCES));
            }
            Ok(0)
        })
    }
}

fn change(target: Target<'_>, to: &Attributes, escape: &mut PathText) -> Result<isize, Stop> {
    let session = session::get()?;
    if flight::child().is_none() && session.submit_attributes(target, to) {
        return Ok(0);
    }
    session.set_attributes(target, to, escape).map(|_| 0)
}

/// Changes attributes of a file whose description is promised, or leased; `None` when that has to
/// be made.
fn change_unmade(descriptor: usize, to: &Attributes) -> Option<Outcome> {
    let (session, reference) = session::reference(descriptor as i32)?;
    let may = session.promised(reference).is_some()
        || leased::is_read_so(descriptor) && !leased::is_path(descriptor);
    (may && session.submit_attributes(Target::Open(reference), to)).then_some(Outcome::Done(0))
}

/// chmod, fchmod, fchmodat, fchmodat2.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn chmod(call: &Call) -> Outcome {
    let mode = match call.number {
        number::CHMOD | number::FCHMOD => argument(call, 1),
        _ => argument(call, 2),
    };
    let to = Attributes { which: SET_MODE, mode: mode as u32 & 0o7777, ..Default::default() };
    let flags = if call.number == number::FCHMODAT2 { argument(call, 3) } else { 0 };
    let mut work = |target: Target<'_>, escape: &mut PathText| {
        if let (Target::Path(_), true) = (&target, flags & AT_SYMLINK_NOFOLLOW != 0)
            && session::get()?.stat(target, escape)?.kind == FileKind::Symlink
        {
            return Err(Stop::Failed(Errno::EOPNOTSUPP));
        }
        change(target, &to, escape)
    };
    if call.number == number::FCHMOD
        && let Some(done) = change_unmade(argument(call, 0), &to)
    {
        return done;
    }
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            number::FCHMOD => {
                done(opened_target(call).and_then(|target| on_open(target, &mut work)))
            }
            number::CHMOD => with_target(call, PLAIN, 0, &mut work),
            _ => with_target(call, AT, flags, &mut work),
        }
    }
}

/// chown, lchown, fchown, fchownat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn chown(call: &Call) -> Outcome {
    let shift = usize::from(call.number == number::FCHOWNAT);
    let (uid, gid) = (argument(call, 1 + shift) as u32, argument(call, 2 + shift) as u32);
    let which =
        if uid == u32::MAX { 0 } else { SET_UID } | if gid == u32::MAX { 0 } else { SET_GID };
    let to = Attributes { which, uid, gid, ..Default::default() };
    let mut work = |target: Target<'_>, escape: &mut PathText| change(target, &to, escape);
    if call.number == number::FCHOWN
        && let Some(done) = change_unmade(argument(call, 0), &to)
    {
        return done;
    }
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            number::FCHOWN => {
                done(opened_target(call).and_then(|target| on_open(target, &mut work)))
            }
            number::CHOWN => with_target(call, PLAIN, 0, &mut work),
            number::LCHOWN => with_target(call, PLAIN, AT_SYMLINK_NOFOLLOW, &mut work),
            _ => with_target(call, AT, argument(call, 4), &mut work),
        }
    }
}

const UTIME_NOW: i64 = 0x3fff_ffff;
const UTIME_OMIT: i64 = 0x3fff_fffe;

/// What a pair of (seconds, nanoseconds) asks for.
fn times(pairs: [[i64; 2]; 2]) -> Result<Attributes, Errno> {
    let mut to = Attributes::default();
    let [access, modification] = pairs;
    let mut one = |[seconds, nanoseconds]: [i64; 2], set, now| -> Result<Timestamp, Errno> {
        match nanoseconds {
            UTIME_OMIT => Ok(Timestamp::default()),
            UTIME_NOW => {
                to.which |= set | now;
                Ok(Timestamp::default())
            }
            0..1_000_000_000 => {
                to.which |= set;
                Ok(Timestamp { seconds, nanoseconds: nanoseconds as u32 })
            }
            _ => Err(Errno::EINVAL),
        }
    };
    let atime = one(access, SET_ATIME, SET_ATIME_NOW)?;
    let mtime = one(modification, SET_MTIME, SET_MTIME_NOW)?;
    Ok(Attributes { atime, mtime, ..to })
}

/// The times argument of a call, whichever form it has.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn times_of(call: &Call) -> Result<Attributes, Errno> {
    let index = match call.number {
        number::UTIME | number::UTIMES => 1,
        _ => 2,
    };
    let from = argument(call, index);
    if from == 0 {
        return times([[0, UTIME_NOW], [0, UTIME_NOW]]);
    }
    // SAFETY: the host passes an array of this form.
    let pairs = unsafe {
        match call.number {
            number::UTIME => {
                let [access, modification] = user::read(from as *const [i64; 2])?;
                [[access, 0], [modification, 0]]
            }
            _ => user::read(from as *const [[i64; 2]; 2])?,
        }
    };
    match call.number {
        number::UTIMES | number::FUTIMESAT => {
            let [[a, b], [c, d]] = pairs;
            if !(0..1_000_000).contains(&b) || !(0..1_000_000).contains(&d) {
                return Err(Errno::EINVAL);
            }
            times([[a, b * 1000], [c, d * 1000]])
        }
        _ => times(pairs),
    }
}

/// utime, utimes, futimesat, utimensat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn set_times(call: &Call) -> Outcome {
    let by_descriptor = matches!(call.number, number::FUTIMESAT | number::UTIMENSAT);
    if by_descriptor && argument(call, 1) == 0 {
        // SAFETY: passed on to the caller.
        let to = unsafe { times_of(call) };
        if let Ok(to) = to
            && let Some(done) = change_unmade(argument(call, 0), &to)
        {
            return done;
        }
    }
    let mut work = |target: Target<'_>, escape: &mut PathText| {
        // SAFETY: passed on to the caller.
        let to = match unsafe { times_of(call) } {
            // A time that is none is looked at when the file is found.
            Err(Errno::EINVAL) if by_descriptor => {
                session::get()?.stat(target, escape)?;
                return Err(Stop::Failed(Errno::EINVAL));
            }
            to => to?,
        };
        change(target, &to, escape)
    };
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            number::UTIME | number::UTIMES => with_target(call, PLAIN, 0, &mut work),
            // Without a path the call is about the descriptor: futimens.
            _ if argument(call, 1) == 0 => match session::open_file(argument(call, 0) as i32) {
                Ok(None) => Outcome::Pass,
                Ok(Some(open)) if open.is_path() => Outcome::Done(Errno::EBADF.as_result()),
                Ok(Some(open)) => done(on_open(Target::Open(open.reference), &mut work)),
                Err(errno) => Outcome::Done(errno.as_result()),
            },
            number::FUTIMESAT => with_target(call, AT, 0, &mut work),
            _ => with_target(call, AT, argument(call, 3), &mut work),
        }
    }
}

/// truncate.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn truncate(call: &Call) -> Outcome {
    let size = argument(call, 1) as i64;
    // SAFETY: passed on to the caller.
    unsafe {
        with_target(call, PLAIN, 0, &mut |target, escape| {
            let size_bytes = u64::try_from(size).map_err(|_| Errno::EINVAL)?;
            data::check_size(size_bytes)?;
            let to = Attributes { which: SET_SIZE, size_bytes, ..Default::default() };
            change(target, &to, escape)
        })
    }
}

/// `struct statfs` of x86-64.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct KernelStatFs {
    kind: u64,
    block_size: u64,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    id: u64,
    name_bytes_max: u64,
    fragment_size: u64,
    flags: u64,
    spare: [u64; 4],
}

const _: () = assert!(size_of::<KernelStatFs>() == 120);

/// statfs, fstatfs.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn statfs(call: &Call) -> Outcome {
    let buffer = argument(call, 1) as *mut KernelStatFs;
    let mut work = |target: Target<'_>, escape: &mut PathText| {
        let session = session::get()?;
        session.stat(target, escape)?;
        let used = session.capacity()?;
        let block = u64::from(used.block_bytes.max(1));
        let free = used.capacity_bytes.saturating_sub(used.used_bytes);
        let answer = KernelStatFs {
            kind: if session.tells_everything() { LOCAL_TYPE } else { FILE_SYSTEM_TYPE },
            block_size: block,
            blocks: used.capacity_bytes / block,
            blocks_free: free / block,
            blocks_available: free.saturating_sub(used.kept_bytes) / block,
            files: used.files_max,
            files_free: used.files_max.saturating_sub(used.files),
            id: used.fsid,
            name_bytes_max: 255,
            fragment_size: block,
            flags: 0x20,
            spare: [0; 4],
        };
        // SAFETY: the host wants a `struct statfs` written there.
        unsafe { user::write(&answer, buffer) }?;
        Ok(0)
    };
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            number::STATFS => with_target(call, PLAIN, 0, &mut work),
            _ => done(descriptor_target(call).and_then(|target| on_open(target, &mut work))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_times_are_not_set() {
        let to = times([[5, UTIME_OMIT], [7, 9]]).expect("valid");
        assert_eq!(to.which, SET_MTIME);
        assert_eq!(to.mtime, Timestamp { seconds: 7, nanoseconds: 9 });
        let to = times([[0, UTIME_NOW], [0, UTIME_OMIT]]).expect("valid");
        assert_eq!(to.which, SET_ATIME | SET_ATIME_NOW);
        assert_eq!(times([[0, 1_000_000_000], [0, 0]]).err(), Some(Errno::EINVAL));
    }
}
