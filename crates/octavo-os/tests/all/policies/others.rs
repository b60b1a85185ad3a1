//! Policies that select a size at the first touch, or use a pool.

use octavo_os::frames::{Order, Owner};
use octavo_os::policy::{
    Defrag, FaultHuge, FirstTouch, FirstTouchConfig, Fixed, FixedConfig, Hugetlb, HugetlbConfig,
    Mthp, MthpConfig, POLICIES, Policies, Policy, PolicySettings,
};
use octavo_os::{ProcessId, base_pages};
use octavo_types::{Event, FrameNumber, PageSize};
use proptest::prelude::*;

use super::machine::{Machine, Source, all_sizes, map, ops, range};

pub const FRAMES: u64 = 1 << 15;
pub const FIRST: ProcessId = ProcessId(0);
pub const CONVENTIONAL: [PageSize; 2] = [PageSize::BASE, PageSize::HUGE];

pub fn size(log2: u8) -> PageSize {
    PageSize::from_log2(log2).unwrap()
}

pub fn machine(sizes: &[PageSize], policy: impl Policy + 'static) -> Machine {
    Machine::new(FRAMES, Order::LINUX, sizes, Box::new(policy))
}

/// The mapped pages, as first page and size in base pages.
pub fn mapped(machine: &Machine) -> Vec<(u64, u64)> {
    let leaves = machine.os.memory().leaves(FIRST, &(0..u64::MAX));
    leaves.iter().map(|leaf| (leaf.page.raw(), base_pages(leaf.size))).collect()
}

/// Allocates all memory but every `step`-th block of `order`.
pub fn leave_blocks(machine: &mut Machine, order: u8, step: usize, movable: bool) {
    let frames = &mut machine.os.memory_mut().frames;
    let order = Order::new(order).unwrap();
    let foreign = Owner::Background { movable };
    let held: Vec<FrameNumber> =
        std::iter::from_fn(|| frames.allocate(order, foreign).ok()).collect();
    for block in held.iter().step_by(step) {
        frames.free(*block, order);
    }
}

#[test]
fn multi_size_pages_fill_their_mapping() {
    let mut machine = machine(&all_sizes(), Mthp::new(MthpConfig::default()));
    machine.event(FIRST, &map(1024 - 16, 16 + 512 + 5, Source::Anonymous));
    for page in [1023, 1030, 1536, 1540] {
        machine.touch(FIRST, page, true);
    }
    assert_eq!(mapped(&machine), [(1008, 16), (1024, 512), (1536, 4), (1540, 1)]);
    let untouched = (15 + 511 + 3) * 4096;
    assert_eq!(machine.os.memory().counters.bytes_mapped_untouched, untouched);
}

#[test]
fn multi_size_pages_have_the_enabled_sizes() {
    let size = |log2| PageSize::from_log2(log2).unwrap();
    let config = |smallest, largest| MthpConfig {
        smallest: size(smallest),
        largest: size(largest),
        scan_every_instructions: 1,
        max_ptes_none: 511,
        ..MthpConfig::default()
    };
    for (smallest, largest, expected) in [
        (14, 21, vec![(1024, 512), (1536, 4), (1540, 1)]),
        (14, 16, vec![(1024, 16), (1536, 4), (1540, 1)]),
        (16, 16, vec![(1024, 16), (1536, 1), (1540, 1)]),
    ] {
        let mut machine = machine(&all_sizes(), Mthp::new(config(smallest, largest)));
        machine.event(FIRST, &map(1024, 512 + 5, Source::Anonymous));
        for page in [1030, 1536, 1540] {
            machine.touch(FIRST, page, true);
        }
        machine.os.background(1_000_000);
        assert_eq!(mapped(&machine), expected, "{smallest} to {largest}");
    }
    let refused = |smallest, largest| config(smallest, largest).check().unwrap_err();
    assert_eq!(refused(13, 16), "smallest = 8KiB: give a power of two from 16KiB to 2MiB");
    assert_eq!(refused(14, 22), "largest = 4MiB: give a power of two from 16KiB to 2MiB");
    assert_eq!(refused(16, 15), "smallest = 64KiB: give at most largest = 32KiB");
}

/// Without an entry for 64 KiB, as on x86-64: contiguous base pages.
#[test]
fn unsupported_sizes_are_mapped_as_contiguous_base_pages() {
    let mut machine = machine(&CONVENTIONAL, Mthp::new(MthpConfig::default()));
    machine.event(FIRST, &map(1024, 16, Source::Anonymous));
    machine.touch(FIRST, 1030, true);
    let leaves = machine.os.memory().leaves(FIRST, &(0..u64::MAX));
    assert_eq!(leaves.len(), 16);
    assert!(leaves[0].frame.raw().is_multiple_of(16));
    for (number, leaf) in leaves.iter().enumerate() {
        assert_eq!(leaf.frame, leaves[0].frame.plus(number as u64));
    }
    assert_eq!(machine.os.memory().counters.faults, 1);
}

