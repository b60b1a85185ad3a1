//! Plays batches on worker threads while the front fills the next ones.

use std::any::Any;
use std::collections::VecDeque;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use octavo_types::Instructions;
use rayon::prelude::*;

use super::group::{Group, groups};
use crate::front::Batch;
use crate::machine::AnyMachine;

pub type Machines = Vec<Box<dyn AnyMachine>>;

/// The most batches that may wait for a group of machines before the front waits.
const MAX_WAITING: usize = 8;

/// Plays each batch on all machines. Each group of machines plays the batches in order, and waits for no other group:
/// a thread takes a group and plays what waits for it, so that threads are busy as long as any group has work, and a
/// machine's state stays in a core's caches for several batches.
pub struct Workers {
    /// Empty while groups play.
    machines: Machines,
    /// Empty until the first batch is played: grouping needs the thread pool, which need not exist before.
    groups: Vec<Group>,
    instructions: Instructions,
    /// Empty unless groups play.
    queues: Arc<Queues>,
}

/// The batches that wait for groups that play.
#[derive(Default)]
struct Queues {
    state: Mutex<State>,
    /// Notified when a group has played a batch.
    played: Condvar,
}

#[derive(Default)]
struct State {
    queues: Vec<Queue>,
    /// Batches that all groups have played, emptied.
    empty_batches: Vec<Batch>,
    /// The panic of a machine.
    panic: Option<Box<dyn Any + Send>>,
}

/// The batches that wait for a group.
struct Queue {
    batches: VecDeque<Arc<Batch>>,
    /// The group, unless a thread is playing it.
    player: Option<Player>,
}

/// A group with its machines.
struct Player {
    group: Group,
    machines: Machines,
}

impl Workers {
    /// Takes over machines in their initial state.
    pub fn new(machines: Machines, instructions: Instructions) -> Self {
        Workers { machines, groups: Vec::new(), instructions, queues: Arc::default() }
    }

    /// Has the machines play a batch, after all earlier ones. Returns an empty batch.
    pub fn play(&mut self, batch: Batch) -> Batch {
        // A pool thread that waited for the pool could wait for itself.
        if rayon::current_thread_index().is_some() {
            self.stop();
            let (mut players, batch) = (self.players(), Arc::new(batch));
            let play = |player: &mut Player| player.play(Arc::clone(&batch));
            let executed: Vec<_> = players.par_iter_mut().map(play).collect();
            drop(batch);
            self.take_back(players);
            return executed.into_iter().flatten().find_map(emptied).unwrap_or_default();
        }
        if self.queues.lock().queues.is_empty() {
            let players = self.players().into_iter();
            let queue = |player| Queue { batches: VecDeque::new(), player: Some(player) };
            self.queues.lock().queues = players.map(queue).collect();
        }
        let mut state = self.queues.wait_for_room();
        let batch = Arc::new(batch);
        for (number, queue) in state.queues.iter_mut().enumerate() {
            queue.batches.push_back(Arc::clone(&batch));
            if let Some(player) = queue.player.take() {
                let queues = Arc::clone(&self.queues);
                rayon::spawn(move || queues.play(number, player));
            }
        }
        state.empty_batches.pop().unwrap_or_default()
    }

    /// Waits until all batches are played, and returns the machines.
    pub fn all(&mut self) -> &mut Machines {
        self.wait();
        &mut self.machines
    }

    /// Waits until all batches are played, and removes the machines.
    pub fn take(&mut self) -> Machines {
        self.wait();
        self.groups.clear();
        take(&mut self.machines)
    }

    /// Removes cores that execute instructions.
    pub fn drop_cores(&mut self) {
        self.all().iter_mut().for_each(|machine| machine.drop_cores());
        self.groups.clear();
    }

    /// The machines; no batch may be in flight.
    pub fn machines(&self) -> &[Box<dyn AnyMachine>] {
        assert!(self.queues.lock().queues.is_empty(), "batches are being played");
        &self.machines
    }

