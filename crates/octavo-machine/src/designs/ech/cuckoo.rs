//! Elastic cuckoo hashing (Skarlatos et al., ASPLOS 2020, section 4): a hash table of several ways in simulated
//! memory, which grows gradually.

use std::mem;

use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_trace::splitmix;
use octavo_types::{FrameNumber, PageSize, PhysAddr};

/// Bytes of an entry: a line.
pub const ENTRY_BYTES: u64 = 64;
/// Entries of a frame.
pub const ENTRIES_PER_FRAME: u64 = PageSize::BASE.bytes() / ENTRY_BYTES;
/// A larger table has this many times the entries.
const GROWTH: u64 = 4;
/// A table grows when more than this share of its entries is in use, in percent.
const FULL_PERCENT: u64 = 60;
/// An insertion that displaces more entries than this has failed.
const MOST_SWAPS: usize = 32;

/// An entry: its key and its contents.
type Slot<V> = Option<(u64, V)>;

/// A way: a power of two of entries.
struct Way<V> {
    slots: Vec<Slot<V>>,
    /// One for each 4 KiB of entries.
    frames: Vec<FrameNumber>,
}

/// The larger ways that a table is moving to.
struct Growing<V> {
    ways: Vec<Way<V>>,
    /// By way: the entries of the old way before this one have moved.
    moved: Vec<usize>,
    /// The way of which an entry moves next.
    next: usize,
}

/// A table. Each key has one place in each way: in the old way or, once the entries there have moved, in the new
/// one.
pub struct Cuckoo<V> {
    ways: Vec<Way<V>>,
    growing: Option<Growing<V>>,
    entries: u64,
    random: u64,
    /// The keys placed or moved since the last [`Cuckoo::take_placed`].
    placed: Vec<u64>,
}

/// The place of a key in a way.
#[derive(Clone, Copy)]
struct Place {
    is_new: bool,
    way: usize,
    index: usize,
}

impl<V: Copy> Way<V> {
    fn new(entries: u64, frames: &mut Frames) -> Result<Self, OutOfMemory> {
        let count = entries.div_ceil(ENTRIES_PER_FRAME);
        let mut own = Vec::new();
        // Contiguous where memory has a block.
        let order = u8::try_from(count.ilog2()).ok().and_then(Order::new);
        if let Some(order) = order
            && let Ok(first) = frames.allocate_free(order, Owner::PageTable)
        {
            own.extend((0..count).map(|number| first.plus(number)));
        }
        while (own.len() as u64) < count {
            match frames.allocate(Order::BASE, Owner::PageTable) {
                Ok(frame) => own.push(frame),
                Err(error) => {
                    own.iter().for_each(|frame| frames.free(*frame, Order::BASE));
                    return Err(error);
                }
            }
        }
        Ok(Way { slots: vec![None; entries as usize], frames: own })
    }

    fn free(&self, frames: &mut Frames) {
        self.frames.iter().for_each(|frame| frames.free(*frame, Order::BASE));
    }

    fn index(&self, way: usize, key: u64) -> usize {
        hash(way, key) as usize & (self.slots.len() - 1)
    }

    fn at(&self, index: usize) -> PhysAddr {
        let index = index as u64;
        let frame = self.frames[(index / ENTRIES_PER_FRAME) as usize];
        PhysAddr::new(frame.start().raw() + index % ENTRIES_PER_FRAME * ENTRY_BYTES)
    }
}

