//! The parts of the global address space outside the segments: the global page table and physical memory. The
//! paper marks them by the top bits of an address (section 4.2, Figure 5); here bits above all segments do.

use octavo_hw::GlobalAddr;
use octavo_types::{PageSize, PhysAddr};

/// The global page table: one entry of four bytes for each page of the global space.
const TABLE: u64 = 1 << 62;
/// Physical memory, cacheable.
const PHYSICAL: u64 = 1 << 61;
/// Start of the root page tables in physical memory, above all frames, so that no other use conflicts.
const ROOT_TABLES: u64 = 1 << 42 | 1 << 16;
/// log2 of the bytes of a page-table entry.
const PTE_LOG2: u32 = 2;

/// The address of an entry of the global page table, the *UPTE* of an address in a segment (Figure 7, step
/// 1): the number of its page selects it. Pages here have 2^`page_log2` bytes, since each unit of protection
/// has an entry.
pub fn user_entry(addr: GlobalAddr, page_log2: u32) -> GlobalAddr {
    GlobalAddr::new(TABLE | addr.raw() >> page_log2 << PTE_LOG2)
}

/// The physical address of the entry of a root page table, the *URPT*, that maps the page of the UPTE of an
/// address (Figure 7, step 2). With page-sized protection each segment has a group of 64 entries, 256 bytes;
/// the groups are in the order of first use, while the paper's order is that of effective addresses.
pub fn root_entry(addr: GlobalAddr, page_log2: u32) -> PhysAddr {
    let pages_log2 = page_log2 + u32::from(PageSize::BASE.log2()) - PTE_LOG2;
    PhysAddr::new(ROOT_TABLES + (addr.raw() >> pages_log2 << PTE_LOG2))
}

/// The global address by which virtual caches hold a physical address.
pub fn physical(addr: PhysAddr) -> GlobalAddr {
    GlobalAddr::new(PHYSICAL | addr.raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.2: each 4 KiB of entries maps 4 MiB, and each root entry maps such a page of entries.
    #[test]
    fn entry_addresses_match_figure_7() {
        let addr = GlobalAddr::new(0x1234_5678);
        assert_eq!(user_entry(addr, 12).raw(), TABLE | 0x1_2345 << 2);
        assert_eq!(root_entry(addr, 12).raw(), ROOT_TABLES + (0x1234_5678 >> 22) * 4);
        let next_segment = GlobalAddr::new(0x1_0000_0000);
        // With an entry per line of 16 bytes, the entries of 16 KiB fill a page.
        assert_eq!(user_entry(addr, 4).raw(), TABLE | 0x123_4567 << 2);
        assert_eq!(root_entry(addr, 4).raw(), ROOT_TABLES + (0x1234_5678 >> 14) * 4);
        assert_eq!(root_entry(next_segment, 12).raw() - ROOT_TABLES, 16 * 256);
    }
}
