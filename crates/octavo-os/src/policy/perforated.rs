//! Perforated pages (paper 004, Sections III-C and VI): huge pages, and huge pages with holes where memory
//! has no whole block, or where a page would have to be split.
//!
//! - A first touch of 2 MiB gets a free block, as with transparent huge pages. Where none is free, it gets
//!   a region of memory that is not too fragmented: less than a share of it is held by others and cannot
//!   be moved, and at most so many eighths have such frames. What can be moved moves away; the other
//!   frames are holes.
//! - A hole gets a page when it is touched, or at once. Where its own frame is free by then, it lies
//!   there, and the hole is patched.
//! - Untouched pages may be holes, too: the page reserves its frames, and each is patched when it is
//!   touched. So only what is touched takes memory, and each touch a shootdown.
//! - What would split a huge page (a store to a shared part, other rights, an unmapped part) punches holes.
//! - Beside the programs, base pages become huge pages or perforated ones, pages of holes move into their places where those are free or can be vacated,
//!   and pages without holes become whole. A page with too few parts that are no holes is split.
//!
//! What is assumed: base pages and the pages of holes come from the end of memory, as Linux keeps what is
//! alike together, so that they do not wear away the regions to be chosen. Frames with data of processes count as such that cannot be moved.

mod regions;

use std::collections::BTreeMap;

use octavo_types::{PageNumber, PageSize};

use super::base::place_last;
use super::{Fault, Policy, ReserveWhen, Thp, ThpConfig};
use crate::frames::{Order, OutOfMemory, Owner, ReservationId};
use crate::memory::{Memory, ProcessId, around};
use crate::page_table::Holes;
use crate::vmas::Pages;
use regions::{Regions, vacate_frame};

/// Base pages of a page of 2 MiB.
const PAGES: u64 = Order::HUGE.frames();

/// Its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerforatedConfig {
    /// A region is chosen only where less of it than this, in percent, cannot be moved.
    pub max_immovable_percent: u8,
    /// And where at most so many of its eighths have any such frame.
    pub max_filter_bits: u8,
    /// When holes get a page.
    pub hole_pages: ReserveWhen,
    /// Whether what is not touched is a hole, in whole blocks, too.
    pub unused_are_holes: bool,
    /// A page with fewer parts that are no holes is split.
    pub min_parts: u32,
    /// Which mappings may have huge pages, and what is done beside the programs.
    pub huge: ThpConfig,
}

impl Default for PerforatedConfig {
    /// The rule of Section III-C; and of Section IV-E: "as long as the perforated page has more than 17
    /// entries that are not holes, it is a more efficient use of L2 TLB capacity".
    fn default() -> Self {
        PerforatedConfig {
            max_immovable_percent: 25,
            max_filter_bits: 4,
            hole_pages: ReserveWhen::Touched,
            unused_are_holes: false,
            min_parts: 18,
            huge: ThpConfig::default(),
        }
    }
}

impl PerforatedConfig {
    /// What is wrong with it, as a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        let PerforatedConfig { max_immovable_percent, max_filter_bits, min_parts, .. } = self;
        if *max_immovable_percent > 100 {
            return Err(format!(
                "max_immovable_percent = {max_immovable_percent}: give a share in percent, 0 to 100"
            ));
        }
        if *max_filter_bits > 8 {
            return Err(format!("max_filter_bits = {max_filter_bits}: give 0 to 8"));
        }
        if u64::from(*min_parts) > PAGES {
            return Err(format!("min_parts = {min_parts}: give 0 to {PAGES}"));
        }
        Ok(())
    }
}

/// Perforated pages.
pub struct Perforated {
    config: PerforatedConfig,
    huge: Thp,
    regions: Regions,
    /// By process and huge page, what untouched pages are reserved by.
    reserved: BTreeMap<(ProcessId, u64), ReservationId>,
}

impl Perforated {
    /// No page yet.
    pub fn new(config: PerforatedConfig) -> Self {
        Perforated {
            config,
            huge: Thp::new(config.huge),
            regions: Regions::new(config),
            reserved: BTreeMap::new(),
        }
    }

    /// Makes a page around one that was touched where nothing is mapped yet, if it can. That one may be a
    /// hole of it, which has no page yet.
    fn place(&mut self, memory: &mut Memory, fault: &Fault) {
        let first = PageNumber::new(around(fault.page, PageSize::HUGE).start);
        let Fault { process, .. } = *fault;
        if self.config.unused_are_holes {
            return self.place_touched(memory, fault);
        }
        if memory.place_new(process, first, PageSize::HUGE, fault.vma.rights).is_ok() {
            return;
        }
        let Some(holes) = self.regions.perforate(memory, process, first, fault.vma.rights) else {
            return;
        };
        if self.config.hole_pages == ReserveWhen::Mapped {
            for at in (0..PAGES).filter(|at| holes.contains(*at)) {
                let page = PageNumber::new(first.raw() + at);
                // A page for which there is no memory is tried again when it is touched.
                let _ = place_last(memory, process, page, fault.vma.rights);
            }
        }
    }

