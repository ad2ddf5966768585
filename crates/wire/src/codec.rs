//! Reading and writing little-endian values in byte slices.

use mayfly_types::{Attr, FileId, FileKind, OpenRef, Timestamp};

/// The bytes are not a message of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The value does not fit the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// Bytes of a [`Timestamp`].
const STAMP_BYTES: usize = 12;
/// Bytes of an [`Attr`].
const ATTR_BYTES: usize = 8 + 1 + 4 * 4 + 2 * 8 + 4 * STAMP_BYTES;

/// Takes values from the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`Malformed`] when fewer are left.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    /// True when nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`Malformed`] when bytes are left over.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// Appends values to a byte slice.
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    used: usize,
}

impl<'b> Writer<'b> {
    /// Writes to `buffer` from its start.
    #[must_use]
    pub fn new(buffer: &'b mut [u8]) -> Self {
        Writer { buffer, used: 0 }
    }

    /// Bytes written.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`Full`] when they do not fit.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.reserve(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Room for `count` bytes, for the caller to fill.
    ///
    /// # Errors
    /// [`Full`] when there is not that much.
    pub fn reserve(&mut self, count: usize) -> Result<&mut [u8], Full> {
        let end = self.used.checked_add(count).ok_or(Full)?;
        let room = self.buffer.get_mut(self.used..end).ok_or(Full)?;
        self.used = end;
        Ok(room)
    }
}

/// A value with a fixed form in bytes.
pub trait Wire<'a>: Sized {
    /// Appends the value.
    ///
    /// # Errors
    /// [`Full`] when the buffer is too small.
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full>;

    /// Takes the value.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not such a value.
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed>;
}

macro_rules! integers {
    ($($kind:ty)*) => { $(
        impl<'a> Wire<'a> for $kind {
            fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
                to.put(&self.to_le_bytes())
            }
            fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
                let bytes = from.take(size_of::<$kind>())?;
                Ok(<$kind>::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
            }
        }
    )* };
}
integers! { u8 u16 u32 u64 i32 i64 }

impl<'a> Wire<'a> for bool {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        u8::from(*self).encode(to)
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        match u8::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

/// A byte string: `u32` length, then the bytes.
impl<'a> Wire<'a> for &'a [u8] {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        u32::try_from(self.len()).map_err(|_| Full)?.encode(to)?;
        to.put(self)
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = u32::decode(from)?;
        from.take(count as usize)
    }
}

impl<'a> Wire<'a> for () {
    fn encode(&self, _to: &mut Writer<'_>) -> Result<(), Full> {
        Ok(())
    }
    fn decode(_from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl<'a> Wire<'a> for FileId {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        self.0.encode(to)
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        u64::decode(from).map(FileId)
    }
}

impl<'a> Wire<'a> for OpenRef {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        self.index.encode(to)?;
        self.generation.encode(to)
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(OpenRef { index: u32::decode(from)?, generation: u32::decode(from)? })
    }
}

impl<'a> Wire<'a> for Timestamp {
    #[inline]
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        to.put(&stamp(*self))
    }
    #[inline]
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let stamp = Timestamp { seconds: i64::decode(from)?, nanoseconds: u32::decode(from)? };
        if stamp.nanoseconds < 1_000_000_000 { Ok(stamp) } else { Err(Malformed) }
    }
}

impl<'a> Wire<'a> for FileKind {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        (*self as u8).encode(to)
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        FileKind::from_raw(u8::decode(from)?).ok_or(Malformed)
    }
}

/// Declares a struct whose bytes are its fields in order.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$fdoc:meta])* $field:ident : $kind:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$fdoc])* pub $field: $kind,)* }
        $crate::wire_struct!(@impl $name $(<$life>)? { $($field : $kind,)* });
    };
    (@impl $name:ident <$life:lifetime> { $($field:ident : $kind:ty,)* }) => {
        impl<$life> $crate::Wire<$life> for $name<$life> {
            #[allow(unused_variables, reason = "a struct may be empty")]
            fn encode(&self, to: &mut $crate::Writer<'_>) -> Result<(), $crate::Full> {
                $(self.$field.encode(to)?;)*
                Ok(())
            }
            #[allow(unused_variables, reason = "a struct may be empty")]
            fn decode(from: &mut $crate::Reader<$life>) -> Result<Self, $crate::Malformed> {
                Ok($name { $($field: <$kind as $crate::Wire>::decode(from)?,)* })
            }
        }
    };
    (@impl $name:ident { $($field:ident : $kind:ty,)* }) => {
        impl<'wire> $crate::Wire<'wire> for $name {
            #[allow(unused_variables, reason = "a struct may be empty")]
            fn encode(&self, to: &mut $crate::Writer<'_>) -> Result<(), $crate::Full> {
                $(self.$field.encode(to)?;)*
                Ok(())
            }
            #[allow(unused_variables, reason = "a struct may be empty")]
            fn decode(from: &mut $crate::Reader<'wire>) -> Result<Self, $crate::Malformed> {
                Ok($name { $($field: <$kind as $crate::Wire>::decode(from)?,)* })
            }
        }
    };
}

fn stamp(time: Timestamp) -> [u8; STAMP_BYTES] {
    let mut bytes = [0; STAMP_BYTES];
    bytes[..8].copy_from_slice(&time.seconds.to_le_bytes());
    bytes[8..].copy_from_slice(&time.nanoseconds.to_le_bytes());
    bytes
}

/// Its fields in order. It goes with most answers, so its bytes are put together without the buffer
/// being asked for each of them.
impl<'a> Wire<'a> for Attr {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), Full> {
        let mut bytes = [0; ATTR_BYTES];
        let (id, rest) = bytes.split_at_mut(8);
        id.copy_from_slice(&self.id.0.to_le_bytes());
        rest[0] = self.kind as u8;
        let (words, rest) = rest[1..].split_at_mut(16);
        let numbers = [self.mode, self.links, self.uid, self.gid];
        for (to, number) in words.as_chunks_mut().0.iter_mut().zip(numbers) {
            *to = number.to_le_bytes();
        }
        let (sizes, times) = rest.split_at_mut(16);
        for (to, number) in sizes.as_chunks_mut().0.iter_mut().zip([self.size_bytes, self.blocks]) {
            *to = number.to_le_bytes();
        }
        let stamps = [self.atime, self.mtime, self.ctime, self.btime];
        for (to, time) in times.as_chunks_mut().0.iter_mut().zip(stamps) {
            *to = stamp(time);
        }
        to.put(&bytes)
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let from = &mut Reader::new(from.take(ATTR_BYTES)?);
        Ok(Attr {
            id: FileId::decode(from)?,
            kind: FileKind::decode(from)?,
            mode: u32::decode(from)?,
            links: u32::decode(from)?,
            uid: u32::decode(from)?,
            gid: u32::decode(from)?,
            size_bytes: u64::decode(from)?,
            blocks: u64::decode(from)?,
            atime: Timestamp::decode(from)?,
            mtime: Timestamp::decode(from)?,
            ctime: Timestamp::decode(from)?,
            btime: Timestamp::decode(from)?,
        })
    }
}
