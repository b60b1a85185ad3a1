//! The wrong path behind a mispredicted branch, as far as it executes what the right one executes, too: walks and lines of
//! these instructions are under way when the right path comes to them.
//!
//! It is the path of one branch until that is complete. Branches on it that are mispredicted, too, are found so there: what
//! lies between them and their join begins when they are complete there.

use octavo_config::PipelineConfig;

use super::calendar::InOrder;
use super::lanes::Lanes;
use crate::front::Difference;

/// A wrong path is followed if it lasts longer than so many cycles.
const SHORTEST: u32 = 64;
/// A time after all others.
const NEVER: u32 = u32::MAX / 4;

/// The wrong path under way in each lane.
pub struct WrongPath<V> {
    is_under_way: bool,
    fetch: InOrder<V>,
    /// When the last of its instructions was dispatched.
    dispatched: V,
    /// When its branch is complete; 0 if none is under way.
    ends: V,
    /// When what [differs](Difference::Last) behind the last branch on it may be fetched; never behind its own.
    redirected: V,
    /// Entries since its branch.
    entries: V,
    reorder_buffer: u32,
    front_end_cycles: u32,
    mispredict_cycles: u32,
}

/// An instruction on the wrong path, in each lane.
#[derive(Clone, Copy)]
pub struct OnWrongPath<V> {
    /// All ones in the lanes in which it begins there, else 0.
    pub begins: V,
    /// When its references begin there.
    pub ready: V,
}

impl<V: Lanes> OnWrongPath<V> {
    /// A time where it begins there, and another elsewhere.
    #[inline(always)]
    pub fn select(&self, there: V, elsewhere: V) -> V {
        self.begins.select_at_least(V::all(1), there, elsewhere)
    }
}

/// An entry on the right path and on the wrong one.
pub struct OnBothPaths<V> {
    /// On the wrong one.
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
    pub fn new(on: OnWrongPath<V>, late: V, forwarded: Option<V>, refers: bool) -> Self {
        let begun = if refers { on.ready } else { on.ready.max(late) };
        OnBothPaths { on, late, forwarded, loaded: on.ready, complete: begun }
    }

    /// When it is complete on the wrong path, whose computation takes so many cycles.
    #[inline(always)]
    pub fn complete(&self, refers: bool, computes: u32) -> V {
        if !refers {
            return self.complete.plus(V::all(computes));
        }
        self.complete.max(self.late.plus(V::all(1))).plus(V::all(computes - 1))
    }
}

impl<V: Lanes> WrongPath<V> {
    /// None under way, in such cores.
    pub fn new(of: &PipelineConfig) -> Self {
        let none = V::all(0);
        WrongPath {
            is_under_way: false,
            fetch: InOrder::new(of.fetch_width()),
            dispatched: none,
            ends: none,
            redirected: none,
            entries: none,
            reorder_buffer: of.reorder_buffer,
            front_end_cycles: of.front_end_cycles,
            mispredict_cycles: of.mispredict_cycles,
        }
    }

    /// Whether there is one in any lane.
    #[inline(always)]
    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// The branch before an entry was mispredicted. The entry could be fetched at a time. The branch was dispatched at another,
    /// and is complete at a time on the right path and at one on the wrong path under way.
    #[inline(never)]
    pub fn redirect(&mut self, of: Difference, fetched: V, dispatched: V, complete: [V; 2]) {
        let [complete, complete_there] = complete;
        for lane in 0..V::COUNT {
            if self.ends.get(lane) > 0 && of != Difference::OffPath {
                self.redirected.set(lane, complete_there.get(lane) + self.mispredict_cycles);
                continue;
            }
            let (from, ends) = (fetched.get(lane), complete.get(lane));
            let is_long = ends > from.saturating_add(SHORTEST);
            self.ends.set(lane, if is_long { ends } else { 0 });
            self.dispatched.set(lane, dispatched.get(lane));
            self.redirected.set(lane, NEVER);
            self.entries.set(lane, 0);
            self.fetch.begin_in(lane, from);
        }
        self.note();
    }

    fn note(&mut self) {
        self.is_under_way = V::all(0).is_less_in_any(self.ends);
    }

    /// The first time at which anything is asked for, where the right path comes to a time.
    #[inline(always)]
    pub fn first(&self, of_right: V) -> V {
        let on_path = self.fetch.cycle().min(of_right);
        self.ends.select_at_least(V::all(1), on_path, of_right)
    }

    /// Dispatches an entry, when queues have room. It has operands when the producers of its addresses are complete.
    #[inline(always)]
    pub fn dispatch(&mut self, of: Difference, room: V, operands: V) -> OnWrongPath<V> {
        let front_end = V::all(self.front_end_cycles);
        let dispatched = if of == Difference::None {
            let fetched = self.fetch.take_next().plus(front_end);
            self.dispatched = self.dispatched.max(fetched.max(room));
            // Behind the first entry that would be dispatched when the branch is complete, none is.
            self.ends = self.dispatched.select_at_least(self.ends, V::all(0), self.ends);
            self.dispatched
        } else {
            self.redirected.plus(front_end).max(room)
        };
        let ready = dispatched.plus(V::all(1)).max(operands);
        let begins = ready.select_at_least(self.ends, V::all(0), V::all(u32::MAX));
        OnWrongPath { begins, ready }
    }

    /// The time of a producer at a distance: one behind the branch has a time on the wrong path.
    #[inline(always)]
    pub fn of_producer(&self, distance: u32, wrong: V, right: V) -> V {
        self.entries.select_at_least(V::all(distance), wrong, right)
    }

    /// Goes on behind an entry. No more entries than the reorder buffer holds are dispatched before the branch is complete.
    #[inline(always)]
    pub fn end_entry(&mut self) {
        self.entries = self.entries.plus(V::all(1));
        let room = V::all(self.reorder_buffer);
        self.ends = self.entries.select_at_least(room, V::all(0), self.ends);
        self.note();
    }

    /// Moves the epoch of each lane on.
    pub fn move_epoch(&mut self, by: V) {
        self.fetch.move_epoch(by);
        for times in [&mut self.dispatched, &mut self.ends, &mut self.redirected] {
            *times = times.saturating_minus(by);
        }
    }
}
