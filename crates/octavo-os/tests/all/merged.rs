//! Merged nodes: which entries a walk reads, and the memory that nodes take.

use crate::small::{RW, page};
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::{Format, PageTable};
use octavo_types::{FrameNumber, PageSize};

/// Frames of a merged node.
const BLOCK: u64 = 512;

/// Data frames start above those of page tables.
const DATA: FrameNumber = FrameNumber::new(1 << 20);

/// A page table in a memory of this many frames.
fn table(frames: u64, levels: u8) -> (PageTable, Frames) {
    let mut frames = Frames::new(MemoryShape::new(frames, Order::LINUX).unwrap());
    let format = Format { levels, merges: [true; 2], ..Format::default() };
    (PageTable::new(format, None, &mut frames).unwrap(), frames)
}

/// The entries that a walk reads: level, frame, and index in the frame.
fn steps(table: &PageTable, at: u64) -> Vec<(u8, u64, u64)> {
    let walk = table.walk(page(at));
    let step = |step: &octavo_os::page_table::Step| {
        (step.level, step.at.frame().raw(), step.at.raw() % 4096 / 8)
    };
    walk.steps().iter().map(step).collect()
}

/// The levels of the entries that a walk reads.
fn levels(table: &PageTable, at: u64) -> Vec<u8> {
    steps(table, at).iter().map(|(level, ..)| *level).collect()
}

/// The base page with these indices, from level 4 on.
fn indices([l4, l3, l2, l1]: [u64; 4]) -> u64 {
    ((l4 * 512 + l3) * 512 + l2) * 512 + l1
}

#[test]
fn walk_reads_an_entry_of_each_pair_of_levels() {
    let (mut table, mut frames) = table(1 << 14, 4);
    assert_eq!(table.nodes(), BLOCK, "the root is merged with the level below");
    let at = indices([1, 2, 3, 4]);
    assert_eq!(steps(&table, at), [(3, 1, 2)], "the entry that maps nothing");
    let written = table.map(page(at), PageSize::BASE, DATA, RW, &mut frames).unwrap();
    assert_eq!((written.entries, table.nodes()), (1, 2 * BLOCK));
    assert_eq!(steps(&table, at), [(3, 1, 2), (1, BLOCK + 3, 4)]);
    assert_eq!(table.leaf(page(at)).unwrap().frame, DATA);
    assert_eq!(steps(&table, at + 1), [(3, 1, 2), (1, BLOCK + 3, 5)]);
    assert_eq!(steps(&table, at + 512), [(3, 1, 2), (1, BLOCK + 4, 4)]);
    assert_eq!(steps(&table, at + 512 * 512), [(3, 1, 3)]);
    let other = indices([0, 5, 0, 7]);
    table.map(page(other), PageSize::BASE, DATA, RW, &mut frames).unwrap();
    assert_eq!(steps(&table, other), [(3, 0, 5), (1, 2 * BLOCK, 7)]);
    assert_eq!(table.nodes(), 3 * BLOCK);
    assert_eq!(frames.used_frames(Owner::PageTable), 3 * BLOCK);
}

#[test]
fn fifth_level_is_not_merged() {
    let (mut table, mut frames) = table(1 << 14, 5);
    let at = indices([1, 2, 3, 4]) + (6 << 36);
    table.map(page(at), PageSize::BASE, DATA, RW, &mut frames).unwrap();
    assert_eq!(steps(&table, at), [(5, 0, 6), (3, BLOCK + 1, 2), (1, 2 * BLOCK + 3, 4)]);
    assert_eq!(table.nodes(), 1 + 2 * BLOCK);
}

#[test]
fn either_pair_of_levels_can_be_merged_alone() {
    for (merges, levels) in [([true, false], [4, 3, 1]), ([false, true], [3, 2, 1])] {
        let mut frames = Frames::new(MemoryShape::new(1 << 14, Order::LINUX).unwrap());
        let format = Format { merges, ..Format::default() };
        let mut table = PageTable::new(format, None, &mut frames).unwrap();
        table.map(page(5), PageSize::BASE, DATA, RW, &mut frames).unwrap();
        assert_eq!(self::levels(&table, 5), levels);
        assert_eq!(table.nodes(), BLOCK + 2);
    }
}

