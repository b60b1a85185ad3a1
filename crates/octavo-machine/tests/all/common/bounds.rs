//! Builders of machines for tests of limiting cases: designs whose counters must equal another design's.

use octavo_config::{FirstLevel, MachineConfig};
use octavo_machine::designs::{Conventional, Sizes};
use octavo_machine::{AnyMachine, Counters, Design, Env, Machine, Sim, Walker};
use octavo_oracle::strategies::RandomStream;
use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::{Format, MakeTable};
use octavo_os::policy::Policy;
use octavo_os::{Memory, Os};
use octavo_types::Instructions;
use proptest::prelude::*;

use super::{play, tiny};

/// An operating system with page tables of this format and number of levels.
pub fn os(bytes: u64, levels: u8, format: Format, policy: Box<dyn Policy>) -> Os {
    let shape = MemoryShape::new(bytes >> 12, Order::LINUX).unwrap();
    let format = Format { levels, ..format };
    Os::new(Memory::new(Frames::new(shape), &Sizes::X86.list(), format), policy)
}

/// A machine with page tables of this format and one design unit.
pub fn machine<D: Design + 'static>(
    config: &MachineConfig,
    format: Format,
    policy: Box<dyn Policy>,
    mmu: D,
) -> Box<dyn AnyMachine> {
    let os = os(config.memory.bytes, config.page_table.levels, format, policy);
    let env = Env::new(config, os, Instructions::PORTABLE).unwrap();
    Box::new(Machine::new(env.checked(true), vec![mmu], Instructions::PORTABLE))
}

/// A machine whose hardware walks these page tables in place of radix trees.
pub fn machine_with_tables<D: Design + 'static>(
    config: &MachineConfig,
    table: MakeTable,
    walker: fn() -> Box<dyn Walker>,
    policy: Box<dyn Policy>,
    mmu: D,
) -> Box<dyn AnyMachine> {
    let shape = MemoryShape::new(config.memory.bytes >> 12, Order::LINUX).unwrap();
    let memory = Memory::new(Frames::new(shape), &Sizes::X86.list(), Format::default());
    let os = Os::new(memory.with_tables(Some(table)), policy);
    let env = Env::new(config, os, Instructions::PORTABLE).unwrap().with_walkers(walker);
    Box::new(Machine::new(env.checked(true), vec![mmu], Instructions::PORTABLE))
}

/// The conventional design of a machine.
pub fn conventional(config: &MachineConfig) -> Conventional {
    Conventional::new(&config.tlb, Instructions::PORTABLE).unwrap()
}

/// Plays a stream on machines with checks, and returns their counters.
pub fn play_checked(
    config: &MachineConfig,
    stream: &RandomStream,
    machines: Vec<Box<dyn AnyMachine>>,
) -> Vec<Counters> {
    let sim = played(config, stream, machines);
    sim.machines().iter().for_each(|machine| assert_eq!(machine.check(), Ok(())));
    sim.machines().iter().map(|machine| machine.counters()).collect()
}

/// Plays a stream as `play_checked` does, without the checks that take long on large memories.
pub fn play_unchecked(
    config: &MachineConfig,
    stream: &RandomStream,
    machines: Vec<Box<dyn AnyMachine>>,
) -> Vec<Counters> {
    let sim = played(config, stream, machines);
    sim.machines().iter().map(|machine| machine.counters()).collect()
}

fn played(
    config: &MachineConfig,
    stream: &RandomStream,
    machines: Vec<Box<dyn AnyMachine>>,
) -> Sim {
    let mut sim = Sim::new(&super::config(config.clone(), &[])).unwrap().with_machines(machines);
    play(&mut sim, stream);
    sim
}

/// Lists the counters that `keeps` accepts by component, counter and value.
pub fn listed(
    counters: &Counters,
    keeps: impl Fn(&str, &'static str, u64) -> bool,
) -> Vec<(String, &'static str, u64)> {
    let kept =
        counters.iter().filter(|&(component, counter, value)| keeps(component, counter, value));
    kept.map(|(component, counter, value)| (component.to_owned(), counter, value)).collect()
}

/// The tiny machine with base pages only in its first-level TLBs.
pub fn with_small_first() -> MachineConfig {
    let mut machine = tiny();
    let FirstLevel::Split { l1i, l1d } = &mut machine.tlb.first else { unreachable!() };
    l1i.arrays.shift_remove("2m");
    l1d.arrays.shift_remove("2m");
    machine
}

/// Loads: base page, repeat count, and `false`, since none is a store.
pub fn touches() -> impl Strategy<Value = Vec<(u64, usize, bool)>> {
    prop::collection::vec((0u64..1536, 1usize..4, Just(false)), 1..200)
}
