//! Selection of memory regions for perforated pages.

use octavo_os::frames::{Frames, Order, Owner};
use octavo_os::page_table::Holes;
use octavo_os::{Memory, ProcessId};
use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::super::hole_filter;
use super::{PAGES, PerforatedConfig};

/// Selects regions.
pub struct Regions {
    config: PerforatedConfig,
    /// Regions before this one are skipped until a [restart](Self::restart).
    next: u64,
}

impl Regions {
    /// A search from the start of memory.
    pub fn new(config: PerforatedConfig) -> Self {
        Regions { config, next: 0 }
    }

    /// Restarts the search after memory has been freed.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    /// Makes the 2 MiB from a page on a perforated page; it is unmapped or consists of private base pages.
    /// Returns its holes; `None` without a suitable region.
    pub fn perforate(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        first: PageNumber,
        rights: Protection,
    ) -> Option<Holes> {
        if !memory.process(process).table.may_have_holes(first, &memory.frames) {
            return None;
        }
        let (region, held) = self.choose(&memory.frames)?;
        let holes = vacate(memory, region, &held);
        let made = memory.map_with_holes(process, first, region, &holes, rights);
        if !made.unwrap_or(false) {
            for at in (0..PAGES).filter(|at| !holes.contains(*at)) {
                memory.frames.free(region.plus(at), Order::BASE);
            }
            return None;
        }
        Some(holes)
    }

    /// The next region that may be perforated, and its used frames.
    fn choose(&mut self, frames: &Frames) -> Option<(FrameNumber, Holes)> {
        let regions = frames.shape().frames() / PAGES;
        let most = PAGES * u64::from(self.config.max_immovable_percent);
        while self.next < regions {
            let region = FrameNumber::new(self.next * PAGES);
            self.next += 1;
            let mut holes = Holes::default();
            let (mut immovable, mut free) = (Holes::default(), 0u64);
            for at in 0..PAGES {
                if at % 64 == 0 && u64::from(immovable.count()) * 100 >= most {
                    break;
                }
                match frames.owner(region.plus(at)) {
                    None => free += 1,
                    Some(Owner::Background { movable: true }) => holes.insert(at),
                    Some(_) => {
                        holes.insert(at);
                        immovable.insert(at);
                    }
                }
            }
            let is_fit = free > 0
                && u64::from(immovable.count()) * 100 < most
                && hole_filter(&immovable).count_ones() <= u32::from(self.config.max_filter_bits)
                && PAGES - u64::from(immovable.count()) >= u64::from(self.config.min_parts);
            if is_fit {
                return Some((region, holes));
            }
        }
        None
    }
}

/// Claims the free and movable frames of a region as data. Returns the remaining frames.
fn vacate(memory: &mut Memory, region: FrameNumber, held: &Holes) -> Holes {
    for at in (0..PAGES).filter(|at| !held.contains(*at)) {
        memory.frames.allocate_at(region.plus(at), Order::BASE, Owner::Data);
    }
    let mut holes = Holes::default();
    for at in (0..PAGES).filter(|at| held.contains(*at)) {
        match vacate_frame(memory, region.plus(at)) {
            true => {
                memory.frames.allocate_at(region.plus(at), Order::BASE, Owner::Data);
            }
            false => holes.insert(at),
        }
    }
    holes
}

/// Moves a frame's content away if it is movable. Returns whether the frame is free.
pub fn vacate_frame(memory: &mut Memory, frame: FrameNumber) -> bool {
    let movable = Owner::Background { movable: true };
    match memory.frames.owner(frame) {
        None => true,
        Some(owner) if owner == movable => {
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
