//! Demand paging with frame reservations, common to both reservation policies (Guvenilir and Patt, ISCA 2020,
//! Section III-B.1): blocks are reserved for aligned ranges of pages; a touched page takes its frame from the
//! block of its range; and when enough pages of a larger range are touched, the range is promoted in place.
//!
//! A page is *utilised* if a page fault of its own mapped it from the reservation. Pages mapped along with
//! others are not, even if the program has used them since, which an operating system does not observe.
//! (Otherwise a threshold of 50% would grow the first touched page to the whole reservation.)
//!
//! A reservation ends where its range is unmapped or given back (`MADV_DONTNEED`), even in part: the rest is
//! then reserved by smaller blocks. Pages moved away or copied on a write keep their place in it, but a range
//! grows only while all its mapped pages lie in the block, are private, and have the permissions of the
//! mapping.

mod cover;
mod population;

use std::collections::BTreeMap;

use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::population::Population;
use super::{Defrag, Defragmenter, Fault};
use crate::frames::{Order, OutOfMemory, ReservationId};
use crate::memory::{Memory, ProcessId, around, base_pages};
use crate::page_table::Leaf;
use crate::vmas::Pages;

/// When memory is reserved for a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReserveWhen {
    /// When the mapping is made.
    #[default]
    Mapped,
    /// At the first touch, the largest block around that page: for programs that map far more than they use.
    Touched,
}

/// The base of the threshold share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constituents {
    /// All base pages of the larger page.
    All,
    /// Only accessible base pages; the rest was reserved by rounding up.
    Mapped,
}

/// A reservation and its range.
#[derive(Clone, Debug)]
struct ReservedRange {
    id: ReservationId,
    block: FrameNumber,
    order: Order,
    touched: Population,
    /// The part of the range inside the mapping it was made for.
    mapped: Pages,
    constituents: Constituents,
}

/// Settings of a reservation policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The share of utilised base pages that triggers promotion, in percent.
    pub threshold_percent: u8,
    /// The smallest reservation, at least two frames.
    pub smallest: Order,
    /// The largest reservation.
    pub largest: Order,
    /// The largest reservation that may extend past the end of the `brk` heap.
    pub heap: Option<Order>,
    /// The reaction to a missing free block.
    pub defrag: Defrag,
}

/// The reservations of all processes, by first page.
#[derive(Clone, Debug)]
pub struct ReservationManager {
    rules: Rules,
    reserved: FxHashMap<ProcessId, BTreeMap<u64, ReservedRange>>,
    defragmenter: Defragmenter,
}

impl ReservationManager {
    /// No reservations.
    pub fn new(rules: Rules) -> Self {
        let defragmenter = Defragmenter::new(rules.defrag);
        ReservationManager { rules, reserved: FxHashMap::default(), defragmenter }
    }

    /// Serves a page fault from an existing or new reservation, or with any base page.
    pub fn serve(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        if self.map_reserved(memory, fault)?
            || (self.reserve_around(memory, fault) && self.map_reserved(memory, fault)?)
        {
            return Ok(());
        }
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }

    /// Maps a page at its unclaimed frame in a reservation. Returns `false` if no reservation has such a frame.
    fn map_reserved(&mut self, memory: &mut Memory, fault: &Fault) -> Result<bool, OutOfMemory> {
        let threshold_percent = self.rules.threshold_percent;
        let Some((start, reserved)) = self.find(memory, fault.process, fault.page) else {
            return Ok(false);
        };
        let place = fault.page.raw() - start;
        if !reserved.mapped.contains(&fault.page.raw())
            || !memory.frames.has_unclaimed(reserved.id, place)
        {
            return Ok(false);
        }
        memory.frames.record_use(reserved.id);
        reserved.touched.insert(place);
        let size = reserved.size_for(memory, fault, start, threshold_percent);
        let first = around(fault.page, size).start - start;
        let taken = memory.frames.claim_reserved(reserved.id, first..first + base_pages(size));
        let (frame, rights) = (reserved.block.plus(first), fault.vma.rights);
        let placed = memory.grow(fault.process, fault.page, size, frame, rights);
        let mut new_pages = 0;
        for run in taken {
            let (frame, frames) = (reserved.block.plus(run.start), run.end - run.start);
            new_pages += frames;
            match placed {
                Ok(()) => memory.zeroed(frame, frames),
                // No frame was left for a page table, even after all reservations were broken, including
                // this one.
                Err(_) => memory.frames.free_range(frame, frames),
            }
        }
        if placed.is_ok() {
            memory.counters.bytes_mapped_untouched += (new_pages - 1) * PageSize::BASE.bytes();
        }
        if !memory.frames.is_reserved(reserved.id) {
            self.of_process(fault.process).remove(&start);
        }
        placed.map(|()| true)
    }

    /// Removes a range from all reservations.
    pub fn cut(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        for start in self.overlapping(process, pages) {
            let reserved = self.of_process(process).remove(&start).expect("it was found");
            let end = start + reserved.order.frames();
            let places = pages.start.max(start) - start..pages.end.min(end) - start;
            for (at, order, id) in memory.frames.split_reservation(reserved.id, places) {
                let from = start + at;
                let mapped =
                    reserved.mapped.start.max(from)..reserved.mapped.end.min(from + order.frames());
                if mapped.start >= mapped.end {
                    memory.frames.end_reservation(id);
                    continue;
                }
                let part = ReservedRange {
                    id,
                    block: reserved.block.plus(at),
                    order,
                    touched: reserved.touched.part(at, order),
                    mapped,
                    constituents: reserved.constituents,
                };
                self.of_process(process).insert(from, part);
            }
        }
    }

