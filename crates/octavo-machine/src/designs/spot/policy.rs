//! Contiguity-aware (CA) paging (Alverti et al., ISCA 2020): pages are allocated at faults, and each takes the frame
//! that continues its mapping, so that a mapping has one offset between page and frame numbers, or few.
//!
//! - The first fault in a mapping *places* it: by next fit, in a run of free blocks of the largest order that is as
//!   long as the mapping, or else in the longest run. Nothing is reserved, and the next search begins after the
//!   mapping's frames.
//! - A fault takes the frame at its page number minus the offset, if that frame is free.
//! - If it is not free, a fault of a huge page places the rest of the mapping again, which adds an offset that holds
//!   from there on. A mapping has up to 64 offsets; a further one replaces the oldest. A fault of a base page takes any
//!   frame, unless there are no huge pages: then it places the rest again as well.
//! - An offset is chosen so that pages and frames have equal alignment. A fault maps 2 MiB if the mapping has room for
//!   it and nothing there is mapped, as transparent huge pages do.
//! - Page tables take the last free frames of memory, since they would make holes in runs otherwise. Linux has blocks
//!   of their own for frames that cannot be moved.
//!
//! The authors' kernel works this way. Assumptions where it leaves something open: the frames before an unaligned start
//! of a mapping stay free; a mapping placed for lack of large blocks takes any frames, and is placed at a later fault;
//! `khugepaged` does not run; a new mapping has no offsets, nor has memory that `mremap` moves or the child of a fork;
//! a part that `mprotect` or `madvise` splits off has the offsets that hold from its own pages on; a run may cross
//! tiers of memory; pages of files are placed as usual.

use std::collections::BTreeMap;

use octavo_os::frames::{Order, OutOfMemory, Owner};
use octavo_os::policy::{Fault, Policy, PolicySettings, page_size};
use octavo_os::vmas::{Advice, Pages, Vma};
use octavo_os::{Memory, ProcessId, around, base_pages};
use octavo_types::{FrameNumber, PageNumber, PageSize};
use serde::{Deserialize, Serialize};

/// Settings of CA paging.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CaConfig {
    /// The largest page of a fault, 2 MiB or 4 KiB.
    #[serde(with = "page_size")]
    pub largest: PageSize,
    /// The most offsets of a mapping, 1 to 1024.
    pub offsets: u32,
}

impl Default for CaConfig {
    /// As the authors' kernel: on top of transparent huge pages, with up to 64 offsets.
    fn default() -> Self {
        CaConfig { largest: PageSize::HUGE, offsets: 64 }
    }
}

impl PolicySettings for CaConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Ca { config: *self, next: 0, placed: BTreeMap::new(), made: 0 })
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        [self.largest].into_iter().filter(|size| *size > PageSize::BASE).collect()
    }

    fn check(&self) -> Result<(), String> {
        let CaConfig { largest, offsets } = self;
        if ![PageSize::BASE, PageSize::HUGE].contains(largest) {
            return Err(format!("largest = {largest}: give 2MiB or 4KiB"));
        }
        match offsets {
            1..=1024 => Ok(()),
            _ => Err(format!("offsets = {offsets}: give 1 to 1024")),
        }
    }
}

/// Contiguity-aware paging.
struct Ca {
    config: CaConfig,
    /// The frame from which the next search begins.
    next: u64,
    /// Offsets, by process and the page from which they hold.
    placed: BTreeMap<(ProcessId, u64), Placed>,
    /// Number of offsets made so far.
    made: u64,
}

/// An offset.
#[derive(Clone, Copy)]
struct Placed {
    /// Page number minus frame number, wrapping.
    offset: u64,
    /// Its number, in the order in which they were made.
    number: u64,
}

impl Ca {
    /// The offset that holds for a page of a mapping: that of the nearest page at or before it, or else after it.
    fn offset(&self, process: ProcessId, mapping: &Pages, page: u64) -> Option<u64> {
        let before = self.placed.range((process, mapping.start)..=(process, page)).next_back();
        let found =
            before.or_else(|| self.placed.range((process, page)..(process, mapping.end)).next());
        found.map(|(_, placed)| placed.offset)
    }

    /// Finds frames for the pages of a mapping from `start` on. Returns their offset, which holds from page `from` on;
    /// `None` if no block of the largest order is free.
    fn place(&mut self, memory: &Memory, fault: &Fault, start: u64, from: u64) -> Option<u64> {
        let Fault { process, mapping, .. } = fault;
        let later = (*process, from + 1)..(*process, mapping.end);
        let end = self.placed.range(later).next().map_or(mapping.end, |((_, page), _)| *page);
        let frame = self.next_fit(memory, end - start)?;
        let offset = start.wrapping_sub(frame);
        self.placed.remove(&(*process, from));
        let all_of_mapping = (*process, mapping.start)..(*process, mapping.end);
        if self.placed.range(all_of_mapping.clone()).count() >= self.config.offsets as usize {
            let oldest = self.placed.range(all_of_mapping).min_by_key(|(_, placed)| placed.number);
            let key = *oldest.expect("at least one").0;
            self.placed.remove(&key);
        }
        self.placed.insert((*process, from), Placed { offset, number: self.made });
        self.made += 1;
        Some(offset)
    }

