//! Anchors of the page tables of all processes.

use super::{EVERYTHING, Memory, ProcessId};
use crate::page_table::Ranges;

impl Memory {
    /// The anchor distance chosen last for any process, or the initial one, if page tables have anchors.
    pub fn anchor_distance(&self) -> Option<u64> {
        self.format.anchors.map(|_| 1 << self.last_anchor_log2)
    }

    /// Sets the ranges of the host's table for a guest's next choice of anchor distances.
    pub fn set_anchor_backing(&mut self, backing: Ranges) {
        self.anchor_backing = Some(backing);
    }

    /// Ends an operation: updates the anchors of the pages that it has changed.
    pub(super) fn update_anchors(&mut self) {
        if self.format.anchors.is_none() {
            return;
        }
        for space in self.processes.iter_mut().flatten() {
            let written = space.table.update_anchors();
            self.counters.anchors_written += written;
            self.counters.entries_written += written;
        }
    }

    /// Copies the anchor distance of a process to a forked child.
    pub(super) fn inherit_anchor_distance(&mut self, parent: ProcessId, child: ProcessId) {
        let log2 = self.process(parent).table.anchor_log2();
        self.process_mut(child).table.set_anchor_log2(log2);
    }

    /// Whether it is time to choose anchor distances.
    pub fn chooses_anchor_distances(&self, instructions: u64) -> bool {
        let every = self.format.anchors.map_or(0, |anchors| anchors.choose_every_instructions);
        every > 0 && instructions >= self.next_anchor_choice
    }

    /// Chooses the anchor distance of each process, if it is time; `instructions` is the number executed so far. A new
    /// distance rewrites all anchors of the process and invalidates all its pages.
    pub(crate) fn choose_anchor_distances(&mut self, instructions: u64) {
        let is_time = self.chooses_anchor_distances(instructions);
        let Some(anchors) = self.format.anchors.filter(|_| is_time) else { return };
        self.next_anchor_choice = instructions + anchors.choose_every_instructions;
        self.update_anchors();
        let live: Vec<ProcessId> = self.live().collect();
        for process in live {
            let table = &self.process(process).table;
            let backing = self.anchor_backing.as_ref();
            let better = table.better_anchor_log2(anchors.largest_log2, backing);
            let Some(log2) = better else { continue };
            let written = self.process_mut(process).table.set_anchor_log2(log2);
            self.last_anchor_log2 = log2;
            self.counters.anchors_written += written;
            self.counters.entries_written += written;
            self.counters.anchor_distance_changes += 1;
            self.invalidate(process, EVERYTHING);
        }
    }

    /// Checks all anchors against the mapped pages.
    pub fn check_anchors(&self) -> Result<(), String> {
        if self.format.anchors.is_none() {
            return Ok(());
        }
        self.processes.iter().flatten().try_for_each(|space| space.table.check_anchors())
    }
}
