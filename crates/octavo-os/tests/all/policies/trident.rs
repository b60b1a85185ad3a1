//! Trident: cases counted by hand, its twin, and the invariants of all policies. Most have a largest page of some MiB.

use std::collections::BTreeSet;

use octavo_os::frames::{Order, Owner};
use octavo_os::policy::{
    Defrag, DefragmentingThpConfig, OsConfig, Policies, PolicySettings, ThpConfig, TridentConfig,
};
use octavo_os::{Counters, Exchange, Memory, base_pages};
use octavo_types::{Event, FrameNumber, PageNumber, PageSize};
use proptest::collection::vec;
use proptest::prelude::*;

use super::machine::{Machine, Op, Source, map, ops, range};
use super::others::{CONVENTIONAL, FIRST, mapped, size};
use super::trident_naive::{Cell, FaultCompaction, NaiveTrident};

const GIB: u64 = base_pages(PageSize::LARGEST);
const GIB_BYTES: u64 = PageSize::LARGEST.bytes();
const HUGE: u64 = base_pages(PageSize::HUGE);

/// Settings with which background work is done at each tick.
fn busy(largest: PageSize) -> TridentConfig {
    let huge = ThpConfig { scan_every_instructions: 1, ..TridentConfig::default().huge.huge };
    TridentConfig {
        largest,
        clear_every_instructions: 1,
        huge: DefragmentingThpConfig { huge, ..DefragmentingThpConfig::default() },
        ..TridentConfig::default()
    }
}

/// A machine with `frames` frames, and blocks as large as the largest page.
fn machine(config: TridentConfig, frames: u64) -> Machine {
    let sizes = [PageSize::BASE, PageSize::HUGE, config.largest];
    Machine::new(frames, Order::of(config.largest), &sizes, config.build())
}

/// A machine of 3 GiB without a free GiB: the first has the page table, one frame of the second and all of the third are
/// held.
fn without_free_gib(config: TridentConfig) -> Machine {
    let mut machine = machine(config, 3 * GIB);
    hold(&mut machine, 2 * GIB - 1, 1, false);
    let (third, owner) = (FrameNumber::new(2 * GIB), Owner::Background { movable: false });
    assert!(machine.os.memory_mut().frames.allocate_at(third, Order::LARGEST, owner));
    machine
}

fn hold(machine: &mut Machine, frame: u64, frames: u64, movable: bool) {
    for frame in (frame..frame + frames).map(FrameNumber::new) {
        let owner = Owner::Background { movable };
        assert!(machine.os.memory_mut().frames.allocate_at(frame, Order::BASE, owner));
    }
}

fn frame_of(machine: &Machine, page: u64) -> u64 {
    let page = PageNumber::new(page);
    machine.os.memory().process(FIRST).table.leaf(page).unwrap().frame_of(page).raw()
}

#[test]
fn fault_maps_a_free_gib() {
    for (clear_every_instructions, zeroed) in [(1, 0), (0, GIB_BYTES)] {
        let config = TridentConfig { clear_every_instructions, ..busy(PageSize::LARGEST) };
        let mut machine = machine(config, 3 * GIB);
        machine.event(FIRST, &map(GIB - 7, 2 * GIB, Source::Anonymous));
        machine.touch(FIRST, GIB + 5, true);
        machine.touch(FIRST, 2 * GIB - 1, true);
        assert_eq!(mapped(&machine), [(GIB, GIB)]);
        let counters = machine.os.memory().counters;
        assert_eq!((counters.faults, counters.fallbacks), (1, 0));
        assert_eq!((counters.bytes_zeroed, counters.bytes_zeroed_ahead), (zeroed, 0));
        assert_eq!(counters.bytes_mapped_untouched, GIB_BYTES - 4096);
        assert_eq!(machine.data_frames(), GIB);
        let walk = machine.os.memory().process(FIRST).table.walk(PageNumber::new(GIB));
        assert_eq!(walk.steps().len(), 2);
        // Neither 1 GiB nor 2 MiB fits at the start of the mapping; 2 MiB at its end.
        machine.touch(FIRST, GIB - 1, true);
        machine.touch(FIRST, 2 * GIB, true);
        let expected = [(GIB - 1, 1), (GIB, GIB), (2 * GIB, HUGE)];
        assert_eq!(mapped(&machine), expected);
        machine.check().unwrap();
    }
}

