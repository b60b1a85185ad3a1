//! Time: cores that turn what happened to each access into cycles.
//!
//! A machine plays the accesses of a batch in program order and notes what each cost
//! ([`Cost`]). Its cores, in a [`CoreGroup`], then execute the instructions of the batch ([`ops`](crate::front::Ops)) out of
//! order, and pay these costs when their dependences, queues and widths allow.

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
    /// The prefetched line that the access is the first to use.
    pub used_prefetch: Option<UsedPrefetch>,
    /// The first of the prefetches that the access causes, and how many there are.
    pub first_prefetch: u32,
    /// How many prefetches the access causes.
    pub prefetches: u32,
    /// The prediction of its page's frame, which the walk verifies.
    pub speculation: Speculation,
    /// The first of its walks in the background and the pages that come with them.
    pub first_background: u32,
    /// How many walks and pages these are.
    pub background: u32,
}

/// The result of a prediction of the frame of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Speculation {
    /// None was.
    #[default]
    None,
    /// It was right: the access does not wait for the walk, but commits after it.
    Right,
    /// It was wrong: all behind the instruction is fetched again after the walk.
    Wrong,
}

/// The first use of a prefetched line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedPrefetch {
    /// The level it was prefetched into.
    pub level: PrefetchLevel,
    /// The physical line.
    pub line: u64,
}

/// A prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetchCost {
    /// The physical line.
    pub line: u64,
    /// The level it is prefetched into: 0 is the first level for data, 1 the second level.
    pub level: PrefetchLevel,
    /// The level that served it.
    pub served: ServedBy,
    /// Its time, as of a line that misses the first-level cache, from an idle memory.
    pub cycles: u32,
    /// Whether it is the first use of a line prefetched into the second level.
    pub uses_l2: bool,
    /// The first of its transfers: its own line, if memory served it, then write-backs.
    pub first_transfer: u32,
    /// How many there are.
    pub transfers: u32,
}

/// A walk in the background of an access, or a page that comes with a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InBackground {
    /// A walk that the access does not wait for.
    Walk {
        /// Its time, at idle caches and memory.
        cycles: u32,
        /// The first of its transfers.
        first_transfer: u32,
        /// How many there are.
        transfers: u32,
    },
    /// A page that comes with the walk before it in the list, or with that of the access: others that use it wait for
    /// that walk.
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
    /// In the order of the accesses; those without costs are left out.
    pub costs: Vec<Cost>,
    /// The transfers of all costs.
    pub transfers: Vec<MemoryTransfer>,
    /// The prefetches of all costs.
    pub prefetches: Vec<PrefetchCost>,
    /// The walks in the background of all accesses, and the pages that come with walks.
    pub background: Vec<InBackground>,
    /// Whether any has cycles of handlers.
    pub has_handlers: bool,
    /// Whether any has a wrong prediction.
    pub has_flushes: bool,
}

impl Cost {
    /// Whether memory served the line.
    pub fn is_from_memory(&self) -> bool {
        self.cache_cycles > 0 && self.served == ServedBy::Memory
    }

    /// Whether the access misses the first-level cache, uses a prefetched line first, or causes prefetches.
    pub fn concerns_lines(&self) -> bool {
        self.cache_cycles > 0 || self.used_prefetch.is_some() || self.prefetches > 0
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

    /// The prefetches that an access causes.
    pub fn prefetches(&self, cost: &Cost) -> &[PrefetchCost] {
        &self.prefetches[cost.first_prefetch as usize..][..cost.prefetches as usize]
    }

    /// The walks in the background of an access, and the pages that come with them and with its own walk.
    pub fn background(&self, cost: &Cost) -> &[InBackground] {
        &self.background[cost.first_background as usize..][..cost.background as usize]
    }

    /// The transfers of a prefetch.
    pub fn prefetch_transfers(&self, prefetch: &PrefetchCost) -> &[MemoryTransfer] {
        &self.transfers[prefetch.first_transfer as usize..][..prefetch.transfers as usize]
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.costs.clear();
        self.transfers.clear();
        self.prefetches.clear();
        self.background.clear();
        self.has_handlers = false;
        self.has_flushes = false;
    }
}
