//! What the entries of a first level know of the accessed and dirty bits of the parts of tailored pages
//! (Guvenilir and Patt, ISCA 2020, section III.C.1).
//!
//! "The vector can be cached with the TLBs and does not actually need to be loaded on a page walk": an entry
//! begins with no bit, and a bit is set once it has been stored. An entry of the second level has none; what
//! comes back from there begins anew.

use octavo_hw::Asid;
use octavo_os::page_table::parts_of;
use octavo_os::vmas::Pages;
use octavo_types::{PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::Translation;

/// An entry: its side, its address space, its first base page and its order.
type Entry = (u8, u64, u64, u8);

/// The bits that entries know to be set: accessed below, dirty in the upper half.
#[derive(Clone, Debug)]
pub struct KnownPartBits {
    vector_bits: u8,
    of_entries: FxHashMap<Entry, u32>,
}

impl KnownPartBits {
    /// Of entries that have vectors of at most so many bits.
    pub fn new(vector_bits: u8) -> Self {
        KnownPartBits { vector_bits, of_entries: FxHashMap::default() }
    }

    fn entry(side: usize, asid: Asid, page: PageNumber, size: PageSize) -> Entry {
        let order = size.base_shift();
        (side as u8, asid.tag(0), page.raw() >> order << order, order)
    }

    /// The bits that a reference to a base page of a page of some size needs, if it has parts.
    fn needed(&self, page: PageNumber, whole: PageSize, stores: bool) -> Option<u32> {
        let parts = parts_of(whole, self.vector_bits)?;
        let within = page.raw() & ((1 << whole.base_shift()) - 1);
        let part = (within * u64::from(parts)) >> whole.base_shift();
        Some((1 | u32::from(stores) << 16) << part)
    }

    /// An entry of a side has served a reference. Returns whether it did not know yet that the bits for that are
    /// set.
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
        let record_use = *known & needed != needed;
        *known |= needed;
        record_use
    }

    /// Whether a page has parts.
    pub fn has_parts(&self, whole: PageSize) -> bool {
        parts_of(whole, self.vector_bits).is_some()
    }

    /// An entry has gone.
    pub fn remove_entry(&mut self, side: usize, asid: Asid, page: PageNumber, size: PageSize) {
        self.of_entries.remove(&Self::entry(side, asid, page, size));
    }

    /// All entries of a side have gone that hold a base page.
    pub fn remove_page(&mut self, side: usize, asid: Asid, page: PageNumber) {
        for order in 0..=PageSize::LARGEST.base_shift() {
            let size = PageSize::from_log2(PageSize::BASE.log2() + order).expect("an order");
            self.remove_entry(side, asid, page, size);
        }
    }

    /// All entries have gone that hold any of some pages.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) {
        self.of_entries.retain(|(_, of, first, order), _| {
            *of != asid.tag(0) || first + (1 << order) <= pages.start || pages.end <= *first
        });
    }

    /// All entries have gone.
    pub fn clear(&mut self) {
        self.of_entries.clear();
    }
}
