//! Reservation-based transparent huge pages, the baseline of paper 003 (Section IV-B): superpage
//! reservations as FreeBSD has them (Navarro et al., OSDI 2002; `sys/vm/vm_reserv.c`).
//!
//! The first touch of an aligned 2 MiB range reserves a block, if the range lies in its mapping as a
//! whole and nothing in it was touched before. Its pages are mapped as base pages, one by one, where
//! they lie in the block; when all of them are there (or as many as the threshold asks for, the rest
//! cleared), they become one huge page in place, without a copy; every base page keeps its frame, and
//! only walk caches are told to forget the table that goes. (FreeBSD keeps the table, and tells
//! nobody.) Unlike Linux's, such a huge page is never made at the first touch, and
//! none is made later by moving pages.
//!
//! A block is also reserved where the `brk` heap ends inside it, since the heap grows. FreeBSD does so
//! for all anonymous memory; other mappings hardly ever grow in place. It also puts pages that are
//! given back into their reservation again; here they are free, and a range that was given back as a
//! whole is reserved anew.

use super::reserving::{ReservationManager, Rules};
use super::{Defrag, Fault, Policy};
use crate::frames::{Order, OutOfMemory};
use crate::memory::{Memory, ProcessId};
use crate::vmas::{Pages, Vma};

/// Its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservedThpConfig {
    /// The share of a huge page's base pages that must be touched for it to be made, in percent, 1
    /// to 100. FreeBSD asks for all.
    pub promotion_threshold_percent: u8,
    /// Whether a reservation may reach past the end of the `brk` heap.
    pub beyond_heap: bool,
}

impl Default for ReservedThpConfig {
    /// As FreeBSD has it.
    fn default() -> Self {
        ReservedThpConfig { promotion_threshold_percent: 100, beyond_heap: true }
    }
}

/// Huge pages by reservation.
#[derive(Clone, Debug)]
pub struct ReservedThp {
    reserving: ReservationManager,
}

impl ReservedThp {
    /// Nothing reserved yet.
    pub fn new(config: ReservedThpConfig) -> Self {
        let rules = Rules {
            threshold_percent: config.promotion_threshold_percent,
            smallest: Order::HUGE,
            largest: Order::HUGE,
            heap: config.beyond_heap.then_some(Order::HUGE),
            defrag: Defrag::Never,
        };
        ReservedThp { reserving: ReservationManager::new(rules) }
    }
}

impl Policy for ReservedThp {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
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
