//! Eager paging (Karakostas et al., ISCA 2015, as described by Guvenilir and Patt, ISCA 2020, Sections
//! III-B.1 and V): a mapping gets all its memory when it is made, in the largest free blocks and contiguously
//! if possible, so that few ranges translate it.
//!
//! The page table keeps the ranges ([`PageTable::ranges`](crate::page_table::PageTable::ranges)) of all
//! mapped pages, redundantly to its entries. Inside the ranges it uses huge pages, or other allowed sizes,
//! wherever they fit, as Linux does; blocks are then placed so that virtual and physical addresses have equal
//! alignment. Misses in first-level TLBs are therefore as frequent as in a baseline with huge pages (Section
//! IV-B). With `largest` set to 4 KiB, eager paging uses base pages only.
//!
//! A mapping larger than free memory is left to demand paging and counted as a fallback: programs map far
//! more than they use. Demand paging also serves inaccessible mappings, until they become accessible, and
//! pages given back.

use octavo_types::{FrameNumber, PageSize, Protection};
use serde::{Deserialize, Serialize};

use super::texts::page_size;
use super::{Capability, Fault, Policy, PolicySettings};
use crate::frames::{Order, OutOfMemory, Owner, blocks_of};
use crate::memory::{Memory, ProcessId, base_pages};
use crate::vmas::{Pages, Vma};

/// Page tables keep the ranges of pages that are contiguous in memory.
pub const RANGES: Capability = Capability("ranges of contiguous pages");

/// Settings of eager paging.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EagerConfig {
    /// The largest page size inside ranges, among those of the page table.
    #[serde(with = "page_size")]
    pub largest: PageSize,
}

impl Default for EagerConfig {
    /// With huge pages.
    fn default() -> Self {
        EagerConfig { largest: PageSize::HUGE }
    }
}

impl PolicySettings for EagerConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Eager::new(*self))
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[RANGES]
    }
}

/// Eager paging.
#[derive(Clone, Copy, Debug, Default)]
pub struct Eager {
    config: EagerConfig,
}

/// A range of pages to back.
struct Request {
    process: ProcessId,
    rights: Protection,
    /// The largest page size that fits.
    page: PageSize,
}

impl Eager {
    /// A policy with these settings.
    pub fn new(config: EagerConfig) -> Self {
        Eager { config }
    }

    fn back(
        &self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let fits = |size: &PageSize| {
            let start = pages.start.next_multiple_of(base_pages(*size));
            *size <= self.config.largest && start + base_pages(*size) <= pages.end
        };
        let page = memory.sizes().iter().rev().copied().find(fits).unwrap_or(PageSize::BASE);
        let request = Request { process, rights, page };
        let anchor = pages.start.next_multiple_of(base_pages(page));
        let first = request.upwards(memory, &(anchor..pages.end))?;
        let head = request.downwards(memory, &(pages.start..anchor), first)?;
        let page = PageSize::BASE;
        Request { page, ..request }.upwards(memory, &head).map(drop)
    }
}

impl Request {
    /// Backs pages upwards: each block follows the previous one if that memory is free; otherwise the largest
    /// free block. Returns the frame of the first page.
    fn upwards(
        &self,
        memory: &mut Memory,
        pages: &Pages,
    ) -> Result<Option<FrameNumber>, OutOfMemory> {
        let (mut first, mut next, mut at) = (None, None, pages.start);
        while at < pages.end {
            let rest = pages.end - at;
            let largest = memory.frames.shape().largest().raw().min(rest.ilog2() as u8);
            // A shorter block would lose the common alignment, and with it large pages.
            let smallest = if rest < base_pages(self.page) { 0 } else { self.page.base_shift() };
            let following = next.and_then(|next| at_or_below(memory, next, smallest, largest));
            let (frame, order) = match following {
                Some(block) => block,
                None => largest_block(memory, Order::new(largest).expect("not above memory's"))?,
            };
            first = first.or(Some(frame));
            next = Some(frame.plus(order.frames()));
            self.map(memory, &(at..at + order.frames()), frame)?;
            at += order.frames();
        }
        Ok(first)
    }

    /// Backs pages downwards with the frames before `end`, while they are free. Returns the remaining pages.
    fn downwards(
        &self,
        memory: &mut Memory,
        pages: &Pages,
        end: Option<FrameNumber>,
    ) -> Result<Pages, OutOfMemory> {
        let count = pages.end - pages.start;
        let Some(start) = end.and_then(|end| end.raw().checked_sub(count)) else {
            return Ok(pages.clone());
        };
        let start = FrameNumber::new(start);
        let blocks: Vec<_> = blocks_of(start, count, memory.frames.shape().largest()).collect();
        let mut left = pages.clone();
        for (block, order) in blocks.into_iter().rev() {
            if !memory.frames.allocate_at(block, order, Owner::Data) {
                break;
            }
            let from = left.end - order.frames();
            self.map(memory, &(from..left.end), block)?;
            left.end = from;
        }
        Ok(left)
    }

    fn map(
        &self,
        memory: &mut Memory,
        pages: &Pages,
        frame: FrameNumber,
    ) -> Result<(), OutOfMemory> {
        memory.map_run(self.process, pages, frame, self.page, self.rights)?;
        let bytes = (pages.end - pages.start) * PageSize::BASE.bytes();
        memory.counters.bytes_mapped_untouched += bytes;
        Ok(())
    }
}

/// The largest free block of order `smallest` to `largest` at `frame`.
fn at_or_below(
    memory: &mut Memory,
    frame: FrameNumber,
    smallest: u8,
    largest: u8,
) -> Option<(FrameNumber, Order)> {
    let mut orders = (smallest..=largest).rev().filter_map(Order::new);
    orders
        .find(|order| memory.frames.allocate_at(frame, *order, Owner::Data))
        .map(|order| (frame, order))
}

/// Allocates a block of `order`, or the largest free one.
fn largest_block(memory: &mut Memory, order: Order) -> Result<(FrameNumber, Order), OutOfMemory> {
    let free = memory.frames.buddy().largest_free_order().unwrap_or(Order::BASE);
    let order = order.min(free);
    Ok((memory.frames.allocate(order, Owner::Data)?, order))
}

impl Policy for Eager {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.process_mut(fault.process).table.keep_ranges();
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }

    fn mapped(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        memory.process_mut(process).table.keep_ranges();
        if !vma.is_accessible() {
            return Ok(());
        }
        for gap in memory.untouched_in(process, pages) {
            let fits = gap.end - gap.start <= memory.frames.free_frames();
            // Without frames for page tables, the rest is paged on demand.
            if !fits || self.back(memory, process, &gap, vma.rights).is_err() {
                memory.counters.fallbacks += 1;
            }
        }
        Ok(())
    }

    fn forked(&mut self, memory: &mut Memory, _: ProcessId, child: ProcessId) {
        memory.process_mut(child).table.keep_ranges();
    }
}
