//! Perforated pages of the host (paper 004, Section V), behind pages of the guest.
//!
//! What the paper leaves open: the nested TLB holds perforated pages as the second level does, but no bits
//! of bitmaps. A page that the filter does not answer for asks for the line of the bitmap, through the data
//! caches, and is kept as a base page then. An entry of a hole that is empty is no hole of this table:
//! another one has it, which maps the same region.

use octavo_hw::Asid;
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::Perforated;
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use super::super::super::perforated::to_hole;
use super::super::super::walk::{Found, found};
use super::{Behind, Host, Port, read_entry};
use crate::counters::Lookups;
use crate::tlb::{Held, Tlb};

impl Behind {
    /// What the nested TLB holds.
    pub(super) fn of(held: Held) -> Self {
        match held.is_perforated() {
            true => Behind::Perforated(held),
            // Where the TLB has no room for a whole page it knows of what it holds a part.
            false => Behind::Page(held.whole()),
        }
    }
}

impl Host {
    /// What there is to the perforated page that holds a guest-physical page, if one does.
    fn perforated(&self, page: PageNumber) -> Option<Perforated> {
        self.table().perforated(page)
    }

    /// The same as a TLB holds it.
    pub(super) fn held_perforated(&self, page: PageNumber) -> Option<Held> {
        self.perforated(page).map(|of| Held::perforated(&of, of.used.1))
    }

    pub(super) fn holds_perforated(&self, core: usize) -> bool {
        self.cores[core].tlb.as_ref().is_some_and(Tlb::holds_perforated)
    }

    /// The nested TLB has a base page of a perforated page.
    pub(super) fn keep_base(&mut self, page: PageNumber, held: Held, references: u32, core: usize) {
        if let Some(tlb) = &mut self.cores[core].tlb {
            tlb.fill(Asid::ONLY, page, held, references);
        }
    }

    /// The base page that a perforated page has for a guest-physical page, and whether more than the
    /// filter was asked for it. `is_new` says whether there was no walk yet. None where the page faulted: the
    /// host is walked again.
    pub(super) fn inside(
        &mut self,
        page: PageNumber,
        held: &Held,
        stores: bool,
        is_new: bool,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<(Held, bool)>, OutOfMemory> {
        if !held.may_be_hole(page) {
            return Ok(Some((held.part_of_region(page), false)));
        }
        *latency_cycles += self.read_bitmap(held.region().value.frame().start(), port);
        let frame = held.part_of_region(page).value.frame();
        let part = match self.os.memory().frames.hole_bitmaps().is_hole(frame) {
            true => self.walk_hole(page, stores, is_new, port, latency_cycles)?,
            false if is_new => Some(held.part_of_region(page)),
            false => self.use_part(page, stores, port, latency_cycles)?,
        };
        Ok(part.map(|part| (part, true)))
    }

    /// Reads the line of the host's bitmap that has the bits of a region; what that cost.
    pub(in crate::env::nested) fn read_bitmap(
        &mut self,
        region: PhysAddr,
        port: &mut Port<'_>,
    ) -> u32 {
        let at = self.os.memory().frames.hole_bitmaps().line_of(region.frame());
        self.walker.read_bitmap(port.caches, port.lines, at)
    }

    /// Walks to a hole.
    fn walk_hole(
        &mut self,
        page: PageNumber,
        stores: bool,
        is_new: bool,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<Held>, OutOfMemory> {
        self.hole_walks += 1;
        self.walker.walks += u64::from(is_new);
        let walk = self.table().walk(page);
        let Some(of) = self.perforated(page) else { return Ok(None) };
        let caches = &mut self.cores[port.core].walk_caches;
        for at in to_hole(&walk, of.hole_steps, caches, (Asid::ONLY, page), is_new) {
            *latency_cycles += read_entry(port.caches, port.lines, at, &mut self.walker);
        }
        self.use_part(page, stores, port, latency_cycles)
    }

    /// A page whose entry has been read is used: that of a hole, of a perforated page or of any other. None
    /// where it faulted.
    pub(in crate::env::nested) fn use_part(
        &mut self,
        page: PageNumber,
        stores: bool,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<Held>, OutOfMemory> {
        let walk = self.table().walk(page);
        let hole = self.perforated(page).filter(|of| of.is_hole);
        let Some(Found { held, is_marked }) = found(&mut self.os, self.vm, &walk, page, stores)
        else {
            self.walker.faulted += 1;
            self.fault(page, stores)?;
            return Ok(None);
        };
        let entry = walk.steps().last().expect("a walk reads the root's entry");
        let at = hole.map_or(entry.at, |of| of.hole_steps[1].at);
        *latency_cycles += self.walker.write_if(is_marked, port.caches, port.lines, at);
        Ok(Some(held))
    }

    /// Whether a guest-physical page lies in 2 MiB or more that the host has whole or perforated, and is no
    /// hole of it.
    pub(in crate::env::nested) fn is_in_region(&self, page: PageNumber) -> bool {
        match self.perforated(page) {
            Some(of) => !of.is_hole,
            None => self.table().leaf(page).is_some_and(|leaf| leaf.size >= PageSize::HUGE),
        }
    }

    /// The perforated page of the host that a guest-physical page lies in: its first frame.
    pub(in crate::env::nested) fn region(&self, page: PageNumber) -> Option<PhysAddr> {
        self.perforated(page).map(|of| of.region.frame.start())
    }

    /// The 32 bits of the host's bitmap around a guest-physical page that lies in a perforated page; else
    /// none is set.
    pub(in crate::env::nested) fn bitmap_word(&self, page: PageNumber) -> u32 {
        let of = self.perforated(page).map(|of| of.region.frame_of(page));
        of.map_or(0, |frame| self.os.memory().frames.hole_bitmaps().word(frame))
    }

    /// The frame in which a guest-physical page lies, if it does.
    pub(in crate::env::nested) fn frame_behind(&self, page: PageNumber) -> Option<FrameNumber> {
        self.table().leaf(page).map(|leaf| leaf.frame_of(page))
    }

    /// Where a page of the guest's bitmap of holes lies, as the register says, which is set where it does
    /// not; and what that cost.
    pub(in crate::env::nested) fn place_of_bitmap(
        &mut self,
        page: PageNumber,
        port: &mut Port<'_>,
    ) -> Result<(PhysAddr, u32), OutOfMemory> {
        let known = self.cores[port.core].bitmap.filter(|(of, held)| {
            let shift = held.size.base_shift();
            of.raw() >> shift == page.raw() >> shift
        });
        let Lookups { hits, misses } = &mut self.register;
        let (held, cost) = match known {
            Some((_, held)) => {
                *hits += 1;
                (held, 0)
            }
            None => {
                *misses += 1;
                let (held, cost) = self.translate(page, false, 1, port)?;
                self.cores[port.core].bitmap = Some((page, held));
                (held, cost)
            }
        };
        Ok((held.frame_of(page).start(), cost))
    }
}