    /// Handles a range about to be unmapped or given back.
    pub fn unmapped(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        for (part, _) in memory.process(process).vmas.within(pages) {
            self.cut(memory, process, &part);
            memory.release_overhang(process, &part);
        }
    }

    /// Handles a process about to end.
    pub fn ended(&mut self, memory: &mut Memory, process: ProcessId) {
        for reserved in self.reserved.remove(&process).unwrap_or_default().into_values() {
            memory.frames.end_reservation(reserved.id);
        }
    }

    /// Compacts memory in the background for the blocks wanted since the last call.
    pub fn background(&mut self, memory: &mut Memory) {
        let blocks = self.blocks();
        self.defragmenter.background(memory, |frame| is_in(&blocks, frame));
    }

    /// The blocks of all reservations, by address; compaction does not move claimed frames out of them.
    fn blocks(&self) -> Vec<(u64, u64)> {
        let reserved = self.reserved.values().flat_map(BTreeMap::values);
        let mut blocks: Vec<_> = reserved
            .map(|reserved| (reserved.block.raw(), reserved.block.raw() + reserved.order.frames()))
            .collect();
        blocks.sort_unstable();
        blocks
    }

    fn of_process(&mut self, process: ProcessId) -> &mut BTreeMap<u64, ReservedRange> {
        self.reserved.entry(process).or_default()
    }

    /// The unbroken reservation that holds a page, and the first page of its range.
    fn find(
        &mut self,
        memory: &Memory,
        process: ProcessId,
        page: PageNumber,
    ) -> Option<(u64, &mut ReservedRange)> {
        let all = self.of_process(process);
        let (&start, reserved) = all.range(..=page.raw()).next_back()?;
        if start + reserved.order.frames() <= page.raw() {
            return None;
        }
        if !memory.frames.is_reserved(reserved.id) {
            all.remove(&start);
            return None;
        }
        all.get_mut(&start).map(|reserved| (start, reserved))
    }

    /// The first pages of the reservations that overlap a range.
    fn overlapping(&mut self, process: ProcessId, pages: &Pages) -> Vec<u64> {
        let all = self.of_process(process);
        let before = all.range(..pages.start).next_back();
        let reaches = |(start, reserved): &(&u64, &ReservedRange)| {
            **start + reserved.order.frames() > pages.start
        };
        let within = all.range(pages.start..pages.end.max(pages.start));
        before.filter(reaches).into_iter().chain(within).map(|(start, _)| *start).collect()
    }
}

/// Whether one of the blocks, given by start and end, holds the frame.
fn is_in(blocks: &[(u64, u64)], frame: FrameNumber) -> bool {
    let behind = blocks.partition_point(|(start, _)| *start <= frame.raw());
    behind > 0 && frame.raw() < blocks[behind - 1].1
}

impl ReservedRange {
    /// The largest page that the touched page may be part of now.
    fn size_for(
        &self,
        memory: &Memory,
        fault: &Fault,
        start: u64,
        threshold_percent: u8,
    ) -> PageSize {
        let place = fault.page.raw() - start;
        let may = |size: &PageSize| {
            let (order, pages) = (Order::of(*size), around(fault.page, *size));
            let whole = match self.constituents {
                Constituents::All => pages.clone(),
                Constituents::Mapped => {
                    pages.start.max(self.mapped.start)..pages.end.min(self.mapped.end)
                }
            };
            let constituents = whole.end - whole.start;
            order <= self.order
                && self.touched.count(place, order) * 100
                    >= u64::from(threshold_percent) * constituents
                && self.is_only_mapping(memory, fault, &pages, &whole)
                && self.is_in_place(memory, fault, &pages, start)
        };
        let sizes = memory.sizes().iter().rev().filter(|size| Order::of(**size) <= self.order);
        sizes.copied().find(may).unwrap_or(PageSize::BASE)
    }

    /// Whether `whole`, and nothing else in `pages`, belongs to the touched mapping.
    fn is_only_mapping(
        &self,
        memory: &Memory,
        fault: &Fault,
        pages: &Pages,
        whole: &Pages,
    ) -> bool {
        let inside =
            |pages: &Pages| fault.mapping.start <= pages.start && pages.end <= fault.mapping.end;
        inside(whole)
            && (inside(pages) || memory.process(fault.process).vmas.within(pages).len() == 1)
    }

    /// Whether all mapped pages in `pages` lie in the block, are private, and have the permissions of the
    /// mapping, and the frames of all others are unclaimed. (Frames of pages beyond the mapping may have
    /// been given back.)
    fn is_in_place(&self, memory: &Memory, fault: &Fault, pages: &Pages, start: u64) -> bool {
        let leaves = memory.leaves(fault.process, pages);
        let mapped: u64 = leaves.iter().map(|leaf| base_pages(leaf.size)).sum();
        let unclaimed = memory.frames.unclaimed(self.id, pages.start - start..pages.end - start);
        let is_in_place = |leaf: &Leaf| {
            leaf.page.raw() >= pages.start
                && leaf.frame == self.block.plus(leaf.page.raw() - start)
                && leaf.rights == fault.vma.rights
                && !memory.is_shared(leaf)
        };
        leaves.iter().all(is_in_place) && mapped + unclaimed == pages.end - pages.start
    }
}
