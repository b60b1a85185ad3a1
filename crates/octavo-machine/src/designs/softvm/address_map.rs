//! What lies outside the segments of the global address space: the global page table and physical memory.
//! The paper tells them from segments by the top bits of an address (section 4.2, Figure 5); here bits above
//! all segments do.

use octavo_hw::GlobalAddr;
use octavo_types::{PageSize, PhysAddr};

/// The global page table: one entry of four bytes for each page of the global space.
const TABLE: u64 = 1 << 62;
/// Physical memory, cacheable.
const PHYSICAL: u64 = 1 << 61;
/// Where root page tables begin in physical memory: above all frames, so that they are nobody else's.
const ROOT_TABLES: u64 = 1 << 42 | 1 << 16;
/// The logarithm of the bytes of a page-table entry.
const PTE_LOG2: u32 = 2;

/// The address of an entry of the global page table, the *UPTE* of an address in a segment (Figure 7,
/// step 1): its page's number chooses it, and the two lowest bits are 0. Here pages have 2^`page_log2`
/// bytes, as whatever is protected alike has an entry.
pub fn user_entry(addr: GlobalAddr, page_log2: u32) -> GlobalAddr {
    GlobalAddr::new(TABLE | addr.raw() >> page_log2 << PTE_LOG2)
}

/// The physical address of the entry of a root page table, the *URPT*, that maps the page of the UPTE of
/// an address (Figure 7, step 2). Where pages are protected as a whole, each segment has a group of 64 of
/// them, 256 bytes; the groups of a
/// process lie as its segments were first used, where the paper's lie as the effective address says.
pub fn root_entry(addr: GlobalAddr, page_log2: u32) -> PhysAddr {
    let pages_log2 = page_log2 + u32::from(PageSize::BASE.log2()) - PTE_LOG2;
    PhysAddr::new(ROOT_TABLES + (addr.raw() >> pages_log2 << PTE_LOG2))
}

/// A physical address that may be cached, as virtual caches see it.
pub fn physical(addr: PhysAddr) -> GlobalAddr {
    GlobalAddr::new(PHYSICAL | addr.raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.2: each 4 KiB of entries maps 4 MiB, and each root entry those.
    #[test]
    fn entries_lie_as_figure_7_says() {
        let addr = GlobalAddr::new(0x1234_5678);
        assert_eq!(user_entry(addr, 12).raw(), TABLE | 0x1_2345 << 2);
        assert_eq!(root_entry(addr, 12).raw(), ROOT_TABLES + (0x1234_5678 >> 22) * 4);
        let next_segment = GlobalAddr::new(0x1_0000_0000);
        // Where each line of 16 bytes has an entry, those of 16 KiB are a page.
        assert_eq!(user_entry(addr, 4).raw(), TABLE | 0x123_4567 << 2);
        assert_eq!(root_entry(addr, 4).raw(), ROOT_TABLES + (0x1234_5678 >> 14) * 4);
        assert_eq!(root_entry(next_segment, 12).raw() - ROOT_TABLES, 16 * 256);
    }
}
