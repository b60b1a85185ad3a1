//! A pool of huge pages, reserved at boot (`vm.nr_hugepages`,
//! `Documentation/admin-guide/mm/hugetlbpage.rst`), for mappings with `MAP_HUGETLB` or for all anonymous
//! memory (as `malloc` requests with `GLIBC_TUNABLES=glibc.malloc.hugetlb=2`).
//!
//! Linux rejects a mapping for which the pool has too few pages. A traced program had its pages, so that an
//! empty pool falls back to base pages here, which is counted. With all anonymous memory, huge pages are used
//! where a whole one lies in a mapping.
//!
//! A page returns to the pool when its last process releases it as a whole. Linux rejects partial unmapping
//! or protection; here the page is split and leaves the pool. A store after a fork copies one base page of
//! it, which also removes the page from the pool.

use octavo_types::{FrameNumber, PageNumber, PageSize};
use serde::{Deserialize, Serialize};

use super::texts::page_size_or_none;
use super::{Fault, Policy, PolicySettings};
use crate::frames::{MemoryShape, Order, OutOfMemory, Owner};
use crate::memory::{Memory, ProcessId, around, base_pages};
use crate::vmas::{Backing, Pages, Vma};

/// Settings of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HugetlbConfig {
    /// Pages of 2 MiB in the pool, at most as many as the largest memory has.
    pub nr_hugepages: u64,
    /// Pages of 1 GiB in the pool, limited likewise; memory must have blocks of that size.
    pub nr_gigantic_pages: u64,
    /// If set, all anonymous memory uses the pool's pages of this size, not only mappings with `MAP_HUGETLB`.
    #[serde(with = "page_size_or_none")]
    pub all_anonymous: Option<PageSize>,
}

impl Default for HugetlbConfig {
    /// 2 GiB of 2 MiB pages, for mappings with `MAP_HUGETLB`.
    fn default() -> Self {
        HugetlbConfig { nr_hugepages: 1024, nr_gigantic_pages: 0, all_anonymous: None }
    }
}

impl PolicySettings for HugetlbConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Hugetlb::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        let gigantic = (self.nr_gigantic_pages > 0).then_some(PageSize::LARGEST);
        [PageSize::HUGE].into_iter().chain(gigantic).collect()
    }

    fn check(&self) -> Result<(), String> {
        for (key, pages, size) in [
            ("nr_hugepages", self.nr_hugepages, PageSize::HUGE),
            ("nr_gigantic_pages", self.nr_gigantic_pages, PageSize::LARGEST),
        ] {
            let most = MemoryShape::MAX_FRAMES / base_pages(size);
            if pages > most {
                return Err(format!("{key} = {pages}: give 0 to {most}"));
            }
        }
        match self.all_anonymous {
            Some(size) if ![PageSize::HUGE, PageSize::LARGEST].contains(&size) => {
                Err(format!("all_anonymous = {size}: give 2MiB or 1GiB, or none"))
            }
            _ => Ok(()),
        }
    }
}

/// A pool of huge pages.
#[derive(Clone, Debug)]
pub struct Hugetlb {
    config: HugetlbConfig,
    /// Free pages of the pool by size, the lowest last.
    pools: [(PageSize, Vec<FrameNumber>); 2],
}

impl Hugetlb {
    /// A policy whose pool is empty until the system starts.
    pub fn new(config: HugetlbConfig) -> Self {
        let pools = [(PageSize::HUGE, Vec::new()), (PageSize::LARGEST, Vec::new())];
        Hugetlb { config, pools }
    }

    fn pool(&mut self, size: PageSize) -> Option<&mut Vec<FrameNumber>> {
        self.pools.iter_mut().find(|(pool_size, _)| *pool_size == size).map(|(_, pool)| pool)
    }

    fn size_for(&self, vma: &Vma) -> Option<PageSize> {
        match vma.backing {
            Backing::HugeTlb(size) => Some(size),
            _ => self.config.all_anonymous,
        }
    }
}

impl Policy for Hugetlb {
    fn start(&mut self, memory: &mut Memory) {
        let wanted = [self.config.nr_hugepages, self.config.nr_gigantic_pages];
        // Largest size first: the rest suffices for the others.
        for ((size, pool), wanted) in self.pools.iter_mut().zip(wanted).rev() {
            let order = Order::of(*size);
            // One block is left for other uses, such as page tables.
            while (pool.len() as u64) < wanted && memory.frames.free_frames() >= 2 * order.frames()
            {
                let Ok(block) = memory.frames.allocate_free(order, Owner::Reserved) else { break };
                pool.push(block);
            }
            pool.reverse();
            memory.counters.fallbacks += wanted - pool.len() as u64;
        }
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let (process, rights) = (fault.process, fault.vma.rights);
        if let Some(size) = self.size_for(&fault.vma) {
            let pages = around(fault.page, size);
            let fits = fault.mapping.start <= pages.start && pages.end <= fault.mapping.end;
            let free = self.pool(size).filter(|_| fits && memory.is_untouched(process, &pages));
            if let Some(pool) = free {
                if let Some(block) = pool.pop() {
                    let order = Order::of(size);
                    memory.frames.change_owner(block, order, Owner::Data);
                    let first = PageNumber::new(pages.start);
                    let mapped = memory.map(process, first, size, block, rights);
                    if mapped.is_ok() {
                        memory.count_untouched(size);
                        memory.zeroed(block, base_pages(size));
                        return Ok(());
                    }
                    memory.frames.change_owner(block, order, Owner::Reserved);
                    pool.push(block);
                }
                memory.counters.fallbacks += 1;
            }
        }
        memory.place_new(process, fault.page, PageSize::BASE, rights)
    }

    fn unmapped(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        for leaf in memory.leaves(process, pages) {
            let whole = around(leaf.page, leaf.size);
            let inside = pages.start <= whole.start && whole.end <= pages.end;
            let is_unshared = inside && !memory.is_shared(&leaf);
            if let Some(pool) = self.pool(leaf.size).filter(|_| is_unshared) {
                memory.unmap_keeping_frames(process, &leaf);
                memory.frames.change_owner(leaf.frame, Order::of(leaf.size), Owner::Reserved);
                pool.push(leaf.frame);
            }
        }
    }
}
