//! Kinds of DRAM and of memory tiers.

use crate::own_table::{resolve, resolve_text};
use octavo_config::{DramConfig, MachineConfig, MemoryTier};

fn machine(settings: &[&str]) -> MachineConfig {
    resolve("skylake", settings).unwrap_or_else(|error| panic!("{error}")).into_config()
}

fn error(name: &str, settings: &[&str]) -> String {
    resolve(name, settings).expect_err("it is a machine").to_string()
}

/// Skylake's cycles at 3.2 GHz, computed by hand.
#[test]
fn kinds_of_dram_are_cycles_of_the_clock() {
    let ddr4 = DramConfig {
        channels: 2,
        banks: 16,
        row_bytes: 8192,
        activate_cycles: 45,
        precharge_cycles: 45,
        transfer_cycles: 11,
        write_batch: 16,
        turn_cycles: 69,
        refresh_cycles: 1120,
        refresh_every_cycles: 24960,
    };
    assert_eq!(machine(&[]).dram, Some(ddr4));
    // 16, 16, 1.667, 26.67, 295 and 3900 ns.
    let ddr5 = DramConfig {
        banks: 32,
        activate_cycles: 51,
        precharge_cycles: 51,
        transfer_cycles: 5,
        turn_cycles: 85,
        refresh_cycles: 944,
        refresh_every_cycles: 12480,
        ..ddr4
    };
    assert_eq!(machine(&["dram.kind=ddr5-4800"]).dram, Some(ddr5));
    let at_half = machine(&["core.pipeline.frequency_ghz=1.6"]).dram.unwrap();
    assert_eq!((at_half.activate_cycles, at_half.refresh_cycles), (23, 560));
    // One key changes alone, in either unit.
    let one = DramConfig { transfer_cycles: 32, ..ddr4 };
    assert_eq!(machine(&["dram.transfer_ns=10"]).dram, Some(one));
    assert_eq!(machine(&["dram.transfer_cycles=32"]).dram, Some(one));
}

/// Also in a file whose kind has been expanded to numbers.
#[test]
fn kind_replaces_all_numbers_but_the_channels() {
    let shown = resolve("skylake", &["dram.activate_cycles=7"]).unwrap();
    assert!(!shown.toml().contains("ddr4"), "{}", shown.toml());
    let again = resolve_text("mine.toml", shown.toml(), &["dram.kind=ddr5-4800"]).unwrap();
    assert_eq!(again.config().dram, machine(&["dram.kind=ddr5-4800"]).dram);
    let settings = ["dram.activate_cycles=7", "dram.kind=ddr5-4800", "dram.banks=4"];
    let dram = machine(&settings).dram.unwrap();
    assert_eq!((dram.channels, dram.banks, dram.activate_cycles), (2, 4, 51));
}

#[test]
fn tiers_are_the_end_of_memory() {
    let settings = [
        "memory.tiers.node1.kind=remote-numa",
        "memory.tiers.node1.bytes=1GiB",
        "memory.tiers.cxl.kind=cxl",
        "memory.tiers.cxl.share=0.5",
    ];
    let machine = machine(&settings);
    let frames = machine.memory.bytes >> 12;
    let placed: Vec<_> = machine.placed_tiers().map(|tier| (tier.name, tier.first_frame)).collect();
    let half = frames / 2;
    assert_eq!(placed, [("node1", frames - half - (1 << 18)), ("cxl", frames - half)]);
    let tier = |name: &str| machine.memory.tiers[name].clone();
    // 70 and 120 ns at 3.2 GHz, and 64 bytes in 2.56 ns.
    let node1 =
        MemoryTier { bytes: Some(1 << 30), share: None, added_latency_cycles: 224, dram: None };
    assert_eq!(tier("node1"), node1);
    assert_eq!((tier("cxl").bytes, tier("cxl").share), (None, Some(0.5)));
    assert_eq!(tier("cxl").added_latency_cycles, 384);
    let dram = tier("cxl").dram.unwrap();
    assert_eq!((dram.channels, dram.banks, dram.transfer_cycles), (1, 32, 8));
    // Lines of 64 bytes; the remote node has DRAM as the local one.
    assert_eq!(machine.drams()[1], ((frames - half - (1 << 18)) * 64, machine.dram));
}

#[test]
fn tier_takes_missing_dram_keys_from_the_machine() {
    let settings = [
        "memory.tiers.far.share=1",
        "memory.tiers.far.added_latency_cycles=9",
        "memory.tiers.far.dram.channels=1",
    ];
    let with = machine(&settings);
    let dram = DramConfig { channels: 1, ..with.dram.unwrap() };
    assert_eq!(with.memory.tiers["far"].dram, Some(dram));
    assert_eq!(with.placed_tiers().next().unwrap().first_frame, 0);
    // A later layer may change the tier, and take it out.
    let kind = ["memory.tiers.far.kind=cxl"];
    let changed = machine(&[&settings[..], &kind].concat());
    let alone = machine(&["memory.tiers.far.share=1", kind[0]]);
    assert_eq!(changed.memory.tiers, alone.memory.tiers);
    let without = machine(&[&settings[..], &["memory.tiers=none"]].concat());
    assert_eq!(without, machine(&[]));
}

