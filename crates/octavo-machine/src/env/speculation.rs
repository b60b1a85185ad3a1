//! References that go on at a predicted frame while a walk verifies it.
//!
//! Added up, the walk of a right prediction takes no time; after a wrong one come the cycles of a flush. A core that
//! executes out of order has its own rules for both (`core/pipeline`).

use octavo_types::{FrameNumber, PageNumber};

use super::Env;
use crate::core::Speculation;

/// The result of a walk that has verified a prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// Whether the reference was at the right frame.
    pub is_right: bool,
    /// Whether the page, or one of the host's, faulted: then it was not.
    pub has_faulted: bool,
    /// Cycles of the walk.
    pub walk_cycles: u32,
}

impl Env {
    /// Walks that have ended in a page fault so far, those of the host's table among them.
    pub(crate) fn faulted_walks(&self) -> u64 {
        self.walker.faulted + self.host.as_ref().map_or(0, |host| host.walker.faulted)
    }

    /// The frame of a base page of the running process, in a guest the host's, if the page is mapped.
    pub fn frame(&self, page: PageNumber) -> Option<FrameNumber> {
        Some(self.translation(self.process, page)?.frame_of(page))
    }

    /// The walk to come verifies a prediction.
    pub(crate) fn begin_speculation(&mut self) {
        self.verified_cycles = Some(0);
    }

    /// Charges the walk that has verified a prediction: if the frame was right, as hidden; if it was wrong, with the cycles of
    /// a flush. Returns the cycles of the walk.
    pub(crate) fn end_speculation(&mut self, of: Speculation, flush_cycles: u32) -> u32 {
        let cycles = self.verified_cycles.take().expect("a prediction is verified");
        self.speculation = of;
        if of == Speculation::Right {
            // The look-up that missed was waited for.
            self.missed_lookup_cycles = 0;
            self.cycles.walks += u64::from(cycles);
            self.cycles.hidden_walks += u64::from(cycles);
            return cycles;
        }
        self.charge_walk(cycles);
        if of == Speculation::Wrong {
            self.cycles.flushes += u64::from(flush_cycles);
            self.overlaps[self.core].extend(flush_cycles);
        }
        cycles
    }

    /// The prediction that the current access has had verified.
    pub(crate) fn take_speculation(&mut self) -> Speculation {
        std::mem::take(&mut self.speculation)
    }
}
