//! Gapped pages: without gaps, and with memory faults of any number and layout.

mod policy;

use std::collections::BTreeSet;

use crate::common::bounds::{
    conventional, listed, machine, os, play_checked, touches, with_small_first,
};
use crate::common::{cache, check_laws, config, hosted, play, tiny};
use octavo_config::{FragmentationConfig, MachineConfig, TlbConfig};
use octavo_machine::designs::GtsmSettings;
use octavo_machine::designs::registry::policies;
use octavo_machine::designs::{DesignSpec, Gtsm, Setup};
use octavo_machine::{AnyMachine, Counters, Design, Env, Machine, Sim};
use octavo_oracle::strategies::{loads, stream};
use octavo_os::frames::fragmentation::HoleLayout;
use octavo_os::frames::{Order, OutOfMemory, Owner, SubBlocks};
use octavo_os::page_table::Format;
use octavo_os::policy::{Fault, Policy};
use octavo_os::{Memory, around};
use octavo_types::{Instructions, PageNumber, PageSize};
use proptest::prelude::*;

/// The outcome of the first touch of a 2 MiB range.
#[derive(Clone, Copy, PartialEq)]
enum FirstTouch {
    /// A gapped page of the first 32 sub-blocks of a chunk.
    NoGaps,
    /// A 2 MiB page in the same place. A frame is reserved for each, in place of the deposited node of a gapped page.
    Huge,
}

impl Policy for FirstTouch {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, ref vma, .. } = *fault;
        let pages = around(page, PageSize::HUGE);
        assert!(memory.is_untouched(process, &pages));
        let chunk = memory.frames.allocate(Order::LINUX, Owner::Data)?;
        memory.frames.free(chunk.plus(512), Order::HUGE);
        if *self == FirstTouch::NoGaps {
            let blocks = SubBlocks::first_of(u64::MAX).unwrap();
            assert!(memory.map_gapped(process, page, (chunk, blocks), vma.rights)?);
            return Ok(());
        }
        let first = PageNumber::new(pages.start);
        memory.map(process, first, PageSize::HUGE, chunk, vma.rights)?;
        memory.frames.allocate(Order::BASE, Owner::Reserved)?;
        memory.zeroed(chunk, 512);
        Ok(())
    }
}

/// The page-table format with gapped pages.
fn format() -> Format {
    Format { has_gapped: true, ..Format::default() }
}

fn gtsm(tlb: &TlbConfig, bitmap_entries: u64) -> Gtsm {
    let hardware = GtsmSettings { walk_cache_entries: 0, bitmap_entries };
    Gtsm::new(tlb, &hardware, Instructions::PORTABLE).unwrap()
}

/// A machine in a guest: `names` are the policies of the guest and of the host, which has gapped pages.
fn in_guest<D: Design + 'static>(
    config: &MachineConfig,
    names: [&str; 2],
    mmu: D,
) -> Box<dyn AnyMachine> {
    let host = config.host.as_ref().unwrap();
    let [own, host_os] = names.map(|policy| policies().parse(policy).unwrap().policy.build());
    let own = os(config.memory.bytes, config.page_table.levels, Format::default(), own);
    let host_os = os(host.memory.bytes, host.page_table.levels, format(), host_os);
    let env = Env::new(config, own, Instructions::PORTABLE).unwrap();
    let env = env.in_guest(config, host, host_os, Instructions::PORTABLE).unwrap();
    Box::new(Machine::new(env.checked(true), vec![mmu], Instructions::PORTABLE))
}

/// Whether a counter is reported only by a design with gapped pages.
fn is_gap_counter(component: &str, counter: &str) -> bool {
    component.ends_with(".pages.gapped")
        || ["tlb.l2.gapped", "walker.cache.bitmap"].contains(&component)
        || ["gapped", "bitmap_references", "bitmap_bytes"].contains(&counter)
}

