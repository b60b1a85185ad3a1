//! Resources with a limit for each moment, reserved in program order and not in order of time: an early
//! request may come after a late one, and takes the room that is left before it.

use rustc_hash::FxHashMap;

use super::lanes::Lanes;

/// A place that takes instructions in program order, a limited number in each cycle, in each lane.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<V> {
    width: u32,
    /// The cycle of the last instruction, or the one until which it waits.
    cycle: V,
    /// The slots taken in it.
    taken: V,
}

impl<V: Lanes> InOrder<V> {
    /// A place that takes `width` instructions in a cycle.
    pub fn new(width: u32) -> Self {
        InOrder { width, cycle: V::all(0), taken: V::all(0) }
    }

    /// Takes an instruction, at the cycle `earliest` or later. Returns the cycle.
    #[inline(always)]
    pub fn take(&mut self, earliest: V) -> V {
        self.wait(earliest);
        self.take_next()
    }

    /// Takes an instruction as soon as there is room. Returns the cycle.
    #[inline(always)]
    pub fn take_next(&mut self) -> V {
        let (width, one) = (V::all(self.width), V::all(1));
        self.cycle = self.next_cycle();
        self.taken = self.taken.select_at_least(width, one, self.taken.plus(one));
        self.cycle
    }

    /// The first cycle in which there is room for an instruction.
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

    /// Takes nothing more before the cycle `until`.
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

    /// Goes on to the next cycle in a lane, if this one is full.
    #[inline(always)]
    pub fn make_room_in(&mut self, lane: usize) {
        if self.taken.get(lane) == self.width {
            self.wait_in(lane, self.cycle.get(lane) + 1);
        }
    }

    /// If `ends` is true, takes nothing more in this cycle, if it has taken something.
    #[inline(always)]
    pub fn end_cycle_if(&mut self, ends: bool) {
        // Without a branch, which a processor would not foresee.
        let keeps = V::all(u32::from(ends).wrapping_sub(1));
        self.cycle = self.cycle.plus(self.taken.min(V::all(u32::from(ends))));
        self.taken = self.taken.and(keeps);
    }

    /// The cycle of the last instruction, or until which it waits.
    #[inline(always)]
    pub fn cycle(&self) -> V {
        self.cycle
    }

    /// Moves the epoch of each lane on, to a time before which nothing is asked any more.
    pub fn move_epoch(&mut self, by: V) {
        self.cycle = self.cycle.saturating_minus(by);
    }
}

/// The slots of each cycle in which instructions begin to execute, taken in any order of cycles, in each lane: those
/// of the issue width, and of them those of load and of store ports.
#[derive(Clone, Debug)]
pub struct IssueSlots<V> {
    /// A cycle in which no slot is taken.
    none: Taken,
    /// The slots of [`NEAR`] cycles of each lane. Cycles that differ by a multiple of `NEAR` have the same place. The
    /// high bits have the cycle divided by `NEAR`: if that is of an earlier cycle, no slot is taken in this one.
    near: Box<[V; NEAR as usize]>,
    /// The slots of cycles that are not in `near`.
    far: Box<[FxHashMap<u32, Taken>]>,
    /// A cycle after all of `far`.
    far_end: V,
}

/// The slots taken in a cycle: counts of eight bits, the issue width's in the lowest, then those of load and of store ports.
/// A count begins so that its highest bit is set when all are taken.
type Taken = u32;

/// The bits of a count.
const COUNT_BITS: u32 = 8;
/// The highest bit of a count.
const ALL: Taken = 1 << (COUNT_BITS - 1);
/// The bits of all counts.
const COUNTS: u32 = 3 * COUNT_BITS;
/// The cycles whose slots are in the array at a time.
const NEAR: u32 = 1 << 11;
/// Cycles this long after the epoch, and longer, are in `far`: in the high bits they would be as earlier cycles.
const NEAR_END: u32 = NEAR << (u32::BITS - COUNTS);

/// Which slots an instruction takes: one of each kind whose count is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slot(Taken);

impl Slot {
    /// One of the issue width, and one of a load port if `loads` is 1, and one of a store port if `stores` is, else 0.
    #[inline(always)]
    pub fn of(loads: u32, stores: u32) -> Self {
        Slot(1 | loads << COUNT_BITS | stores << (2 * COUNT_BITS))
    }
}

impl<V: Lanes> IssueSlots<V> {
    /// An epoch moves on by a multiple of so many cycles.
    pub const EPOCHS: u32 = NEAR;
    /// Cycles from this one after the epoch on take longer.
    pub const FAST: u32 = NEAR_END;

    /// So many slots in each cycle, at most 64 of a kind.
    pub fn new(issue_width: u32, load_ports: u32, store_ports: u32) -> Self {
        let none = [issue_width, load_ports, store_ports].iter().rev().fold(0, |none, slots| {
            assert!(*slots < ALL, "at most 64 slots");
            none << COUNT_BITS | (ALL - slots)
        });
        IssueSlots {
            none,
            near: boxed(V::all(none)),
            far: vec![FxHashMap::default(); V::COUNT].into(),
            far_end: V::all(0),
        }
    }