    /// The first frame of the first run of free blocks that is long enough, from where the last search ended; otherwise
    /// the first frame of the longest run.
    fn next_fit(&mut self, memory: &Memory, frames: u64) -> Option<u64> {
        let buddy = memory.frames.buddy();
        let (largest, next) = (buddy.largest(), self.next);
        let wanted = frames.next_multiple_of(largest.frames());
        let blocks = || buddy.blocks(largest).map(FrameNumber::raw);
        let in_turn = blocks().filter(|block| *block >= next);
        let in_turn = in_turn.chain(blocks().filter(|block| *block < next));
        let (mut best, mut run) = (0..0, 0..0);
        for block in in_turn {
            if run.end != block || run.is_empty() {
                run = block..block;
            }
            run.end = block + largest.frames();
            if run.end - run.start > best.end - best.start {
                best = run.clone();
            }
            if best.end - best.start >= wanted {
                break;
            }
        }
        self.next = best.end;
        (!best.is_empty()).then_some(best.start)
    }

    /// Maps a huge page. Returns whether that succeeded.
    fn fault_huge(&mut self, memory: &mut Memory, fault: &Fault, huge: &Pages) -> bool {
        let Fault { process, mapping, vma, .. } = fault;
        let map_at = |memory: &mut Memory, offset: u64| {
            let frame = FrameNumber::new(huge.start.wrapping_sub(offset));
            let is_mapped = memory.frames.allocate_at(frame, Order::HUGE, Owner::Data)
                && memory.map_run(*process, huge, frame, PageSize::HUGE, vma.rights).is_ok();
            if is_mapped {
                memory.count_untouched(PageSize::HUGE);
            }
            is_mapped
        };
        let offset = match self.offset(*process, mapping, huge.start) {
            None => self.place_mapping(memory, fault, huge.start),
            placed => placed,
        };
        offset.is_some_and(|offset| map_at(memory, offset))
            || self
                .place(memory, fault, huge.start, huge.start)
                .is_some_and(|offset| map_at(memory, offset))
            || memory
                .place_new(*process, PageNumber::new(huge.start), PageSize::HUGE, vma.rights)
                .is_ok()
    }

    /// Places a mapping at its first fault, at a page.
    fn place_mapping(&mut self, memory: &Memory, fault: &Fault, page: u64) -> Option<u64> {
        let pages = base_pages(self.config.largest);
        self.place(memory, fault, fault.mapping.start / pages * pages, page)
    }

    fn drop_offsets(&mut self, process: ProcessId, pages: &Pages) {
        let range = (process, pages.start)..(process, pages.end);
        while let Some((key, _)) = self.placed.range(range.clone()).next() {
            let key = *key;
            self.placed.remove(&key);
        }
    }
}

impl Policy for Ca {
    fn start(&mut self, memory: &mut Memory) {
        memory.frames.place_tables_last();
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, mapping, vma } = fault;
        let huge = around(*page, PageSize::HUGE);
        if self.config.largest == PageSize::HUGE
            && vma.advice != Advice::NoHuge
            && mapping.start <= huge.start
            && huge.end <= mapping.end
            && memory.is_untouched(*process, &huge)
        {
            if self.fault_huge(memory, fault, &huge) {
                return Ok(());
            }
            memory.counters.fallbacks += 1;
        }
        let take = |memory: &mut Memory, offset: u64| {
            let frame = FrameNumber::new(page.raw().wrapping_sub(offset));
            memory.frames.allocate_at(frame, Order::BASE, Owner::Data).then_some(frame)
        };
        let offset = match self.offset(*process, mapping, page.raw()) {
            None => self.place_mapping(memory, fault, page.raw()),
            placed => placed,
        };
        let mut frame = offset.and_then(|offset| take(memory, offset));
        if frame.is_none() && self.config.largest == PageSize::BASE {
            let offset = self.place(memory, fault, page.raw(), page.raw());
            frame = offset.and_then(|offset| take(memory, offset));
        }
        match frame {
            Some(frame) => memory.place_at(*process, *page, frame, vma.rights),
            None => memory.place_new(*process, *page, PageSize::BASE, vma.rights),
        }
    }

    fn mapped(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        _: &Vma,
    ) -> Result<(), OutOfMemory> {
        if memory.is_untouched(process, pages) {
            self.drop_offsets(process, pages);
        }
        Ok(())
    }

    fn moving(&mut self, _: &mut Memory, process: ProcessId, pages: &Pages) {
        self.drop_offsets(process, pages);
    }

    fn ended(&mut self, _: &mut Memory, process: ProcessId) {
        self.drop_offsets(process, &(0..u64::MAX));
    }
}
