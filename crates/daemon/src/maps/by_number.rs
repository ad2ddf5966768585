//! Hash maps whose keys are numbers that we have dealt out ourselves.
//!
//! The standard hasher withstands keys that somebody chose to collide, at the price of a few dozen
//! nanoseconds a look. File ids and hashes of names are no such keys: one multiplication spreads
//! them over the bits that the map looks at.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds the hasher.
pub(crate) type ByNumber = BuildHasherDefault<NumberHasher>;

/// Multiplies by the golden ratio and folds the product.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only single numbers are hashed");
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_in_a_row_and_numbers_of_one_slot_fall_into_different_buckets() {
        let rows: [fn(u64) -> u64; 3] = [|n| n, |n| n << 48, |n| 7 << 48 | n << 3];
        for number in rows {
            let hash = |n| {
                let mut hasher = NumberHasher::default();
                hasher.write_u64(number(n));
                hasher.finish()
            };
            let low: HashSet<u64> = (0..1024).map(|n| hash(n) & 0xfff).collect();
            let high: HashSet<u64> = (0..1024).map(|n| hash(n) >> 57).collect();
            assert!(low.len() > 700 && high.len() > 100, "{} {}", low.len(), high.len());
        }
    }
}