    /// A page of which only what was touched is no hole.
    fn place_touched(&mut self, memory: &mut Memory, fault: &Fault) {
        let Fault { process, page, .. } = *fault;
        let pages = around(page, PageSize::HUGE);
        let Some((id, block)) = memory.frames.reserve(Order::HUGE) else { return };
        let place = page.raw() - pages.start;
        memory.frames.claim_reserved(id, place..place + 1);
        let mut holes = Holes([u64::MAX; 8]);
        holes.0[(place / 64) as usize] &= !(1 << (place % 64));
        let made = memory.perforate(process, page, block, &holes, fault.vma.rights);
        if !made.unwrap_or(false) {
            memory.frames.free(block.plus(place), Order::BASE);
            memory.frames.end_reservation(id);
            return;
        }
        self.reserved.insert((process, pages.start), id);
    }

    /// Gives a hole that was touched a page: in its place, if that can be had.
    fn fill(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, .. } = *fault;
        let pages = around(page, PageSize::HUGE);
        if let Some(id) = self.reserved.get(&(process, pages.start)) {
            let place = page.raw() - pages.start;
            memory.frames.record_use(*id);
            if !memory.frames.claim_reserved(*id, place..place + 1).is_empty() {
                return memory.fill_hole(process, page, fault.vma.rights);
            }
        }
        let place = memory.process(process).table.perforation(page).map(|of| of.0.frame_of(page));
        if place.is_some_and(|at| memory.frames.allocate_at(at, Order::BASE, Owner::Data)) {
            return memory.fill_hole(process, page, fault.vma.rights);
        }
        place_last(memory, process, page, fault.vma.rights)
    }

    /// Looks after all perforated pages.
    fn scan(&mut self, memory: &mut Memory) {
        let live: Vec<ProcessId> = memory.live().collect();
        for process in live {
            for (region, holes) in memory.perforated_in(process, &(0..u64::MAX)) {
                let page = |at: u64| PageNumber::new(region.page.raw() + at);
                for at in (0..PAGES).filter(|at| holes.contains(*at)) {
                    let place = region.frame.plus(at);
                    let is_mapped = memory.process(process).table.leaf(page(at)).is_some();
                    if is_mapped && vacate_frame(memory, place) {
                        memory.move_into_place(process, page(at));
                    }
                }
                if memory.make_whole(process, region.page) {
                    self.reserved.remove(&(process, region.page.raw()));
                    continue;
                }
                let holes = memory.process(process).table.perforation(region.page);
                let parts = PAGES as u32 - holes.map_or(0, |(_, holes)| holes.count());
                // One that was broken for want of memory gives it no more parts.
                let reserved = self.reserved.get(&(process, region.page.raw()));
                let is_growing = reserved.is_some_and(|id| memory.frames.is_reserved(*id));
                if parts < self.config.min_parts && !is_growing {
                    memory.split_perforated(process, region.page);
                }
            }
        }
    }

    /// Ends the reservations in a range.
    fn end_reservations(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        let first = pages.start.saturating_sub(PAGES - 1);
        let overlapping = self.reserved.range((process, first)..(process, pages.end.max(first)));
        let ended: Vec<_> = overlapping.map(|(key, _)| *key).collect();
        for key in ended {
            if let Some(id) = self.reserved.remove(&key) {
                memory.frames.end_reservation(id);
            }
        }
    }
}

impl Policy for Perforated {
    fn start(&mut self, memory: &mut Memory) {
        memory.punches = true;
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let huge = around(fault.page, PageSize::HUGE);
        let fits = fault.mapping.start <= huge.start && huge.end <= fault.mapping.end;
        if fits && self.huge.allows(&fault.vma) && memory.is_untouched(fault.process, &huge) {
            self.place(memory, fault);
            if memory.process(fault.process).table.leaf(fault.page).is_some() {
                return Ok(());
            }
        }
        self.fill(memory, fault)
    }

    fn unmapped(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.end_reservations(memory, process, pages);
        self.regions.restart();
    }

    fn moving(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.end_reservations(memory, process, pages);
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        if !self.huge.is_due(instructions) {
            return;
        }
        self.regions.restart();
        self.scan(memory);
        if !self.config.unused_are_holes {
            let regions = &mut self.regions;
            self.huge.scan(memory, |memory, process, first, vma| {
                let is_perforated = memory.process(process).table.perforation(first).is_some();
                let made = memory.collapse(process, first, PageSize::HUGE, vma.rights);
                if made.is_err() && !is_perforated {
                    regions.perforate(memory, process, first, vma.rights);
                }
            });
        }
    }
}
