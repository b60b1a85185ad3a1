//! Walks to perforated pages: work of the walker after the page's entry (Park et al., ISCA 2020, Sections
//! IV-B and IV-D).

use octavo_hw::{Asid, WalkCaches};
use octavo_os::page_table::{Perforated, Step, Walk};
use octavo_types::{Access, AddrRange, PageNumber, PhysAddr, VirtAddr};

use super::Env;
use super::walk::{WalkedPage, page_start};
use crate::tlb::Translation;

/// The page-table level of perforated pages.
const LEVEL: u8 = 2;
/// Walk caches tag shadow nodes with addresses that no program uses.
const SHADOW: u64 = 1 << 60;

/// The outcome of an access to a base page of a perforated page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartAccess {
    /// The access is permitted.
    Page(Translation),
    /// A page fault was served, or the mapping changed: the walk must be repeated.
    Faulted,
}

/// The walk-cache tags of the shadow nodes of a range.
pub(super) fn shadow_range(range: AddrRange) -> AddrRange {
    AddrRange::new(VirtAddr::new(range.start().raw() | SHADOW), range.bytes())
}

/// The entries that a walk to a hole reads; also fills the walk caches. `is_new` marks a walk of its own,
/// which does not read the page's entry; otherwise the walk continues after that entry.
pub(super) fn hole_entries<'w>(
    walk: &'w Walk,
    [shadow, last]: [Step; 2],
    caches: &mut WalkCaches<()>,
    (asid, page): (Asid, PageNumber),
    is_new: bool,
) -> impl Iterator<Item = PhysAddr> + use<'w> {
    let addr = page_start(page);
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
    /// Reads the line of the hole bitmap with the bits of the perforated page around a base page through the
    /// data caches. In a guest this follows a [walk](Env::walk) and reads the line of each table whose page
    /// is perforated. With `continues_walk` the read is part of a walk that has found the page (always, in a
    /// guest). Returns whether the bits may be cached; `None` when memory has run out.
    pub(crate) fn read_bitmap(
        &mut self,
        page: PageNumber,
        translation: &Translation,
        continues_walk: bool,
    ) -> Option<bool> {
        if self.host.is_some() {
            return self.read_bitmaps_nested(page);
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
        self.charge_walk_part(latency_cycles, continues_walk);
    }

    /// The bitmap word of the 32 aligned base pages around `page`, after its line has been read; in a guest,
    /// the *or* of both tables' words.
    pub(crate) fn bitmap_word(&self, page: PageNumber, translation: &Translation) -> u32 {
        if self.host.is_some() {
            return self.composed_bitmap_word(page);
        }
        let frame = translation.part_of_region(page).entry.frame();
        self.os.memory().frames.hole_bitmaps().word(frame)
    }

    /// The perforated page of the running process that holds a base page, if any.
    pub(super) fn perforated(&self, page: PageNumber) -> Option<Perforated> {
        self.os.memory().process(self.process).table.perforated(page)
    }

    /// Uses a base page of a perforated page that is not a hole, after a [walk](Env::walk) has found the
    /// page. `None` when memory has run out.
    pub(crate) fn use_part(&mut self, page: PageNumber, kind: Access) -> Option<PartAccess> {
        if self.host.is_some() {
            return self.use_part_nested(page, kind);
        }
        let walk = self.table_walk(page);
        if self.perforated(page).is_some_and(|of| !of.is_hole)
            && let Some(WalkedPage { translation, is_marked }) = self.finish_walk(&walk, page, kind)
        {
            let entry = walk.steps().last().expect("a walk reads the root's entry");
            self.write_if(is_marked, entry.at);
            return Some(PartAccess::Page(translation));
        }
        self.faulted(page, kind)
    }

    /// Walks to a hole through its entry in the shadow node. With `continues_walk`, a [walk](Env::walk) has
    /// read the page's entry and so knows the node; otherwise this is a walk of its own, which does not read
    /// that entry (except in a guest, where the entry shows whose hole it may be). `None` when memory has run
    /// out.
    pub(crate) fn walk_hole(
        &mut self,
        page: PageNumber,
        kind: Access,
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
        for entry in hole_entries(&walk, steps, &mut self.page_walker.caches, at, is_new) {
            latency_cycles += self.read_entry(entry);
        }
        self.charge_walk_part(latency_cycles, continues_walk);
        if perforated.is_hole
            && let Some(WalkedPage { translation, is_marked }) = self.finish_walk(&walk, page, kind)
        {
            self.write_if(is_marked, steps[1].at);
            return Some(PartAccess::Page(translation));
        }
        self.faulted(page, kind)
    }

    /// Writes an entry whose accessed or dirty bit was set.
    pub(super) fn write_if(&mut self, is_marked: bool, at: PhysAddr) {
        let Env { walker, caches, lines, .. } = self;
        let latency_cycles = walker.write_if(is_marked, caches, *lines, at);
        self.extend_walk(latency_cycles);
    }

    pub(super) fn faulted(&mut self, page: PageNumber, kind: Access) -> Option<PartAccess> {
        self.walker.faulted += 1;
        self.fault(page, kind)?;
        Some(PartAccess::Faulted)
    }
}