/// Two pages of a GiB are touched: the rest of it is waste, which the data in memory includes.
#[test]
fn memory_that_is_never_touched_is_counted() {
    let resident = |largest| {
        let mut machine = machine(TridentConfig { largest, ..busy(largest) }, 3 * GIB);
        machine.event(FIRST, &map(GIB, GIB, Source::Anonymous));
        machine.touch(FIRST, GIB, true);
        machine.touch(FIRST, 2 * GIB - 1, true);
        let untouched = machine.os.memory().counters.bytes_mapped_untouched;
        (machine.data_frames() * 4096, untouched, machine.os.memory().counters.faults)
    };
    assert_eq!(resident(PageSize::LARGEST), (GIB_BYTES, GIB_BYTES - 4096, 1));
    assert_eq!(resident(PageSize::HUGE), (2 * 512 * 4096, 2 * 511 * 4096, 2));
}

#[test]
fn khugepaged_makes_a_gib_of_huge_pages() {
    for (exchange, copied) in [(None, GIB_BYTES), (Some(PageSize::HUGE), 0)] {
        let mut machine = without_free_gib(TridentConfig { exchange, ..busy(PageSize::LARGEST) });
        machine.event(FIRST, &map(GIB, GIB, Source::Anonymous));
        (0..512).for_each(|number| machine.touch(FIRST, GIB + number * HUGE, true));
        let counters = machine.os.memory().counters;
        assert_eq!((counters.faults, counters.fallbacks), (512, 1));
        assert_eq!(counters.bytes_zeroed, GIB_BYTES);
        assert_eq!(machine.os.memory().pages(PageSize::HUGE), 512);
        machine.step(&Op::Background);
        assert_eq!(machine.os.memory().counters.promotions, 0);
        machine.os.memory_mut().frames.free(FrameNumber::new(2 * GIB), Order::LARGEST);
        let sources: Vec<_> =
            (0..512).map(|number| frame_of(&machine, GIB + number * HUGE)).collect();
        let before = machine.os.memory().counters;
        machine.step(&Op::Background);
        assert_eq!(mapped(&machine), [(GIB, GIB)]);
        let counters = machine.os.memory().counters;
        assert_eq!((counters.promotions, counters.bytes_copied), (1, copied));
        assert_eq!(counters.shootdowns - before.shootdowns, 1);
        assert_eq!(counters.bytes_mapped_untouched, before.bytes_mapped_untouched);
        let exchanges = machine.os.memory_mut().take_exchanges();
        let expected: Vec<_> = sources
            .into_iter()
            .zip(0u64..)
            .filter(|_| exchange.is_some())
            .map(|(from, number)| Exchange {
                from: FrameNumber::new(from),
                to: FrameNumber::new(2 * GIB + number * HUGE),
                frames: HUGE,
            })
            .collect();
        assert_eq!(exchanges, expected);
        machine.check().unwrap();
    }
}

/// Of 512 exchanges of 2 MiB the host refuses three; 513 take two hypercalls.
#[test]
fn refused_exchanges_are_copied() {
    let mut machine =
        machine(TridentConfig { exchange: Some(PageSize::HUGE), ..busy(size(23)) }, 1 << 14);
    let memory = machine.os.memory_mut();
    let exchange = |number: u64| Exchange {
        from: FrameNumber::new(number),
        to: FrameNumber::new(1 << 13),
        frames: HUGE,
    };
    let exchanges: Vec<_> = (0..512).map(exchange).collect();
    let made: Vec<_> = (0..512).map(|number| number % 200 != 0).collect();
    memory.count_exchanges(&exchanges, Some(&made));
    let counts = |memory: &Memory| {
        let counters = memory.counters;
        (counters.hypercalls, counters.bytes_exchanged, counters.bytes_copied)
    };
    assert_eq!(counts(memory), (1, 509 << 21, 3 << 21));
    memory.count_exchanges(&vec![exchange(0); 513], Some(&[true; 513]));
    assert_eq!(counts(memory), (3, (509 + 513) << 21, 3 << 21));
    // Without a host.
    memory.count_exchanges(&[exchange(0)], None);
    assert_eq!(counts(memory), (3, (509 + 513) << 21, 4 << 21));
}

