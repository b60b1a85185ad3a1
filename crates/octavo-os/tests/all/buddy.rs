//! The allocator compared with the model of `octavo-oracle`, block for block.

use octavo_oracle::NaiveBuddy;
use octavo_os::frames::{Buddy, Order};
use octavo_types::FrameNumber;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A random number for a step.
type Choice = u64;

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(Order),
    AllocateAt(Choice, Order),
    /// Frees an allocation as a whole, or its first half first.
    Free(Choice, bool),
}

/// The allocator, the model, and the allocations of both.
struct Pair {
    fast: Buddy,
    naive: NaiveBuddy,
    held: Vec<(FrameNumber, Order)>,
    frames: u64,
}

impl Pair {
    fn new(frames: u64, largest: Order, tiers: Vec<u64>) -> Self {
        let mut fast = Buddy::all_free(frames, largest);
        fast.set_tiers(tiers.clone());
        Pair {
            fast,
            naive: NaiveBuddy::new(frames, largest.raw()).with_tiers(tiers),
            held: Vec::new(),
            frames,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Allocate(order) => {
                let block = self.fast.allocate(order);
                assert_eq!(block, self.naive.allocate(order.raw()));
                self.held.extend(block.map(|block| (block, order)));
            }
            Step::AllocateAt(choice, order) => {
                // Mostly valid places; some are unaligned or past the end.
                let frame = FrameNumber::new(choice % (self.frames + 2));
                let frame = if choice >> 60 == 0 { frame } else { order.align_down(frame) };
                let free = self.naive.is_free(frame, order.raw());
                assert_eq!(self.fast.is_free(frame, order), free);
                assert_eq!(self.fast.allocate_at(frame, order), free);
                assert_eq!(self.naive.allocate_at(frame, order.raw()), free);
                self.held.extend(free.then_some((frame, order)));
            }
            Step::Free(choice, whole) => {
                if self.held.is_empty() {
                    return;
                }
                let at = (choice % self.held.len() as u64) as usize;
                let (block, order) = self.held.swap_remove(at);
                let half = order.raw().checked_sub(1).and_then(Order::new);
                match half.filter(|_| !whole) {
                    None => self.free(block, order),
                    Some(half) => {
                        self.free(block, half);
                        self.held.push((block.plus(half.frames()), half));
                    }
                }
            }
        }
    }

    fn free(&mut self, block: FrameNumber, order: Order) {
        self.fast.free(block, order);
        self.naive.free(block, order.raw());
    }

    fn assert_equal(&self) {
        self.naive.assert_sound();
        let blocks = self.naive.blocks();
        let fast: Vec<_> = self.fast.iter().map(|(block, order)| (block, order.raw())).collect();
        assert_eq!(fast, blocks);
        for order in Order::all() {
            let blocks_of_order: Vec<_> = blocks
                .iter()
                .filter(|(_, found)| *found == order.raw())
                .map(|(block, _)| *block)
                .collect();
            assert_eq!(self.fast.free_blocks(order), blocks_of_order.len() as u64);
            assert!(self.fast.blocks(order).eq(blocks_of_order));
            let smaller = blocks.iter().filter(|(_, found)| *found < order.raw());
            let last = smaller.map(|(block, found)| block.plus((1 << found) - 1)).max();
            assert_eq!(self.fast.last_in_smaller(order, self.frames), last);
            for tier in self.fast.tiers() {
                let smaller = blocks.iter().filter(|(_, found)| *found < order.raw());
                let frames = smaller.flat_map(|(block, found)| {
                    (block.raw()..block.raw() + (1 << found)).map(FrameNumber::new)
                });
                let last = frames.filter(|frame| frame.raw() < tier.end).max();
                assert_eq!(self.fast.last_in_smaller(order, tier.end), last);
            }
        }
        for tier in self.fast.tiers() {
            let lasts = blocks.iter().filter_map(|(block, order)| {
                let end = (block.raw() + (1 << order)).min(tier.end);
                (block.raw() < end && end > tier.start).then(|| FrameNumber::new(end - 1))
            });
            assert_eq!(self.fast.last_in(&tier), lasts.max());
        }
        let third = self.frames / 3;
        for range in self.fast.tiers().chain([third..2 * third, third..third, 7.min(third)..third])
        {
            let parts = blocks.iter().map(|(block, order)| {
                let end = (block.raw() + (1 << order)).min(range.end);
                end.saturating_sub(block.raw().max(range.start))
            });
            assert_eq!(self.fast.free_in(&range), parts.sum::<u64>(), "{range:?}");
        }
        let largest = blocks.iter().map(|(_, order)| *order).max();
        assert_eq!(self.fast.largest_free_order().map(Order::raw), largest);
        let free: u64 = blocks.iter().map(|(_, order)| 1 << order).sum();
        let held: u64 = self.held.iter().map(|(_, order)| order.frames()).sum();
        assert_eq!(self.fast.free_frames(), free);
        assert_eq!(free + held, self.frames, "every frame is free or held");
    }
}

