//! Common parts of the machine tests.

pub mod bounds;
pub mod naive;
pub mod naive_os;
pub mod outside_lru;

use std::ops::Range;

use octavo_config::{
    AddressSpaces, CacheConfigs, CacheLevel, CoreConfig, Fill, FirstLevel, FragmentationConfig,
    HostConfig, MachineConfig, MemoryConfig, MemoryTier, PageSizes, PageTableConfig,
    PrefetchConfig, RegionPrefetcher, StreamPrefetcher, StridePrefetcher, TlbArray, TlbConfig,
    TlbLevel, TlbsHold, WalkCache, WalkStart, WalkerConfig, Ways,
};
use octavo_hw::{PteEntry, Replacement};
use octavo_machine::designs::registry::design_tables;
use octavo_machine::designs::softvm::{SoftvmConfig, VirtualCacheLevel};
use octavo_machine::designs::{DesignSpec, GtsmSettings, designs};
use octavo_machine::{AnyMachine, Counters, Sim, SimConfig, Timing};
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_trace::{Began, StreamIdentity, WordConsumer};
use octavo_types::{Event, Instructions, PageSize};
use proptest::prelude::*;

/// A TLB level with a latency and arrays: name, entries, ways, sizes.
pub fn level(hit_latency_cycles: u32, arrays: &[(&str, u64, u64, &[PageSize])]) -> TlbLevel {
    let array = |&(name, entries, ways, sizes): &(&str, u64, u64, &[PageSize])| {
        let page_sizes = PageSizes::List(sizes.to_vec());
        let replacement = Replacement::Lru;
        (name.to_owned(), TlbArray { entries, ways: Ways::Of(ways), page_sizes, replacement })
    };
    let arrays = arrays.iter().map(array).collect();
    TlbLevel { hit_latency_cycles, fill: Fill::All, arrays }
}

/// First-level TLBs whose entries have any page size.
pub fn any_size_first() -> FirstLevel {
    let array = |entries| TlbArray {
        entries,
        ways: Ways::Full,
        page_sizes: PageSizes::Any,
        replacement: Replacement::Lru,
    };
    let level = |entries| {
        let arrays = [("any".to_owned(), array(entries))].into_iter().collect();
        TlbLevel { hit_latency_cycles: 0, fill: Fill::All, arrays }
    };
    FirstLevel::Split { l1i: level(4), l1d: level(6) }
}

/// A cache of `lines` lines of 64 bytes.
pub fn cache(lines: u64, ways: u64, latency_cycles: u32) -> CacheLevel {
    let (ways, replacement) = (Ways::Of(ways), Replacement::Lru);
    let prefetch = PrefetchConfig::default();
    CacheLevel { bytes: lines * 64, ways, latency_cycles, replacement, prefetch }
}

/// Prefetchers of all kinds, with little state and long distances.
pub fn prefetchers() -> impl Strategy<Value = [PrefetchConfig; 2]> {
    let page = || prop::sample::select(vec![PageSize::BASE, PageSize::HUGE]);
    let stride = (1u32..4, 1u32..4, 1u32..3, 1u32..4, page(), any::<bool>()).prop_map(
        |(entries, confirmations, distance, degree, page, cross_pages)| StridePrefetcher {
            entries,
            confirmations,
            distance,
            degree,
            page,
            cross_pages,
        },
    );
    let streamer = (1u32..4, 0u32..3, 1u32..6, 1u32..4, page(), any::<bool>()).prop_map(
        |(streams, confirmations, distance, degree, page, cross_pages)| StreamPrefetcher {
            streams,
            confirmations,
            distance,
            degree,
            page,
            cross_pages,
        },
    );
    let region = ((1u32..4, 1u32..4, 1u32..4), 0u32..4, 1u32..6, 1u32..4, page(), any::<bool>())
        .prop_map(
            |((entries, confirmations, visits), before, after, degree, page, cross_pages)| {
                RegionPrefetcher {
                    entries,
                    confirmations,
                    visits,
                    before,
                    after,
                    degree,
                    page,
                    cross_pages,
                }
            },
        );
    let level = || {
        use prop::option::weighted;
        (
            weighted(0.6, stride.clone()),
            weighted(0.6, streamer.clone()),
            weighted(0.6, region.clone()),
        )
            .prop_map(|(stride, streamer, region)| PrefetchConfig {
                stride,
                streamer,
                region,
            })
    };
    [level(), level()]
}

/// The machine with these prefetchers at the first-level data cache and the second level.
pub fn with_prefetchers(
    mut machine: MachineConfig,
    prefetch: [PrefetchConfig; 2],
) -> MachineConfig {
    [machine.cache.l1d.prefetch, machine.cache.l2.prefetch] = prefetch;
    machine
}

