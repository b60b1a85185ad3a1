//! What walkers do beyond the entry of a perforated page (paper 004, Sections IV-B and IV-D).

use octavo_os::page_table::Perforated;
use octavo_types::{AddrRange, FrameNumber, PageNumber, PhysAddr, VirtAddr};

use super::Env;
use super::walk::{Found, line_of, start_of};
use crate::front::Kind;
use crate::tlb::Held;

/// The level of perforated pages.
const LEVEL: u8 = 2;
/// Walk caches know shadow nodes by addresses of their own, which no program has.
const SHADOW: u64 = 1 << 60;

/// What became of a base page of a perforated page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It may be used as asked.
    Page(Held),
    /// It faulted, which has been served: the walk begins anew.
    Faulted,
}

/// The addresses by which walk caches know the shadow nodes of a range.
pub(super) fn of_shadow(range: AddrRange) -> AddrRange {
    AddrRange::new(VirtAddr::new(range.start().raw() | SHADOW), range.bytes())
}

impl Env {
    /// Reads the line of the bitmap that has the bits of the region of a perforated page, through the
    /// data caches.
    pub fn read_bitmap(&mut self, frame: FrameNumber) {
        let at = self.os.memory().frames.hole_bitmaps().line_of(frame);
        self.read_beside_walk(at);
    }

    /// Reads what is no entry of a page table, but takes its way through the data caches.
    pub(super) fn read_beside_walk(&mut self, at: PhysAddr) {
        let served = self.caches.read_pte(line_of(at, self.lines));
        self.add_walk_cycles(served.latency_cycles);
    }

    /// The 32 bits of the bitmap around that of a frame, which have been read.
    pub fn bitmap_word(&self, frame: FrameNumber) -> u32 {
        self.os.memory().frames.hole_bitmaps().word(frame)
    }

    /// What there is to the perforated page that holds a base page, if one does.
    pub(super) fn perforated(&self, page: PageNumber) -> Option<Perforated> {
        self.os.memory().process(self.process).table.perforated(page)
    }

    /// A base page of a perforated page that is no hole is used, after a [walk](Env::walk) has found the
    /// page. None where memory has run out.
    pub(crate) fn use_part(&mut self, page: PageNumber, kind: Kind) -> Option<Answer> {
        let walk = self.table_walk(page);
        if self.perforated(page).is_some_and(|of| !of.is_hole)
            && let Some(Found { held, is_marked }) = self.found(&walk, page, kind)
        {
            let entry = walk.steps().last().expect("a walk reads the root's entry");
            self.write_if(is_marked, entry.at);
            return Some(Answer::Page(held));
        }
        self.faulted(page, kind)
    }

    /// Walks to the page of a hole, through the entry in the shadow node. `is_under_way` says whether
    /// this goes on with a [walk](Env::walk) that has read the page's entry, and so knows the node; else it
    /// is a walk of its own, which does not read that entry. None where memory has run out.
    pub(crate) fn walk_hole(
        &mut self,
        page: PageNumber,
        kind: Kind,
        is_under_way: bool,
    ) -> Option<Answer> {
        let walk = self.table_walk(page);
        let Some(perforated) = self.perforated(page) else { return Some(Answer::Faulted) };
        let mut latency_cycles = 0;
        let addr = start_of(page);
        let by_shadow = VirtAddr::new(addr.raw() | SHADOW);
        let is_new = !is_under_way;
        self.walker.walks += u64::from(is_new);
        latency_cycles += if is_new { self.walk_overhead_cycles } else { 0 };
        let [shadow, last] = perforated.hole_steps;
        if self.walk_caches.at(self.asid, by_shadow, LEVEL).is_none() {
            if is_new {
                let known = self.walk_caches.deepest_from(self.asid, addr, LEVEL + 1);
                let from = known.map_or(u8::MAX, |(level, ())| level);
                let above = walk.steps().iter().filter(|step| step.level > LEVEL);
                for step in above.filter(|step| step.level < from) {
                    latency_cycles += self.read_entry(step.at);
                    self.walk_caches.fill(self.asid, addr, step.level, ());
                }
            }
            latency_cycles += self.read_entry(shadow.at);
            self.walk_caches.fill(self.asid, by_shadow, LEVEL, ());
        }
        latency_cycles += self.read_entry(last.at);
        self.add_walk_cycles(latency_cycles);
        if perforated.is_hole
            && let Some(Found { held, is_marked }) = self.found(&walk, page, kind)
        {
            self.write_if(is_marked, last.at);
            return Some(Answer::Page(held));
        }
        self.faulted(page, kind)
    }

    /// Writes an entry that was marked as used.
    fn write_if(&mut self, is_marked: bool, at: PhysAddr) {
        if is_marked {
            self.walker.marked += 1;
            let served = self.caches.write_pte(line_of(at, self.lines));
            self.add_walk_cycles(served.latency_cycles);
        }
    }

    fn faulted(&mut self, page: PageNumber, kind: Kind) -> Option<Answer> {
        self.walker.faulted += 1;
        self.fault(page, kind)?;
        Some(Answer::Faulted)
    }
}
