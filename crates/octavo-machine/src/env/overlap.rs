//! Walks that are under way at once, where a core has several walkers.
//!
//! The stream has no clock, so that two bounds are told of what walks cost. Above: one walk after the
//! other, each waited for (`core.cycles_walks`). Below, here: nothing takes time but walks, and none needs
//! what another one brings. Then a walk begins as soon as a walker is free and its instruction is under
//! way: at most a window of instructions from the oldest one whose walk is not over, as in a reorder
//! buffer, which instructions leave in order.

use std::collections::VecDeque;

/// The walkers of a core, in cycles of their own.
#[derive(Clone, Debug)]
pub(super) struct Overlap {
    window_instructions: u64,
    /// By walker, until when it is busy.
    busy_until: Vec<u64>,
    /// The walker that walked last.
    last: usize,
    /// Instructions that may still be under way, in order, and when each is over with all before it.
    in_flight: VecDeque<(u64, u64)>,
    /// When the instructions that are out of the window were over.
    window_start_cycles: u64,
    /// When all are.
    end_cycles: u64,
}

impl Overlap {
    pub fn new(walkers: u32, window_instructions: u32) -> Self {
        Overlap {
            window_instructions: u64::from(window_instructions),
            busy_until: vec![0; walkers as usize],
            last: 0,
            in_flight: VecDeque::new(),
            window_start_cycles: 0,
            end_cycles: 0,
        }
    }

    /// Instruction number `at` walks, or walks once more; numbers never fall.
    pub fn walk(&mut self, at: u64, latency_cycles: u32) {
        while let Some((instruction, end_cycles)) = self.in_flight.front().copied()
            && at - instruction >= self.window_instructions
        {
            self.window_start_cycles = end_cycles;
            self.in_flight.pop_front();
        }
        let walkers = self.busy_until.iter().enumerate();
        let (walker, busy_until) = walkers.min_by_key(|(_, until)| **until).expect("there is one");
        (self.last, self.busy_until[walker]) = (walker, self.window_start_cycles.max(*busy_until));
        if self.in_flight.back().is_none_or(|(instruction, _)| *instruction != at) {
            self.in_flight.push_back((at, 0));
        }
        self.extend(latency_cycles);
    }

    /// The last walk takes longer.
    pub fn extend(&mut self, latency_cycles: u32) {
        let busy_until = &mut self.busy_until[self.last];
        *busy_until += u64::from(latency_cycles);
        self.end_cycles = self.end_cycles.max(*busy_until);
        if let Some((_, end_cycles)) = self.in_flight.back_mut() {
            *end_cycles = self.end_cycles;
        }
    }

    /// What all walks took, from the first one's begin to the last one's end.
    pub fn cycles(&self) -> u64 {
        self.end_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, each walk by itself: (its instruction, when it is over with all before it).
    fn naive(walkers: usize, window: u64, walks: &[(u64, u32)]) -> u64 {
        let mut busy = vec![0; walkers];
        let mut done: Vec<(u64, u64)> = Vec::new();
        for (at, latency) in walks {
            let left = done.iter().filter(|(instruction, _)| instruction + window <= *at);
            let begin = left.map(|(_, over)| *over).max().unwrap_or(0);
            let first_free = (0..walkers).min_by_key(|walker| busy[*walker]).unwrap();
            let end = begin.max(busy[first_free]) + u64::from(*latency);
            busy[first_free] = end;
            let before = done.last().map_or(0, |(_, over)| *over);
            done.push((*at, end.max(before)));
        }
        done.last().map_or(0, |(_, over)| *over)
    }

    /// Walks of instructions so many apart.
    fn walks() -> impl Strategy<Value = Vec<(u64, u32)>> {
        prop::collection::vec((0u64..40, 1u32..300), 0..200).prop_map(|steps| {
            let mut at = 0;
            let follow = |(apart, latency)| {
                at += apart;
                (at, latency)
            };
            steps.into_iter().map(follow).collect()
        })
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn walks_overlap_as_the_definition_says(
            walks in walks(), walkers in 1u32..6, window in 1u32..200,
        ) {
            let mut overlap = Overlap::new(walkers, window);
            // Whether told at once or in parts.
            for (at, latency) in &walks {
                overlap.walk(*at, latency / 3);
                overlap.extend(latency - latency / 3);
            }
            let cycles = overlap.cycles();
            prop_assert_eq!(cycles, naive(walkers as usize, u64::from(window), &walks));
            let sum: u64 = walks.iter().map(|(_, latency)| u64::from(*latency)).sum();
            prop_assert!(cycles <= sum && cycles * u64::from(walkers) >= sum);
            prop_assert!(walkers > 1 || cycles == sum, "one walker does one after the other");
        }
    }

    /// Two walkers and a window of ten: the third walk waits for the first one's walker, the fourth for
    /// the third, whose instruction has to be out of the way.
    #[test]
    fn four_walks_by_hand() {
        let mut overlap = Overlap::new(2, 10);
        let mut before = Vec::new();
        for (at, latency) in [(0, 100), (1, 30), (2, 20), (12, 5)] {
            overlap.walk(at, latency);
            before.push(overlap.cycles());
        }
        // 0 to 100; 0 to 30; 30 to 50; 100 (all three are over) to 105.
        assert_eq!(before, [100, 100, 100, 105]);
    }
}
