//! Numbers that follow from a seed.

/// SplitMix64: any seed is a good one, and its whole state is one word.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From a seed; `purpose` tells apart what one seed is used for.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Dice {
        let mut dice = Dice(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `count`; 0 when there is none.
    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    /// An index of something so long.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// From `low` up to and without `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
