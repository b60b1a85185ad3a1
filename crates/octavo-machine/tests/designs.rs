//! What holds for every design: translations are those of the page table, no frame is lost, what is
//! counted adds up; whatever the program does, and however little memory there is.

mod common;

use common::{check_laws, config, hosted, play, tiny};
use octavo_machine::Sim;
use octavo_machine::designs::DESIGNS;
use octavo_oracle::strategies::stream;
use octavo_types::PageSize;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn translations_are_right_and_nothing_is_lost(
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
        if let Some((host_memory_log2, keeps_halves)) = host {
            machine = hosted(machine, host_memory_log2, keeps_halves);
        }
        let names: Vec<&str> = DESIGNS.iter().map(|design| design.name).collect();
        let mut sim = Sim::new(&config(machine, &names)).unwrap();
        play(&mut sim, &stream);
        for (name, machine) in names.iter().zip(sim.machines()) {
            prop_assert_eq!(machine.check(), Ok(()), "{}", name);
            check_laws(&machine.counters())?;
            // Only little memory runs out.
            prop_assert!(machine.stopped().is_none() || has_little, "{}", name);
        }
    }
}
