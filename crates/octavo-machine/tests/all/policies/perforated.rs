//! Creation and changes of perforated pages.

use octavo_machine::designs::perforated::{PerforatedConfig, hole_filter};
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::Format;
use octavo_os::policy::{PolicySettings, ReserveWhen, ThpConfig};
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{Access, VirtAddr};
use octavo_types::{AddrRange, Event, FrameNumber, MapSource, PageNumber, PageSize, Protection};

const IMMOVABLE: Owner = Owner::Background { movable: false };
const MOVABLE: Owner = Owner::Background { movable: true };

fn page(raw: u64) -> PageNumber {
    PageNumber::new(raw)
}

/// Eight regions. Every second frame of the first is immovable; each other region has frames of these owners at these
/// places.
fn fragmented(held: &[(u64, Owner)], config: PerforatedConfig) -> (Os, ProcessId) {
    let mut frames = Frames::new(MemoryShape::new(8 * 512, Order::LINUX).unwrap());
    let mut take = |frame: u64, owner| {
        assert!(frames.allocate_at(FrameNumber::new(frame), Order::BASE, owner));
    };
    (0..512).step_by(2).for_each(|at| take(at, IMMOVABLE));
    for region in 1..8 {
        held.iter().for_each(|(place, owner)| take(region * 512 + place, *owner));
    }
    started(frames, config)
}

fn started(frames: Frames, config: PerforatedConfig) -> (Os, ProcessId) {
    let format = Format { holes: Some(hole_filter), ..Format::default() };
    let memory = Memory::new(frames, &[PageSize::HUGE], format);
    let mut os = Os::new(memory, config.build());
    let process = os.spawn().unwrap();
    let range = AddrRange::new(VirtAddr::new(0), 8 << 21);
    let (protection, source) = (Protection::from_bits(3), MapSource::Anonymous);
    os.event(process, &Event::Map { range, protection, source, flags: 2 }).unwrap();
    (os, process)
}

/// Touches a page. Returns the number of holes of its perforated page, if any.
fn touch(os: &mut Os, process: ProcessId, at: u64) -> Option<u32> {
    os.fault(process, page(at), Access::Store).unwrap();
    assert_eq!(os.memory().check(), Ok(()));
    let table = &os.memory().process(process).table;
    assert!(table.leaf(page(at)).is_some());
    table.holes_of(page(at)).map(|(_, holes)| holes.count())
}

fn holes(places: impl Iterator<Item = u64>, owner: Owner) -> Vec<(u64, Owner)> {
    places.map(|place| (place, owner)).collect()
}

/// Section III-C: "When <25% of a 2MB region is non-movable and at most 4 of 8 filter bits are set".
#[test]
fn regions_are_chosen_by_immovable_share_and_filter_bits() {
    let usual = PerforatedConfig::default();
    let holes_made = |held: &[(u64, Owner)], config| {
        let (mut os, process) = fragmented(held, config);
        touch(&mut os, process, 512)
    };
    assert_eq!(holes_made(&[], usual), None, "a free block is a huge page");
    assert_eq!(holes_made(&holes(0..127, IMMOVABLE), usual), Some(127));
    assert_eq!(holes_made(&holes(0..128, IMMOVABLE), usual), None, "a quarter is too much");
    let relaxed = PerforatedConfig { max_immovable_percent: 26, ..usual };
    assert_eq!(holes_made(&holes(0..128, IMMOVABLE), relaxed), Some(128));
    let eighths = |count: u64| holes((0..count).map(|eighth| eighth * 64 + 7), IMMOVABLE);
    assert_eq!(holes_made(&eighths(4), usual), Some(4));
    assert_eq!(holes_made(&eighths(5), usual), None);
    let relaxed = PerforatedConfig { max_filter_bits: 5, ..usual };
    assert_eq!(holes_made(&eighths(5), relaxed), Some(5));
}

#[test]
fn movable_frames_leave_a_chosen_region() {
    let mut held = holes(0..300, MOVABLE);
    held.push((310, IMMOVABLE));
    let (mut os, process) = fragmented(&held, PerforatedConfig::default());
    let before = os.memory().frames.used_frames(MOVABLE);
    assert_eq!(touch(&mut os, process, 512), Some(1));
    assert_eq!(os.memory().frames.used_frames(MOVABLE), before);
    assert_eq!(os.memory().counters.frames_compacted, 300);
}

