//! What an operating system did, counted.

use crate::frames::Order;

/// Counts since the start. What became of reservations, the frames that hold them know
/// ([`Frames::reservation_counts`](crate::frames::Frames::reservation_counts)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Faults of a page that was not there.
    pub faults: u64,
    /// Faults outside every mapping known: served with a base page, since the program ran.
    pub faults_unmapped: u64,
    /// Stores to a page that was shared until then.
    pub copy_on_write_faults: u64,
    /// Bytes of new pages that were cleared.
    pub bytes_zeroed: u64,
    /// Bytes copied from one frame to another.
    pub bytes_copied: u64,
    /// Bytes read from files, the first time that somebody needs them.
    pub bytes_read: u64,
    /// Pages made larger.
    pub promotions: u64,
    /// Pages split into smaller ones.
    pub splits: u64,
    /// Ranges that TLBs had to forget.
    pub shootdowns: u64,
    /// Page-table entries written, aliases included.
    pub entries_written: u64,
    /// Faults for which there was no memory.
    pub out_of_memory: u64,
    /// Pages made larger in place, by the order of the new one.
    pub grown_by_order: [u64; Order::COUNT],
    /// Bytes that nobody had touched when they were mapped: internal fragmentation, as far as a
    /// policy knows of it.
    pub bytes_mapped_untouched: u64,
    /// Pages or reservations that were smaller than wanted, since no block was free.
    pub fallbacks: u64,
    /// Pages that hold zeros and share one frame since.
    pub pages_merged: u64,
    /// Those that were stored to, and have a frame of their own again.
    pub pages_unmerged: u64,
    /// Pages with gaps made.
    pub gapped: u64,
    /// Perforated pages made.
    pub perforations: u64,
    /// Holes punched in perforated pages.
    pub punches: u64,
    /// Holes patched: what lay in their place is a part of the page again.
    pub patches: u64,
    /// Of the shootdowns, those for hole bits alone: one for each run of pages whose bits changed while no
    /// other was due.
    pub hole_shootdowns: u64,
    /// How often memory was compacted.
    pub compactions: u64,
    /// Frames that compaction moved, foreign ones included.
    pub frames_compacted: u64,
}
