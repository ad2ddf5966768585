//! What the mount point's text says of any path, made once at start.
//!
//! Most paths that a program names differ from the mount point's in their first eight bytes, or in
//! the first byte of a component. [`crate::quick`] compares these before anything else.

/// What can be said of a path before it is compared: made once, at start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hints {
    /// The first eight bytes of the mount point, if it has as many.
    pub(crate) head: Option<u64>,
    /// For each first byte of a component of the mount point, a bit.
    first_bytes: [u64; 4],
}

impl Hints {
    /// The hints for a mount point.
    pub(crate) fn of(mount: &[u8]) -> Hints {
        let mut first_bytes = [0; 4];
        for first in mount.split(|byte| *byte == b'/').filter_map(|component| component.first()) {
            if let Some(word) = first_bytes.get_mut(usize::from(*first >> 6)) {
                *word |= 1_u64 << (*first & 63);
            }
        }
        Hints { head: head(mount), first_bytes }
    }

    /// May a component of the mount point begin with this byte?
    #[inline]
    pub(crate) fn may_begin(&self, byte: u8) -> bool {
        self.first_bytes
            .get(usize::from(byte >> 6))
            .is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }
}

/// The first eight bytes of a path, if it has as many.
#[inline]
pub(crate) fn head(path: &[u8]) -> Option<u64> {
    path.first_chunk::<8>().map(|head| u64::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_never_hides_a_component() {
        let hints = Hints::of(b"/run/user/7/mnt");
        for byte in 0..=255 {
            assert_eq!(hints.may_begin(byte), b"ru7m".contains(&byte), "{byte}");
        }
        assert_eq!(hints.head, Some(u64::from_le_bytes(*b"/run/use")));
        assert_eq!(Hints::of(b"/mnt").head, None);
    }
}
