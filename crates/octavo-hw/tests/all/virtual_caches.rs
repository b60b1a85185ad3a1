//! Virtual caches compared with the oracle's, whose lines also hold data, which shows that no store is lost.

use std::collections::HashMap;

use crate::common::{naive, replacement};
use octavo_hw::{
    CacheConfig, Change, GlobalAddr, L1Lookup, L2Lookup, Replacement, Swept, VirtualCacheConfig,
    VirtualCacheError, VirtualCaches,
};
use octavo_oracle::{NaiveChange, NaiveFound, NaiveVirtualSide};
use octavo_types::{FrameNumber, Instructions};
use proptest::collection::vec;
use proptest::prelude::*;

/// Sets, ways, policy.
type Shape = (u64, u64, Replacement);

fn shape() -> impl Strategy<Value = Shape> {
    (1u64..=9, prop::sample::select(vec![1u64, 1, 2, 4, 11]), replacement())
}

fn config((sets, ways, replacement): Shape, line_bytes: u64) -> CacheConfig {
    let bytes = sets * ways * line_bytes;
    CacheConfig { bytes, ways, line_bytes, latency_cycles: 0, replacement }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Load,
    Store,
    /// Grants or revokes store permission of pages.
    Protect(bool),
    /// Moves the page to a new frame.
    Move,
}

/// An operation, its side, its page, and the offset in the page.
fn op() -> impl Strategy<Value = (Op, usize, u64, u64)> {
    let kind = prop_oneof![
        8 => Just(Op::Load),
        8 => Just(Op::Store),
        1 => any::<bool>().prop_map(Op::Protect),
        1 => Just(Op::Move),
    ];
    let page = prop_oneof![0u64..3, (0u64..6).prop_map(|page| page + (1 << 39))];
    // Few lines are hot, many are cold.
    let offset = prop_oneof![(0u64..12).prop_map(|line| line * 16), 0u64..4096];
    (kind, 0usize..2, page, offset)
}

