//! What policies are told of mappings that grow.

use octavo_types::{MapSource, Protection};

use super::Os;
use crate::frames::OutOfMemory;
use crate::memory::ProcessId;
use crate::vmas::Pages;

impl Os {
    /// Tells the policy of anonymous memory that a program may use from now on.
    pub(super) fn opened(&mut self, process: ProcessId, pages: &Pages) -> Result<(), OutOfMemory> {
        for (part, vma) in self.memory.process(process).vmas.within(pages) {
            if vma.is_anonymous() {
                self.policy.mapped(&mut self.memory, process, &part, &vma)?;
            }
        }
        Ok(())
    }

    /// Whether the heap grows into the rest of a page that was made larger than the heap was.
    pub(super) fn grows_into_its_own(
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
