//! Which pages may have lines in the caches, and what those lines may be used for at most.
//!
//! The lines of a page carry its bits, so whatever changes the page has to change them: the caches are
//! *swept* for them (section 5.4). And a frame that is mapped at several global addresses could have
//! lines at each, a *synonym*, of which only one sees a store (section 3.1). What is done about those is
//! what operating systems do on such caches, page by page: a frame that is stored to has lines at one
//! address only, and a frame with lines at several addresses is not stored to. Whoever wants to change
//! that sweeps the others' lines first.

use std::collections::hash_map::Entry;

use octavo_hw::{Change, GlobalAddr, Swept, VirtualCaches};
use octavo_os::ProcessId;
use octavo_os::page_table::Leaf;
use octavo_os::vmas;
use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::{FxHashMap, FxHashSet};

use super::sweeps::{AllSweeps, Kind};

/// The side of data.
const DATA: usize = 1;

/// A base page of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageOf {
    /// Whose.
    pub process: ProcessId,
    /// Which.
    pub page: PageNumber,
}

/// What the lines of a page are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kept {
    /// Where the page begins in the global space.
    at: GlobalAddr,
    frame: FrameNumber,
    /// Whether any of its lines may be stored to; where not, none is dirty.
    may_store: bool,
    /// Whether it was fetched from, and whether it was loaded or stored to.
    sides: [bool; 2],
}

/// Pages that may have lines.
#[derive(Default)]
pub struct Pages {
    kept: FxHashMap<PageOf, Kept>,
    /// By frame, the pages above.
    by_frame: FxHashMap<FrameNumber, Vec<PageOf>>,
    /// Whose pages there were, each once.
    processes: Vec<ProcessId>,
    /// What was swept.
    pub sweeps: AllSweeps,
}

impl Pages {
    /// A line of a page is about to come in on a side, or to be stored to: other addresses of its frame
    /// give way. Returns whether the line may be stored to from now on, where the page table says
    /// `may_store`.
    pub fn claim(
        &mut self,
        caches: &mut VirtualCaches,
        (page, at): (PageOf, GlobalAddr),
        (frame, may_store): (FrameNumber, bool),
        (side, stores): (usize, bool),
    ) -> bool {
        if let Entry::Vacant(vacant) = self.kept.entry(page) {
            vacant.insert(Kept { at, frame, may_store: false, sides: [false; 2] });
            self.by_frame.entry(frame).or_default().push(page);
            if !self.processes.contains(&page.process) {
                self.processes.push(page.process);
            }
        }
        debug_assert_eq!(self.kept[&page].frame, frame, "a page that has moved was swept");
        let others: Vec<PageOf> =
            self.by_frame[&frame].iter().copied().filter(|other| *other != page).collect();
        for other in &others {
            if stores {
                self.change(caches, *other, Change::Drop, Kind::Synonym);
            } else if self.kept[other].may_store {
                self.change(caches, *other, Change::Rights { may_store: false }, Kind::Synonym);
            }
        }
        let may_store = may_store && (stores || others.is_empty());
        let kept = self.kept.get_mut(&page).expect("it was put there");
        kept.sides[side] = true;
        kept.may_store |= may_store;
        may_store
    }

    /// A page was [claimed](Self::claim) to be stored to. The line gets that right, or at once all lines
    /// of the page do.
    pub fn allow(
        &mut self,
        caches: &mut VirtualCaches,
        page: PageOf,
        line: GlobalAddr,
        is_lazy: bool,
    ) {
        let change = Change::Rights { may_store: true };
        if is_lazy {
            self.sweeps.add(Kind::Lazy, caches.sweep(DATA, line, 1, change));
        } else {
            self.change(caches, page, change, Kind::Protection);
        }
    }

