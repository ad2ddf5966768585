//! Extended attributes of what has an origin: those that are outside.
//!
//! They are asked for when somebody wants them, and are remembered until the master copy has
//! changed. What is set or removed is so outside before the call returns, also where names are
//! changed later. Nothing of them is in a record here.

use mayfly_meta::record::{Inode, Xattrs};
use mayfly_types::{
    Errno, FileId,
    limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX},
};
use mayfly_wire::tier::{TierXattr, unpacked};

use crate::{
    fault::{Fault, Outcome},
    namespace::state::inode::Located,
    shard::Shard,
    tier::{
        gates::master_of,
        state::wanted::{At, Change, Wanted},
    },
};

impl Shard {
    /// The extended attributes that the file has outside; `None` of one that has no origin, or is
    /// there no more.
    pub(crate) fn xattrs_at_origin(&mut self, inode: &Inode) -> Outcome<Option<Xattrs>> {
        if inode.origin.is_none() || inode.links == 0 {
            return Ok(None);
        }
        self.file_at_hand(inode)?;
        let ctime = master_of(inode)?.ctime;
        if let Some(xattrs) = self.tier.xattrs.get(inode.id, ctime) {
            return Ok(Some(xattrs.clone()));
        }
        let wanted = Wanted::Xattrs(inode.id, self.place_at_origin(inode)?);
        match self.was_done(&wanted) {
            Some(Err(errno)) => return Err(errno.into()),
            // As they were during this call, though the file may have changed since.
            Some(Ok(_)) => {
                if let Some(xattrs) = self.tier.xattrs.latest(inode.id) {
                    return Ok(Some(xattrs.clone()));
                }
                self.run.outside.done.retain(|(done, _)| *done != wanted);
            }
            None => {}
        }
        Err(Fault::Outside(Box::new(wanted)))
    }

    /// The keeper has said which a file has.
    pub(crate) fn take_xattrs(&mut self, (file, at): (FileId, &At), packed: &[u8]) -> Outcome<()> {
        let mut xattrs = Xattrs::default();
        for xattr in unpacked::<TierXattr<'_>>(packed).ok_or(Errno::EPROTO)? {
            let (name, value) = (xattr.name, xattr.value);
            if !(1..=XATTR_NAME_BYTES_MAX).contains(&name.len()) || name.contains(&0) {
                return Err(Errno::EPROTO.into());
            }
            xattrs.replace(name, value);
            if value.len() > XATTR_VALUE_BYTES_MAX || xattrs.bytes() > XATTRS_BYTES_MAX {
                return Err(Errno::E2BIG.into());
            }
        }
        let ctime = master_of(&self.load_cached(file, at)?.inode)?.ctime;
        self.tier.xattrs.know(file, ctime, xattrs);
        Ok(())
    }

    /// An extended attribute of a file that has an origin is changed outside. The caller saves the
    /// inode.
    pub(crate) fn change_xattr_at_origin(
        &mut self,
        located: &mut Located,
        change: Change,
    ) -> Outcome<()> {
        if located.inode.links == 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.check_writable(&located.inode)?;
        let wanted = Wanted::Change(self.place_at_origin(&located.inode)?, change);
        let seen = match self.was_done(&wanted) {
            Some(done) => done?,
            None => return Err(Fault::Outside(Box::new(wanted))),
        };
        self.tier.xattrs.forget(located.inode.id);
        self.know_change(located, seen)
    }
}
