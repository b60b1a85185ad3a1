//! Resources that serve a limited number of instructions or requests at a time. They are reserved in program order, not
//! in order of time: a request for an early time may follow one for a late time, and takes what is still free before
//! it.
//!
//! Reservations are kept as long as they matter. Where a method has a parameter `now`, no later call concerns a time
//! before it, and reservations that end by then are dropped.

use rustc_hash::FxHashMap;

use super::lanes::Lanes;

/// A stage that instructions pass in program order, a limited number in each cycle, in each lane.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<V> {
    width: u32,
    /// The first cycle in which the next instruction may pass, if it has a free slot: that of the last instruction, or
    /// one until which the stage waits.
    cycle: V,
    /// The slots taken in this cycle.
    taken: V,
}

impl<V: Lanes> InOrder<V> {
    /// A stage that `width` instructions pass in a cycle.
    pub fn new(width: u32) -> Self {
        InOrder { width, cycle: V::all(0), taken: V::all(0) }
    }

    /// Takes a slot in the cycle `earliest` or later. Returns the cycle.
    #[inline(always)]
    pub fn take(&mut self, earliest: V) -> V {
        self.wait(earliest);
        self.take_next()
    }

    /// Takes the next free slot. Returns its cycle.
    #[inline(always)]
    pub fn take_next(&mut self) -> V {
        let (width, one) = (V::all(self.width), V::all(1));
        self.cycle = self.next_cycle();
        self.taken = self.taken.select_at_least(width, one, self.taken.plus(one));
        self.cycle
    }

    /// The cycle of the next free slot.
    #[inline(always)]
    pub fn next_cycle(&self) -> V {
        let is_full = self.taken.select_at_least(V::all(self.width), V::all(1), V::all(0));
        self.cycle.plus(is_full)
    }

    /// [`Self::take`] in a lane.
    #[inline(always)]
    pub fn take_in(&mut self, lane: usize, earliest: u32) -> u32 {
        self.wait_in(lane, earliest);
        self.make_room_in(lane);
        self.taken.set(lane, self.taken.get(lane) + 1);
        self.cycle.get(lane)
    }

    /// Closes the stage before the cycle `until`.
    #[inline(always)]
    pub fn wait(&mut self, until: V) {
        self.taken = self.cycle.select_at_least(until, self.taken, V::all(0));
        self.cycle = self.cycle.max(until);
    }

    /// [`Self::wait`] in a lane.
    #[inline(always)]
    pub fn wait_in(&mut self, lane: usize, until: u32) {
        if until > self.cycle.get(lane) {
            self.cycle.set(lane, until);
            self.taken.set(lane, 0);
        }
    }

    /// Moves to the next cycle in a lane, if the current one is full.
    #[inline(always)]
    pub fn make_room_in(&mut self, lane: usize) {
        if self.taken.get(lane) == self.width {
            self.wait_in(lane, self.cycle.get(lane) + 1);
        }
    }

    /// If `ends` is true, closes the stage for the rest of the current cycle, unless no slot of it is taken yet.
    #[inline(always)]
    pub fn end_cycle_if(&mut self, ends: bool) {
        // No branch, which the host would mispredict.
        let keeps = V::all(u32::from(ends).wrapping_sub(1));
        self.cycle = self.cycle.plus(self.taken.min(V::all(u32::from(ends))));
        self.taken = self.taken.and(keeps);
    }

    /// The cycle of the last instruction, or one until which the stage waits.
    #[inline(always)]
    pub fn cycle(&self) -> V {
        self.cycle
    }

    /// Moves the epoch of each lane `by` cycles on. No later call concerns a time before the new epoch.
    pub fn move_epoch(&mut self, by: V) {
        self.cycle = self.cycle.saturating_minus(by);
    }
}

