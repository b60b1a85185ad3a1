//! One set-associative LRU TLB: a list for each set.

/// The id of an empty entry.
const NONE: u32 = u32::MAX;

/// A set-associative TLB whose entries are dense page numbers.
pub struct Tlb {
    ways: usize,
    mask: u64,
    /// The sets one after the other, each with its most recently used entry first.
    entries: Vec<u32>,
}

impl Tlb {
    /// An empty TLB of 2^`sets_log2` sets.
    pub fn new(sets_log2: u8, ways: u32) -> Self {
        let ways = ways as usize;
        Tlb { ways, mask: (1 << sets_log2) - 1, entries: vec![NONE; ways << sets_log2] }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.fill(NONE);
    }

    /// Looks up the page `id` in the set given by the low bits of `number`, and inserts it on a miss.
    /// Returns whether it hit.
    pub fn access(&mut self, id: u32, number: u64) -> bool {
        let first = (number & self.mask) as usize * self.ways;
        let set = &mut self.entries[first..][..self.ways];
        let found = set.iter().position(|entry| *entry == id);
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = id;
        found.is_some()
    }
}
