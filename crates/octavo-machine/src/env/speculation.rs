//! References that continue at a predicted frame while a walk verifies the prediction.
//!
//! Where cycles are added up, the walk of a right prediction costs none, and a wrong prediction costs a flush. A core
//! that executes out of order has its own rules for both (`core/pipeline`).

use octavo_types::{FrameNumber, PageNumber};

use super::Env;
use crate::core::Speculation;

/// The result of a walk that has verified a prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// Whether the predicted frame was right.
    pub is_right: bool,
    /// Whether the walk faulted, in a guest or its host: the prediction then counts as wrong.
    pub has_faulted: bool,
    /// Cycles of the walk.
    pub walk_cycles: u32,
}

impl Env {
    /// Number of walks so far that ended in a page fault, including walks of the host's table.
    pub(crate) fn faulted_walks(&self) -> u64 {
        self.walker.faulted + self.host.as_ref().map_or(0, |host| host.walker.faulted)
    }

    /// The frame of a base page of the running process, in a guest the host's, if the page is mapped.
    pub fn frame(&self, page: PageNumber) -> Option<FrameNumber> {
        Some(self.translation(self.process, page)?.frame_of(page))
    }

    /// Marks the next walk as one that verifies a prediction.
    pub(crate) fn begin_speculation(&mut self) {
        self.verified_cycles = Some(0);
    }

    /// Charges the walk that has verified a prediction: as hidden if the frame was right, with the cycles of a flush if
    /// it was wrong. Returns the cycles of the walk.
    pub(crate) fn end_speculation(&mut self, speculation: Speculation, flush_cycles: u32) -> u32 {
        let cycles = self.verified_cycles.take().expect("a prediction is verified");
        self.speculation = speculation;
        if speculation == Speculation::Right {
            // The missed look-up stays charged in full.
            self.missed_lookup_cycles = 0;
            self.cycles.walks += u64::from(cycles);
            self.cycles.hidden_walks += u64::from(cycles);
            return cycles;
        }
        self.charge_walk(cycles);
        if speculation == Speculation::Wrong {
            self.cycles.flushes += u64::from(flush_cycles);
            self.overlaps[self.core].extend(flush_cycles);
        }
        cycles
    }

    /// Returns and resets the verified prediction of the current access.
    pub(crate) fn take_speculation(&mut self) -> Speculation {
        std::mem::take(&mut self.speculation)
    }
}
