//! Composite host pages, whose base pages may lie elsewhere: perforated pages (Park et al., ISCA 2020,
//! Section V) and gapped pages (Section VII-D).
//!
//! Decisions that the paper leaves open: the nested TLB holds both kinds as the second-level TLB does, but no
//! bitmap words. For a base page that a perforated page's filter does not rule out as a hole, or that lies in
//! a gapped page, the bitmap is read through the data caches and the base page is filled. An empty hole entry
//! means that the hole belongs to another table that maps the same region.

use octavo_hw::Asid;
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::Perforated;
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use super::super::super::gapped::read_chunk_bitmap;
use super::super::super::perforated::hole_entries;
use super::super::super::walk::{WalkedPage, finish_walk};
use super::{Backing, Host, Port, read_entry};
use crate::counters::Lookups;
use crate::tlb::Translation;

impl Backing {
    /// The backing given by an entry of the nested TLB.
    pub(super) fn of(translation: Translation) -> Self {
        match translation.is_perforated() || translation.is_gapped() {
            true => Backing::Composite(translation),
            // An array without entries of the whole page's size holds a part of it; use the whole page.
            false => Backing::Page(translation.whole()),
        }
    }
}

impl Host {
    /// The perforated page that holds a guest-physical page, if any.
    fn perforated(&self, page: PageNumber) -> Option<Perforated> {
        self.table().perforated(page)
    }

    /// The composite page that holds a guest-physical page, if any.
    pub(super) fn composite_page(&self, page: PageNumber) -> Option<Translation> {
        let perforated = self.perforated(page).map(|of| Translation::perforated(&of, of.used.1));
        let gapped = || self.table().gapped(page).map(|of| Translation::gapped(&of, of.used.1));
        perforated.or_else(gapped)
    }

    pub(super) fn holds_perforated(&self, core: usize) -> bool {
        self.cores[core].tlb.as_ref().is_some_and(|tlb| tlb.has_sets_of(PageSize::HUGE))
    }

    /// Fills a base page of a composite page into the nested TLB.
    pub(super) fn fill_base_page(
        &mut self,
        page: PageNumber,
        translation: Translation,
        references: u32,
        core: usize,
    ) {
        if let Some(tlb) = &mut self.cores[core].tlb {
            tlb.fill(Asid::ONLY, page, translation, references);
        }
    }

