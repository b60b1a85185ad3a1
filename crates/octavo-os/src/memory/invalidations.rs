//! Invalidations of cached translations.

use super::{Memory, ProcessId};
use crate::vmas::Pages;

/// A range of base pages whose translations may have changed: every copy of them must be dropped. Each is one
/// shootdown.
///
/// All changes of one operation form one invalidation, from the first changed page to the last (like
/// `mmu_gather` in Linux): the range of a fork is most of the address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalidation {
    /// The process.
    pub process: ProcessId,
    /// The base pages.
    pub pages: Pages,
}

/// The range that one operation has changed so far.
#[derive(Default)]
pub(super) struct GatheredInvalidation(Option<Pages>);

impl GatheredInvalidation {
    /// Adds pages.
    pub fn add(&mut self, pages: Pages) {
        self.0 = Some(match self.0.take() {
            Some(all) => all.start.min(pages.start)..all.end.max(pages.end),
            None => pages,
        });
    }
}

impl Memory {
    /// The invalidations since the last call.
    pub fn take_invalidations(&mut self) -> Vec<Invalidation> {
        self.update_hints();
        self.update_anchors();
        self.invalidate_changed_holes();
        self.collect_all_gapped_splits();
        std::mem::take(&mut self.stale)
    }

    /// Invalidates these pages: one shootdown.
    pub fn invalidate(&mut self, process: ProcessId, pages: Pages) {
        self.collect_gapped_splits(process, &pages);
        self.counters.shootdowns += 1;
        self.collect_changed_holes(process);
        self.holes_changed.retain(|(id, page)| *id != process || !pages.contains(&page.raw()));
        self.stale.push(Invalidation { process, pages });
    }

    /// Ends an operation: one shootdown if it changed anything.
    pub(super) fn invalidate_gathered(
        &mut self,
        process: ProcessId,
        changed: GatheredInvalidation,
    ) {
        if let Some(pages) = changed.0 {
            self.invalidate(process, pages);
        }
    }
}