/// The table of `transhuge.rst`: the setting with each advice.
#[test]
fn multi_size_pages_follow_setting_and_advice() {
    for (enabled, plain, advised) in [
        (Some(FaultHuge::Always), true, true),
        (Some(FaultHuge::Madvise), false, true),
        (None, false, false),
    ] {
        for (advice, expected) in [(0, plain), (14, advised), (15, false)] {
            let config = MthpConfig { enabled, ..MthpConfig::default() };
            let mut machine = machine(&all_sizes(), Mthp::new(config));
            machine.event(FIRST, &map(1024, 64, Source::Anonymous));
            machine.event(FIRST, &Event::Advise { range: range(1024, 64), advice });
            machine.touch(FIRST, 1024, true);
            let pages = if expected { 64 } else { 1 };
            assert_eq!(mapped(&machine), [(1024, pages)], "{enabled:?} {advice}");
        }
    }
}

#[test]
fn smaller_size_is_used_without_a_free_block() {
    let mut machine = machine(&all_sizes(), Mthp::new(MthpConfig::default()));
    leave_blocks(&mut machine, 4, 2, false);
    machine.event(FIRST, &map(1024, 512, Source::Anonymous));
    machine.touch(FIRST, 1100, true);
    assert_eq!(mapped(&machine), [(1088, 16)]);
    assert_eq!(machine.os.memory().counters.fallbacks, 1);
}

#[test]
fn fixed_size_rounds_mappings_up() {
    let mut machine = machine(&all_sizes(), Fixed::new(FixedConfig::default()));
    machine.event(FIRST, &map(1026, 7, Source::Anonymous));
    (1026..1033).for_each(|page| machine.touch(FIRST, page, true));
    assert_eq!(mapped(&machine), [(1024, 4), (1028, 4), (1032, 4)]);
    assert_eq!(machine.os.memory().counters.bytes_mapped_untouched, (3 * 3) * 4096);
    assert_eq!(machine.os.memory().counters.faults, 3);
    // A new neighbour replaces the excess past the end.
    machine.event(FIRST, &map(1033, 8, Source::Anonymous));
    machine.touch(FIRST, 1034, true);
    assert_eq!(mapped(&machine)[2..], [(1032, 1), (1034, 2)]);
    machine.event(FIRST, &Event::Unmap { range: range(1026, 20) });
    assert_eq!((mapped(&machine), machine.data_frames()), (vec![], 0));
}

#[test]
fn heap_grows_into_its_last_fixed_page() {
    let mut machine = machine(&all_sizes(), Fixed::new(FixedConfig { size: size(16) }));
    machine.event(FIRST, &map(1024, 5, Source::Heap));
    machine.touch(FIRST, 1028, true);
    machine.event(FIRST, &map(1029, 20, Source::Heap));
    machine.touch(FIRST, 1035, true);
    machine.touch(FIRST, 1048, true);
    assert_eq!(mapped(&machine), [(1024, 16), (1040, 16)]);
    assert_eq!(machine.os.memory().counters.faults, 2);
}

/// A large page is used only if the mapping is large enough (after Weisberg and Wiseman, IRI 2009).
#[test]
fn first_touch_page_lies_inside_its_mapping() {
    let policy = FirstTouch::new(FirstTouchConfig { size: size(15) });
    let mut machine = machine(&all_sizes(), policy);
    machine.event(FIRST, &map(1027, 22, Source::Anonymous));
    (1027..1049).for_each(|page| machine.touch(FIRST, page, true));
    let mut expected: Vec<_> = (1027..1032).map(|page| (page, 1)).collect();
    expected.extend([(1032, 8), (1040, 8), (1048, 1)]);
    assert_eq!(mapped(&machine), expected);
}

