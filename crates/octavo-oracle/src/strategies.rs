//! Random segments and streams, with typical and extreme patterns of programs.

use std::ops::Range;

use octavo_types::{
    AddrRange, AddressPlace, Consumer, Dependences, Event, Item, ItemKind, MapSource, PageSize,
    Protection, Segment, VirtAddr,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::lowest_at_start;
pub use crate::page_sequence::page_sequence;

/// One step of a [`RandomStream`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// An execution of the segment with this index in the table, with its data addresses.
    Segment(usize, Vec<VirtAddr>),
    /// An event between segments.
    Event(Event),
}

/// A stream over a small table of segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RandomStream {
    /// The segments that it executes.
    pub segments: Vec<Segment>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl RandomStream {
    /// Feeds the whole stream to `consumer`.
    pub fn play(&self, consumer: &mut (impl Consumer + ?Sized)) {
        for step in &self.steps {
            match step {
                Step::Segment(index, addresses) => {
                    consumer.segment(&self.segments[*index], addresses);
                }
                Step::Event(event) => consumer.event(event),
            }
        }
    }
}

/// Dependences of an instruction, half of them with late values, whose sets are drawn from `bits`.
pub fn dependences<S: Strategy<Value = u64>>(
    bits: impl Fn() -> S,
) -> impl Strategy<Value = Dependences> {
    let late = prop_oneof![Just((0, 0)), (bits(), bits())];
    (bits(), bits(), bits(), late).prop_map(
        |(producers, reads, writes, (late_producers, late_reads))| Dependences {
            late_producers,
            late_reads,
            ..Dependences::new(producers, reads, writes)
        },
    )
}

/// Segments of up to twelve instructions: mostly straight runs, some across a page boundary,
/// some with jumps inside; loads, stores, modifies, guarded and atomic items of 1 to 64 bytes, some in
/// address groups.
pub fn segment() -> impl Strategy<Value = Segment> {
    (code_addr(), vec(instruction(), 1..=12)).prop_map(|(start, instructions)| {
        let (mut items, mut data_items) = (Vec::new(), Vec::new());
        let mut addr = start;
        for (jump_bytes, size_bytes, data) in instructions {
            addr = addr.wrapping_add(jump_bytes);
            items.push(Item::new(ItemKind::Fetch, size_bytes, addr));
            items.extend(data.iter().map(|(item, _)| *item));
            data_items.extend(data);
            addr = addr.wrapping_add(u64::from(size_bytes));
        }
        let places = places(&data_items);
        Segment::with_places(items, Vec::new(), &places).expect("every item is sound")
    })
}

/// The places of data items, each of which may join the address group of the item before at a distance.
fn places(items: &[(Item, Option<u16>)]) -> Vec<AddressPlace> {
    let mut before_guarded = true;
    let place = |(item, joins): &(Item, Option<u16>)| {
        let room = PageSize::BASE.bytes() as u16 - item.size_bytes;
        let leads = before_guarded || item.guarded || joins.is_none();
        before_guarded = item.guarded;
        let offset = joins.filter(|_| !item.guarded).map_or(0, |offset| offset.min(room));
        AddressPlace { leads, offset }
    };
    lowest_at_start(items.iter().map(place).collect())
}

/// Streams of `steps` executions and events over one to eight segments.
///
/// Data addresses mix runs on one page, strides, a few hot pages among many, pages far apart, random
/// addresses in the lower half of the address space, and references that span two pages of some size. About
/// one step in sixteen is an event; memory events concern the same pages as the data.
pub fn stream(steps: Range<usize>) -> impl Strategy<Value = RandomStream> {
    let step = prop_oneof![
        15 => (any::<Index>(), vec(target(), 1..6)).prop_map(Ok),
        1 => event().prop_map(Err),
    ];
    (vec(segment(), 1..=8), vec(step, steps)).prop_map(|(segments, drafts)| {
        // The address of the last reference, from which same-page runs and strides continue.
        let mut last = VirtAddr::new(0x10_0000);
        let mut step = |draft: Result<(Index, Vec<Target>), Event>| match draft {
            Err(event) => Step::Event(event),
            Ok((index, targets)) => {
                let index = index.index(segments.len());
                let groups = segments[index].groups().zip(targets.iter().cycle());
                let addresses = groups.flat_map(|(items, target)| {
                    let first = &items[0];
                    let start = if first.guarded && target.skips {
                        VirtAddr::NULL
                    } else {
                        last = target.place(last, first.size_bytes);
                        last
                    };
                    items.iter().map(move |item| start.wrapping_add(item.offset.into()))
                });
                Step::Segment(index, addresses.collect())
            }
        };
        let steps = drafts.into_iter().map(&mut step).collect();
        RandomStream { segments, steps }
    })
}

