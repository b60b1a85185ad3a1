//! Sorted nodes: where they lie, the addresses of entries computed without a walk, and the memory of regions.

use crate::small::{RW, page, vma};
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::{Format, PageTable, SortedFormat};
use octavo_os::policy::BasePages;
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, PageNumber, PageSize, PhysAddr, Protection, VirtAddr,
};

const SORTED: SortedFormat = SortedFormat { levels: [true; 2], min_pages: 512, registers: 16 };

/// The first base page of a GiB.
const GIB: u64 = 1 << 18;

/// An operating system with one process, whose root is in frame 0.
fn system(frames: u64, sorted: SortedFormat) -> (Os, ProcessId) {
    let frames = Frames::new(MemoryShape::new(frames, Order::LINUX).unwrap());
    let format = Format { sorted: Some(sorted), ..Format::default() };
    let mut os = Os::new(Memory::new(frames, &[PageSize::HUGE], format), Box::new(BasePages));
    let process = os.spawn().unwrap();
    (os, process)
}

fn touch(os: &mut Os, process: ProcessId, at: u64) {
    os.fault(process, page(at), Access::Store).unwrap();
}

fn unmap(os: &mut Os, process: ProcessId, at: u64, pages: u64) {
    let range = AddrRange::new(VirtAddr::new(at << 12), pages << 12);
    os.event(process, &Event::Unmap { range }).unwrap();
}

fn remap(os: &mut Os, process: ProcessId, from: u64, to: u64, pages: u64) {
    let range = |at: u64| AddrRange::new(VirtAddr::new(at << 12), pages << 12);
    os.event(process, &Event::Remap { from: range(from), to: range(to) }).unwrap();
}

fn protect(os: &mut Os, process: ProcessId, at: u64, pages: u64, rights: u64) {
    let range = AddrRange::new(VirtAddr::new(at << 12), pages << 12);
    os.event(process, &Event::Protect { range, protection: Protection::from_bits(rights) })
        .unwrap();
}

fn table(os: &Os, process: ProcessId) -> &PageTable {
    &os.memory().process(process).table
}

/// The entries of levels 1 and 2 that a walk reads.
fn walked(os: &Os, process: ProcessId, at: u64) -> [Option<PhysAddr>; 2] {
    let walk = table(os, process).walk(page(at));
    [1, 2].map(|level| {
        let mut steps = walk.steps().iter();
        steps.find(|step| step.level == level).map(|step| step.at)
    })
}

fn computed(os: &Os, process: ProcessId, at: u64) -> [Option<PhysAddr>; 2] {
    table(os, process).sorted_entries(page(at))
}

fn page_table_frames(os: &Os) -> u64 {
    os.memory().check().unwrap();
    os.memory().frames.used_frames(Owner::PageTable)
}

#[test]
fn entries_follow_from_the_address() {
    let (mut os, process) = system(1 << 14, SORTED);
    // Twelve nodes of level 1, in two GiB.
    let first = 3 * GIB - 5 * 512 - 100;
    vma(&mut os, process, first, 11 * 512);
    assert_eq!(page_table_frames(&os), 1 + 12 + 2);
    for at in [10 * 512, 0, 6 * 512, 511 + 4 * 512] {
        let at = first + at;
        touch(&mut os, process, at);
        assert_eq!(walked(&os, process, at), computed(&os, process, at));
    }
    let [lowest, _] = computed(&os, process, first);
    let [of_last, _] = computed(&os, process, first + 11 * 512 - 1);
    assert_eq!(of_last.unwrap().raw() - lowest.unwrap().raw(), (11 * 512 - 1) * 8);
    assert_eq!(computed(&os, process, first - 1), [None; 2]);
    assert_eq!(computed(&os, process, first + 11 * 512), [None; 2]);
    // Besides the root and the regions, there is only a node of level 3.
    assert_eq!(page_table_frames(&os), 1 + 12 + 2 + 1);
    unmap(&mut os, process, first, 11 * 512);
    assert_eq!(page_table_frames(&os), 1);
}

