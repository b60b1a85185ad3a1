//! Tailored Page Sizes, after Guvenilir and Patt (ISCA 2020, Section III-B).

use octavo_machine::designs::tps::{Span, Tps, TpsConfig};
use octavo_os::frames::{Order, Owner};
use octavo_os::policy::{BasePages, Defrag, ReserveWhen};
use octavo_os::{ProcessId, base_pages};
use octavo_types::{Event, PageNumber, PageSize};
use proptest::prelude::*;

use super::system::{Machine, Op, Source, all_sizes, map, ops, range};

const FRAMES: u64 = 1 << 15;
pub const FIRST: ProcessId = ProcessId(0);

pub fn machine(config: TpsConfig) -> Machine {
    Machine::new(FRAMES, Order::LARGEST, &all_sizes(), Box::new(Tps::new(config)))
}

pub fn threshold(promotion_threshold_percent: u8) -> TpsConfig {
    TpsConfig { promotion_threshold_percent, ..TpsConfig::default() }
}

/// The mapped pages, as first page and size in base pages.
pub fn mapped(machine: &Machine) -> Vec<(u64, u64)> {
    let leaves = machine.os.memory().leaves(FIRST, &(0..u64::MAX));
    leaves.iter().map(|leaf| (leaf.page.raw(), base_pages(leaf.size))).collect()
}

fn reserved(machine: &Machine) -> u64 {
    machine.os.memory().frames.used_frames(Owner::Reserved)
}

/// "an aligned 28kB request results in 16kB+8kB+4kB".
#[test]
fn aligned_28kib_request_uses_three_reservations() {
    let mut machine = machine(threshold(100));
    machine.event(FIRST, &map(512, 7, Source::Anonymous));
    assert_eq!(reserved(&machine), 6, "the last base page is not worth a reservation");
    for page in 512..519 {
        machine.touch(FIRST, page, true);
    }
    assert_eq!(mapped(&machine), [(512, 4), (516, 2), (518, 1)]);
    assert_eq!((machine.data_frames(), reserved(&machine)), (7, 0));
}

/// "an allocation request of 2052 KB would result in a 4 MB page reservation being created."
#[test]
fn request_of_2052kib_rounds_up_to_4mib() {
    let mut machine = machine(TpsConfig { span: Span::RoundUp, ..threshold(100) });
    machine.event(FIRST, &map(1024, 513, Source::Anonymous));
    assert_eq!(reserved(&machine), 1024);
    for page in 1024..1024 + 513 {
        machine.touch(FIRST, page, false);
    }
    assert_eq!(mapped(&machine), [(1024, 1024)]);
    let counters = machine.os.memory().counters;
    assert_eq!(counters.bytes_mapped_untouched, 511 * 4096, "nearly half of it is wasted");
    assert_eq!((counters.bytes_zeroed, counters.shootdowns), (1024 * 4096, 1));
    machine.event(FIRST, &Event::Unmap { range: range(1024, 513) });
    assert_eq!(machine.data_frames(), 0, "what was beyond the end goes with it");
}

/// A program may unmap the part of a page beyond the end of its mapping. The reservation then lacks these frames.
#[test]
fn pages_do_not_grow_over_frames_given_back_beyond_the_end() {
    let mut machine = machine(TpsConfig { span: Span::RoundUp, ..threshold(100) });
    machine.event(FIRST, &map(1024, 9, Source::Anonymous));
    machine.touch(FIRST, 1032, true);
    assert_eq!(mapped(&machine), [(1032, 8)]);
    machine.event(FIRST, &Event::Unmap { range: range(1038, 2) });
    for page in 1024..1032 {
        machine.touch(FIRST, page, true);
    }
    assert_eq!(mapped(&machine), [(1024, 8), (1032, 4), (1036, 2)]);
    assert_eq!((machine.data_frames(), reserved(&machine)), (14, 0));
    machine.check().unwrap();
}