/// A stream of loads, for models that depend on time. A step is a base page of a small universe, the number
/// of loads (1 to 40, or 600), and whether each load spans the next page, too. Each step also has one fetch.
pub fn loads(steps: &[(u64, usize, bool)]) -> RandomStream {
    let item = |kind, size_bytes, addr| Item::new(kind, size_bytes, VirtAddr::new(addr));
    let segment = |loads: usize| {
        let mut items = vec![item(ItemKind::Fetch, 4, 0x40_0000)];
        items.extend(std::iter::repeat_n(item(ItemKind::Load, 8, 0), loads));
        Segment::new(items, Vec::new()).expect("every item is sound")
    };
    let steps = steps.iter().map(|&(page, loads, spans)| {
        let addr = VirtAddr::new(((0x100 + page) << 12) + if spans { 4092 } else { 0 });
        Step::Segment(loads.min(41) - 1, vec![addr; loads])
    });
    RandomStream { segments: (1..=40).chain([600]).map(segment).collect(), steps: steps.collect() }
}

/// Random [`loads`] of `pages` base pages.
pub fn few_pages(pages: u64, steps: Range<usize>) -> impl Strategy<Value = RandomStream> {
    let run = prop_oneof![60 => Just(1usize), 20 => 1usize..=4, 20 => 1usize..=40, 1 => Just(600)];
    let step = (0..pages, run, prop::bool::weighted(0.15));
    vec(step, steps).prop_map(|steps| loads(&steps))
}

/// As [`few_pages`], with stores in place of the last loads of some steps.
pub fn few_pages_with_stores(
    pages: u64,
    steps: Range<usize>,
) -> impl Strategy<Value = RandomStream> {
    let stores = vec(prop::bool::weighted(0.2), steps.end);
    (few_pages(pages, steps), stores).prop_map(|(mut random, stores)| {
        let with_store = |segment: &Segment| {
            let mut items = segment.items().to_vec();
            items.last_mut().expect("a load").kind = ItemKind::Store;
            Segment::new(items, Vec::new()).expect("every item is sound")
        };
        let segments = random.segments.len();
        let storing: Vec<Segment> = random.segments.iter().map(with_store).collect();
        random.segments.extend(storing);
        for (step, _) in random.steps.iter_mut().zip(stores).filter(|(_, stores)| *stores) {
            if let Step::Segment(number, _) = step {
                *number += segments;
            }
        }
        random
    })
}

/// The target of a data reference.
#[derive(Clone, Copy, Debug)]
struct Target {
    place: Place,
    /// Whether a guarded item does not execute.
    skips: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// This offset in the page of the last reference.
    SamePage(u64),
    /// An address at this distance in bytes from the last reference.
    Stride(u64),
    /// This offset from the start of a page of the small universe.
    Near { page: u64, offset: u64 },
    /// Anywhere.
    Anywhere(u64),
    /// At the end of the page of this size that holds the last reference: the access begins `bytes_before`, modulo its
    /// size, before the last byte of the page.
    Spanning { log2: u8, bytes_before: u64 },
}

