//! Random programs: entries with references, and the costs of these.

use octavo_hw::ServedBy;
use octavo_types::{Arithmetic, PageNumber, PageSize};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::core::Speculation;
use crate::front::Difference;

/// The cost of a fresh reference.
#[derive(Clone, Debug)]
pub(super) struct CostDraft {
    pub(super) lookup_cycles: u32,
    /// The cycles of the walk without its reads from memory, the lines of these reads, and the size of the page.
    pub(super) walk: Option<(u32, Vec<u64>, Option<PageSize>)>,
    pub(super) speculation: Speculation,
    pub(super) handler_cycles: u32,
    pub(super) served: ServedBy,
    pub(super) cache_cycles: u32,
    pub(super) line: u64,
    pub(super) writes: Vec<u64>,
    /// The level and the line of the prefetch that the reference is the first to use.
    pub(super) used: Option<(usize, u64)>,
    pub(super) prefetches: Vec<PrefetchDraft>,
    pub(super) background: Vec<BackgroundDraft>,
}

/// A walk in the background of an access, or a page that arrives with the walk before it.
#[derive(Clone, Debug)]
pub(super) enum BackgroundDraft {
    /// The cycles of the walk without its reads from memory, and the lines of these reads.
    Walk(u32, Vec<u64>),
    Page(PageNumber, PageSize),
}

#[derive(Clone, Debug)]
pub(super) struct PrefetchDraft {
    pub(super) line: u64,
    pub(super) level: usize,
    pub(super) served: ServedBy,
    pub(super) cycles: u32,
    pub(super) uses_l2: bool,
    pub(super) writes: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct ReferenceDraft {
    pub(super) is_store: bool,
    /// The earlier access of the batch that serves the reference, if there are earlier ones; `None` for a fresh
    /// reference.
    pub(super) repeats: Option<Index>,
    pub(super) line: u64,
    pub(super) cost: Option<CostDraft>,
}

#[derive(Clone, Debug)]
pub(super) struct EntryDraft {
    pub(super) continues: bool,
    /// Whether the branch before it is mispredicted, and whether it is taken.
    pub(super) followed: (bool, bool),
    pub(super) difference: Difference,
    pub(super) writes: bool,
    pub(super) arithmetic: Option<Arithmetic>,
    pub(super) distances: Vec<u64>,
    pub(super) late: Vec<u64>,
    pub(super) forward: Option<u64>,
    pub(super) fetch: Option<(u64, Option<CostDraft>)>,
    pub(super) references: Vec<ReferenceDraft>,
    /// Whether a part of a batch, and a batch, ends with the entry.
    pub(super) ends: (bool, bool),
}

/// One of few base pages in two huge pages.
fn page() -> impl Strategy<Value = u64> {
    prop::sample::select(&[0u64, 1, 2, 512, 513][..])
}

/// One of few lines in these pages.
fn line() -> impl Strategy<Value = u64> {
    (page(), 0u64..3).prop_map(|(page, line)| page << 6 | line)
}

fn background() -> impl Strategy<Value = BackgroundDraft> {
    let size = prop_oneof![Just(PageSize::BASE), Just(PageSize::HUGE)];
    prop_oneof![
        (0u32..60, vec(physical(), 0..3))
            .prop_map(|(cycles, reads)| BackgroundDraft::Walk(cycles, reads)),
        (page(), size).prop_map(|(page, size)| BackgroundDraft::Page(PageNumber::new(page), size)),
    ]
}

/// A physical line, most often in one of few rows.
fn physical() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..16, 1 => 64u64..80, 1 => 0u64..4096]
}

/// One of few physical lines, so that prefetches are used.
fn prefetched() -> impl Strategy<Value = u64> {
    0u64..6
}

fn prefetch() -> impl Strategy<Value = PrefetchDraft> {
    let served =
        prop_oneof![1 => Just(ServedBy::L2), 2 => Just(ServedBy::Llc), 3 => Just(ServedBy::Memory)];
    (prefetched(), 0usize..2, served, 0u32..50, any::<bool>(), vec(physical(), 0..3)).prop_map(
        |(line, level, served, cycles, uses_l2, writes)| {
            let is_in_l2 = level == 0 && served == ServedBy::L2;
            let level = if served == ServedBy::L2 { 0 } else { level };
            PrefetchDraft { line, level, served, cycles, uses_l2: is_in_l2 && uses_l2, writes }
        },
    )
}