#[test]
fn unmapped_parts_split_a_gib() {
    let mut machine = machine(busy(PageSize::LARGEST), 3 * GIB);
    machine.event(FIRST, &map(GIB, GIB, Source::Anonymous));
    machine.touch(FIRST, GIB, true);
    let frame = frame_of(&machine, GIB);
    let page = GIB + 300 * HUGE + 77;
    machine.event(FIRST, &Event::Unmap { range: range(page, 1) });
    let memory = machine.os.memory();
    assert_eq!((memory.pages(PageSize::HUGE), memory.pages(PageSize::BASE)), (511, 511));
    assert_eq!((memory.counters.splits, machine.data_frames()), (1, GIB - 1));
    assert_eq!(frame_of(&machine, page + 1), frame + page + 1 - GIB);
    machine.check().unwrap();
    // The first half, of which some pages are base pages, and some of the rest.
    machine.event(FIRST, &Event::Unmap { range: range(GIB, 301 * HUGE) });
    machine.event(FIRST, &Event::Unmap { range: range(2 * GIB - HUGE - 1, 1) });
    assert_eq!(machine.data_frames(), 211 * HUGE - 1);
    machine.check().unwrap();
    machine.event(FIRST, &Event::Unmap { range: range(GIB, GIB) });
    assert_eq!((mapped(&machine), machine.data_frames()), (vec![], 0));
    machine.check().unwrap();
}

/// A freed block has old data, until it is cleared in the background.
#[test]
fn freed_blocks_are_cleared_in_the_background() {
    let config = TridentConfig { clear_every_instructions: 2, ..busy(PageSize::LARGEST) };
    let mut machine = machine(config, 2 * GIB);
    let zeroed = |machine: &mut Machine, ticks: u32| {
        machine.event(FIRST, &map(GIB, GIB, Source::Anonymous));
        let before = machine.os.memory().counters.bytes_zeroed;
        machine.touch(FIRST, GIB, true);
        let at_fault = machine.os.memory().counters.bytes_zeroed - before;
        machine.event(FIRST, &Event::Unmap { range: range(GIB, GIB) });
        (0..ticks).for_each(|_| machine.step(&Op::Background));
        at_fault
    };
    assert_eq!(zeroed(&mut machine, 1), 0);
    assert_eq!(zeroed(&mut machine, 1), GIB_BYTES);
    assert_eq!(machine.os.memory().counters.bytes_zeroed_ahead, GIB_BYTES);
    assert_eq!(zeroed(&mut machine, 8), 0);
    // The one block that is whole is clear: nothing is left to do.
    assert_eq!(machine.os.memory().counters.bytes_zeroed_ahead, 2 * GIB_BYTES);
}

/// Of two tiers of memory, the first has a free block with old data, the second clear ones.
#[test]
fn local_memory_comes_before_clear_memory() {
    const LARGEST: u64 = 1024;
    let mut machine = machine(busy(size(22)), 4 * LARGEST);
    let (order, second) = (Order::of(size(22)), FrameNumber::new(LARGEST));
    let frames = &mut machine.os.memory_mut().frames;
    frames.set_tiers(vec![2 * LARGEST]);
    assert!(frames.allocate_at(second, order, Owner::Data));
    frames.free(second, order);
    machine.event(FIRST, &map(LARGEST, 2 * LARGEST, Source::Anonymous));
    machine.touch(FIRST, LARGEST, true);
    machine.touch(FIRST, 2 * LARGEST, true);
    let found = [frame_of(&machine, LARGEST), frame_of(&machine, 2 * LARGEST)];
    assert_eq!(found, [LARGEST, 2 * LARGEST]);
    assert_eq!(machine.os.memory().counters.bytes_zeroed, LARGEST * 4096);
}

