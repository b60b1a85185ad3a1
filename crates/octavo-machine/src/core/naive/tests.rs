//! Comparison of each lane of a [`CoreGroup`] with the slow core.

use octavo_config::{MachineConfig, PipelineConfig};
use octavo_types::Instructions;
use proptest::collection::vec;
use proptest::prelude::*;

use super::NaiveCore;
use super::batches::batches;
use super::machines::machines;
use super::programs::{EntryDraft, chase, entry, with_costs_of_later};
use crate::core::{CoreGroup, CoreSetup, Costs};
use crate::counters::Counters;
use crate::front::Lines;

/// Checks that each lane has the counters of the naive core. Lanes differ in costs and memory. Machines beyond the
/// lanes of the instruction set are left out.
fn check(
    machines: &[(MachineConfig, PipelineConfig)],
    entries: &[EntryDraft],
    instructions: Instructions,
) -> Result<(), TestCaseError> {
    let machines = &machines[..machines.len().min(CoreGroup::most_machines(instructions))];
    let (first_machine, config) = &machines[0];
    let (mut naive, mut setups, mut programs) = (Vec::new(), Vec::new(), Vec::new());
    for (lane, (machine, _)) in machines.iter().enumerate() {
        let mut machine = machine.clone();
        machine.cache.l1d.latency_cycles = first_machine.cache.l1d.latency_cycles;
        let lines = Lines::of_bytes(machine.cache.line_bytes);
        naive.push(NaiveCore::new(&machine, config, lines));
        setups.push(CoreSetup::new(&machine, config, lines));
        let entries = with_costs_of_later(entries, lane);
        programs.push(batches(&entries, machine.cache.memory_latency_cycles));
    }
    prop_assert!(setups.iter().all(|setup| setup.is_like(&setups[0])));
    let mut fast = CoreGroup::new(&setups.iter().collect::<Vec<_>>(), instructions);
    for (number, batch) in programs[0].iter().enumerate() {
        for (part, (words, first, _)) in batch.parts.iter().enumerate() {
            let costs: Vec<&Costs> =
                programs.iter().map(|batches| &batches[number].parts[part].2).collect();
            fast.execute(words, &batch.accesses, *first, &costs);
            for (naive, costs) in naive.iter_mut().zip(costs) {
                naive.execute(words, &batch.accesses, *first, costs);
            }
        }
    }
    for (lane, naive) in naive.iter().enumerate() {
        let mut counters = Counters::default();
        fast.counts(lane).report(&mut counters);
        let fast: Vec<_> = naive
            .report()
            .iter()
            .map(|(component, counter, _)| {
                (*component, *counter, counters.get(component, counter).unwrap_or(0))
            })
            .collect();
        prop_assert_eq!(fast, naive.report(), "lane {}", lane);
    }
    Ok(())
}

/// One of the host's instruction sets.
fn instructions() -> impl Strategy<Value = Instructions> {
    prop::sample::select(Instructions::all())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn times_equal_those_of_the_naive_core(
        machines in machines(),
        entries in prop_oneof![vec(entry(), 1..8), vec(entry(), 1..150)],
        instructions in instructions(),
    ) {
        check(&machines, &entries, instructions)?;
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    #[test]
    fn times_of_chases_equal_those_of_the_naive_core(
        machines in machines(),
        entries in chase(),
        instructions in instructions(),
    ) {
        check(&machines, &entries, instructions)?;
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(8))]

    /// Programs with more entries than the largest reorder buffer holds.
    #[test]
    fn times_of_long_programs_equal_those_of_the_naive_core(
        machines in machines(),
        entries in vec(entry(), 1500..3000),
        instructions in instructions(),
    ) {
        check(&machines, &entries, instructions)?;
    }
}
