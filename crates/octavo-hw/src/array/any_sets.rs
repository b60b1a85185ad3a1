//! Sets of any number of ways with any replacement policy.

use octavo_types::Instructions;

use super::find::{KeyIndex, Keys, MAX_SCANNED, scan, stride_log2};
use super::replacement::Policy;
use super::{Geometry, NO_KEY, Replacement};

/// The state of the sets, without their keys.
#[derive(Clone, Debug)]
pub(super) struct AnySets {
    stride: usize,
    finder: Finder,
    /// The slot used last in each set, if any, where a repeated use changes nothing; else empty.
    last: Box<[u32]>,
    policy: Policy,
    geometry: Geometry,
    replacement: Replacement,
}

/// The search for a key in its set.
#[derive(Clone, Debug)]
enum Finder {
    Scan(Instructions),
    Index {
        index: KeyIndex,
        /// The first way of each set that may be free.
        free_from: Box<[u32]>,
    },
}

impl AnySets {
    pub fn new(geometry: Geometry, replacement: Replacement, instructions: Instructions) -> Self {
        let (sets, ways) = (geometry.sets(), geometry.ways());
        let (stride, finder) = if ways <= MAX_SCANNED {
            (1 << stride_log2(ways), Finder::Scan(instructions))
        } else {
            let free_from = vec![0; sets].into_boxed_slice();
            (ways, Finder::Index { index: KeyIndex::new(sets * ways), free_from })
        };
        let last = match replacement.retouch_changes() {
            true => Box::default(),
            false => (0..sets).map(|set| (set * stride) as u32).collect(),
        };
        AnySets {
            stride,
            finder,
            last,
            policy: Policy::new(replacement, geometry),
            geometry,
            replacement,
        }
    }

    /// Slots of a set.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The slot of a key in a set.
    #[inline(always)]
    pub fn find(&self, keys: &Keys, set: usize, key: u64) -> Option<usize> {
        let first = set * self.stride;
        match &self.finder {
            Finder::Scan(instructions) => {
                let found = scan(*instructions, &keys[first..first + self.stride], key);
                (found != 0).then(|| first + found.trailing_zeros() as usize)
            }
            Finder::Index { index, .. } => index.find(keys, key, first, self.stride),
        }
    }

    /// Finds the slot of a key in a set, and uses it.
    #[inline(always)]
    pub fn look_up(&mut self, keys: &Keys, set: usize, key: u64) -> Option<usize> {
        if let Some(last) = self.last.get(set)
            && keys[*last as usize] == key
        {
            return Some(*last as usize);
        }
        self.search(keys, set, key)
    }

    #[inline(never)]
    fn search(&mut self, keys: &Keys, set: usize, key: u64) -> Option<usize> {
        let slot = self.find(keys, set, key)?;
        self.touch(set, slot);
        Some(slot)
    }

    /// Uses a slot.
    #[inline(always)]
    pub fn touch(&mut self, set: usize, slot: usize) {
        if let Some(last) = self.last.get_mut(set) {
            if *last as usize == slot {
                return;
            }
            *last = slot as u32;
        }
        self.policy.touch(set, slot - set * self.stride);
    }

    /// Allocates a slot for `key`. The slot still has its old key in `keys`.
    pub fn allocate_way(&mut self, keys: &Keys, set: usize, key: u64) -> usize {
        let first = set * self.stride;
        let held = &keys[first..first + self.geometry.ways()];
        let finder = &self.finder;
        let free = || match finder {
            Finder::Scan(instructions) => {
                let free = scan(*instructions, &keys[first..first + self.stride], NO_KEY);
                // Slots behind the ways are never filled.
                Some(free.trailing_zeros() as usize).filter(|way| *way < held.len())
            }
            Finder::Index { free_from, .. } => {
                let from = free_from[set] as usize;
                held[from..].iter().position(|key| *key == NO_KEY).map(|at| from + at)
            }
        };
        let way = self.policy.allocate_way(set, free);
        let slot = first + way;
        if let Finder::Index { index, free_from } = &mut self.finder {
            // Policies that ask for a free way have got the lowest one, or there was none. Other policies do
            // not read `free_from`.
            if keys[slot] == NO_KEY {
                free_from[set] = way as u32 + 1;
            } else {
                index.remove(keys[slot], slot);
                free_from[set] = self.stride as u32;
            }
            index.add(key, slot);
        }
        if let Some(last) = self.last.get_mut(set) {
            *last = slot as u32;
        }
        slot
    }

    /// Frees a slot. The slot still has its key in `keys`.
    pub fn release_way(&mut self, keys: &Keys, set: usize, slot: usize) {
        let way = slot - set * self.stride;
        if let Finder::Index { index, free_from } = &mut self.finder {
            index.remove(keys[slot], slot);
            free_from[set] = free_from[set].min(way as u32);
        }
        self.policy.release_way(set, way);
    }

    /// Frees all slots.
    pub fn clear(&mut self) {
        self.policy.clear(self.replacement, self.geometry);
        if let Finder::Index { index, free_from } = &mut self.finder {
            index.clear();
            free_from.fill(0);
        }
    }
}