    /// Something has changed about a range of pages of some processes: their lines are made what `leaf`
    /// says of each page, which is none where it is mapped no more.
    pub fn settle(
        &mut self,
        caches: &mut VirtualCaches,
        range: &vmas::Pages,
        is_meant: impl Fn(ProcessId) -> bool,
        leaf: impl Fn(PageOf) -> Option<Leaf>,
        is_lazy: bool,
    ) {
        let mut unmapped = Vec::new();
        let mut protected = Vec::new();
        for page in self.within(range, is_meant) {
            let Kept { frame, may_store, .. } = self.kept[&page];
            match leaf(page).filter(|leaf| leaf.frame_of(page.page) == frame) {
                None => unmapped.push((page, Change::Drop)),
                Some(leaf) => {
                    let loses = may_store && !leaf.rights.write;
                    let gets = !may_store && leaf.rights.write && self.by_frame[&frame].len() == 1;
                    if loses || gets && !is_lazy {
                        protected.push((page, Change::Rights { may_store: gets }));
                    }
                }
            }
        }
        self.change_all(caches, &unmapped, Kind::Unmapped);
        self.change_all(caches, &protected, Kind::Protection);
    }

    /// The pages here of a range of some processes, in order.
    fn within(&self, range: &vmas::Pages, is_meant: impl Fn(ProcessId) -> bool) -> Vec<PageOf> {
        let processes = self.processes.iter().copied().filter(|process| is_meant(*process));
        let processes: Vec<ProcessId> = processes.collect();
        let is_in =
            |page: &PageOf| range.contains(&page.page.raw()) && processes.contains(&page.process);
        let asked = (range.end - range.start).saturating_mul(processes.len() as u64);
        let mut found: Vec<PageOf> = if asked > self.kept.len() as u64 {
            self.kept.keys().copied().filter(is_in).collect()
        } else {
            let pages = processes.iter().flat_map(|process| {
                range.clone().map(|page| PageOf { process: *process, page: PageNumber::new(page) })
            });
            pages.filter(|page| self.kept.contains_key(page)).collect()
        };
        found.sort_unstable();
        found
    }

    /// Changes pages. Where they have more lines than the caches, all of these are gone through instead
    /// ("sweeping through the entire cache", section 3.1).
    fn change_all(&mut self, caches: &mut VirtualCaches, pages: &[(PageOf, Change)], kind: Kind) {
        let [_, entries] = caches.entries(DATA);
        let lines = caches.lines_of(PageSize::BASE.bytes());
        if pages.len() as u64 * lines <= entries {
            for (page, change) in pages {
                self.change(caches, *page, *change, kind);
            }
            return;
        }
        let there = [0, 1].map(|side| pages_there(caches, side));
        self.sweeps.begin_whole(kind, caches);
        for (page, change) in pages {
            let Kept { at, sides, .. } = self.kept[page];
            let sides = (0..2).filter(|side| sides[*side] && there[*side].contains(&at));
            let swept = sides.map(|side| caches.sweep(side, at, PageSize::BASE.bytes(), *change));
            self.sweeps.add_of_whole(kind, swept.fold(Swept::default(), Swept::plus));
            self.changed(*page, *change);
        }
    }

    /// Sweeps the caches for the lines of a page.
    fn change(&mut self, caches: &mut VirtualCaches, page: PageOf, change: Change, kind: Kind) {
        let Kept { at, sides, .. } = self.kept[&page];
        let swept = (0..2)
            .filter(|side| sides[*side])
            .map(|side| caches.sweep(side, at, PageSize::BASE.bytes(), change));
        self.sweeps.add(kind, swept.fold(Swept::default(), Swept::plus));
        self.changed(page, change);
    }

    /// The lines of a page have been changed.
    fn changed(&mut self, page: PageOf, change: Change) {
        match change {
            Change::Rights { may_store } => {
                self.kept.get_mut(&page).expect("it has lines").may_store = may_store;
            }
            Change::Drop => {
                let Kept { frame, .. } = self.kept.remove(&page).expect("it has lines");
                let of_frame = self.by_frame.get_mut(&frame).expect("a page of it has lines");
                of_frame.retain(|other| *other != page);
                if of_frame.is_empty() {
                    self.by_frame.remove(&frame);
                }
            }
        }
    }
}

/// The pages that have lines on a side.
fn pages_there(caches: &VirtualCaches, side: usize) -> FxHashSet<GlobalAddr> {
    let lines = caches.lines(side, 0).chain(caches.lines(side, 1));
    let bytes = PageSize::BASE.bytes();
    lines.map(|(at, _)| GlobalAddr::new(at.raw() / bytes * bytes)).collect()
}
