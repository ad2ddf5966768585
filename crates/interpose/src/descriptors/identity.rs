//! Placeholders, and how a description gets an identity that the kernel carries.
//!
//! As long as only this process has descriptors of an open file description, they are duplicates of
//! one hidden `O_PATH` descriptor of a removed directory: cheap, and every use that we do not see
//! fails. Before a descriptor can leave the process (fork, exec, a message) the description is
//! *shared*: its slot file `ofd/<index>` is opened, once, with access mode 3, and put in place of
//! every placeholder. From then on the kernel's open file description of the slot file is the life
//! time of ours: the daemon sees the last close. Whoever meets such a descriptor reads the index
//! from its link in procfs.

use core::sync::atomic::{AtomicI32, Ordering};

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    file::{self, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_NEITHER, O_PATH},
    lock::{Held, Lock},
    process,
    text::{PathText, parse_decimal, parse_hexadecimal},
};

use mayfly_types::{FileId, OpenRef};

use super::{closed_number, hidden, table};
use crate::{
    paths::text,
    process::{daemons, flight, lanes::Session, run_directory, session::attach, settings},
};

/// What the names of removed directories begin with.
const PARKED: &[u8] = b"park-";

/// The hidden descriptor that placeholders duplicate, plus one.
static PLACEHOLDER: AtomicI32 = AtomicI32::new(0);
static MAKING: Lock = Lock::new();
/// One thread at a time gives identities: two must not open one slot file.
static SHARING: Lock = Lock::new();
/// Held while a number of ours changes its meaning, in the table and in the kernel: so that an
/// identity is never put over a number that somebody else got meanwhile.
static NUMBERS: Lock = Lock::new();

/// Held while a number is given to a description that only this process has: a fork holds it from
/// before it looks for such descriptions. Taken before any other.
static NEW: Lock = Lock::new();

/// For the child of a fork.
pub(crate) fn reset() {
    MAKING.reset();
    SHARING.reset();
    NUMBERS.reset();
    NEW.reset();
}

/// Lets no description get its first number until dropped.
pub(crate) fn hold_new() -> Held<'static> {
    NEW.hold()
}

/// Keeps what numbers of ours mean until dropped.
pub(crate) fn hold_numbers() -> Held<'static> {
    NUMBERS.hold()
}

/// The hidden descriptor was closed.
pub(crate) fn forget_placeholder() {
    PLACEHOLDER.store(0, Ordering::Release);
}

/// The hidden descriptor of a removed directory.
///
/// # Errors
/// EMFILE, or why no directory can be made.
pub(crate) fn placeholder() -> Result<i32, Errno> {
    if flight::child().is_some() {
        // The number would outlive the child's own descriptor table in the parent's memory.
        return make_placeholder();
    }
    let known = PLACEHOLDER.load(Ordering::Acquire);
    if known > 0 {
        return Ok(known - 1);
    }
    let _held = MAKING.hold();
    let known = PLACEHOLDER.load(Ordering::Acquire);
    if known > 0 {
        return Ok(known - 1);
    }
    let made = hidden::conceal(make_placeholder()?)?;
    PLACEHOLDER.store(made + 1, Ordering::Release);
    Ok(made)
}

fn make_placeholder() -> Result<i32, Errno> {
    removed_directory(None)
}

