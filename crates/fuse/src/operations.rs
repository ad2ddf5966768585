//! The operations: from the number of a request to the function that performs it.
//!
//! One file a family. A function gets the request's bytes and the server, calls `client`, and
//! returns what is written back to the kernel. A blocked lock is answered later: it stands in a
//! queue ([`crate::memory::locks`]), so that no thread does.

pub(crate) mod attributes;
pub(crate) mod believed;
pub(crate) mod data;
mod held;
mod listing;
mod locks;
mod mapped;
mod names;
mod seen;
mod spliced;
pub(crate) mod submitted;
mod xattrs;

use mayfly_types::Errno;

use crate::{
    kernel::abi::{
        Fields, Header, MAJOR, MINOR, MINOR_EXPIRES, MINOR_MIN, Opcode, WRITE_BYTES_MAX, init,
    },
    memory::{believed::Believed, consistency::Consistency},
    reply::Reply,
    server::{Server, Work},
};

/// Requests that the kernel sends on its own account, such as writing back mapped pages.
const BACKGROUND_MAX: u16 = 64;
/// Beyond this the kernel slows down who makes it send them.
const CONGESTED: u16 = 48;
const PAGE_BYTES: usize = 4096;

impl Server {
    pub(crate) fn perform(
        &self,
        header: &Header,
        fields: Fields<'_>,
        work: &mut Work,
    ) -> Result<Reply, Errno> {
        let body = &mut work.body;
        match Opcode::of(header.opcode).ok_or(Errno::ENOSYS)? {
            Opcode::Init => negotiate((self.consistency, &self.believed), fields, work)?,
            Opcode::Lookup => self.lookup(header, fields, work)?,
            Opcode::Forget => return self.forget(header, fields),
            Opcode::BatchForget => return self.forget_many(fields),
            Opcode::GetAttr => self.get_attributes(header, work)?,
            Opcode::StatX => self.get_extended(header, body)?,
            Opcode::SetAttr => self.set_attributes(header, fields, work)?,
            Opcode::Access => self.access(header, fields)?,
            Opcode::StatFs => self.capacity(body)?,
            Opcode::ReadLink => self.read_link(header, body)?,
            Opcode::Symlink => self.symlink(header, fields, body)?,
            Opcode::MakeNode => self.make_node(header, fields, body)?,
            Opcode::MakeDirectory => self.make_directory(header, fields, work)?,
            Opcode::Unlink => self.unlink(header, fields)?,
            Opcode::RemoveDirectory => self.remove_directory(header, fields)?,
            Opcode::Rename => self.rename(header, fields)?,
            Opcode::Rename2 => self.rename_flagged(header, fields)?,
            Opcode::Link => self.link(header, fields, body)?,
            Opcode::Create => self.create(header, fields, body)?,
            Opcode::Temporary => self.create_temporary(header, fields, body)?,
            Opcode::SetXattr => self.set_xattr(header, fields)?,
            Opcode::GetXattr => self.get_xattr(header, fields, body)?,
            Opcode::ListXattr => self.list_xattrs(header, fields, body)?,
            Opcode::RemoveXattr => self.remove_xattr(header, fields)?,
            Opcode::Open => self.open(header, fields, body)?,
            Opcode::Read => return self.read(header, fields, work),
            Opcode::Write => self.write(header, fields, work)?,
            Opcode::Allocate => self.allocate(fields, work)?,
            Opcode::CopyRange => self.copy_range(fields, work)?,
            Opcode::Seek => self.seek(fields, body)?,
            Opcode::Flush => self.flush(header, fields)?,
            Opcode::Release => self.release(header, fields)?,
            Opcode::Sync | Opcode::SyncDirectory => self.sync(fields)?,
            Opcode::OpenDirectory => self.open_directory(header, body)?,
            Opcode::ReadDirectory => self.read_directory(fields, body)?,
            Opcode::ReadDirectoryPlus => self.read_directory_plus(header, fields, work)?,
            Opcode::ReleaseDirectory => self.release(header, fields)?,
            Opcode::TestLock => self.test_lock(header, fields, body)?,
            Opcode::Lock => return self.lock(header, fields, false),
            Opcode::LockWaiting => return self.lock(header, fields, true),
            Opcode::Control => self.control(header, fields, body)?,
            Opcode::Interrupt => return self.interrupt(fields),
            Opcode::Destroy => {}
        }
        Ok(Reply::Body)
    }
}

/// Takes of what the kernel offers what the consistency allows.
fn negotiate(
    (consistency, believed): (Consistency, &Believed),
    mut fields: Fields<'_>,
    work: &mut Work,
) -> Result<(), Errno> {
    let (major, minor) = (fields.u32()?, fields.u32()?);
    if major != MAJOR || minor < MINOR_MIN {
        let needed = format_args!("{MAJOR}.{MINOR_MIN} is needed");
        crate::say(format_args!("the kernel speaks version {major}.{minor}, {needed}"));
        return Err(Errno::EPROTO);
    }
    let readahead = fields.u32()?;
    let low = u64::from(fields.u32()?);
    let high = if low & init::INIT_EXT != 0 { u64::from(fields.u32()?) } else { 0 };
    if minor >= MINOR_EXPIRES {
        believed.make_possible();
    }
    // Attributes that come with names are of use only if they may be believed for a while.
    let listing = match consistency {
        Consistency::Strict if !believed.is_possible() => 0,
        _ => init::READDIRPLUS | init::READDIRPLUS_AUTO,
    };
    let taken = (low | high << 32)
        & (listing
            | init::ASYNC_READ
            | init::POSIX_LOCKS
            | init::BIG_WRITES
            | init::FLOCK_LOCKS
            | init::AUTO_INVAL_DATA
            | init::PARALLEL_DIROPS
            | init::MAX_PAGES
            // A link never changes; one that is replaced is another node.
            | init::CACHE_SYMLINKS
            // Otherwise it asks for the attributes before each change of an owner.
            | init::HANDLE_KILLPRIV_V2
            | init::INIT_EXT
            | init::DIRECT_IO_ALLOW_MMAP);
    let pages = (WRITE_BYTES_MAX / PAGE_BYTES) as u16;
    work.body.u32(MAJOR).u32(minor.min(MINOR)).u32(readahead).u32(taken as u32);
    work.body.raw(&BACKGROUND_MAX.to_ne_bytes()).raw(&CONGESTED.to_ne_bytes());
    // Time stamps count nanoseconds.
    work.body.u32(WRITE_BYTES_MAX as u32).u32(1);
    work.body.raw(&pages.to_ne_bytes()).zeros(2).u32((taken >> 32) as u32).zeros(28);
    Ok(())
}