/// The slots in which instructions are issued, in each lane: in each cycle those of the issue width, of the load ports
/// and of the store ports. They are taken in any order of cycles.
#[derive(Clone, Debug)]
pub struct IssueSlots<V> {
    /// The counts of a cycle in which no slot is taken.
    empty: Taken,
    /// The counts of [`NEAR`] cycles of each lane. Cycles that differ by a multiple of `NEAR` share an element. Its
    /// high bits are the cycle divided by `NEAR`: if they are those of an earlier cycle, no slot of this cycle is
    /// taken.
    near: Box<[V; NEAR as usize]>,
    /// The counts of cycles that are not in `near`, by lane.
    far: Box<[FxHashMap<u32, Taken>]>,
    /// The end of the last cycle in `far`.
    far_end: V,
}

/// The slots taken in a cycle, as three counts of eight bits: of the issue width in the lowest bits, of the load ports,
/// and of the store ports. A count starts at 128 minus the number of slots, so that its highest bit is set when it is
/// full.
type Taken = u32;

/// The bits of a count.
const COUNT_BITS: u32 = 8;
/// The highest bit of a count: all slots are taken.
const FULL: Taken = 1 << (COUNT_BITS - 1);
/// The bits of the three counts.
const COUNTS: u32 = 3 * COUNT_BITS;
/// The number of cycles in the array.
const NEAR: u32 = 1 << 11;
/// Cycles from this one on, counted from the epoch, are in `far`: their number divided by [`NEAR`] does not fit the
/// high bits.
const NEAR_END: u32 = NEAR << (u32::BITS - COUNTS);

/// The slots that an instruction takes: one of each kind whose count is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slot(Taken);

impl Slot {
    /// A slot of the issue width, `loads` slots of load ports, and `stores` slots of store ports. Both are 0 or 1.
    #[inline(always)]
    pub fn new(loads: u32, stores: u32) -> Self {
        Slot(1 | loads << COUNT_BITS | stores << (2 * COUNT_BITS))
    }
}

impl<V: Lanes> IssueSlots<V> {
    /// An epoch moves on by a multiple of this number of cycles.
    pub const EPOCH_STEP: u32 = NEAR;
    /// Cycles from this one on, counted from the epoch, are in the slower map.
    pub const NEAR_END: u32 = NEAR_END;

    /// The numbers of slots in each cycle, at most 64 of each kind.
    pub fn new(issue_width: u32, load_ports: u32, store_ports: u32) -> Self {
        let empty = [issue_width, load_ports, store_ports].iter().rev().fold(0, |empty, slots| {
            assert!(*slots < FULL, "at most 64 slots");
            empty << COUNT_BITS | (FULL - slots)
        });
        IssueSlots {
            empty,
            near: filled_array(V::all(empty)),
            far: vec![FxHashMap::default(); V::COUNT].into(),
            far_end: V::all(0),
        }
    }

    /// Takes slots in the first cycle from `earliest` on in which they are free. Returns the cycle.
    #[inline(always)]
    pub fn take(&mut self, slot: Slot, earliest: V, now: V) -> V {
        let near_end = now.plus(V::all(NEAR)).min(V::all(NEAR_END));
        let (one, full) = (V::all(slot.0), V::all(slot.0 * FULL));
        let mut cycle = earliest;
        loop {
            if cycle.is_less_in_any(self.far_end) || !cycle.is_less_in_all(near_end) {
                return self.take_by_lane(slot, &earliest, &now);
            }
            let empty = V::all(self.empty)
                .plus(cycle.shift_left(COUNTS - NEAR.trailing_zeros()).and(V::all(!0 << COUNTS)));
            let taken = V::look_up(&self.near, cycle).max(empty);
            let full = taken.and(full);
            if !V::all(0).is_less_in_any(full) {
                taken.plus(one).store(&mut self.near, cycle);
                return cycle;
            }
            cycle = cycle.plus(full.min(V::all(1)));
        }
    }

