//! Outlines: what page-level engines read of a segment at each execution, in one line of the cache.

use crate::page::{PageNumber, PageSize};
use crate::segment::{DataItem, Segment};

/// An address group: from the bottom, the highest offset in a base page from which it does not reach into
/// the next page (12 bits), and how many references it makes (4 bits).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutlinedGroup(u16);

const REFERENCES_SHIFT: u32 = PageSize::BASE.log2() as u32;
const MOST_REFERENCES: u16 = u16::MAX >> REFERENCES_SHIFT;

impl OutlinedGroup {
    /// The items of a group; `None` where they make too many references.
    fn new(items: &[DataItem]) -> Option<Self> {
        let reach_bytes = DataItem::reach_of_group(items);
        let last_whole_offset = (PageSize::BASE.bytes() - u64::from(reach_bytes)) as u16;
        let references: u16 = items.iter().map(|item| u16::from(item.references)).sum();
        (references <= MOST_REFERENCES)
            .then_some(OutlinedGroup(last_whole_offset | references << REFERENCES_SHIFT))
    }

    /// The highest offset in a base page from which it does not reach into the next page.
    #[inline(always)]
    pub fn last_whole_offset(self) -> u16 {
        self.0 & ((1 << REFERENCES_SHIFT) - 1)
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

/// A segment of few address groups whose fetches lie in one or two base pages, in one line of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Outline {
    first: PageNumber,
    second: PageNumber,
    counts: [u16; 4],
    first_fetches: u16,
    /// A bit for each group: whether any item of it stores.
    stores: u16,
    addresses: u8,
    pages: Pages,
    groups: [OutlinedGroup; Outline::MOST_GROUPS],
}

impl Outline {
    /// The greatest number of address groups of a segment that has an outline.
    pub const MOST_GROUPS: usize = 14;
    /// The greatest number of instructions of a segment that has an outline.
    pub const MOST_INSTRUCTIONS: u32 = 1 << 12;

    /// The outline of a segment; `None` where it fetches from more pages or from none, or has too many
    /// groups, or one with too many references.
    pub fn of(segment: &Segment) -> Option<Self> {
        let (first, second, pages) = match segment.fetch_pages() {
            [one] => (one, one, Pages::One),
            [first, second] if !second.spilled => (first, second, Pages::Two),
            _ => return None,
        };
        let addresses = segment.address_groups();
        if addresses > Self::MOST_GROUPS || segment.instructions() > Self::MOST_INSTRUCTIONS {
            return None;
        }
        let mut groups = [OutlinedGroup::default(); Self::MOST_GROUPS];
        let mut stores = 0;
        for (place, items) in segment.groups().enumerate() {
            groups[place] = OutlinedGroup::new(items)?;
            stores |= u16::from(items.iter().any(|item| item.stores)) << place;
        }
        let counts =
            [segment.instructions(), segment.loads(), segment.stores(), segment.modifies()];
        Some(Outline {
            first: first.page,
            second: second.page,
            // Each group has few references.
            counts: counts.map(|count| count as u16),
            first_fetches: first.fetches as u16,
            stores,
            addresses: addresses as u8,
            pages,
            groups,
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
        self.counts.map(u32::from)
    }

    /// The number of address groups: one address each comes with every execution.
    #[inline(always)]
    pub fn addresses(&self) -> usize {
        self.addresses.into()
    }

    /// An address group by its place in execution order.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[inline(always)]
    pub fn group(&self, place: usize) -> OutlinedGroup {
        self.groups[place]
    }

    /// Whether any item of a group stores.
    #[inline(always)]
    pub fn stores(&self, place: usize) -> bool {
        self.stores >> place & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::VirtAddr;
    use crate::segment::{AddressPlace, Item, ItemKind};

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
        let of = |place: usize| {
            let group = one.group(place);
            (group.last_whole_offset(), one.stores(place), group.references())
        };
        let seen: Vec<_> = (0..one.addresses()).map(of).collect();
        assert_eq!(seen, [(4088, true, 2), (0, false, 1), (4095, true, 1)]);
        items.push(item(ItemKind::Fetch, 5, 0x7000));
        let two = Outline::of(&Segment::new(items, vec![]).unwrap()).unwrap();
        assert_eq!(two.second_page(), Some(PageNumber::new(7)));
        assert_eq!((two.first_fetches(), two.counts()), (2, [3, 2, 2, 1]));
    }

    #[test]
    fn an_address_group_is_outlined_as_one() {
        let places = [(true, 8), (false, 0), (true, 0), (false, 4088)];
        let places = places.map(|(leads, offset)| AddressPlace { leads, offset });
        let items = vec![
            item(ItemKind::Fetch, 3, 0x1000),
            item(ItemKind::Modify, 8, 0),
            item(ItemKind::Load, 4, 0),
            item(ItemKind::Load, 8, 0),
            item(ItemKind::Load, 8, 0),
        ];
        let outline = Outline::of(&Segment::with_places(items, vec![], &places).unwrap()).unwrap();
        assert_eq!((outline.addresses(), outline.counts()), (2, [1, 4, 1, 1]));
        let [first, second] = [0, 1].map(|place| outline.group(place));
        assert_eq!((first.last_whole_offset(), first.references()), (4080, 3));
        assert_eq!((second.last_whole_offset(), second.references()), (0, 2));
        assert!(outline.stores(0) && !outline.stores(1));
    }

    #[test]
    fn segments_over_many_pages_or_with_many_groups_have_none() {
        let spanning = vec![item(ItemKind::Fetch, 3, 0x1ffe)];
        let without_fetches = vec![item(ItemKind::Load, 3, 0)];
        let three = [1, 2, 1].map(|page| item(ItemKind::Fetch, 1, page << 12)).to_vec();
        let mut many = vec![item(ItemKind::Fetch, 3, 0x1000)];
        many.extend([item(ItemKind::Load, 4, 0); Outline::MOST_GROUPS + 1]);
        for items in [spanning, without_fetches, three, many] {
            assert_eq!(Outline::of(&Segment::new(items, vec![]).unwrap()), None);
        }
        let long = vec![item(ItemKind::Modify, 4, 0); 8];
        let mut places = [AddressPlace { leads: false, offset: 0 }; 8];
        places[0] = AddressPlace::OWN;
        let long = [vec![item(ItemKind::Fetch, 3, 0x1000)], long].concat();
        let long = Segment::with_places(long, vec![], &places).unwrap();
        assert_eq!(Outline::of(&long), None);
    }
}
