//! Selection of blocks to reserve for ranges.

use octavo_types::PageNumber;

use super::{Constituents, Defrag, Population, ReservationManager, ReservedRange, is_in};
use crate::frames::Order;
use crate::memory::{Memory, ProcessId};
use crate::policy::Fault;
use crate::vmas::{Backing, Pages, Vma};

/// The block of `order` that holds a page, as a range of pages.
fn block_around(page: u64, order: Order) -> Pages {
    let start = page >> order.raw() << order.raw();
    start..start + order.frames()
}

impl ReservationManager {
    /// Reserves the unreserved part of a range by the fewest blocks that span it exactly ("an aligned 28kB
    /// request results in 16kB+8kB+4kB", Section III-B.2). If `round_up` is set and nothing is mapped after
    /// the range, the last block extends past its end instead.
    pub fn cover(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        round_up: bool,
    ) {
        if self.rules.largest < self.rules.smallest {
            return;
        }
        let mut at = pages.start;
        while at < pages.end {
            if let Some((start, reserved)) = self.find(memory, process, PageNumber::new(at)) {
                at = start + reserved.order.frames();
                continue;
            }
            let rest = pages.end - at;
            let aligned = at.trailing_zeros() as u8;
            let round = rest.next_power_of_two().ilog2() as u8;
            if round_up && round <= aligned && round <= self.rules.largest.raw() {
                let block = block_around(at, Order::new(round).expect("not above the largest"));
                if self.reserve(memory, process, &block, &(at..pages.end), Constituents::Mapped) {
                    return;
                }
            }
            let order = aligned.min(rest.ilog2() as u8).min(self.rules.largest.raw());
            let order = Order::new(order).expect("not above the largest");
            let block = block_around(at, order);
            self.reserve_exactly(memory, process, &block, order);
            at = block.end;
        }
    }

    /// Reserves a block or, if none is free, the largest available parts ("forced to create smaller pages",
    /// Section III-B.2).
    fn reserve_exactly(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        block: &Pages,
        wanted: Order,
    ) {
        let largest_free = memory.frames.buddy().largest_free_order();
        let order = Order::new((block.end - block.start).ilog2() as u8).expect("a block");
        if order < self.rules.smallest
            || largest_free.is_none_or(|largest| largest < self.rules.smallest)
        {
            return;
        }
        if self.reserve(memory, process, block, block, Constituents::All) {
            return;
        }
        memory.counters.fallbacks += u64::from(order == wanted && largest_free < Some(order));
        let middle = block.start + order.frames() / 2;
        self.reserve_exactly(memory, process, &(block.start..middle), wanted);
        self.reserve_exactly(memory, process, &(middle..block.end), wanted);
    }

    /// Reserves the largest free block around the touched page, within its mapping and otherwise unmapped.
    /// Returns whether there was one.
    pub fn reserve_around(&mut self, memory: &mut Memory, fault: &Fault) -> bool {
        let (process, page) = (fault.process, fault.page.raw());
        if self.reserve_heap(memory, process, page, &fault.vma) {
            return true;
        }
        let mut best = None;
        let orders = self.rules.smallest.raw()..=self.rules.largest.raw();
        for order in orders.filter_map(Order::new) {
            let block = block_around(page, order);
            let fits = fault.mapping.start <= block.start && block.end <= fault.mapping.end;
            if !fits || !self.is_new(memory, process, &block) {
                break;
            }
            if memory.frames.buddy().largest_free_order() < Some(order) {
                memory.counters.fallbacks += 1;
                break;
            }
            best = Some(block);
        }
        best.is_some_and(|block| self.reserve(memory, process, &block, &block, Constituents::All))
    }

    /// Reserves the largest block for a page of the heap that contains only heap or unmapped pages, for the
    /// heap to grow into. (FreeBSD extends the last reservation of anonymous memory past its end, except if
    /// it "is unlikely to grow": `vm_reserv_alloc_page` in `sys/vm/vm_reserv.c`.)
    pub fn reserve_heap(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        page: u64,
        vma: &Vma,
    ) -> bool {
        let Some(largest) = self.rules.heap.filter(|_| vma.backing == Backing::Heap) else {
            return false;
        };
        let orders = self.rules.smallest.raw()..=largest.raw();
        orders.rev().filter_map(Order::new).any(|order| {
            let block = block_around(page, order);
            match memory.process(process).vmas.within(&block).as_slice() {
                [(mapped, found)] if found == vma => {
                    self.reserve(memory, process, &block, mapped, Constituents::All)
                }
                _ => false,
            }
        })
    }

    /// Handles a new mapping of `pages`. An overlapping reservation extends past the end of a heap. If the heap
    /// has grown into `pages`, they belong to the reservation; otherwise they are removed from it.
    pub fn claim(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages, vma: &Vma) {
        for start in self.overlapping(process, pages) {
            let reserved = self.of_process(process).get_mut(&start).expect("it was found");
            let end = start + reserved.order.frames();
            let apart = reserved.mapped.end <= pages.start || pages.end <= reserved.mapped.start;
            if vma.backing == Backing::Heap && reserved.mapped.end == pages.start {
                reserved.mapped.end = pages.end.min(end);
            } else if apart {
                self.cut(memory, process, &(pages.start.max(start)..pages.end.min(end)));
            }
        }
    }

    /// Reserves a block for a range of the same size, if the range is neither touched nor reserved and a
    /// block is free.
    fn reserve(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        mapped: &Pages,
        constituents: Constituents,
    ) -> bool {
        let order = Order::new((pages.end - pages.start).ilog2() as u8).expect("a block");
        let is_only_mapping = mapped == pages
            || memory
                .process(process)
                .vmas
                .within(pages)
                .iter()
                .all(|(part, _)| mapped.start <= part.start && part.end <= mapped.end);
        if order < self.rules.smallest || !is_only_mapping || !self.is_new(memory, process, pages) {
            return false;
        }
        let mut reserved_block = memory.frames.reserve(order);
        if reserved_block.is_none() && self.rules.defrag != Defrag::Never {
            let blocks = self.blocks();
            let stays = |frame| is_in(&blocks, frame);
            if self.defragmenter.make_room(memory, order, false, stays) {
                reserved_block = memory.frames.reserve(order);
            }
        }
        let Some((id, block)) = reserved_block else { return false };
        let touched = Population::none(order);
        let reserved =
            ReservedRange { id, block, order, touched, mapped: mapped.clone(), constituents };
        self.of_process(process).insert(pages.start, reserved);
        true
    }

    /// Whether a range is neither touched nor reserved.
    fn is_new(&mut self, memory: &Memory, process: ProcessId, pages: &Pages) -> bool {
        for start in self.overlapping(process, pages) {
            let reserved = &self.of_process(process)[&start];
            if memory.frames.is_reserved(reserved.id) {
                return false;
            }
            self.of_process(process).remove(&start);
        }
        memory.is_untouched(process, pages)
    }
}
