//! `[softvm]` and `[gtsm]`: defaults, and rejected values.

use crate::common::tiny;
use octavo_config::{CacheLevel, Ways};
use octavo_hw::Replacement;
use octavo_machine::designs::GtsmSettings;
use octavo_machine::designs::softvm::{
    Aliasing, IncreasedRights, KernelConfig, Sharing, SoftTlbConfig, SoftvmConfig, SoftvmCycles,
    SoftvmRates, TableKind, VirtualCacheLevel, WriteBackTranslation,
};
use octavo_machine::{resolve, resolve_text};
use proptest::prelude::*;
use proptest::sample::select;

fn error(settings: &[&str]) -> String {
    resolve("r3000", settings).expect_err("it is not a machine").to_string()
}

#[test]
fn softvm_defaults_are_the_papers() {
    let machine = resolve("skylake", &[""; 0]).unwrap();
    let SoftvmConfig { l1, l2, kernel, cycles, tlb, rates } = *machine.config().designs.get();
    assert_eq!(
        (l1.bytes, l2.bytes, l1.ways, l2.ways),
        (8 << 10, 512 << 10, Ways::Of(1), Ways::Of(1))
    );
    assert_eq!(kernel.handler_instructions, 10);
    assert_eq!(kernel.write_back, WriteBackTranslation::Again);
    assert_eq!(kernel.increase, IncreasedRights::Lazy);
    assert_eq!((kernel.sharing, kernel.aliases), (Sharing::Global, Aliasing::Sweep));
    assert_eq!([cycles.handler_cycles, cycles.l2_cycles, cycles.memory_cycles], [10, 20, 90]);
    assert_eq!([cycles.check_l1_cycles, cycles.change_l1_cycles], [3, 5]);
    assert_eq!([cycles.check_l2_cycles, cycles.change_l2_cycles], [20, 40]);
    assert_eq!((tlb.entries, tlb.reserved), (64, 8));
    assert_eq!((kernel.protection_bytes, rates), (4096, SoftvmRates::default()));
    let caches = machine.config().designs.get::<SoftvmConfig>().caches(machine.config());
    assert_eq!((caches.l1[0].line_bytes, caches.l2[1].line_bytes), (64, 64), "the machine's");
    assert!(!machine.json().contains("softvm"), "a machine without it stays the machine it was");
}

#[test]
fn setting_one_key_keeps_the_others() {
    let settings = [
        "softvm.l1.bytes=16KiB",
        "softvm.l2.ways=2",
        "softvm.l2.line_bytes=128",
        "softvm.kernel.write_back=kept",
    ];
    let machine = resolve("r3000", &settings).unwrap();
    let SoftvmConfig { l1, l2, kernel, .. } = *machine.config().designs.get();
    assert_eq!((l1.bytes, l2.bytes, l2.ways), (16 << 10, 512 << 10, Ways::Of(2)));
    assert_eq!(kernel.write_back, WriteBackTranslation::Kept);
    assert_eq!(kernel.handler_instructions, 10);
    let caches = machine.config().designs.get::<SoftvmConfig>().caches(machine.config());
    assert_eq!((caches.l1[1].line_bytes, caches.l2[0].line_bytes), (16, 128));
    for text in [machine.toml(), &machine.config().to_toml()] {
        let again = resolve_text("again.toml", text, &[""; 0]).unwrap();
        assert_eq!(again.json(), machine.json());
    }
}

#[test]
fn line_size_may_have_a_unit() {
    let json = |setting| resolve("r3000", &[setting]).unwrap().json();
    assert_eq!(json("softvm.l2.line_bytes=0.25KiB"), json("softvm.l2.line_bytes=256"));
}

/// Of two inconsistent values the later one is reported, unless the earlier one leaves it no valid value.
#[test]
fn line_size_error_names_the_later_level() {
    let (machine, l1, l2) = ("cache.line_bytes", "softvm.l1.line_bytes", "softvm.l2.line_bytes");
    let least = |key, bytes: u64, least: u64, setting| {
        format!("--set: {key} = {bytes}: give a power of two from {least} ({setting}) to 4096")
    };
    let most = |key, bytes: u64, least: u64, most: u64, setting| {
        format!("--set: {key} = {bytes}: give a power of two from {least} to {most} ({setting})")
    };
    for ([first, second], message) in [
        ([(machine, 128), (l1, 64)], least(l1, 64, 128, machine)),
        ([(l1, 64), (machine, 128)], most(machine, 128, 8, 64, l1)),
        ([(l1, 256), (l2, 128)], least(l2, 128, 256, l1)),
        ([(l2, 128), (l1, 256)], most(l1, 256, 64, 128, l2)),
        ([(machine, 128), (l2, 64)], least(l2, 64, 128, machine)),
        ([(l2, 64), (machine, 128)], most(machine, 128, 8, 64, l2)),
        ([(l2, 32), (l1, 256)], least(l2, 32, 256, l1)),
        ([(l1, 4), (machine, 128)], least(l1, 4, 128, machine)),
    ] {
        let settings = [first, second].map(|(key, bytes)| format!("{key}={bytes}"));
        assert_eq!(resolve("skylake", &settings).unwrap_err().to_string(), message);
    }
}

