//! Resources with a limit for each moment, reserved in program order and not in order of time: an early
//! request may come after a late one, and takes the room that is left before it.

use rustc_hash::FxHashMap;

/// The number of cycles whose slots lie in an array.
const NEAR: u64 = 1 << 11;
/// Bits for the slots taken in a cycle: no width is larger.
const TAKEN_BITS: u32 = 8;

/// A number for each lane.
pub type Lanes<const N: usize> = [u64; N];

/// Calls a function for each lane.
#[inline(always)]
pub fn each<const N: usize>(mut of: impl FnMut(usize) -> u64) -> Lanes<N> {
    let mut all = [0; N];
    for (lane, value) in all.iter_mut().enumerate() {
        *value = of(lane);
    }
    all
}

/// The larger one in each lane.
#[inline(always)]
pub fn max<const N: usize>(a: Lanes<N>, b: Lanes<N>) -> Lanes<N> {
    each(|lane| a[lane].max(b[lane]))
}

/// Adds a number in each lane.
#[inline(always)]
pub fn plus<const N: usize>(a: Lanes<N>, b: u64) -> Lanes<N> {
    each(|lane| a[lane] + b)
}

/// Whether `a` is less than `b` in any lane.
#[inline(always)]
pub fn any_less<const N: usize>(a: &Lanes<N>, b: &Lanes<N>) -> bool {
    let mut is_less = false;
    for lane in 0..N {
        is_less |= a[lane] < b[lane];
    }
    is_less
}

/// A place that takes instructions in program order, a limited number in each cycle, in each lane.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<const N: usize> {
    width: u64,
    /// The cycle of the last instruction, or the one until which it waits, with the slots taken in it.
    now: [Taken; N],
}

/// A cycle, and in the low bits the number of its slots that are taken. A later cycle is a larger number.
type Taken = u64;

/// A cycle with no slot taken.
#[inline(always)]
fn untouched(cycle: u64) -> Taken {
    cycle << TAKEN_BITS
}

impl<const N: usize> InOrder<N> {
    /// A place that takes `width` instructions in a cycle.
    pub fn new(width: u32) -> Self {
        InOrder { width: u64::from(width), now: [0; N] }
    }

    /// Takes an instruction, at the cycle `earliest` or later. Returns the cycle.
    #[inline(always)]
    pub fn take(&mut self, earliest: Lanes<N>) -> Lanes<N> {
        each(|lane| self.take_in(lane, earliest[lane]))
    }

    /// [`Self::take`] in a lane.
    #[inline(always)]
    pub fn take_in(&mut self, lane: usize, earliest: u64) -> u64 {
        self.wait_in(lane, earliest);
        self.make_room_in(lane);
        self.now[lane] += 1;
        self.now[lane] >> TAKEN_BITS
    }

    /// Takes nothing more before the cycle `until`.
    #[inline(always)]
    pub fn wait(&mut self, until: Lanes<N>) {
        for (lane, until) in until.into_iter().enumerate() {
            self.wait_in(lane, until);
        }
    }

    /// [`Self::wait`] in a lane.
    #[inline(always)]
    pub fn wait_in(&mut self, lane: usize, until: u64) {
        self.now[lane] = self.now[lane].max(untouched(until));
    }

    /// Goes on to the next cycle in a lane, if this one is full.
    #[inline(always)]
    pub fn make_room_in(&mut self, lane: usize) {
        let now = self.now[lane];
        let is_full = now % (1 << TAKEN_BITS) == self.width;
        self.now[lane] = if is_full { untouched((now >> TAKEN_BITS) + 1) } else { now };
    }

    /// Takes nothing more in this cycle, if it has taken something.
    #[inline(always)]
    pub fn end_cycle(&mut self) {
        // A cycle with nothing taken stays as it is.
        self.now = self.now.map(|now| now.next_multiple_of(1 << TAKEN_BITS));
    }

    /// The cycle of the last instruction, or until which it waits.
    #[inline(always)]
    pub fn cycle(&self) -> Lanes<N> {
        self.now.map(|now| now >> TAKEN_BITS)
    }
}

/// Slots of a cycle, in any order of cycles, in each lane.
#[derive(Clone, Debug)]
pub struct Slots<const N: usize> {
    width: u64,
    /// The slots taken in each of the next [`NEAR`] cycles. Where an earlier cycle of the same place is still
    /// stored, no slot is taken.
    near: Box<[[Taken; NEAR as usize]; N]>,
    /// Slots taken in later cycles.
    far: [FxHashMap<u64, u64>; N],
    /// A cycle behind all of `far`.
    far_end: Lanes<N>,
}

