//! What [`crate::namespace::dentry`] keeps and works with.

/// What a name is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The file, whose inode is mostly wanted next.
    File,
    /// The name: it is made, removed or moved.
    Name,
}
