//! Fully associative TLBs of all sizes at once, at every page size: stack simulation.
//!
//! With LRU a TLB holds the pages used last, so that a larger TLB holds all pages of a smaller one. A
//! page's position in the order of last use, its *depth*, determines the TLBs that hold it (Mattson et al.,
//! "Evaluation techniques for storage hierarchies", 1970).

mod counted;
mod group;
mod holes;
mod lists;
mod order;
mod single;
#[cfg(test)]
mod tests;
mod vectors;

use octavo_types::{InstructionSet, Instructions, PageSize};

use crate::sizes::Sizes;
use crate::touches::{CHUNK_TOUCHES, Kernel, LANES, Rows, Touch, Touches};
use group::Group;
use single::Single;
use vectors::Vectors;
#[cfg(target_arch = "x86_64")]
use vectors::{Avx2, Avx512};

pub(crate) use holes::HoleStack;
pub(crate) use order::{MAX_PAGES, NO_ID, Order};

/// Upper bound on entries.
pub const MAX_ENTRIES: u32 = 4096;

/// Misses of fully associative TLBs of every number of entries at one page size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackCurve {
    /// The page size.
    pub page_size: PageSize,
    /// Distinct pages: the misses of an infinite TLB.
    pub pages: u64,
    /// Misses with *n* entries, at index *n* - 1.
    pub misses: Vec<u64>,
}

/// The kernel for one stream.
pub struct Stack {
    sizes: Sizes,
    max_entries: u32,
    instructions: Instructions,
    /// Groups of [`LANES`] page sizes.
    parts: Vec<Part>,
}

/// Some of the page sizes.
enum Part {
    Single(Box<Single>),
    Group(Box<Group>),
}

impl Stack {
    /// TLBs of 1 to `max_entries` (at most [`MAX_ENTRIES`]) entries at each of `sizes`.
    pub fn new(sizes: Sizes, max_entries: u32, instructions: Instructions) -> Self {
        let firsts = (0..sizes.len()).step_by(LANES);
        let part = |first| match LANES.min(sizes.len() - first) {
            1 => Part::Single(Single::new(first, max_entries).into()),
            some => Part::Group(Group::new(first, some, max_entries).into()),
        };
        Stack { parts: firsts.map(part).collect(), sizes, max_entries, instructions }
    }

    /// The curve at each size.
    pub fn curves(&self) -> Vec<StackCurve> {
        let curve = |(number, page_size): (usize, PageSize)| {
            let (pages, mut misses) = match &self.parts[number / LANES] {
                Part::Single(single) => single.misses(),
                Part::Group(group) => group.misses(number % LANES),
            };
            misses.truncate(self.max_entries as usize);
            StackCurve { page_size, pages, misses }
        };
        self.sizes.iter().enumerate().map(curve).collect()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn process_avx2(&mut self, touches: &[Touch], rows: &Rows) {
        // SAFETY: the caller has checked that the processor has AVX2.
        self.process_with(unsafe { Avx2::new() }, touches, rows);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    fn process_avx512(&mut self, touches: &[Touch], rows: &Rows) {
        // SAFETY: the caller has checked that the processor has AVX2 and AVX-512.
        self.process_with(unsafe { Avx512::new() }, touches, rows);
    }

    #[inline(always)]
    fn process_with<V: Vectors>(&mut self, v: V, touches: &[Touch], rows: &Rows) {
        for part in &mut self.parts {
            match part {
                Part::Single(single) => {
                    single.grow(rows);
                    let chunks = touches.chunks(CHUNK_TOUCHES);
                    chunks.for_each(|chunk| single.process(self.instructions, chunk, rows));
                }
                Part::Group(group) => {
                    group.grow(rows);
                    let (chunks, with) = (touches.chunks(CHUNK_TOUCHES), (v, self.instructions));
                    chunks.for_each(|chunk| group.process(with, chunk, rows));
                    group.count();
                }
            }
        }
    }
}

impl Kernel for Stack {
    fn process(&mut self, batch: &Touches, rows: &Rows) {
        let touches = &batch.touches;
        match self.instructions.set() {
            InstructionSet::Portable => self.process_with(vectors::PORTABLE, touches, rows),
            // SAFETY: `Instructions` is constructed only for sets that the processor has.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { self.process_avx2(touches, rows) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { self.process_avx512(touches, rows) },
        }
    }

    fn flush(&mut self, _: u64) {
        for part in &mut self.parts {
            match part {
                Part::Single(single) => single.clear(),
                Part::Group(group) => group.clear(),
            }
        }
    }
}
