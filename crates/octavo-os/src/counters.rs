//! Counters of an operating system.

use crate::frames::Order;

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Page faults on unmapped pages.
    pub faults: u64,
    /// Page faults outside all known mappings. They map a base page, since the traced program ran.
    pub faults_unmapped: u64,
    /// Copy-on-write faults: stores to a shared page.
    pub copy_on_write_faults: u64,
    /// Bytes of new pages cleared.
    pub bytes_zeroed: u64,
    /// Bytes of free memory cleared in the background, a part of [`Self::bytes_zeroed`].
    pub bytes_zeroed_ahead: u64,
    /// Bytes copied from one frame to another.
    pub bytes_copied: u64,
    /// In a guest, bytes of frames whose memory the host has exchanged in place of copies.
    pub bytes_exchanged: u64,
    /// In a guest, hypercalls to exchange memory.
    pub hypercalls: u64,
    /// Bytes read from files, each page at its first use.
    pub bytes_read: u64,
    /// Pages promoted to a larger size.
    pub promotions: u64,
    /// Pages split into smaller ones.
    pub splits: u64,
    /// Invalidated ranges.
    pub shootdowns: u64,
    /// Page-table entries written, including aliases.
    pub entries_written: u64,
    /// Page faults that ran out of memory.
    pub out_of_memory: u64,
    /// Pages promoted in place, by the order of the new page.
    pub grown_by_order: [u64; Order::COUNT],
    /// Bytes mapped before their first touch: internal fragmentation, as far as the policy knows it.
    pub bytes_mapped_untouched: u64,
    /// Pages or reservations smaller than wanted for lack of a free block.
    pub fallbacks: u64,
    /// Zero pages merged into one shared frame.
    pub pages_merged: u64,
    /// Merged pages copied again on a store.
    pub pages_unmerged: u64,
    /// Gapped pages created.
    pub gapped: u64,
    /// Pages with holes created.
    pub pages_with_holes: u64,
    /// Holes punched in pages with holes.
    pub punches: u64,
    /// Holes patched: the base page becomes a part of its page with holes again.
    pub patches: u64,
    /// Shootdowns for hole bits only: one per run of pages whose bits changed without another shootdown.
    pub hole_shootdowns: u64,
    /// Blocks of page-table entries rewritten to give them the contiguous hint.
    pub folds: u64,
    /// Blocks rewritten to remove it.
    pub unfolds: u64,
    /// Anchors written besides the page-table entries that operations write anyway.
    pub anchors_written: u64,
    /// Changes of the anchor distance of a process.
    pub anchor_distance_changes: u64,
    /// Bytes of memory that processes had before their first instruction, mapped without any other counter.
    pub bytes_present: u64,
    /// Number of compactions.
    pub compactions: u64,
    /// Frames moved by compaction, including background memory.
    pub frames_compacted: u64,
}
