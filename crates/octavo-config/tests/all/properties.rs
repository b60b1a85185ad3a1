//! Random machines, and random texts.

use crate::own_table::{Inner, Own, resolve, resolve_text, tables};
use octavo_config::{
    AddressSpaces, ArithmeticLatencies, BranchPrediction, CacheConfigs, CacheLevel, CoreConfig,
    DramConfig, Fill, FirstLevel, FragmentationConfig, HoleGroup, HostConfig, MachineConfig,
    MemoryConfig, MemoryTier, OutstandingMisses, PageSizes, PageTableConfig, PipelineConfig,
    PrefetchConfig, RegionPrefetcher, StreamPrefetcher, StridePrefetcher, TlbArray, TlbConfig,
    TlbLevel, TlbsHold, WalkCache, WalkStart, WalkerConfig, Ways, preset_names,
};
use octavo_hw::{PteEntry, Replacement};
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_types::PageSize;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const NO_SETTINGS: [&str; 0] = [];

fn page_size(largest_log2: u8) -> impl Strategy<Value = PageSize> {
    (12..=largest_log2).prop_map(|log2| PageSize::from_log2(log2).unwrap())
}

fn replacement() -> impl Strategy<Value = Replacement> {
    select(&Replacement::ALL[..])
}

/// Matching entries and ways.
fn geometry() -> impl Strategy<Value = (u64, Ways)> {
    prop_oneof![
        (1u64..300).prop_map(|entries| (entries, Ways::Full)),
        (1u64..300, 1u64..30).prop_map(|(sets, ways)| (sets * ways, Ways::Of(ways))),
    ]
}

fn array() -> impl Strategy<Value = TlbArray> {
    let sizes = btree_set(page_size(30), 1..4).prop_map(|sizes| sizes.into_iter().collect());
    (geometry(), option::of(sizes), replacement()).prop_map(
        |((entries, ways), sizes, replacement)| {
            let page_sizes = sizes.map_or(PageSizes::Any, PageSizes::List);
            let ways = if page_sizes == PageSizes::Any { Ways::Full } else { ways };
            TlbArray { entries, ways, page_sizes, replacement }
        },
    )
}

fn name() -> impl Strategy<Value = String> {
    // Neither a level's own key nor a key of an array.
    "[a-z0-9_-]{1,9}".prop_filter("a key", |name| !["fill", "entries", "ways"].contains(&&**name))
}

fn level(fill: Fill) -> impl Strategy<Value = TlbLevel> {
    (0u32..100, vec((name(), array()), 1..4)).prop_map(move |(hit_latency_cycles, arrays)| {
        TlbLevel { hit_latency_cycles, fill, arrays: arrays.into_iter().collect() }
    })
}

/// A level that holds base pages.
fn first_level() -> impl Strategy<Value = TlbLevel> {
    level(Fill::All).prop_map(|mut level| {
        let (_, first) = level.arrays.get_index_mut(0).unwrap();
        if !first.page_sizes.hold(PageSize::BASE) {
            first.page_sizes = PageSizes::List(vec![PageSize::BASE]);
        }
        level
    })
}

fn tlb() -> impl Strategy<Value = TlbConfig> {
    // Beside the first-level cache.
    let first_level =
        || first_level().prop_map(|level| TlbLevel { hit_latency_cycles: 0, ..level });
    let first = prop_oneof![
        (first_level(), first_level()).prop_map(|(l1i, l1d)| FirstLevel::Split { l1i, l1d }),
        first_level().prop_map(|l1| FirstLevel::Unified { l1 }),
    ];
    let l2 = select(vec![Fill::All, Fill::Victim]).prop_flat_map(level);
    (first, option::of(l2)).prop_map(|(first, l2)| TlbConfig { first, l2 })
}

/// Within the range of TOML numbers.
fn seed() -> impl Strategy<Value = u64> {
    0..=i64::MAX as u64
}

