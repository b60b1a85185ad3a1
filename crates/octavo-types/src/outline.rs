//! Outlines: what page-level engines read of a segment at each execution, in one line of the cache.

use crate::page::{PageNumber, PageSize};
use crate::segment::{DataItem, Segment};

/// A data item: from the bottom, the highest offset in a base page from which it does not reach into the
/// next page (12 bits), whether it stores, and how many references it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutlinedItem(u16);

const STORES: u16 = 1 << PageSize::BASE.log2();
const REFERENCES_SHIFT: u32 = PageSize::BASE.log2() as u32 + 1;

impl OutlinedItem {
    fn new(item: &DataItem) -> Self {
        let stores = if item.stores { STORES } else { 0 };
        OutlinedItem(
            item.last_whole_offset | stores | u16::from(item.references) << REFERENCES_SHIFT,
        )
    }

    /// The highest offset in a base page from which it does not reach into the next page.
    #[inline(always)]
    pub fn last_whole_offset(self) -> u16 {
        self.0 & (STORES - 1)
    }

    /// Whether the last of its references is a store.
    #[inline(always)]
    pub fn stores(self) -> bool {
        self.0 & STORES != 0
    }

    /// How many references it makes when it executes.
    #[inline(always)]
    pub fn references(self) -> u64 {
        (self.0 >> REFERENCES_SHIFT).into()
    }
}

/// The number of base pages that a segment with an outline fetches from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Pages {
    One,
    Two,
}

/// A segment of few data items whose fetches lie in one or two base pages, in one line of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Outline {
    first: PageNumber,
    second: PageNumber,
    counts: [u32; 4],
    first_fetches: u16,
    addresses: u8,
    pages: Pages,
    items: [OutlinedItem; Outline::MOST_ITEMS],
}

impl Outline {
    /// The greatest number of data items of a segment that has an outline.
    pub const MOST_ITEMS: usize = 14;
    /// The greatest number of instructions of a segment that has an outline.
    pub const MOST_INSTRUCTIONS: u32 = 1 << 12;

    /// The outline of a segment; `None` where it fetches from more pages or from none, or has too many
    /// items.
    pub fn of(segment: &Segment) -> Option<Self> {
        let (first, second, pages) = match segment.fetch_pages() {
            [one] => (one, one, Pages::One),
            [first, second] if !second.spilled => (first, second, Pages::Two),
            _ => return None,
        };
        let data = segment.data();
        if data.len() > Self::MOST_ITEMS || segment.instructions() > Self::MOST_INSTRUCTIONS {
            return None;
        }
        let mut items = [OutlinedItem::default(); Self::MOST_ITEMS];
        for (outlined, item) in items.iter_mut().zip(data) {
            *outlined = OutlinedItem::new(item);
        }
        Some(Outline {
            first: first.page,
            second: second.page,
            counts: [segment.instructions(), segment.loads(), segment.stores(), segment.modifies()],
            first_fetches: first.fetches as u16,
            addresses: data.len() as u8,
            pages,
            items,
        })
    }

    /// The base page that it fetches from first.
    #[inline(always)]
    pub fn first_page(&self) -> PageNumber {
        self.first
    }

    /// The number of fetches from the first page.
    #[inline(always)]
    pub fn first_fetches(&self) -> u32 {
        self.first_fetches.into()
    }

    /// The base page that the other fetches are from, if there is one.
    #[inline(always)]
    pub fn second_page(&self) -> Option<PageNumber> {
        (self.pages == Pages::Two).then_some(self.second)
    }

    /// Instructions, which are as many as fetches, loads, stores, and loads and stores that are one item,
    /// were every guarded item to execute.
    #[inline(always)]
    pub fn counts(&self) -> [u32; 4] {
        self.counts
    }

    /// The number of data items: one address each comes with every execution.
    #[inline(always)]
    pub fn addresses(&self) -> usize {
        self.addresses.into()
    }

    /// A data item by its place in execution order.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[inline(always)]
    pub fn item(&self, place: usize) -> OutlinedItem {
        self.items[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::VirtAddr;
    use crate::segment::{Item, ItemKind};

    fn item(kind: ItemKind, size_bytes: u16, addr: u64) -> Item {
        Item { kind, guarded: false, atomic: false, size_bytes, addr: VirtAddr::new(addr) }
    }

    #[test]
    fn an_outline_has_what_its_segment_has() {
        let mut items = vec![
            item(ItemKind::Fetch, 3, 0x1ff0),
            item(ItemKind::Modify, 8, 0),
            item(ItemKind::Fetch, 2, 0x1ff3),
            item(ItemKind::Load, 4096, 0),
            item(ItemKind::Store, 1, 0),
        ];
        let one = Outline::of(&Segment::new(items.clone(), vec![]).unwrap()).unwrap();
        assert_eq!(size_of::<Option<Outline>>(), 64);
        assert_eq!((one.first_page(), one.second_page()), (PageNumber::new(1), None));
        assert_eq!((one.first_fetches(), one.counts()), (2, [2, 2, 2, 1]));
        let of = |item: OutlinedItem| (item.last_whole_offset(), item.stores(), item.references());
        let seen: Vec<_> = (0..one.addresses()).map(|place| of(one.item(place))).collect();
        assert_eq!(seen, [(4088, true, 2), (0, false, 1), (4095, true, 1)]);
        items.push(item(ItemKind::Fetch, 5, 0x7000));
        let two = Outline::of(&Segment::new(items, vec![]).unwrap()).unwrap();
        assert_eq!(two.second_page(), Some(PageNumber::new(7)));
        assert_eq!((two.first_fetches(), two.counts()), (2, [3, 2, 2, 1]));
    }

    #[test]
    fn segments_over_many_pages_or_with_many_items_have_none() {
        let spanning = vec![item(ItemKind::Fetch, 3, 0x1ffe)];
        let without_fetches = vec![item(ItemKind::Load, 3, 0)];
        let three = [1, 2, 1].map(|page| item(ItemKind::Fetch, 1, page << 12)).to_vec();
        let mut many = vec![item(ItemKind::Fetch, 3, 0x1000)];
        many.extend([item(ItemKind::Load, 4, 0); Outline::MOST_ITEMS + 1]);
        for items in [spanning, without_fetches, three, many] {
            assert_eq!(Outline::of(&Segment::new(items, vec![]).unwrap()), None);
        }
    }
}
