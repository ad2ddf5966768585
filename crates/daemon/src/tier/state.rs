//! What the tier keeps: see each file.

pub(crate) mod item;
pub(crate) mod journal;
pub(crate) mod order;
pub(crate) mod roots;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod wanted;
pub(crate) mod xattrs;
