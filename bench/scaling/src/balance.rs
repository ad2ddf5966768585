//! How evenly names fall on nodes, by the product's own hash and slot table.

use mayfly_daemon::SlotTable;
use mayfly_types::FileId;

/// Files on the fullest node against the mean: so many files in `directories` directories.
#[must_use]
pub fn fullest(nodes: u32, files: u32, directories: u32) -> f64 {
    let table = SlotTable::even(1, nodes);
    let mut counts = vec![0_u32; nodes as usize];
    for number in 0..files {
        let directory = FileId(1 + u64::from(number % directories));
        let name = format!("file.{:07}", number / directories);
        counts[table.dentry_owner(directory, name.as_bytes()).0 as usize] += 1;
    }
    let most = counts.iter().max().copied().unwrap_or_default();
    f64::from(most) * f64::from(nodes) / f64::from(files)
}
