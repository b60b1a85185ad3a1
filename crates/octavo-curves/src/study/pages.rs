//! The state of each page, found by one look-up for all page sizes.
//!
//! A *leaf* covers 2 MiB of address space and holds, for each page of each size up to that, the time at
//! which it was last inserted into a recency order; larger pages have theirs in an *upper* node of 1 GiB.
//! So a reference that misses everywhere costs one hash look-up and then array accesses, and the state
//! takes some 0.2% of the memory that the program touches densely.

use octavo_trace::RegionId;
use rustc_hash::FxHashMap;

use super::bits::Bits512;
use crate::sizes::Sizes;

/// log2 of the base pages in a leaf and in an upper node.
const LEAF_LOG2: u8 = 9;
const UPPER_LOG2: u8 = 18;
/// The number of base pages in a leaf.
pub const LEAF_PAGES: usize = 1 << LEAF_LOG2;

/// The index of the stamp of one page of one size in one level's recency order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place(pub u32);

/// The locations of the stamps of one base page at every size, kept with the page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spot {
    leaf: u32,
    leaf_stamps: u32,
    upper_stamps: u32,
}

/// The state of the base pages of 2 MiB.
pub struct Leaf {
    /// The base page number of its first page, shifted right by `LEAF_LOG2`.
    number: u64,
    spot: Spot,
    /// Its upper node.
    upper: u32,
    /// The base pages that are in the front.
    in_front: Bits512,
    /// The front slot of each of them.
    slots: [u8; LEAF_PAGES],
    /// The region of each base page plus 1; 0 if it is unknown.
    regions: [u16; LEAF_PAGES],
    /// Base pages touched since they were mapped.
    touched: Bits512,
}

struct Upper {
    stamps: u32,
    /// The leaves that have base pages in the front.
    in_front: Bits512,
}

/// One column of stamps in a node: a page size, for all levels.
#[derive(Clone, Copy, Debug)]
struct Column {
    shift: u8,
    in_leaf: bool,
    offset: u32,
}

/// All pages that a stream has touched.
pub struct Pages {
    leaves: Vec<Leaf>,
    by_number: FxHashMap<u64, u32>,
    uppers: Vec<Upper>,
    upper_by_number: FxHashMap<u64, u32>,
    /// The leaf found last: most look-ups that miss the front still fall in it.
    recent: (u64, u32),
    columns: Vec<Column>,
    leaf_stride: u32,
    upper_stride: u32,
    leaf_words: u32,
    upper_words: u32,
    /// The stamps that recency orders keep at places.
    pub stamps: Stamps,
}

impl Pages {
    /// No pages; each page has stamps for `levels` recency orders at each of `sizes`.
    pub fn new(sizes: &Sizes, levels: usize) -> Self {
        let (mut leaf_stride, mut upper_stride) = (0, 0);
        let mut columns = Vec::new();
        for size in sizes.iter() {
            let shift = size.base_shift();
            let in_leaf = shift <= LEAF_LOG2;
            let (stride, log2) = if in_leaf {
                (&mut leaf_stride, LEAF_LOG2)
            } else {
                (&mut upper_stride, UPPER_LOG2)
            };
            columns.push(Column { shift, in_leaf, offset: *stride });
            *stride += 1u32 << (log2 - shift);
        }
        Pages {
            leaves: Vec::new(),
            by_number: FxHashMap::default(),
            uppers: Vec::new(),
            upper_by_number: FxHashMap::default(),
            recent: (u64::MAX, 0),
            columns,
            leaf_stride,
            upper_stride,
            leaf_words: leaf_stride * levels as u32,
            upper_words: upper_stride * levels as u32,
            stamps: Stamps::default(),
        }
    }

    /// The location of the state of base page `page`, which is created if it is new.
    #[inline(always)]
    pub fn spot(&mut self, page: u64) -> Spot {
        let number = page >> LEAF_LOG2;
        if self.recent.0 != number {
            let leaf = match self.by_number.get(&number) {
                Some(leaf) => *leaf,
                None => self.add_leaf(number),
            };
            self.recent = (number, leaf);
        }
        self.leaves[self.recent.1 as usize].spot
    }

    #[cold]
    fn add_leaf(&mut self, number: u64) -> u32 {
        let leaf = self.leaves.len() as u32;
        let leaf_stamps = self.add_stamps(self.leaf_words);
        let upper_number = number >> (UPPER_LOG2 - LEAF_LOG2);
        let upper = match self.upper_by_number.get(&upper_number) {
            Some(upper) => *upper,
            None => {
                let upper = self.uppers.len() as u32;
                let stamps = self.add_stamps(self.upper_words);
                self.uppers.push(Upper { stamps, in_front: Bits512::default() });
                self.upper_by_number.insert(upper_number, upper);
                upper
            }
        };
        let upper_stamps = self.uppers[upper as usize].stamps;
        let spot = Spot { leaf, leaf_stamps, upper_stamps };
        self.leaves.push(Leaf {
            number,
            spot,
            upper,
            in_front: Bits512::default(),
            slots: [0; LEAF_PAGES],
            regions: [0; LEAF_PAGES],
            touched: Bits512::default(),
        });
        self.by_number.insert(number, leaf);
        leaf
    }

    fn add_stamps(&mut self, words: u32) -> u32 {
        let first = self.stamps.0.len();
        let end = first + words as usize;
        assert!(u32::try_from(end).is_ok(), "the program touches more memory than can be followed");
        self.stamps.0.resize(end, 0);
        first as u32
    }