fn fragmentation() -> impl Strategy<Value = FragmentationConfig> {
    let layout = select(vec![HoleLayout::Clustered, HoleLayout::Dispersed]);
    let kind = select(vec![HoleKind::Immovable, HoleKind::Movable, HoleKind::Unallocated]);
    let faults = layout.clone();
    // Three of them add up to at most 1.
    let group = (0.0..=0.33, 0.0..=1.0, layout.clone(), kind.clone()).prop_map(
        |(portion, fraction, layout, holes)| HoleGroup { portion, fraction, layout, holes },
    );
    prop_oneof![
        Just(FragmentationConfig::Empty),
        (0.0..=1.0, 0.0..=1.0, layout, kind, seed()).prop_map(
            |(portion, fraction, layout, holes, seed)| FragmentationConfig::Holes {
                portion,
                fraction,
                layout,
                holes,
                seed
            }
        ),
        (vec(("[a-z]{1,5}", group), 0..3), seed()).prop_map(|(groups, seed)| {
            let groups = groups.into_iter().collect();
            FragmentationConfig::MixedHoles { groups, seed }
        }),
        (vec((page_size(20), 0u64..16), 0..4), 0.0..=1.0, seed()).prop_map(
            |(blocks, movable_share, seed)| {
                let free_blocks = blocks.into_iter().collect();
                FragmentationConfig::OrderMix { free_blocks, movable_share, seed }
            }
        ),
        (0.0..=1.0, faults, seed()).prop_map(|(portion, layout, seed)| {
            FragmentationConfig::Faults { portion, layout, seed }
        }),
        // The text of a machine has an absolute path.
        (r"/[\PC&&[^/.]]{1,20}", seed())
            .prop_map(|(file, seed)| FragmentationConfig::Snapshot { file, seed }),
    ]
}

fn memory() -> impl Strategy<Value = MemoryConfig> {
    // Tiers of at most a third each.
    let tier = (any::<bool>(), 0.13f64..0.33, 0u32..1000, option::of(dram()));
    let tiers = vec((name(), tier), 0..3);
    // Larger than the free blocks of any mix above, and their largest order.
    (16384u64..1 << 30, 20u8..=30, fragmentation(), tiers).prop_map(
        |(frames, log2, fragmentation, tiers)| {
            let tier = |(name, (has_share, share, added_latency_cycles, dram))| {
                let bytes = (frames as f64 * share) as u64 * 4096;
                let (share, bytes) = (Some(share), Some(bytes));
                let (share, bytes) = if has_share { (share, None) } else { (None, bytes) };
                (name, MemoryTier { bytes, share, added_latency_cycles, dram })
            };
            MemoryConfig {
                bytes: frames * 4096,
                largest_block: PageSize::from_log2(log2).unwrap(),
                fragmentation,
                tiers: tiers.into_iter().map(tier).collect(),
            }
        },
    )
}

fn walker(levels: u8) -> impl Strategy<Value = WalkerConfig> {
    let cache = (geometry(), replacement());
    let caches = (btree_set(2..=levels, 0..4), vec((name(), cache), 4));
    let start = select(vec![WalkStart::AfterLookup, WalkStart::WithLookup]);
    let pte_entry = select(vec![PteEntry::L1d, PteEntry::L2]);
    ((1u32..=64, 1u32..=1 << 16), (start, 0u32..100), pte_entry, caches).prop_map(
        |(
            (walkers, window_instructions),
            (start, overhead_cycles),
            pte_entry,
            (levels, caches),
        )| {
            let cache = |(level, (name, ((entries, ways), replacement)))| {
                (name, WalkCache { level, entries, ways, replacement })
            };
            let caches = levels.into_iter().zip(caches).map(cache).collect();
            WalkerConfig { walkers, window_instructions, start, overhead_cycles, pte_entry, caches }
        },
    )
}

