//! Time: cores that turn what happened to each access into cycles.
//!
//! A machine plays the accesses of a batch in program order and notes what each cost
//! ([`Cost`]). Its [`Pipeline`] then executes the instructions of the batch ([`ops`](crate::front::Ops)) out of
//! order, and pays these costs when its dependences, queues and widths allow.

mod calendar;
mod dram;
mod memory_side;
#[cfg(test)]
mod naive;
mod pipeline;
mod stack;

use octavo_hw::{MemoryTransfer, ServedBy};
use octavo_types::PageSize;

pub use pipeline::Pipeline;

/// The cost of an access beyond hits in first-level TLB and cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// The number of the access in its part of the batch.
    pub access: u32,
    /// Look-ups of TLB levels behind the first.
    pub lookup_cycles: u32,
    /// The page walk, at idle caches and memory.
    pub walk_cycles: u32,
    /// The line, beyond the latency of the first-level cache, from an idle memory.
    pub cache_cycles: u32,
    /// The level that served the line.
    pub served: ServedBy,
    /// The first of its transfers.
    pub first_transfer: u32,
    /// How many lines passed between the last cache and memory; the access's own line, if memory served it, is
    /// the last.
    pub transfers: u32,
    /// The page that was walked for; `None` if no other access may use the walk.
    pub page_size: Option<PageSize>,
    /// Software that interrupts the program before the access.
    pub handler_cycles: u32,
}

/// The costs of a part of a batch.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// In the order of the accesses; those without costs are left out.
    pub costs: Vec<Cost>,
    /// The transfers of all costs.
    pub transfers: Vec<MemoryTransfer>,
    /// Whether any has cycles of handlers.
    pub has_handlers: bool,
}

impl Cost {
    /// Whether memory served the line.
    pub fn is_from_memory(&self) -> bool {
        self.cache_cycles > 0 && self.served == ServedBy::Memory
    }
}

impl Costs {
    /// The transfers of an access but for its own line: reads of its walk, and write-backs.
    pub fn other_transfers(&self, cost: &Cost) -> &[MemoryTransfer] {
        let first = cost.first_transfer as usize;
        let own = usize::from(self.own_transfer(cost).is_some());
        &self.transfers[first..first + cost.transfers as usize - own]
    }

    /// The transfer of the access's own line, if memory served it.
    pub fn own_transfer(&self, cost: &Cost) -> Option<MemoryTransfer> {
        let last = (cost.first_transfer + cost.transfers) as usize;
        (cost.transfers > 0 && cost.is_from_memory()).then(|| self.transfers[last - 1])
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.costs.clear();
        self.transfers.clear();
        self.has_handlers = false;
    }
}
