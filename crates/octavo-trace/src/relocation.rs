//! Maps the addresses that a program had under the tracer to those that Linux would have given.
//!
//! The tracer already *places* mappings as the kernel does (`tracer/placement.c`); but Valgrind's
//! address space is smaller, so each part of it lies at a constant distance from its native place.

use octavo_types::{AddrRange, PageNumber, PageSize, VirtAddr};

/// A piecewise shift of addresses. Ranges are disjoint; an address in none of them stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocation {
    /// Each range and what is added to its addresses, modulo 2^64; a multiple of a base page.
    moves: Vec<(AddrRange, u64)>,
}

impl Relocation {
    /// Moves every address of each range by its delta in bytes (modulo 2^64).
    pub fn new(moves: Vec<(AddrRange, u64)>) -> Self {
        Relocation { moves }
    }

    /// Whether it has no ranges, as when no other layout is known.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Where a traced address would be.
    #[inline]
    pub fn address(&self, addr: VirtAddr) -> VirtAddr {
        let delta = self.moves.iter().find(|(range, _)| range.contains(addr)).map_or(0, |m| m.1);
        addr.wrapping_add(delta)
    }

    /// Where a traced base page would be.
    #[inline]
    pub fn page(&self, page: PageNumber) -> PageNumber {
        self.address(VirtAddr::new(page.raw() << PageSize::BASE.log2())).page(PageSize::BASE)
    }

    /// Where a traced range would start, its length unchanged.
    pub fn range(&self, range: AddrRange) -> AddrRange {
        AddrRange::new(self.address(range.start()), range.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_moves_by_its_own_delta_and_the_rest_stays() {
        let at = VirtAddr::new;
        let relocation = Relocation::new(vec![
            (AddrRange::new(at(0x1000), 0x2000), 0x10_0000),
            (AddrRange::new(at(0x8000), 0x1000), 0x1000u64.wrapping_neg()),
        ]);
        assert_eq!(relocation.address(at(0xfff)), at(0xfff));
        assert_eq!(relocation.address(at(0x1000)), at(0x10_1000));
        assert_eq!(relocation.address(at(0x2fff)), at(0x10_2fff));
        assert_eq!(relocation.address(at(0x3000)), at(0x3000));
        assert_eq!(relocation.address(at(0x8010)), at(0x7010));
        assert_eq!(relocation.page(PageNumber::new(8)), PageNumber::new(7));
    }
}