/// Section VI: "it can choose whether the hole pages are allocated at this point or lazily on subsequent
/// faults". Allocation needs no shootdown.
#[test]
fn hole_pages_setting_selects_when_holes_are_filled() {
    let held = holes(0..8, IMMOVABLE);
    for (hole_pages, mapped) in [(ReserveWhen::Touched, 504), (ReserveWhen::Mapped, 512)] {
        let config = PerforatedConfig { hole_pages, ..PerforatedConfig::default() };
        let (mut os, process) = fragmented(&held, config);
        assert_eq!(touch(&mut os, process, 512 + 9), Some(8));
        assert_eq!(os.memory().leaves(process, &(512..1024)).len(), mapped);
        os.take_invalidations();
        if hole_pages == ReserveWhen::Touched {
            assert_eq!(touch(&mut os, process, 512 + 3), Some(8));
        }
        assert_eq!(os.take_invalidations(), [], "no bit has changed");
        let table = &os.memory().process(process).table;
        let (region, _) = table.holes_of(page(512)).unwrap();
        let leaf = table.leaf(page(512 + 3)).unwrap();
        assert_ne!(leaf.frame, region.frame_of(page(512 + 3)));
    }
}

/// "The perforated page could reserve a whole large page, but actually map (and patch the holes) when the
/// regular pages are actually touched": one shootdown each.
#[test]
fn unused_holes_are_patched_on_touch() {
    let (mut os, process) = with_unused_holes();
    assert_eq!(touch(&mut os, process, 512), Some(511));
    os.take_invalidations();
    for at in 1..512 {
        let data = os.memory().frames.used_frames(Owner::Data);
        assert_eq!((data, touch(&mut os, process, 512 + at)), (at, Some(511 - at as u32)));
        assert_eq!(os.take_invalidations().len(), 1);
    }
    assert_eq!(os.memory().frames.used_frames(Owner::Reserved), 0);
    os.background(1);
    assert_eq!(os.memory().process(process).table.leaf(page(512)).unwrap().size, PageSize::HUGE);
    assert_eq!(os.memory().check(), Ok(()));
    // Reservations end with their mapping.
    assert_eq!(touch(&mut os, process, 1024), Some(511));
    let range = AddrRange::new(VirtAddr::new(0), 8 << 21);
    os.event(process, &Event::Unmap { range }).unwrap();
    assert_eq!(os.memory().frames.used_frames(Owner::Reserved), 0);
    assert_eq!(os.memory().check(), Ok(()));
}

fn with_unused_holes() -> (Os, ProcessId) {
    let scan = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
    let config =
        PerforatedConfig { unused_are_holes: true, huge: scan, ..PerforatedConfig::default() };
    started(Frames::new(MemoryShape::new(8 * 512, Order::LINUX).unwrap()), config)
}

/// A page is not split while it has a reservation, since further parts may be mapped.
#[test]
fn page_with_few_parts_is_split_when_its_reservation_breaks() {
    let (mut os, process) = with_unused_holes();
    assert_eq!(touch(&mut os, process, 512), Some(511));
    os.background(1);
    assert_eq!(os.memory().counters.splits, 0);
    assert!(os.memory_mut().frames.break_oldest_reservation());
    os.background(2);
    assert_eq!((os.memory().counters.splits, os.memory().check()), (1, Ok(())));
    assert!(os.memory().process(process).table.holes_of(page(512)).is_none());
    assert_eq!(touch(&mut os, process, 513), None);
}

#[test]
fn least_recently_used_reservation_is_broken() {
    let (mut os, process) = with_unused_holes();
    assert_eq!(touch(&mut os, process, 512), Some(511));
    assert_eq!(touch(&mut os, process, 1024), Some(511));
    assert_eq!(touch(&mut os, process, 513), Some(510));
    assert!(os.memory_mut().frames.break_oldest_reservation());
    assert_eq!(os.memory().frames.used_frames(Owner::Reserved), 510);
    assert_eq!(os.memory().check(), Ok(()));
}

#[test]
fn holes_are_patched_when_their_frames_can_be_vacated() {
    let scan = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
    let config = PerforatedConfig {
        hole_pages: ReserveWhen::Mapped,
        huge: scan,
        ..PerforatedConfig::default()
    };
    let (mut os, process) = fragmented(&holes(0..8, IMMOVABLE), config);
    assert_eq!(touch(&mut os, process, 512), Some(8));
    let (region, _) = os.memory().process(process).table.holes_of(page(512)).unwrap();
    for at in 0..8 {
        let frames = &mut os.memory_mut().frames;
        if at % 2 == 0 {
            frames.free(region.frame.plus(at), Order::BASE);
        } else {
            frames.change_owner(region.frame.plus(at), Order::BASE, MOVABLE);
        }
    }
    os.background(1);
    assert_eq!(os.memory().counters.patches, 8);
    assert_eq!(os.memory().process(process).table.leaf(page(512)).unwrap().size, PageSize::HUGE);
    assert_eq!(os.memory().check(), Ok(()));
}

