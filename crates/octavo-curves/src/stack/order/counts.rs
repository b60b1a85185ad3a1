//! Sixteen counts at once, without special instructions.

/// Sixteen counts below 2^16, four to a word, so that ordinary additions count many at once.
#[derive(Clone, Copy, Default)]
pub struct Counts([u64; 4]);

impl Counts {
    /// Counts from a function of their indexes.
    pub fn new(count: impl Fn(u32) -> u32) -> Self {
        Counts(std::array::from_fn(|word| {
            (0..4).map(|part| u64::from(count(word as u32 * 4 + part)) << (part * 16)).sum()
        }))
    }

    /// The count at an index.
    #[inline(always)]
    pub fn get(&self, at: usize) -> u32 {
        (self.0[at / 4 % 4] >> (at % 4 * 16)) as u32 & 0xffff
    }

    /// Adds one to each count before `end`.
    #[inline(always)]
    pub fn increment_before(&mut self, end: usize) {
        for (counts, ones) in self.0.iter_mut().zip(&ONES_BEFORE[end % 16]) {
            *counts += ones;
        }
    }

    /// Adds one to each count from `start` to before `end`.
    #[inline(always)]
    pub fn increment_between(&mut self, start: usize, end: usize) {
        let ones = ONES_BEFORE[end % 16].iter().zip(&ONES_BEFORE[start % 16]);
        for (counts, (before_end, before_start)) in self.0.iter_mut().zip(ones) {
            *counts += before_end - before_start;
        }
    }

    /// Subtracts one from each count before `end`. They must be at least 1.
    #[inline(always)]
    pub fn decrement_before(&mut self, end: usize) {
        for (counts, ones) in self.0.iter_mut().zip(&ONES_BEFORE[end % 16]) {
            *counts -= ones;
        }
    }
}

/// By index: a 1 in each count before it.
static ONES_BEFORE: [[u64; 4]; 16] = {
    let mut ones = [[0; 4]; 16];
    let mut at = 0;
    while at < 16 * 16 {
        let (end, count) = (at / 16, at % 16);
        if count < end {
            ones[end][count / 4] += 1 << (count % 4 * 16);
        }
        at += 1;
    }
    ones
};