#[test]
fn nodes_are_freed_when_empty() {
    let (mut table, mut frames) = table(1 << 14, 4);
    let pages = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]].map(indices);
    for at in pages {
        table.map(page(at), PageSize::BASE, DATA, RW, &mut frames).unwrap();
    }
    let nodes_left = pages.map(|at| {
        table.unmap(page(at), &mut frames).unwrap();
        assert_eq!(frames.used_frames(Owner::PageTable), table.nodes());
        table.nodes() / BLOCK
    });
    assert_eq!(nodes_left, [4, 4, 3, 2, 1]);
    table.free_all(&mut frames);
    assert_eq!(frames.free_frames(), 1 << 14);
    assert_eq!(frames.check(), Ok(()));
}

#[test]
fn huge_page_has_512_equal_entries() {
    let (mut table, mut frames) = table(1 << 14, 4);
    let first = indices([0, 1, 2, 0]);
    let written = table.map(page(first), PageSize::HUGE, DATA, RW, &mut frames).unwrap();
    assert_eq!((written.entries, written.aliases), (512, 511));
    for at in [0, 5, 511] {
        assert_eq!(steps(&table, first + at), [(3, 0, 1), (1, BLOCK + 2, at)]);
        let leaf = table.walk(page(first + at)).leaf.unwrap();
        assert_eq!((leaf.page, leaf.size, leaf.frame), (page(first), PageSize::HUGE, DATA));
    }
    // After a split, each part has one of these entries.
    let parts: Vec<_> = (0..512).map(|at| (page(first + at), PageSize::BASE)).collect();
    let written = table.replace(page(first), &parts, &mut frames).unwrap();
    assert_eq!((written.entries, table.nodes()), (512, 2 * BLOCK));
    assert_eq!(steps(&table, first + 5), [(3, 0, 1), (1, BLOCK + 2, 5)]);
    // A page of 1 GiB has one: in the upper node.
    let gigantic = indices([0, 2, 0, 0]);
    let written = table.map(page(gigantic), PageSize::LARGEST, DATA, RW, &mut frames).unwrap();
    assert_eq!((written.entries, steps(&table, gigantic + 7)), (1, vec![(3, 0, 2)]));
    assert_eq!(table.nodes(), 2 * BLOCK);
}

#[test]
fn node_without_a_free_block_is_two_levels() {
    let (mut table, mut frames) = table(2 * BLOCK + 8, 4);
    let mut taken: Vec<_> =
        std::iter::from_fn(|| frames.allocate(Order::BASE, Owner::Data).ok()).collect();
    assert_eq!(taken.len() as u64, BLOCK + 8);
    let last = taken.pop().unwrap();
    taken.drain(..8).for_each(|frame| frames.free(frame, Order::BASE));
    let at = indices([0, 1, 2, 3]);
    table.map(page(at), PageSize::BASE, DATA, RW, &mut frames).unwrap();
    assert_eq!(table.nodes(), BLOCK + 2);
    assert_eq!(levels(&table, at), [3, 2, 1]);
    // Nodes stay as they are.
    taken.into_iter().chain([last]).for_each(|frame| frames.free(frame, Order::BASE));
    table.map(page(at + 512), PageSize::BASE, DATA, RW, &mut frames).unwrap();
    assert_eq!((levels(&table, at + 512), table.nodes()), (vec![3, 2, 1], BLOCK + 3));
    for at in [at, at + 512] {
        table.unmap(page(at), &mut frames).unwrap();
    }
    table.map(page(at), PageSize::BASE, DATA, RW, &mut frames).unwrap();
    assert_eq!((levels(&table, at), table.nodes()), (vec![3, 1], 2 * BLOCK));
}

#[test]
fn memory_that_an_operation_needs_is_not_merged() {
    for (ensured, nodes) in [(BLOCK, BLOCK), (BLOCK + 1, 1)] {
        let mut frames = Frames::new(MemoryShape::new(2 * BLOCK, Order::LINUX).unwrap());
        frames.ensure_free(ensured).unwrap();
        let format = Format { merges: [true; 2], ..Format::default() };
        let table = PageTable::new(format, None, &mut frames).unwrap();
        assert_eq!(table.nodes(), nodes);
    }
    // Allocations reduce the frames that are ensured.
    let (mut frames, block) = (
        Frames::new(MemoryShape::new(4 * BLOCK, Order::LINUX).unwrap()),
        Order::of(PageSize::HUGE),
    );
    frames.ensure_free(4 * BLOCK).unwrap();
    assert_eq!(frames.allocate_surplus(block, Owner::PageTable), None);
    let data = frames.allocate(block, Owner::Data).unwrap();
    assert_eq!(frames.allocate_surplus(block, Owner::PageTable), None);
    frames.free(data, block);
    assert_eq!(frames.allocate_surplus(block, Owner::PageTable), Some(data));
}