/// All counters except those of gapped pages and of their bitmaps.
fn without_gap_counters(counters: &Counters) -> Vec<(String, &'static str, u64)> {
    listed(counters, |component, counter, _| !is_gap_counter(component, counter))
}

/// All counters except those of gapped pages, of pages and frames by kind, and of bitmap reads.
fn comparable_counters(counters: &Counters) -> Vec<(String, &'static str, u64)> {
    let is_compared = |component: &str, counter: &str| {
        !component.starts_with("os.pages")
            && !is_gap_counter(component, counter)
            && !["page_table_bytes", "peak_page_table_bytes", "reserved_bytes", "cycles_overlapped"]
                .contains(&counter)
            && !["cache", "memory", "core"].contains(&component.split('.').next().unwrap())
    };
    listed(counters, |component, counter, _| is_compared(component, counter))
}

/// The machine with a small memory that has faults.
fn with_faults(mut machine: MachineConfig, portion: f64, layout: HoleLayout) -> MachineConfig {
    machine.memory.bytes = 256 << 20;
    machine.memory.fragmentation = FragmentationConfig::Faults { portion, layout, seed: 1 };
    machine
}

proptest! {
    #![proptest_config(octavo_oracle::cases(30))]

    /// Without gapped pages the counters equal those of the conventional design.
    #[test]
    fn gtsm_without_gapped_pages_equals_thp(stream in stream(1..150)) {
        let kind = tiny();
        for policy in ["base", "thp"] {
            let policy = || (policies().by_name(policy).unwrap().usual)().build();
            let counted = play_checked(&kind, &stream, vec![
                machine(&kind, format(), policy(), conventional(&kind)),
                machine(&kind, format(), policy(), gtsm(&kind.tlb, 2)),
            ]);
            prop_assert_eq!(without_gap_counters(&counted[1]), without_gap_counters(&counted[0]));
            prop_assert_eq!(counted[1].get("walker", "bitmap_references"), Some(0));
        }
    }

    /// The same in a guest, for any combination of page sizes in guest and host.
    #[test]
    fn gtsm_without_gapped_pages_equals_thp_in_a_guest(
        stream in stream(1..150),
        caches_halves in any::<bool>(),
    ) {
        let kind = hosted(tiny(), 33, caches_halves);
        for policies in [["thp", "thp"], ["thp", "base"], ["base", "thp"], ["gtsm", "gtsm"]] {
            let counted = play_checked(&kind, &stream, vec![
                in_guest(&kind, policies, conventional(&kind)),
                in_guest(&kind, policies, gtsm(&kind.tlb, 2)),
            ]);
            prop_assert_eq!(without_gap_counters(&counted[1]), without_gap_counters(&counted[0]));
            prop_assert_eq!(counted[1].get("walker", "bitmap_references"), Some(0));
        }
    }

    /// In fault-free host memory, GTSM equals huge pages except for the frames of base pages: page faults of the guest
    /// and walks of its table are the same.
    #[test]
    fn gtsm_in_fault_free_host_memory_equals_thp(stream in stream(1..150)) {
        let kind = hosted(tiny(), 33, false);
        let designs = ["gtsm:gtsm.walk_cache_entries=0", "thp"];
        let mut sim = Sim::new(&config(kind, &designs)).unwrap();
        play(&mut sim, &stream);
        let [gtsm, thp] = [0, 1].map(|at| sim.machines()[at].counters());
        let is_compared = |component: &str, counter: &str| match component.split('.').next() {
            Some("tlb") => !component.starts_with("tlb.nested"),
            Some("os") => true,
            _ if component == "walker" => ["walks", "faulted", "splintered"].contains(&counter),
            _ => component == "walker.guest" && ["references", "marked"].contains(&counter),
        };
        let compared = |counters| {
            let mut all = without_gap_counters(counters);
            all.retain(|(component, counter, _)| is_compared(component, counter));
            all
        };
        prop_assert_eq!(compared(&gtsm), compared(&thp));
    }

    /// With faults in host memory, translations match both page tables, and faulty frames are never used.
    #[test]
    fn translations_in_a_guest_are_checked_and_faulty_host_frames_unused(
        stream in stream(1..200),
        cores in 1u32..3,
        portion in prop_oneof![0.0..=0.05, Just(0.2)],
        caches_halves in any::<bool>(),
    ) {
        let mut kind = hosted(tiny(), 28, caches_halves);
        kind.core.count = cores;
        let layout = HoleLayout::Dispersed;
        let host = kind.host.as_mut().unwrap();
        host.memory.fragmentation = FragmentationConfig::Faults { portion, layout, seed: 1 };
        let designs = ["gtsm", "gtsm:whole_blocks=false", "thp"];
        let mut sim = Sim::new(&config(kind, &designs)).unwrap();
        play(&mut sim, &stream);
        let lost = (65_536.0 * portion).round() as u64 * 4096;
        for (name, machine) in designs.iter().zip(sim.machines()) {
            prop_assert_eq!(machine.check(), Ok(()), "{}", name);
            let counters = machine.counters();
            check_laws(&counters)?;
            let host_faulty = counters.get("host.os", "faulty_bytes").unwrap_or(0);
            prop_assert_eq!(host_faulty, lost, "{}", name);
            prop_assert_eq!(counters.get("os", "faulty_bytes"), None, "{}", name);
        }
    }

    /// If the first level holds base pages of both, a gapped page without gaps equals a 2 MiB page counter for counter,
    /// except for bitmap look-ups and the lines that they read.
    #[test]
    fn gapless_gapped_page_equals_huge_page_plus_bitmap(
        touches in touches(),
        bitmap_entries in prop_oneof![Just(1u64), Just(64)],
    ) {
        let mut kind = with_small_first();
        // No line is evicted.
        kind.cache.l1d = cache(1 << 14, 1 << 14, 4);
        let counted = play_checked(&kind, &loads(&touches), vec![
            machine(&kind, format(), Box::new(FirstTouch::NoGaps), gtsm(&kind.tlb, bitmap_entries)),
            machine(&kind, format(), Box::new(FirstTouch::Huge), conventional(&kind)),
        ]);
        let [gaps, huge] = &counted[..] else { unreachable!() };
        prop_assert_eq!(comparable_counters(gaps), comparable_counters(huge));
        let more = |component, counter| {
            gaps.get(component, counter).unwrap() - huge.get(component, counter).unwrap()
        };
        let get = |component, counter| gaps.get(component, counter).unwrap();
        let read = get("walker", "bitmap_references");
        let bitmap_lookups = get("walker.cache.bitmap", "accesses");
        prop_assert_eq!(bitmap_lookups, get("tlb.l2.gapped", "hits") + get("tlb.l2", "misses"));
        prop_assert_eq!(more("cache.l1d", "accesses"), read);
        // A line has the bitmaps of eight chunks. The code is on one page; data begin at page 0x100.
        let pages = touches.iter().map(|(page, ..)| (0x100 + page) / 512).chain([0x400 / 512]);
        let pages: BTreeSet<u64> = pages.collect();
        let lines = (pages.len() as u64).div_ceil(8);
        prop_assert_eq!(more("cache.l1d", "misses"), lines);
        prop_assert_eq!(more("memory", "reads"), lines);
        if bitmap_entries == 64 {
            prop_assert_eq!(read, pages.len() as u64);
        }
    }

    /// With any number of faults and for any program, translations match the page table, and faulty frames are never
    /// used.
    #[test]
    fn translations_are_checked_and_faulty_frames_unused(
        stream in stream(1..200),
        cores in 1u32..3,
        portion in prop_oneof![0.0..=0.05, Just(0.2)],
        is_clustered in any::<bool>(),
    ) {
        let layout = if is_clustered { HoleLayout::Clustered } else { HoleLayout::Dispersed };
        let mut kind = with_faults(tiny(), portion, layout);
        kind.core.count = cores;
        let designs = [
            "gtsm", "gtsm:whole_blocks=false", "conventional+gtsm", "perforated", "thp", "tps",
        ];
        let mut sim = Sim::new(&config(kind, &designs)).unwrap();
        let faulty = |counters: &Counters| counters.get("os", "faulty_bytes").unwrap_or(0);
        let before: Vec<u64> = sim.machines().iter().map(|machine| faulty(&machine.counters())).collect();
        play(&mut sim, &stream);
        // Clustered faults come in runs.
        let run = if is_clustered { 16.0 } else { 1.0 };
        let lost = ((65_536.0 * portion / run).round() * run) as u64 * 4096;
        for ((name, machine), before) in designs.iter().zip(sim.machines()).zip(before) {
            prop_assert_eq!(machine.check(), Ok(()), "{}", name);
            check_laws(&machine.counters())?;
            prop_assert_eq!([before, faulty(&machine.counters())], [lost; 2], "{}", name);
        }
    }
}

