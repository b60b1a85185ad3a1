//! Hole-bitmap words in set-associative arrays (Park et al., ISCA 2020, Section IV-C).

use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{PageNumber, PageSize};

use super::super::perforated::{BITMAP_WORD_ORDER, EntryKinds};
use super::super::{TlbEntry, Translation, size_of};
use super::{Array, Store, key, parts};

impl Array {
    /// Whether it can hold bitmap words.
    pub fn has_sets(&self) -> bool {
        matches!(self.store, Store::Sets { .. })
    }

    /// Looks up the bitmap word of the 32 aligned base pages around `page`. A hit uses the entry.
    pub fn look_up_bitmap(&mut self, asid: Asid, page: PageNumber) -> Option<u32> {
        let Store::Sets { sets, .. } = &mut self.store else { return None };
        let set = sets.geometry().set_of(page.raw() >> BITMAP_WORD_ORDER);
        sets.look_up(set, key(asid, page, BITMAP_WORD_ORDER)).map(|entry| entry.bits())
    }

    /// Fills the bitmap word of the 32 aligned base pages around `page`.
    pub fn fill_bitmap(&mut self, asid: Asid, page: PageNumber, bits: u32) {
        if let Store::Sets { sets, .. } = &mut self.store {
            let set = sets.geometry().set_of(page.raw() >> BITMAP_WORD_ORDER);
            sets.insert(set, key(asid, page, BITMAP_WORD_ORDER), TlbEntry::of_bits(bits));
        }
    }

    /// Adds its entries to the counts by kind.
    pub fn add_content(&self, content: &mut EntryKinds) {
        let Store::Sets { sets, .. } = &self.store else { return };
        for (_, key, entry) in sets.iter() {
            let order = parts(key).1;
            match order {
                BITMAP_WORD_ORDER => content.bitmap += 1,
                _ if Translation { size: size_of(order), entry: *entry }.is_perforated() => {
                    content.perforated += 1;
                }
                0 => content.base += 1,
                _ if size_of(order) == PageSize::HUGE => content.huge += 1,
                _ => content.larger += 1,
            }
        }
    }

    /// Whether it holds a perforated page that lies entirely in a range.
    pub fn has_perforated_in(&self, asid: Asid, pages: &Pages) -> bool {
        let Store::Sets { sets, .. } = &self.store else { return false };
        sets.iter().any(|(_, key, entry)| {
            let (first, order) = parts(key);
            let end = first.raw() + (1 << order);
            Asid::of(key) == asid
                && pages.start <= first.raw()
                && end <= pages.end
                && order != BITMAP_WORD_ORDER
                && Translation { size: size_of(order), entry: *entry }.is_perforated()
        })
    }
}
