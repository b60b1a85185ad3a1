//! Placements choose the frames of private base pages, and of nodes of level 1 of page tables.

use octavo_os::frames::{Frames, Order, Owner};
use octavo_os::page_table::{DesignCounter, NodePlace};
use octavo_os::policy::BasePages;
use octavo_os::vmas::ObjectId;
use octavo_os::{Memory, Os, Placement, ProcessId};
use octavo_types::{Access, FrameNumber, PageNumber, PageSize};

use crate::small::{RW, leaf, memory, page, place, vma};

/// The page with number n of the process with number p has the frame n + 200 p, except page 9.
#[derive(Default)]
struct ByNumber {
    asked: u64,
}

impl Placement for ByNumber {
    fn choose(&mut self, _: &Frames, process: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        self.asked += 1;
        (page.raw() != 9).then(|| FrameNumber::new(page.raw() + 200 * u64::from(process.0)))
    }

    fn counters(&self) -> Vec<DesignCounter> {
        vec![DesignCounter { name: "asked", value: self.asked, is_level: false }]
    }
}

fn frame(memory: &Memory, process: ProcessId, at: u64) -> u64 {
    leaf(memory, process, at).frame.raw()
}

#[test]
fn placement_chooses_frames_of_new_pages_and_copies() {
    let (mut memory, parent) = memory(1 << 10);
    memory.place_by(Box::new(ByNumber::default()));
    let mut os = Os::new(memory, Box::new(BasePages));
    vma(&mut os, parent, 500, 16);
    os.fault(parent, page(500), Access::Store).unwrap();
    os.fault(parent, page(510), Access::Store).unwrap();
    assert_eq!([500, 510].map(|at| frame(os.memory(), parent, at)), [500, 510]);
    let child = os.fork(parent).unwrap();
    assert_eq!(frame(os.memory(), child, 500), 500, "it is shared");
    os.fault(child, page(500), Access::Store).unwrap();
    assert_eq!(frame(os.memory(), child, 500), 700);
    os.fault(parent, page(510), Access::Store).unwrap();
    assert_ne!(frame(os.memory(), parent, 510), 510, "the child has this frame");
    let counters = os.memory().design_counters();
    assert_eq!(counters.iter().map(|of| (of.name, of.value)).collect::<Vec<_>>(), [("asked", 4)]);
    assert_eq!(os.memory().check(), Ok(()));
}

#[test]
fn page_without_a_choice_takes_any_frame() {
    let (mut chosen, process) = memory(1 << 10);
    chosen.place_by(Box::new(ByNumber::default()));
    let (mut any, _) = memory(1 << 10);
    for memory in [&mut chosen, &mut any] {
        place(memory, process, 9, PageSize::BASE);
        place(memory, process, 512, PageSize::HUGE);
    }
    assert_eq!(
        [9, 512].map(|at| leaf(&chosen, process, at)),
        [9, 512].map(|at| leaf(&any, process, at))
    );
    let placement = chosen.placement::<ByNumber>().unwrap();
    assert_eq!(placement.asked, 1, "larger pages are placed without it");
    assert!(any.placement::<ByNumber>().is_none());
}

#[test]
fn placement_chooses_frames_of_copies_of_files() {
    let (mut memory, process) = memory(1 << 10);
    memory.place_by(Box::new(ByNumber::default()));
    memory.place_copy(process, page(600), (ObjectId(0), 3), RW).unwrap();
    memory.place_object_page(process, page(601), (ObjectId(0), 4), RW).unwrap();
    assert_eq!(frame(&memory, process, 600), 600);
    assert_ne!(frame(&memory, process, 601), 601, "a page of a file is not private");
}

