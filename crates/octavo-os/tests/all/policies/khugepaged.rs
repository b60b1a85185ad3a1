//! `khugepaged` where no huge page is free, compared with the model of `octavo-oracle`.

use octavo_oracle::{NaiveFrame, NaiveHugeRange, NaiveKhugepaged};
use octavo_os::frames::{Order, Owner};
use octavo_os::policy::{Defrag, DefragmentingThpConfig, MthpConfig, PolicyConfig, ThpConfig};
use octavo_os::{Memory, base_pages};
use octavo_types::{FrameNumber, PageNumber, PageSize};
use proptest::collection::vec;
use proptest::prelude::*;

use super::machine::{Machine, Op, Source, map};
use super::others::{CONVENTIONAL, FIRST, FRAMES, leave_blocks, mapped};

const PAGES: u64 = Order::HUGE.frames();
/// The first base page of the first range.
const START: u64 = 2 * PAGES;

/// The policies whose `khugepaged` can compact memory.
fn policies(khugepaged_defrag: bool, huge: ThpConfig) -> [PolicyConfig; 2] {
    let ThpConfig { max_ptes_none, scan_every_instructions, pages_to_scan, .. } = huge;
    let defrag = Defrag::Never;
    let mthp = MthpConfig {
        defrag,
        khugepaged_defrag,
        max_ptes_none,
        scan_every_instructions,
        pages_to_scan,
        ..MthpConfig::default()
    };
    [DefragmentingThpConfig { defrag, khugepaged_defrag, huge }.into(), mthp.into()]
}

/// Half of memory is free in blocks of 64 KiB, and the rest is movable.
#[test]
fn khugepaged_compacts_memory_by_its_setting() {
    let huge = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
    for defrag in [true, false] {
        for policy in policies(defrag, huge) {
            let mut machine = Machine::new(FRAMES, Order::LINUX, &CONVENTIONAL, policy.build());
            leave_blocks(&mut machine, 4, 2, true);
            machine.event(FIRST, &map(START, PAGES, Source::Anonymous));
            machine.touch(FIRST, START, true);
            machine.step(&Op::Background);
            let found = mapped(&machine);
            assert_eq!(found.contains(&(START, PAGES)), defrag, "{policy:?}");
            let counters = machine.os.memory().counters;
            assert_eq!(
                (counters.compactions, counters.promotions),
                if defrag { (1, 1) } else { (0, 0) }
            );
            assert_eq!(counters.frames_compacted > 0, defrag);
            assert!(!defrag || counters.bytes_mapped_untouched == 511 * 4096);
            machine.check().unwrap();
        }
    }
}

#[test]
fn khugepaged_compacts_memory_by_default() {
    assert!(DefragmentingThpConfig::default().khugepaged_defrag);
    assert!(MthpConfig::default().khugepaged_defrag);
}

/// Each frame as the model represents it.
fn frames_of(memory: &Memory) -> Vec<NaiveFrame> {
    let leaves = memory.leaves(FIRST, &(0..u64::MAX));
    let base = leaves.iter().filter(|leaf| leaf.size == PageSize::BASE);
    let movable: Vec<FrameNumber> = base.map(|leaf| leaf.frame).collect();
    let frames = (0..memory.frames.shape().frames()).map(FrameNumber::new);
    frames
        .map(|frame| match memory.frames.owner(frame) {
            None => NaiveFrame::Free,
            Some(Owner::Background { movable: true }) => NaiveFrame::Movable,
            Some(Owner::Data) if movable.contains(&frame) => NaiveFrame::Movable,
            Some(_) => NaiveFrame::Fixed,
        })
        .collect()
}

/// A range as the model represents it.
fn range_of(memory: &Memory, start: u64) -> NaiveHugeRange {
    let table = &memory.process(FIRST).table;
    let frame = |page| table.leaf(PageNumber::new(page)).map(|leaf| leaf.frame.raw() as usize);
    match table.leaf(PageNumber::new(start)) {
        Some(leaf) if leaf.size == PageSize::HUGE => {
            NaiveHugeRange::Huge(leaf.frame.raw() as usize)
        }
        _ => {
            let walk = table.walk(PageNumber::new(start));
            let last = walk.steps().last().expect("a walk reads an entry");
            NaiveHugeRange::Base {
                pages: (start..start + PAGES).map(frame).collect(),
                table: (last.at.raw() >> 12) as usize,
            }
        }
    }
}

/// For each of twelve blocks: the number of background frames, and whether the first of these is immovable.
fn others(stays: f64) -> impl Strategy<Value = Vec<(u64, bool)>> {
    vec((1u64..PAGES / 2, prop::bool::weighted(stays)), 12)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    /// Memory of twelve blocks with background frames, where few or nearly all blocks have an immovable one.
    #[test]
    fn khugepaged_matches_the_model(
        others in prop_oneof![others(0.2), others(0.95)],
        touched in vec((1u64..PAGES / 4, 1u64..4), 1..6),
        (max_ptes_none, ranges_to_scan) in (prop_oneof![Just(511u32), 256u32..512], 1u64..7),
        defrag in prop::bool::weighted(0.8),
        scans in 1u64..12,
    ) {
        let huge = ThpConfig {
            max_ptes_none,
            scan_every_instructions: 1,
            pages_to_scan: ranges_to_scan * PAGES,
            ..ThpConfig::default()
        };
        let [policy, _] = policies(defrag, huge);
        let memory_frames = others.len() as u64 * PAGES;
        let mut machine = Machine::new(memory_frames, Order::HUGE, &CONVENTIONAL, policy.build());
        let frames = &mut machine.os.memory_mut().frames;
        for (block, (held, stays)) in others.iter().enumerate() {
            for number in 0..*held {
                let movable = number > 0 || !stays;
                let at = FrameNumber::new(block as u64 * PAGES + number * 2);
                frames.allocate_at(at, Order::BASE, Owner::Background { movable });
            }
        }
        let ranges = || (0..touched.len() as u64).map(|number| START + number * PAGES);
        for (start, (pages, step)) in ranges().zip(&touched) {
            machine.event(FIRST, &map(start, PAGES, Source::Anonymous));
            (0..*pages).for_each(|number| machine.touch(FIRST, start + number * step, true));
        }
        let memory = machine.os.memory();
        let in_order: Vec<_> = ranges().map(|start| range_of(memory, start)).collect();
        let pages = base_pages(PageSize::HUGE) as usize;
        let mut model = NaiveKhugepaged::new(frames_of(memory), in_order, pages, defrag);
        model.max_ptes_none = max_ptes_none as usize;
        model.ranges_to_scan = ranges_to_scan as usize;
        for _ in 0..scans {
            machine.step(&Op::Background);
            model.scan();
            let memory = machine.os.memory();
            let found: Vec<_> = ranges().map(|start| range_of(memory, start)).collect();
            prop_assert_eq!(found, model.ranges.clone());
            prop_assert_eq!(frames_of(memory), model.memory.clone());
            let counters = memory.counters;
            prop_assert_eq!(
                (counters.compactions, counters.frames_compacted),
                (model.compactions, model.moved)
            );
        }
        machine.check()?;
    }
}
