//! LRU sets of few ways, the most frequent case: besides its keys, a set has a time per way, or one order.

use octavo_types::Instructions;

use super::Geometry;
use super::find::{Keys, scan, stride_log2};
use super::replacement::Packed;

/// Maximum ways of a set with a time per way, where a use is one store. Larger sets have an order, which is
/// smaller and needs no search for the oldest way.
const MAX_TIMED: usize = 8;

/// The state of the sets, without their keys.
#[derive(Clone, Debug)]
pub(super) struct LruSets {
    uses: Uses,
    stride_log2: u32,
    instructions: Instructions,
}

/// The recency of the ways.
#[derive(Clone, Debug)]
enum Uses {
    Timed(Times),
    Ordered(Packed),
}

/// Time of last use of each slot: 0 if it is free, [`u64::MAX`] behind the ways of a set.
#[derive(Clone, Debug)]
struct Times {
    times: Box<[u64]>,
    now: u64,
    ways: usize,
}

impl Times {
    fn new(geometry: Geometry, stride: usize) -> Self {
        let (ways, slots) = (geometry.ways(), geometry.sets() * stride);
        let mut times = Times { times: vec![0; slots].into(), now: 0, ways };
        times.clear(stride);
        times
    }

    fn clear(&mut self, stride: usize) {
        for (slot, time) in self.times.iter_mut().enumerate() {
            *time = if slot % stride < self.ways { 0 } else { u64::MAX };
        }
    }

    #[inline(always)]
    fn touch(&mut self, slot: usize) {
        self.now += 1;
        self.times[slot] = self.now;
    }

    /// The least recently used slot of a set, which becomes the most recent.
    #[inline(always)]
    fn allocate_way(&mut self, first: usize, stride: usize) -> usize {
        let oldest = |from: usize, times: &[u64; 4]| {
            let least = |a: (u64, usize), b: (u64, usize)| if b.0 < a.0 { b } else { a };
            let [a, b, c, d] = *times;
            least(least((a, from), (b, from + 1)), least((c, from + 2), (d, from + 3)))
        };
        let (fours, _) = self.times[first..first + stride].as_chunks::<4>();
        let slot = match fours {
            [only] => oldest(first, only).1,
            [low, high] => {
                let (low, high) = (oldest(first, low), oldest(first + 4, high));
                if high.0 < low.0 { high.1 } else { low.1 }
            }
            _ => unreachable!("sets of at most {MAX_TIMED} ways"),
        };
        self.touch(slot);
        slot
    }
}

impl LruSets {
    pub fn new(geometry: Geometry, instructions: Instructions) -> Self {
        let stride_log2 = stride_log2(geometry.ways());
        let uses = match geometry.ways() <= MAX_TIMED {
            true => Uses::Timed(Times::new(geometry, 1 << stride_log2)),
            false => Uses::Ordered(Packed::new(geometry)),
        };
        LruSets { uses, stride_log2, instructions }
    }

    /// Slots of a set.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        1 << self.stride_log2
    }

    /// The slot of a key in a set.
    #[inline(always)]
    pub fn find(&self, keys: &Keys, set: usize, key: u64) -> Option<usize> {
        let first = set << self.stride_log2;
        let found = scan(self.instructions, &keys[first..first + self.stride()], key);
        (found != 0).then(|| first + found.trailing_zeros() as usize)
    }

    /// Finds the slot of a key in a set, and uses it.
    #[inline(always)]
    pub fn look_up(&mut self, keys: &Keys, set: usize, key: u64) -> Option<usize> {
        let slot = self.find(keys, set, key)?;
        self.touch(set, slot);
        Some(slot)
    }

    /// Uses a slot.
    #[inline(always)]
    pub fn touch(&mut self, set: usize, slot: usize) {
        match &mut self.uses {
            Uses::Timed(times) => times.touch(slot),
            Uses::Ordered(order) => {
                order.move_to_front(set, slot - (set << self.stride_log2));
            }
        }
    }

    /// Allocates the slot to fill.
    #[inline(always)]
    pub fn allocate_way(&mut self, set: usize) -> usize {
        let (first, stride) = (set << self.stride_log2, self.stride());
        match &mut self.uses {
            Uses::Timed(times) => times.allocate_way(first, stride),
            Uses::Ordered(order) => first + order.rotate(set),
        }
    }

    /// Frees a slot.
    pub fn release_way(&mut self, set: usize, slot: usize) {
        match &mut self.uses {
            Uses::Timed(times) => times.times[slot] = 0,
            Uses::Ordered(order) => order.move_to_end(set, slot - (set << self.stride_log2)),
        }
    }

    /// Frees all slots.
    pub fn clear(&mut self) {
        let stride = self.stride();
        match &mut self.uses {
            Uses::Timed(times) => times.clear(stride),
            Uses::Ordered(order) => order.clear(),
        }
    }
}
