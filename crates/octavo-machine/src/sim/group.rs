//! Groups of machines whose cores execute instructions in one pass, a lane for each machine.
//!
//! Machines play a batch before their cores execute it. A free thread plays the next batch meanwhile: cores need only
//! costs from machines, and machines need from cores only
//!
//! - their times, where others fill the last level as time passes ([`AnyMachine::follows_time`]), and
//! - their counters, when machines collect all counters ([`Batch::collects_counters`]), or at the end of the stream.
//!
//! A batch that needs either is played and executed part by part.

use std::sync::Arc;

use octavo_types::Instructions;
use rayon::prelude::*;

use super::workers::Machines;
use crate::core::{CoreCounts, CoreGroup, Costs};
use crate::front::{Batch, LineAccess, Part};
use crate::machine::AnyMachine;

/// Parts with fewer accesses are not split among threads.
const MIN_SHARED: usize = 1 << 12;

/// Machines whose cores one thread executes together.
pub struct Group {
    /// The numbers of the machines.
    pub members: Vec<usize>,
    /// By core; none if no core executes instructions.
    cores: Vec<CoreGroup>,
    /// Whether threads are free to play the machines while one thread executes instructions.
    is_shared: bool,
    /// The batch that is played but not yet executed.
    waiting: Option<PlayedBatch>,
    /// Memory for the parts of the next batch.
    spare: Vec<PlayedPart>,
}

/// A batch that machines have played.
struct PlayedBatch {
    batch: Arc<Batch>,
    /// At least as many as the machines have played.
    parts: Vec<PlayedPart>,
}

/// A part of a batch that machines have played.
#[derive(Default)]
struct PlayedPart {
    /// The core that executes the part; `None` if no machine has played it or no core executes it.
    core: Option<usize>,
    /// By machine.
    lanes: Vec<Lane>,
}

/// The costs and counts of a machine in a part.
#[derive(Default)]
struct Lane {
    /// Whether the machine had not stopped before.
    is_playing: bool,
    costs: Costs,
    /// The counts of the machine's core after the part.
    counts: CoreCounts,
}

impl PlayedPart {
    /// Plays the part; `all` has the accesses of the whole batch. Returns whether any machine had not stopped before.
    fn play(
        &mut self,
        machines: &mut Machines,
        part: &Part<'_>,
        all: &[LineAccess],
        is_shared: bool,
    ) -> bool {
        self.lanes.resize_with(machines.len(), Lane::default);
        let play = |(machine, lane): (&mut Box<dyn AnyMachine>, &mut Lane)| {
            lane.is_playing = machine.play_part(part, all, &mut lane.costs);
        };
        if is_shared && part.accesses.len() >= MIN_SHARED {
            machines.par_iter_mut().zip(&mut self.lanes).for_each(play);
        } else {
            machines.iter_mut().zip(&mut self.lanes).for_each(play);
        }
        // All machines that play execute on the same core.
        let first = self.lanes.iter().position(|lane| lane.is_playing);
        self.core = first.and_then(|first| machines[first].executing_core());
        first.is_some()
    }

    /// Executes the part's instructions.
    fn execute(&mut self, cores: &mut [CoreGroup], part: &Part<'_>, all: &[LineAccess]) {
        let Some(core) = self.core else { return };
        let costs: Vec<&Costs> = self.lanes.iter().map(|lane| &lane.costs).collect();
        cores[core].execute(part.words, all, part.accesses.start, &costs);
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.counts = cores[core].counts(number);
        }
    }

    /// Gives the machines the counts of their cores, if a core has executed the part.
    fn note_counts(&self, machines: &mut Machines) {
        let Some(core) = self.core else { return };
        for (machine, lane) in self.playing(machines) {
            machine.executed(core, lane.counts.clone());
        }
    }

    /// Handles the event that ends the part.
    fn end(&self, machines: &mut Machines, part: &Part<'_>) {
        self.playing(machines).for_each(|(machine, _)| machine.end_part(part));
    }

    /// The machines that had not stopped before the part, with their lanes.
    fn playing<'a>(
        &'a self,
        machines: &'a mut Machines,
    ) -> impl Iterator<Item = (&'a mut Box<dyn AnyMachine>, &'a Lane)> {
        machines.iter_mut().zip(&self.lanes).filter(|(_, lane)| lane.is_playing)
    }
}

