//! Outlines: the part of a segment that page-level engines read at each execution, in one cache
//! line.

use crate::addr::VirtAddr;
use crate::counts::SegmentCounts;
use crate::page::{PageNumber, PageSize};
use crate::segment::{DataItem, Segment};

/// An address group. From the lowest bit: the highest offset in a base page from which the group
/// does not reach into the next page (12 bits), and the number of its references (4 bits).
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

/// A base page that a segment fetches from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutlinedPage {
    /// Where it begins.
    pub start: VirtAddr,
    /// [`PageNumber::hash`].
    pub hash: usize,
}

/// The number of base pages that a segment with an outline fetches from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Pages {
    One,
    Two,
}

/// A segment of few address groups whose fetches lie in one or two base pages, in one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Outline {
    /// Where the pages begin.
    first: VirtAddr,
    second: VirtAddr,
    counts: SegmentCounts,
    first_hash: u16,
    second_hash: u16,
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
        Some(Outline {
            first: start_of(first.page),
            second: start_of(second.page),
            first_hash: first.page.hash() as u16,
            second_hash: second.page.hash() as u16,
            counts: SegmentCounts::of(segment)?,
            first_fetches: first.fetches as u16,
            stores,
            addresses: addresses as u8,
            pages,
            groups,
        })
    }

    /// The base page that it fetches from first.
    #[inline(always)]
    pub fn first_page(&self) -> OutlinedPage {
        OutlinedPage { start: self.first, hash: self.first_hash.into() }
    }

    /// The number of fetches from the first page.
    #[inline(always)]
    pub fn first_fetches(&self) -> u32 {
        self.first_fetches.into()
    }

    /// The base page that the other fetches are from, if there is one.
    #[inline(always)]
    pub fn second_page(&self) -> Option<OutlinedPage> {
        let second = OutlinedPage { start: self.second, hash: self.second_hash.into() };
        (self.pages == Pages::Two).then_some(second)
    }

    /// The counts of an execution, all of whose items execute.
    #[inline(always)]
    pub fn counts(&self) -> SegmentCounts {
        self.counts
    }

    /// Instructions, which are as many as fetches.
    #[inline(always)]
    pub fn instructions(&self) -> u32 {
        self.counts.instructions()
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
    /// If it is not below [`Outline::MOST_GROUPS`].
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

fn start_of(page: PageNumber) -> VirtAddr {
    VirtAddr::new(page.raw() << PageSize::BASE.log2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::SummedCounts;
    use crate::segment::{AddressPlace, Item, ItemKind};

    fn item(kind: ItemKind, size_bytes: u16, addr: u64) -> Item {
        Item::new(kind, size_bytes, VirtAddr::new(addr))
    }

    fn page(number: u64) -> OutlinedPage {
        OutlinedPage { start: VirtAddr::new(number << 12), hash: PageNumber::new(number).hash() }
    }

    fn counts(outline: &Outline, times: usize) -> [u32; 4] {
        let mut counts = SummedCounts::default();
        (0..times).for_each(|_| counts.add(outline.counts()));
        counts.each()
    }

    #[test]
    fn an_outline_agrees_with_its_segment() {
        let mut items = vec![
            item(ItemKind::Fetch, 3, 0x1ff0),
            item(ItemKind::Modify, 8, 0),
            item(ItemKind::Fetch, 2, 0x1ff3),
            item(ItemKind::Load, 4096, 0),
            item(ItemKind::Store, 1, 0),
        ];
        let one = Outline::of(&Segment::new(items.clone(), vec![]).unwrap()).unwrap();
        assert_eq!(size_of::<Option<Outline>>(), 64);
        assert_eq!((one.first_page(), one.second_page()), (page(1), None));
        assert_eq!(
            (one.first_fetches(), one.instructions(), counts(&one, 1)),
            (2, 2, [2, 2, 2, 1])
        );
        let group_at = |place: usize| {
            let group = one.group(place);
            (group.last_whole_offset(), one.stores(place), group.references())
        };
        let seen: Vec<_> = (0..one.addresses()).map(group_at).collect();
        assert_eq!(seen, [(4088, true, 2), (0, false, 1), (4095, true, 1)]);
        items.push(item(ItemKind::Fetch, 5, 0x7000));
        let two = Outline::of(&Segment::new(items, vec![]).unwrap()).unwrap();
        assert_eq!(two.second_page(), Some(page(7)));
        assert_eq!(
            (two.first_fetches(), two.instructions(), counts(&two, 2)),
            (2, 3, [6, 4, 4, 2])
        );
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
        assert_eq!(
            (outline.addresses(), counts(&outline, 1 << 16)),
            (2, [1, 4, 1, 1].map(|count| count << 16))
        );
        let [first, second] = [0, 1].map(|place| outline.group(place));
        assert_eq!((first.last_whole_offset(), first.references()), (4080, 3));
        assert_eq!((second.last_whole_offset(), second.references()), (0, 2));
        assert!(outline.stores(0) && !outline.stores(1));
    }

    #[test]
    fn segments_over_many_pages_or_with_many_groups_have_no_outline() {
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