#[test]
fn small_mappings_are_no_areas_until_they_have_grown() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 300);
    touch(&mut os, process, 0);
    vma(&mut os, process, 300, 200);
    assert_eq!((computed(&os, process, 0), os.memory().sorted_areas()), ([None; 2], Some(0)));
    vma(&mut os, process, 500, 12);
    assert_eq!(computed(&os, process, 0), walked(&os, process, 0), "nodes that were there");
    assert_eq!(os.memory().sorted_areas(), Some(1));
    // The next area is the part of the mapping outside the first area.
    vma(&mut os, process, 512, 600);
    touch(&mut os, process, 513);
    assert_eq!(os.memory().sorted_areas(), Some(2));
    assert_eq!(computed(&os, process, 513), walked(&os, process, 513));
    assert_eq!(page_table_frames(&os), 3 + 1 + 2);
}

#[test]
fn mappings_beyond_the_maximum_number_of_areas_are_no_areas() {
    let registers = 2000;
    let (mut os, process) = system(1 << 14, SortedFormat { registers, ..SORTED });
    // One page lies between two mappings.
    let first = |number: u64| number * 1024;
    (0..1100).for_each(|number| vma(&mut os, process, first(number), 1023));
    assert_eq!(os.memory().sorted_areas(), Some(1024));
    let is_known = |os: &Os, number: u64| computed(os, process, first(number)) != [None; 2];
    assert_eq!([1023, 1024, 1099].map(|number| is_known(&os, number)), [true, false, false]);
    // An area that ends makes room for one mapped afterwards.
    unmap(&mut os, process, first(7), 1023);
    vma(&mut os, process, first(1100), 1023);
    assert_eq!([7, 1024, 1100].map(|number| is_known(&os, number)), [false, false, true]);
    // An area may move: the old one ends first.
    remap(&mut os, process, first(9), first(1200), 1023);
    assert_eq!([9, 1200].map(|number| is_known(&os, number)), [false, true]);
    unmap(&mut os, process, first(1200), 1023);
    (0..1101).for_each(|number| unmap(&mut os, process, first(number), 1023));
    assert_eq!((page_table_frames(&os), os.memory().sorted_areas()), (1, Some(0)));
}

#[test]
fn place_of_an_older_node_is_a_hole() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 10, 1);
    touch(&mut os, process, 10);
    vma(&mut os, process, 100, 1000);
    for (at, is_sorted) in [(100, false), (600, true), (1099, true)] {
        touch(&mut os, process, at);
        let [walked, computed] = [walked(&os, process, at), computed(&os, process, at)];
        assert_eq!((walked[0] == computed[0], walked[1]), (is_sorted, computed[1]), "{at}");
    }
    assert_eq!(page_table_frames(&os), 4 + 3, "three places, the first of them empty");
    // A node that is made again lies at its place.
    unmap(&mut os, process, 10, 1);
    unmap(&mut os, process, 100, 1);
    touch(&mut os, process, 101);
    assert_eq!(walked(&os, process, 101), computed(&os, process, 101));
    assert_eq!(page_table_frames(&os), 3 + 3);
}

#[test]
fn nodes_outlast_their_area() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 1024);
    vma(&mut os, process, 1030, 5);
    touch(&mut os, process, 1000);
    // The area ends, and its node of level 2 becomes ordinary.
    touch(&mut os, process, 1031);
    unmap(&mut os, process, 0, 1024);
    assert_eq!((os.memory().sorted_areas(), page_table_frames(&os)), (Some(0), 4));
    unmap(&mut os, process, 1030, 5);
    assert_eq!(page_table_frames(&os), 1);
}

#[test]
fn areas_share_a_region_that_has_the_places_of_both() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 1024);
    vma(&mut os, process, 4096, 512);
    touch(&mut os, process, 4100);
    assert_eq!(computed(&os, process, 4100), walked(&os, process, 4100));
    assert_eq!(page_table_frames(&os), 2 + 1 + 2 + 1, "one node of level 2");
    unmap(&mut os, process, 0, 1024);
    assert_eq!(computed(&os, process, 4100), walked(&os, process, 4100));
    assert_eq!(page_table_frames(&os), 2 + 1 + 1);
}

