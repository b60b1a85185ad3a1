//! Plays batches on worker threads while the front fills the next batch.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, sync_channel};

use octavo_types::Instructions;
use rayon::prelude::*;

use super::group::{Group, groups};
use crate::front::Batch;
use crate::machine::AnyMachine;

pub type Machines = Vec<Box<dyn AnyMachine>>;
/// The machines with their groups, and the emptied batch after a batch was played, or the panic of a machine.
type Back = Result<(Machines, Vec<Group>, Batch), Box<dyn Any + Send>>;

/// Plays each batch on all machines in parallel, one batch at a time. While a batch is in flight the machines
/// belong to the worker, and the caller may fill the next batch.
pub struct Workers {
    machines: Machines,
    /// Empty until the first batch is played: only then the pool of threads has to be there.
    groups: Vec<Group>,
    instructions: Instructions,
    in_flight: Option<Receiver<Back>>,
}

impl Workers {
    /// Takes over machines in their initial state.
    pub fn new(machines: Machines, instructions: Instructions) -> Self {
        Workers { machines, groups: Vec::new(), instructions, in_flight: None }
    }

    /// Starts to play a batch once the previous one is finished. Returns an empty batch.
    pub fn play(&mut self, mut batch: Batch) -> Batch {
        let empty_batch = self.wait();
        if self.groups.is_empty() {
            let threads = rayon::current_num_threads();
            self.groups = groups(&self.machines, threads, self.instructions);
        }
        // A pool thread that waited for the pool could wait for itself.
        if rayon::current_thread_index().is_some() {
            play(&mut self.machines, &mut self.groups, &mut batch);
            return batch;
        }
        let mut machines = std::mem::take(&mut self.machines);
        let mut groups = std::mem::take(&mut self.groups);
        let (send, receive) = sync_channel(1);
        self.in_flight = Some(receive);
        rayon::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                play(&mut machines, &mut groups, &mut batch);
                (machines, groups, batch)
            }));
            // The receiver may have been dropped.
            let _ = send.send(outcome);
        });
        empty_batch
    }

    /// Waits for the batch in flight, and returns the machines.
    pub fn all(&mut self) -> &mut Machines {
        self.wait();
        &mut self.machines
    }

    /// Waits for the batch in flight, and removes the machines.
    pub fn take(&mut self) -> Machines {
        self.wait();
        self.groups.clear();
        std::mem::take(&mut self.machines)
    }

    /// Removes cores that execute instructions.
    pub fn drop_cores(&mut self) {
        self.all().iter_mut().for_each(|machine| machine.drop_cores());
        self.groups.clear();
    }

    /// The machines; no batch may be in flight.
    pub fn machines(&self) -> &[Box<dyn AnyMachine>] {
        assert!(self.in_flight.is_none(), "a batch is being played");
        &self.machines
    }

    /// Waits for the batch in flight, and returns it emptied.
    fn wait(&mut self) -> Batch {
        let Some(in_flight) = self.in_flight.take() else { return Batch::default() };
        match in_flight.recv().expect("a batch is played to its end") {
            Ok((machines, groups, batch)) => {
                (self.machines, self.groups) = (machines, groups);
                batch
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

fn play(machines: &mut Machines, groups: &mut [Group], batch: &mut Batch) {
    let mut machines: Vec<_> = machines.iter_mut().map(Some).collect();
    let mut members = |group: &Group| -> Vec<_> {
        group.members.iter().filter_map(|member| machines[*member].take()).collect()
    };
    let grouped: Vec<_> = groups.iter_mut().map(|group| (members(group), group)).collect();
    grouped.into_par_iter().for_each(|(mut machines, group)| group.play(&mut machines, batch));
    batch.clear();
}
