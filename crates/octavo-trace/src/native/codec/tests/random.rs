//! Random streams of ring words: definitions and redefinitions, records of any kind anywhere,
//! addresses of all sorts.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A stream, item by item.
pub type Items = Vec<Vec<u64>>;

#[derive(Clone, Debug)]
enum Draft {
    /// A definition, under a new number or one that is known, of data items.
    Define {
        known: Option<Index>,
        items: Vec<Item>,
    },
    Record {
        header: u64,
        payload: Vec<u64>,
    },
    Execute {
        segment: Index,
        targets: Vec<Target>,
    },
}

const GUARDED: u64 = 1 << 2;
const JOINED: u64 = 1 << 4;

#[derive(Clone, Copy, Debug)]
enum Item {
    Fetch { addr: u64 },
    Data { word: u64 },
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Anywhere(u64),
    /// At this distance from the last address.
    Near(i64),
    /// At `offset` in the frame, which first moves by `moved`.
    Frame {
        moved: i64,
        offset: u64,
    },
    Null,
}

/// Streams of up to `most` items.
pub fn items(most: usize) -> impl Strategy<Value = Items> {
    let draft = prop_oneof![
        2 => (proptest::option::weighted(0.3, any::<Index>()), vec(item(), 0..12))
            .prop_map(|(known, items)| Draft::Define { known, items }),
        1 => (any::<u64>(), vec(any::<u64>(), 0..6))
            .prop_map(|(header, payload)| Draft::Record { header, payload }),
        17 => (any::<Index>(), vec(target(), 1..8))
            .prop_map(|(segment, targets)| Draft::Execute { segment, targets }),
    ];
    vec(draft, 0..most).prop_map(build)
}

fn build(drafts: Vec<Draft>) -> Items {
    // How many address groups each segment has.
    let mut counts: Vec<usize> = Vec::new();
    let (mut last, mut frame) = (0x7000_0000_0000u64, 0x7fff_ffff_0000u64);
    let mut place = |target: &Target| {
        last = match *target {
            Target::Null => return 0,
            Target::Anywhere(addr) => addr,
            Target::Near(delta) => last.wrapping_add_signed(delta),
            Target::Frame { moved, offset } => {
                frame = frame.wrapping_add_signed(moved);
                frame.wrapping_add(offset)
            }
        };
        last
    };
    let mut step = |draft| match draft {
        Draft::Record { header, payload } => {
            // Any kind but a definition, and any of the bits that have no meaning yet.
            let kind = if (header >> 48) as u8 == 1 { header ^ 2 << 48 } else { header };
            let header = 1 << 63 | kind & !0xffff_ffff | payload.len() as u64;
            [vec![header], payload].concat()
        }
        Draft::Execute { segment, targets } if !counts.is_empty() => {
            let number = segment.index(counts.len());
            let addresses = targets.iter().cycle().take(counts[number]).map(&mut place);
            std::iter::once(number as u64).chain(addresses).collect()
        }
        Draft::Execute { .. } => Vec::new(),
        Draft::Define { known, items } => {
            let number = match known {
                Some(index) if !counts.is_empty() => index.index(counts.len()),
                _ => counts.len(),
            };
            let items = without_impossible_groups(items);
            let leads = |item: &&Item| matches!(item, Item::Data { word } if word & JOINED == 0);
            counts.resize(counts.len().max(number + 1), 0);
            counts[number] = items.iter().filter(leads).count();
            define(number as u64, &items)
        }
    };
    drafts.into_iter().map(&mut step).filter(|words| !words.is_empty()).collect()
}

/// Removes the flag [`JOINED`] from items that cannot join the address group before them.
fn without_impossible_groups(mut items: Vec<Item>) -> Vec<Item> {
    let mut can_join = false;
    for item in &mut items {
        if let Item::Data { word } = item {
            let is_guarded = *word & GUARDED != 0;
            if !can_join || is_guarded {
                *word &= !JOINED;
            }
            can_join = !is_guarded;
        }
    }
    items
}

fn define(number: u64, items: &[Item]) -> Vec<u64> {
    let mut payload = vec![number | (items.len() as u64) << 32, 0];
    for item in items {
        match *item {
            Item::Fetch { addr } => {
                payload[1] += 1;
                payload.extend([4 << 16, addr]);
            }
            Item::Data { word } => payload.push(word),
        }
    }
    payload.extend(vec![7; 3 * payload[1] as usize]);
    let mut words = vec![1 << 63 | 1 << 48 | payload.len() as u64];
    words.append(&mut payload);
    words
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        1 => any::<u64>().prop_map(|addr| Item::Fetch { addr }),
        // A load, a store or a modify, guarded or not, atomic or not, joined or not.
        2 => (1u64..4, 0u64..8, 0u64..100).prop_map(|(kind, flags, offset)| {
            Item::Data { word: kind | flags << 2 | 8 << 16 | offset << 32 }
        }),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    let near = prop_oneof![
        Just(0i64),
        (-4i64..5).prop_map(|words| 8 * words),
        any::<i8>().prop_map(i64::from),
        any::<i16>().prop_map(i64::from),
        any::<i32>().prop_map(i64::from),
        // Where one class ends and the next begins.
        (0u32..64, -1i64..2).prop_map(|(log2, more)| (1i64 << log2).wrapping_add(more)),
        (0u32..64, -1i64..2).prop_map(|(log2, more)| (-1i64 << log2).wrapping_add(more)),
    ];
    prop_oneof![
        1 => any::<u64>().prop_map(Target::Anywhere),
        6 => near.prop_map(Target::Near),
        4 => (prop_oneof![Just(0), -256i64..256], 0u64..128)
            .prop_map(|(moved, offset)| Target::Frame { moved, offset }),
        2 => Just(Target::Null),
    ]
}
