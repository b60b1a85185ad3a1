//! Invariants of every design, for any program and little memory: translations match the page table, no frame
//! is lost, and counts add up.

use std::sync::Arc;

use crate::common::{check_laws, config, hosted, names, outside_lru, play, play_on, tiny};
use octavo_hw::Asid;
use octavo_machine::designs::{Called, DesignSpec, OutsideLevel, designs};
use octavo_machine::{Sim, SimConfig, Timing};
use octavo_oracle::strategies::stream;
use octavo_os::vmas::Pages;
use octavo_trace::WordConsumer;
use octavo_types::{Item, ItemKind, PageNumber, PageSize, Segment, VirtAddr};
use proptest::prelude::*;

proptest! {
    #![proptest_config(octavo_oracle::cases(20))]

    #[test]
    fn translations_match_page_tables_and_frames_are_conserved(
        stream in stream(1..200),
        cores in 1u32..4,
        memory_log2 in 18u8..33,
        host in prop::option::of((16u8..34, prop::bool::ANY)),
    ) {
        let mut machine = tiny();
        machine.core.count = cores;
        machine.memory.bytes = 1 << memory_log2;
        machine.memory.largest_block = PageSize::from_bytes(4 << 20).unwrap();
        let has_little = memory_log2 < 30 || host.is_some_and(|(log2, _)| log2 < 31);
        if let Some((host_memory_log2, caches_halves)) = host {
            machine = hosted(machine, host_memory_log2, caches_halves);
        }
        let names = names(&machine);
        let mut config = config(machine, &names);
        config.designs.extend(["base", "thp"].map(outside_lru::spec));
        let mut sim = Sim::new(&config).unwrap();
        play(&mut sim, &stream);
        for (design, machine) in config.designs.iter().zip(sim.machines()) {
            let name = design.name();
            prop_assert_eq!(machine.check(), Ok(()), "{}", name);
            check_laws(&machine.counters())?;
            // Only small memories run out.
            prop_assert!(machine.stopped().is_none() || has_little, "{}", name);
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(4))]

    /// Outside of the thread pool, each machine plays batches at its own pace while the front fills further ones; on a
    /// pool thread, all machines play each batch at once.
    #[test]
    fn queued_batches_count_the_same_as_batches_played_at_once(stream in stream(100..200)) {
        let counters = || {
            let mut sim = Sim::new(&config(tiny(), &["base4k", "thp"])).unwrap();
            // Enough for more batches than the queue holds, unless the stream has no references.
            for _ in 0..500 {
                play_on(&mut sim, &stream);
            }
            sim.finish();
            sim.machines().iter().map(|machine| machine.counters()).collect::<Vec<_>>()
        };
        let (queued, at_once) = (counters(), rayon::scope(|_| counters()));
        for (queued, at_once) in queued.iter().zip(&at_once) {
            prop_assert!(queued.iter().eq(at_once.iter()));
        }
    }
}

/// A second level that panics.
struct Panics;

impl OutsideLevel for Panics {
    fn look_up(&mut self, _: Asid, _: PageNumber) -> Called<Option<PageSize>> {
        panic!("a level that panics")
    }

    fn fill(&mut self, _: Asid, _: PageNumber, _: PageSize) -> Called<()> {
        Ok(())
    }

    fn invalidate(&mut self, _: Asid, _: &Pages) -> Called<()> {
        Ok(())
    }

    fn flush(&mut self) -> Called<()> {
        Ok(())
    }
}

#[test]
#[should_panic(expected = "a level that panics")]
fn a_panic_of_a_machine_reaches_the_caller() {
    let mut config = config(tiny(), &["base4k", "thp"]);
    let level = Arc::new(|| Ok(Box::new(Panics) as Box<dyn OutsideLevel>));
    config.designs.push(DesignSpec::outside("panics", "base", level).unwrap());
    let mut sim = Sim::new(&config).unwrap();
    let fetch = Item::new(ItemKind::Fetch, 4, VirtAddr::new(0x40_0000));
    sim.execution(&Segment::new(vec![fetch], Vec::new()).unwrap(), &[0]);
    sim.finish();
}