fn cost() -> impl Strategy<Value = CostDraft> {
    let sizes = prop::sample::select(&[Some(PageSize::BASE), Some(PageSize::HUGE), None][..]);
    let walk = (1u32..60, vec(physical(), 0..3), sizes);
    let speculation = prop_oneof![
        2 => Just(Speculation::None),
        1 => Just(Speculation::Right),
        1 => Just(Speculation::Wrong)
    ];
    let served = prop_oneof![
        3 => Just(ServedBy::L1),
        2 => Just(ServedBy::L2),
        2 => Just(ServedBy::Llc),
        3 => Just(ServedBy::Memory)
    ];
    let lookup = prop_oneof![Just(0u32), 1u32..15];
    let handler = prop_oneof![9 => Just(0u32), 1 => 1u32..80];
    let before_line = (lookup, handler, speculation);
    let prefetches = (prop::option::weighted(0.5, prefetched()), vec(prefetch(), 0..3));
    let background = prop_oneof![3 => Just(Vec::new()), 1 => vec(background(), 1..5)];
    let line = (physical(), vec(physical(), 0..3), prefetches, background);
    // Some take so long that branches that wait for them have wrong paths.
    let cycles = prop_oneof![4 => 1u32..50, 1 => 100u32..600];
    (before_line, prop::option::weighted(0.4, walk), served, cycles, line).prop_map(
        |(
            (lookup_cycles, handler_cycles, speculation),
            walk,
            served,
            cycles,
            (line, writes, prefetches, background),
        )| {
            let cache_cycles = if served == ServedBy::L1 { 0 } else { cycles };
            let (used, prefetches) = prefetches;
            let used = match served {
                ServedBy::L1 => used.map(|line| (0, line)),
                ServedBy::L2 => used.map(|line| (1, line)),
                _ => None,
            };
            CostDraft {
                lookup_cycles,
                walk,
                speculation,
                handler_cycles,
                served,
                cache_cycles,
                line,
                writes,
                used,
                prefetches,
                background,
            }
        },
    )
}

pub(super) fn entry() -> impl Strategy<Value = EntryDraft> {
    let distance = prop_oneof![6 => 1u64..6, 2 => 1u64..60, 1 => 1u64..=1023];
    let cost = || prop::option::weighted(0.4, cost());
    let reference = || {
        (any::<bool>(), prop::option::weighted(0.4, any::<Index>()), line(), cost()).prop_map(
            |(is_store, repeats, line, cost)| ReferenceDraft { is_store, repeats, line, cost },
        )
    };
    let references = prop_oneof![4 => vec(reference(), 0..=1), 1 => vec(reference(), 0..=4)];
    let fetch = prop::option::weighted(0.1, (line(), cost()));
    let flag = |weight| prop::bool::weighted(weight);
    let difference = prop_oneof![
        6 => Just(Difference::None),
        2 => Just(Difference::Last),
        1 => Just(Difference::Earlier),
        2 => Just(Difference::OffPath)
    ];
    (
        (flag(0.05), (flag(0.1), flag(0.15)), difference, any::<bool>(), 0u8..12),
        (
            prop_oneof![3 => vec(distance.clone(), 0..=2), 1 => vec(distance.clone(), 0..=5)],
            prop_oneof![2 => vec(distance.clone(), 0..=1), 1 => vec(distance.clone(), 0..=4)],
        ),
        prop::option::weighted(0.15, distance),
        (fetch, references, (flag(0.05), flag(0.02))),
    )
        .prop_map(
            |(
                (continues, followed, difference, writes, code),
                (distances, late),
                forward,
                (fetch, references, ends),
            )| {
                EntryDraft {
                    continues,
                    followed,
                    difference,
                    writes,
                    arithmetic: Arithmetic::of_code(code),
                    distances,
                    late,
                    forward,
                    fetch,
                    references,
                    ends,
                }
            },
        )
}

/// A chain of loads that take long, with a mispredicted branch behind each, so that many wrong paths are under way at a
/// time.
pub(super) fn chase() -> impl Strategy<Value = Vec<EntryDraft>> {
    let link = (entry(), line(), cost(), 100u32..300, vec(entry(), 1..5));
    vec(link, 2..40).prop_map(|links| {
        let (mut entries, mut load_before) = (Vec::new(), None);
        for (head, line, cost, cache_cycles, mut behind) in links {
            let cost = CostDraft {
                served: ServedBy::Llc,
                cache_cycles,
                handler_cycles: 0,
                speculation: Speculation::None,
                used: None,
                ..cost
            };
            let number = entries.len() as u64;
            entries.push(EntryDraft {
                continues: false,
                followed: (false, false),
                difference: Difference::None,
                distances: load_before
                    .replace(number)
                    .map(|before| number - before)
                    .into_iter()
                    .collect(),
                late: Vec::new(),
                forward: None,
                fetch: None,
                references: vec![ReferenceDraft {
                    is_store: false,
                    repeats: None,
                    line,
                    cost: Some(cost),
                }],
                ..head
            });
            behind[0].continues = false;
            behind[0].followed.0 = true;
            entries.extend(behind);
        }
        entries
    })
}

/// The costs of all references of a program.
fn costs(entries: &mut [EntryDraft]) -> Vec<&mut Option<CostDraft>> {
    let mut all = Vec::new();
    for entry in entries {
        all.extend(entry.fetch.iter_mut().map(|(_, cost)| cost));
        all.extend(entry.references.iter_mut().map(|reference| &mut reference.cost));
    }
    all
}

/// The program in which each reference has the cost of the one `distance` references later; the last ones have those of
/// the first.
pub(super) fn with_costs_of_later(entries: &[EntryDraft], distance: usize) -> Vec<EntryDraft> {
    let mut entries = entries.to_vec();
    let all: Vec<_> = costs(&mut entries).into_iter().map(|cost| cost.clone()).collect();
    for (number, cost) in costs(&mut entries).into_iter().enumerate() {
        *cost = all[(number + distance) % all.len()].clone();
    }
    entries
}
