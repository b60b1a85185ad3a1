//! Wrong paths behind mispredicted branches, as far as they execute what the right one executes, too: walks and lines of
//! these instructions are under way when the right path comes to them.
//!
//! Each is the path of one branch until that is complete. Branches on it that are mispredicted, too, are found so there: what
//! lies between them and their join begins when they are complete there. A processor follows one path at a time. The core
//! executes instructions in program order, and so one instruction on all paths that come to it: it begins on the first.

use octavo_config::PipelineConfig;

use super::lanes::Lanes;
use crate::front::Difference;

/// A wrong path is followed if it lasts longer than so many cycles.
const SHORTEST: u32 = 64;
/// So many of them are under way at a time. With 32 a hash join takes 0.1% fewer cycles.
const MOST: usize = 8;
/// A time after all others. Where an epoch has moved on since, it may be less, but it is after [half](NEVER_FROM) of it.
const NEVER: u32 = u32::MAX / 4;
const NEVER_FROM: u32 = NEVER / 2;

/// The wrong paths under way in each lane.
pub struct WrongPaths<V> {
    paths: [Path<V>; MOST],
    /// None of those from this place on is under way in any lane.
    used: usize,
    /// They ask for nothing before this time; never if none is under way.
    first: V,
    /// The last time at which queues had room for an entry.
    room: V,
    /// Cycles that paths have gone on by since the last mispredicted branch, and the slots taken in the last one.
    cycles: u32,
    slots: u32,
    fetch_width: u32,
    front_end_cycles: u32,
    mispredict_cycles: u32,
}

/// The wrong path of a branch in each lane.
#[derive(Clone, Copy)]
struct Path<V> {
    /// When it came to dispatch with what is behind the last mispredicted branch, or its own.
    reaches: V,
    /// When its branch is complete; 0 if it is not under way.
    ends: V,
    /// When what [differs](Difference::Last) behind the last branch on it is dispatched; never behind its own.
    redirected: V,
}

/// An instruction on wrong paths, in each lane.
#[derive(Clone, Copy)]
pub struct OnWrongPath<V> {
    /// When its references begin there; [never](NEVER) in the lanes in which they do not.
    pub ready: V,
}

impl<V: Lanes> OnWrongPath<V> {
    /// Does not begin there in a lane.
    pub fn leave(&mut self, lane: usize) {
        self.ready.set(lane, NEVER);
    }

    /// A time where it begins there, and another elsewhere.
    #[inline(always)]
    pub fn select(&self, there: V, elsewhere: V) -> V {
        self.ready.select_at_least(V::all(NEVER), elsewhere, there)
    }
}

/// An entry on the right path and on wrong ones.
pub struct OnBothPaths<V> {
    /// On wrong ones.
    pub on: OnWrongPath<V>,
    /// When its late producers are complete there.
    pub late: V,
    /// When the store is from which its loads take their value, if there is one.
    pub forwarded: Option<V>,
    /// When its loads are complete there.
    pub loaded: V,
    /// When all its references are, or it begins if it has none.
    pub complete: V,
}

impl<V: Lanes> OnBothPaths<V> {
    /// Before its references begin, if it refers to data.
    pub fn new(on: OnWrongPath<V>, late: V, forwarded: Option<V>) -> Self {
        OnBothPaths { on, late, forwarded, loaded: on.ready, complete: on.ready }
    }

    /// When it is complete on wrong paths, whose computation takes so many cycles.
    #[inline(always)]
    pub fn complete(&self, refers: bool, computes: u32) -> V {
        if !refers {
            return self.complete.plus(V::all(computes));
        }
        self.complete.max(self.late.plus(V::all(1))).plus(V::all(computes - 1))
    }
}

impl<V: Lanes> WrongPaths<V> {
    /// None under way, in such cores.
    pub fn new(of: &PipelineConfig) -> Self {
        let none = V::all(0);
        WrongPaths {
            paths: [Path { reaches: none, ends: none, redirected: none }; MOST],
            used: 0,
            first: none,
            room: none,
            cycles: 0,
            slots: 0,
            fetch_width: of.fetch_width(),
            front_end_cycles: of.front_end_cycles,
            mispredict_cycles: of.mispredict_cycles,
        }
    }

    /// Whether there is one in any lane.
    #[inline(always)]
    pub fn is_under_way(&self) -> bool {
        self.used > 0
    }

