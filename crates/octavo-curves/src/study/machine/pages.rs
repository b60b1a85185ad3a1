//! The state of base pages in a page table, as far as TLBs depend on it: present, permissions, dirty. A page becomes
//! present at its first reference, and absent with its mapping; a store to a page of a private file mapping copies it.
//! The rules are those of `octavo-os` for base pages, without frames.

use octavo_os::vmas::{Advice, Backing, ObjectId, Pages, Vma, Vmas, backing_of, pages_of};
use octavo_types::{AddrRange, Event, MapSource, PageNumber, Protection, VirtAddr};
use rustc_hash::FxHashMap;

/// Values of `madvise(2)` that unmap pages: `MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE`.
const MADV_UNMAPS: [u64; 3] = [4, 8, 9];

/// The mapping of pages without a known mapping.
const ANYTHING: Vma = Vma {
    rights: Protection { read: true, write: true, execute: true },
    backing: Backing::Anonymous,
    advice: Advice::None,
};

/// log2 of the base pages of a leaf.
const LEAF_LOG2: u32 = 9;
const LEAF_PAGES: usize = 1 << LEAF_LOG2;

/// The state of a base page, in a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PageState(u8);

/// The state of an absent page.
const ABSENT: PageState = PageState(0);
const PRESENT: u8 = 1;
const WRITABLE: u8 = 2;
const EXECUTABLE: u8 = 4;
const DIRTY: u8 = 8;
/// A privately mapped page of a file that has not been copied yet.
const SHARED: u8 = 16;

impl PageState {
    /// A present page with these rights and no other bits. Every present page is readable.
    fn new(rights: Protection) -> Self {
        let write = if rights.write { WRITABLE } else { 0 };
        PageState(PRESENT | write | if rights.execute { EXECUTABLE } else { 0 })
    }

    fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }

    fn with(self, bits: u8) -> Self {
        PageState(self.0 | bits)
    }

    fn rights(self) -> Protection {
        Protection { read: true, write: self.has(WRITABLE), execute: self.has(EXECUTABLE) }
    }
}

/// The effect of an event.
pub struct Change {
    /// Base pages whose translations are stale.
    pub stale: Pages,
    /// Base pages that have been unmapped, if any.
    pub unmapped: Option<Pages>,
}

/// The base pages of a process.
#[derive(Default)]
pub struct PageStates {
    /// The index in `leaves` of each leaf, by its number.
    places: FxHashMap<u64, usize>,
    leaves: Vec<[PageState; LEAF_PAGES]>,
    /// The number and the index of the leaf used last.
    recent: (u64, usize),
    vmas: Vmas,
    /// Whether any page was referenced.
    has_begun: bool,
    /// Whether any mapping was reported.
    is_mapped: bool,
}

impl PageStates {
    /// Walks the page table for a fetch or a load, and maps the page if it is absent. Returns whether the page may be
    /// stored to without another walk.
    #[inline(always)]
    pub fn walk(&mut self, page: u64, fetches: bool) -> bool {
        match *self.state(page) {
            ABSENT => {
                self.fault(page, fetches);
                false
            }
            state => state.has(WRITABLE | DIRTY),
        }
    }

    /// The mutable state of a page.
    #[inline(always)]
    fn state(&mut self, page: u64) -> &mut PageState {
        let leaf = page >> LEAF_LOG2;
        if self.recent.0 != leaf || self.leaves.is_empty() {
            let next = self.leaves.len();
            let place = *self.places.entry(leaf).or_insert(next);
            if place == next {
                self.leaves.push([ABSENT; LEAF_PAGES]);
            }
            self.recent = (leaf, place);
        }
        &mut self.leaves[self.recent.1][page as usize % LEAF_PAGES]
    }

    #[inline(never)]
    fn fault(&mut self, page: u64, fetches: bool) {
        if !std::mem::replace(&mut self.has_begun, true) && !self.is_mapped {
            // If no mappings are reported, all memory is one mapping.
            let everything = AddrRange::new(VirtAddr::NULL, u64::MAX);
            self.vmas.map(pages_of(everything), ANYTHING);
        }
        let vma = self.vma(page);
        let is_file = matches!(vma.backing, Backing::Object { shared: false, .. });
        let state = PageState::new(Protection {
            read: true,
            write: vma.rights.write && !is_file,
            execute: vma.rights.execute || fetches,
        });
        *self.state(page) = if is_file { state.with(SHARED) } else { state };
    }

    /// Stores to a page that a walk has found. Returns whether the page was copied, so that older translations of it
    /// are stale.
    pub fn store(&mut self, page: u64) -> bool {
        let state = *self.state(page);
        if state == ABSENT {
            return false;
        }
        if state.has(WRITABLE) {
            *self.state(page) = state.with(DIRTY);
            return false;
        }
        let rights = Protection { write: true, ..self.vma(page).rights };
        *self.state(page) = PageState::new(rights).with(DIRTY);
        state.has(SHARED)
    }

    fn vma(&self, page: u64) -> Vma {
        self.vmas.find(PageNumber::new(page)).map_or(ANYTHING, |(_, vma)| vma)
    }

