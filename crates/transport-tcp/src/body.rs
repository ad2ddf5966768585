//! Bodies of messages that are not copied on their way.
//!
//! A long body is set down in memory once, where it comes out of a lane, a file or a socket. From
//! then on it is shared. Everybody who keeps it (to send it, to send it again, to write it to a
//! disk) has a share of that memory. The memory is given back when the last one is done. Between
//! one step and the next only the head in front of the bytes changes, and that is short.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use crate::limits::SHARED_BYTES_MIN;

/// A part of a piece of memory that several hold at a time and nobody changes.
#[derive(Clone, Default)]
pub struct Bytes {
    memory: Option<Arc<Vec<u8>>>,
    range: Range<usize>,
}

impl Bytes {
    /// The same bytes without the first `count`, of which there are so many.
    #[must_use]
    pub fn without(mut self, count: usize) -> Bytes {
        self.range.start = self.range.end.min(self.range.start + count);
        self
    }

    /// A share of `part`, if that is a part of these very bytes.
    #[must_use]
    pub fn share(&self, part: &[u8]) -> Option<Bytes> {
        let (all, part_range) = (self.as_ptr_range(), part.as_ptr_range());
        if self.is_empty() || part_range.start < all.start || part_range.end > all.end {
            return None;
        }
        let into = part_range.start as usize - all.start as usize;
        let start = self.range.start + into;
        Some(Bytes { memory: self.memory.clone(), range: start..start + part.len() })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[self.range.clone()])
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(memory: Vec<u8>) -> Bytes {
        if memory.is_empty() {
            return Bytes::default();
        }
        let range = 0..memory.len();
        Bytes { memory: Some(Arc::new(memory)), range }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// The body of a message: what stands in front, and behind it bytes that are shared, either of
/// which may be all there is.
#[derive(Debug, Clone, Default)]
pub struct Body {
    head: Vec<u8>,
    rest: Bytes,
}

impl Body {
    /// The two behind each other.
    #[must_use]
    pub fn new(head: Vec<u8>, rest: Bytes) -> Body {
        Body { head, rest }
    }

    /// How long the two are together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.rest.len()
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The head, and the shared bytes behind it.
    #[must_use]
    pub fn pieces(&self) -> (&[u8], &[u8]) {
        (&self.head, &self.rest)
    }

    /// The bytes, when they stand in one place.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        match (self.head.is_empty(), self.rest.is_empty()) {
            (_, true) => Some(&self.head),
            (true, _) => Some(&self.rest),
            (false, false) => None,
        }
    }

    /// The shared bytes.
    #[must_use]
    pub fn shared(&self) -> &Bytes {
        &self.rest
    }

    /// The same behind something else. Copies what stood in front.
    #[must_use]
    pub fn behind(&self, mut head: Vec<u8>) -> Body {
        head.extend_from_slice(&self.head);
        Body { head, rest: self.rest.clone() }
    }

    /// The same without the first `count` bytes, which stand in one place.
    #[must_use]
    pub fn without(mut self, count: usize) -> Body {
        if self.head.is_empty() {
            self.rest = self.rest.without(count);
        } else {
            self.head.drain(..count.min(self.head.len()));
        }
        self
    }

    /// All of it in one place.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        [&self.head[..], &self.rest].concat()
    }

    /// The two, to be shared.
    pub(crate) fn into_pieces(self) -> [Bytes; 2] {
        [self.head.into(), self.rest]
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        if bytes.len() < SHARED_BYTES_MIN {
            Body { head: bytes, rest: Bytes::default() }
        } else {
            Body { head: Vec::new(), rest: bytes.into() }
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        let theirs = other.head.iter().chain(&*other.rest);
        self.len() == other.len() && self.head.iter().chain(&*self.rest).eq(theirs)
    }
}

impl Eq for Body {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_same_memory_and_of_no_other() {
        let bytes = Bytes::from(b"head and what follows".to_vec()).without(5);
        let share = bytes.share(&bytes[4..8]).expect("it is a part");
        assert_eq!((&*share, share.as_ptr()), (&b"what"[..], bytes[4..].as_ptr()));
        assert_eq!(share.share(&bytes[4..9]).map(|share| share.len()), None);
        assert!(bytes.share(b"what").is_none());
        assert!(Bytes::default().share(b"").is_none());
        assert!(bytes.clone().without(99).is_empty());
    }

    #[test]
    fn where_a_body_is_cut_makes_no_difference() {
        let rest = Bytes::from(b"behind".to_vec());
        let body = Body::new(b"in front, ".to_vec(), rest);
        assert_eq!(body, Body::from(b"in front, behind".to_vec()));
        assert_eq!(body.behind(b"before ".to_vec()).to_vec(), b"before in front, behind");
        assert!(body.whole().is_none());
        let long = vec![7; SHARED_BYTES_MIN];
        let address = long.as_ptr().wrapping_add(3);
        let shared = Body::from(long).without(3);
        assert_eq!(shared.whole().map(<[u8]>::as_ptr), Some(address), "it stays where it is");
        assert_eq!(Body::from(b"head, rest".to_vec()).without(6), b"rest".to_vec().into());
    }
}
