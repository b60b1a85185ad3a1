//! The TLBs of a machine at one page size, one reference at a time.

use std::collections::BTreeSet;

use octavo_types::{Consumer, Event, ItemKind, PageSize, Segment, VirtAddr};

use crate::array::{NaiveArray, NaiveReplacement};
use crate::study::{Lookups, Stream};
use crate::{executed, pages_touched};

/// The shape of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveShape {
    /// The memory that an entry covers.
    pub entry_size: PageSize,
    /// Number of sets.
    pub sets: usize,
    /// Entries per set.
    pub ways: usize,
}

struct Level {
    shape: NaiveShape,
    array: NaiveArray<u64, ()>,
    lookups: [Lookups; 2],
}

/// First levels for code and for data and a second level behind both, all LRU, for memory of one page size
/// that is never unmapped. The first store to a page causes a walk of its own, which fills the page into the
/// second level whether or not the first level hits.
pub struct NaiveMachineTlbs {
    page_size: PageSize,
    first: [Level; 2],
    second: Option<Level>,
    dirty: BTreeSet<u64>,
}

impl Level {
    fn new(shape: NaiveShape) -> Self {
        let array = NaiveArray::new(shape.sets, shape.ways, NaiveReplacement::Lru);
        Level { shape, array, lookups: [Lookups::default(); 2] }
    }

    /// The set and the key of an address.
    fn place(&self, addr: VirtAddr) -> (usize, u64) {
        let key = addr.page(self.shape.entry_size).raw();
        ((key % self.shape.sets as u64) as usize, key)
    }

    /// Looks an address up, and inserts it on a miss. Returns whether it hit.
    fn access(&mut self, addr: VirtAddr, side: usize) -> bool {
        let (set, key) = self.place(addr);
        let hit = self.array.look_up(set, &key).is_some();
        self.lookups[side].accesses += 1;
        self.lookups[side].misses += u64::from(!hit);
        self.array.insert(set, key, ());
        hit
    }
}

impl NaiveMachineTlbs {
    /// Empty TLBs for pages of a size.
    pub fn new(
        page_size: PageSize,
        fetch: NaiveShape,
        data: NaiveShape,
        second: Option<NaiveShape>,
    ) -> Self {
        NaiveMachineTlbs {
            page_size,
            first: [Level::new(fetch), Level::new(data)],
            second: second.map(Level::new),
            dirty: BTreeSet::new(),
        }
    }

    /// Accesses and misses of a stream, fetches or data, at a level, counted from 0.
    pub fn lookups(&self, stream: Stream, level: usize) -> Lookups {
        let side = usize::from(stream == Stream::Data);
        match (level, &self.second) {
            (0, _) => self.first[side].lookups[side],
            (_, Some(second)) => second.lookups[side],
            (_, None) => Lookups::default(),
        }
    }

    fn reference(&mut self, addr: VirtAddr, bytes: u16, side: usize, stores: bool) {
        for (page, first_byte) in pages_touched(addr, bytes, self.page_size) {
            if !self.first[side].access(first_byte, side)
                && let Some(second) = &mut self.second
            {
                second.access(first_byte, side);
            }
            if stores
                && self.dirty.insert(page.raw())
                && let Some(second) = &mut self.second
            {
                let (set, key) = second.place(first_byte);
                second.array.insert(set, key, ());
            }
        }
    }
}

impl Consumer for NaiveMachineTlbs {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        for (item, addr) in executed(segment, addresses) {
            let uses: &[(usize, bool)] = match item.kind {
                ItemKind::Fetch => &[(0, false)],
                ItemKind::Load => &[(1, false)],
                ItemKind::Store => &[(1, true)],
                ItemKind::Modify => &[(1, false), (1, true)],
            };
            for (side, stores) in uses {
                self.reference(addr, item.size_bytes, *side, *stores);
            }
        }
    }

    fn event(&mut self, _: &Event) {}
}
