//! Notifies policies of growing mappings.

use octavo_types::{MapSource, Protection};

use super::Os;
use crate::frames::OutOfMemory;
use crate::memory::ProcessId;
use crate::vmas::Pages;

impl Os {
    /// Notifies the policy of newly accessible anonymous memory.
    pub(super) fn notify_mapped(
        &mut self,
        process: ProcessId,
        pages: &Pages,
    ) -> Result<(), OutOfMemory> {
        for (part, vma) in self.memory.process(process).vmas.within(pages) {
            if vma.is_anonymous() {
                self.policy.mapped(&mut self.memory, process, &part, &vma)?;
            }
        }
        Ok(())
    }

    /// Whether the heap grows into the rest of a page that was made larger than the heap.
    pub(super) fn grows_into_own_page(
        &self,
        process: ProcessId,
        pages: &Pages,
        source: &MapSource,
        rights: Protection,
    ) -> bool {
        let memory = &self.memory;
        *source == MapSource::Heap
            && memory.process(process).vmas.within(pages).is_empty()
            && memory.leaves(process, pages).iter().all(|leaf| leaf.rights == rights)
    }
}