impl<const N: usize> Slots<N> {
    /// `width` slots in each cycle.
    pub fn new(width: u32) -> Self {
        Slots {
            width: u64::from(width),
            near: Box::new([[0; NEAR as usize]; N]),
            far: std::array::from_fn(|_| FxHashMap::default()),
            far_end: [0; N],
        }
    }

    /// Takes the first slot that is free from `earliest` on; nothing is asked before the cycle `now` any more.
    /// Returns its cycle.
    #[inline(always)]
    pub fn take(&mut self, earliest: &Lanes<N>, now: &Lanes<N>) -> Lanes<N> {
        if N == 1 { self.take_each(earliest, now) } else { self.take_each_apart(earliest, now) }
    }

    /// [`Self::take_each`], compiled once: it would tear vectors of its callers apart.
    #[inline(never)]
    fn take_each_apart(&mut self, earliest: &Lanes<N>, now: &Lanes<N>) -> Lanes<N> {
        self.take_each(earliest, now)
    }

    #[inline(always)]
    fn take_each(&mut self, earliest: &Lanes<N>, now: &Lanes<N>) -> Lanes<N> {
        each(|lane| {
            let cycle = self.find_in(lane, earliest[lane]);
            self.take_in(lane, cycle, now[lane]);
            cycle
        })
    }

    /// Takes the first cycle in which this and `other` have a free slot, as [`Self::take`] does.
    #[inline(always)]
    pub fn take_with(&mut self, other: &mut Self, earliest: &Lanes<N>, now: &Lanes<N>) -> Lanes<N> {
        match N {
            1 => self.take_each_with(other, earliest, now),
            _ => self.take_each_with_apart(other, earliest, now),
        }
    }

    #[inline(never)]
    fn take_each_with_apart(
        &mut self,
        other: &mut Self,
        earliest: &Lanes<N>,
        now: &Lanes<N>,
    ) -> Lanes<N> {
        self.take_each_with(other, earliest, now)
    }

    #[inline(always)]
    fn take_each_with(
        &mut self,
        other: &mut Self,
        earliest: &Lanes<N>,
        now: &Lanes<N>,
    ) -> Lanes<N> {
        each(|lane| {
            let mut cycle = earliest[lane];
            loop {
                let own = self.find_in(lane, cycle);
                cycle = other.find_in(lane, own);
                if cycle == own {
                    break;
                }
            }
            self.take_in(lane, cycle, now[lane]);
            other.take_in(lane, cycle, now[lane]);
            cycle
        })
    }

    /// The first cycle from `earliest` on with a free slot in a lane.
    #[inline(always)]
    fn find_in(&self, lane: usize, earliest: u64) -> u64 {
        let mut cycle = earliest;
        while self.taken(lane, cycle) >= untouched(cycle) + self.width {
            cycle += 1;
        }
        cycle
    }

    /// Takes a slot of a cycle in a lane.
    #[inline(always)]
    fn take_in(&mut self, lane: usize, cycle: u64, now: u64) {
        if cycle - now >= NEAR {
            return self.take_far(lane, cycle, now);
        }
        let near = &mut self.near[lane][(cycle % NEAR) as usize];
        *near = untouched(cycle).max(*near) + 1;
    }

    #[cold]
    fn take_far(&mut self, lane: usize, cycle: u64, now: u64) {
        let far = &mut self.far[lane];
        if far.len() > NEAR as usize {
            far.retain(|cycle, _| *cycle >= now);
        }
        *far.entry(cycle).or_default() += 1;
        self.far_end[lane] = self.far_end[lane].max(cycle + 1);
    }

    /// The slots taken in a cycle. If none is, the number may be that of an earlier cycle.
    #[inline(always)]
    fn taken(&self, lane: usize, cycle: u64) -> Taken {
        let near = self.near[lane][(cycle % NEAR) as usize];
        if cycle < self.far_end[lane] {
            return untouched(cycle).max(near) + self.taken_far(lane, cycle);
        }
        near
    }

    /// The slots taken in a cycle when it was far; it may have come near.
    #[cold]
    fn taken_far(&self, lane: usize, cycle: u64) -> u64 {
        self.far[lane].get(&cycle).copied().unwrap_or(0)
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