/// Two prefetchers of which the first crosses into the next page.
pub fn eager_prefetchers() -> [PrefetchConfig; 2] {
    let stride = StridePrefetcher {
        entries: 4,
        confirmations: 1,
        distance: 1,
        degree: 2,
        page: PageSize::BASE,
        cross_pages: true,
    };
    let streamer = StreamPrefetcher {
        streams: 3,
        confirmations: 1,
        distance: 4,
        degree: 2,
        page: PageSize::HUGE,
        cross_pages: false,
    };
    [
        PrefetchConfig { stride: Some(stride), ..PrefetchConfig::default() },
        PrefetchConfig { streamer: Some(streamer), ..PrefetchConfig::default() },
    ]
}

/// A random stream with `Present` events in place of permission changes and of advice that the operating system
/// ignores.
pub fn stream_with_present(steps: Range<usize>) -> impl Strategy<Value = RandomStream> {
    stream(steps).prop_map(|mut stream| {
        for step in &mut stream.steps {
            let range = match step {
                Step::Event(Event::Protect { range, .. }) => *range,
                Step::Event(Event::Advise { range, advice })
                    if ![4, 8, 9, 14, 15].contains(advice) =>
                {
                    *range
                }
                _ => continue,
            };
            *step = Step::Event(Event::Present { range, known: true, first: false });
        }
        stream
    })
}

/// A machine so small that every structure overflows.
pub fn tiny() -> MachineConfig {
    let (base, huge) = ([PageSize::BASE], [PageSize::HUGE]);
    let both = [PageSize::BASE, PageSize::HUGE];
    let walk_cache = |level, entries| WalkCache {
        level,
        entries,
        ways: Ways::Full,
        replacement: Replacement::Lru,
    };
    let mut designs = design_tables();
    designs.set(SoftvmConfig {
        l1: virtual_cache(8, 1),
        l2: virtual_cache(48, 2),
        ..SoftvmConfig::default()
    });
    designs.set(GtsmSettings { walk_cache_entries: 4, bitmap_entries: 2 });
    MachineConfig {
        name: "tiny".to_owned(),
        description: "For tests.".to_owned(),
        source: "assumed".to_owned(),
        core: CoreConfig {
            count: 1,
            base_cpi: 1.0,
            address_spaces: AddressSpaces::Tagged,
            pipeline: None,
        },
        dram: None,
        memory: MemoryConfig {
            tiers: Default::default(),
            bytes: 4 << 30,
            largest_block: PageSize::from_bytes(4 << 20).unwrap(),
            fragmentation: FragmentationConfig::Empty,
        },
        page_table: PageTableConfig { levels: 4 },
        tlb: TlbConfig {
            first: FirstLevel::Split {
                l1i: level(0, &[("4k", 4, 2, &base), ("2m", 2, 2, &huge)]),
                l1d: level(0, &[("4k", 6, 2, &base), ("2m", 2, 1, &huge)]),
            },
            l2: Some(level(9, &[("main", 12, 3, &both)])),
        },
        walker: WalkerConfig {
            walkers: 2,
            window_instructions: 50,
            start: WalkStart::AfterLookup,
            overhead_cycles: 0,
            pte_entry: PteEntry::L1d,
            caches: [("pde".to_owned(), walk_cache(2, 3)), ("pdpte".to_owned(), walk_cache(3, 2))]
                .into_iter()
                .collect(),
        },
        cache: CacheConfigs {
            line_bytes: 64,
            memory_latency_cycles: 200,
            others_fill_every_cycles: 0,
            l1i: cache(8, 2, 4),
            l1d: cache(8, 2, 4),
            l2: cache(24, 3, 12),
            llc: cache(64, 4, 40),
        },
        designs,
        host: None,
    }
}

/// Gives a memory tiers: local frames, near frames, and the rest, which is far.
pub fn with_tiers(memory: &mut MemoryConfig, local_frames: u64, near_frames: u64) {
    let tier = |frames: u64, added_latency_cycles| {
        let bytes = Some(frames * PageSize::BASE.bytes());
        MemoryTier { bytes, share: None, added_latency_cycles, dram: None }
    };
    let far = memory.bytes / PageSize::BASE.bytes() - local_frames - near_frames;
    memory.tiers = [("near", tier(near_frames, 60)), ("far", tier(far, 300))]
        .map(|(name, tier)| (name.to_owned(), tier))
        .into_iter()
        .collect();
}

/// Virtual caches of `lines` lines of 64 bytes.
pub fn virtual_cache(lines: u64, ways: u64) -> VirtualCacheLevel {
    let (ways, replacement) = (Ways::Of(ways), Replacement::Lru);
    VirtualCacheLevel { bytes: lines * 64, ways, line_bytes: None, replacement }
}

