//! Linux's reaction to a missing block for a large page (`/sys/kernel/mm/transparent_hugepage/defrag`): it
//! compacts memory at once or in the background, and defers compaction that did not help (`defer_compaction`
//! in `mm/compaction.c`).

use octavo_types::FrameNumber;
use serde::{Deserialize, Serialize};

use crate::frames::{CompactionLimits, Compactor, Order, OutOfMemory, Owner};
use crate::memory::Memory;

/// Whether a page fault waits for compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Defrag {
    /// Always.
    Always,
    /// Never; compaction runs in the background.
    Defer,
    /// For mappings with `MADV_HUGEPAGE`; others as [`Defrag::Defer`].
    #[serde(rename = "defer+madvise")]
    DeferMadvise,
    /// For mappings with `MADV_HUGEPAGE`, Linux's default; nothing for others.
    #[default]
    Madvise,
    /// No compaction.
    Never,
}

/// Maximum exponent of the deferral: after this many consecutive failures 64 requests are skipped
/// (`COMPACT_MAX_DEFER_SHIFT`).
const MAX_DEFER_SHIFT: u8 = 6;

/// The deferral of compaction for an order.
#[derive(Clone, Copy, Debug, Default)]
struct Deferral {
    considered: u32,
    shift: u8,
}

/// Allocates blocks for large pages, with compaction if necessary.
#[derive(Clone, Debug, Default)]
pub struct Defragmenter {
    defrag: Defrag,
    compactor: Compactor,
    deferrals: [Deferral; Order::COUNT],
    /// The order to make in the background.
    wanted: Option<Order>,
    /// Whether it frees the block with the least data to move, instead of scanning memory.
    is_smart: bool,
}

impl Defragmenter {
    /// A defragmenter with this setting.
    pub fn new(defrag: Defrag) -> Self {
        Defragmenter { defrag, ..Defragmenter::default() }
    }

    /// Frees the block with the least data to move instead of scanning memory.
    pub fn smart(self, is_smart: bool) -> Self {
        Defragmenter { is_smart, ..self }
    }

    /// Allocates a data block of `order`; `advised` is set if the mapping has `MADV_HUGEPAGE`.
    ///
    /// # Errors
    /// If none is free or could be made.
    pub fn block(
        &mut self,
        memory: &mut Memory,
        order: Order,
        advised: bool,
    ) -> Result<FrameNumber, OutOfMemory> {
        let block = memory.frames.allocate_free(order, Owner::Data);
        if block.is_err() && self.make_room(memory, order, advised, |_| false) {
            return memory.frames.allocate_free(order, Owner::Data);
        }
        block
    }

    /// Reacts to a missing block of `order` as the setting says; frames selected by `stays` are not moved.
    /// Returns whether memory was compacted at once.
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

    /// Makes the blocks wanted since the last call.
    pub fn background(&mut self, memory: &mut Memory, stays: impl Fn(FrameNumber) -> bool) {
        if let Some(order) = self.wanted.take() {
            self.compact(memory, order, stays);
        }
    }

    /// Compacts memory at once until a block of `order` is free, unless compaction is deferred after failures;
    /// frames selected by `stays` are not moved.
    pub fn compact(
        &mut self,
        memory: &mut Memory,
        order: Order,
        stays: impl Fn(FrameNumber) -> bool,
    ) {
        let deferral = &mut self.deferrals[order.index()];
        deferral.considered += 1;
        let is_deferred = deferral.shift > 0 && deferral.considered < 1 << deferral.shift;
        if is_deferred || memory.frames.free_frames() < order.frames() {
            return;
        }
        if self.is_smart {
            memory.compact_smartly(order, stays);
        } else {
            let limits = CompactionLimits::ONE_BLOCK;
            memory.compact_for(&mut self.compactor, order, limits, stays);
        }
        let deferral = &mut self.deferrals[order.index()];
        let is_free = memory.frames.buddy().largest_free_order() >= Some(order);
        deferral.considered = 0;
        deferral.shift = if is_free { 0 } else { (deferral.shift + 1).min(MAX_DEFER_SHIFT) };
    }
}