/// Regions of 8 MiB: one with a page table, one with an unmovable frame and little else, and two with 300 and 200
/// movable frames.
#[test]
fn smart_compaction_moves_the_least_data() {
    const REGION: u64 = 2048;
    let compacted = |smart_compaction, defrag| {
        let huge = busy(size(23)).huge;
        let huge = DefragmentingThpConfig { defrag, khugepaged_defrag: false, ..huge };
        let config = TridentConfig { smart_compaction, huge, ..busy(size(23)) };
        let mut machine = machine(config, 4 * REGION);
        hold(&mut machine, REGION, 10, false);
        hold(&mut machine, 2 * REGION, 300, true);
        hold(&mut machine, 3 * REGION, 200, true);
        machine.event(FIRST, &map(4 * REGION, REGION, Source::Anonymous));
        machine.touch(FIRST, 4 * REGION, true);
        let counters = machine.os.memory().counters;
        machine.check().unwrap();
        (mapped(&machine)[0].1, counters.frames_compacted, counters.fallbacks)
    };
    assert_eq!(compacted(true, Defrag::Always), (REGION, 200, 0));
    assert_eq!(compacted(false, Defrag::Always), (REGION, 300, 0));
    assert_eq!(compacted(true, Defrag::Madvise), (HUGE, 0, 1));
}

/// Each region of 8 MiB has an unmovable frame. Of 31 scans, the first, third, 7th, 15th and 31st compact memory.
#[test]
fn smart_compaction_is_deferred_after_failures() {
    const REGION: u64 = 2048;
    let mut machine = machine(busy(size(23)), 4 * REGION);
    (0..4).for_each(|region| hold(&mut machine, region * REGION + 1000, 1, false));
    machine.event(FIRST, &map(4 * REGION, REGION, Source::Anonymous));
    (0..4).for_each(|number| machine.touch(FIRST, 4 * REGION + number * HUGE, true));
    assert_eq!(machine.os.memory().pages(PageSize::HUGE), 4);
    (0..31).for_each(|_| machine.step(&Op::Background));
    let counters = machine.os.memory().counters;
    assert_eq!((counters.compactions, counters.promotions), (5, 0));
}

/// A scan of 4096 base pages covers one page of 16 MiB that it makes, or eight ranges of huge pages.
#[test]
fn pages_that_a_scan_makes_count_as_scanned() {
    const LARGEST: u64 = 4096;
    let mut config = busy(size(24));
    (config.huge.huge.pages_to_scan, config.huge.khugepaged_defrag) = (LARGEST, false);
    let mut machine = machine(config, 8 * LARGEST);
    hold(&mut machine, 64, 8 * LARGEST - 128, false);
    machine.event(FIRST, &map(LARGEST, 3 * LARGEST, Source::Anonymous));
    (1..4).for_each(|number| machine.touch(FIRST, number * LARGEST, true));
    for frame in 2 * LARGEST..6 * LARGEST {
        machine.os.memory_mut().frames.free(FrameNumber::new(frame), Order::BASE);
    }
    for made in 1..=3 {
        machine.step(&Op::Background);
        assert_eq!(machine.os.memory().pages(size(24)), made);
    }
}

#[test]
fn settings_are_checked() {
    let mut config = Policies::default().parse("trident").unwrap();
    let mut sentence = |key, value| config.set(key, value).unwrap_err().to_string();
    assert_eq!(
        sentence("largest", "64KiB"),
        "largest = 64KiB: give a power of two from 2MiB to 1GiB"
    );
    assert_eq!(sentence("exchange", "1GiB"), "exchange = 1GiB: give 2MiB or 4KiB, or none");
    assert_eq!(sentence("max_ptes_none", "512"), "max_ptes_none = 512: give 0 to 511");
    for value in ["262144", "many"] {
        let bounds = format!("max_ptes_none_largest = {value}: give 0 to 262143");
        assert_eq!(sentence("max_ptes_none_largest", value), bounds);
    }
    config.set("defrag", "always").unwrap();
    config.set("pages_to_scan", "512").unwrap();
    let expected = TridentConfig {
        huge: DefragmentingThpConfig {
            defrag: Defrag::Always,
            huge: ThpConfig { pages_to_scan: 512, ..TridentConfig::default().huge.huge },
            ..DefragmentingThpConfig::default()
        },
        ..TridentConfig::default()
    };
    assert_eq!(config, OsConfig::new(expected.into()));
}

