//! What walkers do beyond the entry of a perforated page (paper 004, Sections IV-B and IV-D).

use octavo_hw::{Asid, WalkCaches};
use octavo_os::page_table::{Perforated, Step, Walk};
use octavo_types::{AddrRange, PageNumber, PhysAddr, VirtAddr};

use super::Env;
use super::walk::{Found, start_of};
use crate::front::Kind;
use crate::tlb::Translation;

/// The level of perforated pages.
const LEVEL: u8 = 2;
/// Walk caches know shadow nodes by addresses of their own, which no program has.
const SHADOW: u64 = 1 << 60;

/// What became of a base page of a perforated page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartAccess {
    /// It may be used as asked.
    Page(Translation),
    /// It faulted, which has been served, or is no longer what it was: the walk begins anew.
    Faulted,
}

/// The addresses by which walk caches know the shadow nodes of a range.
pub(super) fn of_shadow(range: AddrRange) -> AddrRange {
    AddrRange::new(VirtAddr::new(range.start().raw() | SHADOW), range.bytes())
}

/// The entries that the walk for a hole reads, which walk caches know then. `is_new` says whether it is a
/// walk of its own, which does not read the page's entry; else it goes on behind that.
pub(super) fn to_hole<'w>(
    walk: &'w Walk,
    [shadow, last]: [Step; 2],
    caches: &mut WalkCaches<()>,
    (asid, page): (Asid, PageNumber),
    is_new: bool,
) -> impl Iterator<Item = PhysAddr> + use<'w> {
    let addr = start_of(page);
    let by_shadow = VirtAddr::new(addr.raw() | SHADOW);
    let knows = caches.at(asid, by_shadow, LEVEL).is_some();
    let from = match is_new && !knows {
        true => caches.deepest_from(asid, addr, LEVEL + 1).map_or(u8::MAX, |(level, ())| level),
        false => 0,
    };
    let above = walk.steps().iter().filter(move |step| LEVEL < step.level && step.level < from);
    above.clone().for_each(|step| caches.fill(asid, addr, step.level, ()));
    if !knows {
        caches.fill(asid, by_shadow, LEVEL, ());
    }
    above.map(|step| step.at).chain((!knows).then_some(shadow.at)).chain([last.at])
}

impl Env {
    /// Reads the line of the bitmap that has the bits of the perforated page around a base page, through
    /// the data caches: in a guest, after a [walk](Env::walk), that of each table whose page is perforated.
    /// `continues_walk` says whether this goes on with a walk that has found the page, as in a guest always.
    /// Whether the bits may be kept; none where memory has run out.
    pub(crate) fn read_bitmap(
        &mut self,
        page: PageNumber,
        translation: &Translation,
        continues_walk: bool,
    ) -> Option<bool> {
        if self.host.is_some() {
            return self.read_bitmaps(page);
        }
        let frame = translation.region().entry.frame();
        let at = self.os.memory().frames.hole_bitmaps().line_of(frame);
        self.read_bitmap_at(at, continues_walk);
        Some(true)
    }

    /// Reads a line of a bitmap through the data caches.
    pub(super) fn read_bitmap_at(&mut self, at: PhysAddr, continues_walk: bool) {
        let Env { walker, caches, lines, .. } = self;
        let latency_cycles = walker.read_bitmap(caches, *lines, at);
        self.add_or_extend_walk(latency_cycles, continues_walk);
    }

    /// The 32 bits around that of a base page of a perforated page, which have been read: in a guest,
    /// those of both tables, by *or*.
    pub(crate) fn bitmap_word(&self, page: PageNumber, translation: &Translation) -> u32 {
        if self.host.is_some() {
            return self.bitmap_words(page);
        }
        let frame = translation.part_of_region(page).entry.frame();
        self.os.memory().frames.hole_bitmaps().word(frame)
    }

    /// What there is to the perforated page that holds a base page, if one does.
    pub(super) fn perforated(&self, page: PageNumber) -> Option<Perforated> {
        self.os.memory().process(self.process).table.perforated(page)
    }

    /// A base page of a perforated page that is no hole is used, after a [walk](Env::walk) has found the
    /// page. None where memory has run out.
    pub(crate) fn use_part(&mut self, page: PageNumber, kind: Kind) -> Option<PartAccess> {
        if self.host.is_some() {
            return self.use_part_nested(page, kind);
        }
        let walk = self.table_walk(page);
        if self.perforated(page).is_some_and(|of| !of.is_hole)
            && let Some(Found { translation, is_marked }) = self.found(&walk, page, kind)
        {
            let entry = walk.steps().last().expect("a walk reads the root's entry");
            self.write_if(is_marked, entry.at);
            return Some(PartAccess::Page(translation));
        }
        self.faulted(page, kind)
    }

    /// Walks to the page of a hole, through the entry in the shadow node. `continues_walk` says whether
    /// this goes on with a [walk](Env::walk) that has read the page's entry, and so knows the node; else it
    /// is a walk of its own, which does not read that entry (but in a guest, where it tells whose hole that
    /// may be). None where memory has run out.
    pub(crate) fn walk_hole(
        &mut self,
        page: PageNumber,
        kind: Kind,
        continues_walk: bool,
    ) -> Option<PartAccess> {
        if self.host.is_some() {
            return self.walk_hole_nested(page, kind, continues_walk);
        }
        let walk = self.table_walk(page);
        let Some(perforated) = self.perforated(page) else { return Some(PartAccess::Faulted) };
        let mut latency_cycles = 0;
        let is_new = !continues_walk;
        self.walker.walks += u64::from(is_new);
        latency_cycles += if is_new { self.walk_overhead_cycles } else { 0 };
        let (steps, at) = (perforated.hole_steps, (self.asid, page));
        for entry in to_hole(&walk, steps, &mut self.walk_caches, at, is_new) {
            latency_cycles += self.read_entry(entry);
        }
        self.add_or_extend_walk(latency_cycles, continues_walk);
        if perforated.is_hole
            && let Some(Found { translation, is_marked }) = self.found(&walk, page, kind)
        {
            self.write_if(is_marked, steps[1].at);
            return Some(PartAccess::Page(translation));
        }
        self.faulted(page, kind)
    }

    /// Writes an entry that was marked as used.
    pub(super) fn write_if(&mut self, is_marked: bool, at: PhysAddr) {
        let Env { walker, caches, lines, .. } = self;
        let latency_cycles = walker.write_if(is_marked, caches, *lines, at);
        self.extend_walk(latency_cycles);
    }

    pub(super) fn faulted(&mut self, page: PageNumber, kind: Kind) -> Option<PartAccess> {
        self.walker.faulted += 1;
        self.fault(page, kind)?;
        Some(PartAccess::Faulted)
    }
}