/// Faults in 2% of frames leave no whole 2 MiB region: `thp` makes no huge page; `gtsm` makes one gapped page per
/// chunk, until half of memory is used.
#[test]
fn gtsm_keeps_large_pages_despite_faults() {
    let kind = with_faults(tiny(), 0.02, HoleLayout::Dispersed);
    let touches: Vec<_> = (0..40 * 512).map(|page| (page, 1, false)).collect();
    let mut sim = Sim::new(&config(kind, &["gtsm", "thp"])).unwrap();
    play(&mut sim, &loads(&touches));
    let [gtsm, thp] = [0, 1].map(|at| sim.machines()[at].counters());
    let get = |counters: &Counters, component, counter| counters.get(component, counter).unwrap();
    let lost = (65_536.0f64 * 0.02).round() as u64 * 4096;
    assert_eq!([&gtsm, &thp].map(|all| get(all, "os", "faulty_bytes")), [lost; 2]);
    assert_eq!(get(&gtsm, "os", "bitmap_bytes"), 4096);
    assert_eq!([&gtsm, &thp].map(|all| get(all, "os.pages.2MiB", "mapped")), [0; 2]);
    // Data begin and end in the middle of regions.
    assert!((39..=41).contains(&get(&gtsm, "os.pages.gapped", "mapped")));
    assert!(get(&gtsm, "walker", "walks") * 10 < get(&thp, "walker", "walks"));
    assert!(get(&gtsm, "walker", "bitmap_references") > 0);
}