#[test]
fn invalid_protection_unit_is_rejected() {
    let bytes = |value: &str| format!("softvm.kernel.protection_bytes={value}");
    assert_eq!(
        error(&["softvm.l2.line_bytes=64", &bytes("32")]),
        "--set: softvm.kernel.protection_bytes = 32: give a power of two from 64 (softvm.l2.line_bytes) \
         to 4096"
    );
    assert_eq!(
        error(&["softvm.kernel.table=guarded", &bytes("1KiB")]),
        "--set: softvm.kernel.protection_bytes = 1024: give 4096: only the two-tier table has entries for \
         less than a page"
    );
    assert_eq!(
        error(&["softvm.rates.dma_pages_per_billion=1000000001"]),
        "--set: softvm.rates.dma_pages_per_billion = 1000000001: give a whole number from 0 to 1000000000"
    );
}

#[test]
fn guest_rejects_hierarchical_tables() {
    assert_eq!(
        error(&["softvm.kernel.table=hierarchical", "host=usual"]),
        "--set: softvm.kernel.table = \"hierarchical\": give \"two-tier\", \"inverted\" or \"guarded\": what the \
         operating system of a guest has in its own tables are frames of the guest"
    );
}

#[test]
fn invalid_values_are_rejected_with_one_sentence() {
    assert_eq!(
        error(&["softvm.l1.byte=16KiB"]),
        "--set: softvm.l1.byte: there is no such key; give bytes, ways, line_bytes or replacement; did \
         you mean `bytes`?"
    );
    assert_eq!(
        error(&["softvm.l1.line_bytes=8"]),
        "--set: softvm.l1.line_bytes = 8: give a power of two from 16 (cache.line_bytes) to 4096"
    );
    assert_eq!(
        error(&["softvm.l1.line_bytes=64", "softvm.l2.line_bytes=32"]),
        "--set: softvm.l2.line_bytes = 32: give a power of two from 64 (softvm.l1.line_bytes) to 4096"
    );
    assert_eq!(
        error(&["softvm.l2.bytes=100"]),
        "--set: softvm.l2.bytes = \"100\": give a multiple of 16 (softvm.l2.line_bytes)"
    );
    assert_eq!(
        resolve("puma", &["softvm.l1.ways=3"]).unwrap_err().to_string(),
        "--set: softvm.l1.ways = 3: give a number by which bytes (\"8KiB\") can be divided, such as 2, \
         or \"full\""
    );
    assert_eq!(
        error(&["softvm.kernel.write_back=keep"]),
        "--set: softvm.kernel.write_back = \"keep\": give again or kept"
    );
    assert_eq!(
        error(&["softvm.kernel.handler_instructions=0"]),
        "--set: softvm.kernel.handler_instructions = 0: give a whole number from 1 to 1024"
    );
    assert_eq!(
        error(&["softvm.tlb.entries=8"]),
        "--set: softvm.tlb.entries = 8: give more than 8 (softvm.tlb.reserved)"
    );
    assert_eq!(
        error(&["softvm.tlb.reserved=64"]),
        "--set: softvm.tlb.reserved = 64: give a whole number from 1 to 63, less than all entries"
    );
    assert_eq!(
        error(&["softvm.cycles.memory_cycles=2000000"]),
        "--set: softvm.cycles.memory_cycles = 2000000: give a whole number from 0 to 1000000"
    );
}

#[test]
fn invalid_settings_of_gapped_pages_are_rejected() {
    assert_eq!(
        error(&["gtsm.bitmap_entries=0"]),
        "--set: gtsm.bitmap_entries = 0: give a whole number from 1 to 65536"
    );
    assert_eq!(
        error(&["gtsm.walk_cache_entries=100000"]),
        "--set: gtsm.walk_cache_entries = 100000: give a whole number from 0 to 65536"
    );
    let unknown = error(&["gtsm.bitmap_entry=32"]);
    assert!(unknown.ends_with("did you mean `bitmap_entries`?"), "{unknown}");
}

