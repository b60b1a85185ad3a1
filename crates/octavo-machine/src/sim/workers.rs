//! Plays batches on worker threads while the front fills the next batch.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, sync_channel};

use rayon::prelude::*;

use crate::front::Batch;
use crate::machine::AnyMachine;

type Machines = Vec<Box<dyn AnyMachine>>;
/// The machines and the emptied batch after a batch was played, or the panic of a machine.
type Back = Result<(Machines, Batch), Box<dyn Any + Send>>;

/// Plays each batch on all machines in parallel, one batch at a time. While a batch is in flight the machines
/// belong to the worker, and the caller may fill the next batch.
pub struct Workers {
    machines: Machines,
    in_flight: Option<Receiver<Back>>,
}

impl Workers {
    /// Takes over machines in their initial state.
    pub fn new(machines: Machines) -> Self {
        Workers { machines, in_flight: None }
    }

    /// Starts to play a batch once the previous one is finished. Returns an empty batch.
    pub fn play(&mut self, mut batch: Batch) -> Batch {
        let empty_batch = self.wait();
        // A pool thread that waited for the pool could wait for itself.
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

    /// The machines; no batch may be in flight.
    pub fn machines(&self) -> &[Box<dyn AnyMachine>] {
        assert!(self.in_flight.is_none(), "a batch is being played");
        &self.machines
    }

    /// Waits for the batch in flight, and returns it emptied.
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
