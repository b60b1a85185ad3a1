//! Wrong paths behind mispredicted branches, reduced to the instructions that the right path executes, too: the walks
//! and lines of these are under way when the right path comes to them. `docs/core.md` specifies the model.
//!
//! A wrong path belongs to one branch, and ends when that branch is complete. Later branches on it may be mispredicted,
//! too: the path finds that when they are complete there, and only then begins the instructions that differ behind
//! them. A real core follows one path at a time. Here the entries come in program order, so each entry is dispatched on
//! all wrong paths under way, and executed on the first on which it is ready.
//!
//! Times are arrays with an element for each lane, as in the [pipeline](super::pipeline).

use octavo_config::PipelineConfig;

use super::lanes::Lanes;
use crate::front::Difference;

/// A wrong path is executed if it lasts for more cycles than this.
const MIN_CYCLES: u32 = 64;
/// How many wrong paths may be under way at a time. With 32, a hash join takes 0.1% fewer cycles.
const MAX_PATHS: usize = 8;
/// A time later than all others. As epochs move on, a stored `NEVER` shrinks, but stays above [`NEVER_FROM`].
const NEVER: u32 = u32::MAX / 4;
const NEVER_FROM: u32 = NEVER / 2;

/// The wrong paths under way in each lane.
pub struct WrongPaths<V> {
    paths: [Path<V>; MAX_PATHS],
    /// Only the first `used` paths may be under way.
    used: usize,
    /// A time before which no wrong path makes a request; [`NEVER`] in lanes without a wrong path.
    earliest_request: V,
    /// When queues and buffers had room for all entries dispatched in order so far.
    room: V,
    /// The cycles since the last mispredicted branch whose dispatch slots are all taken, and the slots taken in the
    /// next cycle. They are equal on all paths.
    cycles: u32,
    slots: u32,
    fetch_width: u32,
    front_end_cycles: u32,
    mispredict_cycles: u32,
}

/// A wrong path in each lane. The lanes of one element may have paths of different branches.
#[derive(Clone, Copy)]
struct Path<V> {
    /// The first cycle with dispatch slots for the entries behind the last mispredicted branch on the path, or behind
    /// the path's own branch.
    slots_from: V,
    /// When the path's branch is complete; 0 if the path is not under way.
    end: V,
    /// When entries that [differ](Difference::Last) behind the last mispredicted branch on the path are dispatched;
    /// [`NEVER`] if that is the path's own branch.
    redirected: V,
}

/// The execution of an entry on wrong paths, in each lane.
#[derive(Clone, Copy)]
pub struct OnWrongPath<V> {
    /// When the entry begins on the first wrong path on which it is ready; [`NEVER`] in lanes where no wrong path
    /// executes it.
    pub ready: V,
}

impl<V: Lanes> OnWrongPath<V> {
    /// Lets no wrong path execute the entry in a lane.
    pub fn exclude(&mut self, lane: usize) {
        self.ready.set(lane, NEVER);
    }

    /// `there` in lanes where a wrong path executes the entry, else `elsewhere`.
    #[inline(always)]
    pub fn select(&self, there: V, elsewhere: V) -> V {
        self.ready.select_at_least(V::all(NEVER), elsewhere, there)
    }
}

/// The times on wrong paths of an entry that the right path executes, too.
pub struct OnBothPaths<V> {
    /// When the entry begins.
    pub wrong: OnWrongPath<V>,
    /// When its late producers are complete.
    pub late: V,
    /// When the store is complete from which its loads take their value, if there is one.
    pub forwarded: Option<V>,
    /// When the loads executed so far are complete.
    pub loaded: V,
    /// When the references executed so far are complete; before the first one, when the entry begins.
    pub complete: V,
}

impl<V: Lanes> OnBothPaths<V> {
    /// An entry none of whose references is executed yet.
    pub fn new(wrong: OnWrongPath<V>, late: V, forwarded: Option<V>) -> Self {
        OnBothPaths { wrong, late, forwarded, loaded: wrong.ready, complete: wrong.ready }
    }

    /// When an entry is complete whose references, if it has any (`has_data`), are executed, and whose arithmetic takes
    /// `arithmetic` cycles.
    #[inline(always)]
    pub fn complete(&self, has_data: bool, arithmetic: u32) -> V {
        if !has_data {
            return self.complete.plus(V::all(arithmetic));
        }
        self.complete.max(self.late.plus(V::all(1))).plus(V::all(arithmetic - 1))
    }
}

impl<V: Lanes> WrongPaths<V> {
    /// The wrong paths of cores that have executed nothing.
    pub fn new(config: &PipelineConfig) -> Self {
        let none = V::all(0);
        WrongPaths {
            paths: [Path { slots_from: none, end: none, redirected: none }; MAX_PATHS],
            used: 0,
            earliest_request: none,
            room: none,
            cycles: 0,
            slots: 0,
            fetch_width: config.fetch_width(),
            front_end_cycles: config.front_end_cycles,
            mispredict_cycles: config.mispredict_cycles,
        }
    }

    /// Whether a wrong path is under way in any lane.
    #[inline(always)]
    pub fn is_under_way(&self) -> bool {
        self.used > 0
    }