fn replacement() -> impl Strategy<Value = Replacement> {
    select(&Replacement::ALL[..])
}

/// Numbers of lines and of ways that fit together.
fn geometry() -> impl Strategy<Value = (u64, Ways)> {
    prop_oneof![
        (1u64..300).prop_map(|entries| (entries, Ways::Full)),
        (1u64..300, 1u64..30).prop_map(|(sets, ways)| (sets * ways, Ways::Of(ways))),
    ]
}

/// Kernel settings for virtual caches with page-sized protection.
fn kernel() -> impl Strategy<Value = KernelConfig> {
    let tables = select(vec![
        TableKind::TwoTier,
        TableKind::Hierarchical,
        TableKind::Inverted,
        TableKind::Guarded,
    ]);
    let write_back = select(vec![WriteBackTranslation::Again, WriteBackTranslation::Kept]);
    let increase = select(vec![IncreasedRights::Lazy, IncreasedRights::Eager]);
    let sharing = select(vec![Sharing::Global, Sharing::Aliased]);
    let aliases = select(vec![Aliasing::Sweep, Aliasing::Refuse]);
    (1u32..=1024, tables, write_back, increase, sharing, aliases).prop_map(
        |(handler_instructions, table, write_back, increase, sharing, aliases)| KernelConfig {
            protection_bytes: 4096,
            handler_instructions,
            table,
            write_back,
            increase,
            sharing,
            aliases,
        },
    )
}

/// Virtual caches with lines of at least `least_bytes`.
fn softvm(least_bytes: u64) -> impl Strategy<Value = SoftvmConfig> {
    let level = || (geometry(), replacement(), 0u32..=2);
    let cycles = prop::array::uniform8(0u32..1000);
    let tlb = (2u64..100, 1u64..100);
    (level(), level(), any::<bool>(), kernel(), cycles, tlb).prop_map(
        move |(l1, l2, has_line_bytes, mut kernel, cycles, (reserved, others))| {
            let lines = [least_bytes, (least_bytes << l2.2).min(4096)];
            let level = |((lines, ways), replacement, _), line_bytes| VirtualCacheLevel {
                bytes: lines * line_bytes,
                ways,
                line_bytes: (has_line_bytes || line_bytes != least_bytes).then_some(line_bytes),
                replacement,
            };
            let [l2_cycles, memory_cycles, handler_cycles, step_cycles, ..] = cycles;
            let [.., check_l1_cycles, change_l1_cycles, check_l2_cycles, change_l2_cycles] = cycles;
            if kernel.table == TableKind::TwoTier {
                kernel.protection_bytes = lines[1].max(256);
            }
            SoftvmConfig {
                l1: level(l1, lines[0]),
                l2: level(l2, lines[1]),
                kernel,
                cycles: SoftvmCycles {
                    l2_cycles,
                    memory_cycles,
                    handler_cycles,
                    step_cycles,
                    check_l1_cycles,
                    change_l1_cycles,
                    check_l2_cycles,
                    change_l2_cycles,
                },
                tlb: SoftTlbConfig { entries: reserved + others, reserved },
                rates: SoftvmRates {
                    protections_per_billion: cycles[0],
                    dma_pages_per_billion: cycles[1],
                },
            }
        },
    )
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn settings_round_trip_through_their_texts(
        (line_bytes, softvm) in (3u32..=12).prop_flat_map(|log2| (Just(1 << log2), softvm(1 << log2))),
        (walk_cache_entries, bitmap_entries) in (0u64..100, 1u64..100),
    ) {
        let mut machine = tiny();
        machine.cache.line_bytes = line_bytes;
        let caches = &mut machine.cache;
        for level in [&mut caches.l1i, &mut caches.l1d, &mut caches.l2, &mut caches.llc] {
            *level = CacheLevel { bytes: line_bytes, ways: Ways::Full, ..*level };
        }
        machine.designs.set(softvm);
        machine.designs.set(GtsmSettings { walk_cache_entries, bitmap_entries });
        prop_assert_eq!(machine.check(), Ok(()));
        let toml = machine.to_toml();
        let read = resolve_text("it.toml", &toml, &[""; 0]);
        let read = read.map_err(|error| TestCaseError::fail(format!("{error}\n{toml}")))?;
        prop_assert_eq!(read.config(), &machine);
        prop_assert_eq!(read.json(), machine.to_json());
        prop_assert_eq!(read.hash(), machine.hash());
    }
}
