//! Touches: a stream as the base pages that it touches, in batches, which every kernel of
//! [`crate::Curves`] consumes.
//!
//! References that stay on a page change nothing in any TLB that has just looked it up, so they
//! are only counted. The others are touches, each with the number of references before it, so
//! that kernels of time (working sets, the policy of two page sizes) are exact too.

mod made;
mod rows;
mod runs;
mod split;
#[cfg(test)]
pub mod testing;

pub use rows::{LANES, Row, Rows, Space};
pub use runs::{Run, Runs};
pub use split::Splitter;

use octavo_types::VirtAddr;

/// Touches in a batch, about.
pub const BATCH_TOUCHES: usize = 1 << 15;
/// A batch spans fewer references than this, so that a touch's place in it fits beside its flags.
pub const BATCH_REFS: u64 = 1 << 29;

/// Marks the second half of a reference.
const SPILLED: u32 = 1 << 31;
/// Marks instruction fetches, where kinds are kept apart.
const FETCHED: u32 = 1 << 30;

/// A run of references to one base page begins.
///
/// It ends where the next touch begins: its last reference is the one before that touch's first,
/// or that very reference, where the touch is its second half ([`Touch::is_spilled`]).
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

    /// How many references of the stream come before it, after [`Touches::start_refs`].
    #[inline(always)]
    pub fn at_refs(self) -> u32 {
        self.at & !(SPILLED | FETCHED)
    }

    /// Whether instructions are fetched; only where the splitter keeps kinds apart
    /// ([`Splitter::with_kinds`]).
    #[inline(always)]
    pub fn is_fetch(self) -> bool {
        self.at & FETCHED != 0
    }

    /// Whether it begins with the second half of a reference that spans two pages; the page before
    /// has the first half at the same time.
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

    /// When the page of the touch before was last referenced, as [`Touch::at_refs`] counts; -1 is
    /// the last reference of the batch before.
    #[inline(always)]
    pub fn left_refs(self) -> i64 {
        i64::from(self.at_refs()) - i64::from(!self.is_spilled())
    }
}

/// A batch of touches, of one stream. No touch has the row (and the kind, if kinds are kept apart)
/// of the one before it, batches before included, but for the first one after
/// [`Splitter::end_touch`].
#[derive(Clone, Debug, Default)]
pub struct Touches {
    /// How many references of the stream come before the batch.
    pub start_refs: u64,
    /// The touches, in order.
    pub touches: Vec<Touch>,
    /// The instruction that made each of them, as traced; empty unless it was asked for.
    pub origins: Vec<VirtAddr>,
    /// How many references of the stream there are up to the batch's end.
    pub end_refs: u64,
}

/// The work of one kernel on the batches that are handed on together.
pub type Job<'a> = Box<dyn FnOnce(&Rows) + Send + 'a>;

/// An analysis of one stream.
pub trait Kernel: Send {
    /// Takes the next batch.
    fn take(&mut self, batch: &Touches, rows: &Rows);

    /// Empties its TLBs, when it has taken all of the `refs` references that there were so far.
    /// Counts stay, and so does all state that is no TLB.
    fn flush(&mut self, refs: u64);
}