    /// Handles a mispredicted branch directly before the next entry. Wrong paths under way find it, and its own wrong
    /// path begins if it lasts long enough.
    ///
    /// `difference` is that of the entry. `fetched` is when the entry could be fetched if the branch were predicted,
    /// `dispatched` when the branch was dispatched, and `complete` when it is complete on the right path and on wrong
    /// paths.
    #[inline(never)]
    pub fn redirect(
        &mut self,
        difference: Difference,
        fetched: V,
        dispatched: V,
        complete: [V; 2],
    ) {
        let [complete, complete_there] = complete;
        if !self.is_under_way() {
            self.room = V::all(0);
        }
        self.find_branch(difference, complete_there);
        let slots_from = fetched.plus(V::all(self.front_end_cycles)).max(dispatched);
        let long = fetched.plus(V::all(MIN_CYCLES + 1));
        for lane in 0..V::COUNT {
            if complete.get(lane) >= long.get(lane) {
                self.begin_in(lane, slots_from.get(lane), complete.get(lane));
            }
        }
        self.earliest_request = V::all(NEVER);
        for path in &self.paths[..self.used] {
            let if_under_way = self.earliest_request.min(path.slots_from);
            self.earliest_request =
                path.end.select_at_least(V::all(1), if_under_way, self.earliest_request);
        }
    }

    /// Lets the paths under way find a mispredicted branch on them, which is complete there at a time. Slots of later
    /// entries are those of the next cycle.
    fn find_branch(&mut self, difference: Difference, complete: V) {
        let redirect = V::all(self.mispredict_cycles + self.front_end_cycles);
        let next_cycle = V::all(u32::from(self.slots > 0));
        for path in &mut self.paths[..self.used] {
            path.slots_from = path.slots_from.plus(V::all(self.cycles));
            let mut reached = path.slots_from.max(self.room);
            path.slots_from = path.slots_from.plus(next_cycle);
            if difference == Difference::OffPath {
                // The path of the branch before does not lead to this branch: it ends. Older paths lead here once they
                // have found the branch before.
                let never = V::all(NEVER_FROM);
                path.end = path.redirected.select_at_least(never, V::all(0), path.end);
                path.slots_from = path.slots_from.max(path.redirected);
                reached = reached.max(path.redirected);
            }
            path.redirected = reached.plus(V::all(1)).max(complete).plus(redirect);
        }
        (self.cycles, self.slots) = (0, 0);
        self.drop_ended();
    }

    /// Begins a path in a lane, unless [`MAX_PATHS`] are under way there.
    fn begin_in(&mut self, lane: usize, slots_from: u32, end: u32) {
        let Some(index) = self.paths.iter().position(|path| path.end.get(lane) == 0) else {
            return;
        };
        let path = &mut self.paths[index];
        path.slots_from.set(lane, slots_from);
        path.end.set(lane, end);
        path.redirected.set(lane, NEVER);
        self.used = self.used.max(index + 1);
    }

    /// A time before which neither the right path, which makes no request before `right`, nor a wrong path makes one.
    #[inline(always)]
    pub fn earliest_request(&self, right: V) -> V {
        if self.is_under_way() { self.earliest_request.min(right) } else { right }
    }

    /// Dispatches an entry on all paths under way, when queues and buffers have `room`. `operands` is when the
    /// producers that it needs to begin are complete: those of its addresses, or all of an entry without references.
    #[inline(always)]
    pub fn dispatch(&mut self, difference: Difference, room: V, operands: V) -> OnWrongPath<V> {
        let one = V::all(1);
        let mut first = V::all(NEVER);
        if difference != Difference::None {
            for path in &self.paths[..self.used] {
                let ready = path.redirected.max(room).plus(one).max(operands);
                first = ready.select_at_least(path.end, first, first.min(ready));
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
            let dispatched = path.slots_from.plus(cycles).max(self.room);
            // The path ends with the first entry that would be dispatched when its branch is complete.
            path.end = dispatched.select_at_least(path.end, V::all(0), path.end);
            let ready = dispatched.plus(one).max(operands);
            first = ready.select_at_least(path.end, first, first.min(ready));
        }
        self.drop_ended();
        OnWrongPath { ready: first }
    }

    #[inline(always)]
    fn drop_ended(&mut self) {
        while self.used > 0 && !V::all(0).is_less_in_any(self.paths[self.used - 1].end) {
            self.used -= 1;
        }
    }

    /// Moves the epoch of each lane `by` cycles on.
    pub fn move_epoch(&mut self, by: V) {
        for path in &mut self.paths[..self.used] {
            // An epoch does not pass `earliest_request`: on a path under way, these slots are later.
            path.slots_from = path.slots_from.saturating_minus(by);
            path.redirected = path.redirected.saturating_minus(by);
            // A path whose branch is complete before the epoch is still under way, and 0 would end it.
            let end = path.end.saturating_minus(by).max(V::all(1));
            path.end = path.end.select_at_least(V::all(1), end, V::all(0));
        }
        for times in [&mut self.earliest_request, &mut self.room] {
            *times = times.saturating_minus(by);
        }
    }
}
