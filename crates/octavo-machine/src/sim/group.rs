//! Machines whose cores are lanes of one pass over the instructions.

use octavo_types::Instructions;
use rayon::prelude::*;

use super::workers::Machines;
use crate::core::{CoreGroup, Costs};
use crate::front::Batch;
use crate::machine::AnyMachine;

/// Parts with fewer accesses are not shared by threads.
const MIN_SHARED: usize = 1 << 12;

/// Machines whose cores one thread executes together.
pub struct Group {
    /// Their numbers.
    pub members: Vec<usize>,
    /// By core; none if no core executes instructions.
    cores: Vec<CoreGroup>,
    /// Whether its machines play on several threads, before one executes the instructions.
    is_shared: bool,
}

impl Group {
    /// Machines of these numbers, with equal cores that have executed nothing.
    fn new(members: &[usize], machines: &Machines, instructions: Instructions) -> Self {
        let setups: Vec<_> =
            members.iter().filter_map(|machine| machines[*machine].core_setup()).collect();
        let count = setups.first().map_or(0, |setup| setup.count());
        let cores = (0..count).map(|_| CoreGroup::new(&setups, instructions)).collect();
        Group { members: members.to_vec(), cores, is_shared: false }
    }

    /// Plays a batch on the machines of the group.
    pub fn play(&mut self, machines: &mut Machines, batch: &Batch) {
        if self.cores.is_empty() {
            machines.iter_mut().for_each(|machine| machine.play(batch));
            return;
        }
        for part in batch.parts() {
            let mut playing = [false; CoreGroup::MAX_MACHINES];
            let play = |(machine, is_playing): (&mut Box<dyn AnyMachine>, &mut bool)| {
                *is_playing = machine.play_part(&part, batch.accesses());
            };
            if self.is_shared && part.accesses.len() >= MIN_SHARED {
                machines.par_iter_mut().zip(playing.par_iter_mut()).for_each(play);
            } else {
                machines.iter_mut().zip(&mut playing).for_each(play);
            }
            let Some(first) = playing.iter().position(|is_playing| *is_playing) else { return };
            // The same in all that play.
            let core = machines[first].executing_core();
            let mut cores = core.map(|core| &mut self.cores[core]);
            if let Some(cores) = &mut cores {
                let costs: Vec<&Costs> = machines.iter().map(|machine| machine.costs()).collect();
                let first = part.accesses.start;
                cores.execute(part.words, batch.accesses(), first, &costs);
            }
            for (lane, machine) in
                machines.iter_mut().enumerate().filter(|(lane, _)| playing[*lane])
            {
                machine.end_part(&part, cores.as_ref().map(|cores| cores.counts(lane)));
            }
        }
    }
}

/// Groups machines, which have executed nothing, so that threads have equal shares. Machines without cores that
/// execute instructions are alone.
pub fn groups(machines: &Machines, threads: usize, instructions: Instructions) -> Vec<Group> {
    let mut alike: Vec<Vec<usize>> = Vec::new();
    for (number, machine) in machines.iter().enumerate() {
        let setup = machine.core_setup();
        let found = alike.iter_mut().find(|of| {
            let first = &machines[of[0]];
            // All begin to execute at the same time.
            machine.executing_core() == first.executing_core()
                && setup.zip(first.core_setup()).is_some_and(|(own, first)| own.is_like(first))
        });
        match found {
            Some(of) => of.push(number),
            None => alike.push(vec![number]),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for of in &alike {
        let mut rest = &of[..];
        for size in sizes(of.len(), threads, instructions) {
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

/// The sizes of the groups of equal machines, the largest first. More groups give work to more threads, but make more
/// work: this is the number of groups with which groups and front end first on so many threads.
fn sizes(machines: usize, threads: usize, instructions: Instructions) -> Vec<usize> {
    let least = machines.div_ceil(CoreGroup::most_machines(instructions));
    let sizes_of = |groups: usize| {
        let larger = machines % groups;
        (0..groups).map(move |group| machines / groups + usize::from(group < larger))
    };
    let time = |groups: usize| {
        let costs = sizes_of(groups).map(|size| CoreGroup::cost(size, instructions));
        let (sum, largest) =
            costs.fold((FRONT_COST, 0), |(sum, largest), cost| (sum + cost, largest.max(cost)));
        sum.div_ceil(threads).max(largest)
    };
    let groups = (least..=machines).min_by_key(|groups| time(*groups)).expect("a machine");
    sizes_of(groups).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_machines_among_threads() {
        let sizes_of = |instructions: Instructions, of: &[(usize, usize)]| {
            of.iter()
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
                // Of two machines, one pass takes as long as two beside the front.
                let vectors = [(2, 1), (2, 2), (2, 4), (5, 1), (5, 2), (8, 2), (5, 8)];
                let expected: [&[usize]; 7] =
                    [&[2], &[2], &[1, 1], &[5], &[3, 2], &[4, 4], &[1, 1, 1, 1, 1]];
                assert_eq!(sizes_of(instructions, &vectors), expected);
            }
        }
    }
}
