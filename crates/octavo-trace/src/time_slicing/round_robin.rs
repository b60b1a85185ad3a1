//! The round-robin scheduler.

use std::collections::VecDeque;

/// How a process begins. Processes are numbered in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It exists from the beginning, or how it began is unknown.
    AtOnce,
    /// Another process forked it.
    Forked {
        /// The forking process.
        parent: usize,
        /// The child's identifier in the parent's fork event.
        pid: u32,
    },
    /// Another process executed this program.
    Executed {
        /// The process that executed it.
        before: usize,
    },
}

/// Round-robin scheduling of processes.
pub struct RoundRobin {
    quantum_instructions: u64,
    /// The length of the first turn of each process that exists from the beginning.
    first_quantum_instructions: u64,
    /// How many of these processes have not ended their first turn.
    first_turns: usize,
    /// The processes that have begun and not ended; the first one runs.
    running: VecDeque<usize>,
    /// The processes that have not begun, in order.
    waiting: Vec<(usize, Arrival)>,
    /// How many processes were added.
    added: usize,
    /// The rest of the quantum.
    left_instructions: u64,
}

impl RoundRobin {
    /// A scheduler without processes.
    pub fn new(quantum_instructions: u64, first_quantum_instructions: u64) -> Self {
        RoundRobin {
            quantum_instructions,
            first_quantum_instructions,
            first_turns: 0,
            running: VecDeque::new(),
            waiting: Vec::new(),
            added: 0,
            left_instructions: quantum_instructions,
        }
    }

    /// Adds a process.
    pub fn add(&mut self, arrival: Arrival) {
        self.waiting.push((self.added, arrival));
        self.added += 1;
    }

    /// Starts, once all processes are added; returns the processes that begin at once.
    pub fn begin(&mut self) -> Vec<usize> {
        let mut first = self.start_waiting(|arrival| arrival == Arrival::AtOnce);
        if first.is_empty() {
            first = self.start_first_waiting();
        } else {
            self.first_turns = first.len();
            self.left_instructions = self.first_quantum_instructions;
        }
        self.running.extend(&first);
        first
    }

    /// The running process; `None` once all have ended.
    pub fn running(&self) -> Option<usize> {
        self.running.front().copied()
    }

    /// The rest of the quantum.
    pub fn left_instructions(&self) -> u64 {
        self.left_instructions
    }

    /// The running process has forked `pid`: its child begins, if a waiting process has that
    /// identifier.
    pub fn forked(&mut self, pid: u32) -> Option<usize> {
        let parent = self.running()?;
        let at = self
            .waiting
            .iter()
            .position(|(_, arrival)| *arrival == Arrival::Forked { parent, pid })?;
        let (child, _) = self.waiting.remove(at);
        self.running.push_back(child);
        Some(child)
    }

    /// The running process has executed `instructions` instructions.
    pub fn executed(&mut self, instructions: u64) {
        self.left_instructions = self.left_instructions.saturating_sub(instructions);
        if self.left_instructions == 0 {
            self.running.rotate_left(1);
            self.begin_turn();
        }
    }

    /// The next process begins its turn. Processes that exist from the beginning come first, in
    /// order.
    fn begin_turn(&mut self) {
        self.first_turns = self.first_turns.saturating_sub(1);
        self.left_instructions = match self.first_turns {
            0 => self.quantum_instructions,
            _ => self.first_quantum_instructions,
        };
    }

    /// The running process has ended. Returns the processes that begin now: the program that it has
    /// executed, in its place, and children whose forks it did not record.
    pub fn ended(&mut self) -> Vec<usize> {
        let Some(gone) = self.running.pop_front() else { return Vec::new() };
        let executed = |arrival: &Arrival| *arrival == Arrival::Executed { before: gone };
        let mut begun = Vec::new();
        if let Some(at) = self.waiting.iter().position(|(_, arrival)| executed(arrival)) {
            let (next, _) = self.waiting.remove(at);
            self.running.push_front(next);
            begun.push(next);
        } else {
            self.begin_turn();
        }
        let children = self.start_waiting(
            |arrival| matches!(arrival, Arrival::Forked { parent, .. } if parent == gone),
        );
        self.running.extend(&children);
        begun.extend(children);
        if self.running.is_empty() {
            // Only in a damaged trace: the process that should start the rest has not begun.
            let first = self.start_first_waiting();
            self.running.extend(&first);
            begun.extend(first);
        }
        begun
    }

    fn start_waiting(&mut self, which: impl Fn(Arrival) -> bool) -> Vec<usize> {
        let (begun, wait) = self.waiting.drain(..).partition(|(_, arrival)| which(*arrival));
        self.waiting = wait;
        let begun: Vec<(usize, Arrival)> = begun;
        begun.into_iter().map(|(number, _)| number).collect()
    }

    fn start_first_waiting(&mut self) -> Vec<usize> {
        match self.waiting.is_empty() {
            true => Vec::new(),
            false => vec![self.waiting.remove(0).0],
        }
    }
}
