//! Sweeps of the caches.

use octavo_machine::designs::softvm::{Aliasing, IncreasedRights, SoftvmRates};
use octavo_oracle::NaiveChange;
use octavo_os::Content;
use octavo_types::PageNumber;

use super::{CachedPage, Naive, Page};

impl Naive {
    /// Follows changes by the operating system: lines of changed pages take the state of the page tables; memory
    /// contents are read and written around the caches.
    pub fn apply_os_changes(&mut self) {
        self.sweep_invalidated();
        self.change_contents();
    }

    fn change_contents(&mut self) {
        for content in self.os.memory_mut().take_contents() {
            for map in [&mut self.truth, &mut self.sides[1].memory] {
                match content {
                    Content::Zeroed { frame, frames } => {
                        let range = frame.raw()..frame.raw() + frames;
                        map.retain(|(frame, _), _| !range.contains(frame));
                    }
                    Content::Copied { from, to, frames } => {
                        let range = to.raw()..to.raw() + frames;
                        map.retain(|(frame, _), _| !range.contains(frame));
                        let copied: Vec<_> = map
                            .iter()
                            .filter(|((source, _), _)| {
                                (from.raw()..from.raw() + frames).contains(source)
                            })
                            .map(|((source, line), data)| {
                                ((source - from.raw() + to.raw(), *line), *data)
                            })
                            .collect();
                        map.extend(copied);
                    }
                    Content::Read { frame, .. } => map.retain(|(read, _), _| *read != frame.raw()),
                }
            }
        }
    }

    fn sweep_invalidated(&mut self) {
        for stale in self.os.take_invalidations() {
            if let Some(tlb) = &mut self.tlb {
                tlb.invalidate(&stale);
            }
            let is_stale = |page: &Page| page.0 == stale.process && stale.pages.contains(&page.1);
            let mut touched: Vec<(Page, u64)> = Vec::new();
            for (global, cached) in &self.cached {
                let users = cached.users.iter().filter(|user| is_stale(user));
                touched.extend(users.map(|user| (*user, *global)));
            }
            touched.sort_unstable();
            // If several process pages share a global page, the first one determines its order.
            let mut globals: Vec<u64> = Vec::new();
            for (_, global) in touched {
                if !globals.contains(&global) {
                    globals.push(global);
                }
            }
            let (mut unmapped, mut protected) = (Vec::new(), Vec::new());
            for global in globals {
                let mut cached = self.cached(global).clone();
                cached.users.retain(|user| {
                    !is_stale(user) || self.leaf(*user).is_some_and(|leaf| leaf.0 == cached.frame)
                });
                let others =
                    self.cached.iter().filter(|(_, other)| other.frame == cached.frame).count();
                let allowed =
                    cached.users.iter().any(|user| self.leaf(*user).is_some_and(|leaf| leaf.1));
                let is_eager = self.softvm.kernel.increase == IncreasedRights::Eager;
                if cached.users.is_empty() {
                    unmapped.push((global, NaiveChange::Drop));
                } else if cached.may_store && !allowed {
                    protected.push((global, NaiveChange::MayStore(false)));
                } else if !cached.may_store && allowed && others == 1 && is_eager {
                    protected.push((global, NaiveChange::MayStore(true)));
                }
                *self.cached_mut(global) = cached;
            }
            self.change_all(&unmapped, "softvm.unmapped");
            self.change_all(&protected, "softvm.protection");
        }
    }

    /// The frame and store permission of a page in the table of its process.
    pub fn leaf(&self, (process, page): Page) -> Option<(u64, bool)> {
        let memory = self.os.memory();
        let number = PageNumber::new(page);
        let lives = memory.live().any(|live| live == process);
        let leaf = lives.then(|| memory.process(process).table.leaf(number)).flatten()?;
        Some((leaf.frame_of(number).raw(), leaf.rights.write))
    }

    fn cached(&self, global: u64) -> &CachedPage {
        &self.cached.iter().find(|(at, _)| *at == global).expect("it has lines").1
    }

    fn cached_mut(&mut self, global: u64) -> &mut CachedPage {
        &mut self.cached.iter_mut().find(|(at, _)| *at == global).expect("it has lines").1
    }

    /// Prepares a copy on write: the operating system reads the page around the caches, so that dirty lines
    /// are written back.
    pub fn clean_source(&mut self, page: u64) {
        let Some(frame) = self.os.memory().source_of_copy(self.process, PageNumber::new(page))
        else {
            return;
        };
        let open: Vec<u64> = self
            .cached
            .iter()
            .filter(|(_, cached)| cached.frame == frame.raw() && cached.may_store)
            .map(|(global, _)| *global)
            .collect();
        for global in open {
            self.change(global, NaiveChange::MayStore(false), "softvm.synonyms");
        }
    }

    /// Injects the protection changes and DMA transfers that are due.
    pub fn inject_events(&mut self) {
        let SoftvmRates { protections_per_billion, dma_pages_per_billion } = self.softvm.rates;
        for (number, rate) in
            [protections_per_billion, dma_pages_per_billion].into_iter().enumerate()
        {
            while self.injected[number] < self.instructions * u64::from(rate) / 1_000_000_000 {
                self.injected[number] += 1;
                let chance = self.injected[number].wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let Some(line) = self.line_in_use(chance) else { continue };
                match number {
                    0 => self.protect(line, NaiveChange::MayStore(false)),
                    _ => self.change(line >> 12 << 12, NaiveChange::Drop, "softvm.dma"),
                }
            }
        }
    }

