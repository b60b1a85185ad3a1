//! One stream of references, fetches or data, in TLBs of every page size at once.
//!
//! The TLBs are exact fully associative LRU, in two parts. The front holds the base pages used last.
//! Behind it, a recency order for each page size holds the pages of that size that are in the TLB but
//! have no base page in the front. A page of size *S* is in the TLB if it contains a base page in the
//! front (the nearest page in the front decides this for all sizes at once), or if the order holds it.
//! The pages of a size in the front and in the order are together the TLB's contents; if they exceed its
//! entries, the oldest page in the order is evicted.

use octavo_trace::RegionId;
use octavo_types::PageSize;

use super::front::{FRONT, Front, Page};
use super::machine::{MachineState, Side, Touch};
use super::pages::{Pages, Place, Spot};
use super::recency::Recency;
use crate::footprint::PageSet;
use crate::sizes::Sizes;

/// Misses between two checks whether stamps of recency orders run out.
const RENUMBER_CHECK_MISSES: u32 = 1 << 20;
/// Spilled look-ups are counted by how aligned the page boundary is; from 2^18 pages it is 1 GiB.
const ALIGNMENTS: usize = 19;

/// Entries of each TLB level, all fully associative. Level *n + 1* is looked up on a miss of level *n*, and
/// both are filled.
pub type Levels = Vec<u32>;

/// Accesses and misses of one level at one page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    /// The page size.
    pub page_size: PageSize,
    /// The level, from 1.
    pub level: u32,
    /// Its entries.
    pub entries: u32,
    /// Look-ups.
    pub accesses: u64,
    /// Look-ups that missed.
    pub misses: u64,
}

/// The first level of one page size.
struct First {
    behind: Recency,
    /// Pages in the TLB: in the front and in `behind`.
    filled: u32,
}

/// A further level at one page size.
struct Further {
    order: Recency,
    filled: u32,
    entries: u32,
}

/// The counts of a region.
#[derive(Clone)]
pub struct RegionTally {
    /// References.
    pub references: u64,
    /// Misses, `[level][size]` flat.
    misses: Vec<u64>,
    /// Second halves of references that span base pages, by the alignment of the page boundary.
    spilled: [u64; ALIGNMENTS],
    /// Base pages touched, or present when counting began.
    pub touched: PageSet,
}

/// The process's memory, which the stream queries for new pages.
pub trait Memory {
    /// The relocated number of a traced base page.
    fn relocate(&mut self, traced: u64) -> u64;
    /// The region of a traced base page.
    fn region(&mut self, traced: u64) -> RegionId;
    /// Records the first touch of a base page of a region since it was mapped; `page` is its relocated number.
    fn touched(&mut self, traced: u64, page: u64, region: RegionId);
    /// The TLBs of a machine, which get all references, too, if there are any.
    fn machine(&mut self) -> Option<&mut MachineState>;
}

/// Consecutive references to one base page.
#[derive(Clone, Copy)]
pub struct Access {
    /// The page, as traced.
    pub traced: u64,
    /// Number of references; 0 for the second half of a reference that spans pages.
    pub references: u64,
    /// Whether any of them is a store.
    pub stores: bool,
    /// The position in the segment, which puts fetches and data in order.
    pub order: u32,
}

/// A stream and its TLBs.
pub struct PageStream {
    side: Side,
    front: Front,
    pages: Pages,
    sizes: Sizes,
    levels: Levels,
    first: Vec<First>,
    further: Vec<Vec<Further>>,
    regions: Vec<RegionTally>,
    until_renumber_check: u32,
    /// Number of sizes, from the first on, whose TLB lies entirely in the front: 1 if base pages are studied
    /// and the front has as many slots as the TLB has entries, else 0.
    in_front_alone: usize,
    /// A bit for each size at which an access has missed all levels since the last [`PageStream::take_missed`].
    missed: u32,
}

impl PageStream {
    /// TLBs of `levels` at each of `sizes`. There must be at least one of each, and no level
    /// without entries.
    pub fn new(side: Side, sizes: Sizes, levels: Levels) -> Self {
        assert!(
            !sizes.is_empty() && !levels.is_empty() && levels.iter().all(|entries| *entries > 0)
        );
        let entries = levels[0];
        let first = (0..sizes.len()).map(|_| First { behind: Recency::new(entries), filled: 0 });
        let further = levels[1..].iter().map(|&entries| {
            let level = |_| Further { order: Recency::new(entries), filled: 0, entries };
            (0..sizes.len()).map(level).collect()
        });
        PageStream {
            side,
            front: Front::new((entries as usize).min(FRONT)),
            in_front_alone: (entries as usize <= FRONT && sizes.below(1) == 1).into(),
            pages: Pages::new(&sizes, levels.len()),
            first: first.collect(),
            further: further.collect(),
            sizes,
            levels,
            regions: Vec::new(),
            until_renumber_check: RENUMBER_CHECK_MISSES,
            missed: 0,
        }
    }

