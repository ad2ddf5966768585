//! Extended attributes of regular files and directories: those of the namespace `user.`.
//!
//! They stand in a record of their own at the file's home, under its id, so they stay when a name
//! moves or the content spills. A bit in the inode says that there is such a record: what asks for
//! none of it, or removes a file that has none, does not look for it.
//!
//! Those called `user.mayfly.` are no records: `layout.rs`.

use mayfly_meta::{
    key,
    record::{Inode, Xattrs},
};
use mayfly_types::{
    Errno, FileKind,
    limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX},
};
use mayfly_wire::{
    GetXattr, RemoveXattr, SetXattr, Target, Text, Wire, Writer, XATTR_CREATE, XATTR_REPLACE,
};

use crate::{
    fault::{Outcome, Served},
    namespace::state::inode::Located,
    shard::Shard,
    tier::state::wanted::Change,
};

/// The namespace that is kept.
const USER: &[u8] = b"user.";
/// What is the instance's to say. A listing has none of it, so that no copy takes it along.
const OWN: &[u8] = b"user.mayfly.";

/// What is to be done with an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Shard {
    pub(crate) fn set_xattr(&mut self, set: &SetXattr<'_>) -> Outcome<Served> {
        if set.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let mut located = self.load_target(&set.target)?;
        check(&located.inode, set.name, Access::Write)?;
        if set.name.starts_with(OWN) {
            // A file is where its origin's directory has it, as a whole.
            check_unlinked(&located.inode)?;
            return self.set_own_xattr(located, set);
        }
        if set.value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::ENOSPC.into());
        }
        if located.inode.origin.is_some() {
            let (name, value, flags) = (set.name.to_vec(), set.value.to_vec(), set.flags);
            self.change_xattr_at_origin(&mut located, Change::SetXattr { name, value, flags })?;
            return self.save_changed(located);
        }
        let mut xattrs = self.xattrs_of(&located.inode)?;
        let had = xattrs.replace(set.name, set.value);
        match had {
            Some(_) if set.flags & XATTR_CREATE != 0 => return Err(Errno::EEXIST.into()),
            None if set.flags & XATTR_REPLACE != 0 => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        if xattrs.bytes() > XATTRS_BYTES_MAX {
            return Err(Errno::ENOSPC.into());
        }
        if had.is_none_or(|had| had.len() < set.value.len()) {
            self.check_room()?;
        }
        self.save_xattrs(located, &xattrs)
    }

    pub(crate) fn remove_xattr(&mut self, remove: &RemoveXattr<'_>) -> Outcome<Served> {
        let mut located = self.load_target(&remove.target)?;
        check(&located.inode, remove.name, Access::Write)?;
        if remove.name.starts_with(OWN) {
            check_unlinked(&located.inode)?;
            return self.remove_own_xattr(located, remove.name);
        }
        if located.inode.origin.is_some() {
            let change = Change::RemoveXattr { name: remove.name.to_vec() };
            self.change_xattr_at_origin(&mut located, change)?;
            return self.save_changed(located);
        }
        let mut xattrs = self.xattrs_of(&located.inode)?;
        xattrs.remove(remove.name).ok_or(Errno::ENODATA)?;
        self.save_xattrs(located, &xattrs)
    }

    pub(crate) fn get_xattr(&mut self, get: &GetXattr<'_>, to: &mut Writer<'_>) -> Outcome<Served> {
        let inode = self.load_target(&get.target)?.inode;
        check(&inode, get.name, Access::Read)?;
        if get.name.starts_with(OWN) {
            let text = self.own_xattr(&inode, get.name)?;
            Text { bytes: text.as_bytes() }.encode(to)?;
            return Ok(Served::Replied);
        }
        let xattrs = self.xattrs_of(&inode)?;
        let bytes = xattrs.get(get.name).ok_or(Errno::ENODATA)?;
        Text { bytes }.encode(to)?;
        Ok(Served::Replied)
    }

    pub(crate) fn list_xattrs(
        &mut self,
        target: &Target<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let inode = self.load_target(target)?.inode;
        let xattrs = self.xattrs_of(&inode)?;
        let mut bytes = Vec::new();
        for name in xattrs.names() {
            bytes.extend_from_slice(name);
            bytes.push(0);
        }
        Text { bytes: &bytes }.encode(to)?;
        Ok(Served::Replied)
    }

    fn xattrs_of(&mut self, inode: &Inode) -> Outcome<Xattrs> {
        if let Some(xattrs) = self.xattrs_at_origin(inode)? {
            return Ok(xattrs);
        }
        if !inode.extended {
            return Ok(Xattrs::default());
        }
        let record = self.store.get(&key::numbered(key::XATTRS, inode.id))?.ok_or(Errno::EIO)?;
        Ok(Xattrs::decode(record)?)
    }

    fn save_xattrs(&mut self, mut located: Located, xattrs: &Xattrs) -> Outcome<Served> {
        if self.is_only_remembered(located.inode.id) {
            return Err(Errno::ENOENT.into());
        }
        self.have_file_forgotten(located.inode.id)?;
        let key = key::numbered(key::XATTRS, located.inode.id);
        if xattrs.is_empty() {
            self.store.delete(&key)?;
        } else {
            self.store.put(&key, &xattrs.encode())?;
        }
        located.inode.extended = !xattrs.is_empty();
        self.save_changed(located)
    }

    fn save_changed(&mut self, mut located: Located) -> Outcome<Served> {
        self.attribute_changed(&mut located.inode);
        self.save(&located)?;
        Ok(Served::Replied)
    }
}

fn check_unlinked(inode: &Inode) -> Outcome<()> {
    if inode.origin.is_some() { Err(Errno::EOPNOTSUPP.into()) } else { Ok(()) }
}

/// The checks of the kernel's `xattr_permission` and `xattr_resolve_name`.
fn check(inode: &Inode, name: &[u8], access: Access) -> Outcome<()> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Errno::ERANGE.into());
    }
    if name.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    let Some(rest) = name.strip_prefix(USER) else { return Err(Errno::EOPNOTSUPP.into()) };
    if !matches!(inode.kind(), FileKind::Regular | FileKind::Directory) {
        let errno = if access == Access::Write { Errno::EPERM } else { Errno::ENODATA };
        return Err(errno.into());
    }
    if rest.is_empty() { Err(Errno::EINVAL.into()) } else { Ok(()) }
}