/// DRAM has an effect on an out-of-order core alone.
#[test]
fn a_kind_of_dram_needs_a_core_with_a_clock() {
    assert_eq!(machine(&["core.pipeline=none"]).dram, None);
    let tier = ["memory.tiers.far.kind=cxl", "memory.tiers.far.share=1"];
    let added = ["memory.tiers.far.added_latency_cycles=7", "core.pipeline=none"];
    let tier = machine(&[tier, added].concat()).memory.tiers["far"].clone();
    assert_eq!((tier.added_latency_cycles, tier.dram), (7, None));
}

#[test]
fn hosts_have_tiers_and_their_guests_none() {
    let settings = ["host.memory.tiers.far.kind=cxl", "host.memory.tiers.far.share=0.25"];
    let with = machine(&settings);
    let host = with.host.as_ref().unwrap();
    let all = host.memory.bytes >> 12;
    assert_eq!(with.placed_tiers().next().unwrap().first_frame, all - all / 4);
    assert_eq!(
        error(
            "skylake",
            &["host=usual", "memory.tiers.far.kind=cxl", "memory.tiers.far.share=0.5"]
        ),
        "--set: memory.tiers: give host.memory.tiers: the memory of a guest lies in that of its host"
    );
}

#[test]
fn invalid_kinds_and_tiers_are_rejected() {
    let tier_error = |setting: &str| error("skylake", &["memory.tiers.far.kind=cxl", setting]);
    let cases = [
        (
            error("skylake", &["dram.kind=ddr5-480"]),
            "--set: dram.kind = \"ddr5-480\": give ddr4-2400 or ddr5-4800; did you mean `ddr5-4800`?",
        ),
        (error("skylake", &["dram.kind=5"]), "--set: dram.kind = 5: give ddr4-2400 or ddr5-4800"),
        (
            error("r3000", &["memory.tiers.far.kind=cxl", "memory.tiers.far.share=0.5"]),
            "--set: memory.tiers.far: give added_latency_cycles, or core.pipeline.frequency_ghz, by \
             which added_latency_ns becomes cycles",
        ),
        (
            error("skylake", &["core.pipeline.frequency_ghz=-1"]),
            "--set: core.pipeline.frequency_ghz = -1: give a number from 0.001 to 100",
        ),
        (
            error("skylake", &["dram.transfer_cycles=4", "dram.transfer_ns=4"]),
            "--set: dram.transfer_ns = 4: give this or dram.transfer_cycles, not both",
        ),
        (
            error("skylake", &["dram.transfer_ns=-1"]),
            "--set: dram.transfer_ns = -1: give nanoseconds from 0 to 1000000",
        ),
        (
            error("skylake", &["memory.tiers.far.kind=cx"]),
            "--set: memory.tiers.far.kind = \"cx\": give remote-numa or cxl; did you mean `cxl`?",
        ),
        (
            error("skylake", &["memory.tiers.far.kind=cxl"]),
            "--set: memory.tiers.far: give either bytes, such as \"8GiB\", or a share of the memory, \
             such as 0.5",
        ),
        (
            tier_error("memory.tiers.far.share=0"),
            "--set: memory.tiers.far.share = 0: give a share above 0, and at most 1",
        ),
        (
            tier_error("memory.tiers.far.bytes=10000"),
            "--set: memory.tiers.far.bytes = \"10000\": give a multiple of \"4KiB\"",
        ),
        (
            tier_error("memory.tiers.far.bytes=1TiB"),
            "--set: memory.tiers.far.bytes = \"1TiB\": give less: all tiers are more than the memory's \
             \"16GiB\"",
        ),
        (
            tier_error("memory.tiers.far.sahre=1"),
            "--set: memory.tiers.far.sahre: there is no such key; give bytes, share, \
             added_latency_cycles, dram, kind or added_latency_ns; did you mean `share`?",
        ),
        (
            error("skylake", &["memory.tiers.local.kind=cxl", "memory.tiers.local.share=1"]),
            "--set: memory.tiers.local: give another name: memory that is in no tier is called `local`",
        ),
        (
            error(
                "skylake",
                &[
                    "memory.tiers.far.share=1",
                    "memory.tiers.far.added_latency_ns=1",
                    "memory.tiers.far.dram.channels=3",
                ],
            ),
            "--set: memory.tiers.far.dram.channels = 3: give a power of two, and at most 64",
        ),
    ];
    let (given, expected): (Vec<String>, Vec<&str>) = cases.into_iter().unzip();
    assert_eq!(given, expected);
}