/// The machine as a guest of a small host with 2^`memory_log2` bytes, under the policy of each design.
pub fn hosted(machine: MachineConfig, memory_log2: u8, caches_halves: bool) -> MachineConfig {
    let sizes = [PageSize::BASE, PageSize::HUGE];
    let host = HostConfig {
        policy: HostConfig::OF_DESIGN.to_owned(),
        tlbs_hold: if caches_halves { TlbsHold::Halves } else { TlbsHold::Final },
        memory: MemoryConfig { bytes: 1 << memory_log2, ..machine.memory.clone() },
        page_table: machine.page_table,
        tlb: Some(level(1, &[("main", 6, 3, &sizes)])),
        walk_caches: machine.walker.caches.clone(),
    };
    MachineConfig { host: Some(host), ..machine }
}

/// The names of all designs that support a machine.
pub fn names(machine: &MachineConfig) -> Vec<&'static str> {
    designs()
        .into_iter()
        .filter(|design| design.supports(machine))
        .map(|design| design.name)
        .collect()
}

/// Designs on a machine, with all checks.
pub fn config(machine: MachineConfig, designs: &[&str]) -> SimConfig {
    let designs = designs.iter().map(|name| DesignSpec::parse(name).unwrap()).collect();
    let mut config = SimConfig::new(machine, designs, Instructions::PORTABLE).unwrap();
    (config.setup.is_checked, config.timing) = (true, Timing::OutOfOrder);
    config
}

/// Plays a stream and ends it.
pub fn play(sim: &mut Sim, stream: &RandomStream) {
    play_on(sim, stream);
    sim.finish();
}

/// Plays a stream without ending it.
pub fn play_on(sim: &mut Sim, stream: &RandomStream) {
    for step in &stream.steps {
        match step {
            Step::Segment(number, addresses) => {
                let mut words = vec![*number as u64];
                words.extend(stream.segments[*number].addresses_of_groups(addresses));
                sim.execution(&stream.segments[*number], &words);
            }
            Step::Event(event) => sim.event(event),
        }
    }
}

/// Cycles of translation: look-ups beyond the first level, and walks.
pub fn translation_cycles(counters: &Counters) -> u64 {
    let parts = ["cycles_tlb_l2", "cycles_tlb_nested", "cycles_walks"];
    parts.iter().map(|part| counters.get("core", part).unwrap_or(0)).sum()
}

/// Checks that accesses = hits + misses, and that each cache level is accessed by the misses before it.
pub fn check_laws(counters: &Counters) -> Result<(), TestCaseError> {
    let get = |component: &str, counter| counters.get(component, counter).unwrap_or(0);
    for (component, counter, value) in counters.iter() {
        if counter == "accesses" {
            let sum = get(component, "hits") + get(component, "misses");
            prop_assert_eq!(value, sum, "{}", component);
        }
    }
    let (walks, overlapped) = (get("core", "cycles_walks"), get("walker", "cycles_overlapped"));
    prop_assert!(overlapped <= walks && (overlapped > 0) == (walks > 0), "{overlapped} of {walks}");
    let l1_misses = get("cache.l1i", "misses") + get("cache.l1d", "misses");
    prop_assert_eq!(get("cache.l2", "accesses"), l1_misses);
    prop_assert_eq!(get("cache.llc", "accesses"), get("cache.l2", "misses"));
    let prefetchers = ["prefetch.l1d", "prefetch.l2"];
    let from_memory: u64 = prefetchers.iter().map(|name| get(name, "from_memory")).sum();
    // Each under a component of the design; prefetches of walkers are accesses of the last level.
    let of_designs: u64 = counters
        .iter()
        .filter(|(of, counter, _)| *counter == "prefetches_memory" && !of.starts_with("walker"))
        .map(|(.., reads)| reads)
        .sum();
    prop_assert_eq!(get("memory", "reads"), get("cache.llc", "misses") + from_memory + of_designs);
    for prefetcher in prefetchers {
        let served = ["from_l2", "from_llc", "from_memory"].map(|source| get(prefetcher, source));
        prop_assert_eq!(get(prefetcher, "issued"), served.iter().sum::<u64>());
        prop_assert!(
            get(prefetcher, "useful") + get(prefetcher, "unused") <= get(prefetcher, "issued")
        );
        prop_assert!(get(prefetcher, "late") <= get(prefetcher, "useful"));
    }
    Ok(())
}

/// A process image, perhaps forked.
pub fn identity(stream: u32, parent: Option<u32>) -> StreamIdentity {
    let began = if parent.is_some() { Began::Fork } else { Began::Start };
    StreamIdentity { stream, parent, pid: stream, began, program: String::new() }
}

/// Whether a machine has stopped because its own memory or its host's is used up; naive machines cannot represent this.
pub fn has_run_out(machine: &dyn AnyMachine) -> bool {
    let Some(why) = machine.stopped() else { return false };
    let component = if why.starts_with("the host") { "host.os" } else { "os" };
    assert_eq!(machine.counters().get(component, "free_bytes"), Some(0), "{why}");
    true
}
