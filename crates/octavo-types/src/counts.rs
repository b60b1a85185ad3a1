//! Counts of executions of segments, added in few instructions.

use crate::segment::Segment;

/// Instructions, loads, stores and modifies (pairs of a load and a store that are one item) of one execution of a
/// segment, all of whose items execute: 16 bits each, from the bottom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentCounts(u64);

impl SegmentCounts {
    /// `None` if a count has more than 16 bits.
    pub fn of(segment: &Segment) -> Option<Self> {
        let all = [segment.modifies(), segment.stores(), segment.loads(), segment.instructions()];
        let packed = all
            .iter()
            .try_fold(0, |above, count| Some(above << 16 | u64::from(u16::try_from(*count).ok()?)));
        packed.map(SegmentCounts)
    }

    /// Instructions, which are as many as fetches.
    #[inline(always)]
    pub fn instructions(self) -> u32 {
        u32::from(self.0 as u16)
    }
}

/// Sums of counts of executions: each less than 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SummedCounts {
    /// From the bottom, 32 bits each.
    instructions_and_stores: u64,
    loads_and_modifies: u64,
}

impl SummedCounts {
    /// Adds an execution.
    #[inline(always)]
    pub fn add(&mut self, counts: SegmentCounts) {
        const EVERY_OTHER: u64 = 0xffff_0000_ffff;
        self.instructions_and_stores += counts.0 & EVERY_OTHER;
        self.loads_and_modifies += counts.0 >> 16 & EVERY_OTHER;
    }

    /// Instructions, loads, stores, and modifies.
    #[inline(always)]
    pub fn each(self) -> [u32; 4] {
        let (low, high) = (|both: u64| both as u32, |both: u64| (both >> 32) as u32);
        [
            low(self.instructions_and_stores),
            low(self.loads_and_modifies),
            high(self.instructions_and_stores),
            high(self.loads_and_modifies),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::VirtAddr;
    use crate::segment::{Item, ItemKind};

    #[test]
    fn counts_of_more_than_16_bits_are_not_packed() {
        let fetches = |count| {
            let items = vec![Item::new(ItemKind::Fetch, 1, VirtAddr::new(0x1000)); count];
            SegmentCounts::of(&Segment::new(items, vec![]).unwrap())
        };
        let mut sums = SummedCounts::default();
        let most = fetches(0xffff).unwrap();
        (0..3).for_each(|_| sums.add(most));
        assert_eq!((most.instructions(), sums.each()), (0xffff, [3 * 0xffff, 0, 0, 0]));
        assert_eq!(fetches(0x1_0000), None);
    }
}
