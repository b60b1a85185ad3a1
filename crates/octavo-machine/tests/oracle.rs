//! Conventional machines count exactly what naive ones do.

mod common;

use common::naive::NaiveMachine;
use common::{config, play, tiny};
use octavo_machine::{Counters, MachineConfig, Sim};
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::{BasePages, Policy, Thp, ThpConfig};
use octavo_os::{Memory, Os};
use octavo_types::{Consumer, Event, Instructions, PageSize};
use proptest::prelude::*;

fn naive(config: &MachineConfig, design: &str) -> NaiveMachine {
    let shape = MemoryShape::new(config.memory_frames, Order::LINUX).unwrap();
    let (sizes, policy): (&[PageSize], Box<dyn Policy>) = match design {
        "base4k" => (&[], Box::new(BasePages)),
        _ => (&[PageSize::HUGE], Box::new(Thp::new(ThpConfig::default()))),
    };
    let format = Format { levels: config.page_table_levels, ..Format::default() };
    NaiveMachine::new(config, Os::new(Memory::new(Frames::new(shape), sizes, format), policy))
}

fn compare(machine: &MachineConfig, stream: &RandomStream) -> Result<(), TestCaseError> {
    let designs = ["base4k", "thp"];
    for instructions in Instructions::all() {
        let mut config = config(machine.clone(), &designs);
        config.instructions = instructions;
        config.is_checked = instructions == Instructions::PORTABLE;
        let mut sim = Sim::new(&config).unwrap();
        play(&mut sim, stream);
        for (design, machine_of) in designs.iter().zip(sim.machines()) {
            let mut naive = naive(machine, design);
            let mut is_known = false;
            for step in &stream.steps {
                match step {
                    Step::Segment(number, addresses) => {
                        if !is_known {
                            naive.event(&octavo_machine::everything());
                        }
                        is_known = true;
                        naive.segment(&stream.segments[*number], addresses);
                    }
                    Step::Event(event) => {
                        is_known |= matches!(event, Event::Map { .. });
                        naive.event(event);
                    }
                }
            }
            let (ours, expected) = (machine_of.counters(), naive.counters());
            for (component, counter, value) in expected.iter() {
                prop_assert_eq!(
                    ours.get(component, counter),
                    Some(value),
                    "{} {} {} {}",
                    design,
                    instructions,
                    component,
                    counter
                );
            }
            check_laws(&ours)?;
        }
    }
    Ok(())
}

/// accesses = hits + misses, and each level is asked by the misses of those before it.
fn check_laws(counters: &Counters) -> Result<(), TestCaseError> {
    let get = |component: &str, counter| counters.get(component, counter).unwrap_or(0);
    for (component, counter, value) in counters.iter() {
        if counter == "accesses" {
            prop_assert_eq!(value, get(component, "hits") + get(component, "misses"));
        }
    }
    let l1_misses = get("cache.l1i", "misses") + get("cache.l1d", "misses");
    prop_assert_eq!(get("cache.l2", "accesses"), l1_misses);
    prop_assert_eq!(get("cache.llc", "accesses"), get("cache.l2", "misses"));
    prop_assert_eq!(get("memory", "reads"), get("cache.llc", "misses"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn small_machines_count_what_naive_ones_do(stream in stream(1..120)) {
        compare(&tiny(), &stream)?;
    }
}
