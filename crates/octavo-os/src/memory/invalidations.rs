//! Translations that are no longer right.

use super::{Memory, ProcessId};
use crate::vmas::Pages;

/// Base pages of a process whose translation may be no longer what it was: whoever has kept it must
/// forget it. One of these is one shootdown.
///
/// What an operation changes in a range is one of them, from the first page that it changed to the
/// last, whatever lies between (`mmu_gather` of Linux): so the range of a fork is most of the
/// address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalidation {
    /// Whose.
    pub process: ProcessId,
    /// Which.
    pub pages: Pages,
}

/// What one operation has changed so far.
#[derive(Default)]
pub(super) struct InvalidationGatherer(Option<Pages>);

impl InvalidationGatherer {
    /// These pages, too.
    pub fn add(&mut self, pages: Pages) {
        self.0 = Some(match self.0.take() {
            Some(all) => all.start.min(pages.start)..all.end.max(pages.end),
            None => pages,
        });
    }
}

impl Memory {
    /// What has become stale since the last call.
    pub fn take_invalidations(&mut self) -> Vec<Invalidation> {
        self.forget_changed_holes();
        self.collect_all_gapped_splits();
        std::mem::take(&mut self.stale)
    }

    /// Notes that translations of these pages are no longer right: one shootdown.
    pub fn invalidate(&mut self, process: ProcessId, pages: Pages) {
        self.collect_gapped_splits(process, &pages);
        self.counters.shootdowns += 1;
        self.collect_changed_holes(process);
        self.holes_changed.retain(|(of, page)| *of != process || !pages.contains(&page.raw()));
        self.stale.push(Invalidation { process, pages });
    }

    /// The end of an operation: one shootdown, if it changed anything.
    pub(super) fn forget_all(&mut self, process: ProcessId, changed: InvalidationGatherer) {
        if let Some(pages) = changed.0 {
            self.invalidate(process, pages);
        }
    }
}