#[test]
fn page_sizes_that_hardware_must_have_follow_the_largest() {
    let sizes = |largest| TridentConfig { largest, ..TridentConfig::default() }.required_sizes();
    assert_eq!(sizes(PageSize::LARGEST), [PageSize::HUGE, PageSize::LARGEST]);
    assert_eq!(sizes(PageSize::HUGE), [PageSize::HUGE]);
}

/// Each frame as the twin has it.
fn cells(memory: &Memory) -> Vec<Cell> {
    let frames = (0..memory.frames.shape().frames()).map(FrameNumber::new);
    let leaves = memory.leaves(FIRST, &(0..u64::MAX)).into_iter();
    let base: BTreeSet<_> =
        leaves.filter(|leaf| leaf.size == PageSize::BASE).map(|leaf| leaf.frame).collect();
    frames
        .map(|frame| match memory.frames.owner(frame) {
            None => Cell::Free { is_clear: memory.frames.is_clear(frame, Order::BASE) },
            Some(Owner::Background { movable: true }) => Cell::Movable,
            Some(Owner::Data) if base.contains(&frame) => Cell::Movable,
            Some(_) => Cell::Fixed,
        })
        .collect()
}

/// A step of a program with one mapping.
#[derive(Clone, Debug)]
enum Step {
    Touch { at: u64, pages: u64 },
    Background,
}

fn step(pages: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..pages, 1u64..200).prop_map(|(at, pages)| Step::Touch { at, pages }),
        1 => Just(Step::Background),
    ]
}

/// Base pages of the program's mapping.
const MAPPED: u64 = 3 * 2048;

/// Plays steps of a program whose mapping begins at page `start`, in memory with background frames: for each block but
/// the first, their number, whether the first of them is immovable, and their distance. Returns the counters.
fn compare_with_twin(
    config: TridentConfig,
    held: Vec<(u64, bool, u64)>,
    start: u64,
    steps: &[Step],
) -> Result<Counters, TestCaseError> {
    let largest = base_pages(config.largest);
    let mut machine = machine(config, (held.len() as u64 + 1) * largest);
    // A page that stays, so that the upper nodes of the table do.
    machine.event(FIRST, &map(GIB - HUGE + 5, 1, Source::Anonymous));
    machine.touch(FIRST, GIB - HUGE + 5, true);
    for (block, (frames, stays, distance)) in (1..).zip(held) {
        for number in 0..frames.min(largest / distance) {
            let frame = block * largest + number * distance;
            hold(&mut machine, frame, 1, number > 0 || !stays);
        }
    }
    let mapping = start..start + MAPPED;
    machine.event(FIRST, &map(start, MAPPED, Source::Anonymous));
    let frames = cells(machine.os.memory());
    let mut twin = NaiveTrident::new(frames, mapping.clone(), largest as usize);
    twin.max_none = u64::from(config.huge.huge.max_ptes_none);
    twin.max_none_largest = config.max_ptes_none_largest;
    twin.compacts = config.huge.khugepaged_defrag;
    twin.at_faults = match config.huge.defrag {
        Defrag::Always => FaultCompaction::AtOnce,
        Defrag::Defer | Defrag::DeferMadvise => FaultCompaction::Later,
        Defrag::Madvise | Defrag::Never => FaultCompaction::Never,
    };
    twin.clears = config.clear_every_instructions > 0;
    let before = machine.os.memory().counters;
    for step in steps {
        match *step {
            Step::Touch { at, pages } => {
                for page in start + at..(start + at + pages).min(mapping.end) {
                    if twin.free_frames() < 3 {
                        break;
                    }
                    machine.touch(FIRST, page, true);
                    twin.touch(page);
                }
            }
            Step::Background => {
                machine.step(&Op::Background);
                twin.background();
            }
        }
        let memory = machine.os.memory();
        let leaves = memory.leaves(FIRST, &(0..GIB - HUGE)).into_iter();
        let pages = leaves
            .map(|leaf| (leaf.page.raw(), (leaf.frame.raw() as usize, base_pages(leaf.size))));
        prop_assert_eq!(pages.collect::<Vec<_>>(), twin.pages());
        prop_assert!(cells(memory) == twin.cells, "frames differ");
        let mut counters = memory.counters;
        (counters.entries_written, counters.shootdowns) = (0, 0);
        counters.faults -= before.faults;
        counters.bytes_zeroed -= before.bytes_zeroed;
        prop_assert_eq!(counters, twin.counters);
    }
    machine.check()?;
    Ok(twin.counters)
}