#[test]
fn blocks_kept_for_the_kernel_may_lie_partly_among_frames_set_aside() {
    let (mut memory, _) = memory(1 << 10);
    let order = Order::new(4).unwrap();
    let blocks = [576, 592, 640].map(|first| (FrameNumber::new(first), order));
    memory.frames.keep_for_kernel(blocks.to_vec());
    memory.frames.set_aside(600..650);
    let mut taken = Vec::new();
    while let Ok(frame) = memory.frames.allocate(Order::BASE, Owner::Shadow) {
        taken.push(frame.raw());
    }
    assert!(taken.is_sorted_by_key(|frame| (600..650).contains(frame)), "these come last");
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(memory.frames.check(), Ok(()));
    assert_eq!(taken.len() as u64, memory.frames.used_frames(Owner::Shadow));
    let kinds = [Owner::SetAside, Owner::Background { movable: false }];
    assert_eq!(kinds.map(|kind| memory.frames.used_frames(kind)), [0, 0]);
    assert_eq!(memory.frames.free_frames(), 0);
}

#[test]
fn frames_set_aside_are_for_placed_pages_until_memory_runs_out() {
    let (mut memory, process) = memory(1 << 10);
    memory.frames.set_aside(600..610);
    memory.place_by(Box::new(ByNumber::default()));
    place(&mut memory, process, 602, PageSize::BASE);
    let other = memory.spawn().unwrap();
    place(&mut memory, other, 401, PageSize::BASE);
    assert_eq!(frame(&memory, other, 401), 601);
    assert_eq!(memory.frames.used_frames(Owner::SetAside), 8);
    memory.end(other);
    assert_eq!(memory.frames.used_frames(Owner::SetAside), 9, "a freed frame is set aside again");
    let mut taken = Vec::new();
    while memory.frames.free_frames() > 0 {
        taken.push(memory.frames.allocate(Order::BASE, Owner::Shadow).unwrap().raw());
    }
    assert!(taken.iter().all(|frame| !(600..610).contains(frame)));
    let last: Vec<u64> =
        std::iter::from_fn(|| memory.frames.allocate(Order::BASE, Owner::Shadow).ok())
            .map(FrameNumber::raw)
            .collect();
    assert_eq!(last.len(), 9);
    assert!(memory.frames.sets_aside(), "also when there are none any more");
    assert!(last.iter().all(|frame| (600..610).contains(frame) && *frame != 602));
    assert_eq!(memory.frames.check(), Ok(()));
}

/// The node of the process with number p that maps page n has the frame n / 512 + 100 p.
struct Nodes;

impl Placement for Nodes {
    fn choose(&mut self, _: &Frames, _: ProcessId, _: PageNumber) -> Option<FrameNumber> {
        None
    }

    fn node_place(&self, process: ProcessId) -> Option<NodePlace> {
        let first = 100 * u64::from(process.0);
        Some(Box::new(move |page| FrameNumber::new(page.raw() / 512 + first)))
    }

    fn assumed_frame(&self, _: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        Some(FrameNumber::new(page.raw() + 1))
    }
}

/// The frame of the node of level 1 for a page.
fn node(memory: &Memory, process: ProcessId, at: u64) -> u64 {
    memory.process(process).table.walk(page(at)).steps()[3].at.frame().raw()
}

#[test]
fn placement_chooses_free_frames_for_nodes_of_new_processes() {
    let (mut memory, first) = memory(1 << 10);
    place(&mut memory, first, 500 << 9, PageSize::BASE);
    assert_eq!(memory.assumed_frame(first, page(7)), None);
    memory.place_by(Box::new(Nodes));
    assert_eq!(memory.assumed_frame(first, page(7)), Some(FrameNumber::new(8)));
    let chosen = memory.spawn().unwrap();
    let taken = FrameNumber::new(602);
    assert!(memory.frames.allocate_at(taken, Order::BASE, Owner::Data));
    for at in [501, 502] {
        place(&mut memory, chosen, at << 9, PageSize::BASE);
    }
    assert_eq!(node(&memory, chosen, 501 << 9), 601);
    assert_ne!(node(&memory, chosen, 502 << 9), 602, "the frame has data");
    memory.frames.free(taken, Order::BASE);
    assert_eq!(memory.check(), Ok(()));
    let before = memory.frames.free_frames();
    let child = memory.fork(chosen).unwrap();
    assert_eq!(node(&memory, child, 501 << 9), 701);
    memory.end(child);
    assert_eq!(memory.frames.free_frames(), before);
    assert!(memory.frames.is_free(FrameNumber::new(701), Order::BASE));
    assert_eq!(memory.check(), Ok(()));
}