    /// A bit for each size at which an access has missed all levels since the last call.
    pub fn take_missed(&mut self) -> u32 {
        std::mem::take(&mut self.missed)
    }

    /// As [`Front::reserve`].
    #[inline(always)]
    pub fn reserve(&mut self) {
        self.front.reserve();
    }

    /// The base pages used last.
    pub fn front(&mut self) -> &mut Front {
        &mut self.front
    }

    /// Makes `references` references to a traced base page, if the front finds it at once. Returns whether it did.
    #[inline(always)]
    pub fn access_at_once(&mut self, traced: u64, references: u64, stores: bool) -> bool {
        let slot = self.front.guess(traced, stores);
        if let Some(slot) = slot {
            self.front.use_slot(slot, references);
        }
        slot.is_some()
    }

    /// Makes references to a base page.
    #[inline(always)]
    pub fn access(&mut self, access: Access, memory: &mut impl Memory) {
        if !self.access_at_once(access.traced, access.references, access.stores) {
            self.access_slow(access, memory);
        }
    }

    /// Makes the second half of a reference that spans into a base page: a look-up, at the page sizes at which
    /// the two pages differ, but not a reference.
    #[inline(never)]
    pub fn access_spilled(&mut self, access: Access, memory: &mut impl Memory) {
        let traced = access.traced;
        self.access(Access { references: 0, ..access }, memory);
        let alignment = (memory.relocate(traced).trailing_zeros() as usize).min(ALIGNMENTS - 1);
        let region = memory.region(traced);
        self.tally(region).spilled[alignment] += 1;
    }

    /// Makes references to a page that the front did not find at once.
    #[inline(never)]
    pub fn access_slow(&mut self, access: Access, memory: &mut impl Memory) {
        let Access { traced, references, stores, order } = access;
        self.front.reserve();
        let page = memory.relocate(traced);
        let spot = self.pages.spot(page);
        let leaf = self.pages.leaf(spot);
        let (known, is_first, slot) = (leaf.region(page), leaf.touch(page), leaf.slot(page));
        let region = known.unwrap_or_else(|| self.set_region(spot, page, memory.region(traced)));
        if is_first {
            memory.touched(traced, page, region);
            self.tally(region).touched.insert(page);
        }
        let touch = |slot| Touch { side: self.side, traced, page, region, slot, stores, order };
        if let Some(slot) = slot {
            let touch = touch(slot);
            if let Some((old, owed)) = self.front.find(slot, traced, region) {
                self.tally(old).references += owed;
            }
            self.front.use_slot(slot, references);
            if let Some(machine) = memory.machine() {
                machine.again(&mut self.front, touch);
            }
            return;
        }
        let (slot, leaver) = self.front.make_room();
        let touch = touch(slot);
        if let Some((leaver, owed)) = leaver {
            self.regions[usize::from(leaver.region.0)].references += owed;
            let shares = self.put_behind(leaver);
            if let Some(machine) = memory.machine() {
                machine.left(self.side, leaver.number, self.front.used(slot), shares);
            }
        }
        let shares = self.pages.enter_front(spot, page, slot);
        self.look_behind(page, spot, region, shares);
        self.front.put(slot, traced, Page { number: page, spot, region }, references);
        if let Some(machine) = memory.machine() {
            machine.entered(&mut self.front, touch, shares);
        }
        self.front.find_least();
        self.until_renumber_check -= 1;
        if self.until_renumber_check == 0 {
            self.renumber_late_orders();
        }
    }

    /// Moves a base page that leaves the front into the recency orders, at the sizes at which the page that
    /// contains it contains no other base page in the front. Returns the least base-page shift at which it does.
    #[inline(always)]
    fn put_behind(&mut self, leaver: Page) -> u8 {
        let shares = self.pages.leave_front(leaver.spot, leaver.number);
        let apart = self.sizes.below(shares);
        let least = self.in_front_alone.min(apart);
        for (size, first) in (least..apart).zip(&mut self.first[least..apart]) {
            let place = self.pages.place(leaver.spot, leaver.number, size, 0);
            first.behind.push(place, &mut self.pages.stamps);
        }
        shares
    }

