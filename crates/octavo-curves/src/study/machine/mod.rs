//! The TLBs of a real machine: a first level for code and one for data, a second level that both share, and
//! page walks behind it, at each page size that the machine's arrays hold, as if all memory had that size.
//!
//! Misses are exact, but hits cost nothing. As long as a base page is in the [`Front`] of its stream, and
//! its entries are in the first level, references to it change only the time of last use of these entries,
//! which the front records. So an array is looked up only when a page enters the front, when it leaves the
//! front (and its entries get their times), and when an entry is evicted whose pages are in the front: the
//! front then *forbids* these pages, so that the next reference looks them up again.
//!
//! First-level misses look up the second level in program order. The study processes a segment's fetches
//! before its data, so that misses of fetches wait until the data before them have been served.
//!
//! The operating system's changes of TLBs are modelled for base pages as in `octavo-machine` ([`pages`]):
//! unmapping, moving and protecting pages invalidates their entries; a first store to a page walks the page
//! table once more, to set its dirty bit, and makes its second-level entry the most recent. For larger pages
//! only dirty bits, and the invalidation of entries that overlap a range, are modelled.

mod config;
mod first_level;
mod misses;
mod pages;
mod second_level;

use octavo_trace::RegionId;
use octavo_types::{AddrRange, Event, PageSize};
use rustc_hash::FxHashSet;

use super::front::Front;
pub use config::NotModelled;
use first_level::FirstLevel;
pub use misses::Misses;
use pages::{Change, PageStates};
use second_level::SecondLevel;

/// The TLBs of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineTlbs {
    /// The TLBs of each page size, ascending from 4 KiB.
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
    /// The second level, shared by code and data, if there is one.
    pub second: Option<ArrayShape>,
}

/// An array with LRU replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayShape {
    /// The memory that an entry covers: the page size, or a part of it if the array holds no pages so large.
    pub entry_size: PageSize,
    /// Number of sets, indexed by the page number modulo this.
    pub sets: u32,
    /// Entries per set.
    pub ways: u32,
}

impl ArrayShape {
    /// Number of entries.
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
    /// Entries per set.
    pub ways: u32,
    /// Look-ups.
    pub accesses: u64,
    /// Look-ups that missed.
    pub misses: u64,
}

/// The first level that a stream uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first level for code.
    Fetch,
    /// The first level for data.
    Data,
}

/// References to a page that leave the fast path of the front.
#[derive(Clone, Copy)]
pub struct Touch {
    /// The stream of the references.
    pub side: Side,
    /// The base page, as traced.
    pub traced: u64,
    /// The base page, relocated.
    pub page: u64,
    /// Its region.
    pub region: RegionId,
    /// Its slot in the front.
    pub slot: usize,
    /// Whether any of the references is a store.
    pub stores: bool,
    /// The position in the segment, which puts fetches and data in order.
    pub order: u32,
}

/// A fetch that missed the first level, and has not looked up the second yet.
struct Waiting {
    size: usize,
    page: u64,
    region: RegionId,
    order: u32,
}

/// The state of one page size.
struct SizeState {
    tlbs: TlbsOfSize,
    first: [FirstLevel; 2],
    second: Option<SecondLevel>,
    /// Dirty pages, for sizes larger than 4 KiB.
    dirty: FxHashSet<u64>,
}

impl SizeState {
    fn new(tlbs: &TlbsOfSize) -> Self {
        SizeState {
            tlbs: *tlbs,
            first: [FirstLevel::new(&tlbs.fetch), FirstLevel::new(&tlbs.data)],
            second: tlbs.second.as_ref().map(SecondLevel::new),
            dirty: FxHashSet::default(),
        }
    }
}

/// The state of a machine's TLBs for one process.
pub struct MachineState {
    sizes: Vec<SizeState>,
    pages: PageStates,
    waiting: Vec<Waiting>,
    /// Base pages that were copied on a write, whose entries in the first level for code are still valid.
    copied: Vec<u64>,
    /// By side.
    misses: [Misses; 2],
    /// A bit for each size at which an access to data has missed all levels since the last
    /// [`MachineState::take_walked`].
    walked: u32,
}

