//! Reservations compared with the model of `octavo-oracle`: equal frames and equal breaks.

use std::collections::HashMap;

use octavo_oracle::NaiveReservations;
use octavo_os::frames::{Frames, MemoryShape, Order, Owner, ReservationId};
use octavo_types::FrameNumber;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(u8),
    Free(usize),
    Reserve(u8),
    Use(usize),
    Claim(usize, u64, u64),
    Split(usize, u64, u64),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (any::<usize>(), 0u64..64, 1u64..20);
    prop_oneof![
        8 => Just(Step::Allocate(0)),
        1 => (1u8..5).prop_map(Step::Allocate),
        3 => any::<usize>().prop_map(Step::Free),
        6 => (1u8..7).prop_map(Step::Reserve),
        3 => any::<usize>().prop_map(Step::Use),
        8 => range().prop_map(|(choice, at, length)| Step::Claim(choice, at, length)),
        1 => range().prop_map(|(choice, at, length)| Step::Split(choice, at, length)),
        1 => any::<usize>().prop_map(Step::End),
    ]
}

/// The frames and the model.
struct Pair {
    fast: Frames,
    naive: NaiveReservations,
    /// All reservations ever made, each with its block and the number of frames.
    made: Vec<(ReservationId, u64, u64)>,
    /// The model's names of reservations.
    names: HashMap<ReservationId, u64>,
    /// Allocated frames outside reservations.
    held: Vec<FrameNumber>,
}

impl Pair {
    fn name(&mut self, id: ReservationId) -> u64 {
        let next = self.names.len() as u64;
        *self.names.entry(id).or_insert(next)
    }

    fn pick(&mut self, choice: usize) -> Option<(ReservationId, u64, u64, u64)> {
        if self.made.is_empty() {
            return None;
        }
        let (id, block, frames) = self.made[choice % self.made.len()];
        Some((id, self.name(id), block, frames))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Allocate(order) => {
                let naive = self.naive.allocate(order);
                let fast = self.fast.allocate(Order::new(order).unwrap(), Owner::Data).ok();
                assert_eq!(fast, naive);
                let block = fast.map(FrameNumber::raw).into_iter();
                self.held.extend(block.flat_map(|at| at..at + (1 << order)).map(FrameNumber::new));
            }
            Step::Free(choice) => {
                if !self.held.is_empty() {
                    let frame = self.held.swap_remove(choice % self.held.len());
                    self.fast.free(frame, Order::BASE);
                    self.naive.buddy.free(frame, 0);
                }
            }
            Step::Reserve(order) => {
                let fast = self.fast.reserve(Order::new(order).unwrap());
                let name = self.names.len() as u64;
                let block = self.naive.reserve(name, order);
                assert_eq!(fast.map(|(_, block)| block), block);
                if let Some((id, block)) = fast {
                    assert_eq!(self.name(id), name);
                    self.made.push((id, block.raw(), 1 << order));
                }
            }
            Step::Use(choice) => {
                if let Some((id, name, ..)) = self.pick(choice) {
                    self.fast.record_use(id);
                    self.naive.record_use(name);
                }
            }
            Step::Claim(choice, at, length) => {
                let Some((id, name, block, frames)) = self.pick(choice) else { return };
                let places = at % frames..(at % frames + length).min(frames);
                let naive = self.naive.take(name, block + places.start..block + places.end);
                let fast: Vec<_> =
                    self.fast.claim_reserved(id, places).into_iter().flatten().collect();
                assert_eq!(fast.iter().map(|place| block + place).collect::<Vec<_>>(), naive);
                self.held.extend(naive.into_iter().map(FrameNumber::new));
            }
            Step::Split(choice, at, length) => {
                let Some((id, name, block, frames)) = self.pick(choice) else { return };
                let places = at % frames..(at % frames + length).min(frames);
                let parts = self.fast.split_reservation(id, places);
                for (at, order, part) in parts {
                    let from = block + at;
                    let new = self.name(part);
                    self.naive.part(name, from..from + order.frames(), new);
                    self.made.push((part, from, order.frames()));
                }
                self.naive.give_back(name, block..block + frames);
            }
            Step::End(choice) => {
                let Some((id, name, block, frames)) = self.pick(choice) else { return };
                self.fast.end_reservation(id);
                self.naive.give_back(name, block..block + frames);
            }
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(400))]

    #[test]
    fn reservations_match_the_model(
        frames in 1u64..300,
        steps in vec(step(), 1..150),
    ) {
        let largest = Order::new(6).unwrap();
        let mut pair = Pair {
            fast: Frames::new(MemoryShape::new(frames, largest).unwrap()),
            naive: NaiveReservations::new(frames, largest.raw()),
            made: Vec::new(),
            names: HashMap::new(),
            held: Vec::new(),
        };
        for step in steps {
            pair.step(step);
            let free: Vec<_> = pair.fast.buddy().iter().map(|(at, order)| (at, order.raw())).collect();
            prop_assert_eq!(free, pair.naive.buddy.blocks());
            prop_assert_eq!(pair.fast.check(), Ok(()));
            for (id, block, frames) in pair.made.clone() {
                let name = pair.name(id);
                let left = pair.naive.left(name);
                prop_assert_eq!(pair.fast.is_reserved(id), left.is_some());
                for place in 0..frames {
                    let has = left.is_some_and(|left| left.contains(&(block + place)));
                    prop_assert_eq!(pair.fast.has_unclaimed(id, place), has);
                }
            }
        }
    }
}