/// Unsupported combinations are rejected by a message that names the fix.
#[test]
fn unsupported_combinations_are_rejected() {
    let machine = hosted(tiny(), 33, false);
    let setup = Setup::new(&machine, Instructions::PORTABLE).unwrap();
    assert_eq!(
        DesignSpec::parse("gtsm+thp").unwrap_err().to_string(),
        "gtsm+thp: gtsm needs pages of 2 MiB with gaps, which the policy `thp` does not make: give gtsm with \
         the policy gtsm"
    );
    let merging = DesignSpec::parse("thp:same_pages=all").unwrap();
    let error = merging.hardware().make(&machine, &setup, merging.os()).err().unwrap().to_string();
    assert!(
        error.starts_with("same_pages = all: only machines without a guest merge pages"),
        "{error}"
    );
    assert!(DesignSpec::parse("gtsm:gtsm.bitmap_entries=8").is_ok());
    // Faulty frames belong to host memory.
    let guest_faults = with_faults(machine, 0.02, HoleLayout::Dispersed);
    assert_eq!(
        Sim::new(&config(guest_faults.clone(), &["thp", "gtsm"])).err().unwrap().to_string(),
        "memory.fragmentation = faults: with gtsm only host memory may have faults: give \
         host.memory.fragmentation instead"
    );
    assert!(Sim::new(&config(guest_faults, &["thp", "perforated"])).is_ok());
}