    /// The place of base page `page`, at `spot`, in the recency order of size number `size` at
    /// `level`.
    #[inline(always)]
    pub fn place(&self, spot: Spot, page: u64, size: usize, level: usize) -> Place {
        let column = self.columns[size];
        let (base, stride, mask) = if column.in_leaf {
            (spot.leaf_stamps, self.leaf_stride, (1u64 << LEAF_LOG2) - 1)
        } else {
            (spot.upper_stamps, self.upper_stride, (1u64 << UPPER_LOG2) - 1)
        };
        let index = ((page & mask) >> column.shift) as u32;
        Place(base + level as u32 * stride + column.offset + index)
    }

    /// Sets every stamp of size number `size` at `level` to 0.
    pub fn clear_stamps(&mut self, size: usize, level: usize) {
        let column = self.columns[size];
        let (stride, log2, bases): (_, _, Vec<u32>) = if column.in_leaf {
            let bases = self.leaves.iter().map(|leaf| leaf.spot.leaf_stamps);
            (self.leaf_stride, LEAF_LOG2, bases.collect())
        } else {
            let bases = self.uppers.iter().map(|upper| upper.stamps);
            (self.upper_stride, UPPER_LOG2, bases.collect())
        };
        for base in bases {
            let first = (base + level as u32 * stride + column.offset) as usize;
            self.stamps.0[first..first + (1 << (log2 - column.shift))].fill(0);
        }
    }

    /// The leaf of a base page.
    #[inline(always)]
    pub fn leaf(&mut self, spot: Spot) -> &mut Leaf {
        &mut self.leaves[spot.leaf as usize]
    }

    /// Records that a base page enters the front. Returns the least base-page shift at which the larger page that
    /// contains it contains another base page in the front; above the shift of all page sizes if there is none.
    #[inline(always)]
    pub fn enter_front(&mut self, spot: Spot, page: u64, slot: usize) -> u8 {
        let leaf = &mut self.leaves[spot.leaf as usize];
        let index = page as usize % LEAF_PAGES;
        leaf.slots[index] = slot as u8;
        let nearest = leaf.in_front.nearest(index);
        let was_empty = leaf.in_front.is_empty();
        leaf.in_front.insert_new(index);
        if !was_empty {
            return nearest;
        }
        let in_upper = leaf.number as usize % LEAF_PAGES;
        let upper = &mut self.uppers[leaf.upper as usize].in_front;
        let nearest = upper.nearest(in_upper);
        upper.insert_new(in_upper);
        LEAF_LOG2 + nearest
    }

    /// Records that a base page leaves the front. Returns the least base-page shift at which the larger page that
    /// contains it contains another base page in the front; above the shift of all page sizes if there is none.
    #[inline(always)]
    pub fn leave_front(&mut self, spot: Spot, page: u64) -> u8 {
        let leaf = &mut self.leaves[spot.leaf as usize];
        let index = page as usize % LEAF_PAGES;
        leaf.in_front.remove(index);
        if !leaf.in_front.is_empty() {
            return leaf.in_front.nearest(index);
        }
        let in_upper = leaf.number as usize % LEAF_PAGES;
        let upper = &mut self.uppers[leaf.upper as usize].in_front;
        upper.remove(in_upper);
        LEAF_LOG2 + upper.nearest(in_upper)
    }

    /// Drops regions and touches of the base pages in `first..end`, whose mapping has changed.
    pub fn invalidate(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let (first_leaf, last_leaf) = (first >> LEAF_LOG2, (end - 1) >> LEAF_LOG2);
        // For a wide range, visits the existing leaves instead of all numbers in the range.
        if last_leaf - first_leaf > self.leaves.len() as u64 {
            for leaf in &mut self.leaves {
                leaf.invalidate(first, end);
            }
        } else {
            for number in first_leaf..=last_leaf {
                if let Some(leaf) = self.by_number.get(&number) {
                    self.leaves[*leaf as usize].invalidate(first, end);
                }
            }
        }
    }
}

impl Leaf {
    /// The region of a base page, if it is known.
    #[inline(always)]
    pub fn region(&self, page: u64) -> Option<RegionId> {
        self.regions[page as usize % LEAF_PAGES].checked_sub(1).map(RegionId)
    }

    /// Sets the region of a base page.
    pub fn set_region(&mut self, page: u64, region: RegionId) {
        self.regions[page as usize % LEAF_PAGES] = region.0 + 1;
    }

    /// Marks a base page as touched. Returns whether it was not before.
    #[inline(always)]
    pub fn touch(&mut self, page: u64) -> bool {
        self.touched.insert(page as usize % LEAF_PAGES)
    }

    /// The front slot that a base page is in.
    #[inline(always)]
    pub fn slot(&self, page: u64) -> Option<usize> {
        let index = page as usize % LEAF_PAGES;
        self.in_front.contains(index).then(|| usize::from(self.slots[index]))
    }

    fn invalidate(&mut self, first: u64, end: u64) {
        let start = self.number << LEAF_LOG2;
        let low = first.max(start);
        let high = end.min(start + LEAF_PAGES as u64);
        for page in low..high.max(low) {
            let index = page as usize % LEAF_PAGES;
            self.regions[index] = 0;
            self.touched.remove(index);
        }
    }
}

/// The time at which each page was last inserted into each recency order; 0 for never.
#[derive(Default)]
pub struct Stamps(Vec<u32>);

impl std::ops::Index<Place> for Stamps {
    type Output = u32;
    #[inline(always)]
    fn index(&self, place: Place) -> &u32 {
        &self.0[place.0 as usize]
    }
}

impl std::ops::IndexMut<Place> for Stamps {
    #[inline(always)]
    fn index_mut(&mut self, place: Place) -> &mut u32 {
        &mut self.0[place.0 as usize]
    }
}
