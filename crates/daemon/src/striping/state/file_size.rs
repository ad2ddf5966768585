//! What [`crate::striping::file_size`] keeps and works with.

use mayfly_meta::record::Inode;
use mayfly_object::ObjectAttr;

use crate::message::PartFacts;

/// What all parts say together.
pub(crate) fn sum(inode: &Inode, facts: &[PartFacts]) -> ObjectAttr {
    let dirty = || facts.iter().filter(|facts| facts.dirty);
    ObjectAttr {
        size_bytes: facts.iter().map(|facts| facts.end_bytes).max().unwrap_or(0),
        blocks: facts.iter().map(|facts| facts.blocks).sum(),
        atime: inode.atime,
        mtime: dirty().map(|facts| facts.mtime).max().unwrap_or(inode.mtime),
        ctime: dirty().map(|facts| facts.ctime).max().unwrap_or(inode.ctime),
        mapped: false,
    }
}