impl MachineState {
    /// Empty TLBs.
    ///
    /// # Panics
    /// If the first size is not 4 KiB, or an array has no entries.
    pub fn new(config: &MachineTlbs) -> Self {
        assert!(config.sizes.first().is_some_and(|first| first.page_size == PageSize::BASE));
        MachineState {
            sizes: config.sizes.iter().map(SizeState::new).collect(),
            pages: PageStates::default(),
            waiting: Vec::new(),
            copied: Vec::new(),
            misses: [(); 2].map(|()| Misses::new(config.sizes.len())),
            walked: 0,
        }
    }

    /// The page sizes.
    pub fn page_sizes(&self) -> impl Iterator<Item = PageSize> + '_ {
        self.sizes.iter().map(|state| state.tlbs.page_size)
    }

    /// A bit for each size at which an access to data has missed all levels since the last call.
    pub fn take_walked(&mut self) -> u32 {
        std::mem::take(&mut self.walked)
    }

    /// Records that a base page has left the front, after its last use at `used`. From base-page shift `shares` on,
    /// the larger page that contains it also contains another base page in the front.
    pub fn left(&mut self, side: Side, page: u64, used: u64, shares: u8) {
        for state in &mut self.sizes {
            let first = &mut state.first[side as usize];
            if first.shift() < shares {
                first.leave_front(page, used);
            }
        }
    }

    /// Looks up a base page that has entered the front. From base-page shift `shares` on, the larger page that
    /// contains it also contains another base page in the front.
    pub fn entered(&mut self, front: &mut Front, touch: Touch, shares: u8) {
        // If no page is forbidden, all pages in the front are in the first level.
        let shares = if front.forbids_any() { u8::MAX } else { shares };
        self.look_up(front, touch, shares);
    }

    /// Looks up a page of the front that was forbidden, and allows it.
    pub fn again(&mut self, front: &mut Front, touch: Touch) {
        if front.is_forbidden(touch.slot) {
            front.allow(touch.slot, touch.traced);
            self.look_up(front, touch, u8::MAX);
        } else if touch.stores && front.is_store_forbidden(touch.slot) {
            self.store(touch);
            front.allow(touch.slot, touch.traced);
        }
    }

    /// Looks up a page at the sizes below base-page shift `resident`.
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

    /// Serves a first-level miss. Returns whether the page is known to allow stores without a walk.
    fn miss_first(&mut self, front: &mut Front, size: usize, touch: Touch) -> bool {
        self.misses[touch.side as usize].count(touch.region, size, 0);
        let first = &mut self.sizes[size].first[touch.side as usize];
        let entry = first.fill_for_front(touch.page, touch.slot, front);
        if touch.side == Side::Fetch {
            let Touch { page, region, order, .. } = touch;
            self.waiting.push(Waiting { size, page, region, order });
            return false;
        }
        self.serve_fetches(touch.order);
        let is_ready = self.look_up_second(size, touch.page, touch.side, touch.region);
        self.sizes[size].first[touch.side as usize].ready[entry] = is_ready;
        is_ready
    }

    /// Looks up the second level, and walks the page table on a miss. Returns as [`MachineState::miss_first`].
    fn look_up_second(&mut self, size: usize, page: u64, side: Side, region: RegionId) -> bool {
        let state = &mut self.sizes[size];
        if let Some(second) = &mut state.second
            && let Some(is_ready) = second.look_up(page)
        {
            return is_ready;
        }
        self.walked |= u32::from(side == Side::Data) << size;
        let is_ready = size == 0 && self.pages.walk(page, side == Side::Fetch);
        if let Some(second) = &mut state.second {
            second.insert_missed(page, is_ready);
            self.misses[side as usize].count(region, size, 1);
        }
        is_ready
    }

    /// Makes the first store to a page since it became clean: walks the page table at all sizes at which it is clean.
    fn store(&mut self, touch: Touch) {
        self.serve_fetches(touch.order);
        for (size, state) in self.sizes.iter_mut().enumerate() {
            if size == 0 {
                if self.pages.store(touch.page) {
                    self.copied.push(touch.page);
                }
                let first = &mut state.first[Side::Data as usize];
                if let Some(entry) = first.find(touch.page) {
                    first.ready[entry] = true;
                }
            } else if !state.dirty.insert(touch.page >> state.tlbs.page_size.base_shift()) {
                continue;
            }
            if let Some(second) = &mut state.second {
                second.insert(touch.page, size == 0);
            }
        }
    }

    /// Serves the waiting fetches before a position in the segment.
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
            self.look_up_second(size, page, Side::Fetch, region);
        }
        self.waiting = waiting;
    }

    /// Whether [`MachineState::end_segment`] has anything to do.
    #[inline(always)]
    pub fn has_pending(&self) -> bool {
        !self.waiting.is_empty() || !self.copied.is_empty()
    }

    /// Serves the waiting fetches at the end of a segment, and invalidates copied pages in the first level for code.
    /// `fetched` is the front of fetches.
    #[cold]
    pub fn end_segment(&mut self, fetched: &mut Front) {
        self.serve_waiting(u32::MAX);
        for page in std::mem::take(&mut self.copied) {
            if self.sizes[0].first[Side::Fetch as usize].invalidate(page..page + 1) {
                fetched.forbid_all();
            }
        }
    }

    /// Applies an event. `relocate` relocates its ranges. Returns whether entries were invalidated, so that both
    /// fronts must forbid all their pages.
    pub fn event(&mut self, event: &Event, relocate: impl Fn(AddrRange) -> AddrRange) -> bool {
        let mut invalidated = false;
        for Change { stale, unmapped } in self.pages.event(event, relocate) {
            for state in &mut self.sizes {
                for first in &mut state.first {
                    invalidated |= first.invalidate(stale.clone());
                }
                if let Some(second) = &mut state.second {
                    invalidated |= second.invalidate(stale.clone());
                }
                let shift = state.tlbs.page_size.base_shift();
                if let Some(unmapped) = &unmapped
                    && shift > 0
                    && !state.dirty.is_empty()
                {
                    let whole = unmapped.start.div_ceil(1 << shift)..unmapped.end >> shift;
                    state.dirty.retain(|page| !whole.contains(page));
                }
            }
        }
        invalidated
    }

    /// Drops arrays and pages, if only results are read from now on.
    pub fn keep_results_only(&mut self) {
        *self = self.results_only();
    }

    /// The results so far, with empty arrays and without pages.
    pub fn results_only(&self) -> Self {
        MachineState {
            sizes: self.sizes.iter().map(|state| SizeState::new(&state.tlbs)).collect(),
            pages: PageStates::default(),
            waiting: Vec::new(),
            copied: Vec::new(),
            misses: self.misses.clone(),
            walked: 0,
        }
    }

    /// Misses of the last level so far at each page size.
    pub fn walks(&self, side: Side) -> impl Iterator<Item = u64> + '_ {
        let misses = &self.misses[side as usize];
        let sizes = self.sizes.iter().enumerate();
        sizes.map(|(size, state)| misses.total(size)[usize::from(state.second.is_some())])
    }

    /// The misses so far.
    pub fn checkpoint(&self) -> [Misses; 2] {
        self.misses.clone()
    }

    /// Sets the misses to those of a checkpoint; the TLBs stay as they are.
    pub fn roll_back(&mut self, to: [Misses; 2]) {
        self.misses = to;
    }

    /// Accesses and misses of a region, or of all regions, given the look-ups of the first level at each page
    /// size.
    pub fn curves(
        &self,
        side: Side,
        region: Option<usize>,
        accesses: impl Fn(PageSize) -> u64,
    ) -> Vec<MachineCurve> {
        let counted = &self.misses[side as usize];
        let mut curves = Vec::new();
        for (size, state) in self.sizes.iter().enumerate() {
            let misses = match region {
                Some(region) => counted.of_region(region, size),
                None => counted.total(size),
            };
            let TlbsOfSize { page_size, fetch, data, second } = state.tlbs;
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
