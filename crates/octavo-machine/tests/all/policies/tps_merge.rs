//! Tailored pages that are made by merging contiguous pages, or by compaction.

use octavo_machine::designs::tps::TpsConfig;
use octavo_os::frames::{Order, Owner};
use octavo_os::policy::Defrag;
use octavo_types::PageNumber;

use super::system::{Machine, Source, map};
use super::tps::{FIRST, machine, mapped, threshold};

/// Two consecutive requests are contiguous: "a page merge is possible".
#[test]
fn contiguous_pages_are_merged() {
    let config = TpsConfig { merge_every_instructions: 10, ..threshold(100) };
    let mut machine = machine(config);
    let touch = |machine: &mut Machine, at: u64, pages: u64| {
        machine.event(FIRST, &map(at, pages, Source::Anonymous));
        (at..at + pages).for_each(|page| machine.touch(FIRST, page, page == at));
    };
    // Uses up the 256 KiB block next to the block of the root node.
    touch(&mut machine, 1024, 64);
    touch(&mut machine, 2048, 64);
    let first = machine.os.memory().process(FIRST).table.leaf(PageNumber::new(2048)).unwrap().frame;
    assert!(first.raw().is_multiple_of(128), "the test needs an aligned block");
    touch(&mut machine, 2048 + 64, 64);
    let apart = [(1024, 64), (2048, 64), (2112, 64)];
    machine.os.background(9);
    assert_eq!(mapped(&machine), apart);
    machine.os.background(10);
    assert_eq!(mapped(&machine), [(1024, 64), (2048, 128)]);
    let memory = machine.os.memory();
    assert_eq!((memory.counters.shootdowns, memory.counters.bytes_copied), (0, 0));
    assert_eq!(memory.process(FIRST).table.used(PageNumber::new(2050)), Some((true, true)));
    machine.check().unwrap();
}

/// "the OS can request memory compaction when fragmentation is high" (Section III-B.2); claimed frames of
/// reservations stay.
#[test]
fn compaction_makes_room_for_reservations() {
    for (defrag, expected) in [(Defrag::Never, 16), (Defrag::Always, 512)] {
        let mut machine = machine(TpsConfig { defrag, ..threshold(100) });
        let frames = &mut machine.os.memory_mut().frames;
        let foreign = Owner::Background { movable: true };
        let order = Order::new(4).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| frames.allocate(order, foreign).ok()).collect();
        held.iter().step_by(2).for_each(|block| frames.free(*block, order));
        for at in [1024, 4096] {
            machine.event(FIRST, &map(at, 512, Source::Anonymous));
            (at..at + 512).for_each(|page| machine.touch(FIRST, page, true));
            assert_eq!(mapped(&machine).last().unwrap().1, expected, "{defrag:?}");
        }
        let counters = machine.os.memory().counters;
        assert_eq!(counters.shootdowns, counters.grown_by_order[9], "nothing in use has moved");
        machine.check().unwrap();
    }
}