    /// A data line of a cached page, from the first non-empty set of the second level, counted from set `from`.
    fn line_in_use(&self, from: u64) -> Option<u64> {
        let sets = self.softvm.l2.bytes / self.lines[1] / self.ways();
        let lines = self.sides[1].lines(1).into_iter().map(|line| line.0);
        let page_lines =
            lines.filter(|line| self.cached.iter().any(|(global, _)| *global == line >> 12 << 12));
        page_lines.min_by_key(|line| ((line / self.lines[1] + sets - from % sets) % sets, *line))
    }

    fn ways(&self) -> u64 {
        self.softvm.l2.ways.of(self.softvm.l2.bytes / self.lines[1])
    }

    /// The unit of protection: whole pages in a TLB.
    pub fn protection_bytes(&self) -> u64 {
        if self.tlb.is_some() { 4096 } else { self.softvm.kernel.protection_bytes }
    }

    /// Changes all lines of the unit of protection of a line.
    pub fn protect(&mut self, line: u64, change: NaiveChange) {
        let bytes = self.protection_bytes();
        if bytes == 4096 {
            self.change(line >> 12 << 12, change, "softvm.protection");
            return;
        }
        let sides = self.cached(line >> 12 << 12).sides;
        let mut all = Vec::new();
        for side in (0..2).filter(|side| sides[*side]) {
            all.push(self.sides[side].sweep(line / bytes * bytes, bytes, change));
        }
        self.swept("softvm.protection", &all);
        self.handled_write_backs = self.sides[1].written.len();
    }

    /// Changes pages. If the pages of a side have more lines than its second level, the side is swept as a whole: each
    /// line is checked once.
    fn change_all(&mut self, pages: &[(u64, NaiveChange)], component: &'static str) {
        let entries = self.softvm.l2.bytes / self.lines[1];
        let whole = [0, 1].map(|side| {
            let users = pages.iter().filter(|(page, _)| self.cached(*page).sides[side]);
            users.count() as u64 * (4096 / self.lines[1]) > entries
        });
        for _ in whole.iter().filter(|is_whole| **is_whole) {
            self.count(component, "whole", 1);
            self.count(component, "l1_checked", self.softvm.l1.bytes / self.lines[0]);
            self.count(component, "l2_checked", entries);
        }
        for (page, change) in pages {
            self.change_one(*page, *change, component, whole);
        }
    }

    pub fn change(&mut self, global: u64, change: NaiveChange, component: &'static str) {
        self.change_one(global, change, component, [false; 2]);
    }

    fn change_one(
        &mut self,
        global: u64,
        change: NaiveChange,
        component: &'static str,
        are_checked: [bool; 2],
    ) {
        let cached = self.cached(global).clone();
        let mut all = Vec::new();
        for side in (0..2).filter(|side| cached.sides[*side]) {
            let [mut l1, mut l2] = self.sides[side].sweep(global, 4096, change);
            if are_checked[side] {
                (l1[0], l2[0]) = (0, 0);
            }
            all.push([l1, l2]);
        }
        self.swept(component, &all);
        match change {
            NaiveChange::Drop => {
                self.cached.retain(|(at, _)| *at != global);
            }
            NaiveChange::MayStore(may_store) => {
                self.cached_mut(global).may_store = may_store;
            }
        }
        // A sweep needs no translation for the lines that it writes back.
        self.handled_write_backs = self.sides[1].written.len();
    }

    pub fn swept(&mut self, component: &'static str, all: &[[[u64; 3]; 2]]) {
        self.count(component, "pages", 1);
        let names = [
            ["l1_checked", "l1_changed", "l1_written_back"],
            ["l2_checked", "l2_changed", "l2_written_back"],
        ];
        for swept in all {
            for (names, swept) in names.iter().zip(swept) {
                for (name, times) in names.iter().zip(swept) {
                    self.count(component, name, *times);
                }
            }
        }
    }

    /// Sweeps lines of the same frame at other addresses, and records the page as cached. Returns whether the line may
    /// have store permission.
    pub fn claim(&mut self, addr: u64, page: (u64, bool), side: usize, stores: bool) -> bool {
        let (frame, may_store) = page;
        let user = (self.process, addr >> 12);
        let global = self.global(self.process, addr >> 12 << 12);
        let others: Vec<u64> = self
            .cached
            .iter()
            .filter(|(other, cached)| {
                *other != global && cached.frame == frame && (stores || cached.may_store)
            })
            .map(|(other, _)| *other)
            .collect();
        if self.softvm.kernel.aliases == Aliasing::Refuse && !others.is_empty() {
            self.refused = true;
            return false;
        }
        for other in others {
            let change = if stores { NaiveChange::Drop } else { NaiveChange::MayStore(false) };
            self.change(other, change, "softvm.synonyms");
        }
        if !self.cached.iter().any(|(at, _)| *at == global) {
            let new = CachedPage { frame, may_store: false, sides: [false; 2], users: Vec::new() };
            self.cached.push((global, new));
        }
        let alone = self.cached.iter().filter(|(_, cached)| cached.frame == frame).count() == 1;
        let may_store = may_store && (stores || alone);
        let cached = self.cached_mut(global);
        assert_eq!(cached.frame, frame);
        if !cached.users.contains(&user) {
            cached.users.push(user);
        }
        cached.sides[side] = true;
        cached.may_store |= may_store;
        may_store
    }
}
