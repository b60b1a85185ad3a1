//! Set-associative arrays.

mod any_sets;
mod any_size;
mod find;
mod geometry;
mod lru_sets;
mod replacement;

use octavo_types::Instructions;

pub use any_size::AnySizeArray;
pub use find::KeyIndex;
pub use geometry::{Geometry, GeometryError};
pub use replacement::{ParseReplacementError, Replacement};

use any_sets::AnySets;
use find::Keys;
use lru_sets::LruSets;
use replacement::MAX_PACKED;

/// The key of free entries, which no valid entry may have.
pub const NO_KEY: u64 = u64::MAX;

/// A set-associative array of keys (anything but [`NO_KEY`]), each with a payload.
///
/// The caller selects the set of a key (usually by [`Geometry::set_of`]); a key in several sets has an entry
/// in each. Sets are counted from 0; an invalid set panics.
///
/// Entries stay in their ways, and replacement state is separate, so that a look-up writes little. A set of
/// up to 16 ways is scanned by vector instructions, without a branch on the position of the key; larger sets
/// use a hash index.
///
/// Look-ups are meant to be inlined into the caller's loop; if the loop is compiled for the selected
/// instruction set, the scan is inlined, too.
#[derive(Clone, Debug)]
pub struct SetArray<V> {
    /// The key of each slot (set times stride plus way); [`NO_KEY`] if free.
    keys: Keys,
    /// The payload of each slot.
    values: Box<[V]>,
    engine: Engine,
    geometry: Geometry,
    len: usize,
}

/// The location of a present entry, through which the entry can be used again without a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    set: u32,
    at: u32,
}

impl Slot {
    /// A slot of an array of another kind with a single set.
    pub const fn of_only_set(at: u32) -> Self {
        Slot { set: 0, at }
    }

    /// Its set.
    #[inline(always)]
    pub const fn set(self) -> usize {
        self.set as usize
    }

    /// Its index over all sets.
    pub const fn at(self) -> usize {
        self.at as usize
    }
}

/// The engine that finds keys and allocates ways.
#[derive(Clone, Debug)]
enum Engine {
    Lru(LruSets),
    Any(Box<AnySets>),
}

/// Dispatches to either engine.
macro_rules! each {
    ($engine:expr, $sets:ident => $does:expr) => {
        match $engine {
            Engine::Lru($sets) => $does,
            Engine::Any($sets) => $does,
        }
    };
}

impl<V: Copy + Default> SetArray<V> {
    /// An empty array.
    pub fn new(geometry: Geometry, replacement: Replacement, instructions: Instructions) -> Self {
        let engine = if replacement == Replacement::Lru && geometry.ways() <= MAX_PACKED {
            Engine::Lru(LruSets::new(geometry, instructions))
        } else {
            Engine::Any(Box::new(AnySets::new(geometry, replacement, instructions)))
        };
        let slots = geometry.sets() * each!(&engine, sets => sets.stride());
        SetArray {
            keys: Keys::new(NO_KEY, slots),
            values: vec![V::default(); slots].into_boxed_slice(),
            engine,
            geometry,
            len: 0,
        }
    }

    /// Upper bound on the bytes of such an array.
    pub const fn most_bytes(geometry: Geometry) -> u64 {
        let (sets, ways) = (geometry.sets() as u64, geometry.ways() as u64);
        let key_and_value = 8 + size_of::<V>() as u64;
        if ways <= find::MAX_SCANNED as u64 {
            // Times take 8 bytes per slot, orders 8 bytes per set.
            return sets * (((key_and_value + 8) << find::stride_log2(geometry.ways())) + 16);
        }
        // At most 20 bytes per slot for the index, 8 per slot for a list of the policy, and the per-set state
        // of array and policy.
        sets * (ways * (key_and_value + 20 + 8) + 24)
    }

    /// Looks `key` up in a set. A hit uses the entry.
    #[inline(always)]
    pub fn look_up(&mut self, set: usize, key: u64) -> Option<&mut V> {
        let slot = self.look_up_slot(set, key)?;
        Some(&mut self.values[slot.at as usize])
    }

    /// As [`SetArray::look_up`]; returns the slot.
    #[inline(always)]
    pub fn look_up_slot(&mut self, set: usize, key: u64) -> Option<Slot> {
        debug_assert_ne!(key, NO_KEY, "the key of free entries");
        let slot = each!(&mut self.engine, sets => sets.look_up(&self.keys, set, key))?;
        Some(Slot { set: set as u32, at: slot as u32 })
    }

    /// The payload of the entry at a slot.
    ///
    /// # Panics
    ///
    /// If the slot is outside the array.
    #[inline(always)]
    pub fn at(&self, slot: Slot) -> &V {
        &self.values[slot.at as usize]
    }

