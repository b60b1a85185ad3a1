//! Which page sizes an operating system chooses, a file a policy.

mod base;
mod thp;

pub use base::BasePages;
pub use thp::{FaultHuge, Thp, ThpConfig};

use octavo_types::PageNumber;

use crate::frames::OutOfMemory;
use crate::memory::{Memory, ProcessId};
use crate::vmas::{Pages, Vma};

/// A base page of anonymous memory that has been touched and is not there.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Whose.
    pub process: ProcessId,
    /// Which.
    pub page: PageNumber,
    /// All pages of the mapping that holds it.
    pub mapping: Pages,
    /// The mapping.
    pub vma: Vma,
}

/// Chooses page sizes for anonymous memory.
pub trait Policy: Send {
    /// Maps at least the page that was touched.
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory>;

    /// A program has mapped anonymous memory.
    fn mapped(
        &mut self,
        _memory: &mut Memory,
        _process: ProcessId,
        _pages: &Pages,
        _vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// A range is about to be mapped no longer, or its pages given back.
    fn unmapped(&mut self, _memory: &mut Memory, _process: ProcessId, _pages: &Pages) {}

    /// A process has become two: the child shares all pages of its parent.
    fn forked(&mut self, _memory: &mut Memory, _parent: ProcessId, _child: ProcessId) {}

    /// A process is about to end; a later one may get its number.
    fn ended(&mut self, _memory: &mut Memory, _process: ProcessId) {}

    /// Does what an operating system does beside the programs, after so many instructions of
    /// theirs in all.
    fn background(&mut self, _memory: &mut Memory, _instructions: u64) {}
}
