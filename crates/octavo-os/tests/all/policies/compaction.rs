//! Compaction for policies: when it runs, and that all pages are found again.

use octavo_os::ProcessId;
use octavo_os::frames::Order;
use octavo_os::policy::{
    Defrag, DefragmentingThpConfig, FirstTouch, FirstTouchConfig, MthpConfig, PolicySettings,
    ThpConfig,
};
use octavo_types::{Event, PageNumber, PageSize};

use super::machine::{Machine, Source, map, range};
use super::others::{CONVENTIONAL, FIRST, FRAMES, leave_blocks, machine, mapped};

/// Half of memory is free in blocks of 64 KiB, and the rest is movable.
#[test]
fn defrag_setting_selects_who_compacts() {
    for (defrag, advice, at_once, later) in [
        (Defrag::Always, 0, true, true),
        (Defrag::Madvise, 0, false, false),
        (Defrag::Madvise, 14, true, true),
        (Defrag::Defer, 14, false, true),
        (Defrag::DeferMadvise, 0, false, true),
        (Defrag::DeferMadvise, 14, true, true),
        (Defrag::Never, 14, false, false),
    ] {
        let mthp = MthpConfig { defrag, scan_every_instructions: 0, ..MthpConfig::default() };
        let huge = ThpConfig { scan_every_instructions: 0, ..ThpConfig::default() };
        let thp = DefragmentingThpConfig { defrag, huge, ..DefragmentingThpConfig::default() };
        let policies = [mthp.build(), thp.build()];
        for (name, policy) in ["mthp", "thp"].into_iter().zip(policies) {
            let mut machine = Machine::new(FRAMES, Order::LINUX, &CONVENTIONAL, policy);
            leave_blocks(&mut machine, 4, 2, true);
            machine.event(FIRST, &map(1024, 2048, Source::Anonymous));
            machine.event(FIRST, &Event::Advise { range: range(1024, 2048), advice });
            machine.touch(FIRST, 1024, true);
            let huge = |machine: &Machine| mapped(machine).iter().any(|(_, pages)| *pages == 512);
            assert_eq!(huge(&machine), at_once, "{name} {defrag:?} {advice}");
            let fallbacks = machine.os.memory().counters.fallbacks;
            assert_eq!(fallbacks, u64::from(!at_once), "{name} {defrag:?} {advice}");
            machine.os.background(1);
            machine.touch(FIRST, 2048, true);
            assert_eq!(huge(&machine), later, "{name} {defrag:?} {advice}");
            let counters = machine.os.memory().counters;
            assert_eq!(counters.compactions > 0, later, "{name} {defrag:?} {advice}");
            assert_eq!(counters.bytes_copied, counters.frames_compacted * 4096);
            machine.check().unwrap();
        }
    }
}

/// Useless compaction is retried after 2, 4, 8 … further requests, at most 64.
#[test]
fn failed_compaction_is_deferred() {
    let thp =
        DefragmentingThpConfig { defrag: Defrag::Always, ..DefragmentingThpConfig::default() };
    let mut machine = Machine::new(FRAMES, Order::LINUX, &CONVENTIONAL, thp.build());
    leave_blocks(&mut machine, 4, 2, false);
    let mut tried = Vec::new();
    machine.event(FIRST, &map(512, 512 * 300, Source::Anonymous));
    for request in 1..300 {
        let before = machine.os.memory().counters.compactions;
        machine.touch(FIRST, request * 512, true);
        if machine.os.memory().counters.compactions > before {
            tried.push(request);
        }
    }
    assert_eq!(tried, [1, 3, 7, 15, 31, 63, 127, 191, 255]);
}

/// Shared, file and background frames are moved, and all pages are found again.
#[test]
fn compaction_moves_shared_pages() {
    let mut machine = machine(&CONVENTIONAL, octavo_os::policy::BasePages);
    machine.event(FIRST, &map(0, 512, Source::Anonymous));
    machine.event(FIRST, &map(512, 512, Source::File));
    (0..1024).for_each(|page| machine.touch(FIRST, page, page % 3 == 0));
    let child = machine.os.fork(FIRST).unwrap();
    machine.live.push(child);
    (0..1024).step_by(5).for_each(|page| machine.touch(child, page, true));
    for page in (1..1024).step_by(3) {
        machine.event(FIRST, &Event::Unmap { range: range(page, 1) });
        machine.event(child, &Event::Unmap { range: range(page, 1) });
    }
    machine.check().unwrap();
    let memory = machine.os.memory_mut();
    let before = memory.process(FIRST).table.used(PageNumber::new(0));
    let mut compactor = octavo_os::frames::Compactor::default();
    let limits = octavo_os::frames::CompactionLimits::ALL;
    let stays = memory.process(child).table.leaf(PageNumber::new(33)).unwrap().frame;
    let order = Order::new(4).unwrap();
    let done = memory.compact_for(&mut compactor, order, limits, |frame| frame == stays);
    assert!(done.moved_frames > 50, "{done:?}");
    assert_eq!(memory.process(FIRST).table.used(PageNumber::new(0)), before);
    let after = memory.process(child).table.leaf(PageNumber::new(33)).unwrap().frame;
    assert_eq!(after, stays);
    machine.event(FIRST, &Event::Unmap { range: range(5000, 1) });
    machine.play(&[], 0).unwrap();
}

/// A child has split a huge page that its parent maps whole: its base pages stay.
#[test]
fn compaction_keeps_parts_of_larger_pages() {
    let mut machine =
        machine(&CONVENTIONAL, FirstTouch::new(FirstTouchConfig { size: PageSize::HUGE }));
    machine.event(FIRST, &map(512, 512, Source::Anonymous));
    machine.touch(FIRST, 512, true);
    let child = machine.os.fork(FIRST).unwrap();
    machine.live.push(child);
    machine.touch(child, 600, true);
    // Single free frames above.
    leave_blocks(&mut machine, 0, 2, false);
    let memory = machine.os.memory_mut();
    let frame_of = |memory: &octavo_os::Memory, process: ProcessId, page: u64| {
        let page = PageNumber::new(page);
        memory.process(process).table.leaf(page).unwrap().frame_of(page)
    };
    let before = frame_of(memory, child, 800);
    let mut compactor = octavo_os::frames::Compactor::default();
    let limits = octavo_os::frames::CompactionLimits::ALL;
    memory.compact_for(&mut compactor, Order::new(3).unwrap(), limits, |_| false);
    assert_eq!(frame_of(memory, child, 800), before);
    assert_eq!(frame_of(memory, FIRST, 800), before);
    assert_eq!(memory.check(), Ok(()));
}
