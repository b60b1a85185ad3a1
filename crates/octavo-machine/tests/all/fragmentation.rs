//! Initially fragmented memory: it has the free blocks of its description, designs get no other blocks, and background
//! memory stays allocated.

use std::collections::BTreeMap;

use crate::common::{config, hosted, play, tiny};
use octavo_config::{FragmentationConfig, MachineConfig};
use octavo_machine::{ConfigError, Counters, Sim};
use octavo_oracle::strategies::{RandomStream, Step};
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_types::{
    AddrRange, Event, Item, ItemKind, MapSource, PageSize, Protection, Segment, VirtAddr,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DESIGNS: [&str; 4] = ["base4k", "thp", "reserved_thp", "tps"];
const START: u64 = 0x7000_0000_0000;

/// A machine of 64 MiB.
fn machine(fragmentation: FragmentationConfig) -> MachineConfig {
    let mut machine = tiny();
    machine.memory.bytes = 64 * MIB;
    machine.memory.fragmentation = fragmentation;
    machine
}

/// A machine with these free blocks: bytes and number.
fn mix(free_blocks: &[(u64, u64)], movable_share: f64) -> MachineConfig {
    let size = |&(bytes, blocks): &(u64, u64)| (PageSize::from_bytes(bytes).unwrap(), blocks);
    let free_blocks = free_blocks.iter().map(size).collect();
    machine(FragmentationConfig::OrderMix { free_blocks, movable_share, seed: 1 })
}

/// An anonymous mapping with a store to each base page, in order.
fn fill(bytes: u64) -> RandomStream {
    let store = Item::new(ItemKind::Store, 8, VirtAddr::NULL);
    let fetch = Item { kind: ItemKind::Fetch, addr: VirtAddr::new(START), ..store };
    let segment = Segment::new(vec![fetch, store], Vec::new()).unwrap();
    let range = AddrRange::new(VirtAddr::new(START), bytes);
    let protection = Protection::from_bits(7);
    let map = Event::Map { range, protection, source: MapSource::Anonymous, flags: 0 };
    let pages = (START..START + bytes).step_by(4096);
    let stores = pages.map(|addr| Step::Segment(0, vec![VirtAddr::new(addr)]));
    let steps = std::iter::once(Step::Event(map)).chain(stores).collect();
    RandomStream { segments: vec![segment], steps }
}

/// The counters of each design at the start, and after a program that fills `bytes`.
fn filled(machine: &MachineConfig, bytes: u64) -> BTreeMap<&'static str, (Counters, Counters)> {
    let config = config(machine.clone(), &DESIGNS);
    let counters = |sim: &Sim| -> Vec<Counters> {
        sim.machines().iter().map(|machine| machine.counters()).collect()
    };
    let before = counters(&Sim::new(&config).unwrap());
    let mut sim = Sim::new(&config).unwrap();
    play(&mut sim, &fill(bytes));
    for (name, machine) in DESIGNS.iter().zip(sim.machines()) {
        assert_eq!(machine.check(), Ok(()), "{name}");
        assert_eq!(machine.stopped(), None, "{name}");
    }
    DESIGNS.into_iter().zip(before.into_iter().zip(counters(&sim))).collect()
}

fn os(counters: &Counters, counter: &'static str) -> u64 {
    counters.get("os", counter).expect("a reported counter")
}

/// The number of mapped pages of a size.
fn pages(counters: &Counters, size: &str) -> u64 {
    counters.get(&format!("os.pages.{size}"), "mapped").unwrap_or(0)
}

#[test]
fn every_design_gets_its_pages_from_empty_memory() {
    let filled = filled(&machine(FragmentationConfig::Empty), 8 * MIB);
    for (name, (before, after)) in &filled {
        assert_eq!((os(before, "foreign_bytes"), os(after, "foreign_bytes")), (0, 0), "{name}");
        assert_eq!(os(before, "free_bytes") + os(before, "page_table_bytes"), 64 * MIB, "{name}");
        assert_eq!(os(after, "resident_bytes"), 8 * MIB, "{name}");
    }
    let after = |name| &filled[name].1;
    assert_eq!(pages(after("base4k"), "4KiB"), 2048);
    assert_eq!(pages(after("thp"), "2MiB"), 4);
    assert_eq!(pages(after("reserved_thp"), "2MiB"), 4);
    assert_eq!(pages(after("tps"), "8MiB"), 1);
}

