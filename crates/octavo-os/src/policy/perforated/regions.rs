//! Regions of memory that are chosen for perforated pages.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{PAGES, PerforatedConfig};
use crate::frames::{Frames, Order, Owner};
use crate::memory::{Memory, ProcessId};
use crate::page_table::Holes;

/// Chooses regions.
pub struct Regions {
    config: PerforatedConfig,
    /// Those before this one are not looked at again before a [restart](Self::restart).
    next: u64,
}

impl Regions {
    /// None refused.
    pub fn new(config: PerforatedConfig) -> Self {
        Regions { config, next: 0 }
    }

    /// Memory has been freed.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    /// Makes a perforated page of the 2 MiB from a page on, which is all the process' own base pages or
    /// nothing. Returns its holes; none where there is no region for it.
    pub fn perforate(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        first: PageNumber,
        rights: Protection,
    ) -> Option<Holes> {
        if !memory.process(process).table.may_perforate(first, &memory.frames) {
            return None;
        }
        let (region, held) = self.choose(&memory.frames)?;
        let holes = vacate(memory, region, &held);
        let made = memory.perforate(process, first, region, &holes, rights);
        if !made.unwrap_or(false) {
            for at in (0..PAGES).filter(|at| !holes.contains(*at)) {
                memory.frames.free(region.plus(at), Order::BASE);
            }
            return None;
        }
        Some(holes)
    }

    /// The next region that may be perforated, and what of it is held.
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
                && immovable.filter().count_ones() <= u32::from(self.config.max_filter_bits)
                && PAGES - u64::from(immovable.count()) >= u64::from(self.config.min_parts);
            if is_fit {
                return Some((region, holes));
            }
        }
        None
    }
}

/// Takes what is free of a region, and what can be moved out of it, as data. Returns what stays.
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

/// Sees to it that a frame is free, if it holds what can be moved. Whether it is.
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
