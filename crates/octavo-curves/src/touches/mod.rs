//! Touches: the base pages that a stream touches, in batches, which every kernel of [`crate::Curves`]
//! consumes.
//!
//! Repeated references to a page change nothing in a TLB that has just looked it up, so that they are
//! only counted. The other references are touches, each with the number of references before it, so that
//! kernels that depend on time (working sets, the policy of two page sizes) are exact, too.

mod filter;
mod rows;
mod runs;
mod split;
#[cfg(test)]
pub mod testing;
mod writer;

pub use filter::Filter;
pub use rows::{LANES, Row, Rows, Space};
pub use runs::{Run, Runs};
pub use split::Splitter;

use octavo_types::VirtAddr;

/// Approximate number of touches in a batch.
pub const BATCH_TOUCHES: usize = 1 << 15;
/// Touches that go through all stages of a kernel together, so that they stay in the first-level cache.
pub const CHUNK_TOUCHES: usize = 1024;
/// Words of executions that are added to a batch before the next question whether it is full. In tests the end is reached.
pub const MOST_WORDS: usize = if cfg!(test) { 1 << 6 } else { 1 << 12 };
/// References that are added before that question, so that a batch stays small.
pub const MOST_REFS: u64 = if cfg!(test) { 1 << 7 } else { 1 << 17 };
/// Bound on the references of a batch, so that a touch's position and flags fit in one word.
pub const BATCH_REFS: u64 = 1 << 29;

/// Marks the second half of a reference.
const SPILLED: u32 = 1 << 31;
/// Marks instruction fetches, if kinds are distinguished.
const FETCHED: u32 = 1 << 30;

/// The beginning of a run of references to one base page.
///
/// The run ends where the next touch begins: its last reference is the one before that touch, or the
/// reference of which that touch is the second half ([`Touch::is_spilled`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    row: Row,
    at: u32,
}

impl Touch {
    /// The page.
    #[inline(always)]
    pub fn row(self) -> Row {
        self.row
    }

    /// The number of references of the stream before it, from [`Touches::start_refs`] on.
    #[inline(always)]
    pub fn at_refs(self) -> u32 {
        self.at & !(SPILLED | FETCHED)
    }

    /// Whether it is a fetch; false if the splitter does not distinguish kinds ([`Splitter::with_kinds`]).
    #[inline(always)]
    pub fn is_fetch(self) -> bool {
        self.at & FETCHED != 0
    }

    /// Whether it begins with the second half of a reference that spans two pages. The touch before has the
    /// first half, at the same time.
    #[inline(always)]
    pub fn is_spilled(self) -> bool {
        self.at & SPILLED != 0
    }

    /// Whether it begins with the second half of the reference that `first`, the touch before,
    /// begins with.
    #[inline(always)]
    pub fn is_spilled_with(&self, first: &Touch) -> bool {
        self.at == first.at | SPILLED && self.at != first.at
    }

    /// Whether it is of the page and the kind of another touch, and neither begins with the second half of a reference.
    #[inline(always)]
    pub fn repeats(&self, other: &Touch) -> bool {
        let flags = (self.at ^ other.at) & FETCHED | (self.at | other.at) & SPILLED;
        self.row == other.row && flags == 0
    }

    /// The time of the last reference of the touch before, in the units of [`Touch::at_refs`]; -1 is the last
    /// reference of the batch before.
    #[inline(always)]
    pub fn left_refs(self) -> i64 {
        i64::from(self.at_refs()) - i64::from(!self.is_spilled())
    }
}

/// A batch of touches of one stream. Consecutive touches, also of different batches, differ in row (or kind, if
/// kinds are distinguished), except for the first one after [`Splitter::end_touch`].
#[derive(Clone, Debug, Default)]
pub struct Touches {
    /// The number of references of the stream before the batch.
    pub start_refs: u64,
    /// The touches, in order.
    pub touches: Vec<Touch>,
    /// The instruction of each touch, as traced; empty unless requested.
    pub origins: Vec<VirtAddr>,
    /// The number of references of the stream up to the end of the batch.
    pub end_refs: u64,
}

/// The work of one kernel on the batches that are dispatched together.
pub type Job<'a> = Box<dyn FnOnce(&Rows) + Send + 'a>;

/// An analysis of one stream.
pub trait Kernel: Send {
    /// Processes the next batch.
    fn process(&mut self, batch: &Touches, rows: &Rows);

    /// Empties its TLBs, after it has processed all of the `refs` references so far. Counts and all other
    /// state stay.
    fn flush(&mut self, refs: u64);
}