    /// Translates a guest-physical page inside a composite page: the base page, and whether a bitmap was read
    /// for it. With `is_new`, no walk has been made for this access yet. `None` after a page fault: the
    /// host's table must be walked again.
    pub(super) fn resolve_part(
        &mut self,
        page: PageNumber,
        translation: &Translation,
        stores: bool,
        is_new: bool,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<(Translation, bool)>, OutOfMemory> {
        if translation.is_gapped() {
            let (frames, to) = (&self.os.memory().frames, (&mut *port.caches, port.lines));
            let (blocks, cost) =
                read_chunk_bitmap(frames, translation.chunk(), &mut self.walker, to);
            *latency_cycles += cost;
            return Ok(Some((translation.part_of_chunk(page, blocks), true)));
        }
        if !translation.needs_bitmap(page) {
            return Ok(Some((translation.part_of_region(page), false)));
        }
        *latency_cycles += self.read_bitmap(translation.region().entry.frame().start(), port);
        let frame = translation.part_of_region(page).entry.frame();
        let part = match self.os.memory().frames.hole_bitmaps().is_hole(frame) {
            true => self.walk_hole(page, stores, is_new, port, latency_cycles)?,
            false if is_new => Some(translation.part_of_region(page)),
            false => self.use_part(page, stores, port, latency_cycles)?,
        };
        Ok(part.map(|part| (part, true)))
    }

    /// Reads the line of the host's hole bitmap with the bits of a region. Returns the latency in cycles.
    pub(in crate::env::nested) fn read_bitmap(
        &mut self,
        region: PhysAddr,
        port: &mut Port<'_>,
    ) -> u32 {
        let at = self.os.memory().frames.hole_bitmaps().line_of(region.frame());
        self.walker.read_bitmap(port.caches, port.lines, at)
    }

    /// Walks to a hole of a perforated page.
    fn walk_hole(
        &mut self,
        page: PageNumber,
        stores: bool,
        is_new: bool,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<Translation>, OutOfMemory> {
        self.hole_walks += 1;
        self.walker.walks += u64::from(is_new);
        let walk = self.table().walk(page);
        let Some(of) = self.perforated(page) else { return Ok(None) };
        let caches = &mut self.cores[port.core].page_walker.caches;
        for at in hole_entries(&walk, of.hole_steps, caches, (Asid::ONLY, page), is_new) {
            *latency_cycles += read_entry(port.caches, port.lines, at, &mut self.walker);
        }
        self.use_part(page, stores, port, latency_cycles)
    }

    /// Uses a page whose entry has been read: a hole, a base page of a perforated page, or any other page.
    /// `None` after a page fault.
    pub(in crate::env::nested) fn use_part(
        &mut self,
        page: PageNumber,
        stores: bool,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<Translation>, OutOfMemory> {
        let walk = self.table().walk(page);
        let hole = self.perforated(page).filter(|of| of.is_hole);
        let Some(WalkedPage { translation, is_marked }) =
            finish_walk(&mut self.os, self.vm, &walk, page, stores)
        else {
            self.walker.faulted += 1;
            self.fault(page, stores)?;
            return Ok(None);
        };
        let entry = walk.steps().last().expect("a walk reads the root's entry");
        let at = hole.map_or(entry.at, |of| of.hole_steps[1].at);
        *latency_cycles += self.walker.write_if(is_marked, port.caches, port.lines, at);
        Ok(Some(translation))
    }

    /// Whether a guest-physical page lies in a host page of 2 MiB or more, whole or perforated, and is not a
    /// hole of it.
    pub(in crate::env::nested) fn is_in_large_page(&self, page: PageNumber) -> bool {
        match self.perforated(page) {
            Some(of) => !of.is_hole,
            None => self.table().leaf(page).is_some_and(|leaf| leaf.size >= PageSize::HUGE),
        }
    }

    /// The first address of the host's perforated page that holds a guest-physical page, if any.
    pub(in crate::env::nested) fn region(&self, page: PageNumber) -> Option<PhysAddr> {
        self.perforated(page).map(|of| of.region.frame.start())
    }

    /// The bitmap word of the host around a guest-physical page; 0 outside perforated pages.
    pub(in crate::env::nested) fn bitmap_word(&self, page: PageNumber) -> u32 {
        let of = self.perforated(page).map(|of| of.region.frame_of(page));
        of.map_or(0, |frame| self.os.memory().frames.hole_bitmaps().word(frame))
    }

    /// The host frame of a guest-physical page, if mapped.
    pub(in crate::env::nested) fn backing_frame(&self, page: PageNumber) -> Option<FrameNumber> {
        self.table().leaf(page).map(|leaf| leaf.frame_of(page))
    }

    /// The host-physical address of a page of the guest's hole bitmap, and its latency in cycles. It comes
    /// from the bitmap register, which is refilled on a miss.
    pub(in crate::env::nested) fn place_of_bitmap(
        &mut self,
        page: PageNumber,
        port: &mut Port<'_>,
    ) -> Result<(PhysAddr, u32), OutOfMemory> {
        let known = self.cores[port.core].bitmap.filter(|(of, translation)| {
            let shift = translation.size.base_shift();
            of.raw() >> shift == page.raw() >> shift
        });
        let Lookups { hits, misses } = &mut self.register;
        let (translation, cost) = match known {
            Some((_, translation)) => {
                *hits += 1;
                (translation, 0)
            }
            None => {
                *misses += 1;
                let (translation, cost) = self.translate(page, false, 1, port)?;
                self.cores[port.core].bitmap = Some((page, translation));
                (translation, cost)
            }
        };
        Ok((translation.frame_of(page).start(), cost))
    }
}
