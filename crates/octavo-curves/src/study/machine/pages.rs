//! The state of base pages in a page table, as far as TLBs depend on it: which are mapped, what may be done with
//! them, which were stored to. Pages come with their first reference and go with their mapping; a store to
//! a private file's page copies it. The rules are those of `octavo-os` for base pages, without frames.

use octavo_os::vmas::{Advice, Backing, ObjectId, Pages, Vma, Vmas, backing_of, pages_of};
use octavo_types::{AddrRange, Event, MapSource, PageNumber, Protection, VirtAddr};
use rustc_hash::FxHashMap;

/// `madvise(2)` values after which the pages are gone.
const MADV_GONE: [u64; 3] = [4, 8, 9];

/// Pages that are not known to be mapped.
const ANYTHING: Vma = Vma {
    rights: Protection { read: true, write: true, execute: true },
    backing: Backing::Anonymous,
    advice: Advice::None,
};

/// Base pages of a leaf, as a logarithm.
const LEAF_LOG2: u32 = 9;
const LEAF_PAGES: usize = 1 << LEAF_LOG2;

/// A base page that is mapped, in a byte that is not 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PageState(u8);

/// Of no page.
const ABSENT: PageState = PageState(0);
const PRESENT: u8 = 1;
const WRITABLE: u8 = 2;
const EXECUTABLE: u8 = 4;
const DIRTY: u8 = 8;
/// A file's page, mapped privately, of which the process has no copy yet.
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
    /// Translations of these base pages are stale.
    pub stale: Pages,
    /// These base pages are mapped no more, if any.
    pub gone: Option<Pages>,
}

/// The base pages of a process.
#[derive(Default)]
pub struct PageStates {
    /// By the number of a leaf, its place.
    places: FxHashMap<u64, usize>,
    leaves: Vec<[PageState; LEAF_PAGES]>,
    /// The leaf asked for last, and its place.
    recent: (u64, usize),
    vmas: Vmas,
    /// Whether any page was referenced, and any mapping reported.
    has_begun: bool,
    is_mapped: bool,
}

impl PageStates {
    /// A walk for a fetch or a load; the page is mapped if it was not. Returns whether it may be stored to
    /// without another walk.
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

    /// The state of a page, to be changed.
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
            // Where nothing is known of mappings, all memory is one.
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

    /// A store to a page that a walk has found. Returns whether it got a copy of its own by that, so that
    /// older translations of it are stale.
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

    /// An event, its ranges relocated.
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
            Event::Advise { range, advice } if MADV_GONE.contains(advice) => {
                changes.extend(self.unmap(&pages(range)));
            }
            _ => {}
        }
        changes
    }

    /// The pages of a range that are there, in any order.
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
            let there = numbered.filter(|(page, state)| **state != ABSENT && pages.contains(page));
            present.extend(there.map(|(page, _)| page));
        }
        present
    }

    fn unmap(&mut self, pages: &Pages) -> Option<Change> {
        let present = self.present(pages);
        for page in &present {
            *self.state(*page) = ABSENT;
        }
        let stale = around(present)?;
        Some(Change { stale, gone: Some(pages.clone()) })
    }

    /// Whether the heap grows into pages that are as the heap's.
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
        around(changed).map(|stale| Change { stale, gone: None })
    }

    /// `mremap` moves page-table entries.
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
            changes.extend(stale.map(|stale| Change { stale, gone: Some(fitting) }));
            changes.extend(self.unmap(&from));
        }
        let (start, pages) = (to.start, to.end - to.start);
        self.vmas.relocate(from, start, pages);
    }
}

/// From the first of some pages to the last: one shootdown.
fn around(pages: Vec<u64>) -> Option<Pages> {
    let (first, last) = (pages.iter().min()?, pages.iter().max()?);
    Some(*first..last + 1)
}
