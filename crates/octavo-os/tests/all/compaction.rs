//! Compaction beside the model of `octavo-oracle`: the same moves, one by one.

use octavo_oracle::{NaiveCompaction, NaiveFrame};
use octavo_os::frames::{
    Compaction, CompactionEnd, CompactionLimits, Compactor, FrameOwner, Frames, Holder,
    MemoryShape, Order,
};
use octavo_types::FrameNumber;
use proptest::collection::vec;
use proptest::prelude::*;

/// Who, if anybody, holds a frame, and whether its owner lets it go.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cell {
    holder: Option<Holder>,
    pinned: bool,
}

impl Cell {
    fn naive(self) -> NaiveFrame {
        match self.holder {
            None => NaiveFrame::Free,
            Some(Holder::Data) if self.pinned => NaiveFrame::Fixed,
            Some(Holder::Data | Holder::Foreign { movable: true }) => NaiveFrame::Movable,
            Some(_) => NaiveFrame::Fixed,
        }
    }
}

fn cell() -> impl Strategy<Value = Cell> {
    let holder = prop_oneof![
        12 => Just(None),
        8 => Just(Some(Holder::Data)),
        4 => Just(Some(Holder::Foreign { movable: true })),
        1 => prop::sample::select(&Holder::ALL[1..]).prop_map(Some),
    ];
    (holder, prop::bool::weighted(0.02)).prop_map(|(holder, pinned)| Cell { holder, pinned })
}

/// Runs of cells, so that some blocks are free or held as a whole.
fn memory() -> impl Strategy<Value = Vec<Cell>> {
    vec((cell(), 1usize..12), 1..60).prop_map(|runs| {
        runs.into_iter().flat_map(|(cell, length)| std::iter::repeat_n(cell, length)).collect()
    })
}

struct Owner<'a> {
    cells: &'a [Cell],
    moves: Vec<(usize, usize)>,
}

impl FrameOwner for Owner<'_> {
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
        if let Some(holder) = cell.holder {
            assert!(frames.allocate_at(FrameNumber::new(at as u64), Order::BASE, holder));
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
    fn the_model_moves_the_same_frames(
        mut cells in memory(),
        order in 0u8..5,
        more in 0u8..3,
        limits in vec((limit(), limit(), limit()), 1..4),
    ) {
        let order = Order::new(order).unwrap();
        let mut frames = frames_with(&cells, Order::new(order.raw() + more).unwrap());
        let mut compactor = Compactor::default();
        let mut next = 0;
        for (free_blocks, moved_frames, scanned_frames) in limits {
            let limits = CompactionLimits { free_blocks, moved_frames, scanned_frames };
            let naive = NaiveCompaction::of(
                cells.iter().map(|cell| cell.naive()).collect(),
                order.frames() as usize,
                next,
                free_blocks,
                moved_frames,
                scanned_frames,
            );
            let mut owner = Owner { cells: &cells.clone(), moves: Vec::new() };
            let fast = compactor.compact(&mut frames, order, limits, &mut owner);

            prop_assert_eq!(fast.moved_frames, naive.moves.len() as u64);
            prop_assert_eq!(fast.blocks_made, naive.blocks_made);
            prop_assert_eq!(fast.scanned_for_moving, naive.scanned_for_moving);
            prop_assert_eq!(fast.scanned_for_free, naive.scanned_for_free);
            let of_data: Vec<_> = naive
                .moves
                .iter()
                .copied()
                .filter(|&(from, _)| cells[from].holder == Some(Holder::Data))
                .collect();
            prop_assert_eq!(owner.moves, of_data);
            for (from, to) in naive.moves {
                cells[to] = cells[from];
                cells[from].holder = None;
                cells[from].pinned = false;
            }
            next = naive.next;
            prop_assert_eq!(frames.check(), Ok(()));
            for (at, cell) in cells.iter().enumerate() {
                prop_assert_eq!(frames.holder(FrameNumber::new(at as u64)), cell.holder);
            }
        }
    }
}

/// All frames of data but every sixteenth free: 2 MiB blocks come back, and are told as such.
#[test]
fn scattered_data_comes_together() {
    let data = Cell { holder: Some(Holder::Data), pinned: false };
    let free = Cell { holder: None, pinned: false };
    let cells: Vec<_> = (0..8192).map(|at| if at % 16 == 3 { data } else { free }).collect();
    let mut frames = frames_with(&cells, Order::LINUX);
    assert_eq!(frames.buddy().largest_free_order(), Order::new(3));
    let mut mapped: Vec<u64> = (0..8192).filter(|at| at % 16 == 3).collect();
    let mut compactor = Compactor::default();
    let mut told = |from: FrameNumber, to: FrameNumber| {
        let at = mapped.iter().position(|&frame| frame == from.raw()).unwrap();
        mapped[at] = to.raw();
    };
    let one = compactor.compact(&mut frames, Order::HUGE, CompactionLimits::ONE_BLOCK, &mut told);
    assert_eq!(
        one,
        Compaction {
            end: CompactionEnd::Enough,
            blocks_made: 1,
            moved_frames: 32,
            scanned_for_moving: 512,
            // 32 free ones, and the data between them.
            scanned_for_free: 34,
        }
    );
    compactor.compact(&mut frames, Order::HUGE, CompactionLimits::ALL, &mut told);
    let none = compactor.compact(&mut frames, Order::LARGEST, CompactionLimits::ALL, &mut told);
    assert_eq!((none.moved_frames, none.scanned_for_moving), (0, 0), "memory has no such blocks");
    assert_eq!(frames.free_frames(), 8192 - 512);
    // All data fits into one block of 2 MiB, with 512 frames: fifteen others are free.
    assert_eq!(frames.buddy().free_blocks(Order::LINUX), 7);
    assert_eq!(frames.buddy().free_blocks(Order::HUGE), 1);
    assert!(
        mapped.iter().all(|&frame| frames.holder(FrameNumber::new(frame)) == Some(Holder::Data))
    );
    assert_eq!(frames.check(), Ok(()));
}
