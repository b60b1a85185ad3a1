//! Resources with a limit for each moment, reserved in program order and not in order of time: an early
//! request may come after a late one, and takes the room that is left before it.

use rustc_hash::FxHashMap;

/// The number of cycles whose slots lie in an array.
const NEAR: u64 = 1 << 11;
/// Bits for the slots taken in a cycle: no width is larger.
const TAKEN_BITS: u32 = 8;

/// A place that takes instructions in program order, a limited number in each cycle.
#[derive(Clone, Copy, Debug)]
pub struct InOrder {
    width: u64,
    /// The cycle of the last instruction, or the one until which it waits, with the slots taken in it.
    now: Taken,
}

/// A cycle, and in the low bits the number of its slots that are taken. A later cycle is a larger number.
type Taken = u64;

/// A cycle with no slot taken.
#[inline(always)]
fn untouched(cycle: u64) -> Taken {
    cycle << TAKEN_BITS
}

impl InOrder {
    /// A place that takes `width` instructions in a cycle.
    pub fn new(width: u32) -> Self {
        InOrder { width: u64::from(width), now: 0 }
    }

    /// Takes an instruction, at the cycle `earliest` or later. Returns the cycle.
    #[inline(always)]
    pub fn take(&mut self, earliest: u64) -> u64 {
        self.wait(earliest);
        self.make_room();
        self.now += 1;
        self.cycle()
    }

    /// Takes nothing more before the cycle `until`.
    #[inline(always)]
    pub fn wait(&mut self, until: u64) {
        self.now = self.now.max(untouched(until));
    }

    /// Goes on to the next cycle, if this one is full.
    #[inline(always)]
    pub fn make_room(&mut self) {
        if self.now % (1 << TAKEN_BITS) == self.width {
            self.now = untouched(self.cycle() + 1);
        }
    }

    /// Takes nothing more in this cycle, if it has taken something.
    #[inline(always)]
    pub fn end_cycle(&mut self) {
        // A cycle with nothing taken stays as it is.
        self.now = self.now.next_multiple_of(1 << TAKEN_BITS);
    }

    /// The cycle of the last instruction, or until which it waits.
    #[inline(always)]
    pub fn cycle(&self) -> u64 {
        self.now >> TAKEN_BITS
    }
}

/// Slots of a cycle, in any order of cycles.
#[derive(Clone, Debug)]
pub struct Slots {
    width: u64,
    /// The slots taken in each of the next [`NEAR`] cycles. Where an earlier cycle of the same place is still
    /// stored, no slot is taken.
    near: Box<[Taken; NEAR as usize]>,
    /// Slots taken in later cycles.
    far: FxHashMap<u64, u64>,
    /// A cycle behind all of `far`.
    far_end: u64,
}

impl Slots {
    /// `width` slots in each cycle.
    pub fn new(width: u32) -> Self {
        let near = Box::new([0; NEAR as usize]);
        Slots { width: u64::from(width), near, far: FxHashMap::default(), far_end: 0 }
    }

    /// The first cycle from `earliest` on with a free slot.
    #[inline(always)]
    pub fn find(&self, earliest: u64) -> u64 {
        let mut cycle = earliest;
        while self.taken(cycle) >= untouched(cycle) + self.width {
            cycle += 1;
        }
        cycle
    }

    /// Takes a slot of a cycle; nothing is asked before the cycle `now` any more.
    #[inline(always)]
    pub fn take(&mut self, cycle: u64, now: u64) {
        if cycle - now >= NEAR {
            return self.take_far(cycle, now);
        }
        let near = &mut self.near[(cycle % NEAR) as usize];
        *near = untouched(cycle).max(*near) + 1;
    }

    #[cold]
    fn take_far(&mut self, cycle: u64, now: u64) {
        if self.far.len() > NEAR as usize {
            self.far.retain(|cycle, _| *cycle >= now);
        }
        *self.far.entry(cycle).or_default() += 1;
        self.far_end = self.far_end.max(cycle + 1);
    }

    /// The slots taken in a cycle. If none is, the number may be that of an earlier cycle.
    #[inline(always)]
    fn taken(&self, cycle: u64) -> Taken {
        let near = self.near[(cycle % NEAR) as usize];
        if cycle < self.far_end {
            // A cycle that was far when a slot of it was taken may have come near.
            return untouched(cycle).max(near) + self.far.get(&cycle).copied().unwrap_or(0);
        }
        near
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