#[test]
fn registers_have_the_largest_areas() {
    let (mut os, process) = system(1 << 14, SortedFormat { registers: 2, ..SORTED });
    for (gib, pages) in [(1, 600), (2, 1200), (3, 600), (4, 700)] {
        vma(&mut os, process, gib * GIB, pages);
    }
    let known = |os: &Os| {
        (1..5).filter(|gib| computed(os, process, gib * GIB)[0].is_some()).collect::<Vec<_>>()
    };
    assert_eq!(known(&os), [2, 4]);
    unmap(&mut os, process, 4 * GIB, 700);
    assert_eq!(known(&os), [1, 2], "the lower of two equal ones");
    assert_eq!(os.memory().sorted_areas(), Some(2));
}

#[test]
fn each_level_can_be_sorted_alone() {
    for levels in [[true, false], [false, true]] {
        let (mut os, process) = system(1 << 16, SortedFormat { levels, ..SORTED });
        vma(&mut os, process, 0, 2 * GIB);
        touch(&mut os, process, GIB + 5);
        let (walked, computed) = (walked(&os, process, GIB + 5), computed(&os, process, GIB + 5));
        for level in [0, 1] {
            assert_eq!(computed[level], walked[level].filter(|_| levels[level]));
        }
    }
}

#[test]
fn mapping_without_contiguous_memory_for_nodes_is_no_area() {
    // Every other frame of memory is allocated.
    let (mut os, process) = system(2048, SORTED);
    let frames = &mut os.memory_mut().frames;
    let all: Vec<_> =
        std::iter::from_fn(|| frames.allocate(Order::BASE, Owner::Shadow).ok()).collect();
    all.iter().step_by(2).for_each(|frame| frames.free(*frame, Order::BASE));
    vma(&mut os, process, 0, 1024);
    assert_eq!(os.memory().sorted_areas(), Some(0));
    assert_eq!(os.memory().frames.used_frames(Owner::PageTable), 1);
    touch(&mut os, process, 3);
    assert_eq!(computed(&os, process, 3), [None; 2]);
    // An area with one node of each level needs no contiguous frames.
    vma(&mut os, process, 4096, 512);
    assert_eq!(os.memory().sorted_areas(), Some(1));
    assert_eq!(
        computed(&os, process, 4100)[1].unwrap().frame(),
        walked(&os, process, 3)[1].unwrap().frame()
    );
}

#[test]
fn mapping_whose_nodes_take_a_large_share_of_memory_is_no_area() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 257 << 9);
    assert_eq!((os.memory().sorted_areas(), page_table_frames(&os)), (Some(0), 1));
    vma(&mut os, process, GIB, 256 << 9);
    assert_eq!((os.memory().sorted_areas(), page_table_frames(&os)), (Some(1), 1 + 256 + 1));
}

#[test]
fn child_has_areas_of_its_own() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 1024);
    touch(&mut os, process, 700);
    let child = os.fork(process).unwrap();
    assert_eq!(computed(&os, child, 700), walked(&os, child, 700));
    assert_ne!(computed(&os, child, 700), computed(&os, process, 700));
    assert_eq!(page_table_frames(&os), 2 * 5);
    os.end(child);
    assert_eq!(page_table_frames(&os), 5);
}

#[test]
fn moved_mapping_is_an_area_at_its_new_place() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 1024);
    touch(&mut os, process, 700);
    let range = |at: u64, pages: u64| AddrRange::new(VirtAddr::new(at << 12), pages << 12);
    let event = Event::Remap { from: range(0, 1024), to: range(5 * GIB, 2048) };
    os.event(process, &event).unwrap();
    assert_eq!(computed(&os, process, 700), [None; 2]);
    touch(&mut os, process, 5 * GIB + 2000);
    for at in [700, 2000].map(|at| 5 * GIB + at) {
        assert_eq!(computed(&os, process, at), walked(&os, process, at));
    }
    assert_eq!(os.memory().sorted_areas(), Some(1));
    page_table_frames(&os);
}

#[test]
fn part_of_a_mapping_that_is_too_large_becomes_an_area() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 300 << 9);
    assert_eq!(os.memory().sorted_areas(), Some(0));
    protect(&mut os, process, 0, 1024, 1);
    assert_eq!(os.memory().sorted_areas(), Some(1));
    touch(&mut os, process, 700);
    assert_eq!(computed(&os, process, 700), walked(&os, process, 700));
    // A mapping that is one area stays one.
    protect(&mut os, process, 512, 100, 3);
    assert_eq!(os.memory().sorted_areas(), Some(1));
    assert_eq!(computed(&os, process, 700), walked(&os, process, 700));
    assert_eq!(computed(&os, process, 1024), [None; 2]);
    page_table_frames(&os);
}

