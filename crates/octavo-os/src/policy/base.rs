//! Base pages, each when it is first touched.

use octavo_types::PageSize;

use super::{Fault, Policy};
use crate::frames::OutOfMemory;
use crate::memory::Memory;

/// Demand paging with 4 KiB pages alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct BasePages;

impl Policy for BasePages {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}
