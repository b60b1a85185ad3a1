//! Sweeps of the caches.

use octavo_machine::designs::softvm::{Aliasing, IncreasedRights, SoftvmRates};
use octavo_oracle::NaiveChange;
use octavo_os::Content;
use octavo_types::PageNumber;

use super::{CachedPage, Naive, Page};

impl Naive {
    /// Changes by the operating system: lines of changed pages follow the page tables; memory contents are
    /// read and written around the caches.
    pub fn os_has_run(&mut self) {
        self.sweep_invalidated();
        self.change_contents();
    }

    fn change_contents(&mut self) {
        for content in self.os.memory_mut().take_contents() {
            for map in [&mut self.truth, &mut self.sides[1].memory] {
                match content {
                    Content::Zeroed { frame, frames } => {
                        let range = frame.raw()..frame.raw() + frames;
                        map.retain(|(of, _), _| !range.contains(of));
                    }
                    Content::Copied { from, to, frames } => {
                        let range = to.raw()..to.raw() + frames;
                        map.retain(|(of, _), _| !range.contains(of));
                        let copied: Vec<_> = map
                            .iter()
                            .filter(|((of, _), _)| (from.raw()..from.raw() + frames).contains(of))
                            .map(|((of, line), data)| ((of - from.raw() + to.raw(), *line), *data))
                            .collect();
                        map.extend(copied);
                    }
                    Content::Read { frame, .. } => map.retain(|(of, _), _| *of != frame.raw()),
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
            for (global, kept) in &self.kept {
                let users = kept.users.iter().filter(|user| is_stale(user));
                touched.extend(users.map(|user| (*user, *global)));
            }
            touched.sort_unstable();
            // If several process pages share a page, the first one counts.
            let mut globals: Vec<u64> = Vec::new();
            for (_, global) in touched {
                if !globals.contains(&global) {
                    globals.push(global);
                }
            }
            let (mut unmapped, mut protected) = (Vec::new(), Vec::new());
            for global in globals {
                let mut kept = self.kept(global).clone();
                kept.users.retain(|user| {
                    !is_stale(user) || self.leaf(*user).is_some_and(|leaf| leaf.0 == kept.frame)
                });
                let others =
                    self.kept.iter().filter(|(_, other)| other.frame == kept.frame).count();
                let allowed =
                    kept.users.iter().any(|user| self.leaf(*user).is_some_and(|leaf| leaf.1));
                let is_eager = self.softvm.kernel.increase == IncreasedRights::Eager;
                if kept.users.is_empty() {
                    unmapped.push((global, NaiveChange::Drop));
                } else if kept.may_store && !allowed {
                    protected.push((global, NaiveChange::MayStore(false)));
                } else if !kept.may_store && allowed && others == 1 && is_eager {
                    protected.push((global, NaiveChange::MayStore(true)));
                }
                *self.kept_mut(global) = kept;
            }
            self.change_all(&unmapped, "softvm.unmapped");
            self.change_all(&protected, "softvm.protection");
        }
    }

    /// The frame and store permission of a page by its process' table.
    pub fn leaf(&self, (process, page): Page) -> Option<(u64, bool)> {
        let memory = self.os.memory();
        let number = PageNumber::new(page);
        let lives = memory.live().any(|live| live == process);
        let leaf = lives.then(|| memory.process(process).table.leaf(number)).flatten()?;
        Some((leaf.frame_of(number).raw(), leaf.rights.write))
    }

    fn kept(&self, global: u64) -> &CachedPage {
        &self.kept.iter().find(|(at, _)| *at == global).expect("it has lines").1
    }

    fn kept_mut(&mut self, global: u64) -> &mut CachedPage {
        &mut self.kept.iter_mut().find(|(at, _)| *at == global).expect("it has lines").1
    }

    /// Prepares a copy on write: the operating system reads the page around the caches, so that dirty lines
    /// are written back.
    pub fn clean_source(&mut self, page: u64) {
        let Some(frame) = self.os.memory().source_of_copy(self.process, PageNumber::new(page))
        else {
            return;
        };
        let open: Vec<u64> = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.frame == frame.raw() && kept.may_store)
            .map(|(global, _)| *global)
            .collect();
        for global in open {
            self.change(global, NaiveChange::MayStore(false), "softvm.synonyms");
        }
    }

    /// Injects the due events.
    pub fn do_rare(&mut self) {
        let SoftvmRates { protections_per_billion, dma_pages_per_billion } = self.softvm.rates;
        for (number, rate) in
            [protections_per_billion, dma_pages_per_billion].into_iter().enumerate()
        {
            while self.rare[number] < self.instructions * u64::from(rate) / 1_000_000_000 {
                self.rare[number] += 1;
                let chance = self.rare[number].wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let Some(line) = self.line_in_use(chance) else { continue };
                match number {
                    0 => self.protect(line, NaiveChange::MayStore(false)),
                    _ => self.change(line >> 12 << 12, NaiveChange::Drop, "softvm.dma"),
                }
            }
        }
    }

    /// A data line of a cached page, in the first second-level set that has one.
    fn line_in_use(&self, from: u64) -> Option<u64> {
        let sets = self.softvm.l2.bytes / self.lines[1] / self.ways();
        let lines = self.sides[1].lines(1).into_iter().map(|line| line.0);
        let of_pages =
            lines.filter(|line| self.kept.iter().any(|(global, _)| *global == line >> 12 << 12));
        of_pages.min_by_key(|line| ((line / self.lines[1] + sets - from % sets) % sets, *line))
    }

    fn ways(&self) -> u64 {
        self.softvm.l2.ways.of(self.softvm.l2.bytes / self.lines[1])
    }

    /// A TLB protects whole pages.
    pub fn protection_bytes(&self) -> u64 {
        if self.tlb.is_some() { 4096 } else { self.softvm.kernel.protection_bytes }
    }

    /// Changes the lines of a line's unit of protection.
    pub fn protect(&mut self, line: u64, change: NaiveChange) {
        let bytes = self.protection_bytes();
        if bytes == 4096 {
            self.change(line >> 12 << 12, change, "softvm.protection");
            return;
        }
        let sides = self.kept(line >> 12 << 12).sides;
        let mut all = Vec::new();
        for side in (0..2).filter(|side| sides[*side]) {
            all.push(self.sides[side].sweep(line / bytes * bytes, bytes, change));
        }
        self.swept("softvm.protection", &all);
        self.seen = self.sides[1].written.len();
    }

    /// A side whose pages have more lines than its second level is swept as a whole: each line is checked
    /// once.
    fn change_all(&mut self, pages: &[(u64, NaiveChange)], component: &'static str) {
        let entries = self.softvm.l2.bytes / self.lines[1];
        let whole = [0, 1].map(|side| {
            let users = pages.iter().filter(|(page, _)| self.kept(*page).sides[side]);
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
        let kept = self.kept(global).clone();
        let mut all = Vec::new();
        for side in (0..2).filter(|side| kept.sides[*side]) {
            let [mut l1, mut l2] = self.sides[side].sweep(global, 4096, change);
            if are_checked[side] {
                (l1[0], l2[0]) = (0, 0);
            }
            all.push([l1, l2]);
        }
        self.swept(component, &all);
        match change {
            NaiveChange::Drop => {
                self.kept.retain(|(at, _)| *at != global);
            }
            NaiveChange::MayStore(may_store) => {
                self.kept_mut(global).may_store = may_store;
            }
        }
        // A sweep knows the frames of its lines.
        self.seen = self.sides[1].written.len();
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

    /// Sweeps lines of the frame at other addresses. Returns whether the line may have store permission.
    pub fn claim(&mut self, addr: u64, page: (u64, bool), side: usize, stores: bool) -> bool {
        let (frame, may_store) = page;
        let of = (self.process, addr >> 12);
        let global = self.global(self.process, addr >> 12 << 12);
        let others: Vec<u64> = self
            .kept
            .iter()
            .filter(|(other, kept)| {
                *other != global && kept.frame == frame && (stores || kept.may_store)
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
        if !self.kept.iter().any(|(at, _)| *at == global) {
            let new = CachedPage { frame, may_store: false, sides: [false; 2], users: Vec::new() };
            self.kept.push((global, new));
        }
        let alone = self.kept.iter().filter(|(_, kept)| kept.frame == frame).count() == 1;
        let may_store = may_store && (stores || alone);
        let kept = self.kept_mut(global);
        assert_eq!(kept.frame, frame);
        if !kept.users.contains(&of) {
            kept.users.push(of);
        }
        kept.sides[side] = true;
        kept.may_store |= may_store;
        may_store
    }
}
