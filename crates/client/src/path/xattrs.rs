//! Extended attributes: those of the namespace `user.`, and none of others.
//!
//! The records tell attributes of a file only if it has no extended ones. So what they tell of has
//! none.

use core::sync::atomic::Ordering::Relaxed;

use mayfly_sys::text::PathText;
use mayfly_transport::Transport;
use mayfly_transport_shm::tally::Kind;
use mayfly_types::{Errno, limits::XATTR_NAME_BYTES_MAX};
use mayfly_wire::{GetXattr, ListXattr, RemoveXattr, SetXattr, Target};

use crate::{Client, Descriptors, Stop};

/// The namespace that there is.
const USER: &[u8] = b"user.";
/// What the instance itself says of a file.
const OWN: &[u8] = b"user.mayfly.";

/// Whether no file can have an attribute of this name, which is as long as one may be.
#[must_use]
pub fn is_refused(name: &[u8]) -> bool {
    (1..=XATTR_NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with(USER)
}

/// Whether an attribute of this name is what somebody has set.
#[must_use]
pub fn is_recorded(name: &[u8]) -> bool {
    name.len() <= XATTR_NAME_BYTES_MAX
        && name.strip_prefix(USER).is_some_and(|rest| !rest.is_empty())
        && !name.starts_with(OWN)
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// How a call fails that wants an attribute which no file can have; none when that, or whether
    /// there is a file, is to be asked for.
    fn refused_xattr(&self, target: &Target<'_>, name: &[u8]) -> Option<Errno> {
        let is_there = || match target {
            Target::Open(_) | Target::Directory(_) => Some(Ok(())),
            Target::Path(_) => self.look(target).map(|found| found.map(|_| ())),
        };
        if !is_refused(name) {
            return None;
        }
        is_there().map(|found| found.err().unwrap_or(Errno::EOPNOTSUPP))
    }

    /// Whether the records tell of all attributes: what has an origin has those that it has
    /// outside.
    fn is_inside(&self, target: &Target<'_>) -> bool {
        let head = self.node.head;
        !self.has_origins()
            || matches!(target, Target::Path(walk) if self.records.is_inside(head, walk))
    }

    /// Sets an extended attribute; `flags` are `mayfly_wire::XATTR_*`.
    ///
    /// # Errors
    /// As setxattr; [`Stop::Escaped`].
    pub fn set_xattr(
        &self,
        target: Target<'_>,
        (name, value): (&[u8], &[u8]),
        flags: u32,
        escape: &mut PathText,
    ) -> Result<(), Stop> {
        if let Some(errno) = self.refused_xattr(&target, name) {
            return Err(Stop::Failed(errno));
        }
        let request = SetXattr { target, name, value, flags };
        self.asked_about(Kind::Change, &target, || self.walk(&request, escape, Ok))?;
        self.tell_attributes_of(target);
        Ok(())
    }

    /// Hands the value of an extended attribute to `take`.
    ///
    /// # Errors
    /// As getxattr; [`Stop::Escaped`]; those of `take`.
    pub fn get_xattr<R>(
        &self,
        target: Target<'_>,
        name: &[u8],
        escape: &mut PathText,
        take: impl FnOnce(&[u8]) -> Result<R, Errno>,
    ) -> Result<R, Stop> {
        if let Some(errno) = self.refused_xattr(&target, name) {
            return Err(Stop::Failed(errno));
        }
        if is_recorded(name) && self.is_inside(&target) && matches!(self.look(&target), Some(Ok(_)))
        {
            return Err(Stop::Failed(Errno::ENODATA));
        }
        self.walk(&GetXattr { target, name }, escape, |text| take(text.bytes))
    }

    /// Whether directories of the instance show directories outside.
    #[must_use]
    pub fn has_origins(&self) -> bool {
        self.node.head.tier.origins.load(Relaxed) != 0
    }

    /// Hands the names of the extended attributes, each with a zero behind it, to `take`.
    ///
    /// # Errors
    /// As listxattr; [`Stop::Escaped`]; those of `take`.
    pub fn list_xattrs<R>(
        &self,
        target: Target<'_>,
        escape: &mut PathText,
        take: impl FnOnce(&[u8]) -> Result<R, Errno>,
    ) -> Result<R, Stop> {
        let inside = self.is_inside(&target);
        match self.look(&target).filter(|_| inside) {
            Some(found) => found.and_then(|_| take(&[])).map_err(Stop::Failed),
            None => self.walk(&ListXattr { target }, escape, |text| take(text.bytes)),
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr; [`Stop::Escaped`].
    pub fn remove_xattr(
        &self,
        target: Target<'_>,
        name: &[u8],
        escape: &mut PathText,
    ) -> Result<(), Stop> {
        if let Some(errno) = self.refused_xattr(&target, name) {
            return Err(Stop::Failed(errno));
        }
        let request = RemoveXattr { target, name };
        self.asked_about(Kind::Change, &target, || self.walk(&request, escape, Ok))?;
        self.tell_attributes_of(target);
        Ok(())
    }
}
