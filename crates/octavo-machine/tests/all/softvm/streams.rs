//! Random steps of processes.

use octavo_types::{Access, AddrRange, Event, MapSource, Protection, VirtAddr};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Address of the code.
pub const CODE: u64 = 0x40_0000;
/// Data addresses: two segments that share a register, and others.
const DATA: [u64; 4] = [0x1000_0000, 0x1_1000_0000, 0x7fff_0000_0000, 0x5555_5555_4000];

#[derive(Clone, Debug)]
pub enum Step {
    /// An instruction at an address, its length, and its references.
    Execute(u64, u16, Vec<(Access, u64, u16)>),
    Event(Event),
    /// Another process runs.
    Switch(Index),
    Fork,
    End(Index),
}

/// Address and size of the area for large pages.
const LARGE: (u64, u64) = (0x2000_0000, 4 << 20);

fn page() -> impl Strategy<Value = u64> {
    let large = select(vec![0u64, 1, 255, 256, 511, 512, 513]);
    prop_oneof![
        6 => (select(&DATA[..]), 0u64..6).prop_map(|(base, page)| base + (page << 12)),
        1 => large.prop_map(|page| LARGE.0 + (page << 12)),
    ]
}

fn addr() -> impl Strategy<Value = u64> {
    (page(), prop_oneof![(0u64..4).prop_map(|line| line * 40), 0u64..4096])
        .prop_map(|(page, at)| page + at)
}

fn range() -> impl Strategy<Value = AddrRange> {
    let small = (page(), 1u64..5);
    prop_oneof![
        9 => small.prop_map(|(page, pages)| AddrRange::new(VirtAddr::new(page), pages << 12)),
        1 => Just(AddrRange::new(VirtAddr::new(LARGE.0), LARGE.1)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let file = |path: &str, offset_bytes| MapSource::File { path: path.to_owned(), offset_bytes };
    // Anonymous; private and shared mappings of a file; shared mapping of another file; shared anonymous.
    let source = prop_oneof![
        Just((MapSource::Anonymous, 0x22)),
        (0u64..3).prop_map(move |page| (file("one", page << 12), 2)),
        (0u64..3).prop_map(move |page| (file("one", page << 12), 1)),
        // The second 256 MiB of the file begin inside the mapping.
        (0xffffu64..0x1_0001).prop_map(move |page| (file("other", page << 12), 1)),
        Just((MapSource::Shared, 1)),
    ];
    let protection = select(vec![1u64, 3, 3, 7]).prop_map(Protection::from_bits);
    prop_oneof![
        4 => (range(), source, protection.clone())
            .prop_map(|(range, (source, flags), protection)| Event::Map { range, protection, source, flags }),
        1 => range().prop_map(|range| Event::Unmap { range }),
        4 => (range(), protection).prop_map(|(range, protection)| Event::Protect { range, protection }),
        2 => (range(), page()).prop_map(|(from, page)| {
            Event::Remap { from, to: AddrRange::new(VirtAddr::new(page), from.bytes()) }
        }),
        1 => range().prop_map(|range| Event::Advise { range, advice: 4 }),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let kind = select(vec![Access::Load, Access::Store, Access::Store]);
    let data = vec((kind, addr(), select(vec![1u16, 8, 8, 64, 200])), 0..4);
    let code = prop_oneof![Just(0u64), 0u64..200, 0u64..0x3000];
    prop_oneof![
        40 => (code, 1u16..=15, data).prop_map(|(at, bytes, data)| Step::Execute(at, bytes, data)),
        10 => event().prop_map(Step::Event),
        4 => any::<Index>().prop_map(Step::Switch),
        2 => Just(Step::Fork),
        1 => any::<Index>().prop_map(Step::End),
    ]
}

/// Whether `mremap` accepts the event: its ranges must not overlap.
pub fn is_sound(event: &Event) -> bool {
    let Event::Remap { from, to } = event else { return true };
    from.start() == to.start() || from.end() <= to.start() || to.end() <= from.start()
}
