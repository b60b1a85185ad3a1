//! Whose turn it is.

use std::collections::VecDeque;

/// How a process came to be. Processes are numbered in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// It was there when the traces began, or nobody knows.
    AtOnce,
    /// Another one forked it.
    Forked {
        /// That one.
        parent: usize,
        /// What it knows the child by.
        pid: u32,
    },
    /// Another one executed its program.
    Executed {
        /// That one.
        before: usize,
    },
}

/// Processes taking turns, round robin.
pub struct Round {
    quantum_instructions: u64,
    /// Those that run, the one whose turn it is first.
    running: VecDeque<usize>,
    /// Those that have not come yet, in order.
    waiting: Vec<(usize, Came)>,
    /// How many there are in all.
    added: usize,
    /// What is left of the turn.
    left_instructions: u64,
}

impl Round {
    /// Nobody is there yet.
    pub fn new(quantum_instructions: u64) -> Self {
        Round {
            quantum_instructions,
            running: VecDeque::new(),
            waiting: Vec::new(),
            added: 0,
            left_instructions: quantum_instructions,
        }
    }

    /// One more process.
    pub fn add(&mut self, came: Came) {
        self.waiting.push((self.added, came));
        self.added += 1;
    }

    /// All are added: these come at once.
    pub fn begin(&mut self) -> Vec<usize> {
        let mut first = self.come(|came| came == Came::AtOnce);
        if first.is_empty() {
            first = self.come_first();
        }
        self.running.extend(&first);
        first
    }

    /// Whose turn it is; nobody's at the end.
    pub fn running(&self) -> Option<usize> {
        self.running.front().copied()
    }

    /// What is left of the turn.
    pub fn left_instructions(&self) -> u64 {
        self.left_instructions
    }

    /// The process whose turn it is tells of a fork: its child comes, if there is one of that name.
    pub fn forked(&mut self, pid: u32) -> Option<usize> {
        let parent = self.running()?;
        let at = self.waiting.iter().position(|(_, came)| *came == Came::Forked { parent, pid })?;
        let (child, _) = self.waiting.remove(at);
        self.running.push_back(child);
        Some(child)
    }

    /// The process whose turn it is has executed so many instructions.
    pub fn executed(&mut self, instructions: u64) {
        self.left_instructions = self.left_instructions.saturating_sub(instructions);
        if self.left_instructions == 0 {
            self.running.rotate_left(1);
            self.left_instructions = self.quantum_instructions;
        }
    }

    /// The process whose turn it is has ended. These come: the program that it has executed, in its
    /// place, and children that it did not tell of.
    pub fn ended(&mut self) -> Vec<usize> {
        let Some(gone) = self.running.pop_front() else { return Vec::new() };
        let executed = |came: &Came| *came == Came::Executed { before: gone };
        let mut come = Vec::new();
        if let Some(at) = self.waiting.iter().position(|(_, came)| executed(came)) {
            let (next, _) = self.waiting.remove(at);
            self.running.push_front(next);
            come.push(next);
        } else {
            self.left_instructions = self.quantum_instructions;
        }
        let children =
            self.come(|came| matches!(came, Came::Forked { parent, .. } if parent == gone));
        self.running.extend(&children);
        come.extend(children);
        if self.running.is_empty() {
            // Who waits for somebody who will not come, as no whole trace tells.
            let first = self.come_first();
            self.running.extend(&first);
            come.extend(first);
        }
        come
    }

    fn come(&mut self, which: impl Fn(Came) -> bool) -> Vec<usize> {
        let (come, wait) = self.waiting.drain(..).partition(|(_, came)| which(*came));
        self.waiting = wait;
        let come: Vec<(usize, Came)> = come;
        come.into_iter().map(|(number, _)| number).collect()
    }

    fn come_first(&mut self) -> Vec<usize> {
        match self.waiting.is_empty() {
            true => Vec::new(),
            false => vec![self.waiting.remove(0).0],
        }
    }
}
