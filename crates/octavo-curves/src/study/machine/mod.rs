//! The TLBs of a real machine: a first level for code and one for data, set-associative or not, a
//! second level that both share, and page walks behind it, at each page size that the machine's
//! arrays hold, as if all memory had that size.
//!
//! Misses are exact, but hits cost nothing: as long as a base page is in the [`Front`] of its stream,
//! and its entries are in the first level, references to it change only when those entries were used
//! last, which the front knows. So an array is asked only when a page enters the front, when it leaves
//! it (then its entries get their times), and when an entry is evicted whose pages are in the front:
//! the front *forbids* those pages then, and the next reference asks again.
//!
//! A first-level miss asks the second level in program order. The study goes through a segment's
//! fetches before its data, so misses of fetches wait until the data before them have been served.
//!
//! Changes of TLBs by the operating system are modelled for base pages as in `octavo-machine`
//! ([`pages`]): unmapping, moving and protecting pages invalidates their entries, a first store to a
//! page walks the page table once more, to set its dirty bit, and makes its second-level entry the most
//! recent. Larger pages have dirty bits alone, and lose the entries that overlap a range.

mod config;
mod first_level;
mod pages;
mod second_level;

use octavo_trace::RegionId;
use octavo_types::{AddrRange, Event, PageSize};
use rustc_hash::FxHashSet;

use super::front::Front;
pub use config::NotModelled;
use first_level::FirstLevel;
use pages::{Change, PageStates};
use second_level::SecondLevel;

/// The TLBs of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineTlbs {
    /// One for each page size, the smallest first, which is 4 KiB.
    pub sizes: Vec<TlbsOfSize>,
}

/// The arrays that pages of one size go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbsOfSize {
    /// The page size.
    pub page_size: PageSize,
    /// The first level for code.
    pub fetch: ArrayShape,
    /// The first level for data.
    pub data: ArrayShape,
    /// The second level, which is shared, if there is one.
    pub second: Option<ArrayShape>,
}

/// An array with LRU replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayShape {
    /// Bytes that an entry covers: the page size, or a part of it where the array holds no pages so large.
    pub entry_size: PageSize,
    /// Sets, chosen by the low bits of the page number (by the remainder where it is not a power of two).
    pub sets: u32,
    /// Entries of a set.
    pub ways: u32,
}

impl ArrayShape {
    /// Entries of all sets.
    pub fn entries(&self) -> u32 {
        self.sets * self.ways
    }
}

/// Accesses and misses of one stream at one level of the machine's TLBs at one page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineCurve {
    /// The page size.
    pub page_size: PageSize,
    /// The level, from 1. Misses of the last one are page walks.
    pub level: u32,
    /// Its entries.
    pub entries: u32,
    /// Entries of a set.
    pub ways: u32,
    /// Look-ups.
    pub accesses: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
}

/// Which first level a stream has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first level for code.
    Fetch,
    /// The first level for data.
    Data,
}

/// References to a page that the front did not let pass.
#[derive(Clone, Copy)]
pub struct Touch {
    /// The stream that it belongs to.
    pub side: Side,
    /// The base page, as traced.
    pub traced: u64,
    /// The base page, relocated.
    pub page: u64,
    /// Its region.
    pub region: RegionId,
    /// The slot of the front that it is in.
    pub slot: usize,
    /// Whether any of them is a store.
    pub stores: bool,
    /// Where in its segment it is, so that fetches and data can be put in order.
    pub order: u32,
}

/// A fetch that missed the first level, and is still to ask the second.
struct Waiting {
    size: usize,
    page: u64,
    region: RegionId,
    order: u32,
}

/// The arrays of one page size.
struct OfSize {
    tlbs: TlbsOfSize,
    first: [FirstLevel; 2],
    second: Option<SecondLevel>,
    /// Pages that were stored to; of larger sizes than 4 KiB.
    dirty: FxHashSet<u64>,
}

impl OfSize {
    fn new(tlbs: &TlbsOfSize) -> Self {
        OfSize {
            tlbs: *tlbs,
            first: [FirstLevel::new(&tlbs.fetch), FirstLevel::new(&tlbs.data)],
            second: tlbs.second.as_ref().map(SecondLevel::new),
            dirty: FxHashSet::default(),
        }
    }
}

/// A machine's TLBs at work for one process.
pub struct MachineState {
    sizes: Vec<OfSize>,
    pages: PageStates,
    waiting: Vec<Waiting>,
    /// Base pages that got a copy of their own, which the first level for code is still to drop.
    copied: Vec<u64>,
    /// By side: misses, `[region][size][level]` flat.
    misses: [Vec<u64>; 2],
    /// The sizes, a bit each, at which an access to data has missed all levels since this was asked for.
    walked: u32,
}