/// The comparison is not vacuous: two blocks of 8 MiB have an immovable frame, and two have 100 and 50 movable ones.
#[test]
fn compared_events_occur() {
    let held = vec![(50, true, 3), (100, false, 2), (50, false, 4), (2048, true, 1)];
    let touch = |at, pages| Step::Touch { at, pages };
    let steps = [
        touch(2000, 100),
        Step::Background,
        touch(0, 2300),
        Step::Background,
        touch(3000, 3000),
        Step::Background,
    ];
    let counters = compare_with_twin(busy(size(23)), held, 100, &steps).unwrap();
    assert!(counters.promotions > 0 && counters.compactions > 0, "{counters:?}");
    assert!(counters.frames_compacted > 0 && counters.fallbacks > 0, "{counters:?}");
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    /// Memory of some blocks with background frames, of which few or nearly all have an immovable one.
    #[test]
    fn trident_matches_its_twin(
        log2 in 22u8..=23,
        stays in prop::sample::select(vec![0.2, 0.8]),
        held in vec((0u64..600, 0.0f64..1.0, 1u64..5), 3..8),
        steps in vec(step(MAPPED), 1..30),
        max_none in prop_oneof![Just(511u32), 300u32..511],
        max_none_largest in prop_oneof![Just(GIB - 1), 0u64..2048],
        (khugepaged_defrag, clears, start) in (any::<bool>(), any::<bool>(), 0u64..600),
        defrag in prop::sample::select(vec![Defrag::Always, Defrag::Defer, Defrag::Never]),
    ) {
        let mut config = busy(size(log2));
        config.huge.defrag = defrag;
        config.max_ptes_none_largest = max_none_largest;
        config.huge.huge.max_ptes_none = max_none;
        config.huge.khugepaged_defrag = khugepaged_defrag;
        config.clear_every_instructions = u64::from(clears);
        let held = held.into_iter().map(|(frames, chance, step)| (frames, chance <= stays, step));
        compare_with_twin(config, held.collect(), start, &steps)?;
    }

    #[test]
    fn huge_pages_alone_are_transparent_huge_pages(
        ops in ops(),
        defrag in prop::sample::select(vec![Defrag::Always, Defrag::Defer, Defrag::Never]),
        exchange in any::<bool>(),
    ) {
        let mut config = busy(PageSize::HUGE);
        config.huge.defrag = defrag;
        config.exchange = exchange.then_some(PageSize::BASE);
        let mut machines = [config.build(), config.huge.build()]
            .map(|policy| Machine::new(1 << 15, Order::LINUX, &CONVENTIONAL, policy));
        for machine in &mut machines {
            super::others::leave_blocks(machine, 7, 2, true);
        }
        for op in ops {
            machines.iter_mut().for_each(|machine| machine.step(&op));
            let [trident, thp] = &machines;
            prop_assert_eq!(trident.os.memory().counters, thp.os.memory().counters);
            for process in &thp.live {
                let leaves = |machine: &Machine| machine.os.memory().leaves(*process, &(0..u64::MAX));
                prop_assert_eq!(leaves(trident), leaves(thp));
            }
        }
    }

    #[test]
    fn frames_are_conserved(
        ops in ops(),
        log2 in 21u8..=24,
        (defrag, smart_compaction, exchange) in (any::<bool>(), any::<bool>(), any::<bool>()),
        free in 2u8..10,
    ) {
        let mut config = busy(size(log2));
        config.huge.defrag = if defrag { Defrag::Always } else { Defrag::Never };
        config.smart_compaction = smart_compaction;
        config.exchange = exchange.then_some(PageSize::BASE);
        let mut machine = machine(config, 1 << 15);
        super::others::leave_blocks(&mut machine, free, 2, true);
        machine.play(&ops, 0)?;
    }
}