/// The hash of a key in a way.
pub fn hash(way: usize, key: u64) -> u64 {
    splitmix(key.wrapping_add((way as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

impl<V: Copy> Cuckoo<V> {
    /// An empty table of `ways` ways with `entries` entries each, a power of two.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub fn new(ways: usize, entries: u64, frames: &mut Frames) -> Result<Self, OutOfMemory> {
        let ways = new_ways(ways, entries, frames)?;
        Ok(Cuckoo { ways, growing: None, entries: 0, random: 1, placed: Vec::new() })
    }

    /// The addresses that may hold a key, by way.
    pub fn places(&self, key: u64) -> impl Iterator<Item = PhysAddr> + '_ {
        (0..self.ways.len()).map(move |way| {
            let place = self.place(way, key);
            self.way(place).at(place.index)
        })
    }

    /// The way that holds a key, and the contents of its entry.
    pub fn find(&self, key: u64) -> Option<(usize, V)> {
        (0..self.ways.len()).find_map(|way| {
            let place = self.place(way, key);
            let (held, contents) = self.way(place).slots[place.index]?;
            (held == key).then_some((way, contents))
        })
    }

    /// The contents of a key's entry.
    pub fn find_mut(&mut self, key: u64) -> Option<(usize, &mut V)> {
        let (way, _) = self.find(key)?;
        let place = self.place(way, key);
        let (_, contents) = self.slot(place).as_mut().expect("it has been found");
        Some((way, contents))
    }

    /// Adds a key that is not there. While the table grows, this also moves one entry.
    ///
    /// # Errors
    ///
    /// If there is no memory to grow.
    pub fn insert(
        &mut self,
        key: u64,
        contents: V,
        frames: &mut Frames,
    ) -> Result<(), OutOfMemory> {
        if self.growing.is_none() && (self.entries + 1) * 100 > self.capacity() * FULL_PERCENT {
            let count = self.ways.len();
            let ways = new_ways(count, self.ways[0].slots.len() as u64 * GROWTH, frames)?;
            self.growing = Some(Growing { ways, moved: vec![0; count], next: 0 });
        }
        self.entries += 1;
        let way = self.any_way();
        if let Err(homeless) = self.put(way, (key, contents)) {
            return self.rebuild(homeless, frames);
        }
        self.move_one(frames)
    }

    /// Removes a key.
    pub fn remove(&mut self, key: u64) {
        let found = self.find(key).map(|(way, _)| self.place(way, key));
        if let Some(place) = found {
            *self.slot(place) = None;
            self.entries -= 1;
        }
    }

    /// The keys placed or moved since the last call, some of them more than once.
    pub fn take_placed(&mut self) -> Vec<u64> {
        mem::take(&mut self.placed)
    }

    /// The number of frames.
    pub fn frames(&self) -> u64 {
        self.all_ways().map(|way| way.frames.len() as u64).sum()
    }

    /// Frees its frames.
    pub fn free(&self, frames: &mut Frames) {
        self.all_ways().for_each(|way| way.free(frames));
    }

    fn all_ways(&self) -> impl Iterator<Item = &Way<V>> {
        self.ways.iter().chain(self.growing.iter().flat_map(|growing| &growing.ways))
    }

    fn capacity(&self) -> u64 {
        (self.ways.len() * self.ways[0].slots.len()) as u64
    }

    fn place(&self, way: usize, key: u64) -> Place {
        let index = self.ways[way].index(way, key);
        match &self.growing {
            Some(growing) if index < growing.moved[way] => {
                Place { is_new: true, way, index: growing.ways[way].index(way, key) }
            }
            _ => Place { is_new: false, way, index },
        }
    }

    fn way(&self, place: Place) -> &Way<V> {
        match (&self.growing, place.is_new) {
            (Some(growing), true) => &growing.ways[place.way],
            _ => &self.ways[place.way],
        }
    }

    fn slot(&mut self, place: Place) -> &mut Slot<V> {
        let ways = match (&mut self.growing, place.is_new) {
            (Some(growing), true) => &mut growing.ways,
            _ => &mut self.ways,
        };
        &mut ways[place.way].slots[place.index]
    }

    /// A random way.
    fn any_way(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as usize % self.ways.len()
    }

    /// A random way other than this one.
    fn other_way(&mut self, way: usize) -> usize {
        let others = self.ways.len() - 1;
        (way + 1 + self.any_way() % others) % self.ways.len()
    }

    /// Puts an entry into its place in a way; an entry that was there moves to another way, and so on. Returns
    /// the entry that has no place after too many moves.
    fn put(&mut self, mut way: usize, mut entry: (u64, V)) -> Result<(), (u64, V)> {
        for _ in 0..=MOST_SWAPS {
            let place = self.place(way, entry.0);
            let before = self.slot(place).replace(entry);
            self.placed.push(entry.0);
            match before {
                None => return Ok(()),
                Some(displaced) => entry = displaced,
            }
            way = self.other_way(way);
        }
        Err(entry)
    }

    /// Moves the next entry to the new ways; frees the old ways after the last.
    fn move_one(&mut self, frames: &mut Frames) -> Result<(), OutOfMemory> {
        let Some(growing) = &mut self.growing else { return Ok(()) };
        let count = self.ways.len();
        let entries = self.ways[0].slots.len();
        for _ in 0..count {
            let way = growing.next;
            growing.next = (way + 1) % count;
            while growing.moved[way] < entries {
                let index = growing.moved[way];
                growing.moved[way] += 1;
                if let Some(entry) = self.ways[way].slots[index].take() {
                    return match self.put(way, entry) {
                        Ok(()) => Ok(()),
                        Err(homeless) => self.rebuild(homeless, frames),
                    };
                }
            }
        }
        let Growing { ways, .. } = self.growing.take().expect("it grows");
        mem::replace(&mut self.ways, ways).iter().for_each(|way| way.free(frames));
        Ok(())
    }

    /// Moves all entries, and one that has no place, to a table that is large enough. This happens if many keys have
    /// equal hashes, and to tables of two ways that are half full.
    fn rebuild(&mut self, homeless: (u64, V), frames: &mut Frames) -> Result<(), OutOfMemory> {
        let mut all: Vec<(u64, V)> =
            self.all_ways().flat_map(|way| way.slots.iter().flatten().copied()).collect();
        all.push(homeless);
        let largest = self.all_ways().map(|way| way.slots.len() as u64).max();
        let mut entries = largest.expect("a table has ways");
        let count = self.ways.len();
        loop {
            entries *= GROWTH;
            let ways = new_ways(count, entries, frames)?;
            let mut larger = Cuckoo { ways, growing: None, placed: Vec::new(), ..*self };
            let fits = all.iter().all(|entry| {
                let way = larger.any_way();
                larger.put(way, *entry).is_ok()
            });
            if fits {
                mem::replace(self, larger).free(frames);
                return Ok(());
            }
            larger.free(frames);
        }
    }
}

fn new_ways<V: Copy>(
    count: usize,
    entries: u64,
    frames: &mut Frames,
) -> Result<Vec<Way<V>>, OutOfMemory> {
    let mut ways = Vec::with_capacity(count);
    for _ in 0..count {
        match Way::new(entries, frames) {
            Ok(way) => ways.push(way),
            Err(error) => {
                ways.iter().for_each(|way: &Way<V>| way.free(frames));
                return Err(error);
            }
        }
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use octavo_os::frames::MemoryShape;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn memory(frames: u64) -> Frames {
        Frames::new(MemoryShape::new(frames, Order::LINUX).unwrap())
    }

    /// The places of all keys: way, address and contents. Each key is held once, at one of its places.
    fn held(table: &Cuckoo<u32>) -> BTreeMap<u64, (usize, PhysAddr, u32)> {
        let slots = || table.all_ways().flat_map(|way| way.slots.iter().flatten());
        let held: BTreeMap<_, _> = slots()
            .map(|(key, contents)| {
                let (way, found) = table.find(*key).unwrap();
                assert_eq!(found, *contents);
                assert_eq!(table.places(*key).count(), table.ways.len());
                (*key, (way, table.places(*key).nth(way).unwrap(), found))
            })
            .collect();
        assert_eq!(held.len(), slots().count(), "a key is held twice");
        let places: BTreeSet<_> = held.values().map(|(_, at, _)| *at).collect();
        assert_eq!(places.len(), held.len(), "keys share a place");
        held
    }

    #[derive(Clone, Copy, Debug)]
    enum Action {
        Insert(u64),
        Remove(u64),
        Change(u64),
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let key = || prop_oneof![4 => 0u64..1000, 1 => any::<u64>()];
        let action = prop_oneof![
            6 => key().prop_map(Action::Insert),
            2 => key().prop_map(Action::Remove),
            1 => key().prop_map(Action::Change),
        ];
        vec(action, 1..400)
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(64))]

        #[test]
        fn table_equals_a_map(
            ways in 2usize..5,
            entries in (0u32..9).prop_map(|log2| 1u64 << log2),
            actions in actions(),
        ) {
            let mut frames = memory(1 << 14);
            let mut table = Cuckoo::new(ways, entries, &mut frames).unwrap();
            let mut map = BTreeMap::new();
            let mut before = BTreeMap::new();
            for (number, action) in actions.into_iter().enumerate() {
                let contents = number as u32;
                match action {
                    Action::Insert(key) => {
                        if map.insert(key, contents).is_some() {
                            table.remove(key);
                        }
                        table.insert(key, contents, &mut frames).unwrap();
                        let is_full = table.entries * 100 > table.capacity() * FULL_PERCENT;
                        prop_assert!(!is_full || table.growing.is_some());
                    }
                    Action::Remove(key) => {
                        map.remove(&key);
                        table.remove(key);
                    }
                    Action::Change(key) => {
                        let found = table.find_mut(key);
                        prop_assert_eq!(found.is_some(), map.contains_key(&key));
                        if let Some((_, held)) = found {
                            *held = contents;
                            map.insert(key, contents);
                        }
                    }
                }
                let now = held(&table);
                let contents: BTreeMap<_, _> = now.iter().map(|(key, place)| (*key, place.2)).collect();
                prop_assert_eq!(&contents, &map);
                prop_assert_eq!(table.entries, map.len() as u64);
                prop_assert_eq!(frames.used_frames(Owner::PageTable), table.frames());
                let placed: BTreeSet<_> = table.take_placed().into_iter().collect();
                for (key, (way, ..)) in now.iter().filter(|(key, _)| !placed.contains(key)) {
                    prop_assert_eq!(Some(way), before.get(key), "{} moved unseen", key);
                }
                before = now.into_iter().map(|(key, (way, ..))| (key, way)).collect();
            }
            table.free(&mut frames);
            prop_assert_eq!(frames.free_frames(), 1 << 14);
            prop_assert_eq!(frames.check(), Ok(()));
        }

        #[test]
        fn exhausted_table_loses_no_frame(count in 1u64..200, ways in 2usize..4, start in 6u32..10) {
            let mut frames = memory(count);
            if let Ok(mut table) = Cuckoo::new(ways, 1 << start, &mut frames) {
                let inserted = (0..).find(|key| {
                    let inserted = table.insert(*key, 0, &mut frames);
                    assert_eq!(frames.used_frames(Owner::PageTable), table.frames());
                    inserted.is_err()
                });
                // Two ways are nearly half full before an entry has no place.
                prop_assert!(inserted > Some(((ways as u64) << start) * 2 / 5));
                table.free(&mut frames);
            }
            prop_assert_eq!(frames.free_frames(), count);
            prop_assert_eq!(frames.check(), Ok(()));
        }
    }

    /// `count` keys that have the same place in every way of tables with up to `entries` entries.
    fn colliding(ways: usize, entries: u64, count: usize) -> Vec<u64> {
        let mask = entries - 1;
        let collides = |key: &u64| (0..ways).all(|way| hash(way, *key) & mask == 5 & mask);
        (0..).filter(collides).take(count).collect()
    }

    #[test]
    fn table_outgrows_colliding_keys() {
        for (ways, entries, count) in [(3, 64, 9), (2, 64, 40), (2, 256, 12)] {
            let mut frames = memory(1 << 16);
            let mut table = Cuckoo::new(ways, 64, &mut frames).unwrap();
            let keys = colliding(ways, entries, count);
            for (number, key) in keys.iter().enumerate() {
                table.insert(*key, number as u32, &mut frames).unwrap();
                assert_eq!(held(&table).len(), number + 1);
                assert_eq!(frames.used_frames(Owner::PageTable), table.frames());
            }
            assert!(table.ways[0].slots.len() as u64 > entries);
            // The table still works: other keys find places, and it grows again.
            for key in 1 << 40..(1 << 40) + 3000 {
                table.insert(key, 0, &mut frames).unwrap();
            }
            assert_eq!(held(&table).len(), count + 3000);
            table.free(&mut frames);
            assert_eq!(frames.free_frames(), 1 << 16);
        }
    }

    #[test]
    fn colliding_keys_exhaust_memory_without_loss() {
        let mut frames = memory(8);
        let mut table = Cuckoo::new(2, 64, &mut frames).unwrap();
        let full = colliding(2, 256, 12)
            .into_iter()
            .find_map(|key| table.insert(key, 0, &mut frames).err());
        assert!(full.is_some());
        table.free(&mut frames);
        assert_eq!((frames.free_frames(), frames.check()), (8, Ok(())));
    }
}