#[test]
fn pool_pages_are_allocated_and_returned() {
    let config = HugetlbConfig { nr_hugepages: 3, ..HugetlbConfig::default() };
    let mut machine = machine(&CONVENTIONAL, Hugetlb::new(config));
    let reserved = |machine: &Machine| machine.os.memory().frames.used_frames(Owner::Reserved);
    assert_eq!(reserved(&machine), 3 * 512);
    machine.event(FIRST, &map(0, 1024, Source::Anonymous));
    machine.touch(FIRST, 0, true);
    assert_eq!((reserved(&machine), machine.data_frames()), (3 * 512, 1));
    machine.event(FIRST, &map(1024, 2048, Source::HugeTlb));
    [1024, 1536, 2048].into_iter().for_each(|page| machine.touch(FIRST, page, true));
    assert_eq!((reserved(&machine), machine.data_frames()), (0, 3 * 512 + 1));
    machine.touch(FIRST, 2560, true);
    assert_eq!(machine.os.memory().counters.fallbacks, 1, "the pool is empty");
    // A child shares a page; its last user returns it to the pool.
    let child = machine.os.fork(FIRST).unwrap();
    machine.event(FIRST, &Event::Unmap { range: range(1024, 512) });
    assert_eq!(reserved(&machine), 0);
    machine.os.end(child);
    assert_eq!(reserved(&machine), 512);
    machine.event(FIRST, &Event::Unmap { range: range(1536, 1536) });
    assert_eq!(reserved(&machine), 3 * 512);
    assert_eq!(machine.os.memory().counters.bytes_zeroed, (3 * 512 + 2) * 4096);
    machine.check().unwrap();
}

#[test]
fn oversized_pool_serves_all_anonymous_memory() {
    let all_anonymous = Some(PageSize::HUGE);
    let config = HugetlbConfig { nr_hugepages: 1000, nr_gigantic_pages: 1, all_anonymous };
    let mut machine = Machine::new(FRAMES, Order::LINUX, &CONVENTIONAL, {
        Box::new(Hugetlb::new(HugetlbConfig { nr_hugepages: 60, ..config }))
    });
    assert_eq!(machine.os.memory().counters.fallbacks, 1, "no block of 1 GiB");
    machine.event(FIRST, &map(1000, 1024, Source::Heap));
    machine.touch(FIRST, 1000, true);
    machine.touch(FIRST, 1400, true);
    assert_eq!(mapped(&machine), [(1000, 1), (1024, 512)]);
}

#[test]
fn every_policy_builds_from_its_settings() {
    for entry in POLICIES {
        let usual = (Policies::default().by_name(entry.name).unwrap().usual)();
        assert_eq!(usual.check(), Ok(()), "{}", entry.name);
        assert!(
            usual.required_sizes().is_sorted() && !usual.required_sizes().contains(&PageSize::BASE)
        );
        let sizes = usual.required_sizes();
        let mut machine = Machine::new(1 << 19, Order::LARGEST, &sizes, usual.build());
        machine.event(FIRST, &map(1024, 2048, Source::Anonymous));
        machine.touch(FIRST, 1500, true);
        machine.check().unwrap();
    }
    assert!(Policies::default().by_name("tsp").is_none());
}

fn conserved(
    policy: impl Policy + 'static,
    ops: &[super::machine::Op],
) -> Result<(), TestCaseError> {
    machine(&all_sizes(), policy).play(ops, 0)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(100))]

    #[test]
    fn multi_size_policy_conserves_frames(
        ops in ops(),
        conventional in any::<bool>(),
        defrag in prop::sample::select(vec![Defrag::Always, Defrag::Defer, Defrag::Never]),
        free in 2u8..8,
    ) {
        let config = MthpConfig { defrag, scan_every_instructions: 1, ..MthpConfig::default() };
        let all = all_sizes();
        let sizes = if conventional { &CONVENTIONAL[..] } else { &all };
        let mut machine = machine(sizes, Mthp::new(config));
        leave_blocks(&mut machine, free, 2, true);
        machine.play(&ops, 0)?;
    }

    #[test]
    fn fixed_policy_conserves_frames(ops in ops(), log2 in 12u8..=21) {
        conserved(Fixed::new(FixedConfig { size: size(log2) }), &ops)?;
    }

    #[test]
    fn first_touch_policy_conserves_frames(ops in ops(), log2 in 12u8..=21) {
        conserved(FirstTouch::new(FirstTouchConfig { size: size(log2) }), &ops)?;
    }

    #[test]
    fn pool_policy_conserves_frames(ops in ops(), nr_hugepages in 0u64..20, all in any::<bool>()) {
        let all_anonymous = all.then_some(PageSize::HUGE);
        let config = HugetlbConfig { nr_hugepages, nr_gigantic_pages: 0, all_anonymous };
        let mut machine = machine(&CONVENTIONAL, Hugetlb::new(config));
        for (number, op) in ops.iter().enumerate() {
            machine.step(op);
            if number % 8 == 0 {
                machine.check()?;
            }
            let pool = machine.os.memory().frames.used_frames(Owner::Reserved);
            prop_assert!(pool <= nr_hugepages * 512 && pool.is_multiple_of(512));
        }
        machine.live.clone().into_iter().for_each(|process| machine.end(process));
        machine.check()?;
    }
}
