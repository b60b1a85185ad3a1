//! Wrong paths of the slow core: a list of them, on each of which every entry is dispatched.

use super::resources::InOrder;
use super::{Entry, NaiveCore, Waits};
use crate::core::{Cost, Costs, Speculation};
use crate::front::Difference;

/// How many wrong paths may be under way at a time.
const MAX_WRONG_PATHS: usize = 8;

/// A wrong path under way.
pub(super) struct WrongPath {
    /// The number of its branch, and when the branch is complete on the right path.
    branch: usize,
    until: u64,
    /// The slots in which entries are dispatched in order, and the earliest next one.
    slots: InOrder,
    slots_from: u64,
    /// When the last entry was dispatched in order.
    dispatched: u64,
    /// Whether an entry was dispatched in order behind the last mispredicted branch.
    is_behind_branch: bool,
    /// When the last mispredicted branch on the path is found; `None` if that is the path's own branch.
    found: Option<u64>,
}

impl WrongPath {
    /// When the path comes to a mispredicted branch behind the last entry.
    fn reaches_branch(&self) -> u64 {
        let next = if self.is_behind_branch { 0 } else { self.slots.first(self.slots_from) };
        self.dispatched.max(next)
    }
}

/// When a reference is complete on wrong paths, and its waits there.
type OnWrongPath = (u64, Waits);

impl NaiveCore {
    /// If a mispredicted branch is directly before an entry, the wrong paths under way find it. Its own wrong path
    /// begins if the entry could be fetched, not before `from`, long before the branch is complete.
    pub(super) fn follow_wrong_paths(&mut self, number: usize, entry: &Entry, from: u64) {
        if !entry.is_redirected || !self.config.wrong_paths {
            return;
        }
        let branch = number - 1;
        let before = std::mem::replace(&mut self.last_branch, branch);
        let is_off_path = entry.difference == Difference::OffPath;
        let mispredict = u64::from(self.config.mispredict_cycles);
        let front_end = u64::from(self.config.front_end_cycles);
        let complete = self.complete_on_wrong_path(branch);
        self.wrong_paths.retain(|path| !(is_off_path && path.branch == before));
        for path in &mut self.wrong_paths {
            let mut reached = path.reaches_branch();
            if path.is_behind_branch {
                path.slots_from = path.slots.times.last().expect("one was dispatched") + 1;
            }
            if is_off_path && let Some(found) = path.found {
                let off_path = found + mispredict + front_end;
                (path.slots_from, reached) = (path.slots_from.max(off_path), reached.max(off_path));
            }
            path.found = Some(complete.max(reached + 1));
            path.is_behind_branch = false;
        }
        let (begin, until) = (self.fetch.first(from), self.complete[branch]);
        if until > begin + 64 && self.wrong_paths.len() < MAX_WRONG_PATHS {
            self.wrong_paths.push(WrongPath {
                branch,
                until,
                slots: InOrder::new(self.config.fetch_width()),
                slots_from: (begin + front_end).max(self.dispatch.times[branch]),
                dispatched: 0,
                is_behind_branch: false,
                found: None,
            });
        }
    }

    /// Dispatches an entry on each wrong path under way that executes it. Returns when it is dispatched there, and when
    /// the path's branch is complete.
    fn dispatch_on_wrong_paths(&mut self, number: usize, entry: &Entry) -> Vec<(u64, u64)> {
        let (room, store_room) = self.room(number, entry);
        let room = room.max(store_room);
        let redirect =
            u64::from(self.config.mispredict_cycles) + u64::from(self.config.front_end_cycles);
        let mut dispatched = Vec::new();
        self.wrong_paths.retain_mut(|path| {
            match entry.difference {
                Difference::None => {
                    path.is_behind_branch = true;
                    let slot = path.slots.take(path.slots_from);
                    path.dispatched = path.dispatched.max(slot).max(room);
                    if path.dispatched >= path.until {
                        return false;
                    }
                    dispatched.push((path.dispatched, path.until));
                }
                Difference::Last | Difference::OffPath => {
                    let at = path.found.map(|found| room.max(found + redirect));
                    dispatched.extend(at.map(|at| (at, path.until)));
                }
                Difference::Earlier => {}
            }
            true
        });
        dispatched
    }

    /// Executes an entry on the first wrong path on which it is ready. Returns its references to data; `None` if no
    /// wrong path executes it.
    pub(super) fn execute_on_wrong_paths(
        &mut self,
        number: usize,
        entry: &Entry,
        costs: &Costs,
    ) -> Option<Vec<OnWrongPath>> {
        let dispatched = self.dispatch_on_wrong_paths(number, entry);
        let operands = self.latest(number, &entry.distances, true);
        let late = self.latest(number, &entry.late, true);
        let forwarded = self.forwarded(number, entry, true);
        let is_excluded =
            |cost: Cost| cost.handler_cycles > 0 || cost.speculation != Speculation::None;
        if entry.data().any(|reference| reference.2.is_some_and(is_excluded)) {
            return None;
        }
        let has_data = entry.data().next().is_some();
        let needed = if has_data { operands } else { operands.max(late) };
        let on_each = dispatched.into_iter().map(|(at, until)| (needed.max(at + 1), until));
        let ready = on_each.filter(|(ready, until)| ready < until).map(|times| times.0).min()?;
        let (mut loaded, mut complete) = (ready, ready);
        let mut accesses = Vec::new();
        for reference in entry.data() {
            let is_store = reference.0.is_store();
            let mut waits = Waits::new();
            let from = if is_store { loaded } else { ready };
            let end = self.access(from, reference, forwarded, costs, &mut waits);
            if !is_store {
                loaded = loaded.max(end);
            }
            complete = complete.max(end);
            accesses.push((end, waits));
        }
        let arithmetic = self.arithmetic_cycles(entry);
        complete = match accesses.len() {
            0 => complete.max(late) + arithmetic,
            _ => complete.max(late + 1) + arithmetic - 1,
        };
        self.complete_on_wrong_paths.insert(number, complete);
        Some(accesses)
    }

    /// When an entry is complete on wrong paths, or on the right path if no wrong path executes it.
    pub(super) fn complete_on_wrong_path(&self, number: usize) -> u64 {
        *self.complete_on_wrong_paths.get(&number).unwrap_or(&self.complete[number])
    }
}