fn order() -> impl Strategy<Value = Order> {
    let small = prop_oneof![6 => 0u8..3, 3 => 0u8..7, 1 => 0u8..=18];
    small.prop_map(|raw| Order::new(raw).unwrap())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => order().prop_map(Step::Allocate),
        2 => (any::<u64>(), order()).prop_map(|(choice, order)| Step::AllocateAt(choice, order)),
        5 => (any::<u64>(), any::<bool>()).prop_map(|(choice, whole)| Step::Free(choice, whole)),
    ]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(96))]

    #[test]
    fn buddy_matches_the_model(
        frames in prop_oneof![1u64..40, 60u64..70, 1u64..3000],
        largest in order(),
        steps in vec(step(), 0..200),
        tiers in vec(any::<Index>(), 0..3),
    ) {
        let mut tiers: Vec<u64> =
            tiers.iter().map(|tier| tier.index(frames as usize) as u64).collect();
        tiers.sort_unstable();
        let mut pair = Pair::new(frames, largest, tiers);
        pair.assert_equal();
        for step in steps {
            pair.step(step);
            pair.assert_equal();
        }
        for (block, order) in std::mem::take(&mut pair.held) {
            pair.free(block, order);
        }
        // All blocks have merged again.
        prop_assert!(pair.fast.iter().eq(Buddy::all_free(frames, largest).iter()));
        pair.assert_equal();
    }
}

/// Two million steps in four memories; every result is compared, and all blocks periodically.
#[test]
fn buddy_matches_the_model_after_millions_of_steps() {
    for (frames, largest, seed) in [(1000, 10, 1u64), (4096, 18, 2), (777, 5, 3), (65, 18, 4)] {
        let mut pair = Pair::new(frames, Order::new(largest).unwrap(), Vec::new());
        let mut state = seed;
        let mut draw = || {
            // Constants of Knuth's MMIX; the weak low bits are dropped.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 20 ^ state << 44
        };
        for step in 0..500_000 {
            // Alternates between filling and emptying.
            let filling = step / 5000 % 2 == 0;
            let (kind, choice) = (draw() % 16, draw());
            let order = Order::new((draw().trailing_zeros() as u8).min(12)).unwrap();
            pair.step(match kind {
                0..2 => Step::AllocateAt(choice, order),
                2..9 if filling => Step::Allocate(order),
                2..6 => Step::Allocate(order),
                _ => Step::Free(choice, kind % 4 > 0),
            });
            if step % 5000 == 0 {
                pair.assert_equal();
            }
        }
        pair.assert_equal();
    }
}

/// 64 GiB with blocks of 4 MiB and of 1 GiB: few blocks, correct at both ends.
#[test]
fn large_memory_starts_with_few_blocks() {
    for largest in [Order::LINUX, Order::LARGEST] {
        let frames = 16 << 20;
        let mut buddy = Buddy::all_free(frames + 5, largest);
        assert_eq!(buddy.free_frames(), frames + 5);
        assert_eq!(buddy.free_blocks(largest), frames >> largest.raw());
        let tail: Vec<_> = buddy.iter().skip((frames >> largest.raw()) as usize).collect();
        assert_eq!(
            tail,
            [
                (FrameNumber::new(frames), Order::new(2).unwrap()),
                (FrameNumber::new(frames + 4), Order::BASE),
            ]
        );
        assert_eq!(buddy.allocate(Order::BASE), Some(FrameNumber::new(frames + 4)));
        assert_eq!(buddy.allocate(largest), Some(FrameNumber::new(0)));
        assert!(buddy.allocate_at(FrameNumber::new(frames - 1), Order::BASE));
        assert_eq!(
            buddy.last_in_smaller(Order::LARGEST, frames + 5),
            Some(FrameNumber::new(frames + 3))
        );
    }
}
