//! Layouts of files and directories, as `mayfly layout` gets and sets them.
//!
//! By the extended attributes that any program could use (`getfattr -n user.mayfly.layout`), so
//! the calling program has to be served by the instance.

use std::{collections::BTreeMap, io, path::Path};

use mayfly_daemon::{LAYOUT_XATTR, LayoutWords, NODES_XATTR};
use serde::Serialize;

use crate::xattrs;

/// Where bytes are, or will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Laid {
    /// `home`, `stripe:4` and so on: of a file, or of what is made in a directory.
    pub layout: String,
    /// Size of a chunk, bytes.
    pub chunk_bytes: u64,
    /// Space that a regular file takes on each node that has some of it, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<BTreeMap<u32, u64>>,
}

/// The layout of a file or a directory.
///
/// # Errors
/// As of `getxattr`: ENODATA or EOPNOTSUPP when it is not in an instance.
pub fn layout_of(path: &Path) -> io::Result<Laid> {
    let text = words(xattrs::read(path, LAYOUT_XATTR)?)?;
    let layout: LayoutWords = text.parse().map_err(io::Error::other)?;
    let nodes = match xattrs::read(path, NODES_XATTR) {
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => None,
        value => Some(bytes_of_nodes(&words(value?)?)?),
    };
    let chunk_bytes = layout.chunk_bytes.ok_or_else(|| io::Error::other("without a chunk size"))?;
    Ok(Laid { layout: LayoutWords { chunk_bytes: None, ..layout }.to_string(), chunk_bytes, nodes })
}

/// Gives a directory a layout, in words.
///
/// # Errors
/// As of `setxattr`: EINVAL for words that mean nothing, EOPNOTSUPP for what is no directory.
pub fn set_layout(path: &Path, layout: &LayoutWords) -> io::Result<()> {
    xattrs::write(path, LAYOUT_XATTR, layout.to_string().as_bytes())
}

fn words(value: Vec<u8>) -> io::Result<String> {
    String::from_utf8(value).map_err(io::Error::other)
}

/// From lines of a node and a number.
fn bytes_of_nodes(text: &str) -> io::Result<BTreeMap<u32, u64>> {
    let line = |line: &str| {
        let (node, bytes) = line.split_once(' ')?;
        Some((node.parse().ok()?, bytes.parse().ok()?))
    };
    let lines = text.lines().map(line).collect::<Option<BTreeMap<_, _>>>();
    lines.ok_or_else(|| io::Error::other("it says where its bytes are in an unknown form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_nodes_are_understood_or_refused() {
        let nodes = bytes_of_nodes("0 4096\n17 65536\n").expect("two nodes");
        assert_eq!(nodes, BTreeMap::from([(0, 4096), (17, 65_536)]));
        assert!(bytes_of_nodes("").is_ok_and(|nodes| nodes.is_empty()));
        assert!(bytes_of_nodes("0").is_err() && bytes_of_nodes("a 1").is_err());
    }
}
