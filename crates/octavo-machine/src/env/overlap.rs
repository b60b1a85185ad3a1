//! Bounds on the time of walks that overlap on several walkers.
//!
//! The stream has no clock, so that two bounds are reported. The upper bound serializes all walks
//! (`core.cycles_walks`). The lower bound, computed here, assumes that only walks take time and that they are
//! independent: a walk starts as soon as a walker is free and its instruction is in flight. As in a reorder
//! buffer with in-order retirement, an instruction is in flight at most a window of instructions after the
//! oldest one whose walk is unfinished.

use std::collections::VecDeque;

/// The walkers of one core, with a clock of their own.
#[derive(Clone, Debug)]
pub(super) struct Overlap {
    window_instructions: u64,
    /// End of the last walk of each walker, in cycles.
    busy_until: Vec<u64>,
    /// The walker of the last walk.
    last: usize,
    /// Instructions that may be in flight, in order, each with the time when it and all before it have
    /// finished.
    in_flight: VecDeque<(u64, u64)>,
    /// Time when all instructions before the window had finished.
    window_start_cycles: u64,
    /// Time when all walks have finished.
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

    /// Starts a walk of instruction number `at`; numbers never decrease.
    pub fn walk(&mut self, at: u64, latency_cycles: u32) {
        while let Some((instruction, end_cycles)) = self.in_flight.front().copied()
            && at - instruction >= self.window_instructions
        {
            self.window_start_cycles = end_cycles;
            self.in_flight.pop_front();
        }
        let walkers = self.busy_until.iter().enumerate();
        let (walker, busy_until) =
            walkers.min_by_key(|(_, until)| **until).expect("a core has a walker");
        (self.last, self.busy_until[walker]) = (walker, self.window_start_cycles.max(*busy_until));
        if self.in_flight.back().is_none_or(|(instruction, _)| *instruction != at) {
            self.in_flight.push_back((at, 0));
        }
        self.extend(latency_cycles);
    }

    /// Extends the last walk.
    pub fn extend(&mut self, latency_cycles: u32) {
        let busy_until = &mut self.busy_until[self.last];
        *busy_until += u64::from(latency_cycles);
        self.end_cycles = self.end_cycles.max(*busy_until);
        if let Some((_, end_cycles)) = self.in_flight.back_mut() {
            *end_cycles = self.end_cycles;
        }
    }

    /// Time from the start of the first walk to the end of the last, in cycles.
    pub fn cycles(&self) -> u64 {
        self.end_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, computed walk by walk: (instruction, time when it and all before it have finished).
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

    /// Walks at increasing instruction numbers.
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
        fn overlap_equals_its_definition(
            walks in walks(), walkers in 1u32..6, window in 1u32..200,
        ) {
            let mut overlap = Overlap::new(walkers, window);
            // Extending a walk equals a longer walk.
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

    /// Two walkers and a window of ten: the third walk waits for the walker of the second, the fourth for the
    /// first walk, whose instruction must leave the window.
    #[test]
    fn overlap_of_four_walks_by_hand() {
        let mut overlap = Overlap::new(2, 10);
        let mut ends = Vec::new();
        for (at, latency) in [(0, 100), (1, 30), (2, 20), (12, 5)] {
            overlap.walk(at, latency);
            ends.push(overlap.cycles());
        }
        // 0 to 100; 0 to 30; 30 to 50; 100 (all three are over) to 105.
        assert_eq!(ends, [100, 100, 100, 105]);
    }
}