impl Target {
    fn place(self, last: VirtAddr, size_bytes: u16) -> VirtAddr {
        let last = last.raw();
        let base = PageSize::BASE.bytes();
        let addr = match self.place {
            Place::SamePage(offset) => last / base * base + offset,
            Place::Stride(bytes) => last + bytes,
            Place::Near { page, offset } => page * base + offset,
            Place::Anywhere(addr) => addr,
            Place::Spanning { log2, bytes_before } => {
                let end = ((last >> log2) + 1) << log2;
                end - 1 - bytes_before % u64::from(size_bytes)
            }
        };
        // Long strides come back to the start, below the top and above page 0.
        VirtAddr::new(addr % (1 << 47) + if addr.is_multiple_of(1 << 47) { base } else { 0 })
    }
}

fn target() -> impl Strategy<Value = Target> {
    let offset = || 0..PageSize::BASE.bytes();
    let place = prop_oneof![
        4 => offset().prop_map(Place::SamePage),
        2 => (12u8..22).prop_map(|log2| Place::Stride(1 << log2)),
        2 => (1u64..10_000).prop_map(Place::Stride),
        6 => (near_page(), offset()).prop_map(|(page, offset)| Place::Near { page, offset }),
        1 => (0u64..1 << 47).prop_map(Place::Anywhere),
        2 => (12u8..=30, any::<u64>())
            .prop_map(|(log2, bytes_before)| Place::Spanning { log2, bytes_before }),
    ];
    (place, prop::bool::weighted(0.3)).prop_map(|(place, skips)| Target { place, skips })
}

/// A page of the universe that data and events share: a few hot pages, a tail of 512, and some far apart.
fn near_page() -> impl Strategy<Value = u64> {
    let tail = (0u32..10, any::<u64>()).prop_map(|(log2, page)| 0x100 + page % (1 << log2));
    let far = (0u64..40, 0u64..3).prop_map(|(block, page)| 0x100 + (block << 18) + page);
    prop_oneof![4 => tail, 1 => far]
}

fn code_addr() -> impl Strategy<Value = VirtAddr> {
    let near = (0x400_000u64..0x440_000).prop_map(VirtAddr::new);
    let at_page_end =
        (0x400u64..0x600, 1u64..40).prop_map(|(page, before)| VirtAddr::new((page << 12) - before));
    let far = (0x1000u64..1 << 46).prop_map(VirtAddr::new);
    prop_oneof![3 => near, 3 => at_page_end, 1 => far]
}

/// An instruction: its distance from the end of the instruction before, its size, and its data items. A data item
/// that joins the address group of the item before has its distance from the address of the group.
fn instruction() -> impl Strategy<Value = (u64, u16, Vec<(Item, Option<u16>)>)> {
    let jump_bytes = prop_oneof![9 => Just(0u64), 1 => 1u64..9000];
    (jump_bytes, 1u16..=15, prop_oneof![2 => vec(data_item(), 0..1), 3 => vec(data_item(), 0..4)])
}

fn data_item() -> impl Strategy<Value = (Item, Option<u16>)> {
    let kind = prop_oneof![3 => Just(ItemKind::Load), 2 => Just(ItemKind::Store), 1 => Just(ItemKind::Modify)];
    let size_bytes = prop_oneof![
        8 => (0u32..7).prop_map(|log2| 1u16 << log2),
        1 => 1u16..=600,
        1 => Just(4096u16),
    ];
    let joins = prop_oneof![
        3 => Just(None),
        3 => (0u16..100).prop_map(Some),
        1 => (0u16..4096).prop_map(Some),
    ];
    let parts = (kind, prop::bool::weighted(0.2), size_bytes, joins);
    parts.prop_map(|(kind, guarded, size_bytes, joins)| {
        let atomic = kind == ItemKind::Modify && size_bytes <= 16;
        (Item { kind, guarded, atomic, size_bytes, addr: VirtAddr::NULL }, joins)
    })
}

/// A range of the universe that starts at a page and may end inside one.
fn range() -> impl Strategy<Value = AddrRange> {
    let bytes = prop_oneof![3 => (1u64..20).prop_map(|pages| pages << 12), 1 => 1u64..0x20_0000];
    (near_page(), bytes).prop_map(|(page, bytes)| AddrRange::new(VirtAddr::new(page << 12), bytes))
}

