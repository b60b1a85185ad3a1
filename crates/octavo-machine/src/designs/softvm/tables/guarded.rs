//! A guarded page table (Liedtke, "Address space sparsity and fine granularity", 1995; section 4.3): a tree in
//! which an entry carries a *guard*, the bits of an address that are the same for all that is mapped behind
//! it. Those need no nodes of their own, so that a sparse space as large as the global one has few levels.
//!
//! One table maps the global space. Nodes have sixteen entries of 16 bytes (guard and pointer), so that an
//! address is ten digits of four bits above the offset in a page; there is a node wherever pages differ first
//! in a digit, and nowhere else. The root's guard is in a register. A page of 2 MiB is entries of 1 MiB, one
//! of 1 GiB entries of a segment, so that their digits end earlier. A page comes into the table when a handler
//! has missed it there: its guard did not match. Pages that are unmapped stay until others take their place;
//! a node's place is never given to another.

use octavo_hw::GlobalAddr;
use octavo_types::{PageSize, PhysAddr};
use rustc_hash::FxHashMap;

/// The logarithm of a node's entries.
const DIGIT_LOG2: u32 = 4;
/// Digits of a base page's number: 52 bits of address.
const DIGITS: u32 = 10;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16;
/// Bytes of a node.
const NODE_BYTES: u64 = ENTRY_BYTES << DIGIT_LOG2;
/// Where the nodes lie: above all frames, so that they are nobody else's.
const NODES: u64 = 1 << 45;

/// The first digits of pages: how many, and which.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Prefix(u32, u64);

impl Prefix {
    /// The digits of a page's number that its entry is known by.
    fn of_page(page: u64, size: PageSize) -> Self {
        let entry_log2 = u32::from(size.base_shift()) / DIGIT_LOG2 * DIGIT_LOG2;
        // A segment is as much as one entry maps.
        let entry_log2 = entry_log2.min(16);
        Prefix(DIGITS - entry_log2 / DIGIT_LOG2, page >> entry_log2)
    }

    /// Its first digits, and the one behind them.
    fn split(self, digits: u32) -> (Prefix, u64) {
        let backing = (self.0 - digits - 1) * DIGIT_LOG2;
        let with_next = self.1 >> backing;
        (Prefix(digits, with_next >> DIGIT_LOG2), with_next & ((1 << DIGIT_LOG2) - 1))
    }

    /// One digit more.
    fn then(self, digit: u64) -> Prefix {
        Prefix(self.0 + 1, self.1 << DIGIT_LOG2 | digit)
    }
}

/// A guarded page table.
#[derive(Default)]
pub struct Guarded {
    /// Of all first digits of pages here, which digits come next: a bit each. There is a node where several
    /// do.
    next: FxHashMap<Prefix, u16>,
    /// Where nodes lie, in order.
    places: FxHashMap<Prefix, u64>,
}

impl Guarded {
    /// What a handler loads, in order, to find an address in a page of such a size.
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

    /// A page comes in; larger and smaller ones in its place go.
    fn put(&mut self, page: Prefix) {
        self.drop_behind(page);
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

    fn drop_behind(&mut self, prefix: Prefix) {
        let Some(next) = self.next.remove(&prefix) else { return };
        for digit in (0..1 << DIGIT_LOG2).filter(|digit| next >> digit & 1 == 1) {
            self.drop_behind(prefix.then(digit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_skip_what_all_pages_have() {
        let mut table = Guarded::default();
        let mut asked = |page: u64, size| -> Vec<u64> {
            let loads = table.loads(GlobalAddr::new(page << 12), size);
            loads.iter().map(|at| at.raw() - NODES).collect()
        };
        let base = PageSize::BASE;
        // The only page: the root's guard is all of it.
        assert_eq!(asked(0x12345, base), [0; 0]);
        assert_eq!(asked(0x12345, base), [0; 0]);
        // Another one that differs in the last digit: a node, which the first asks for in vain.
        assert_eq!(asked(0x12346, base), [0; 0]);
        assert_eq!(asked(0x12346, base), [0x60]);
        assert_eq!(asked(0x12345, base), [0x50]);
        // One that differs in the fourth: a node before that one.
        assert_eq!(asked(0x19345, base), [0; 0]);
        assert_eq!(asked(0x12345, base), [0x120, 0x50]);
        assert_eq!(asked(0x19345, base), [0x190]);
        // 1 MiB of a larger page in the place of two pages; then a smaller one again.
        assert_eq!(asked(0x12380, PageSize::HUGE), [0x120]);
        assert_eq!(asked(0x123ff, PageSize::HUGE), [0x120]);
        assert_eq!(asked(0x12345, base), [0x120]);
        assert_eq!(asked(0x12345, base), [0x120]);
        assert_eq!(asked(0x12346, base), [0x120]);
        assert_eq!(asked(0x12346, base), [0x120, 0x60]);
    }
}
