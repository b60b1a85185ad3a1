//! Keys of TLB entries: address space, page and page size in one word.

use octavo_hw::Asid;
use octavo_types::PageNumber;

/// Bits of a key for the page-size order and the kind of the entry.
const ORDER_BITS: u32 = 6;
/// Set in the key of an entry of another kind than a page.
const OTHER_KIND: u64 = 1 << (ORDER_BITS - 1);

/// The key of the page of 2^`order` base pages that holds a base page.
#[inline(always)]
pub fn key(asid: Asid, page: PageNumber, order: u8) -> u64 {
    asid.tag(page.raw() >> order << ORDER_BITS | u64::from(order))
}

/// The key of the entry of another kind for the 2^`order` base pages around a base page.
#[inline(always)]
pub fn key_of_kind(asid: Asid, page: PageNumber, order: u8) -> u64 {
    key(asid, page, order) | OTHER_KIND
}

/// The first base page and the order of a key.
pub fn parts(key: u64) -> (PageNumber, u8) {
    let order = (key % OTHER_KIND) as u8;
    (PageNumber::new((key & (Asid::ONLY.tag(u64::MAX))) >> ORDER_BITS << order), order)
}