fn event() -> impl Strategy<Value = Event> {
    let protection = Protection::from_bits(3);
    let source = prop_oneof![
        3 => Just(MapSource::Anonymous),
        1 => Just(MapSource::File { path: "/lib/libm.so.6".into(), offset_bytes: 0x1000 }),
        1 => Just(MapSource::Stack),
        1 => Just(MapSource::Heap),
        1 => Just(MapSource::Shared),
    ];
    prop_oneof![
        3 => (range(), source)
            .prop_map(move |(range, source)| Event::Map { range, protection, source, flags: 0 }),
        3 => range().prop_map(|range| Event::Unmap { range }),
        2 => (range(), near_page(), 1u64..0x10_0000).prop_map(|(from, page, bytes)| {
            Event::Remap { from, to: AddrRange::new(VirtAddr::new(page << 12), bytes) }
        }),
        1 => (range(), 1u64..0x10_0000).prop_map(|(from, bytes)| {
            Event::Remap { from, to: AddrRange::new(from.start(), bytes) }
        }),
        1 => range().prop_map(move |range| Event::Protect { range, protection }),
        1 => (range(), 0u64..26).prop_map(|(range, advice)| Event::Advise { range, advice }),
        1 => (1u32..5).prop_map(|thread| Event::ThreadSwitch { thread }),
        1 => (1u64..4).prop_map(|value| Event::Mark { value }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NaiveHierarchy, NaiveReferences, NaiveResidency, NaiveStudy, Stream};

    fn sizes() -> [PageSize; 3] {
        [12, 14, 21].map(|log2| PageSize::from_log2(log2).unwrap())
    }

    proptest! {
        #![proptest_config(crate::cases(64))]

        /// Invariants between the numbers of any stream.
        #[test]
        fn naive_models_agree(stream in stream(0..200)) {
            let mut references = NaiveReferences::default();
            let mut study = NaiveStudy::new(&sizes(), &[4, 16], |addr| addr)
                .with_regions(|addr| (addr.raw() >> 20) as u32);
            let mut residency = NaiveResidency::new(&sizes(), |addr| addr);
            stream.play(&mut references);
            stream.play(&mut study);
            stream.play(&mut residency);

            let counts = study.counts();
            let count = |kind| {
                references.references.iter().filter(|reference| reference.kind == kind).count() as u64
            };
            prop_assert_eq!(counts.instructions, count(ItemKind::Fetch));
            prop_assert_eq!(counts.modifies, count(ItemKind::Modify));
            prop_assert_eq!(counts.loads, count(ItemKind::Load) + counts.modifies);
            prop_assert_eq!(counts.stores, count(ItemKind::Store) + counts.modifies);

            for size in sizes() {
                let pages = study.pages(Stream::All, size);
                prop_assert!(residency.peak_pages(size) >= residency.pages(size).len() as u64);
                for stream in [Stream::Fetch, Stream::Data, Stream::All] {
                    prop_assert!(study.pages(stream, size).is_subset(&pages));
                    let first = study.lookups(stream, size, 0);
                    let second = study.lookups(stream, size, 1);
                    prop_assert_eq!(first.misses, second.accesses);
                    prop_assert!(second.misses >= study.pages(stream, size).len() as u64);
                    let in_regions = study.regions().into_iter()
                        .map(|region| study.region_lookups(region, stream, size, 0).misses)
                        .sum::<u64>();
                    prop_assert_eq!(first.misses, in_regions);
                }
            }
        }

        /// A second level does not change the hits and misses of the first.
        #[test]
        fn first_level_equals_a_single_tlb(pages in vec(0u64..12, 0..200)) {
            let mut one = NaiveHierarchy::new(&[4]);
            let mut two = NaiveHierarchy::new(&[4, 6]);
            for page in pages.into_iter().map(octavo_types::PageNumber::new) {
                prop_assert_eq!(one.access(page) == 0, two.access(page) == 0);
            }
        }
    }
}