/// Three parts, of which each is small enough to be an area.
#[test]
fn all_parts_of_a_split_mapping_become_areas() {
    for is_unmapped in [false, true] {
        let (mut os, process) = system(1 << 14, SORTED);
        vma(&mut os, process, 0, 257 << 9);
        assert_eq!(os.memory().sorted_areas(), Some(0));
        if is_unmapped {
            unmap(&mut os, process, 1024, 1024);
            vma(&mut os, process, 1024, 1024);
        } else {
            protect(&mut os, process, 1024, 1024, 1);
        }
        assert_eq!(os.memory().sorted_areas(), Some(3));
        for at in [100, 1100, 2100] {
            touch(&mut os, process, at);
            assert_eq!(computed(&os, process, at), walked(&os, process, at));
        }
        page_table_frames(&os);
    }
}

#[test]
fn surplus_runs_are_contiguous_and_leave_ensured_frames() {
    let mut frames = Frames::new(MemoryShape::new(5 << 10, Order::LINUX).unwrap());
    let at = |frame| Some(FrameNumber::new(frame));
    assert_eq!(frames.allocate_surplus_run(5, Owner::Data), at(0));
    assert_eq!(frames.allocate_surplus_run(3, Owner::Data), at(8));
    assert_eq!(frames.allocate(Order::BASE, Owner::Data), Ok(FrameNumber::new(5)));
    // More than one of the largest blocks: the first is in use.
    assert_eq!(frames.allocate_surplus_run(1025, Owner::Data), at(1024));
    assert_eq!(frames.allocate_surplus_run(2049, Owner::Data), None);
    assert_eq!(frames.allocate_surplus_run(2048, Owner::Data), at(3072));
    assert_eq!(frames.check(), Ok(()));
    frames.free_range(FrameNumber::new(3072), 2048);
    let free = frames.free_frames();
    frames.ensure_free(free - 4).unwrap();
    assert_eq!(frames.allocate_surplus_run(5, Owner::Data), None);
    assert_eq!(frames.allocate_surplus_run(4, Owner::Data), at(12));
}

#[test]
fn page_of_2_mib_leaves_its_place_empty() {
    let (mut os, process) = system(1 << 14, SORTED);
    vma(&mut os, process, 0, 1024);
    let memory = os.memory_mut();
    memory.place_new(process, PageNumber::new(512), PageSize::HUGE, RW).unwrap();
    assert_eq!(walked(&os, process, 600)[0], None);
    assert_eq!(computed(&os, process, 600)[1], walked(&os, process, 600)[1]);
    assert_eq!(page_table_frames(&os), 2 + 2 + 1);
    // A split of the page makes the node, at its place.
    unmap(&mut os, process, 600, 1);
    assert_eq!(computed(&os, process, 601), walked(&os, process, 601));
    assert_eq!(page_table_frames(&os), 2 + 2 + 1);
}

#[test]
fn pages_are_backed_contiguously() {
    let (mut os, process) = system(2048, SORTED);
    vma(&mut os, process, 0, 300);
    touch(&mut os, process, 200);
    let first = os.back_contiguously(process, &(10..20)).unwrap();
    for at in 10..20 {
        assert_eq!(table(&os, process).leaf(page(at)).unwrap().frame, first.plus(at - 10));
    }
    assert_eq!(os.back_contiguously(process, &(12..15)), Some(first.plus(2)));
    // A range with a mapped page, a range without a mapping, and a range larger than the memory that can be spared.
    assert_eq!(os.back_contiguously(process, &(195..205)), None);
    assert_eq!(os.back_contiguously(process, &(300..310)), None);
    os.memory_mut().frames.ensure_free(2000).unwrap();
    assert_eq!(os.back_contiguously(process, &(30..80)), None);
    assert!(table(&os, process).leaf(page(30)).is_none());
    assert_eq!(os.memory().check(), Ok(()));
}