fn check(
    instructions: Instructions,
    shapes: [[Shape; 2]; 2],
    lines: [(u64, u64); 2],
    ops: &[(Op, usize, u64, u64)],
) -> Result<(), TestCaseError> {
    let l1 = [0, 1].map(|side: usize| config(shapes[side][0], lines[side].0));
    let l2 = [0, 1].map(|side: usize| config(shapes[side][1], lines[side].1));
    let mut caches = VirtualCaches::new(&VirtualCacheConfig { l1, l2 }, instructions).unwrap();
    let mut oracles = [0, 1].map(|side: usize| {
        let level = |level: usize, bytes| {
            let (sets, ways, replacement) = shapes[side][level];
            (bytes, sets as usize, ways as usize, naive(replacement))
        };
        NaiveVirtualSide::new([level(0, lines[side].0), level(1, lines[side].1)])
    });
    // Each side has its own pages, since the sides are not coherent.
    let mut pages: HashMap<(usize, u64), (u64, bool)> = HashMap::new();
    let mut truth: HashMap<(u64, u64), u64> = HashMap::new();
    let mut frames = 0;
    let mut written = [0, 0];
    for (number, &(op, side, page, offset)) in ops.iter().enumerate() {
        let (addr, oracle) = (page << 12 | offset, &mut oracles[side]);
        let place = (side, page);
        let (frame, may_store) = *pages.entry(place).or_insert_with(|| {
            frames += 1;
            (frames, true)
        });
        let at = GlobalAddr::new(addr);
        let stores = matches!(op, Op::Store);
        match op {
            Op::Load | Op::Store => {
                let store = stores.then_some(number as u64 + 1);
                // A store without permission is tried only if a line is present to deny it.
                let is_here = (0..2).any(|level| {
                    let bytes = [lines[side].0, lines[side].1][level];
                    oracle.lines(level).iter().any(|line| line.0 == addr / bytes * bytes)
                });
                if stores && !may_store && !is_here {
                    continue;
                }
                let (found, data) = oracle.access(addr, store, (frame, may_store));
                let fast = match caches.look_up_l1(side, at, stores, 3) {
                    L1Lookup::Hit(found) => {
                        prop_assert_eq!(found.raw(), frame);
                        NaiveFound::L1
                    }
                    L1Lookup::Denied => NaiveFound::Denied,
                    L1Lookup::Miss => match caches.look_up_l2(side, at, stores, 3) {
                        L2Lookup::Hit(found) => {
                            prop_assert_eq!(found.raw(), frame);
                            NaiveFound::L2
                        }
                        L2Lookup::Denied => NaiveFound::Denied,
                        L2Lookup::Miss => {
                            let page = (FrameNumber::new(frame), may_store);
                            caches.load_and_map(side, at, page, stores, 3);
                            NaiveFound::Memory
                        }
                    },
                };
                prop_assert_eq!(fast, found, "{} {:?} {:#x}", number, op, addr);
                if found != NaiveFound::Denied {
                    let stored = truth.entry((frame, offset / lines[side].0)).or_default();
                    *stored = store.unwrap_or(*stored);
                    prop_assert_eq!(*stored, data, "{} {:?} {:#x}", number, op, addr);
                }
            }
            Op::Protect(_) | Op::Move => {
                let (change, naive) = match op {
                    Op::Protect(may_store) => {
                        pages.insert(place, (frame, may_store));
                        (Change::Rights { may_store }, NaiveChange::MayStore(may_store))
                    }
                    _ => {
                        frames += 1;
                        pages.insert(place, (frames, true));
                        (Change::Drop, NaiveChange::Drop)
                    }
                };
                let from = page << 12;
                let swept = caches.sweep(side, GlobalAddr::new(from), 4096, change);
                let expected = oracle.sweep(from, 4096, naive);
                let Swept { checked, changed, written_back } = swept;
                let swept = [0, 1]
                    .map(|level: usize| [checked[level], changed[level], written_back[level]]);
                prop_assert_eq!(swept, expected, "{} {:?} {:#x}", number, op, addr);
                if matches!(op, Op::Move | Op::Protect(false)) {
                    for line in 0..4096 / lines[side].0 {
                        let data = |lines: &HashMap<(u64, u64), u64>| {
                            lines.get(&(frame, line)).copied().unwrap_or(0)
                        };
                        prop_assert_eq!(data(&oracle.memory), data(&truth), "memory has all of it");
                    }
                }
            }
        }
        while let Some(out) = caches.next_write_back(side) {
            let expected = oracle.written.get(written[side]).copied();
            prop_assert_eq!(Some((out.at.raw(), out.bytes, out.frame.raw())), expected);
            written[side] += 1;
        }
        prop_assert_eq!(written[side], oracle.written.len());
    }
    for (side, oracle) in oracles.iter().enumerate() {
        for (level, counters) in caches.counters(side).into_iter().enumerate() {
            let counts = oracle.counts(level);
            // The three repeats of each access hit the first level.
            let repeats = if level == 0 { 3 * counts.accesses } else { 0 };
            prop_assert_eq!(counters.hits, counts.hits + repeats);
            prop_assert_eq!(counters.misses, counts.accesses - counts.hits);
            prop_assert_eq!(counters.write_backs, counts.write_backs);
            let mut lines: Vec<_> = caches
                .lines(side, level)
                .map(|(at, line)| (at.raw(), line.may_store(), line.is_dirty(), line.frame().raw()))
                .collect();
            let mut expected = oracle.lines(level);
            lines.sort_unstable();
            expected.sort_unstable();
            prop_assert!(lines.iter().all(|(_, may_store, is_dirty, _)| *may_store || !is_dirty));
            prop_assert_eq!(lines, expected);
        }
    }
    Ok(())
}

fn lines() -> impl Strategy<Value = (u64, u64)> {
    prop::sample::select(vec![(16u64, 16u64), (16, 64), (32, 128), (64, 64), (128, 128)])
}

proptest! {
    #![proptest_config(octavo_oracle::cases(192))]

    #[test]
    fn virtual_caches_match_lists(
        shapes in prop::array::uniform2(prop::array::uniform2(shape())),
        lines in prop::array::uniform2(lines()),
        ops in vec(op(), 1..600),
    ) {
        for instructions in Instructions::all() {
            check(instructions, shapes, lines, &ops)?;
        }
    }
}

#[test]
fn invalid_values_are_rejected_with_one_sentence() {
    let level = |line_bytes| config((4, 1, Replacement::Lru), line_bytes);
    let sentence = |l1: [u64; 2], l2: [u64; 2]| {
        let config = VirtualCacheConfig { l1: l1.map(level), l2: l2.map(level) };
        let refused: VirtualCacheError =
            VirtualCaches::new(&config, Instructions::best()).unwrap_err();
        refused.to_string()
    };
    assert_eq!(
        sentence([16, 32], [16, 16]),
        "l2d.line_bytes = 16: give at least 32: a line of the second level holds whole lines of the \
         first"
    );
    assert_eq!(
        sentence([24, 32], [32, 32]),
        "l1i.line_bytes = 24: give a power of two from 8 to 4096, such as 64"
    );
}