/// Operations that would split a huge page punch holes; in the background, a page with too few parts is split.
#[test]
fn copy_on_write_and_partial_unmaps_punch_holes() {
    let scan = ThpConfig { scan_every_instructions: 1, max_ptes_none: 0, ..ThpConfig::default() };
    let config = PerforatedConfig { huge: scan, ..PerforatedConfig::default() };
    let frames = Frames::new(MemoryShape::new(8 * 512, Order::LINUX).unwrap());
    let (mut os, process) = started(frames, config);
    assert_eq!(touch(&mut os, process, 512), None);
    let child = os.fork(process).unwrap();
    assert_eq!(touch(&mut os, process, 600), Some(1));
    assert_eq!(os.memory().counters.bytes_copied, 4096);
    assert_eq!(touch(&mut os, child, 700), Some(1), "each has its own holes");
    assert_eq!(os.memory().frames.used_frames(Owner::Data), 514);
    assert_eq!(os.memory().counters.splits, 0);
    os.end(child);
    let range = AddrRange::new(VirtAddr::new(512 << 12), 400 << 12);
    os.event(process, &Event::Unmap { range }).unwrap();
    let perforation = os.memory().process(process).table.holes_of(page(1000));
    assert_eq!(perforation.unwrap().1.count(), 400);
    let range = AddrRange::new(VirtAddr::new(912 << 12), 95 << 12);
    os.event(process, &Event::Unmap { range }).unwrap();
    os.background(1);
    assert!(os.memory().process(process).table.holes_of(page(1010)).is_none());
    assert_eq!(os.memory().leaves(process, &(512..1024)).len(), 17);
    assert_eq!((os.memory().counters.splits, os.memory().check()), (1, Ok(())));
}

/// `khugepaged` copies mapped pages into the region, except those at holes.
#[test]
fn khugepaged_makes_perforated_pages() {
    let scan = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
    let config = PerforatedConfig { huge: scan, ..PerforatedConfig::default() };
    let (mut os, process) = fragmented(&holes(0..8, IMMOVABLE), config);
    let protect = |os: &mut Os, bits| {
        let range = AddrRange::new(VirtAddr::new(512 << 12), 1 << 12);
        let protection = Protection::from_bits(bits);
        os.event(process, &Event::Protect { range, protection }).unwrap();
    };
    // The mapping has no room for the huge page yet.
    protect(&mut os, 1);
    for at in [514, 600, 601] {
        assert_eq!(touch(&mut os, process, at), None);
    }
    protect(&mut os, 3);
    os.background(1);
    let table = &os.memory().process(process).table;
    let (region, holes) = table.holes_of(page(512)).unwrap();
    let lies_in_place = |at| table.leaf(page(at)).unwrap().frame == region.frame_of(page(at));
    assert_eq!([514, 600, 601].map(lies_in_place), [false, true, true]);
    assert_eq!((holes.count(), os.memory().counters.bytes_copied), (8, 2 * 4096));
    assert_eq!(os.memory().check(), Ok(()));
}

/// `mremap` of whole pages keeps them perforated.
#[test]
fn perforated_pages_move_with_their_holes() {
    let (mut os, process) = fragmented(&holes(0..8, IMMOVABLE), PerforatedConfig::default());
    assert_eq!(touch(&mut os, process, 512 + 3), Some(8));
    let before = os.memory().process(process).table.holes_of(page(512)).unwrap();
    let hole = os.memory().process(process).table.leaf(page(512 + 3)).unwrap().frame;
    let range = |at: u64| AddrRange::new(VirtAddr::new(at << 12), 512 << 12);
    os.event(process, &Event::Remap { from: range(512), to: range(2048) }).unwrap();
    let table = &os.memory().process(process).table;
    let after = table.holes_of(page(2048)).unwrap();
    assert_eq!((after.0.frame, after.1), (before.0.frame, before.1));
    assert_eq!(table.leaf(page(2048 + 3)).unwrap().frame, hole);
    assert_eq!((table.holes_of(page(512)), table.pages_with_holes()), (None, 1));
    assert_eq!(os.memory().check(), Ok(()));
    // A partial move yields base pages.
    os.event(process, &Event::Remap { from: range(2048), to: range(1024 + 64) }).unwrap();
    let table = &os.memory().process(process).table;
    assert_eq!(table.pages_with_holes(), 0);
    assert_eq!(table.leaf(page(1024 + 67)).unwrap().frame, hole);
    assert_eq!(os.memory().check(), Ok(()));
}

/// A node and its shadow node form a block of two frames: without a free block, no page is perforated or moved.
#[test]
fn shadow_nodes_need_a_pair_of_frames() {
    let (mut os, process) =
        fragmented(&holes((0..512).step_by(2), MOVABLE), PerforatedConfig::default());
    assert_eq!(touch(&mut os, process, 512), None);
    assert_eq!(os.memory().frames.used_frames(Owner::Shadow), 0);
    assert_eq!(os.memory().counters.frames_compacted, 0);
}
