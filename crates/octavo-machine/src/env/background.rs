//! Walks in the background of an access: prefetches of translations, and walks that fill structures of a design.
//!
//! Where cycles are added up, they cost none. A core that executes out of order gives each of them a walker, and
//! accesses wait for the pages that they bring (`core/memory_side`).

use octavo_hw::MemoryTransfer;
use octavo_os::page_table::Walk;
use octavo_types::{PageNumber, PageSize};

use super::Env;
use crate::core::{Costs, InBackground};

/// The walks in the background of the current access, and the pages that the design keeps from these and from the walk
/// of the access.
#[derive(Default)]
pub(super) struct Background {
    noted: Vec<InBackground>,
    /// The transfers of all noted walks.
    transfers: Vec<MemoryTransfer>,
}

impl Env {
    /// Walks the page table for a mapped base page of the running process in the background of an access: the walk passes
    /// through walk caches and data caches, nothing waits for it, and counters of walks leave it out. In a guest it walks
    /// the host's table as well. Returns the number of entries read. `None` if the page is not mapped, or when memory has
    /// run out, which stops the machine.
    ///
    /// Designs call [`Design::walk_in_background`](crate::design::Design::walk_in_background).
    pub fn walk_in_background(&mut self, page: PageNumber) -> Option<u64> {
        let walk = self.table_walk(page);
        walk.leaf?;
        self.read_in_background(&walk, page)
    }

    /// As [`Env::walk_in_background`], for a page that need not be mapped: the walk ends at the entry that is missing. It
    /// never faults, and so changes no mappings: in a guest it reads nothing where the host would fault. `None` when
    /// memory has run out, which stops the machine.
    pub fn walk_to_prefetch(&mut self, page: PageNumber) -> Option<u64> {
        let walk = self.table_walk(page);
        if self.host_has(&walk, page) { self.read_in_background(&walk, page) } else { Some(0) }
    }

    /// Notes that the design keeps a page which the last walk, of the access or in the background, has read. Accesses
    /// that use the page before the walk has ended wait for it.
    pub fn keep_seen(&mut self, page: PageNumber, size: PageSize) {
        if let Some(background) = &mut self.background {
            background.noted.push(InBackground::Page { first: page, size });
        }
    }

    /// Reads the entries of a walk, in a guest also the host's. Returns their number.
    fn read_in_background(&mut self, walk: &Walk, page: PageNumber) -> Option<u64> {
        let take_counters = |env: &mut Env| {
            let host_counters = env.host.as_mut().map(|host| std::mem::take(&mut host.walker));
            (std::mem::take(&mut env.walker), host_counters)
        };
        let demand = take_counters(self);
        let first_transfer = self.caches.shared.transfers().len();
        let cycles = self.read_entries(walk, page);
        let (counters, host_counters) = take_counters(self);
        self.walker = demand.0;
        if let (Some(host), Some(demand)) = (&mut self.host, demand.1) {
            host.walker = demand;
        }
        self.note_background(cycles?, first_transfer);
        Some(counters.reads + host_counters.map_or(0, |host_counters| host_counters.reads))
    }

    /// Reads the entries of a walk and of the host's. Returns the latency in cycles.
    fn read_entries(&mut self, walk: &Walk, page: PageNumber) -> Option<u32> {
        if self.host.is_none() {
            return Some(self.read(walk, page).0);
        }
        let mut cycles = 0;
        self.read_nested(walk, page, &mut cycles)?;
        if let Some(leaf) = walk.leaf {
            cycles += self.backing(leaf.frame_of(page), false, 1)?.1;
        }
        Some(cycles)
    }

    /// Notes a walk, and moves its transfers: those from index `first` of the shared cache's log on.
    fn note_background(&mut self, cycles: u32, first: usize) {
        if let Some(background) = &mut self.background {
            let first_transfer = background.transfers.len() as u32;
            background.transfers.extend(self.caches.shared.transfers().drain(first..));
            let transfers = background.transfers.len() as u32 - first_transfer;
            background.noted.push(InBackground::Walk { cycles, first_transfer, transfers });
        }
    }

    /// Whether there are walks that no call of [`Self::take_background`] has moved.
    #[inline(always)]
    pub(crate) fn has_walked_in_background(&self) -> bool {
        self.background.as_ref().is_some_and(|background| !background.noted.is_empty())
    }

    /// Moves the walks noted since the last call to costs.
    pub(crate) fn take_background(&mut self, costs: &mut Costs) {
        let Some(background) =
            self.background.as_mut().filter(|background| !background.noted.is_empty())
        else {
            return;
        };
        let start = costs.transfers.len() as u32;
        costs.transfers.append(&mut background.transfers);
        costs.background.extend(background.noted.drain(..).map(|noted| match noted {
            InBackground::Walk { cycles, first_transfer, transfers } => {
                InBackground::Walk { cycles, first_transfer: first_transfer + start, transfers }
            }
            page => page,
        }));
    }
}
