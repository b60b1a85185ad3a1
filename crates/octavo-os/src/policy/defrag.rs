//! What Linux does for a large page when no block is free
//! (`/sys/kernel/mm/transparent_hugepage/defrag`): it compacts memory, at once or beside the
//! programs, and puts compaction off where it did not help (`defer_compaction` in `mm/compaction.c`).

use octavo_types::FrameNumber;

use crate::frames::{CompactionLimits, Compactor, Order, OutOfMemory, Owner};
use crate::memory::Memory;

/// Whether a program that wants a large page waits for compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Defrag {
    /// Always.
    Always,
    /// Never; compaction goes on beside the programs.
    Defer,
    /// Where it has asked for large pages; for the others as [`Defrag::Defer`].
    DeferMadvise,
    /// Where it has asked for large pages, as Linux comes; for the others nothing is done.
    #[default]
    Madvise,
    /// Nothing is done.
    Never,
}

/// After this many failures in a row 64 requests are passed over: `COMPACT_MAX_DEFER_SHIFT`.
const MAX_DEFER_SHIFT: u8 = 6;

/// How often compaction for an order was put off since it last failed.
#[derive(Clone, Copy, Debug, Default)]
struct Deferral {
    considered: u32,
    shift: u8,
}

/// Memory for large pages, by compaction if need be.
#[derive(Clone, Debug, Default)]
pub struct Defragmenter {
    defrag: Defrag,
    compactor: Compactor,
    deferrals: [Deferral; Order::COUNT],
    /// What is to be made beside the programs.
    wanted: Option<Order>,
}

impl Defragmenter {
    /// With this setting.
    pub fn new(defrag: Defrag) -> Self {
        Defragmenter { defrag, ..Defragmenter::default() }
    }

    /// A block of `order` for data; `advised` tells whether the program has asked for large pages.
    ///
    /// # Errors
    /// Where none is free, and none was made.
    pub fn block(
        &mut self,
        memory: &mut Memory,
        order: Order,
        advised: bool,
    ) -> Result<FrameNumber, OutOfMemory> {
        let had = memory.frames.allocate_free(order, Owner::Data);
        if had.is_err() && self.make_room(memory, order, advised, |_| false) {
            return memory.frames.allocate_free(order, Owner::Data);
        }
        had
    }

    /// There is no free block of `order`: does about it what the setting says, with frames left alone
    /// that `stays` names. Whether that was done at once.
    pub fn make_room(
        &mut self,
        memory: &mut Memory,
        order: Order,
        advised: bool,
        stays: impl Fn(FrameNumber) -> bool,
    ) -> bool {
        let direct = match self.defrag {
            Defrag::Always => true,
            Defrag::DeferMadvise | Defrag::Madvise => advised,
            Defrag::Defer | Defrag::Never => false,
        };
        if direct {
            self.compact(memory, order, stays);
        } else if matches!(self.defrag, Defrag::Defer | Defrag::DeferMadvise) {
            self.wanted = self.wanted.max(Some(order));
        }
        direct
    }

    /// Makes what was wanted since the last time.
    pub fn background(&mut self, memory: &mut Memory, stays: impl Fn(FrameNumber) -> bool) {
        if let Some(order) = self.wanted.take() {
            self.compact(memory, order, stays);
        }
    }

    fn compact(&mut self, memory: &mut Memory, order: Order, stays: impl Fn(FrameNumber) -> bool) {
        let deferral = &mut self.deferrals[order.index()];
        deferral.considered += 1;
        let put_off = deferral.shift > 0 && deferral.considered < 1 << deferral.shift;
        if put_off || memory.frames.free_frames() < order.frames() {
            return;
        }
        let limits = CompactionLimits::ONE_BLOCK;
        memory.compact_for(&mut self.compactor, order, limits, stays);
        let deferral = &mut self.deferrals[order.index()];
        let made = memory.frames.buddy().largest_free_order() >= Some(order);
        deferral.considered = 0;
        deferral.shift = if made { 0 } else { (deferral.shift + 1).min(MAX_DEFER_SHIFT) };
    }
}
