//! Simulation state of a process.

use octavo_trace::{Counts, PresentPages};
use rustc_hash::FxHashMap;

use crate::front::{Image, ImageId};

/// The running thread before the trace names one.
pub const FIRST_THREAD: u32 = 1;

/// A process.
pub struct Process {
    pub id: ImageId,
    pub image: Image,
    pub counts: Counts,
    /// The current thread.
    pub thread: u32,
    /// The core of each thread, assigned when the thread first runs.
    cores: FxHashMap<u32, usize>,
    /// Whether it has executed an instruction.
    pub has_begun: bool,
    /// Whether a mapping was recorded for it.
    pub is_mapped: bool,
    /// Whether it is a fork. Its stream repeats the parent's mappings before the first instruction; these are
    /// skipped.
    pub is_copy: bool,
    /// The memory that it has had since before its counted executions.
    pub present: PresentPages,
}

impl Process {
    pub fn new(id: ImageId, image: Image, is_copy: bool) -> Self {
        Process {
            id,
            image,
            counts: Counts::default(),
            thread: FIRST_THREAD,
            cores: FxHashMap::default(),
            has_begun: false,
            is_mapped: is_copy,
            is_copy,
            present: PresentPages::default(),
        }
    }
}

/// Assigns threads to cores, round-robin in the order of first execution.
pub struct Placement {
    cores: usize,
    next: usize,
}

impl Placement {
    pub fn new(cores: usize) -> Self {
        Placement { cores, next: 0 }
    }

    /// The core of the current thread.
    pub fn core_of(&mut self, process: &mut Process) -> usize {
        *process.cores.entry(process.thread).or_insert_with(|| {
            let core = self.next;
            self.next = (core + 1) % self.cores;
            core
        })
    }
}