    /// [`Self::take`] lane by lane, when a cycle is in `far` or belongs there.
    #[cold]
    #[inline(never)]
    fn take_by_lane(&mut self, slot: Slot, earliest: &V, now: &V) -> V {
        V::of_each(|lane| {
            let (mut cycle, now) = (earliest.get(lane), now.get(lane));
            loop {
                let taken = self.taken(lane, cycle);
                if taken & (slot.0 * FULL) == 0 {
                    self.set_taken(lane, cycle, now, taken + slot.0);
                    return cycle;
                }
                cycle += 1;
            }
        })
    }

    /// The index of a cycle in `near`, and its high bits there.
    fn near_index(cycle: u32) -> (usize, u32) {
        ((cycle % NEAR) as usize, cycle / NEAR)
    }

    /// The slots taken in a cycle.
    fn taken(&self, lane: usize, cycle: u32) -> Taken {
        if let Some(taken) = self.far[lane].get(&cycle) {
            return *taken;
        }
        let (index, high) = Self::near_index(cycle);
        let near = self.near[index].get(lane);
        if near >> COUNTS == high { near & ((1 << COUNTS) - 1) } else { self.empty }
    }

    /// Sets the slots taken in a cycle.
    fn set_taken(&mut self, lane: usize, cycle: u32, now: u32, taken: Taken) {
        let far = &mut self.far[lane];
        if let Some(counts) = far.get_mut(&cycle) {
            *counts = taken;
        } else if cycle - now < NEAR && cycle < NEAR_END {
            let (index, high) = Self::near_index(cycle);
            self.near[index].set(lane, high << COUNTS | taken);
        } else {
            if far.len() > NEAR as usize {
                far.retain(|cycle, _| *cycle >= now);
            }
            far.insert(cycle, taken);
            self.far_end.set(lane, self.far_end.get(lane).max(cycle + 1));
        }
    }

    /// Moves the epoch of each lane `by` cycles on, a multiple of [`Self::EPOCH_STEP`]. No later call concerns a time
    /// before the new epoch.
    pub fn move_epoch(&mut self, by: V) {
        for near in &mut *self.near {
            for (taken, by) in near.as_mut_slice().iter_mut().zip(by.as_slice()) {
                let high = (*taken >> COUNTS).checked_sub(by / NEAR);
                *taken =
                    high.map_or(self.empty, |high| high << COUNTS | *taken & ((1 << COUNTS) - 1));
            }
        }
        for (far, by) in self.far.iter_mut().zip(by.as_slice()) {
            let kept =
                far.drain().filter_map(|(cycle, taken)| Some((cycle.checked_sub(*by)?, taken)));
            *far = kept.collect();
        }
        self.far_end = self.far_end.saturating_minus(by);
    }
}

/// An array of equal elements, which is never on the stack.
pub fn filled_array<T: Copy, const N: usize>(element: T) -> Box<[T; N]> {
    match vec![element; N].into_boxed_slice().try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("a slice of this length"),
    }
}

/// Servers, each of which serves one request at a time: walkers, places for misses, banks, channels.
#[derive(Clone, Debug)]
pub struct Servers {
    /// For each server the intervals in which it is busy, disjoint and in ascending order, with their exclusive ends.
    busy: Box<[Vec<(u64, u64)>]>,
}

impl Servers {
    /// `count` servers, at least one.
    pub fn new(count: u32) -> Self {
        Servers { busy: vec![Vec::new(); count as usize].into() }
    }

    /// The first time from `earliest` on at which a server is free for `cycles`, and the first such server.
    #[inline(always)]
    pub fn find(&self, earliest: u64, cycles: u64) -> (u64, usize) {
        let mut best = (u64::MAX, 0);
        for (server, busy) in self.busy.iter().enumerate() {
            let start = gap(busy, earliest, cycles);
            if start == earliest {
                return (start, server);
            }
            if start < best.0 {
                best = (start, server);
            }
        }
        best
    }