/// "frame reservations [are] incrementally filled with growing page sizes": each touch maps the largest page around it
/// that is fully touched.
#[test]
fn pages_grow_with_touches_without_invalidations() {
    let mut machine = machine(threshold(100));
    machine.event(FIRST, &map(1024, 8, Source::Anonymous));
    let after = |machine: &mut Machine, page| {
        machine.touch(FIRST, page, true);
        mapped(machine)
    };
    assert_eq!(after(&mut machine, 1025), [(1025, 1)]);
    assert_eq!(after(&mut machine, 1024), [(1024, 2)]);
    assert_eq!(after(&mut machine, 1027), [(1024, 2), (1027, 1)]);
    assert_eq!(after(&mut machine, 1026), [(1024, 4)]);
    for page in [1031, 1029, 1028] {
        machine.touch(FIRST, page, true);
    }
    assert_eq!(mapped(&machine), [(1024, 4), (1028, 2), (1031, 1)]);
    assert_eq!(after(&mut machine, 1030), [(1024, 8)], "two sizes at once");
    let counters = machine.os.memory().counters;
    assert_eq!((counters.shootdowns, counters.bytes_copied), (0, 0));
    assert_eq!(counters.grown_by_order[..4], [0, 2, 1, 1]);
    let table = &machine.os.memory().process(FIRST).table;
    assert_eq!(table.used(PageNumber::new(1024)), Some((true, true)), "the parts were written to");
}

/// At 50%, every page is promoted with its neighbour; the untouched part is zeroed and counted.
#[test]
fn half_threshold_promotes_at_half_use() {
    let mut machine = machine(threshold(50));
    machine.event(FIRST, &map(1024, 16, Source::Anonymous));
    machine.touch(FIRST, 1024, false);
    assert_eq!(mapped(&machine), [(1024, 2)]);
    machine.touch(FIRST, 1025, false);
    machine.touch(FIRST, 1026, false);
    assert_eq!(mapped(&machine), [(1024, 4)], "two of four took a fault");
    machine.touch(FIRST, 1031, false);
    assert_eq!(mapped(&machine), [(1024, 4), (1030, 2)], "three of eight are not half");
    machine.touch(FIRST, 1028, false);
    assert_eq!(mapped(&machine), [(1024, 8)]);
    let counters = machine.os.memory().counters;
    assert_eq!(counters.bytes_zeroed, 8 * 4096);
    assert_eq!(counters.bytes_mapped_untouched, 4 * 4096);
}

/// "it is possible that whatever minimal memory contiguity is available can be leveraged": without free
/// blocks above 16 KiB, pages have 16 KiB.
#[test]
fn reservations_are_limited_by_free_blocks() {
    let mut machine = machine(threshold(100));
    let frames = &mut machine.os.memory_mut().frames;
    let foreign = Owner::Background { movable: false };
    let mut held = Vec::new();
    while let Ok(block) = frames.allocate(Order::new(2).unwrap(), foreign) {
        held.push(block);
    }
    for block in held.iter().skip(1).step_by(2) {
        frames.free(*block, Order::new(2).unwrap());
    }
    machine.event(FIRST, &map(1024, 64, Source::Anonymous));
    for page in 1024..1024 + 64 {
        machine.touch(FIRST, page, true);
    }
    let expected: Vec<_> = (0..16).map(|number| (1024 + number * 4, 4)).collect();
    assert_eq!(mapped(&machine), expected);
    assert!(machine.os.memory().counters.fallbacks > 0);
}

