//! The accessed and dirty bits of parts of pages of intermediate sizes that first-level TLB entries know to be
//! set (Guvenilir and Patt, ISCA 2020, section III.C.1).
//!
//! "The vector can be cached with the TLBs and does not actually need to be loaded on a page walk": a new
//! entry knows no bit, and learns each bit when it is stored. Second-level entries know none, so that a
//! refill from there starts again.

use octavo_hw::Asid;
use octavo_os::page_table::parts_of;
use octavo_os::vmas::Pages;
use octavo_types::{PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::Translation;

/// A first-level entry: side, address space, first base page and order.
type Entry = (u8, u64, u64, u8);

/// Per entry, the bits known to be set: accessed bits in the lower half, dirty bits in the upper.
#[derive(Clone, Debug)]
pub struct KnownPartBits {
    vector_bits: u8,
    of_entries: FxHashMap<Entry, u32>,
}

impl KnownPartBits {
    /// Tracks vectors of at most `vector_bits` bits.
    pub fn new(vector_bits: u8) -> Self {
        KnownPartBits { vector_bits, of_entries: FxHashMap::default() }
    }

    fn entry(side: usize, asid: Asid, page: PageNumber, size: PageSize) -> Entry {
        let order = size.base_shift();
        (side as u8, asid.tag(0), page.raw() >> order << order, order)
    }

    /// The bits that a reference to a base page sets, if pages of size `whole` have parts.
    fn needed(&self, page: PageNumber, whole: PageSize, stores: bool) -> Option<u32> {
        let parts = parts_of(whole, self.vector_bits)?;
        let within = page.raw() & ((1 << whole.base_shift()) - 1);
        let part = (within * u64::from(parts)) >> whole.base_shift();
        Some((1 | u32::from(stores) << 16) << part)
    }

    /// Records that an entry has served a reference. Returns whether the entry did not know the bits of that
    /// reference to be set.
    #[inline]
    pub fn record_use(
        &mut self,
        side: usize,
        asid: Asid,
        page: PageNumber,
        translation: &Translation,
        stores: bool,
    ) -> bool {
        let Some(needed) = self.needed(page, translation.whole().size, stores) else {
            return false;
        };
        let known =
            self.of_entries.entry(Self::entry(side, asid, page, translation.size)).or_default();
        let is_new = *known & needed != needed;
        *known |= needed;
        is_new
    }

    /// Whether pages of this size have parts with bits of their own.
    pub fn has_parts(&self, whole: PageSize) -> bool {
        parts_of(whole, self.vector_bits).is_some()
    }

    /// Removes an evicted entry.
    pub fn remove_entry(&mut self, side: usize, asid: Asid, page: PageNumber, size: PageSize) {
        self.of_entries.remove(&Self::entry(side, asid, page, size));
    }

    /// Removes all entries of a side that cover a base page.
    pub fn remove_page(&mut self, side: usize, asid: Asid, page: PageNumber) {
        for order in 0..=PageSize::LARGEST.base_shift() {
            let size = PageSize::from_log2(PageSize::BASE.log2() + order).expect("an order");
            self.remove_entry(side, asid, page, size);
        }
    }

    /// Removes all entries that overlap any of these pages.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) {
        self.of_entries.retain(|(_, tag, first, order), _| {
            *tag != asid.tag(0) || first + (1 << order) <= pages.start || pages.end <= *first
        });
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.of_entries.clear();
    }
}
