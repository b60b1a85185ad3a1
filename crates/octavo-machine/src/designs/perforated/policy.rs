//! Perforated pages (Park et al., ISCA 2020, Sections III-C and VI): huge pages, and huge pages with holes if
//! memory has no whole block, or if a page would otherwise be split.
//!
//! - The first touch of 2 MiB allocates a free block, as with transparent huge pages. If none is free, it
//!   uses a region that is not too fragmented: less than a share of it is unmovable memory of other owners,
//!   in at most a number of its eighths. Movable frames are moved away; the other frames become holes.
//! - A hole gets a page when it is touched, or at once. If its own frame is free by then, the page is placed
//!   there, and the hole is patched.
//! - Optionally, untouched pages are holes, too: the page reserves its frames, and each is patched when
//!   touched. Only touched memory is used then, at one shootdown per touch.
//! - Operations that would split a huge page (a store to a shared part, other permissions, an unmapped part)
//!   punch holes.
//! - In the background, base pages become huge or perforated pages, pages of holes move to their places if
//!   those are or can be vacated, and pages without holes become whole. A page with too few parts that are
//!   not holes is split.
//!
//! Assumptions: base pages and the pages of holes are allocated from the end of memory, as Linux groups
//! memory by mobility, to keep regions intact. Data frames of processes count as unmovable.

mod regions;

use std::collections::BTreeMap;

use octavo_os::frames::{Order, OutOfMemory, Owner, ReservationId};
use octavo_os::page_table::Holes;
use octavo_os::policy::{
    AllowedValues, Capability, Fault, Policy, PolicySettings, ReserveWhen, Texts, Thp, ThpConfig,
    place_last,
};
use octavo_os::vmas::Pages;
use octavo_os::{Memory, ProcessId, around};
use octavo_types::{PageNumber, PageSize};
use serde::{Deserialize, Serialize};

use regions::{Regions, vacate_frame};

/// Base pages of a 2 MiB page.
const PAGES: u64 = Order::HUGE.frames();

/// Huge pages with holes.
pub const PERFORATED_PAGES: Capability = Capability("pages of 2 MiB with holes");

/// Settings of perforated pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PerforatedConfig {
    /// Maximum unmovable share of a chosen region, in percent, exclusive.
    pub max_immovable_percent: u8,
    /// Maximum number of the region's eighths with unmovable frames.
    pub max_filter_bits: u8,
    /// When holes get a page.
    pub hole_pages: ReserveWhen,
    /// Whether untouched pages are holes, even in whole blocks.
    pub unused_are_holes: bool,
    /// Pages with fewer parts that are not holes are split.
    pub min_parts: u32,
    /// Which mappings may have huge pages, and background scans.
    #[serde(flatten, skip_deserializing)]
    pub huge: ThpConfig,
}

impl Default for PerforatedConfig {
    /// The rule of Section III-C, and of Section IV-E: "as long as the perforated page has more than 17
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

impl PolicySettings for PerforatedConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(PerforatedPolicy::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        vec![PageSize::HUGE]
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[PERFORATED_PAGES]
    }

    fn check(&self) -> Result<(), String> {
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
        self.huge.check()
    }

    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        Ok(PerforatedConfig { huge: texts.read()?, ..texts.read()? })
    }
}

/// Perforated pages.
pub struct PerforatedPolicy {
    config: PerforatedConfig,
    huge: Thp,
    regions: Regions,
    /// Reservations of untouched pages, by process and huge page.
    reserved: BTreeMap<(ProcessId, u64), ReservationId>,
}

impl PerforatedPolicy {
    /// A policy without pages.
    pub fn new(config: PerforatedConfig) -> Self {
        PerforatedPolicy {
            config,
            huge: Thp::new(config.huge),
            regions: Regions::new(config),
            reserved: BTreeMap::new(),
        }
    }

    /// Makes a huge page around a touched base page in an unmapped range, if possible. The touched page may
    /// be a hole without a page.
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
            memory.counters.fallbacks += 1;
            return;
        };
        if self.config.hole_pages == ReserveWhen::Mapped {
            for at in (0..PAGES).filter(|at| holes.contains(*at)) {
                let page = PageNumber::new(first.raw() + at);
                // A hole without memory is tried again when it is touched.
                let _ = place_last(memory, process, page, fault.vma.rights);
            }
        }
    }

    /// Makes a page whose untouched base pages are holes.
    fn place_touched(&mut self, memory: &mut Memory, fault: &Fault) {
        let Fault { process, page, .. } = *fault;
        let pages = around(page, PageSize::HUGE);
        let Some((id, block)) = memory.frames.reserve(Order::HUGE) else {
            memory.counters.fallbacks += 1;
            return;
        };
        let place = page.raw() - pages.start;
        memory.frames.claim_reserved(id, place..place + 1);
        let mut holes = Holes([u64::MAX; 8]);
        holes.0[(place / 64) as usize] &= !(1 << (place % 64));
        let made = memory.map_with_holes(process, page, block, &holes, fault.vma.rights);
        if !made.unwrap_or(false) {
            memory.frames.free(block.plus(place), Order::BASE);
            memory.frames.end_reservation(id);
            return;
        }
        self.reserved.insert((process, pages.start), id);
    }

    /// Maps a touched hole, in its place if possible.
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
        let place =
            memory.process(process).table.holes_of(page).map(|(region, _)| region.frame_of(page));
        if place.is_some_and(|at| memory.frames.allocate_at(at, Order::BASE, Owner::Data)) {
            return memory.fill_hole(process, page, fault.vma.rights);
        }
        place_last(memory, process, page, fault.vma.rights)
    }

    /// Maintains all perforated pages.
    fn scan(&mut self, memory: &mut Memory) {
        let live: Vec<ProcessId> = memory.live().collect();
        for process in live {
            for (region, holes) in memory.pages_with_holes_in(process, &(0..u64::MAX)) {
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
                let holes = memory.process(process).table.holes_of(region.page);
                let parts = PAGES as u32 - holes.map_or(0, |(_, holes)| holes.count());
                // A page with a broken reservation receives no more parts.
                let reserved = self.reserved.get(&(process, region.page.raw()));
                let is_growing = reserved.is_some_and(|id| memory.frames.is_reserved(*id));
                if parts < self.config.min_parts && !is_growing {
                    memory.split_with_holes(process, region.page);
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

impl Policy for PerforatedPolicy {
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
                let is_perforated = memory.process(process).table.holes_of(first).is_some();
                let made = memory.collapse(process, first, PageSize::HUGE, vma.rights);
                if made.is_err() && !is_perforated {
                    regions.perforate(memory, process, first, vma.rights);
                }
            });
        }
    }
}
