//! What an operating system did, counted.

/// Counts since the start.
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
}