    /// Looks up a base page that enters the front, at the sizes at which the page that contains it contains no
    /// other base page in the front, and removes it from the recency orders. From base-page shift `shares` on it
    /// contains another one.
    #[inline(always)]
    fn look_behind(&mut self, page: u64, spot: Spot, region: RegionId, shares: u8) {
        let sizes = self.sizes.len();
        let apart = self.sizes.below(shares);
        let misses = &mut self.regions[usize::from(region.0)].misses;
        for (size, first) in self.first.iter_mut().enumerate().take(apart) {
            if size >= self.in_front_alone {
                let place = self.pages.place(spot, page, size, 0);
                if first.behind.contains(place, &self.pages.stamps) {
                    first.behind.remove(place, &self.pages.stamps);
                    continue;
                }
                if first.filled == self.levels[0] {
                    first.behind.drop_oldest();
                } else {
                    first.filled += 1;
                }
            }
            misses[size] += 1;
            let mut missed = 1;
            for (level, further) in self.further.iter_mut().enumerate() {
                let place = self.pages.place(spot, page, size, level + 1);
                if further[size].access(place, &mut self.pages) {
                    missed = 0;
                    break;
                }
                misses[(level + 1) * sizes + size] += 1;
            }
            self.missed |= missed << size;
        }
    }

    /// Sets the region of a base page, and returns it.
    #[cold]
    fn set_region(&mut self, spot: Spot, page: u64, region: RegionId) -> RegionId {
        self.pages.leaf(spot).set_region(page, region);
        self.tally(region);
        region
    }

    /// Adds a relocated base page to the memory of a region without a reference.
    pub fn present(&mut self, page: u64, region: RegionId) {
        self.tally(region).touched.insert(page);
    }

    fn tally(&mut self, region: RegionId) -> &mut RegionTally {
        let needed = usize::from(region.0) + 1;
        if self.regions.len() < needed {
            let zero = RegionTally {
                references: 0,
                misses: vec![0; self.sizes.len() * self.levels.len()],
                spilled: [0; ALIGNMENTS],
                touched: PageSet::default(),
            };
            self.regions.resize(needed, zero);
        }
        &mut self.regions[usize::from(region.0)]
    }

    #[cold]
    #[inline(never)]
    fn renumber_late_orders(&mut self) {
        self.until_renumber_check = RENUMBER_CHECK_MISSES;
        for size in 0..self.sizes.len() {
            let first = std::iter::once(&mut self.first[size].behind);
            let further = self.further.iter_mut().map(|level| &mut level[size].order);
            for (level, order) in first.chain(further).enumerate() {
                if order.is_late() {
                    let pages = order.pages();
                    self.pages.clear_stamps(size, level);
                    order.renumber(pages, &mut self.pages.stamps);
                }
            }
        }
    }

    /// Records that the mapping of the traced base pages `first..end`, relocated from `page` on, has changed: drops
    /// their regions, and makes the next touch a first one.
    pub fn mapping_changed(&mut self, first: u64, end: u64, page: u64) {
        self.front.invalidate(first, end);
        self.pages.invalidate(page, page + (end - first));
    }

    /// The counts of each region so far, without the pages touched.
    pub fn checkpoint(&mut self) -> Vec<RegionTally> {
        for (region, references) in self.front.take_owed() {
            self.tally(region).references += references;
        }
        let without_pages = |region: &RegionTally| RegionTally {
            references: region.references,
            misses: region.misses.clone(),
            spilled: region.spilled,
            touched: PageSet::default(),
        };
        self.regions.iter().map(without_pages).collect()
    }

    /// Sets the counts of each region to those of a checkpoint. References since then have changed the TLBs and
    /// the touched pages, but are not counted.
    pub fn roll_back(&mut self, mut to: Vec<RegionTally>) {
        self.front.take_owed();
        for (index, region) in self.regions.iter_mut().enumerate() {
            let mut zero = RegionTally {
                references: 0,
                misses: vec![0; region.misses.len()],
                spilled: [0; ALIGNMENTS],
                touched: PageSet::default(),
            };
            let before = to.get_mut(index).unwrap_or(&mut zero);
            region.references = before.references;
            region.misses = std::mem::take(&mut before.misses);
            region.spilled = before.spilled;
        }
    }

    /// Drops the TLBs and pages, if only results are read from now on.
    pub fn keep_results_only(&mut self) {
        *self = self.results_only();
    }

