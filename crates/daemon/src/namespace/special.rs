//! Pipes and sockets: a name, attributes, and the place where the kernel's own one is.
//!
//! What goes through them is none of the daemon's business. Their place is made and found by the
//! processes of one node, and removed here when the last name is gone: a pipe that somebody has
//! open is the kernel's to keep.

use mayfly_meta::record::Content;
use mayfly_types::{Errno, FileKind, limits::PLACE_BYTES_MAX, special::parse_place};
use mayfly_wire::{MakeSpecial, Reached, SPECIAL_FIFO, SPECIAL_SOCKET, Target, Wire, Writer};

use crate::{
    fault::{Outcome, Served},
    namespace::state::inode::Ownership,
    shard::Shard,
};

impl Shard {
    pub(crate) fn make_special(&mut self, make: &MakeSpecial<'_>) -> Outcome<Served> {
        let long = make.place.len() > PLACE_BYTES_MAX;
        if long || !make.place.is_empty() && parse_place(make.place).is_none() {
            return Err(Errno::EINVAL.into());
        }
        let place = make.place.to_vec();
        let (kind, content) = match make.what {
            SPECIAL_FIFO => (FileKind::Fifo, Content::Fifo(place)),
            SPECIAL_SOCKET => (FileKind::Socket, Content::Socket(place)),
            _ => return Err(Errno::EINVAL.into()),
        };
        let (at, parent) = self.vacant(&make.walk, kind)?;
        if self.source_of(at.directory)?.is_some() {
            return Err(Errno::EPERM.into());
        }
        let gid = parent.inherited_group(make.gid);
        let owner = Ownership { mode: make.mode, uid: make.uid, gid };
        let id = self.new_id(&at)?;
        let inode = self.new_inode(id, owner, content, parent.layout());
        self.add_fused(&at, parent, &inode)?;
        Ok(Served::Replied)
    }

    pub(crate) fn reach(&mut self, target: &Target<'_>, to: &mut Writer<'_>) -> Outcome<Served> {
        let located = self.load_target(target)?;
        let (what, place) = match &located.inode.content {
            Content::Fifo(place) => (SPECIAL_FIFO, place),
            Content::Socket(place) => (SPECIAL_SOCKET, place),
            _ => return Err(Errno::EINVAL.into()),
        };
        Reached { what, place }.encode(to)?;
        Ok(Served::Replied)
    }
}
