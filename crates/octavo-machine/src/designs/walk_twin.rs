//! Naive machines for twins of page tables: a walker whose walk caches are lists, and memory that does not run out.

use std::marker::PhantomData;

use octavo_config::{HostConfig, MachineConfig};
use octavo_hw::Asid;
use octavo_os::page_table::{HardwareTable, MakeTable};
use octavo_types::{AddrRange, PhysAddr};

use super::build::{self, HardwareFormat, Tables};
use super::radix_twin::pages_of_node;
use super::registry::policies;
use super::twins::{GUEST, setup, tiny};
use crate::counters::Counters;
use crate::env::{Prefetches, WalkPlan, WalkRequest, Walker};
use crate::machine::AnyMachine;

/// The walk caches of both machines, fully associative: level and entries, in the order in which they are looked up.
const WALK_CACHES: [(u8, usize); 3] = [(2, 4), (3, 2), (4, 1)];

const SMALL_WALK_CACHES: [&str; 8] = [
    "walker.caches.pde.entries=4",
    "walker.caches.pde.ways=full",
    "walker.caches.pdpte.entries=2",
    "walker.caches.pml4e.entries=1",
    "host.walk_caches.pde.entries=4",
    "host.walk_caches.pde.ways=full",
    "host.walk_caches.pdpte.entries=2",
    "host.walk_caches.pml4e.entries=1",
];

/// The machine with fragmented memory that does not run out, and with small walk caches.
pub fn roomy(config: &MachineConfig, fragmentation: Option<&str>) -> MachineConfig {
    let fragmented =
        |part: &str| fragmentation.map(|kind| format!("{part}memory.fragmentation={kind}"));
    let (own, of_host) = (fragmented(""), fragmented("host."));
    let bytes = if fragmentation.is_some() { "2GiB" } else { "16GiB" };
    let (bytes, host_bytes) =
        (format!("memory.bytes={bytes}"), format!("host.memory.bytes={bytes}"));
    let walk_caches = &SMALL_WALK_CACHES[..if config.host.is_some() { 8 } else { 4 }];
    let mut settings: Vec<&str> = walk_caches.to_vec();
    settings.extend([Some(bytes.as_str()), own.as_deref()].into_iter().flatten());
    if config.host.is_some() {
        settings.splice(0..0, GUEST);
        settings.extend([Some(host_bytes.as_str()), of_host.as_deref()].into_iter().flatten());
    }
    let roomy = tiny(&settings);
    let host = config.host.clone().zip(roomy.host).map(|(host, roomy)| HostConfig {
        policy: host.policy,
        tlbs_hold: host.tlbs_hold,
        ..roomy
    });
    MachineConfig { memory: roomy.memory, walker: roomy.walker, host, ..config.clone() }
}

/// Naive page tables that a walker reads entry by entry.
pub trait NaiveTables: HardwareTable {
    /// The entries on the way to a base page, from the root on, each with its level.
    fn way(&self, page: u64) -> Vec<(u8, PhysAddr)>;

    /// Whether a base page is mapped.
    fn maps(&self, page: u64) -> bool;

    /// The entries that a walk prefetches.
    fn prefetches(&self, _page: u64) -> Prefetches {
        Prefetches::default()
    }
}

/// A machine of conventional TLBs with these tables and a naive walker.
pub fn naive<T: NaiveTables + 'static>(
    config: &MachineConfig,
    policy: &str,
    table: MakeTable,
) -> Box<dyn AnyMachine> {
    let walker = |_: &MachineConfig| -> Box<dyn Walker> { Box::new(NaiveWalker::<T>::new()) };
    let hardware = Some(HardwareFormat { table: Some(table), walker });
    let os = policies().parse(policy).unwrap();
    let tables = Tables { hardware, ..Tables::default() };
    build::conventional(config, &setup(config), tables, &os).unwrap()
}

struct NaiveWalker<T> {
    /// In the order of [`WALK_CACHES`]: address space and number of the entry; the one used last is the last.
    cached: [Vec<(Asid, u64)>; 3],
    hits: [u64; 3],
    misses: [u64; 3],
    tables: PhantomData<fn(T)>,
}

impl<T> NaiveWalker<T> {
    fn new() -> Self {
        let cached = Default::default();
        NaiveWalker { cached, hits: [0; 3], misses: [0; 3], tables: PhantomData }
    }
}

impl<T: NaiveTables + 'static> Walker for NaiveWalker<T> {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        let (table, asid) = (request.table().hardware::<T>(), request.asid);
        let page = request.page.raw();
        plan.prefetches = table.prefetches(page);
        let mut way = table.way(page);
        for (cache, (level, _)) in WALK_CACHES.into_iter().enumerate() {
            let entries = &mut self.cached[cache];
            let entry = (asid, page / pages_of_node(level - 1));
            if let Some(at) = entries.iter().position(|cached| *cached == entry) {
                entries.remove(at);
                entries.push(entry);
                self.hits[cache] += 1;
                way.retain(|(of_entry, _)| *of_entry < level);
                break;
            }
            self.misses[cache] += 1;
        }
        for (_, at) in &way {
            plan.probe(*at);
            plan.wait();
        }
        let (last, above) = way.split_last().unwrap();
        plan.entry = table.maps(page).then_some(last.1);
        for (level, _) in above {
            let cache = WALK_CACHES.iter().position(|(cached, _)| cached == level).unwrap();
            let entry = (asid, page / pages_of_node(*level - 1));
            let entries = &mut self.cached[cache];
            entries.retain(|cached| *cached != entry);
            entries.push(entry);
            if entries.len() > WALK_CACHES[cache].1 {
                entries.remove(0);
            }
        }
    }

    fn invalidate(&mut self, asid: Asid, range: AddrRange) {
        let (start, end) = (range.start().raw() >> 12, range.end().raw().div_ceil(4096));
        for (entries, (level, _)) in self.cached.iter_mut().zip(WALK_CACHES) {
            let pages = pages_of_node(level - 1);
            entries.retain(|(cached, number)| {
                *cached != asid || (number + 1) * pages <= start || end <= number * pages
            });
        }
    }

    fn clear(&mut self) {
        self.cached = Default::default();
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        for (cache, (level, _)) in WALK_CACHES.into_iter().enumerate() {
            let component = format!("{component}.l{level}");
            counters.add(&component, "accesses", self.hits[cache] + self.misses[cache]);
            counters.add(&component, "hits", self.hits[cache]);
            counters.add(&component, "misses", self.misses[cache]);
        }
    }
}