    /// The results so far, without TLBs and pages.
    pub fn results_only(&self) -> Self {
        PageStream {
            side: self.side,
            front: Front::new(1),
            pages: Pages::new(&self.sizes, self.levels.len()),
            sizes: self.sizes.clone(),
            levels: self.levels.clone(),
            first: Vec::new(),
            further: Vec::new(),
            regions: self.regions(),
            until_renumber_check: self.until_renumber_check,
            in_front_alone: self.in_front_alone,
            missed: 0,
        }
    }

    /// Misses of the first level at each page size, all regions together.
    pub fn first_level_misses(&self) -> Vec<u64> {
        let misses = |size| self.regions.iter().map(|region| region.misses[size]).sum();
        (0..self.sizes.len()).map(misses).collect()
    }

    /// The counts of each region, by [`RegionId`].
    pub fn regions(&self) -> Vec<RegionTally> {
        let mut regions = self.regions.clone();
        for (region, references) in self.front.owed().filter(|(_, references)| *references > 0) {
            regions[usize::from(region.0)].references += references;
        }
        regions
    }

    /// The curves of a tally of one or several regions.
    pub fn curves(&self, tally: &RegionTally) -> Vec<Curve> {
        let mut curves = Vec::new();
        for (size, page_size) in self.sizes.iter().enumerate() {
            let mut accesses = tally.lookups(page_size);
            for (level, &entries) in self.levels.iter().enumerate() {
                let misses = tally.misses[level * self.sizes.len() + size];
                let level = level as u32 + 1;
                curves.push(Curve { page_size, level, entries, accesses, misses });
                accesses = misses;
            }
        }
        curves
    }

    /// Sets every order's next stamp, checks stamps soon, and sets the front's time shortly before renumbering, for
    /// tests.
    #[cfg(test)]
    pub fn start_stamps_at(&mut self, next: u32) {
        self.front.start_late();
        self.first.iter_mut().for_each(|first| first.behind.start_at(next));
        self.further.iter_mut().flatten().for_each(|further| further.order.start_at(next));
        self.until_renumber_check = 100;
    }
}

impl RegionTally {
    /// Look-ups of the first level at a page size: references, and second halves of references that span two pages of
    /// that size.
    pub fn lookups(&self, page_size: PageSize) -> u64 {
        let shift = usize::from(page_size.base_shift());
        let spilled: u64 = self.spilled[shift.min(ALIGNMENTS - 1)..].iter().sum();
        self.references + spilled
    }

    /// Adds another region's tally to this one.
    pub fn add(&mut self, other: &RegionTally) {
        self.references += other.references;
        let sums = self.misses.iter_mut().chain(&mut self.spilled);
        sums.zip(other.misses.iter().chain(&other.spilled)).for_each(|(sum, more)| *sum += more);
        self.touched.union(&other.touched);
    }
}

impl Further {
    /// Looks up a page, and inserts it on a miss. Returns whether it hit.
    #[inline(always)]
    fn access(&mut self, place: Place, pages: &mut Pages) -> bool {
        let hit = self.order.contains(place, &pages.stamps);
        if hit {
            self.order.remove(place, &pages.stamps);
        } else if self.filled == self.entries {
            self.order.drop_oldest();
        } else {
            self.filled += 1;
        }
        self.order.push(place, &mut pages.stamps);
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Flat;

    impl Memory for Flat {
        fn relocate(&mut self, traced: u64) -> u64 {
            traced
        }
        fn region(&mut self, _: u64) -> RegionId {
            RegionId(0)
        }
        fn touched(&mut self, _: u64, _: u64, _: RegionId) {}
        fn machine(&mut self) -> Option<&mut MachineState> {
            None
        }
    }

    fn run(start: Option<u32>) -> Vec<Curve> {
        let sizes = (12..=30).step_by(3).map(|log2| PageSize::from_log2(log2).unwrap()).collect();
        let mut stream = PageStream::new(Side::Data, Sizes::new(sizes), vec![32, 64]);
        if let Some(start) = start {
            stream.start_stamps_at(start);
        }
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // 1024 hot pages, and sometimes a random page in 16 GiB.
            let page = if state >> 61 == 0 { state >> 42 } else { state >> 54 };
            stream.reserve();
            let access = Access { traced: page, references: 1, stores: false, order: 0 };
            stream.access(access, &mut Flat);
        }
        let regions = stream.regions();
        stream.curves(&regions[0])
    }

    #[test]
    fn stamps_that_run_out_are_renumbered() {
        // Without renumbering, the stamps would pass 2^32 and the counts go wrong.
        assert_eq!(run(Some(u32::MAX - 100_000)), run(None));
    }
}
