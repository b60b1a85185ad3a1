//! Reservation-based transparent huge pages, the baseline of Guvenilir and Patt (ISCA 2020, Section IV-B):
//! superpage reservations as in FreeBSD (Navarro et al., OSDI 2002; `sys/vm/vm_reserv.c`).
//!
//! The first touch of an aligned 2 MiB range reserves a block, if the whole range lies in its mapping and is
//! untouched. Its pages are mapped as base pages at their places in the block. When all of them (or the
//! threshold share, the rest cleared) are touched, they are promoted to a huge page in place: every base page
//! keeps its frame, and only walk caches drop the freed table. (FreeBSD keeps the table and needs no
//! invalidation.) Unlike Linux's, such huge pages are never made at the first touch or by moving pages.
//!
//! A block is also reserved where the `brk` heap ends inside it, since the heap grows. FreeBSD does so for
//! all anonymous memory; other mappings rarely grow in place. FreeBSD also returns released pages to their
//! reservation; here they are free, and a wholly released range is reserved again.
//!
//! With `ranges` page tables also keep the ranges of mapped pages that are contiguous in memory, so that a
//! range TLB can be compared with the same pages without one.

use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::reserving::{ReservationManager, Rules};
use super::{Capability, Defrag, Fault, Policy, PolicySettings, RANGES, check_percent};
use crate::frames::{Order, OutOfMemory};
use crate::memory::{Memory, ProcessId};
use crate::vmas::{Pages, Vma};

/// Settings of reserved huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReservedThpConfig {
    /// The share of touched base pages that triggers promotion, in percent, 1 to 100. FreeBSD requires all.
    pub promotion_threshold_percent: u8,
    /// Whether a reservation may extend past the end of the `brk` heap.
    pub beyond_heap: bool,
    /// Whether page tables keep ranges.
    pub ranges: bool,
}

impl Default for ReservedThpConfig {
    /// The settings of FreeBSD.
    fn default() -> Self {
        ReservedThpConfig { promotion_threshold_percent: 100, beyond_heap: true, ranges: false }
    }
}

impl PolicySettings for ReservedThpConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(ReservedThp::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        vec![PageSize::HUGE]
    }

    fn capabilities(&self) -> &'static [Capability] {
        if self.ranges { &[RANGES] } else { &[] }
    }

    fn check(&self) -> Result<(), String> {
        check_percent("promotion_threshold_percent", self.promotion_threshold_percent)
    }
}

/// Huge pages by reservation.
#[derive(Clone, Debug)]
pub struct ReservedThp {
    reserving: ReservationManager,
    keeps_ranges: bool,
}

impl ReservedThp {
    /// A policy without reservations.
    pub fn new(config: ReservedThpConfig) -> Self {
        let rules = Rules {
            threshold_percent: config.promotion_threshold_percent,
            smallest: Order::HUGE,
            largest: Order::HUGE,
            heap: config.beyond_heap.then_some(Order::HUGE),
            defrag: Defrag::Never,
        };
        ReservedThp { reserving: ReservationManager::new(rules), keeps_ranges: config.ranges }
    }

    fn keep_ranges(&self, memory: &mut Memory, process: ProcessId) {
        if self.keeps_ranges {
            memory.process_mut(process).table.keep_ranges();
        }
    }
}

impl Policy for ReservedThp {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        self.keep_ranges(memory, fault.process);
        self.reserving.serve(memory, fault)
    }

    fn mapped(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        self.reserving.claim(memory, process, pages, vma);
        Ok(())
    }

    fn forked(&mut self, memory: &mut Memory, _: ProcessId, child: ProcessId) {
        self.keep_ranges(memory, child);
    }

    fn moving(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.unmapped(memory, process, pages);
    }

    fn unmapped(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.reserving.unmapped(memory, process, pages);
    }

    fn ended(&mut self, memory: &mut Memory, process: ProcessId) {
        self.reserving.ended(memory, process);
    }
}