fn prefetch() -> impl Strategy<Value = PrefetchConfig> {
    let counts = || (1u32..=1024, 1u32..=16, 1u32..=1024, 0u32..=64);
    let stride = (counts(), page_size(30), any::<bool>()).prop_map(
        |((entries, confirmations, distance, degree), page, cross_pages)| StridePrefetcher {
            entries,
            confirmations,
            distance,
            degree,
            page,
            cross_pages,
        },
    );
    let streamer = (counts(), page_size(30), any::<bool>()).prop_map(
        |((streams, confirmations, distance, degree), page, cross_pages)| StreamPrefetcher {
            streams,
            confirmations: confirmations - 1,
            distance,
            degree,
            page,
            cross_pages,
        },
    );
    let around = prop_oneof![(0u32..=31, 1u32..=31), (1u32..=31, 0u32..=31)];
    let region = (counts(), around, page_size(30), any::<bool>()).prop_map(
        |((entries, confirmations, visits, degree), (before, after), page, cross_pages)| {
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
    (option::of(stride), option::of(streamer), option::of(region))
        .prop_map(|(stride, streamer, region)| PrefetchConfig { stride, streamer, region })
}

fn caches() -> impl Strategy<Value = CacheConfigs> {
    let cache = || (geometry(), 0u32..1000, replacement());
    let prefetchers = (prefetch(), prefetch());
    (3u32..=12, 0u32..1000, cache(), cache(), cache(), cache(), prefetchers).prop_map(
        |(log2, memory_latency_cycles, l1i, l1d, l2, llc, prefetchers)| {
            let line_bytes = 1 << log2;
            let cache = |((lines, ways), latency_cycles, replacement)| CacheLevel {
                bytes: lines * line_bytes,
                ways,
                latency_cycles,
                replacement,
                prefetch: PrefetchConfig::default(),
            };
            CacheConfigs {
                line_bytes,
                memory_latency_cycles,
                others_fill_every_cycles: memory_latency_cycles / 3,
                l1i: cache(l1i),
                l1d: CacheLevel { prefetch: prefetchers.0, ..cache(l1d) },
                l2: CacheLevel { prefetch: prefetchers.1, ..cache(l2) },
                llc: cache(llc),
            }
        },
    )
}

/// The table of a design.
fn own() -> impl Strategy<Value = Own> {
    let inner = (option::of(any::<u32>()), vec("\\PC{0,9}", 0..3));
    let inner = inner.prop_map(|(ways, names)| Inner { ways, names });
    (0u32..1000, inner).prop_map(|(entries, inner)| Own { entries, inner })
}

fn host() -> impl Strategy<Value = HostConfig> {
    let policy = select(vec!["design", "base", "thp:max_ptes_none=0", "fixed:size=32KiB"]);
    let tlbs_hold = select(vec![TlbsHold::Final, TlbsHold::Halves]);
    let walks = (4u8..=5).prop_flat_map(|levels| (Just(levels), walker(levels)));
    (policy, tlbs_hold, memory(), walks, option::of(first_level())).prop_map(
        |(policy, tlbs_hold, memory, (levels, walker), tlb)| HostConfig {
            policy: policy.to_owned(),
            tlbs_hold: if tlb.is_some() { tlbs_hold } else { TlbsHold::Final },
            memory,
            page_table: PageTableConfig { levels },
            tlb,
            walk_caches: walker.caches,
        },
    )
}

fn pipeline() -> impl Strategy<Value = PipelineConfig> {
    let branches = select(vec![BranchPrediction::Tage, BranchPrediction::Perfect]);
    let (widths, queues) = (vec(1u32..=64, 6), vec(1u32..=1023, 8));
    let branches = (branches, any::<bool>(), any::<bool>());
    (0.1f64..10.0, widths, queues, vec(0u32..=100, 3), branches).prop_map(
        |(frequency_ghz, widths, queues, cycles, (branches, wrong_paths, store_prefetch))| {
            PipelineConfig {
                frequency_ghz,
                width: widths[0],
                fetch_width: Some(widths[5]).filter(|width| *width != widths[0]),
                issue_width: widths[1],
                commit_width: widths[2],
                reorder_buffer: queues[0],
                rename_registers: queues[7],
                load_queue: queues[1],
                store_queue: queues[2],
                load_ports: widths[3],
                store_ports: widths[4],
                forward_cycles: cycles[0],
                fetch_buffer: queues[3],
                front_end_cycles: cycles[1],
                mispredict_cycles: cycles[2],
                branches,
                wrong_paths,
                store_prefetch,
                outstanding: OutstandingMisses { l1d: queues[4], l2: queues[5], llc: queues[6] },
                latencies: ArithmeticLatencies {
                    multiply: queues[0].min(ArithmeticLatencies::MAX),
                    divide: queues[1].min(ArithmeticLatencies::MAX),
                    float: queues[2].min(ArithmeticLatencies::MAX),
                    float_divide: queues[3].min(ArithmeticLatencies::MAX),
                },
            }
        },
    )
}

fn dram() -> impl Strategy<Value = DramConfig> {
    let cycles = || 0u32..=1000;
    let writes = (1u32..=256, cycles());
    let refresh = (cycles(), 1u32..=10_000);
    (0u32..=6, 0u32..=10, 12u32..=30, (cycles(), cycles(), cycles()), writes, refresh).prop_map(
        |(channels, banks, row, times, writes, refresh)| {
            let (activate_cycles, precharge_cycles, transfer_cycles) = times;
            DramConfig {
                channels: 1 << channels,
                banks: 1 << banks,
                row_bytes: 1 << row,
                activate_cycles,
                precharge_cycles,
                transfer_cycles,
                write_batch: writes.0,
                turn_cycles: writes.1,
                refresh_cycles: refresh.0,
                refresh_every_cycles: refresh.0 + refresh.1,
            }
        },
    )
}

/// The presets that give no settings of designs.
fn presets() -> Vec<&'static str> {
    preset_names().filter(|name| resolve(name, &NO_SETTINGS).is_ok()).collect()
}

fn machine() -> impl Strategy<Value = MachineConfig> {
    let core = (1u32..=256, 0.001f64..1000.0, any::<bool>(), option::of(pipeline())).prop_map(
        |(count, base_cpi, tags, pipeline)| {
            let address_spaces = if tags { AddressSpaces::Tagged } else { AddressSpaces::Flushed };
            CoreConfig { count, base_cpi, address_spaces, pipeline }
        },
    );
    let walks = (4u8..=5).prop_flat_map(|levels| (Just(levels), walker(levels)));
    let texts = ("\\PC{1,20}", "\\PC{0,40}", ".{0,40}");
    let hardware = (walks, tlb(), caches(), own(), option::of(dram()));
    (texts, core, memory(), hardware, option::of(host())).prop_map(
        |((name, description, source), core, mut memory, hardware, host)| {
            if host.is_some() {
                memory.tiers.clear();
            }
            let ((levels, walker), tlb, cache, own, dram) = hardware;
            let page_table = PageTableConfig { levels };
            let mut designs = tables();
            designs.set(own);
            MachineConfig {
                name,
                description,
                source,
                core,
                memory,
                page_table,
                tlb,
                walker,
                cache,
                designs,
                dram,
                host,
            }
        },
    )
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn machines_round_trip_through_their_texts(machine in machine()) {
        prop_assert_eq!(machine.check(), Ok(()));
        let toml = machine.to_toml();
        let resolved = resolve_text("it.toml", &toml, &NO_SETTINGS);
        let resolved = resolved.map_err(|error| TestCaseError::fail(format!("{error}\n{toml}")))?;
        prop_assert_eq!(resolved.config(), &machine);
        // `==` ignores the order of arrays.
        prop_assert_eq!(resolved.json(), machine.to_json());
        let again = resolve_text("again.toml", resolved.toml(), &NO_SETTINGS).unwrap();
        prop_assert_eq!(again.json(), machine.to_json());
        prop_assert_eq!(again.hash(), machine.hash());
    }

    /// The keys of a file replace those of the machine it extends; other keys stay.
    #[test]
    fn file_replaces_the_keys_it_sets(
        machine in machine(),
        base in select(presets()),
    ) {
        let text = format!("extends = \"{base}\"\n{}", machine.to_toml());
        match resolve_text("it.toml", &text, &NO_SETTINGS) {
            Ok(resolved) => {
                let config = resolved.config();
                prop_assert_eq!(&config.name, &machine.name);
                let base = format!("extends = \"{base}\"");
                let base = resolve_text("base.toml", &base, &NO_SETTINGS).unwrap();
                let (mut cache, of_base) = (machine.cache.clone(), &base.config().cache);
                let levels = [(&mut cache.l1d, of_base.l1d), (&mut cache.l2, of_base.l2)];
                for (level, base_level) in levels {
                    let (own, inherited) = (&mut level.prefetch, base_level.prefetch);
                    own.stride = own.stride.or(inherited.stride);
                    own.streamer = own.streamer.or(inherited.streamer);
                    own.region = own.region.or(inherited.region);
                }
                prop_assert_eq!(&config.cache, &cache);
                let mut core = machine.core.clone();
                let of_base = base.config().core.pipeline.clone();
                if let (Some(pipeline), Some(of_base)) = (&mut core.pipeline, &of_base) {
                    pipeline.fetch_width = pipeline.fetch_width.or(of_base.fetch_width);
                }
                core.pipeline = core.pipeline.or(of_base);
                prop_assert_eq!(&config.core, &core);
                prop_assert_eq!(&config.memory, &machine.memory);
                for (key, level) in machine.tlb.levels() {
                    let (_, over) = config.tlb.levels().find(|(other, _)| *other == key).unwrap();
                    prop_assert_eq!(over.fill, level.fill);
                    for (name, array) in &level.arrays {
                        prop_assert_eq!(&over.arrays[name], array);
                    }
                }
            }
            // Both kinds of first levels, two walk caches of one level, or no walk caches, which an empty
            // table cannot express over existing ones.
            Err(error) => {
                let sentence = error.to_string();
                if let Some((key, _)) = sentence.split_once(" = {}: an empty table") {
                    let caches = match key {
                        "it.toml: walker.caches" => &machine.walker.caches,
                        "it.toml: host.walk_caches" => &machine.host.unwrap().walk_caches,
                        _ => panic!("{sentence}"),
                    };
                    prop_assert!(caches.is_empty());
                    return Ok(());
                }
                let known = ["give either l1i and l1d", "is of this one"];
                prop_assert!(known.iter().any(|known| sentence.contains(known)), "{}", sentence);
            }
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}", setting in "[a-z0-9.=\"{}\\[\\] ]{0,40}") {
        for (text, setting) in [
            (text.clone(), setting.clone()),
            (format!("extends = \"skylake\"\n{text}"), setting.clone()),
            ("extends = \"zen2\"".to_owned(), format!("tlb.{setting}")),
        ] {
            if let Err(error) = resolve_text("it.toml", &text, &[setting]) {
                let sentence = error.to_string();
                prop_assert!(!sentence.contains('\n') && sentence.len() < 2000, "{}", sentence);
            }
        }
    }
}
