//! Descriptions of preloaded programs that become files of the mount.
//!
//! A preloaded program that has to hand a descriptor to somebody whom the library cannot enter
//! opens a name in the root that says which description it is ([`NAME_PREFIX`]), to be created. No
//! such file ever exists, so the kernel always asks for it to be made, and gets the description's
//! file, whatever its names, opened anew.

use mayfly_transport_shm::keeper::{NAME_PREFIX, TAKE_LOCK};
use mayfly_types::{Errno, FileId, FileKind, OpenRef};

use crate::{
    kernel::abi::{Body, Fields, Header},
    operations::data::{lasting, reference_of},
    server::Server,
};

/// The description that a name stands for.
pub(crate) fn description(name: &[u8]) -> Option<OpenRef> {
    let numbers = name.strip_prefix(NAME_PREFIX.as_bytes())?.strip_prefix(b"-")?;
    let (index, generation) = std::str::from_utf8(numbers).ok()?.split_once('-')?;
    Some(OpenRef { index: index.parse().ok()?, generation: generation.parse().ok()? })
}

impl Server {
    /// Opens the file of a description with the flags that the kernel names.
    pub(crate) fn open_moved(
        &self,
        open: OpenRef,
        flags: u32,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let moved = self.client.open_file(open)?;
        if moved.kind() != FileKind::Regular || moved.is_path() {
            return Err(Errno::EINVAL);
        }
        let own = self.open_node(moved.id().0, lasting(flags))?;
        // Without a name: its own ones, if it has any, are looked up when somebody uses them.
        self.nodes.count_lookup(&own.attr, FileId::ROOT, b"");
        self.show(&own.attr);
        body.passing_entry(&own.attr);
        self.tell_opened(&own, flags, body);
        Ok(())
    }
}

impl Server {
    /// ioctl. There is one, by which a file takes over the lock of the description that it was
    /// opened for: after everything else that can go wrong.
    pub(crate) fn control(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let handle = fields.u64()?;
        fields.skip(4)?;
        let (command, argument) = (fields.u32()?, fields.u64()?);
        if command != TAKE_LOCK {
            return Err(Errno::ENOTTY);
        }
        let to = self.handle(handle)?.reference;
        self.client.move_lock(reference_of(argument), to)?;
        self.locks.flocked(handle, header.node);
        body.zeros(16);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_name_stands_for_a_description() {
        let open = OpenRef { index: 12, generation: 7 };
        assert_eq!(description(b".mayfly-ofd-12-7"), Some(open));
        for other in [&b".mayfly-ofd-12"[..], b".mayfly-ofd-12-7-1", b"x.mayfly-ofd-1-2", b"a"] {
            assert_eq!(description(other), None);
        }
    }
}
