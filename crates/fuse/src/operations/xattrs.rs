//! Extended attributes.
//!
//! The kernel and `ls -l` ask for names of their own, `security.capability` before each cut and
//! `system.posix_acl_access` for each file; an instance has none of those, which is answered here.
//! Names in `user.` are the daemon's.

use mayfly_client::Stop;
use mayfly_sys::text::PathText;
use mayfly_types::Errno;
use mayfly_wire::Target;

use crate::{
    kernel::abi::{Body, Fields, Header},
    server::Server,
};

use super::attributes::failed;

/// Names that an instance can have begin so.
const USER: &[u8] = b"user.";

fn known(name: &[u8]) -> Result<&[u8], Errno> {
    if name.starts_with(USER) { Ok(name) } else { Err(Errno::EOPNOTSUPP) }
}

/// Answers with `bytes`, if the program has `room` for them; 0 asks for their length.
fn give(bytes: &[u8], room: u32, body: &mut Body) -> Result<(), Errno> {
    match room as usize {
        0 => body.u32(bytes.len() as u32).u32(0),
        room if bytes.len() > room => return Err(Errno::ERANGE),
        _ => body.raw(bytes),
    };
    Ok(())
}

impl Server {
    pub(super) fn set_xattr(&self, header: &Header, mut fields: Fields<'_>) -> Result<(), Errno> {
        let (bytes, flags) = (fields.u32()?, fields.u32()?);
        let name = known(fields.name()?)?;
        let value = fields.data(bytes)?;
        self.with_node(header.node, |target| {
            let escape = &mut PathText::new();
            self.client.set_xattr(target, (name, value), flags, escape).map_err(failed)
        })
    }

    pub(super) fn get_xattr(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let room = fields.u32()?;
        fields.skip(4)?;
        let name = known(fields.name()?)?;
        self.give_of_node(header.node, room, body, |target| {
            self.client.get_xattr(target, name, &mut PathText::new(), |value| Ok(value.to_vec()))
        })
    }

    pub(super) fn list_xattrs(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let room = fields.u32()?;
        self.give_of_node(header.node, room, body, |target| {
            self.client.list_xattrs(target, &mut PathText::new(), |names| Ok(names.to_vec()))
        })
    }

    fn give_of_node(
        &self,
        node: u64,
        room: u32,
        body: &mut Body,
        get: impl Fn(Target<'_>) -> Result<Vec<u8>, Stop>,
    ) -> Result<(), Errno> {
        let bytes = self.with_node(node, |target| get(target).map_err(failed))?;
        give(&bytes, room, body)
    }

    pub(super) fn remove_xattr(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
    ) -> Result<(), Errno> {
        let name = known(fields.name()?)?;
        self.with_node(header.node, |target| {
            self.client.remove_xattr(target, name, &mut PathText::new()).map_err(failed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_given_whole_or_by_its_length_or_not_at_all() {
        let given = |room| {
            let mut body = Body::default();
            give(b"value", room, &mut body).map(|()| body.bytes().to_vec())
        };
        assert_eq!(given(5), Ok(b"value".to_vec()));
        assert_eq!(given(4), Err(Errno::ERANGE));
        assert_eq!(given(0), Ok([5, 0, 0, 0, 0, 0, 0, 0].to_vec()));
    }

    #[test]
    fn names_outside_user_are_answered_here() {
        assert_eq!(known(b"security.capability"), Err(Errno::EOPNOTSUPP));
        assert_eq!(known(b"user.a"), Ok(&b"user.a"[..]));
    }
}
