//! Visits: the base pages that an execution of a segment touches, in program order, in few bytes.

use crate::addr::VirtAddr;
use crate::page::{PageNumber, PageSize};
use crate::segment::{DataItem, Item, ItemKind};

/// The visits of a segment without guarded items.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Visits {
    /// The page of the first fetch; [`NO_PAGE`] if there is none.
    first_page: u64,
    references: u32,
    words: Box<[u64]>,
}

/// A visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// A data item.
    Data(DataVisit),
    /// Fetches from another page than before.
    Fetch {
        /// The page.
        page: PageNumber,
        /// The references of the segment before it.
        before: u32,
        /// Whether they begin with the second half of the last instruction before, which spans from the page before:
        /// one more look-up than there are fetches.
        spilled: bool,
    },
}

/// A data item. From the lowest bit: the highest offset in a base page from which it does not reach into the next
/// page, its distance from the address that comes for its group (12 bits each), the number of its group, the
/// references before it (16 bits each), and the references that it makes (2 bits).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataVisit(u64);

/// No page has this number.
const NO_PAGE: u64 = u64::MAX;
/// The bits of an offset in a base page.
const OFFSET_BITS: u32 = PageSize::BASE.log2() as u32;
const OFFSET_SHIFT: u32 = OFFSET_BITS;
const GROUP_SHIFT: u32 = 2 * OFFSET_BITS;
const BEFORE_SHIFT: u32 = GROUP_SHIFT + u16::BITS;
const REFERENCES_SHIFT: u32 = BEFORE_SHIFT + u16::BITS;
/// Marks fetches from another page; the next word is the page's number.
const FETCH: u64 = 1 << 63;
/// Marks that they are spilled.
const SPILLED: u64 = 1 << 62;

impl Visits {
    /// The visits of the items of a segment, of which `data` are the data items. `None` if an item may be skipped, or if
    /// there are 2^16 references or more.
    pub(crate) fn of(items: &[Item], data: &[DataItem]) -> Option<Self> {
        let (mut first_page, mut last_page) = (NO_PAGE, None);
        let (mut before, mut words) = (0u32, Vec::with_capacity(data.len()));
        let mut data = data.iter();
        for item in items {
            u16::try_from(before).ok()?;
            if item.kind != ItemKind::Fetch {
                let item = data.next().filter(|item| !item.guarded)?;
                words.push(DataVisit::new(item, before)?.0);
                before += u32::from(item.references);
                continue;
            }
            let last_byte = item.addr.wrapping_add(u64::from(item.size_bytes) - 1);
            let [first, last] = [item.addr, last_byte].map(|addr| addr.page(PageSize::BASE));
            match last_page {
                None => first_page = first.raw(),
                Some(page) if page == first => {}
                Some(_) => words.extend([FETCH | u64::from(before) << BEFORE_SHIFT, first.raw()]),
            }
            before += 1;
            if last != first {
                words.extend([FETCH | SPILLED | u64::from(before) << BEFORE_SHIFT, last.raw()]);
            }
            last_page = Some(last);
        }
        u16::try_from(before).ok()?;
        Some(Visits { first_page, references: before, words: words.into() })
    }

    /// The page of the first fetch, if there is one.
    #[inline(always)]
    pub fn first_page(&self) -> Option<PageNumber> {
        (self.first_page != NO_PAGE).then_some(PageNumber::new(self.first_page))
    }

    /// How many references one execution makes.
    #[inline(always)]
    pub fn references(&self) -> u32 {
        self.references
    }

    /// An upper bound on their number.
    #[inline(always)]
    pub fn most(&self) -> usize {
        self.words.len()
    }

    /// The visits, without that of the first page that is fetched from.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = Visit> + '_ {
        let mut words = self.words.iter();
        std::iter::from_fn(move || {
            let word = *words.next()?;
            if word & FETCH == 0 {
                return Some(Visit::Data(DataVisit(word)));
            }
            let (before, spilled) = (DataVisit(word).before(), word & SPILLED != 0);
            Some(Visit::Fetch { page: PageNumber::new(*words.next()?), before, spilled })
        })
    }
}

impl DataVisit {
    /// `None` if the number of its group has more than 16 bits.
    fn new(item: &DataItem, before: u32) -> Option<Self> {
        let group = u16::try_from(item.group).ok()?;
        let parts = [
            (u64::from(item.last_whole_offset), 0),
            (u64::from(item.offset), OFFSET_SHIFT),
            (u64::from(group), GROUP_SHIFT),
            (u64::from(before), BEFORE_SHIFT),
            (u64::from(item.references), REFERENCES_SHIFT),
        ];
        Some(DataVisit(parts.into_iter().fold(0, |word, (part, shift)| word | part << shift)))
    }