    /// Takes slots in the first cycle from `earliest` on in which there are; nothing is asked before the cycle `now`
    /// any more. Returns the cycle.
    #[inline(always)]
    pub fn take(&mut self, slot: Slot, earliest: V, now: V) -> V {
        let near_end = now.plus(V::all(NEAR)).min(V::all(NEAR_END));
        let (one, all) = (V::all(slot.0), V::all(slot.0 * ALL));
        let mut cycle = earliest;
        loop {
            if cycle.is_less_in_any(self.far_end) || !cycle.is_less_in_all(near_end) {
                return self.take_apart(slot, &earliest, &now);
            }
            let none = V::all(self.none)
                .plus(cycle.times_power(COUNTS - NEAR.trailing_zeros()).and(V::all(!0 << COUNTS)));
            let taken = V::look_up(&self.near, cycle).max(none);
            let full = taken.and(all);
            if !V::all(0).is_less_in_any(full) {
                taken.plus(one).store(&mut self.near, cycle);
                return cycle;
            }
            cycle = cycle.plus(full.min(V::all(1)));
        }
    }

    /// [`Self::take`] lane by lane, where a cycle is far.
    #[cold]
    #[inline(never)]
    fn take_apart(&mut self, slot: Slot, earliest: &V, now: &V) -> V {
        V::of_each(|lane| {
            let (mut cycle, now) = (earliest.get(lane), now.get(lane));
            loop {
                let taken = self.taken(lane, cycle);
                if taken & (slot.0 * ALL) == 0 {
                    self.set_taken(lane, cycle, now, taken + slot.0);
                    return cycle;
                }
                cycle += 1;
            }
        })
    }

    /// The place of a cycle in `near`, and its high bits there.
    fn place(cycle: u32) -> (usize, u32) {
        ((cycle % NEAR) as usize, cycle / NEAR)
    }

    /// The slots taken in a cycle.
    fn taken(&self, lane: usize, cycle: u32) -> Taken {
        if let Some(taken) = self.far[lane].get(&cycle) {
            return *taken;
        }
        let (place, high) = Self::place(cycle);
        let near = self.near[place].get(lane);
        if near >> COUNTS == high { near & ((1 << COUNTS) - 1) } else { self.none }
    }

    /// Changes the slots taken in a cycle.
    fn set_taken(&mut self, lane: usize, cycle: u32, now: u32, taken: Taken) {
        let far = &mut self.far[lane];
        if let Some(of_cycle) = far.get_mut(&cycle) {
            *of_cycle = taken;
        } else if cycle - now < NEAR && cycle < NEAR_END {
            let (place, high) = Self::place(cycle);
            self.near[place].set(lane, high << COUNTS | taken);
        } else {
            if far.len() > NEAR as usize {
                far.retain(|cycle, _| *cycle >= now);
            }
            far.insert(cycle, taken);
            self.far_end.set(lane, self.far_end.get(lane).max(cycle + 1));
        }
    }

    /// Moves the epoch of each lane on by a multiple of [`Self::EPOCHS`], to a time before which nothing is
    /// asked any more.
    pub fn move_epoch(&mut self, by: V) {
        for near in &mut *self.near {
            for (taken, by) in near.as_mut_slice().iter_mut().zip(by.as_slice()) {
                let high = (*taken >> COUNTS).checked_sub(by / NEAR);
                *taken =
                    high.map_or(self.none, |high| high << COUNTS | *taken & ((1 << COUNTS) - 1));
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

/// An array in which all are equal.
pub fn boxed<T: Copy, const N: usize>(of: T) -> Box<[T; N]> {
    match vec![of; N].into_boxed_slice().try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("a slice of this length"),
    }
}

/// Servers, each of which serves one request at a time.
#[derive(Clone, Debug)]
pub struct Servers {
    /// For each server the times when it is busy, disjoint and in order: from, until.
    busy: Box<[Vec<(u64, u64)>]>,
}

impl Servers {
    /// `count` servers, at least one.
    pub fn new(count: u32) -> Self {
        Servers { busy: vec![Vec::new(); count as usize].into() }
    }

    /// The first time from `earliest` on when a server is free for `cycles`, and the server.
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

    /// Occupies a server. `now` is the time before which nothing is asked any more.
    #[inline(always)]
    pub fn occupy(&mut self, server: usize, start: u64, end: u64, now: u64) {
        let busy = &mut self.busy[server];
        let over = busy.iter().take_while(|(_, end)| *end <= now).count();
        busy.drain(..over);
        if start < end {
            let place = busy.partition_point(|(from, _)| *from < start);
            busy.insert(place, (start, end));
        }
    }

    /// Reserves the first server that is free for `cycles`. Returns the start.
    pub fn reserve(&mut self, earliest: u64, cycles: u64, now: u64) -> u64 {
        let (start, server) = self.find(earliest, cycles);
        self.occupy(server, start, start + cycles, now);
        start
    }
}

/// The first time from `earliest` on that no interval of `busy` meets for `cycles`.
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

    /// The slot an instruction takes, how many cycles after `now` at the earliest in each lane, by how much `now` then
    /// moves on, and whether the epoch does.
    type Request = (Slot, [u32; LANES], [u32; LANES], bool);

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let slot = prop::sample::select(vec![ISSUE, Slot::of(1, 0), Slot::of(0, 1)]);
        let after = prop_oneof![6 => 0u32..4, 1 => NEAR - 2..NEAR + 2, 1 => 0..2 * NEAR_END];
        let moves = prop_oneof![6 => Just(0u32), 3 => 1u32..4, 1 => 0..2 * NEAR];
        let lanes = |of: BoxedStrategy<u32>| prop::array::uniform2(of);
        vec((slot, lanes(after.boxed()), lanes(moves.boxed()), prop::bool::weighted(0.1)), 1..200)
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Beside a count of each kind for each cycle, of all times.
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
                    let kinds = [(ISSUE, issue_width), (Slot::of(1, 0), load_ports), (Slot::of(0, 1), store_ports)];
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
                    let by = now.map(|now| now - now % IssueSlots::<[u32; LANES]>::EPOCHS);
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