#[test]
fn order_mix_limits_every_design_to_its_blocks() {
    for movable_share in [0.0, 1.0] {
        // Free memory is for 8 MiB of data and their page tables.
        let machine = mix(&[(4 * KIB, 100), (64 * KIB, 128), (256 * KIB, 8)], movable_share);
        let free = 100 * 4 * KIB + 128 * 64 * KIB + 8 * 256 * KIB;
        let filled = filled(&machine, 8 * MIB);
        for (name, (before, after)) in &filled {
            let tables = os(before, "page_table_bytes");
            assert_eq!(os(before, "free_bytes") + tables, free, "{name}");
            assert_eq!(os(before, "foreign_bytes"), 64 * MIB - free, "{name}");
            assert_eq!(os(after, "foreign_bytes"), 64 * MIB - free, "{name}");
            assert_eq!(os(after, "resident_bytes"), 8 * MIB, "{name}");
            assert_eq!(pages(after, "2MiB"), 0, "{name}");
        }
        let after = |name| &filled[name].1;
        assert_eq!(pages(after("thp"), "4KiB"), 2048, "it falls back");
        assert_eq!(os(after("thp"), "bytes_zeroed"), os(after("base4k"), "bytes_zeroed"));
        assert!(os(after("tps"), "fallbacks") > 0);
        assert_eq!(pages(after("tps"), "256KiB"), 8, "all that there are");
        assert!(pages(after("tps"), "64KiB") > 90);
    }
}

#[test]
fn holes_are_charged_to_their_owners() {
    let holes = |kind, fraction, seed| {
        machine(FragmentationConfig::Holes {
            portion: 1.0,
            fraction,
            layout: HoleLayout::Dispersed,
            holes: kind,
            seed,
        })
    };
    for (kind, foreign) in
        [(HoleKind::Immovable, 16 * MIB), (HoleKind::Movable, 16 * MIB), (HoleKind::Unallocated, 0)]
    {
        let filled = filled(&holes(kind, 0.25, 1), 4 * MIB);
        for (name, (before, after)) in &filled {
            let reported = ["foreign_bytes", "reserved_bytes"].map(|counter| os(before, counter));
            assert_eq!(reported, [foreign, 16 * MIB - foreign], "{name} {kind:?}");
            assert_eq!(os(after, "foreign_bytes"), foreign, "{name} {kind:?}");
            assert_eq!(pages(after, "2MiB"), 0, "{name} {kind:?}");
        }
    }
    let sizes = |seed| {
        let tps = &filled(&holes(HoleKind::Immovable, 0.1, seed), 48 * MIB)["tps"].1;
        ["4KiB", "8KiB", "16KiB"].map(|size| pages(tps, size))
    };
    assert_eq!(sizes(1), sizes(1));
    assert_ne!(sizes(1), sizes(2), "another seed is another memory");
}

#[test]
fn infeasible_fragmentation_is_rejected_with_one_sentence() {
    // No two free blocks of 4 KiB are buddies.
    let machine = mix(&[(4 * KIB, 8193)], 0.0);
    let error = Sim::new(&config(machine, &["base4k"])).err().expect("there is no room");
    assert!(matches!(error, ConfigError::Fragmentation(_)));
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("memory.fragmentation: the order mix has 8193 free"),
        "{sentence}"
    );
}

/// `ideal2m` has unfragmented guest and host memory.
#[test]
fn ideal_memory_is_unfragmented_in_the_host() {
    let holes = FragmentationConfig::Holes {
        portion: 1.0,
        fraction: 0.25,
        layout: HoleLayout::Dispersed,
        holes: HoleKind::Immovable,
        seed: 1,
    };
    let counted = [FragmentationConfig::Empty, holes].map(|fragmentation| {
        let machine = hosted(machine(fragmentation), 27, false);
        let mut sim = Sim::new(&config(machine, &["ideal2m", "thp"])).unwrap();
        play(&mut sim, &fill(8 * MIB));
        [0, 1].map(|number| sim.machines()[number].counters())
    });
    assert_eq!(counted[0][0], counted[1][0]);
    assert_ne!(counted[0][1], counted[1][1]);
}
