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
//! - Beside the programs, pages of holes move into their places where those are free or can be vacated,
//!   and pages without holes become whole. A page with too few parts that are no holes is split.
//!
//! What is assumed: frames with data of processes count as such that cannot be moved.

use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::{Fault, Policy, ReserveWhen, Thp, ThpConfig};
use crate::frames::{Frames, Holder, Order, OutOfMemory, ReservationId};
use crate::memory::{Memory, ProcessId, around};
use crate::page_table::Holes;
use crate::vmas::Pages;

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
    /// Regions before this one have been refused since anything was freed.
    next_region: u64,
    /// By process and huge page, what untouched pages are reserved by.
    reserved: FxHashMap<(ProcessId, u64), ReservationId>,
    next_scan_instructions: u64,
}

impl Perforated {
    /// No page yet.
    pub fn new(config: PerforatedConfig) -> Self {
        Perforated {
            config,
            huge: Thp::new(config.huge),
            next_region: 0,
            reserved: FxHashMap::default(),
            next_scan_instructions: config.huge.scan_every_instructions,
        }
    }

    /// Makes a page around one that was touched where nothing is mapped yet. Whether that one is mapped
    /// now, or a hole that has no page; none where there is no page.
    fn place(&mut self, memory: &mut Memory, fault: &Fault) -> Option<()> {
        let first = PageNumber::new(around(fault.page, PageSize::HUGE).start);
        let Fault { process, .. } = *fault;
        if self.config.unused_are_holes {
            return self.place_touched(memory, fault);
        }
        if memory.place_new(process, first, PageSize::HUGE, fault.vma.rights).is_ok() {
            return Some(());
        }
        let (region, holes) = self.choose(&memory.frames)?;
        let holes = vacate(memory, region, &holes);
        let made = memory.perforate(process, first, region, &holes, fault.vma.rights);
        if !made.unwrap_or(false) {
            for at in (0..PAGES).filter(|at| !holes.contains(*at)) {
                memory.frames.free(region.plus(at), Order::BASE);
            }
            return None;
        }
        if self.config.hole_pages == ReserveWhen::Mapped {
            for at in (0..PAGES).filter(|at| holes.contains(*at)) {
                let page = PageNumber::new(first.raw() + at);
                // A page for which there is no memory is tried again when it is touched.
                let _ = memory.place_new(process, page, PageSize::BASE, fault.vma.rights);
            }
        }
        Some(())
    }

    /// A page of which only what was touched is no hole.
    fn place_touched(&mut self, memory: &mut Memory, fault: &Fault) -> Option<()> {
        let Fault { process, page, .. } = *fault;
        let pages = around(page, PageSize::HUGE);
        let (id, block) = memory.frames.reserve(Order::HUGE)?;
        let place = page.raw() - pages.start;
        memory.frames.take_reserved(id, place..place + 1);
        let mut holes = Holes([u64::MAX; 8]);
        holes.0[(place / 64) as usize] &= !(1 << (place % 64));
        let made = memory.perforate(process, page, block, &holes, fault.vma.rights);
        if !made.unwrap_or(false) {
            memory.frames.free(block.plus(place), Order::BASE);
            memory.frames.end_reservation(id);
            return None;
        }
        self.reserved.insert((process, pages.start), id);
        Some(())
    }

    /// The next region that may be perforated, and what of it is held.
    fn choose(&mut self, frames: &Frames) -> Option<(FrameNumber, Holes)> {
        let regions = frames.shape().frames() / PAGES;
        let most = PAGES * u64::from(self.config.max_immovable_percent);
        while self.next_region < regions {
            let region = FrameNumber::new(self.next_region * PAGES);
            self.next_region += 1;
            let mut holes = Holes::default();
            let (mut immovable, mut free) = (Holes::default(), 0u64);
            for at in 0..PAGES {
                match frames.holder(region.plus(at)) {
                    None => free += 1,
                    Some(Holder::Foreign { movable: true }) => holes.insert(at),
                    Some(_) => {
                        holes.insert(at);
                        immovable.insert(at);
                    }
                }
            }
            let is_fit = free > 0
                && u64::from(immovable.count()) * 100 < most
                && immovable.filter().count_ones() <= u32::from(self.config.max_filter_bits)
                && PAGES - u64::from(immovable.count()) >= u64::from(self.config.min_parts);
            if is_fit {
                return Some((region, holes));
            }
        }
        None
    }