    /// The branch before an entry was mispredicted. The entry could be fetched at a time. The branch was dispatched at another,
    /// and is complete at a time on the right path and at one on wrong paths.
    #[inline(never)]
    pub fn redirect(&mut self, of: Difference, fetched: V, dispatched: V, complete: [V; 2]) {
        let [complete, complete_there] = complete;
        if !self.is_under_way() {
            self.room = V::all(0);
        }
        self.find(of, complete_there);
        let reaches = fetched.plus(V::all(self.front_end_cycles)).max(dispatched);
        let long = fetched.plus(V::all(SHORTEST + 1));
        for lane in 0..V::COUNT {
            if complete.get(lane) >= long.get(lane) {
                self.begin_in(lane, reaches.get(lane), complete.get(lane));
            }
        }
        self.first = V::all(NEVER);
        for path in &self.paths[..self.used] {
            let if_under_way = self.first.min(path.reaches);
            self.first = path.ends.select_at_least(V::all(1), if_under_way, self.first);
        }
    }

    /// Paths under way find that the last branch on them was mispredicted, and go on in the next cycle.
    fn find(&mut self, of: Difference, complete: V) {
        let redirect = V::all(self.mispredict_cycles + self.front_end_cycles);
        let next_cycle = V::all(u32::from(self.slots > 0));
        for path in &mut self.paths[..self.used] {
            path.reaches = path.reaches.plus(V::all(self.cycles));
            let mut comes = path.reaches.max(self.room);
            path.reaches = path.reaches.plus(next_cycle);
            if of == Difference::OffPath {
                // The path of the branch before does not lead here, and others lead here when that is found.
                let never = V::all(NEVER_FROM);
                path.ends = path.redirected.select_at_least(never, V::all(0), path.ends);
                path.reaches = path.reaches.max(path.redirected);
                comes = comes.max(path.redirected);
            }
            path.redirected = comes.plus(V::all(1)).max(complete).plus(redirect);
        }
        (self.cycles, self.slots) = (0, 0);
        self.forget_ended();
    }

    /// A path begins in a lane, if there are not too many.
    fn begin_in(&mut self, lane: usize, reaches: u32, ends: u32) {
        let Some(place) = self.paths.iter().position(|path| path.ends.get(lane) == 0) else {
            return;
        };
        let path = &mut self.paths[place];
        path.reaches.set(lane, reaches);
        path.ends.set(lane, ends);
        path.redirected.set(lane, NEVER);
        self.used = self.used.max(place + 1);
    }

    /// The first time at which anything is asked for, where the right path comes to a time.
    #[inline(always)]
    pub fn first(&self, of_right: V) -> V {
        if self.is_under_way() { self.first.min(of_right) } else { of_right }
    }

    /// Dispatches an entry, when queues have room. It has operands when the producers of its addresses are complete, and
    /// without references when all its producers are.
    #[inline(always)]
    pub fn dispatch(&mut self, of: Difference, room: V, operands: V) -> OnWrongPath<V> {
        let one = V::all(1);
        let mut first = V::all(NEVER);
        if of != Difference::None {
            for path in &self.paths[..self.used] {
                let ready = path.redirected.max(room).plus(one).max(operands);
                first = ready.select_at_least(path.ends, first, first.min(ready));
            }
            return OnWrongPath { ready: first };
        }
        if self.slots == self.fetch_width {
            (self.cycles, self.slots) = (self.cycles + 1, 0);
        }
        self.slots += 1;
        self.room = self.room.max(room);
        let cycles = V::all(self.cycles);
        for path in &mut self.paths[..self.used] {
            let dispatched = path.reaches.plus(cycles).max(self.room);
            // Behind the first entry that would be dispatched when the branch is complete, none is.
            path.ends = dispatched.select_at_least(path.ends, V::all(0), path.ends);
            let ready = dispatched.plus(one).max(operands);
            first = ready.select_at_least(path.ends, first, first.min(ready));
        }
        self.forget_ended();
        OnWrongPath { ready: first }
    }

    #[inline(always)]
    fn forget_ended(&mut self) {
        while self.used > 0 && !V::all(0).is_less_in_any(self.paths[self.used - 1].ends) {
            self.used -= 1;
        }
    }

    /// Moves the epoch of each lane on.
    pub fn move_epoch(&mut self, by: V) {
        // The path may have come to the last mispredicted branch before the epoch, but not to what is next.
        for path in &mut self.paths[..self.used] {
            path.reaches = path.reaches.plus(V::all(self.cycles)).saturating_minus(by);
            path.redirected = path.redirected.saturating_minus(by);
            // One whose branch is complete before the epoch is still under way.
            let ends = path.ends.saturating_minus(by).max(V::all(1));
            path.ends = path.ends.select_at_least(V::all(1), ends, V::all(0));
        }
        self.cycles = 0;
        for times in [&mut self.first, &mut self.room] {
            *times = times.saturating_minus(by);
        }
    }
}