    /// Uses the entry at a slot again, like [`SetArray::look_up`] of its key. The entry must still be there.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) {
        let Slot { set, at } = slot;
        debug_assert_ne!(self.keys[at as usize], NO_KEY, "its entry has gone");
        each!(&mut self.engine, sets => sets.touch(set as usize, at as usize));
    }

    /// Looks `key` up without a use of its entry.
    #[inline(always)]
    pub fn probe(&self, set: usize, key: u64) -> Option<&V> {
        self.find(set, key).map(|slot| &self.values[slot])
    }

    /// As [`SetArray::probe`]; returns the slot.
    #[inline(always)]
    pub fn probe_slot(&self, set: usize, key: u64) -> Option<Slot> {
        let at = self.find(set, key)?;
        Some(Slot { set: set as u32, at: at as u32 })
    }

    /// As [`SetArray::probe`], with a mutable payload.
    #[inline(always)]
    pub fn probe_mut(&mut self, set: usize, key: u64) -> Option<&mut V> {
        self.find(set, key).map(|slot| &mut self.values[slot])
    }

    /// Inserts an entry and returns the evicted one. Free ways are filled first. If the key is in its set
    /// already, this is a look-up that replaces the payload.
    ///
    /// # Panics
    ///
    /// If the key is [`NO_KEY`].
    pub fn insert(&mut self, set: usize, key: u64, value: V) -> Option<(u64, V)> {
        if let Some(slot) = self.find(set, key) {
            assert_ne!(key, NO_KEY, "the key of free entries");
            self.values[slot] = value;
            each!(&mut self.engine, sets => sets.touch(set, slot));
            return None;
        }
        self.insert_missed(set, key, value)
    }

    /// As [`SetArray::insert`], for a key known to be absent: skips the search, except in debug builds.
    ///
    /// # Panics
    ///
    /// If the key is [`NO_KEY`].
    #[inline]
    pub fn insert_missed(&mut self, set: usize, key: u64, value: V) -> Option<(u64, V)> {
        assert_ne!(key, NO_KEY, "the key of free entries");
        debug_assert!(self.find(set, key).is_none(), "{key:#x} is in its set");
        let slot = match &mut self.engine {
            Engine::Lru(sets) => sets.allocate_way(set),
            Engine::Any(sets) => sets.allocate_way(&self.keys, set, key),
        };
        let held = std::mem::replace(&mut self.keys[slot], key);
        let value = std::mem::replace(&mut self.values[slot], value);
        if held == NO_KEY {
            self.len += 1;
            return None;
        }
        Some((held, value))
    }

    /// Removes a key from a set and returns its payload, if present. Its way becomes free.
    pub fn invalidate(&mut self, set: usize, key: u64) -> Option<V> {
        let slot = self.find(set, key)?;
        self.free(set, slot);
        Some(self.values[slot])
    }

    /// Removes the entries for which `is_out` returns true, and returns their number. Visits all entries, by
    /// sets and ways.
    pub fn invalidate_if(&mut self, mut is_out: impl FnMut(u64, &V) -> bool) -> usize {
        let before = self.len;
        let stride = self.stride();
        for slot in 0..self.values.len() {
            if self.keys[slot] != NO_KEY && is_out(self.keys[slot], &self.values[slot]) {
                self.free(slot / stride, slot);
            }
        }
        before - self.len
    }

    /// Removes all entries. The array is as new, except that a random policy continues its sequence.
    pub fn clear(&mut self) {
        self.keys.fill(NO_KEY);
        self.len = 0;
        each!(&mut self.engine, sets => sets.clear());
    }

    /// The number of valid entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its sets and ways.
    #[inline(always)]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// All entries, by sets and ways: set, key, payload. (The way of an entry depends on the policy.)
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64, &V)> {
        let stride = self.stride();
        let slots = self.keys.iter().zip(&self.values).enumerate();
        let taken = slots.filter(|(_, (key, _))| **key != NO_KEY);
        taken.map(move |(slot, (key, value))| (slot / stride, *key, value))
    }

    /// The entries of a set: key and payload.
    pub fn set(&self, set: usize) -> impl Iterator<Item = (u64, &V)> {
        let slots = set * self.stride()..(set + 1) * self.stride();
        let entries = self.keys[slots.clone()].iter().zip(&self.values[slots]);
        entries.filter(|(key, _)| **key != NO_KEY).map(|(key, value)| (*key, value))
    }

    /// Slots per set.
    fn stride(&self) -> usize {
        each!(&self.engine, sets => sets.stride())
    }

    /// The slot of `key` in a set.
    #[inline(always)]
    fn find(&self, set: usize, key: u64) -> Option<usize> {
        each!(&self.engine, sets => sets.find(&self.keys, set, key))
    }

    /// Frees a valid slot.
    fn free(&mut self, set: usize, slot: usize) {
        match &mut self.engine {
            Engine::Lru(sets) => sets.release_way(set, slot),
            Engine::Any(sets) => sets.release_way(&self.keys, set, slot),
        }
        self.keys[slot] = NO_KEY;
        self.len -= 1;
    }
}
