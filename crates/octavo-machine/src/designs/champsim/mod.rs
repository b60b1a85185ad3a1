//! The page tables and the page walker of ChampSim (commit 2ff2501: `src/vmem.cc` and `src/ptw.cc`), for comparisons
//! with that simulator. Both read more than a radix tree and its walker do:
//!
//! - A table of a level is found by *all* address bits from its own index upwards (`get_pte_pa`), so that only one of
//!   its 512 entries is ever used: each page of 4 KiB has a leaf table of its own, and no two leaf entries share a
//!   line.
//! - An entry of a page-structure cache holds the table that an address below it used last, and a hit begins to read
//!   one level too high, in that table (`handle_read`). So a hit in the cache of the last level costs two reads: the
//!   place of this page in the table of another page, and its own entry. A walk without a hit begins at the root with
//!   the index of the level below.
//!
//! The page-structure caches are [`CACHES`], ChampSim's own, in place of the machine's. All of them are looked up in
//! each walk. There are always five levels, independent of those of the machine.
//!
//! Assumptions: ChampSim has pages of one size only; here the entry of a larger page is in a table of the level at
//! which a radix tree has it. A walk that ends in a page fault is repeated after the fault; ChampSim adds the time of
//! the fault to the walk. Tables above the leaves are kept until their process ends. Concurrent walks see one another's
//! fills.

mod tables;

use std::sync::Arc;

use octavo_config::MachineConfig;
use octavo_hw::{Asid, Replacement, WalkCacheConfig, WalkCaches};
use octavo_os::policy::OsConfig;
use octavo_types::{AddrRange, FrameNumber, Instructions, PageSize, VirtAddr};

use self::tables::{INDEX_BITS, Tables};
use crate::counters::Counters;
use crate::designs::build::{self, HardwareFormat};
use crate::designs::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::env::{WalkPlan, WalkRequest, Walker};

/// ChampSim's page tables behind conventional TLBs.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[TranslationHardware::new("champsim", make)],
    &[NamedDesign { name: "champsim", hardware: "champsim", policy: "base", about: "ChampSim's page tables and walker, for comparisons with it", figure: "translation" }],
);

/// Level, entries and ways of the page-structure caches (`champsim_config.json`, PTW).
pub const CACHES: [(u8, u64, u64); 4] = [(2, 32, 8), (3, 8, 4), (4, 4, 4), (5, 2, 2)];

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let hardware = HardwareFormat {
        table: Some(Arc::new(|_, frames| Box::new(Tables::new(frames)))),
        walker: |_| Box::new(ChampSimWalker::new()),
    };
    let tables = build::Tables { hardware: Some(hardware), ..build::Tables::default() };
    build::conventional(config, setup, tables, os)
}

/// The walker of a core, with its page-structure caches.
struct ChampSimWalker {
    /// For each entry, the table one level below that an address in its reach used last.
    caches: WalkCaches<FrameNumber>,
}

impl ChampSimWalker {
    fn new() -> Self {
        let config = |(level, entries, ways)| WalkCacheConfig {
            level,
            reach_log2: PageSize::BASE.log2() + INDEX_BITS * (level - 1),
            entries,
            ways,
            replacement: Replacement::Lru,
        };
        let caches = WalkCaches::new(&CACHES.map(config), Instructions::PORTABLE);
        ChampSimWalker { caches: caches.expect("valid sizes") }
    }
}

impl Walker for ChampSimWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        let WalkRequest { asid, page, .. } = *request;
        let table = request.table().hardware::<Tables>();
        let Some(root) = table.root() else { return };
        let addr = VirtAddr::new(page.raw() << PageSize::BASE.log2());
        let (mut level, mut first) = (tables::BELOW_ROOT, root);
        for (cached, ..) in CACHES.iter().rev() {
            if let Some(table) = self.caches.at(asid, addr, *cached) {
                (level, first) = (cached - 1, table);
            }
        }
        plan.probe(tables::entry(first, page, level));
        for level in (1..=level).rev() {
            let Some(found) = table.table_of(page, level) else { return };
            self.caches.fill(asid, addr, level + 1, found.frame);
            plan.wait();
            let at = tables::entry(found.frame, page, level);
            plan.probe(at);
            if found.has_page {
                plan.entry = Some(at);
                return;
            }
        }
    }

    fn invalidate(&mut self, asid: Asid, range: AddrRange) {
        self.caches.invalidate(asid, range);
    }

    fn clear(&mut self) {
        self.caches.clear();
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        for (level, counts) in self.caches.counters() {
            let cache = format!("{component}.pscl{level}");
            counters.add(&cache, "accesses", counts.accesses());
            counters.add(&cache, "hits", counts.hits);
            counters.add(&cache, "misses", counts.misses);
        }
    }
}
