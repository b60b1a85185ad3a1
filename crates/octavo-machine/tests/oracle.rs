//! Conventional machines count exactly what naive ones do.

mod common;

use common::naive::NaiveMachine;
use common::{check_laws, config, play, tiny};
use octavo_config::{Fill, FirstLevel, MachineConfig};
use octavo_hw::Replacement;
use octavo_machine::Sim;
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::{BasePages, Policy, Thp, ThpConfig};
use octavo_os::{Memory, Os};
use octavo_types::{Consumer, Event, Instructions, PageSize};
use proptest::prelude::*;

fn naive(config: &MachineConfig, design: &str) -> NaiveMachine {
    let shape = MemoryShape::new(config.memory.bytes >> 12, Order::LINUX).unwrap();
    let (sizes, policy): (&[PageSize], Box<dyn Policy>) = match design {
        "base4k" => (&[], Box::new(BasePages)),
        _ => (&[PageSize::HUGE], Box::new(Thp::new(ThpConfig::default()))),
    };
    let format = Format { levels: config.page_table.levels, ..Format::default() };
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn small_machines_count_what_naive_ones_do(stream in stream(1..120)) {
        compare(&tiny(), &stream)?;
    }

    #[test]
    fn so_do_other_kinds(stream in stream(1..120), kind in 0..6) {
        let mut machine = tiny();
        match kind {
            0 => {
                let FirstLevel::Split { l1d, .. } = machine.tlb.first else { unreachable!() };
                machine.tlb.first = FirstLevel::Unified { l1: l1d };
            }
            1 => machine.tlb.l2.as_mut().unwrap().fill = Fill::Victim,
            2 => machine.tlb.l2 = None,
            3 => machine.cache.l1d.replacement = Replacement::Srrip,
            4 => {
                let FirstLevel::Split { l1i, l1d } = &mut machine.tlb.first else { unreachable!() };
                l1i.arrays[0].replacement = Replacement::TreePlru;
                l1d.arrays[0].replacement = Replacement::Fifo;
                // Huge pages go in by parts.
                l1d.arrays.shift_remove("2m");
            }
            _ => {
                machine.page_table.levels = 5;
                machine.cache.line_bytes = 128;
                machine.walker.caches.clear();
            }
        }
        compare(&machine, &stream)?;
    }
}