    /// Gives a hole that was touched a page: in its place, if that can be had.
    fn fill(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, .. } = *fault;
        let pages = around(page, PageSize::HUGE);
        if let Some(id) = self.reserved.get(&(process, pages.start)) {
            let place = page.raw() - pages.start;
            if !memory.frames.take_reserved(*id, place..place + 1).is_empty() {
                return memory.fill_hole(process, page, fault.vma.rights);
            }
        }
        let place = memory.process(process).table.perforation(page).map(|of| of.0.frame_of(page));
        if place.is_some_and(|at| memory.frames.allocate_at(at, Order::BASE, Holder::Data)) {
            return memory.fill_hole(process, page, fault.vma.rights);
        }
        memory.place_new(process, page, PageSize::BASE, fault.vma.rights)
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
                let is_growing = self.reserved.contains_key(&(process, region.page.raw()));
                if parts < self.config.min_parts && !is_growing {
                    memory.split_perforated(process, region.page);
                }
            }
        }
    }

    /// Ends the reservations in a range.
    fn end_reservations(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        let mut ended: Vec<_> = self.reserved.keys().copied().collect();
        ended.retain(|(of, start)| {
            *of == process && *start < pages.end && pages.start < start + PAGES
        });
        ended.sort_unstable();
        for key in ended {
            if let Some(id) = self.reserved.remove(&key) {
                memory.frames.end_reservation(id);
            }
        }
    }
}

/// Takes what is free of a region, and what can be moved out of it, as data. Returns what stays.
fn vacate(memory: &mut Memory, region: FrameNumber, held: &Holes) -> Holes {
    for at in (0..PAGES).filter(|at| !held.contains(*at)) {
        memory.frames.allocate_at(region.plus(at), Order::BASE, Holder::Data);
    }
    let mut holes = Holes::default();
    for at in (0..PAGES).filter(|at| held.contains(*at)) {
        match vacate_frame(memory, region.plus(at)) {
            true => {
                memory.frames.allocate_at(region.plus(at), Order::BASE, Holder::Data);
            }
            false => holes.insert(at),
        }
    }
    holes
}

/// Sees to it that a frame is free, if it holds what can be moved. Whether it is.
fn vacate_frame(memory: &mut Memory, frame: FrameNumber) -> bool {
    let movable = Holder::Foreign { movable: true };
    match memory.frames.holder(frame) {
        None => true,
        Some(holder) if holder == movable => {
            let had = memory.frames.allocate_free(Order::BASE, movable);
            if had.is_ok() {
                memory.frames.free(frame, Order::BASE);
                memory.counters.frames_compacted += 1;
                memory.counters.bytes_copied += PageSize::BASE.bytes();
            }
            had.is_ok()
        }
        Some(_) => false,
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
            let _ = self.place(memory, fault);
            if memory.process(fault.process).table.leaf(fault.page).is_some() {
                return Ok(());
            }
        }
        self.fill(memory, fault)
    }

    fn unmapped(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.end_reservations(memory, process, pages);
        self.next_region = 0;
    }

    fn moving(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.end_reservations(memory, process, pages);
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        let every = self.config.huge.scan_every_instructions;
        if every == 0 || instructions < self.next_scan_instructions {
            return;
        }
        self.next_scan_instructions = instructions + every;
        self.next_region = 0;
        self.scan(memory);
        if !self.config.unused_are_holes {
            self.huge.background(memory, instructions);
        }
    }
}
