//! The machines, playing what came while the front makes what comes next.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, sync_channel};

use rayon::prelude::*;

use crate::front::Batch;
use crate::machine::AnyMachine;

type Machines = Vec<Box<dyn AnyMachine>>;
/// What comes back when a batch has been played; or what a machine panicked with.
type Back = Result<(Machines, Batch), Box<dyn Any + Send>>;

/// Machines that play batches one after the other, each batch at the same time. While they do, they
/// are away, and whoever hands on batches may go on.
pub struct Workers {
    machines: Machines,
    in_flight: Option<Receiver<Back>>,
}

impl Workers {
    /// Machines that have played nothing.
    pub fn new(machines: Machines) -> Self {
        Workers { machines, in_flight: None }
    }

    /// Plays a batch, once the one before has been played. Returns one that is empty.
    pub fn play(&mut self, mut batch: Batch) -> Batch {
        let empty_batch = self.wait();
        // A thread of the pool that waited for the pool might wait for itself.
        if rayon::current_thread_index().is_some() {
            play(&mut self.machines, &mut batch);
            return batch;
        }
        let mut machines = std::mem::take(&mut self.machines);
        let (send, receive) = sync_channel(1);
        self.in_flight = Some(receive);
        rayon::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                play(&mut machines, &mut batch);
                (machines, batch)
            }));
            // Nobody may want to know any more.
            let _ = send.send(outcome);
        });
        empty_batch
    }

    /// All has been played.
    pub fn all(&mut self) -> &mut Machines {
        self.wait();
        &mut self.machines
    }

    /// The same, for who knows it.
    pub fn machines(&self) -> &[Box<dyn AnyMachine>] {
        assert!(self.in_flight.is_none(), "a batch is being played");
        &self.machines
    }

    /// The batch under way has been played; it is empty now.
    fn wait(&mut self) -> Batch {
        let Some(in_flight) = self.in_flight.take() else { return Batch::default() };
        match in_flight.recv().expect("a batch is played to its end") {
            Ok((machines, batch)) => {
                self.machines = machines;
                batch
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

fn play(machines: &mut Machines, batch: &mut Batch) {
    machines.par_iter_mut().for_each(|machine| machine.play(batch));
    batch.clear();
}
