//! The access rights of each page, as they change over the stream.

use std::collections::BTreeMap;

use octavo_types::{AddrRange, PageNumber, PageSize, Protection, VirtAddr};

/// How many ranges are kept. Linux allows 65,530 mappings by default; a trace with more than this
/// is not checked against its mappings.
const MAX_RANGES: usize = 1 << 20;
/// How many pages' rights are cached.
const CACHED_PAGES: usize = 1024;

/// The one page of system calls, at the same address in every program.
const VSYSCALL: PageNumber = PageNumber::new(0xffff_ffff_ff60_0000 >> 12);
/// The tracer's address range. Valgrind sends programs there instead of to the page of system calls
/// and to some functions of the loader.
const TRACER: AddrRange = AddrRange::new(VirtAddr::new(0x5800_0000), 0x0200_0000);

/// Linux's default limit of the main stack.
const DEFAULT_STACK_BYTES: u64 = 8 << 20;

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;

/// The rights of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Rights(u8);

impl Rights {
    const STACK: Rights = Rights(READ | WRITE);
    const CODE: Rights = Rights(READ | EXECUTE);

    /// The processor has no memory that can be written or executed but not read.
    pub(super) fn readable(self) -> bool {
        self.0 != 0
    }

    pub(super) fn writable(self) -> bool {
        self.0 & WRITE != 0
    }

    pub(super) fn executable(self) -> bool {
        self.0 & EXECUTE != 0
    }
}

impl From<Protection> for Rights {
    fn from(protection: Protection) -> Self {
        let bit = |set, bit| if set { bit } else { 0 };
        Rights(
            bit(protection.read, READ)
                | bit(protection.write, WRITE)
                | bit(protection.execute, EXECUTE),
        )
    }
}

/// The mappings of one process.
pub(super) struct RightsMap {
    /// By their starts; ends, and rights.
    ranges: BTreeMap<u64, (u64, Rights)>,
    /// The range that the main stack may grow over.
    stack: Option<AddrRange>,
    /// The trace is our tracer's.
    traced: bool,
    /// There were more ranges than are kept.
    overflowed: bool,
    cache: Vec<(u64, Option<Rights>)>,
}

impl Default for RightsMap {
    fn default() -> Self {
        RightsMap {
            ranges: BTreeMap::new(),
            stack: None,
            traced: false,
            overflowed: false,
            cache: vec![(u64::MAX, None); CACHED_PAGES],
        }
    }
}

impl RightsMap {
    /// Called when the process has described itself.
    pub(super) fn start(&mut self, stack: Option<AddrRange>) {
        self.stack = stack;
        self.traced = true;
        self.clear_cache();
    }

    /// Records a stack. Its limit is the one that the process has stated, or else Linux's default.
    pub(super) fn stack(&mut self, range: AddrRange) {
        if self.stack.is_none() {
            let start = range.end().raw().saturating_sub(DEFAULT_STACK_BYTES);
            self.stack = Some(AddrRange::new(VirtAddr::new(start), range.end().raw() - start));
            self.clear_cache();
        }
    }

    /// Whether the mappings are known.
    pub(super) fn is_known(&self) -> bool {
        !self.overflowed
    }

    /// The rights of a page; none where nothing is mapped.
    #[inline]
    pub(super) fn of(&mut self, page: PageNumber) -> Option<Rights> {
        let slot = page.raw() as usize % CACHED_PAGES;
        let (cached, rights) = self.cache[slot];
        if cached == page.raw() {
            return rights;
        }
        let rights = self.look_up(page);
        self.cache[slot] = (page.raw(), rights);
        rights
    }

    #[cold]
    fn look_up(&self, page: PageNumber) -> Option<Rights> {
        let addr = VirtAddr::new(page.raw() << PageSize::BASE.log2());
        let below = self.ranges.range(..=addr.raw()).next_back();
        match below {
            Some((_, (end, rights))) if addr.raw() < *end => Some(*rights),
            _ if self.grows_to(addr) => Some(Rights::STACK),
            _ if page == VSYSCALL || (self.traced && TRACER.contains(addr)) => Some(Rights::CODE),
            _ => None,
        }
    }

    fn grows_to(&self, addr: VirtAddr) -> bool {
        self.stack.is_some_and(|stack| stack.contains(addr))
    }

    /// Maps whole pages, or unmaps them.
    pub(super) fn set(&mut self, range: AddrRange, rights: Option<Rights>) {
        let range = range.widened_to(PageSize::BASE);
        let (start, end) = (range.start().raw(), range.end().raw());
        if start >= end {
            return;
        }
        self.clear_cache();
        self.split(start);
        self.split(end);
        while let Some((&inside, _)) = self.ranges.range(start..end).next() {
            self.ranges.remove(&inside);
        }
        if let Some(rights) = rights {
            self.insert(start, end, rights);
        }
        if self.ranges.len() > MAX_RANGES {
            self.ranges.clear();
            self.overflowed = true;
        }
    }