    #[inline(always)]
    fn part(self, shift: u32, bits: u32) -> u64 {
        self.0 >> shift & ((1 << bits) - 1)
    }

    /// Its address, by those of the address groups.
    #[inline(always)]
    pub fn address(self, of_groups: &[u64]) -> VirtAddr {
        let of_group = VirtAddr::new(of_groups[self.part(GROUP_SHIFT, u16::BITS) as usize]);
        of_group.wrapping_add(self.part(OFFSET_SHIFT, OFFSET_BITS))
    }

    /// Whether it lies in one page at this address.
    #[inline(always)]
    pub fn is_whole_at(self, addr: VirtAddr) -> bool {
        addr.raw() % PageSize::BASE.bytes() <= self.part(0, OFFSET_BITS)
    }

    /// The references that the segment makes before it.
    #[inline(always)]
    pub fn before(self) -> u32 {
        self.part(BEFORE_SHIFT, u16::BITS) as u32
    }

    /// The references that it makes.
    #[inline(always)]
    pub fn references(self) -> u32 {
        self.part(REFERENCES_SHIFT, 2) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{AddressPlace, Segment};

    fn item(kind: ItemKind, size_bytes: u16, addr: u64) -> Item {
        Item::new(kind, size_bytes, VirtAddr::new(addr))
    }

    fn segment(items: &[Item], places: &[(bool, u16)]) -> Segment {
        let places = places.iter().map(|&(leads, offset)| AddressPlace { leads, offset });
        Segment::with_places(items.to_vec(), vec![], &places.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn visits_are_in_program_order() {
        let items = [
            item(ItemKind::Fetch, 3, 0x1ff0),
            item(ItemKind::Modify, 8, 0),
            item(ItemKind::Load, 4096, 0),
            item(ItemKind::Fetch, 7, 0x1ffc),
            item(ItemKind::Store, 1, 0),
            item(ItemKind::Fetch, 2, 0x2003),
            item(ItemKind::Fetch, 2, 0x7000),
        ];
        let segment = segment(&items, &[(true, 16), (false, 0), (true, 0)]);
        let visits = segment.visits().unwrap();
        assert_eq!(visits.first_page(), Some(PageNumber::new(1)));
        assert_eq!(visits.references(), 8);
        let groups = [0x5000, 0x6fff];
        let seen = visits.iter().map(|visit| match visit {
            Visit::Data(data) => {
                let addr = data.address(&groups);
                let is_whole = [addr, addr.wrapping_add(1)].map(|addr| data.is_whole_at(addr));
                (addr.raw(), data.before(), data.references(), is_whole)
            }
            Visit::Fetch { page, before, spilled } => (page.raw(), before, 0, [spilled; 2]),
        });
        let expected = [
            (0x5010, 1, 2, [true, true]),
            (0x5000, 3, 1, [true, false]),
            (2, 5, 0, [true, true]),
            (0x6fff, 5, 1, [true, true]),
            (7, 7, 0, [false, false]),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
        assert_eq!(visits.most(), 3 + 2 * 2);
    }

    #[test]
    fn data_may_come_before_any_fetch() {
        let items = [item(ItemKind::Load, 8, 0), item(ItemKind::Fetch, 1, 0x3000)];
        let segment = segment(&items, &[]);
        let visits = segment.visits().unwrap();
        assert_eq!((visits.first_page(), visits.references()), (Some(PageNumber::new(3)), 2));
        assert!(matches!(visits.iter().collect::<Vec<_>>()[..], [Visit::Data(_)]));
        let empty = segment_of_fetches(0);
        assert_eq!(empty.visits().unwrap().first_page(), None);
        assert_eq!(empty.visits().unwrap().iter().next(), None);
    }

    fn segment_of_fetches(count: usize) -> Segment {
        segment(&vec![item(ItemKind::Fetch, 1, 0x1000); count], &[])
    }

    #[test]
    fn guarded_items_and_many_references_have_no_visits() {
        let guarded = Item { guarded: true, ..item(ItemKind::Load, 8, 0) };
        assert!(segment(&[guarded], &[]).visits().is_none());
        assert_eq!(segment_of_fetches(0xffff).visits().unwrap().references(), 0xffff);
        assert!(segment_of_fetches(0x1_0000).visits().is_none());
    }
}
