//! The entries in a listing's reply: a packed sequence inside one byte string.

use mayfly_types::{FileId, FileKind};

use crate::{Full, Malformed, Reader, Wire, Writer};

/// One entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The file.
    pub id: FileId,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing goes on after this entry.
    pub next_cookie: u64,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> Wire<'a> for Entry<'a> {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        self.id.encode(to)?;
        self.kind.encode(to)?;
        self.next_cookie.encode(to)?;
        self.name.encode(to)
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Entry {
            id: FileId::decode(from)?,
            kind: FileKind::decode(from)?,
            next_cookie: u64::decode(from)?,
            name: <&[u8]>::decode(from)?,
        })
    }
}

/// Walks the packed entries; ends at the first malformed one.
pub fn entries(packed: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, Malformed>> {
    let mut from = Reader::new(packed);
    let mut broken = false;
    core::iter::from_fn(move || {
        if broken || from.clone().finish().is_ok() {
            return None;
        }
        let entry = Entry::decode(&mut from);
        broken = entry.is_err();
        Some(entry)
    })
}