/// An `O_PATH` descriptor of a removed directory, which is named after this thread, and after what
/// it is to stand for.
///
/// # Errors
/// EMFILE, or why no directory can be made.
pub(crate) fn removed_directory(stands_for: Option<FileId>) -> Result<i32, Errno> {
    let mut name = PathText::from_bytes(PARKED)?;
    name.push_decimal(u64::from(process::thread_id()))?;
    if let Some(id) = stands_for {
        name.push(b"-")?;
        name.push_hexadecimal(id.0)?;
    }
    let (directory, path) = run_directory::entry(name.as_bytes())?;
    // Who has changed its user goes there, too.
    match file::make_directory(directory, &path, 0o711) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let opened = file::open_at(directory, &path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    file::remove_directory(directory, &path)?;
    opened
}

/// What the text of a link says of such a directory: nothing, or what it stands for.
pub(crate) fn removed_in(link: &[u8]) -> Option<Option<FileId>> {
    // A program may work in one that a program of another daemon has made.
    let name = in_run_directory(link).or_else(|| daemons::inside(link))?.strip_prefix(PARKED)?;
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let number = name.split(|byte| *byte == b'-').nth(1);
    Some(number.and_then(parse_hexadecimal).map(FileId))
}

/// Index of the description whose slot file `descriptor` is, by its link in procfs.
pub(crate) fn slot_of(descriptor: i32) -> Option<u32> {
    let mut link = PathText::new();
    file::descriptor_link(descriptor, &mut link).ok()?;
    slot_in(link.as_bytes())
}

/// The part of a link's text that is below the run directory. Where that lies in a mount that this
/// process's root does not show, the text begins at the mount's root, or says so.
fn in_run_directory(link: &[u8]) -> Option<&[u8]> {
    let run = settings::get()?.run.as_bytes();
    if let Some(rest) = link.strip_prefix(run) {
        return rest.strip_prefix(b"/");
    }
    // Not in a root of its own, for most.
    let (_, name) = text::split_last(run);
    let at = link.windows(name.len()).rposition(|part| part == name)?;
    let (before, rest) = (link.get(..at)?, link.get(at + name.len()..)?);
    let shown = before.strip_prefix(b"(unreachable)").unwrap_or(before);
    let whole = run.strip_suffix(name)?.ends_with(shown);
    if whole { rest.strip_prefix(b"/") } else { None }
}

/// The same, by the text of the link.
pub(crate) fn slot_in(link: &[u8]) -> Option<u32> {
    let number = in_run_directory(link)?.strip_prefix(b"ofd/")?;
    u32::try_from(parse_decimal(number)?).ok()
}

fn open_slot(index: u32, cloexec: u32) -> Result<i32, Errno> {
    let mut name = PathText::from_bytes(b"ofd/")?;
    name.push_decimal(u64::from(index))?;
    let (directory, path) = run_directory::entry(name.as_bytes())?;
    file::open_at(directory, &path, O_NEITHER | O_CREAT | cloexec, 0o600)
}

/// A descriptor with the lowest free number for a new description.
///
/// # Errors
/// EMFILE.
pub(crate) fn assign(open: OpenFile, cloexec: u32) -> Result<i32, Errno> {
    if flight::child().is_some() {
        // The child's table is the kernel's alone, so the descriptor carries its identity at once.
        flight::note_descriptor();
        if !open.claim() {
            return Err(Errno::EBADF);
        }
        let slot = open_slot(open.reference.index, cloexec);
        if slot.is_ok() {
            open.finish_sharing()
        } else {
            open.give_up_sharing()
        }
        return slot;
    }
    let _held = hold_new();
    let descriptor = match closed_number::take(cloexec) {
        Some(kept) => kept,
        None => new_number(cloexec)?,
    };
    table::adopt(descriptor, open.reference).inspect_err(|_| file::close(descriptor))?;
    Ok(descriptor)
}

/// The lowest free number, with a placeholder.
fn new_number(cloexec: u32) -> Result<i32, Errno> {
    let placeholder = placeholder()?;
    // dup is the fastest call that makes a descriptor.
    let number = if cloexec == 0 {
        file::duplicate(placeholder)?
    } else {
        file::control(placeholder, file::F_DUPFD_CLOEXEC, 0)? as i32
    };
    closed_number::handed_out(number, cloexec);
    Ok(number)
}

/// Gives `open` a kernel identity and puts it in place of all its placeholders.
///
/// # Errors
/// EMFILE, ENOSPC: why the slot file cannot be opened.
pub(crate) fn share(open: OpenFile) -> Result<(), Errno> {
    if open.is_shared() {
        return Ok(());
    }
    let _held = SHARING.hold();
    let session = attach::get()?;
    // With the offset held, no thread is amid a transfer under the constant that stands for this
    // process.
    let shared = session.with_position(open, |position| {
        if open.claim()
            && let Err(errno) = replace_placeholders(open)
        {
            open.give_up_sharing();
            return Err(errno);
        }
        Ok(((), position))
    });
    // Whoever closes it now does not wait for what was written. A failure is told to who does.
    let _ = session.send_on(open);
    match shared {
        // Another thread has shared it meanwhile, and moved it to the mount.
        Err(Errno::ESTALE) => Ok(()),
        shared => shared,
    }
}

/// Ends a description of which this process has closed its last descriptor. A private one is
/// claimed, so that no other thread gives it an identity meanwhile; a shared one ends with the
/// kernel's.
pub(crate) fn end(open: OpenFile) {
    let Ok(session) = attach::get() else { return };
    if !open.claim() {
        if open.is_shared() {
            return;
        }
        // Somebody is about to share it, or shared what stood here before.
        let _held = SHARING.hold();
        if !open.claim() {
            return;
        }
    }
    // The host has closed it whatever the daemon says; the session's end would free it too.
    let _ = session.close(open);
}

/// The same for a description that was promised or leased, whether it is made by now or not.
pub(crate) fn end_unmade(session: &Session, reference: OpenRef) {
    if !session.close_leased(reference)
        && !session.withdraw(reference)
        && let Ok(open) = session.open_file(reference)
    {
        end(open);
    }
}

/// The state is changed before the extra descriptor is closed: should another thread have closed
/// the last other one meanwhile, that close is the last, and the daemon must see it on a shared
/// description.
fn replace_placeholders(open: OpenFile) -> Result<(), Errno> {
    let slot = open_slot(open.reference.index, O_CLOEXEC)?;
    let mut failure = None;
    let held = hold_numbers();
    closed_number::give_up();
    for (descriptor, reference) in table::each_open() {
        if reference != open.reference {
            continue;
        }
        let flags = file::control(descriptor, file::F_GETFD, 0).unwrap_or(0);
        let cloexec = if flags & file::FD_CLOEXEC == 0 { 0 } else { O_CLOEXEC };
        if let Err(errno) = file::duplicate_onto(slot, descriptor, cloexec) {
            failure = Some(errno);
        }
    }
    drop(held);
    open.finish_sharing();
    file::close(slot);
    failure.map_or(Ok(()), Err)
}

/// Shares what a child will inherit. A process that has changed its user cannot, and its children
/// are not let in either: they are not the instance's owner's.
///
/// # Errors
/// As [`share`].
pub(crate) fn share_for_child() -> Result<(), Errno> {
    match share_all() {
        Err(Errno::EACCES) => Ok(()),
        shared => shared,
    }
}

/// Shares every description of this process that is still private.
///
/// # Errors
/// As [`share`].
fn share_all() -> Result<(), Errno> {
    if table::is_empty() {
        return Ok(());
    }
    let session = attach::get()?;
    for (_, reference) in table::each_open() {
        if let Ok(open) = session.open_file(reference) {
            share(open)?;
        }
    }
    Ok(())
}
