//! The cores of a process, each with TLBs of its own: one, or one for each thread.

use std::num::NonZeroU64;

/// The state of one core.
pub struct Core {
    /// The thread that it runs, if each thread has a core of its own.
    pub thread: u32,
    /// The instructions that it has executed.
    pub instructions: u64,
    /// The number of instructions at which its TLBs are emptied next; `u64::MAX` for never.
    flush_at: u64,
}

/// The thread that runs before the first event names one.
const FIRST_THREAD: u32 = 1;

/// All cores.
pub struct Cores {
    flush_every: Option<NonZeroU64>,
    running: Core,
    /// The number of the running core, whose slot in `cores` is empty.
    place: usize,
    /// The cores that do not run, by number.
    cores: Vec<Option<Core>>,
}

impl Cores {
    /// One core that has not executed any instruction.
    pub fn new(flush_every: Option<NonZeroU64>) -> Self {
        let running = Core::new(FIRST_THREAD, flush_every);
        Cores { flush_every, running, place: 0, cores: vec![None] }
    }

    /// Whether the TLBs of the running core must be emptied before it executes more instructions. Returns true once
    /// for each due flush.
    #[inline(always)]
    pub fn is_flush_due(&mut self) -> bool {
        self.running.instructions >= self.running.flush_at && self.schedule_flush()
    }

    /// The instructions until the TLBs of the running core must be emptied.
    pub fn instructions_to_flush(&self) -> u64 {
        self.running.flush_at.saturating_sub(self.running.instructions)
    }

    /// Schedules the next flush. Returns true.
    #[cold]
    fn schedule_flush(&mut self) -> bool {
        let Core { instructions, flush_at, .. } = &mut self.running;
        let every = self.flush_every.map_or(u64::MAX, NonZeroU64::get);
        // Flushes stay at multiples of the period, even if a long segment has delayed this one.
        *flush_at = (*instructions / every + 1).saturating_mul(every);
        true
    }

    /// Adds instructions that the running core executes.
    #[inline(always)]
    pub fn execute(&mut self, instructions: u64) {
        self.running.instructions += instructions;
    }

    /// The number of a thread's core, if it has one.
    pub fn of_thread(&self, thread: u32) -> Option<usize> {
        let has_it = |core: &Option<Core>| core.as_ref().unwrap_or(&self.running).thread == thread;
        self.cores.iter().position(has_it)
    }

    /// Whether the core with this number runs.
    pub fn is_running(&self, place: usize) -> bool {
        place == self.place
    }

    /// Switches to the core of a thread. Returns its number, or `None` if it runs already.
    pub fn run(&mut self, thread: u32) -> Option<usize> {
        let place = self.of_thread(thread).unwrap_or_else(|| {
            self.cores.push(Some(Core::new(thread, self.flush_every)));
            self.cores.len() - 1
        });
        let next = self.cores[place].take()?;
        self.cores[self.place] = Some(std::mem::replace(&mut self.running, next));
        self.place = place;
        Some(place)
    }

    /// All cores by number, at the end.
    pub fn finish(self) -> Vec<Core> {
        let Cores { mut running, cores, flush_every, .. } = self;
        let mut take = || std::mem::replace(&mut running, Core::new(FIRST_THREAD, flush_every));
        cores.into_iter().map(|core| core.unwrap_or_else(&mut take)).collect()
    }
}

impl Core {
    fn new(thread: u32, flush_every: Option<NonZeroU64>) -> Self {
        let flush_at = flush_every.map_or(u64::MAX, NonZeroU64::get);
        Core { thread, instructions: 0, flush_at }
    }
}