/// Reserved frames "can transition to either state depending on system demands": a base frame comes from the
/// least recently used reservation.
#[test]
fn exhausted_memory_breaks_the_oldest_reservations() {
    let mut machine = machine(threshold(100));
    for at in [0, 8192, 16384] {
        machine.event(FIRST, &map(at, 8192, Source::Anonymous));
    }
    machine.event(FIRST, &map(1 << 20, 16384, Source::File));
    machine.touch(FIRST, 8192, true);
    machine.touch(FIRST, 0, true);
    assert_eq!(reserved(&machine), 8191 + 8191 + 8192);
    for page in 0..16384 {
        machine.touch(FIRST, (1 << 20) + page, false);
    }
    assert_eq!(reserved(&machine), 8191, "the untouched one and the one touched first are broken");
    machine.touch(FIRST, 1, true);
    machine.touch(FIRST, 8193, true);
    let sizes: Vec<_> = mapped(&machine).into_iter().filter(|(page, _)| *page < 16384).collect();
    assert_eq!(sizes, [(0, 2), (8192, 1), (8193, 1)], "only the one that was kept grows");
    machine.check().unwrap();
}

/// The heap grows by 32 pages at a time; without a reservation past its end, no page exceeds 128 KiB.
#[test]
fn heap_grows_into_its_reservation() {
    for (heap, expected) in [(Some(PageSize::HUGE), vec![(1024, 512)]), (None, vec![])] {
        let mut machine = machine(TpsConfig { heap, ..threshold(100) });
        for step in 0..16 {
            machine.event(FIRST, &map(1024 + step * 32, 32, Source::Heap));
            for page in 0..32 {
                machine.touch(FIRST, 1024 + step * 32 + page, true);
            }
            assert_eq!(machine.data_frames(), (step + 1) * 32);
        }
        let huge: Vec<_> = mapped(&machine).into_iter().filter(|(_, pages)| *pages > 32).collect();
        assert_eq!(huge, expected);
        assert_eq!(reserved(&machine), 0);
    }
}

/// A part with other permissions becomes pages of its own, and reservations end with their range.
#[test]
fn partial_protection_or_unmapping_splits_a_page() {
    let mut machine = machine(threshold(100));
    machine.event(FIRST, &map(1024, 16, Source::Anonymous));
    for page in 1024..1032 {
        machine.touch(FIRST, page, true);
    }
    assert_eq!(mapped(&machine), [(1024, 8)]);
    let protection = octavo_types::Protection::from_bits(1);
    machine.event(FIRST, &Event::Protect { range: range(1024, 2), protection });
    assert_eq!(mapped(&machine), [(1024, 2), (1026, 2), (1028, 4)]);
    assert_eq!(reserved(&machine), 8);
    machine.event(FIRST, &Event::Unmap { range: range(1026, 4) });
    assert_eq!(mapped(&machine), [(1024, 2), (1030, 2)]);
    assert_eq!(reserved(&machine), 8);
    machine.event(FIRST, &Event::Unmap { range: range(1033, 1) });
    assert_eq!(reserved(&machine), 6, "a single page is reserved by nothing");
    machine.check().unwrap();
}

