//! Slots: what names and files hash to, so that an instance can grow without rehashing everything.

use crate::FileId;

/// The slot of a dentry `(directory, name)`: the upper 16 bits of a 64-bit FNV-1a hash over the
/// directory id (little-endian) and the name, finished with the SplitMix64 mixer (Steele et al.
/// 2014) because FNV alone leaves the upper bits of short names uneven.
#[must_use]
pub fn of_dentry(directory: FileId, name: &[u8]) -> u16 {
    (hash_of_dentry(directory, name) >> 48) as u16
}

/// The whole of that hash.
#[must_use]
#[inline]
pub fn hash_of_dentry(directory: FileId, name: &[u8]) -> u64 {
    mix(fold(fold(0xcbf2_9ce4_8422_2325, &directory.0.to_le_bytes()), name))
}

#[inline]
fn fold(mut hash: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

#[inline]
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    #[test]
    fn numbered_names_spread_evenly_over_64_owners() {
        let mut counts = [0_u32; 64];
        for number in 0..64_000 {
            let slot = of_dentry(FileId::ROOT, format!("file.{number}").as_bytes());
            counts[usize::from(slot) * 64 / crate::limits::SLOTS] += 1;
        }
        let fullest = counts.iter().copied().max().expect("64 counters");
        assert!(fullest < 1150, "fullest of 64 owners holds {fullest} of a mean of 1000");
    }
}