    /// Occupies a server from `start` to `end`.
    #[inline(always)]
    pub fn occupy(&mut self, server: usize, start: u64, end: u64, now: u64) {
        let busy = &mut self.busy[server];
        let over = busy.iter().take_while(|(_, end)| *end <= now).count();
        busy.drain(..over);
        if start < end {
            let index = busy.partition_point(|(from, _)| *from < start);
            busy.insert(index, (start, end));
        }
    }

    /// Occupies the first server that is free for `cycles`. Returns the start.
    pub fn reserve(&mut self, earliest: u64, cycles: u64, now: u64) -> u64 {
        let (start, server) = self.find(earliest, cycles);
        self.occupy(server, start, start + cycles, now);
        start
    }
}

/// The first time from `earliest` on at which `cycles` cycles begin that overlap no interval of `busy`.
#[inline(always)]
fn gap(busy: &[(u64, u64)], earliest: u64, cycles: u64) -> u64 {
    let mut start = earliest;
    for (from, until) in busy {
        if *until <= start {
            continue;
        }
        if start + cycles <= *from {
            break;
        }
        start = *until;
    }
    start
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LANES: usize = 2;
    const ISSUE: Slot = Slot(1);

    /// The slot that an instruction takes; in each lane, how many cycles after `now` it is ready; in each lane, by how
    /// much `now` then moves on; and whether the epochs move on.
    type Request = (Slot, [u32; LANES], [u32; LANES], bool);

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let slot = prop::sample::select(vec![ISSUE, Slot::new(1, 0), Slot::new(0, 1)]);
        let after = prop_oneof![6 => 0u32..4, 1 => NEAR - 2..NEAR + 2, 1 => 0..2 * NEAR_END];
        let moves = prop_oneof![6 => Just(0u32), 3 => 1u32..4, 1 => 0..2 * NEAR];
        let lanes = |cycles: BoxedStrategy<u32>| prop::array::uniform2(cycles);
        vec((slot, lanes(after.boxed()), lanes(moves.boxed()), prop::bool::weighted(0.1)), 1..200)
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// The reference counts the slots of each kind in each cycle since the start.
        #[test]
        fn slots_are_the_first_free_ones(requests in requests(), widths in [1u32..4, 1..4, 1..4]) {
            let [issue_width, load_ports, store_ports] = widths;
            let mut slots = IssueSlots::<[u32; LANES]>::new(issue_width, load_ports, store_ports);
            let mut taken: [BTreeMap<(Slot, u64), u32>; LANES] = Default::default();
            let (mut epoch, mut now) = ([0u64; LANES], [0u32; LANES]);
            for (slot, after, moves, moves_epoch) in requests {
                let earliest = std::array::from_fn(|lane| now[lane] + after[lane]);
                let cycle = slots.take(slot, earliest, now);
                for lane in 0..LANES {
                    let kinds = [(ISSUE, issue_width), (Slot::new(1, 0), load_ports), (Slot::new(0, 1), store_ports)];
                    let own: Vec<_> =
                        kinds.into_iter().filter(|(kind, _)| *kind == ISSUE || *kind == slot).collect();
                    let mut expected = epoch[lane] + u64::from(earliest[lane]);
                    let is_full = |at: u64| {
                        own.iter().any(|(kind, width)| taken[lane].get(&(*kind, at)) == Some(width))
                    };
                    while is_full(expected) {
                        expected += 1;
                    }
                    prop_assert_eq!(epoch[lane] + u64::from(cycle[lane]), expected);
                    for (kind, _) in own {
                        *taken[lane].entry((kind, expected)).or_default() += 1;
                    }
                    now[lane] += moves[lane];
                }
                if moves_epoch {
                    let by = now.map(|now| now - now % IssueSlots::<[u32; LANES]>::EPOCH_STEP);
                    slots.move_epoch(by);
                    for lane in 0..LANES {
                        epoch[lane] += u64::from(by[lane]);
                        now[lane] -= by[lane];
                    }
                }
            }
        }
    }
}
