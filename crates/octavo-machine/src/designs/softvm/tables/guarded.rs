//! A guarded page table (Liedtke, "Address space sparsity and fine granularity", 1995; section 4.3): a tree in which
//! each entry carries a *guard*: the address bits common to all pages below the entry. These bits need no nodes, so
//! that a sparse space as large as the global one has few levels.
//!
//! One table maps the global space. Nodes have sixteen entries of 16 bytes (guard and pointer), so that an
//! address has ten digits of four bits above the page offset. A node exists wherever pages first differ in a
//! digit, and nowhere else. The root's guard is in a register. A 2 MiB page consists of entries of 1 MiB, a 1
//! GiB page of entries of a segment, so that their digits end earlier. A page is inserted when a handler
//! misses it (guard mismatch). Unmapped pages stay until others replace them; addresses of nodes are never
//! reused.

use octavo_hw::GlobalAddr;
use octavo_types::{PageSize, PhysAddr};
use rustc_hash::FxHashMap;

/// log2 of the entries of a node.
const DIGIT_LOG2: u32 = 4;
/// Digits of a base page's number: 52 bits of address.
const DIGITS: u32 = 10;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16;
/// Bytes of a node.
const NODE_BYTES: u64 = ENTRY_BYTES << DIGIT_LOG2;
/// Physical address of the nodes, above all frames.
const NODES: u64 = 1 << 45;

/// A prefix of page digits: their number, and their value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Prefix(u32, u64);

impl Prefix {
    /// The digits that identify the entry of a page.
    fn of_page(page: u64, size: PageSize) -> Self {
        let entry_log2 = u32::from(size.base_shift()) / DIGIT_LOG2 * DIGIT_LOG2;
        // One entry maps at most a segment.
        let entry_log2 = entry_log2.min(16);
        Prefix(DIGITS - entry_log2 / DIGIT_LOG2, page >> entry_log2)
    }

    /// Its first `digits` digits, and the next digit.
    fn split(self, digits: u32) -> (Prefix, u64) {
        let shift = (self.0 - digits - 1) * DIGIT_LOG2;
        let with_next = self.1 >> shift;
        (Prefix(digits, with_next >> DIGIT_LOG2), with_next & ((1 << DIGIT_LOG2) - 1))
    }

    /// The prefix extended by a digit.
    fn then(self, digit: u64) -> Prefix {
        Prefix(self.0 + 1, self.1 << DIGIT_LOG2 | digit)
    }
}

/// A guarded page table.
#[derive(Default)]
pub struct Guarded {
    /// The digits that follow each prefix of a stored page, one bit each. A prefix with several has a node.
    next: FxHashMap<Prefix, u16>,
    /// The number of each node, in order of creation.
    places: FxHashMap<Prefix, u64>,
}

impl Guarded {
    /// The entries that a handler loads, in order, to translate an address in a page of this size.
    pub fn loads(&mut self, addr: GlobalAddr, size: PageSize) -> Vec<PhysAddr> {
        let page = Prefix::of_page(addr.raw() >> PageSize::BASE.log2(), size);
        let mut loads = Vec::new();
        let mut is_here = self.next.contains_key(&page.split(0).0);
        for digits in 0..page.0 {
            let (prefix, digit) = page.split(digits);
            let next = self.next.get(&prefix).copied().unwrap_or(0);
            if next.count_ones() > 1 {
                let node = NODES + self.places[&prefix] * NODE_BYTES;
                loads.push(PhysAddr::new(node + digit * ENTRY_BYTES));
            }
            is_here &= next >> digit & 1 == 1;
        }
        if !is_here || self.next.contains_key(&page) {
            self.put(page);
        }
        loads
    }

    /// Inserts a page, in place of larger and smaller ones.
    fn put(&mut self, page: Prefix) {
        self.drop_below(page);
        for digits in 0..page.0 {
            let (prefix, digit) = page.split(digits);
            let places = self.places.len() as u64;
            let next = self.next.entry(prefix).or_default();
            *next |= 1 << digit;
            if next.count_ones() > 1 {
                self.places.entry(prefix).or_insert(places);
            }
        }
    }

    fn drop_below(&mut self, prefix: Prefix) {
        let Some(next) = self.next.remove(&prefix) else { return };
        for digit in (0..1 << DIGIT_LOG2).filter(|digit| next >> digit & 1 == 1) {
            self.drop_below(prefix.then(digit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_table_skips_common_prefixes() {
        let mut table = Guarded::default();
        let mut asked = |page: u64, size| -> Vec<u64> {
            let loads = table.loads(GlobalAddr::new(page << 12), size);
            loads.iter().map(|at| at.raw() - NODES).collect()
        };
        let base = PageSize::BASE;
        // A single page: the root's guard is all of its digits.
        assert_eq!(asked(0x12345, base), [0; 0]);
        assert_eq!(asked(0x12345, base), [0; 0]);
        // A second page that differs in the last digit creates a node, which its first access does not load yet.
        assert_eq!(asked(0x12346, base), [0; 0]);
        assert_eq!(asked(0x12346, base), [0x60]);
        assert_eq!(asked(0x12345, base), [0x50]);
        // A page that differs in the fourth digit creates a node before the other.
        assert_eq!(asked(0x19345, base), [0; 0]);
        assert_eq!(asked(0x12345, base), [0x120, 0x50]);
        assert_eq!(asked(0x19345, base), [0x190]);
        // An entry of 1 MiB of a larger page replaces two pages; then smaller pages return.
        assert_eq!(asked(0x12380, PageSize::HUGE), [0x120]);
        assert_eq!(asked(0x123ff, PageSize::HUGE), [0x120]);
        assert_eq!(asked(0x12345, base), [0x120]);
        assert_eq!(asked(0x12345, base), [0x120]);
        assert_eq!(asked(0x12346, base), [0x120]);
        assert_eq!(asked(0x12346, base), [0x120, 0x60]);
    }
}