impl Group {
    /// A group of the machines with these numbers, whose cores are equal and have executed nothing.
    fn new(members: &[usize], machines: &Machines, instructions: Instructions) -> Self {
        let setups: Vec<_> =
            members.iter().filter_map(|machine| machines[*machine].core_setup()).collect();
        let count = setups.first().map_or(0, |setup| setup.count());
        let cores = (0..count).map(|_| CoreGroup::new(&setups, instructions)).collect();
        let members = members.to_vec();
        Group { members, cores, is_shared: false, waiting: None, spare: Vec::new() }
    }

    /// Plays a batch on the machines of the group, then executes it; or, if machines play ahead, executes the waiting
    /// batch meanwhile and lets this one wait. Returns the batch that was executed, if any.
    pub fn play(&mut self, machines: &mut Machines, batch: Arc<Batch>) -> Option<Arc<Batch>> {
        if !self.plays_ahead(machines, &batch) {
            self.finish(machines);
            self.play_in_step(machines, &batch);
            return Some(batch);
        }
        let mut waiting = self.waiting.take();
        let mut played = PlayedBatch { batch, parts: std::mem::take(&mut self.spare) };
        let (cores, is_shared) = (&mut self.cores, self.is_shared);
        let execute = || waiting.iter_mut().for_each(|batch| batch.execute(cores));
        rayon::join(execute, || played.play(machines, is_shared));
        self.waiting = Some(played);
        waiting.map(|batch| self.end(batch, machines))
    }

    /// Executes the waiting batch, if there is one.
    pub fn finish(&mut self, machines: &mut Machines) {
        if let Some(mut waiting) = self.waiting.take() {
            waiting.execute(&mut self.cores);
            self.end(waiting, machines);
        }
    }

    /// Whether a batch waits for the cores.
    pub fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether machines play a batch while their cores execute the one before it.
    fn plays_ahead(&self, machines: &Machines, batch: &Batch) -> bool {
        let follows_time = || machines.iter().any(|machine| machine.follows_time());
        self.is_shared && !self.cores.is_empty() && !batch.collects_counters() && !follows_time()
    }

    /// Plays a batch and executes it, part by part.
    fn play_in_step(&mut self, machines: &mut Machines, batch: &Batch) {
        if self.cores.is_empty() {
            machines.iter_mut().for_each(|machine| machine.play(batch));
            return;
        }
        let mut played = self.spare.pop().unwrap_or_default();
        for part in batch.parts() {
            if !played.play(machines, &part, batch.accesses(), self.is_shared) {
                break;
            }
            played.execute(&mut self.cores, &part, batch.accesses());
            played.note_counts(machines);
            played.end(machines, &part);
        }
        self.spare.push(played);
    }

    /// Gives the machines the counts of an executed batch. Returns the batch.
    fn end(&mut self, executed: PlayedBatch, machines: &mut Machines) -> Arc<Batch> {
        executed.parts.iter().for_each(|part| part.note_counts(machines));
        self.spare = executed.parts;
        executed.batch
    }
}

impl PlayedBatch {
    /// Plays the batch.
    fn play(&mut self, machines: &mut Machines, is_shared: bool) {
        self.parts.iter_mut().for_each(|part| part.core = None);
        for (number, part) in self.batch.parts().enumerate() {
            if number == self.parts.len() {
                self.parts.push(PlayedPart::default());
            }
            let played = &mut self.parts[number];
            if !played.play(machines, &part, self.batch.accesses(), is_shared) {
                return;
            }
            played.end(machines, &part);
        }
    }

    /// Executes the parts that are played.
    fn execute(&mut self, cores: &mut [CoreGroup]) {
        for (part, played) in self.batch.parts().zip(&mut self.parts) {
            played.execute(cores, &part, self.batch.accesses());
        }
    }
}

