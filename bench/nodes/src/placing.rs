//! Where names hash to, as the product computes it.

use anyhow::{Context, Result};
use mayfly_types::{FileId, limits::SLOTS, slot};

/// The node whose shard has the entry `name` of a directory, and a file that is made there.
fn node_of(directory: FileId, name: &str, nodes: usize) -> usize {
    usize::from(slot::of_dentry(directory, name.as_bytes())) * nodes / SLOTS
}

/// Names in a directory, given by its inode number, that begin with `prefix` and are at home on
/// `node`.
pub(crate) fn names_in(
    directory: u64,
    prefix: &str,
    node: usize,
    nodes: usize,
) -> impl Iterator<Item = String> {
    let all = (0_u64..).map(move |number| format!("{prefix}-{number}"));
    all.filter(move |name| node_of(FileId(directory), name, nodes) == node)
}

/// The first of them in the root.
pub(crate) fn name(prefix: &str, node: usize, nodes: usize) -> Result<String> {
    names_in(FileId::ROOT.0, prefix, node, nodes).next().context("names are endless")
}

/// 10^6 files on 64 nodes: the fullest against the mean.
pub(crate) fn balance() -> Result<()> {
    const FILES: u32 = 1_000_000;
    println!("\n| 10^6 files on 64 nodes | the fullest against the mean |\n|---|---:|");
    for (says, directories) in [("in one directory", 1), ("in 1,000 directories", 1000)] {
        let mut counts = [0_u32; 64];
        for number in 0..FILES {
            let directory = FileId(1 + u64::from(number % directories));
            let name = format!("file.{:07}", number / directories);
            counts[node_of(directory, &name, 64)] += 1;
        }
        let fullest = counts.iter().max().copied().unwrap_or_default();
        println!("| {says} | {:.3} |", f64::from(fullest) * 64.0 / f64::from(FILES));
    }
    Ok(())
}
