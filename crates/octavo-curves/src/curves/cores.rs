//! The cores of a process, each with TLBs of its own: one, or one for each thread.

use std::num::NonZeroU64;

/// The state of one core.
pub struct Core {
    /// The thread that it runs, where each has one for itself.
    pub thread: u32,
    /// The instructions that it has executed.
    pub instructions: u64,
    /// At how many of them its TLBs are emptied; `u64::MAX` where they never are.
    flush_at: u64,
}

/// The thread that runs before the first event names one.
const FIRST_THREAD: u32 = 1;

/// All cores.
pub struct Cores {
    flush_every: Option<NonZeroU64>,
    /// The one that runs, its place among all, and the others at theirs.
    running: Core,
    place: usize,
    cores: Vec<Option<Core>>,
}

impl Cores {
    /// One core, which has executed nothing.
    pub fn new(flush_every: Option<NonZeroU64>) -> Self {
        let running = Core::new(FIRST_THREAD, flush_every);
        Cores { flush_every, running, place: 0, cores: vec![None] }
    }

    /// Whether the TLBs of the core that runs are to be emptied before it executes anything more;
    /// says so once.
    #[inline(always)]
    pub fn is_flush_due(&mut self) -> bool {
        self.running.instructions >= self.running.flush_at && self.note_flush()
    }

    #[cold]
    fn note_flush(&mut self) -> bool {
        let Core { instructions, flush_at, .. } = &mut self.running;
        let every = self.flush_every.map_or(u64::MAX, NonZeroU64::get);
        // Context switches keep to the clock, however long what they wait for.
        *flush_at = (*instructions / every + 1).saturating_mul(every);
        true
    }

    /// The core that runs executes so many instructions.
    #[inline(always)]
    pub fn execute(&mut self, instructions: u32) {
        self.running.instructions += u64::from(instructions);
    }

    /// The place of a thread's core among all, if it has one.
    pub fn of_thread(&self, thread: u32) -> Option<usize> {
        let of = |core: &Option<Core>| core.as_ref().unwrap_or(&self.running).thread == thread;
        self.cores.iter().position(of)
    }

    /// Whether the core at this place runs.
    pub fn is_running(&self, place: usize) -> bool {
        place == self.place
    }

    /// The core of a thread runs from here on; its place, unless it is the one that runs already.
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

    /// All of them, when nothing runs any more.
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