/// Pages grow only over private pages of equal permissions.
#[test]
fn pages_do_not_grow_over_shared_or_differently_protected_pages() {
    for (read_only, child_ends) in [(true, false), (false, true)] {
        let mut machine = machine(threshold(100));
        machine.event(FIRST, &map(1024, 4, Source::Anonymous));
        machine.touch(FIRST, 1024, true);
        if read_only {
            let protection = octavo_types::Protection::from_bits(1);
            machine.event(FIRST, &Event::Protect { range: range(1024, 4), protection });
        }
        let child = machine.os.fork(FIRST).unwrap();
        if child_ends {
            machine.os.end(child);
        }
        machine.os.fault(FIRST, PageNumber::new(1025), octavo_types::Access::Load).unwrap();
        assert_eq!(mapped(&machine), [(1024, 1), (1025, 1)], "{read_only}");
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(100))]

    /// "This approach guarantees identical memory usage to using only the base page size of 4KB" (Section
    /// IV-B), for any touches at any time.
    #[test]
    fn full_threshold_uses_the_memory_of_base_pages(
        at in 0u64..3000,
        length in 1u64..3000,
        touches in prop::collection::vec((0u64..3000, 1u64..300), 1..40),
        reserve in prop::sample::select(vec![ReserveWhen::Mapped, ReserveWhen::Touched]),
        source in prop::sample::select(vec![Source::Anonymous, Source::Heap]),
    ) {
        let mut tps = machine(TpsConfig { reserve, ..TpsConfig::default() });
        let base = Box::new(BasePages);
        let mut base = Machine::new(FRAMES, Order::LARGEST, &all_sizes(), base);
        for machine in [&mut tps, &mut base] {
            machine.event(FIRST, &map(at, length, source));
        }
        for (first, pages) in touches {
            for page in first..(first + pages).min(length) {
                tps.touch(FIRST, at + page, true);
                base.touch(FIRST, at + page, true);
                prop_assert_eq!(tps.data_frames(), base.data_frames());
            }
        }
        let (tps, base) = (tps.os.memory().counters, base.os.memory().counters);
        prop_assert_eq!((tps.bytes_zeroed, tps.faults), (base.bytes_zeroed, base.faults));
        prop_assert_eq!(tps.bytes_mapped_untouched, 0);
        // Only page-table nodes that promotion frees need invalidations.
        prop_assert!(tps.shootdowns <= tps.grown_by_order[9..].iter().sum());
    }

    /// For any touches of a mapping that is not changed, each page is the largest aligned page inside its reservation
    /// that reaches the threshold.
    #[test]
    fn page_sizes_match_a_plain_count_of_touches(
        touches in prop::collection::vec((0u64..256, 1u64..40), 1..20),
        percent in prop::sample::select(vec![100u8, 75, 51]),
    ) {
        let mut machine = machine(threshold(percent));
        machine.event(FIRST, &map(1024, 256, Source::Anonymous));
        let mut faulted = std::collections::BTreeSet::new();
        let mut pages: Vec<(u64, u64)> = Vec::new();
        for (first, length) in touches {
            for page in 1024 + first..1024 + (first + length).min(256) {
                if !pages.iter().any(|(start, size)| (*start..start + size).contains(&page)) {
                    faulted.insert(page);
                    let (start, size) = (0..=8)
                        .map(|order| (page >> order << order, 1u64 << order))
                        .rev()
                        .find(|(start, size)| {
                            let touched = faulted.range(*start..start + size).count() as u64;
                            touched * 100 >= u64::from(percent) * size
                        })
                        .unwrap();
                    pages.retain(|(first, _)| !(start..start + size).contains(first));
                    pages.push((start, size));
                    pages.sort_unstable();
                }
                machine.touch(FIRST, page, true);
                prop_assert_eq!(&mapped(&machine), &pages);
            }
        }
    }

    #[test]
    fn frames_are_conserved(
        ops in ops(),
        percent in prop::sample::select(vec![100u8, 75, 50]),
        span in prop::sample::select(vec![Span::Exact, Span::RoundUp]),
        reserve in prop::sample::select(vec![ReserveWhen::Mapped, ReserveWhen::Touched]),
        merge_every_instructions in 0u64..3,
    ) {
        let config = TpsConfig { span, reserve, merge_every_instructions, ..threshold(percent) };
        machine(config).play(&ops, 0)?;
    }

    /// With little free memory, reservations are broken all the time.
    #[test]
    fn frames_are_conserved_under_pressure(
        ops in ops(),
        left in 4000u64..9000,
        defrag in prop::sample::select(vec![Defrag::Always, Defrag::Defer, Defrag::Never]),
    ) {
        let mut machine = machine(TpsConfig { defrag, ..threshold(75) });
        let foreign = Owner::Background { movable: true };
        let frames = &mut machine.os.memory_mut().frames;
        let held: Vec<_> =
            std::iter::from_fn(|| frames.allocate(Order::BASE, foreign).ok()).collect();
        for number in 0..left {
            frames.free(held[(number * 7919 % held.len() as u64) as usize], Order::BASE);
        }
        let without_forks = ops.iter().filter(|op| !matches!(op, Op::Fork));
        machine.play(&without_forks.cloned().collect::<Vec<_>>(), 0)?;
    }
}
