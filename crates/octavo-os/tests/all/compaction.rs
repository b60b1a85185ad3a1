//! Compaction compared with the model of `octavo-oracle`, move by move.

use octavo_oracle::{NaiveCompaction, NaiveFrame};
use octavo_os::frames::{
    Compaction, CompactionEnd, CompactionLimits, Compactor, FrameRelocator, Frames, MemoryShape,
    Order, Owner,
};
use octavo_types::FrameNumber;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The owner of a frame, if any, and whether it is pinned.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cell {
    owner: Option<Owner>,
    pinned: bool,
}

impl Cell {
    fn naive(self) -> NaiveFrame {
        match self.owner {
            None => NaiveFrame::Free,
            Some(Owner::Data) if self.pinned => NaiveFrame::Fixed,
            Some(Owner::Data | Owner::Background { movable: true }) => NaiveFrame::Movable,
            Some(_) => NaiveFrame::Fixed,
        }
    }
}

fn cell() -> impl Strategy<Value = Cell> {
    let owner = prop_oneof![
        12 => Just(None),
        8 => Just(Some(Owner::Data)),
        4 => Just(Some(Owner::Background { movable: true })),
        1 => prop::sample::select(&Owner::ALL[1..]).prop_map(Some),
    ];
    (owner, prop::bool::weighted(0.02)).prop_map(|(owner, pinned)| Cell { owner, pinned })
}

/// Runs of cells, so that some blocks are entirely free or allocated.
fn memory() -> impl Strategy<Value = Vec<Cell>> {
    vec((cell(), 1usize..12), 1..60).prop_map(|runs| {
        runs.into_iter().flat_map(|(cell, length)| std::iter::repeat_n(cell, length)).collect()
    })
}

struct Relocator<'a> {
    cells: &'a [Cell],
    moves: Vec<(usize, usize)>,
}

impl FrameRelocator for Relocator<'_> {
    fn may_move(&self, frame: FrameNumber) -> bool {
        !self.cells[frame.raw() as usize].pinned
    }

    fn moved(&mut self, from: FrameNumber, to: FrameNumber) {
        self.moves.push((from.raw() as usize, to.raw() as usize));
    }
}

fn frames_with(cells: &[Cell], largest: Order) -> Frames {
    let mut frames = Frames::new(MemoryShape::new(cells.len() as u64, largest).unwrap());
    for (at, cell) in cells.iter().enumerate() {
        if let Some(owner) = cell.owner {
            assert!(frames.allocate_at(FrameNumber::new(at as u64), Order::BASE, owner));
        }
    }
    frames
}

fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), 0u64..100]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn compaction_matches_the_model(
        mut cells in memory(),
        order in 0u8..5,
        more in 0u8..3,
        limits in vec((limit(), limit(), limit()), 1..4),
        tiers in vec(any::<Index>(), 0..3),
    ) {
        let mut tiers: Vec<usize> = tiers.iter().map(|tier| tier.index(cells.len())).collect();
        tiers.sort_unstable();
        let order = Order::new(order).unwrap();
        let mut frames = frames_with(&cells, Order::new(order.raw() + more).unwrap());
        frames.set_tiers(tiers.iter().map(|tier| *tier as u64).collect());
        let mut compactor = Compactor::default();
        let mut next = 0;
        for (free_blocks, moved_frames, scanned_frames) in limits {
            let limits = CompactionLimits { free_blocks, moved_frames, scanned_frames };
            let naive = NaiveCompaction::of(
                cells.iter().map(|cell| cell.naive()).collect(),
                &tiers,
                order.frames() as usize,
                next,
                (free_blocks, moved_frames, scanned_frames),
            );
            let mut relocator = Relocator { cells: &cells.clone(), moves: Vec::new() };
            let fast = compactor.compact(&mut frames, order, limits, &mut relocator);

            prop_assert_eq!(fast.moved_frames, naive.moves.len() as u64);
            prop_assert_eq!(fast.blocks_made, naive.blocks_made);
            prop_assert_eq!(fast.scanned_for_moving, naive.scanned_for_moving);
            prop_assert_eq!(fast.scanned_for_free, naive.scanned_for_free);
            let data_moves: Vec<_> = naive
                .moves
                .iter()
                .copied()
                .filter(|&(from, _)| cells[from].owner == Some(Owner::Data))
                .collect();
            prop_assert_eq!(relocator.moves, data_moves);
            for (from, to) in naive.moves {
                cells[to] = cells[from];
                cells[from].owner = None;
                cells[from].pinned = false;
            }
            next = naive.next;
            prop_assert_eq!(frames.check(), Ok(()));
            for (at, cell) in cells.iter().enumerate() {
                prop_assert_eq!(frames.owner(FrameNumber::new(at as u64)), cell.owner);
            }
        }
    }
}

/// Of 16 frames, 15 are free and one holds data: compaction restores 2 MiB blocks and reports each move.
#[test]
fn compaction_gathers_scattered_data() {
    let data = Cell { owner: Some(Owner::Data), pinned: false };
    let free = Cell { owner: None, pinned: false };
    let cells: Vec<_> = (0..8192).map(|at| if at % 16 == 3 { data } else { free }).collect();
    let mut frames = frames_with(&cells, Order::LINUX);
    assert_eq!(frames.buddy().largest_free_order(), Order::new(3));
    let mut mapped: Vec<u64> = (0..8192).filter(|at| at % 16 == 3).collect();
    let mut compactor = Compactor::default();
    let mut record_move = |from: FrameNumber, to: FrameNumber| {
        let at = mapped.iter().position(|&frame| frame == from.raw()).unwrap();
        mapped[at] = to.raw();
    };
    let one =
        compactor.compact(&mut frames, Order::HUGE, CompactionLimits::ONE_BLOCK, &mut record_move);
    assert_eq!(
        one,
        Compaction {
            end: CompactionEnd::Enough,
            blocks_made: 1,
            moved_frames: 32,
            scanned_for_moving: 512,
            // 32 free frames, and the data between them.
            scanned_for_free: 34,
        }
    );
    compactor.compact(&mut frames, Order::HUGE, CompactionLimits::ALL, &mut record_move);
    let none =
        compactor.compact(&mut frames, Order::LARGEST, CompactionLimits::ALL, &mut record_move);
    assert_eq!((none.moved_frames, none.scanned_for_moving), (0, 0), "memory has no such blocks");
    assert_eq!(frames.free_frames(), 8192 - 512);
    // All data fit into one 2 MiB block of 512 frames: fifteen others are free.
    assert_eq!(frames.buddy().free_blocks(Order::LINUX), 7);
    assert_eq!(frames.buddy().free_blocks(Order::HUGE), 1);
    assert!(mapped.iter().all(|&frame| frames.owner(FrameNumber::new(frame)) == Some(Owner::Data)));
    assert_eq!(frames.check(), Ok(()));
}
