//! Time: out-of-order cores, which turn the costs of accesses into cycles. `docs/core.md` specifies the model.
//!
//! A machine simulates the accesses of a batch in program order and records their costs ([`Cost`]). Its cores, in a
//! [`CoreGroup`], then execute the instructions of the batch ([`Ops`](crate::front::Ops)) out of order, with these
//! costs, as dependences, queues and widths allow.

mod calendar;
mod dram;
mod group;
mod lanes;
mod memory_side;
#[cfg(test)]
mod naive;
mod pipeline;
mod stack;
mod wrong_paths;

use octavo_hw::{MemoryTransfer, PrefetchLevel, ServedBy};
use octavo_types::{PageNumber, PageSize};

pub use group::CoreGroup;
pub use pipeline::{CoreCounts, CoreSetup};

/// The cost of an access that does more than hit the first-level TLB and cache. Times are in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// The number of the access in its part of the batch.
    pub access: u32,
    /// Look-ups in TLB levels after the first.
    pub lookup_cycles: u32,
    /// The page walk, with caches and memory idle; 0 without a walk.
    pub walk_cycles: u32,
    /// The line, beyond the latency of the first-level cache, with memory idle; 0 for a hit.
    pub cache_cycles: u32,
    /// The level that served the line.
    pub served: ServedBy,
    /// The index of the first of its transfers in [`Costs::transfers`].
    pub first_transfer: u32,
    /// How many lines were transferred between the last cache and memory: reads of the walk, write-backs, and last the
    /// access's own line, if memory served it.
    pub transfers: u32,
    /// The size of the page that was walked for; `None` if no other access may use the walk.
    pub page_size: Option<PageSize>,
    /// The software handler that interrupts the program before the access; 0 without one.
    pub handler_cycles: u32,
    /// The prefetched line that the access is the first to use.
    pub used_prefetch: Option<UsedPrefetch>,
    /// The index of the first prefetch of the access in [`Costs::prefetches`].
    pub first_prefetch: u32,
    /// How many prefetches the access causes.
    pub prefetches: u32,
    /// Whether the frame was predicted, and rightly: the walk verifies the prediction.
    pub speculation: Speculation,
    /// The index in [`Costs::background`] of the first walk in the background of the access, or of the first page that
    /// arrives with a walk.
    pub first_background: u32,
    /// How many such walks and pages there are.
    pub background: u32,
}

/// The result of a prediction of the frame of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Speculation {
    /// No frame was predicted.
    #[default]
    None,
    /// The prediction was right: the access does not wait for the walk, but commits after it.
    Right,
    /// The prediction was wrong: the access waits for the walk, and all later instructions are fetched again after it.
    Wrong,
}

/// The first use of a prefetched line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedPrefetch {
    /// The level that the line was prefetched into.
    pub level: PrefetchLevel,
    /// The physical line.
    pub line: u64,
}

/// A prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetchCost {
    /// The physical line.
    pub line: u64,
    /// The level that the line is prefetched into: 0 is the first level for data, 1 the second level.
    pub level: PrefetchLevel,
    /// The level that served the prefetch.
    pub served: ServedBy,
    /// The time of a load of the line, beyond the latency of the first-level cache, with memory idle, in cycles.
    pub cycles: u32,
    /// Whether the prefetch is the first use of a line prefetched into the second level.
    pub uses_l2: bool,
    /// The index of its first transfer in [`Costs::transfers`]: its own line, if memory served it, then write-backs.
    pub first_transfer: u32,
    /// How many transfers there are.
    pub transfers: u32,
}

/// A walk in the background of an access, or a page that arrives with a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InBackground {
    /// A walk that the access does not wait for.
    Walk {
        /// The time of the walk, with caches and memory idle.
        cycles: u32,
        /// The index of its first transfer in [`Costs::transfers`].
        first_transfer: u32,
        /// How many transfers there are.
        transfers: u32,
    },
    /// A page that arrives with the walk before it in the list, or else with the walk of the access. Other accesses to
    /// the page wait for that walk.
    Page {
        /// Its first base page.
        first: PageNumber,
        /// Its size.
        size: PageSize,
    },
}

/// The costs of a part of a batch.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// The costs, in the order of the accesses. Accesses without a cost are left out.
    pub costs: Vec<Cost>,
    /// The transfers of all costs.
    pub transfers: Vec<MemoryTransfer>,
    /// The prefetches of all costs.
    pub prefetches: Vec<PrefetchCost>,
    /// The walks in the background of all accesses, and the pages that arrive with walks.
    pub background: Vec<InBackground>,
    /// Whether any access has a software handler.
    pub has_handlers: bool,
    /// Whether the frame of any access was predicted wrongly.
    pub has_flushes: bool,
}

impl Cost {
    /// Whether memory served the line.
    pub fn is_from_memory(&self) -> bool {
        self.cache_cycles > 0 && self.served == ServedBy::Memory
    }

    /// Whether the access misses the first-level cache, is the first use of a prefetched line, or causes prefetches.
    pub fn concerns_lines(&self) -> bool {
        self.cache_cycles > 0 || self.used_prefetch.is_some() || self.prefetches > 0
    }
}

impl Costs {
    /// The transfers of an access without its own line: reads of its walk, and write-backs.
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

    /// The prefetches that an access causes.
    pub fn prefetches(&self, cost: &Cost) -> &[PrefetchCost] {
        &self.prefetches[cost.first_prefetch as usize..][..cost.prefetches as usize]
    }

    /// The walks in the background of an access, and the pages that arrive with them and with its own walk.
    pub fn background(&self, cost: &Cost) -> &[InBackground] {
        &self.background[cost.first_background as usize..][..cost.background as usize]
    }

    /// The transfers of a prefetch.
    pub fn prefetch_transfers(&self, prefetch: &PrefetchCost) -> &[MemoryTransfer] {
        &self.transfers[prefetch.first_transfer as usize..][..prefetch.transfers as usize]
    }

    /// Removes all costs.
    pub fn clear(&mut self) {
        self.costs.clear();
        self.transfers.clear();
        self.prefetches.clear();
        self.background.clear();
        self.has_handlers = false;
        self.has_flushes = false;
    }
}