    /// The first address of `range` where nothing is mapped, nor could be by a stack's growth.
    pub(super) fn first_gap(&self, range: AddrRange) -> Option<VirtAddr> {
        let range = range.widened_to(PageSize::BASE);
        let mut at = range.start();
        while at < range.end() {
            let below = self.ranges.range(..=at.raw()).next_back();
            at = match below {
                Some((_, (end, _))) if at.raw() < *end => VirtAddr::new(*end),
                _ => match self.stack {
                    Some(stack) if stack.contains(at) => {
                        let next = self.ranges.range(at.raw()..).next().map(|(start, _)| *start);
                        let end = stack.widened_to(PageSize::BASE).end();
                        next.map_or(end, |next| end.min(VirtAddr::new(next)))
                    }
                    _ => return Some(at),
                },
            };
        }
        None
    }

    /// Moves or resizes the mapping at `from`, which becomes `to`.
    pub(super) fn remap(&mut self, from: AddrRange, to: AddrRange) {
        let rights = self.of(from.start().page(PageSize::BASE)).unwrap_or(Rights::STACK);
        self.set(from, None);
        self.set(to, Some(rights));
    }

    /// Inserts a range, joined with the neighbouring ranges of the same rights.
    fn insert(&mut self, mut start: u64, mut end: u64, rights: Rights) {
        if let Some((&before, &(until, same))) = self.ranges.range(..start).next_back()
            && until == start
            && same == rights
        {
            start = before;
        }
        if let Some(&(until, same)) = self.ranges.get(&end)
            && same == rights
        {
            self.ranges.remove(&end);
            end = until;
        }
        self.ranges.insert(start, (end, rights));
    }

    /// Splits the range that crosses `at`, if there is one.
    fn split(&mut self, at: u64) {
        if let Some((_, (end, rights))) = self.ranges.range_mut(..at).next_back()
            && *end > at
        {
            let behind = (*end, *rights);
            *end = at;
            self.ranges.insert(at, behind);
        }
    }

    fn clear_cache(&mut self) {
        self.cache.fill((u64::MAX, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(page: u64, pages: u64) -> AddrRange {
        AddrRange::new(VirtAddr::new(page << 12), pages << 12)
    }

    #[test]
    fn the_top_of_the_address_space_is_no_special_case() {
        let mut map = RightsMap::default();
        map.set(AddrRange::new(VirtAddr::new(u64::MAX - 5000), 6000), Some(Rights::STACK));
        assert_eq!(map.of(PageNumber::new((u64::MAX - 5000) >> 12)), Some(Rights::STACK));
        map.set(AddrRange::new(VirtAddr::new(0), u64::MAX), None);
        assert_eq!(map.of(PageNumber::new((u64::MAX - 5000) >> 12)), None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Change {
        Set(u64, u64, Option<u8>),
        Remap(u64, u64, u64, u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        let pages = || (0u64..40, 0u64..12);
        prop_oneof![
            4 => (pages(), prop::option::of(0u8..8))
                .prop_map(|((at, pages), rights)| Change::Set(at, pages, rights)),
            1 => (pages(), pages()).prop_map(|(from, to)| Change::Remap(from.0, from.1, to.0, to.1)),
        ]
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Against a list of pages.
        #[test]
        fn each_page_has_its_rights(changes in prop::collection::vec(change(), 0..40)) {
            let mut map = RightsMap::default();
            let mut naive = [None; 64];
            for change in changes {
                match change {
                    Change::Set(at, pages, rights) => {
                        map.set(range(at, pages), rights.map(Rights));
                        naive[at as usize..(at + pages) as usize].fill(rights.map(Rights));
                    }
                    Change::Remap(from, from_pages, to, to_pages) => {
                        let moved = naive[from as usize].unwrap_or(Rights::STACK);
                        map.remap(range(from, from_pages), range(to, to_pages));
                        naive[from as usize..(from + from_pages) as usize].fill(None);
                        naive[to as usize..(to + to_pages) as usize].fill(Some(moved));
                    }
                }
                for (page, rights) in naive.iter().enumerate() {
                    prop_assert_eq!(map.of(PageNumber::new(page as u64)), *rights);
                }
                let gap = naive[5..50].iter().position(Option::is_none);
                let found = map.first_gap(range(5, 45)).map(|addr| (addr.raw() >> 12) as usize - 5);
                prop_assert_eq!(found, gap);
            }
        }
    }
}