proptest! {
    #![proptest_config(octavo_oracle::cases(8))]

    /// Designs and machines that share a stream do not affect each other.
    #[test]
    fn designs_count_the_same_alone_and_together(
        stream in stream(1..200),
        timing in prop::sample::select(vec![Timing::Additive, Timing::OutOfOrder, Timing::ByStream]),
        interval in prop::option::of(1000u64..5000),
    ) {
        let skylake = octavo_machine::resolve::<&str>("skylake", &[]).unwrap().into_config();
        let mut machine = tiny();
        machine.walker.walkers = 2;
        machine.walker.window_instructions = 3;
        machine.core.pipeline = skylake.core.pipeline;
        let mut larger = machine.clone();
        larger.memory.bytes *= 4;
        for array in larger.tlb.l2.iter_mut().flat_map(|level| level.arrays.values_mut()) {
            array.entries *= 2;
        }
        let mut groups: Vec<(Vec<SimConfig>, Vec<Sim>)> = Vec::new();
        for machine in [larger, machine] {
            for design in designs() {
                let mut config = config(machine.clone(), &[design.name]);
                config.timing = timing;
                config.interval_instructions = interval;
                let alone = Sim::new(&config).unwrap();
                let same = groups.iter_mut().find(|(_, sims)| sims[0].stream() == alone.stream());
                match same {
                    Some((configs, sims)) => {
                        configs.push(config);
                        sims.push(alone);
                    }
                    None => groups.push((vec![config], vec![alone])),
                }
            }
        }
        prop_assert!(groups.len() < 8, "hardly any design shares a stream");
        for (configs, sims) in groups {
            let mut together = Sim::of_several(&configs).unwrap();
            play(&mut together, &stream);
            for (mut alone, beside) in sims.into_iter().zip(together.machines()) {
                play(&mut alone, &stream);
                let name = alone.designs()[0].name().to_owned();
                let alone = &alone.machines()[0];
                prop_assert!(alone.counters().iter().eq(beside.counters().iter()), "{}", name);
                prop_assert_eq!(alone.stopped(), beside.stopped(), "{}", name);
            }
        }
    }
}

#[test]
#[should_panic(expected = "different streams")]
fn machines_that_want_different_streams_are_not_put_together() {
    let mut other = tiny();
    other.cache.line_bytes *= 2;
    let _ = Sim::of_several(&[config(tiny(), &["base4k"]), config(other, &["base4k"])]);
}

/// The policies with the settings of `thp` check their limits, too.
#[test]
fn limits_of_khugepaged_hold_in_every_policy_with_its_settings() {
    for name in ["thp", "perforated", "gtsm"] {
        let rejected = |setting| DesignSpec::parse(&format!("{name}:{setting}")).unwrap_err();
        assert_eq!(
            rejected("max_ptes_none=512").to_string(),
            format!("{name}:max_ptes_none=512: policy {name}: max_ptes_none = 512: give 0 to 511")
        );
        rejected("pages_to_scan=0");
    }
}

#[test]
fn unsupported_vectors_are_rejected() {
    let message = |machine, design| {
        let error = Sim::new(&config(machine, &[design])).err().expect("a refusal");
        error.to_string()
    };
    assert_eq!(
        message(tiny(), "tps:aliases=copies:vector_bits=16"),
        "vector_bits = 16: give 0: aliases that are full copies have no room for them"
    );
    assert_eq!(
        message(hosted(tiny(), 32, false), "tps:vector_bits=2"),
        "vector_bits = 2: give 0: only machines without a guest support them"
    );
    let unknown = octavo_machine::designs::DesignSpec::parse("tps:vector_bits=3");
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "tps:vector_bits=3: policy tps: vector_bits = 3: give 0, 2, 4, 8 or 16"
    );
}