    /// Waits until all batches are played and executed, and takes the machines back.
    fn wait(&mut self) {
        self.stop();
        if self.groups.iter().any(Group::waits) {
            let mut players = self.players();
            let finish = |player: &mut Player| player.group.finish(&mut player.machines);
            players.par_iter_mut().for_each(finish);
            self.take_back(players);
        }
    }

    /// Waits until all batches are played, and takes the machines back.
    fn stop(&mut self) {
        let queues = self.queues.wait_for_all();
        self.take_back(queues.into_iter().filter_map(|queue| queue.player).collect());
    }

    /// The groups with their machines.
    fn players(&mut self) -> Vec<Player> {
        if self.groups.is_empty() {
            let threads = rayon::current_num_threads();
            self.groups = groups(&self.machines, threads, self.instructions);
        }
        let mut machines: Vec<_> = take(&mut self.machines).into_iter().map(Some).collect();
        let mut members = |group: &Group| {
            group.members.iter().filter_map(|member| machines[*member].take()).collect()
        };
        let groups = take(&mut self.groups).into_iter();
        groups.map(|group| Player { machines: members(&group), group }).collect()
    }

    /// Takes back the groups and machines that [`Self::players`] gave.
    fn take_back(&mut self, players: Vec<Player>) {
        let mut machines = Vec::new();
        for Player { group, machines: members } in players {
            machines.extend(group.members.iter().copied().zip(members));
            self.groups.push(group);
        }
        machines.sort_unstable_by_key(|(number, _)| *number);
        self.machines.extend(machines.into_iter().map(|(_, machine)| machine));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queues.lock().queues.iter_mut().for_each(|queue| queue.batches.clear());
    }
}

impl Player {
    /// Plays a batch. Returns a batch that is played and executed, if there is one.
    fn play(&mut self, batch: Arc<Batch>) -> Option<Arc<Batch>> {
        self.group.play(&mut self.machines, batch)
    }
}

/// A batch that no group plays any more, emptied.
fn emptied(batch: Arc<Batch>) -> Option<Batch> {
    let mut batch = Arc::into_inner(batch)?;
    batch.clear();
    Some(batch)
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the queues")
    }

    /// Waits until every queue has room for a batch. If one is full, waits until all are at most half full, so that the
    /// front is not woken for a single batch.
    fn wait_for_room(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.longest() >= MAX_WAITING {
            state = self.wait_while(state, |state| state.longest() > MAX_WAITING / 2);
        }
        state
    }

    /// Waits until all batches are played, and takes the queues.
    fn wait_for_all(&self) -> Vec<Queue> {
        let playing = |queue: &Queue| queue.player.is_none() || !queue.batches.is_empty();
        let mut state = self.wait_while(self.lock(), |state| state.queues.iter().any(playing));
        take(&mut state.queues)
    }

    /// Waits while `holds` is true; passes on the panic of a machine.
    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        holds: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let waits = |state: &mut State| state.panic.is_none() && holds(state);
        let waited = self.played.wait_while(state, waits);
        let mut state = waited.expect("no thread panics with the queues");
        if let Some(panic) = state.panic.take() {
            drop(state);
            resume_unwind(panic);
        }
        state
    }

    /// Plays the batches that wait for a group.
    fn play(&self, number: usize, mut player: Player) {
        let mut state = self.lock();
        while let Some(batch) = state.queues.get_mut(number).and_then(|q| q.batches.pop_front()) {
            drop(state);
            let played = catch_unwind(AssertUnwindSafe(|| player.play(batch).and_then(emptied)));
            state = self.lock();
            match played {
                Ok(emptied) => state.empty_batches.extend(emptied),
                Err(panic) => {
                    state.queues[number].batches.clear();
                    state.panic.get_or_insert(panic);
                }
            }
            self.played.notify_all();
        }
        if let Some(queue) = state.queues.get_mut(number) {
            queue.player = Some(player);
        }
        self.played.notify_all();
    }
}

impl State {
    /// The length of the longest queue.
    fn longest(&self) -> usize {
        self.queues.iter().map(|queue| queue.batches.len()).max().unwrap_or(0)
    }
}