    /// Applies an event. `relocate` relocates its ranges.
    pub fn event(
        &mut self,
        event: &Event,
        relocate: impl Fn(AddrRange) -> AddrRange,
    ) -> Vec<Change> {
        let pages = |range: &AddrRange| pages_of(relocate(*range));
        let mut changes = Vec::new();
        match event {
            Event::Map { range, protection, source, flags } => {
                self.is_mapped = true;
                let pages = pages(range);
                if !self.grows_into_its_own(&pages, source, *protection) {
                    changes.extend(self.unmap(&pages));
                }
                let backing = backing_of(source, *flags, pages.start, |_| ObjectId(0));
                self.vmas.map(pages, Vma { rights: *protection, backing, advice: Advice::None });
            }
            Event::Unmap { range } => {
                let pages = pages(range);
                changes.extend(self.unmap(&pages));
                self.vmas.unmap(pages);
            }
            Event::Remap { from, to } => self.remap(pages(from), pages(to), &mut changes),
            Event::Protect { range, protection } => {
                changes.extend(self.protect(&pages(range), *protection));
            }
            Event::Advise { range, advice } if MADV_UNMAPS.contains(advice) => {
                changes.extend(self.unmap(&pages(range)));
            }
            _ => {}
        }
        changes
    }

    /// The present pages of a range, in any order.
    fn present(&self, pages: &Pages) -> Vec<u64> {
        let leaves = pages.start >> LEAF_LOG2..pages.end.div_ceil(LEAF_PAGES as u64);
        let found: Vec<(u64, usize)> = if leaves.end - leaves.start < self.leaves.len() as u64 {
            let places = leaves.map(|leaf| Some((leaf, *self.places.get(&leaf)?)));
            places.flatten().collect()
        } else {
            let places = self.places.iter().map(|(leaf, place)| (*leaf, *place));
            places.filter(|(leaf, _)| leaves.contains(leaf)).collect()
        };
        let mut present = Vec::new();
        for (leaf, place) in found {
            let first = leaf << LEAF_LOG2;
            let numbered = (first..).zip(self.leaves[place].iter());
            let found = numbered.filter(|(page, state)| **state != ABSENT && pages.contains(page));
            present.extend(found.map(|(page, _)| page));
        }
        present
    }

    fn unmap(&mut self, pages: &Pages) -> Option<Change> {
        let present = self.present(pages);
        for page in &present {
            *self.state(*page) = ABSENT;
        }
        let stale = around(present)?;
        Some(Change { stale, unmapped: Some(pages.clone()) })
    }

    /// Whether the heap grows into unmapped space or pages with the heap's rights.
    fn grows_into_its_own(
        &mut self,
        pages: &Pages,
        source: &MapSource,
        rights: Protection,
    ) -> bool {
        *source == MapSource::Heap
            && self.vmas.within(pages).is_empty()
            && self.present(pages).into_iter().all(|page| self.state(page).rights() == rights)
    }

    fn protect(&mut self, pages: &Pages, rights: Protection) -> Option<Change> {
        let mut parts = self.vmas.within(pages);
        parts.retain(|(_, vma)| vma.rights != rights);
        self.vmas.change(pages, |vma| vma.rights = rights);
        let mut changed = Vec::new();
        for (part, vma) in parts {
            let is_common = vma.shared_object().is_some();
            for page in self.present(&part) {
                let state = self.state(page);
                let write = rights.write && (is_common || !state.has(SHARED));
                let new = Protection { write, ..rights };
                if new != state.rights() {
                    let kept = state.0 & (DIRTY | SHARED);
                    *state = PageState::new(new).with(kept);
                    changed.push(page);
                }
            }
        }
        around(changed).map(|stale| Change { stale, unmapped: None })
    }

    /// Moves page-table entries, as `mremap` does.
    fn remap(&mut self, from: Pages, to: Pages, changes: &mut Vec<Change>) {
        if from.start == to.start {
            let rest = to.end.min(from.end)..to.end.max(from.end);
            changes.extend(self.unmap(&rest));
        } else {
            changes.extend(self.unmap(&to));
            let fitting = from.start..from.end.min(from.start + (to.end - to.start));
            let moved: Vec<_> = self.present(&fitting);
            let shift = to.start.wrapping_sub(from.start);
            let states: Vec<_> =
                moved.iter().map(|page| std::mem::replace(self.state(*page), ABSENT)).collect();
            for (page, state) in moved.iter().zip(states) {
                *self.state(page.wrapping_add(shift)) = state;
            }
            let stale = around(moved);
            changes.extend(stale.map(|stale| Change { stale, unmapped: Some(fitting) }));
            changes.extend(self.unmap(&from));
        }
        let (start, pages) = (to.start, to.end - to.start);
        self.vmas.relocate(from, start, pages);
    }
}

/// The range from the first to the last of some pages, which is one shootdown.
fn around(pages: Vec<u64>) -> Option<Pages> {
    let (first, last) = (pages.iter().min()?, pages.iter().max()?);
    Some(*first..last + 1)
}
