//! A process image, as a simulation knows it.

use octavo_trace::Counts;
use rustc_hash::FxHashMap;

use crate::front::{Image, ImageId};

/// The thread that runs where nobody has said so.
pub const FIRST_THREAD: u32 = 1;

/// A process image.
pub struct Process {
    pub id: ImageId,
    pub image: Image,
    pub counts: Counts,
    /// The thread that runs, or will.
    pub thread: u32,
    /// By thread, the core that it was placed on.
    cores: FxHashMap<u32, usize>,
    /// Whether it has executed anything.
    pub has_begun: bool,
    /// Whether anything was mapped.
    pub is_mapped: bool,
    /// Whether it has all that its parent had: what its stream tells of mappings before the first
    /// instruction is known.
    pub is_copy: bool,
}

impl Process {
    pub fn new(id: ImageId, page_table_levels: u8, is_copy: bool) -> Self {
        Process {
            id,
            image: Image::new(page_table_levels),
            counts: Counts::default(),
            thread: FIRST_THREAD,
            cores: FxHashMap::default(),
            has_begun: false,
            is_mapped: is_copy,
            is_copy,
        }
    }
}

/// Where threads run: each on the next core when it is first seen, so that they are spread.
pub struct Placement {
    cores: usize,
    next: usize,
}

impl Placement {
    pub fn new(cores: usize) -> Self {
        Placement { cores, next: 0 }
    }

    /// The core of the thread that runs.
    pub fn core_of(&mut self, process: &mut Process) -> usize {
        *process.cores.entry(process.thread).or_insert_with(|| {
            let core = self.next;
            self.next = (core + 1) % self.cores;
            core
        })
    }
}