impl MachineState {
    /// Empty TLBs.
    ///
    /// # Panics
    /// Where the first size is not 4 KiB, or an array has no entries.
    pub fn new(config: &MachineTlbs) -> Self {
        assert!(config.sizes.first().is_some_and(|first| first.page_size == PageSize::BASE));
        MachineState {
            sizes: config.sizes.iter().map(OfSize::new).collect(),
            pages: PageStates::default(),
            waiting: Vec::new(),
            copied: Vec::new(),
            misses: [Vec::new(), Vec::new()],
            walked: 0,
        }
    }

    /// The page sizes.
    pub fn page_sizes(&self) -> impl Iterator<Item = PageSize> + '_ {
        self.sizes.iter().map(|of| of.tlbs.page_size)
    }

    /// The sizes, a bit each, at which an access to data has missed all levels since the last call.
    pub fn take_walked(&mut self) -> u32 {
        std::mem::take(&mut self.walked)
    }

    /// A page has left the front; it was used last at `used`, and shares its page of every size from
    /// base-page shift `shares` on with another one in the front.
    pub fn left(&mut self, side: Side, page: u64, used: u64, shares: u8) {
        for of in &mut self.sizes {
            let first = &mut of.first[side as usize];
            if first.shift() < shares {
                first.leave_front(page, used);
            }
        }
    }

    /// A page has entered the front, and shares its page of every size from base-page shift `shares` on
    /// with another one there.
    pub fn entered(&mut self, front: &mut Front, touch: Touch, shares: u8) {
        // Where nothing is forbidden, all that is in the front is in the first level.
        let shares = if front.forbids_any() { u8::MAX } else { shares };
        self.look_up(front, touch, shares);
    }

    /// A page of the front was not let pass.
    pub fn again(&mut self, front: &mut Front, touch: Touch) {
        if front.is_forbidden(touch.slot) {
            front.allow(touch.slot, touch.traced);
            self.look_up(front, touch, u8::MAX);
        } else if touch.stores && front.is_store_forbidden(touch.slot) {
            self.store(touch);
            front.allow(touch.slot, touch.traced);
        }
    }

    /// Looks a page up at all sizes but those from base-page shift `resident` on.
    fn look_up(&mut self, front: &mut Front, touch: Touch, resident: u8) {
        let mut is_ready = false;
        for size in 0..self.sizes.len() {
            let first = &mut self.sizes[size].first[touch.side as usize];
            if first.shift() >= resident {
                continue;
            }
            match first.find(touch.page) {
                Some(entry) => {
                    first.use_by_front(entry, touch.slot);
                    is_ready |= size == 0 && first.ready[entry];
                }
                None => is_ready |= self.miss_first(front, size, touch) && size == 0,
            }
        }
        if touch.side == Side::Data && !is_ready {
            if touch.stores {
                self.store(touch);
            } else {
                front.forbid_stores(touch.slot);
            }
        }
    }

    /// The first level has missed. Returns whether the page may be stored to without a walk, as far as
    /// that is known.
    fn miss_first(&mut self, front: &mut Front, size: usize, touch: Touch) -> bool {
        self.count(touch.side, touch.region, size, 0);
        let first = &mut self.sizes[size].first[touch.side as usize];
        let entry = first.fill_for_front(touch.page, touch.slot, front);
        if touch.side == Side::Fetch {
            let Touch { page, region, order, .. } = touch;
            self.waiting.push(Waiting { size, page, region, order });
            return false;
        }
        self.serve_fetches(touch.order);
        let is_ready = self.ask_second(size, touch.page, touch.side, touch.region);
        self.sizes[size].first[touch.side as usize].ready[entry] = is_ready;
        is_ready
    }

    /// The second level is asked, and on a miss the page table. Returns as [`MachineState::miss_first`].
    fn ask_second(&mut self, size: usize, page: u64, side: Side, region: RegionId) -> bool {
        let of = &mut self.sizes[size];
        if let Some(second) = &mut of.second
            && let Some(is_ready) = second.look_up(page)
        {
            return is_ready;
        }
        self.walked |= u32::from(side == Side::Data) << size;
        let is_ready = size == 0 && self.pages.walk(page, side == Side::Fetch);
        if let Some(second) = &mut of.second {
            second.insert_missed(page, is_ready);
            self.count(side, region, size, 1);
        }
        is_ready
    }

    /// The first store to a page since it became clean: it is walked to at all sizes at which it is clean.
    fn store(&mut self, touch: Touch) {
        self.serve_fetches(touch.order);
        for (size, of) in self.sizes.iter_mut().enumerate() {
            if size == 0 {
                if self.pages.store(touch.page) {
                    self.copied.push(touch.page);
                }
                let first = &mut of.first[Side::Data as usize];
                if let Some(entry) = first.find(touch.page) {
                    first.ready[entry] = true;
                }
            } else if !of.dirty.insert(touch.page >> of.tlbs.page_size.base_shift()) {
                continue;
            }
            if let Some(second) = &mut of.second {
                second.insert(touch.page, size == 0);
            }
        }
    }

    /// Fetches that come before a place in the segment ask the second level.
    #[inline(always)]
    fn serve_fetches(&mut self, order: u32) {
        if self.waiting.first().is_some_and(|waiting| waiting.order < order) {
            self.serve_waiting(order);
        }
    }

    #[cold]
    fn serve_waiting(&mut self, order: u32) {
        let before = self.waiting.iter().take_while(|waiting| waiting.order < order).count();
        let mut waiting = std::mem::take(&mut self.waiting);
        for Waiting { size, page, region, .. } in waiting.drain(..before) {
            self.ask_second(size, page, Side::Fetch, region);
        }
        self.waiting = waiting;
    }

    /// Whether [`MachineState::end_segment`] has anything to do.
    #[inline(always)]
    pub fn is_behind(&self) -> bool {
        !self.waiting.is_empty() || !self.copied.is_empty()
    }

    /// A segment is over; `fetched` is the front of fetches.
    #[cold]
    pub fn end_segment(&mut self, fetched: &mut Front) {
        self.serve_waiting(u32::MAX);
        for page in std::mem::take(&mut self.copied) {
            if self.sizes[0].first[Side::Fetch as usize].invalidate(page..page + 1) {
                fetched.forbid_all();
            }
        }
    }

    /// An event, its ranges relocated. Returns whether entries were invalidated, so that both fronts have
    /// to forbid all that they hold.
    pub fn event(&mut self, event: &Event, relocate: impl Fn(AddrRange) -> AddrRange) -> bool {
        let mut invalidated = false;
        for Change { stale, gone } in self.pages.event(event, relocate) {
            for of in &mut self.sizes {
                for first in &mut of.first {
                    invalidated |= first.invalidate(stale.clone());
                }
                if let Some(second) = &mut of.second {
                    invalidated |= second.invalidate(stale.clone());
                }
                let shift = of.tlbs.page_size.base_shift();
                if let Some(gone) = &gone
                    && shift > 0
                    && !of.dirty.is_empty()
                {
                    let whole = gone.start.div_ceil(1 << shift)..gone.end >> shift;
                    of.dirty.retain(|page| !whole.contains(page));
                }
            }
        }
        invalidated
    }

    /// A stream has missed a level (from 0) in a region.
    #[inline(always)]
    fn count(&mut self, side: Side, region: RegionId, size: usize, level: usize) {
        let row = self.sizes.len() * 2;
        let at = usize::from(region.0) * row + size * 2 + level;
        let misses = &mut self.misses[side as usize];
        if misses.len() <= at {
            misses.resize((usize::from(region.0) + 1) * row, 0);
        }
        misses[at] += 1;
    }

    /// Drops arrays and pages: only results are read from now on.
    pub fn keep_results_only(&mut self) {
        *self = self.results_only();
    }

    /// The results so far, with empty arrays and without pages.
    pub fn results_only(&self) -> Self {
        MachineState {
            sizes: self.sizes.iter().map(|of| OfSize::new(&of.tlbs)).collect(),
            pages: PageStates::default(),
            waiting: Vec::new(),
            copied: Vec::new(),
            misses: self.misses.clone(),
            walked: 0,
        }
    }

    /// The misses so far.
    pub fn checkpoint(&self) -> [Vec<u64>; 2] {
        self.misses.clone()
    }

    /// Sets the misses to those of a checkpoint; the TLBs stay as they are.
    pub fn roll_back(&mut self, to: [Vec<u64>; 2]) {
        self.misses = to;
    }

    /// Accesses and misses of a region, or of all together, given the look-ups of the first level at each
    /// page size.
    pub fn curves(
        &self,
        side: Side,
        region: Option<usize>,
        accesses: impl Fn(PageSize) -> u64,
    ) -> Vec<MachineCurve> {
        let row = self.sizes.len() * 2;
        let mut curves = Vec::new();
        for (size, of) in self.sizes.iter().enumerate() {
            let rows = self.misses[side as usize].chunks(row).enumerate();
            let rows = rows.filter(|(number, _)| region.is_none_or(|region| region == *number));
            let misses = rows.fold([0, 0], |sum: [u64; 2], (_, row)| {
                [sum[0] + row[size * 2], sum[1] + row[size * 2 + 1]]
            });
            let TlbsOfSize { page_size, fetch, data, second } = of.tlbs;
            let first = if side == Side::Fetch { fetch } else { data };
            let levels = std::iter::once(first).chain(second).zip(misses);
            let mut accesses = accesses(page_size);
            for ((shape, misses), level) in levels.zip(1..) {
                let (entries, ways) = (shape.entries(), shape.ways);
                curves.push(MachineCurve { page_size, level, entries, ways, accesses, misses });
                accesses = misses;
            }
        }
        curves
    }
}
