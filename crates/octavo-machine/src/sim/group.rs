//! Machines whose cores are lanes of one pass over the instructions.

use octavo_types::Instructions;

use super::workers::Machines;
use crate::core::{CoreGroup, Costs};
use crate::front::Batch;
use crate::machine::AnyMachine;

/// Machines that one thread plays together.
pub struct Group {
    /// Their numbers.
    pub members: Vec<usize>,
    /// By core; none if no core executes instructions.
    cores: Vec<CoreGroup>,
    instructions: Instructions,
}

impl Group {
    /// Machines of these numbers, with equal cores that have executed nothing.
    fn new(members: &[usize], machines: &Machines, instructions: Instructions) -> Self {
        let setups: Vec<_> =
            members.iter().filter_map(|machine| machines[*machine].core_setup()).collect();
        let count = setups.first().map_or(0, |setup| setup.count());
        let cores = (0..count).map(|_| CoreGroup::new(&setups)).collect();
        Group { members: members.to_vec(), cores, instructions }
    }

    /// Plays a batch on the machines of the group.
    pub fn play(&mut self, machines: &mut [&mut Box<dyn AnyMachine>], batch: &Batch) {
        if self.cores.is_empty() {
            machines.iter_mut().for_each(|machine| machine.play(batch));
            return;
        }
        for part in batch.parts() {
            let mut playing = [false; CoreGroup::MAX_MACHINES];
            for (machine, is_playing) in machines.iter_mut().zip(&mut playing) {
                *is_playing = machine.play_part(&part, batch.accesses());
            }
            let Some(first) = playing.iter().position(|is_playing| *is_playing) else { return };
            // The same in all that play.
            let core = machines[first].executing_core();
            let mut cores = core.map(|core| &mut self.cores[core]);
            if let Some(cores) = &mut cores {
                let costs: Vec<&Costs> = machines.iter().map(|machine| machine.costs()).collect();
                let first = part.accesses.start;
                cores.execute(part.words, batch.accesses(), first, &costs, self.instructions);
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
    let shares = alike.iter().flat_map(|of| of.chunks(share(of.len(), threads)));
    shares.map(|members| Group::new(members, machines, instructions)).collect()
}

/// The size of groups of equal machines: as many groups for each thread as are needed.
fn share(machines: usize, threads: usize) -> usize {
    let rounds = machines.div_ceil(CoreGroup::MAX_MACHINES * threads);
    machines.div_ceil(rounds * threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_machines_among_threads() {
        let sizes = [(1, 1), (8, 1), (9, 1), (20, 1), (1, 2), (2, 2), (5, 2), (20, 2), (20, 16)];
        let shares = sizes.map(|(machines, threads)| share(machines, threads));
        assert_eq!(shares, [1, 8, 5, 7, 1, 1, 3, 5, 2]);
    }
}