/// Groups machines that have executed nothing, so that threads have equal shares. A machine without cores that execute
/// instructions is alone in its group.
pub fn groups(machines: &Machines, threads: usize, instructions: Instructions) -> Vec<Group> {
    let mut alike: Vec<Vec<usize>> = Vec::new();
    for (number, machine) in machines.iter().enumerate() {
        let setup = machine.core_setup();
        let found = alike.iter_mut().find(|members| {
            let first = &machines[members[0]];
            // The machines of a group begin to execute at the same time.
            machine.executing_core() == first.executing_core()
                && setup.zip(first.core_setup()).is_some_and(|(own, first)| own.is_like(first))
        });
        match found {
            Some(members) => members.push(number),
            None => alike.push(vec![number]),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for equal in &alike {
        let mut rest = &equal[..];
        for size in sizes(equal.len(), threads, instructions) {
            let (members, others) = rest.split_at(size);
            groups.push(Group::new(members, machines, instructions));
            rest = others;
        }
    }
    // Threads without a group help others.
    let is_shared = groups.len() < threads;
    groups.iter_mut().for_each(|group| group.is_shared = is_shared);
    groups
}

/// The time that the front takes, in the unit of [`CoreGroup::cost`].
const FRONT_COST: usize = 7;
/// The part of [`CoreGroup::cost`] that playing one machine takes.
const PLAY_COST: usize = 2;

/// The sizes of the groups of equal machines, largest first. More groups give work to more threads, but add work: this
/// chooses the number of groups with which groups and front finish first on `threads` threads.
fn sizes(machines: usize, threads: usize, instructions: Instructions) -> Vec<usize> {
    let least = machines.div_ceil(CoreGroup::most_machines(instructions));
    let sizes_of = |groups: usize| {
        let larger = machines % groups;
        (0..groups).map(move |group| machines / groups + usize::from(group < larger))
    };
    let time = |groups: usize| {
        let cost = |size| CoreGroup::cost(size, instructions);
        let sum = sizes_of(groups).map(cost).sum::<usize>() + FRONT_COST;
        // Where threads are free, they play machines while others execute instructions.
        let play_cost = if groups < threads { PLAY_COST } else { 0 };
        let longest = sizes_of(groups).map(|size| cost(size) - size * play_cost).max();
        sum.div_ceil(threads).max(longest.unwrap_or(0))
    };
    let groups = (least..=machines).min_by_key(|groups| time(*groups)).expect("a machine");
    sizes_of(groups).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::designs::DesignSpec;
    use crate::designs::twins::{actions, configs, play, sim_config};
    use crate::resolve;
    use crate::sim::{Sim, SimConfig, Timing};

    proptest! {
        #![proptest_config(octavo_oracle::cases(48))]

        /// One thread plays and executes each batch before the next. Of three threads, some play while one executes.
        #[test]
        fn playing_ahead_does_not_change_counts(
            machine in configs(&[]),
            actions in actions(),
            others_fill_every_cycles in prop_oneof![Just(0u32), 1u32..100],
            warm_up_instructions in prop_oneof![Just(0u64), 1u64..200],
            interval_instructions in prop::option::of(50u64..400),
            is_fast_forwarded: bool,
        ) {
            let mut machine = machine;
            machine.core.pipeline = resolve("skylake", &[""; 0]).unwrap().into_config().core.pipeline;
            machine.cache.others_fill_every_cycles = others_fill_every_cycles;
            let config = SimConfig {
                designs: ["base4k", "thp"].map(|name| DesignSpec::parse(name).unwrap()).into(),
                timing: Timing::OutOfOrder,
                warm_up_instructions,
                is_fast_forwarded,
                interval_instructions,
                ..sim_config(&machine)
            };
            let counted = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let mut sim = Sim::new(&config).unwrap();
                    play(&mut sim, &actions);
                    let outcomes = sim.machines().iter().map(|machine| machine.outcome());
                    outcomes.map(|outcome| format!("{outcome:?}")).collect::<Vec<_>>()
                })
            };
            prop_assert_eq!(counted(1), counted(3));
        }
    }

    #[test]
    fn groups_share_machines_among_threads() {
        let sizes_of = |instructions: Instructions, cases: &[(usize, usize)]| {
            cases
                .iter()
                .map(|(machines, threads)| sizes(*machines, *threads, instructions))
                .collect::<Vec<_>>()
        };
        let portable = [(1, 1), (2, 1), (3, 1), (9, 1), (2, 2), (5, 2), (5, 4)];
        let expected: [&[usize]; 7] =
            [&[1], &[1, 1], &[3], &[5, 4], &[1, 1], &[3, 2], &[1, 1, 1, 1, 1]];
        assert_eq!(sizes_of(Instructions::PORTABLE, &portable), expected);
        for instructions in Instructions::all() {
            let most = CoreGroup::most_machines(instructions);
            for (machines, threads) in (1..40).flat_map(|machines| [(machines, 1), (machines, 7)]) {
                let sizes = sizes(machines, threads, instructions);
                assert_eq!(sizes.iter().sum::<usize>(), machines);
                assert!(sizes.iter().all(|size| *size <= most));
            }
            if instructions != Instructions::PORTABLE {
                let vectors = [(2, 1), (2, 2), (2, 4), (5, 1), (5, 2), (8, 2), (5, 4), (5, 8)];
                let expected: [&[usize]; 8] =
                    [&[2], &[2], &[1, 1], &[5], &[5], &[8], &[3, 2], &[1, 1, 1, 1, 1]];
                assert_eq!(sizes_of(instructions, &vectors), expected);
            }
        }
    }
}
