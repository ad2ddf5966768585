//! A hash for maps whose keys nobody chooses who is not believed: numbers that daemons give, and
//! names in an instance of one's own.
//!
//! The standard hash withstands whoever looks for keys that collide, at some 150 instructions for a
//! number, and its key is another one in every process. This one takes a handful of instructions,
//! and is the same in every run.

use core::hash::{BuildHasherDefault, Hasher};

/// Makes [`FoldHasher`]s, for a map or a set.
pub type BuildFold = BuildHasherDefault<FoldHasher>;

/// Odd, and without a pattern: the golden ratio's fraction.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// For each word one multiplication, whose halves are folded, so that every bit of it reaches all
/// of them.
#[derive(Debug, Default)]
pub struct FoldHasher(u64);

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // Without the second term a row of zeros would be one zero.
        let word = self.0.rotate_left(32) ^ number ^ FACTOR;
        let product = u128::from(word) * u128::from(FACTOR);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::hash::{BuildHasher, Hash};
    use std::{collections::HashSet, vec::Vec};

    use super::*;

    fn hash(key: impl Hash) -> u64 {
        BuildFold::default().hash_one(key)
    }

    /// So many of 256 are told apart by the bits that a table looks at: the lowest and the highest.
    fn spread(hashes: impl Fn(u64) -> u64) -> (usize, usize) {
        let low: HashSet<u64> = (0..256).map(|it| hashes(it) & 0xff).collect();
        let high: HashSet<u64> = (0..256).map(|it| hashes(it) >> 57).collect();
        (low.len(), high.len())
    }

    #[test]
    fn numbers_in_a_row_and_multiples_are_spread() {
        for step in [1, 64, 4096, 1 << 32, 1 << 48] {
            let (low, high) = spread(|it| hash((7_u32, it * step)));
            assert!(low > 120 && high > 90, "{step}: {low} {high}");
        }
    }

    #[test]
    fn names_that_differ_in_a_digit_or_their_length_are_spread() {
        let name = |it: u64| std::format!("step-0001/particles.{it:06}.dat");
        let (low, high) = spread(|it| hash(name(it).as_bytes()));
        assert!(low > 120 && high > 90, "{low} {high}");
        let zeros: HashSet<u64> =
            (0..64).map(|length| hash(Vec::from_iter((0..length).map(|_| 0_u8)))).collect();
        assert_eq!(zeros.len(), 64);
    }
}
