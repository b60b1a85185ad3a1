//! The fast path: simple entries whose references have no cost in any lane. Most entries are of this kind.

use octavo_config::PipelineConfig;
use octavo_types::Arithmetic;

use super::references::EntryReference;
use super::waits::{ReferenceWaits, Waits};
use super::{Context, Pipeline};
use crate::core::Costs;
use crate::core::calendar::Slot;
use crate::core::lanes::Lanes;
use crate::core::stack::Part;
use crate::core::wrong_paths::OnBothPaths;
use crate::front::{Difference, LineAccess, Simple};

/// When the producers of a simple entry are complete.
struct SimpleOperands<V> {
    operands: V,
    late: V,
    /// When the store is complete from which the load takes its value. Without such a store, a time that delays
    /// nothing.
    forwarded: V,
}

impl<V: Lanes> SimpleOperands<V> {
    /// `complete` returns when the producer at a distance is complete. With `has_late`, the second of two distances is
    /// late.
    #[inline(always)]
    fn new(entry: Simple, has_late: bool, complete: impl Fn(u32) -> V) -> Self {
        let [first, second] = entry.header.distances().map(&complete);
        let (mut operands, mut late) =
            if has_late { (first, second) } else { (first.max(second), V::all(0)) };
        let mut forwarded = V::all(0);
        if entry.has_more() {
            let [third, fourth] = entry.more_distances().map(&complete);
            if has_late {
                (operands, late) = (operands.max(third), late.max(fourth));
            } else {
                operands = operands.max(third.max(fourth));
            }
            // An entry that takes no value from a store has the distance 0, whose time delays nothing.
            forwarded = complete(entry.forward());
        }
        SimpleOperands { operands, late, forwarded }
    }
}

/// The cycles from issue to completion of a simple entry that waits for no walk and no line.
#[derive(Clone, Copy)]
pub(super) struct SimpleLatencies {
    /// First by the data reference: no load, a load, a load that takes its value from a store (two rows). Then by the
    /// code of the arithmetic.
    cycles: [[u32; 8]; 4],
}

impl SimpleLatencies {
    pub(super) fn new(config: &PipelineConfig, l1d_cycles: u32) -> Self {
        let reference = |load: usize| [1, l1d_cycles, config.forward_cycles][load.min(2)];
        let cycles = |load| {
            std::array::from_fn(|code| {
                let arithmetic = Arithmetic::of_code(code as u8)
                    .map_or(1, |arithmetic| config.latencies.of(arithmetic));
                // The reference hides one cycle of the arithmetic.
                reference(load) + arithmetic - 1
            })
        };
        SimpleLatencies { cycles: std::array::from_fn(cycles) }
    }

    #[inline(always)]
    fn of(&self, entry: Simple) -> u32 {
        let load = entry.loads() + u32::from(entry.forward() != 0);
        self.cycles[load as usize % 4][entry.header.arithmetic_code()]
    }
}

impl<V: Lanes> Pipeline<V> {
    /// [`Self::execute_simple`] for one lane, while a wrong path is under way.
    #[inline(never)]
    pub(super) fn execute_simple_on_both_in_one_lane(
        &mut self,
        entry: Simple,
        accesses: &[LineAccess],
        place: usize,
        costs: &[&Costs],
    ) {
        self.execute_simple::<true>(entry, accesses, place, costs);
    }

    /// The fast path: executes a simple entry whose references have no cost in any lane. `place` is the index of the
    /// access that serves its reference to data. It has the result of [`Self::execute_entry`], but no loops over parts
    /// of the entry and few branches that depend on times: the host predicts the kind of the next entry better than its
    /// times. A wrong path may be under way only with `ON_BOTH`.
    #[inline(always)]
    pub(super) fn execute_simple<const ON_BOTH: bool>(
        &mut self,
        entry: Simple,
        accesses: &[LineAccess],
        place: usize,
        costs: &[&Costs],
    ) {
        let header = entry.header;
        let (loads, stores) = (entry.loads() != 0, entry.stores() != 0);
        // Without references, an entry needs its late producers as early as the others.
        let has_late = (loads || stores) && header.has_late();
        let SimpleOperands { operands, late, forwarded } =
            SimpleOperands::new(entry, has_late, |distance| self.producer_complete(distance));
        let mut context = Context { costs, now: self.fetch.cycle() };
        if ON_BOTH {
            context.now = self.wrong_paths.earliest_request(context.now);
        }

        let branches = self.delay_fetch(header);
        let fetched = self.fetch.take_next().plus(V::all(self.config.front_end_cycles));
        let writes = header.writes_integer();
        let mut room = self.room_in_buffers(writes);
        let mut earliest = fetched.max(room);
        let mut store_wait = V::all(0);
        if loads {
            let number = self.loads.wrapping_sub(u64::from(self.config.load_queue));
            let load_room = *self.load_ends.get(number);
            (room, earliest) = (room.max(load_room), earliest.max(load_room));
        } else if stores {
            let number = self.stores.wrapping_sub(u64::from(self.config.store_queue));
            let store_room = *self.store_ends.get(number);
            store_wait = store_room.saturating_minus(earliest.max(self.dispatch.cycle()));
            (room, earliest) = (room.max(store_room), earliest.max(store_room));
        }
        let dispatched = self.dispatch.take(earliest);

        let arithmetic = self.arithmetic_cycles(header);
        let mut both = None;
        if ON_BOTH && header.difference() != Difference::Earlier {
            let there = SimpleOperands::new(entry, has_late, |distance| {
                self.producer_complete_on_wrong_paths(distance)
            });
            let wrong = self.wrong_paths.dispatch(header.difference(), room, there.operands);
            let stored = (entry.forward() != 0).then_some(there.forwarded);
            let mut paths = OnBothPaths::new(wrong, there.late, stored);
            // As if the entry waited for no walk and no line; computed again below if it may wait.
            paths.complete =
                paths.complete.max(there.forwarded).plus(V::all(self.latencies.of(entry)));
            both = Some(paths);
        }
        let ready = operands.max(dispatched.plus(V::all(1)));
        let slot = Slot::new(entry.loads(), entry.stores());
        let start = self.issue.take(slot, ready, dispatched);
        let mut complete = start.max(forwarded).plus(V::all(self.latencies.of(entry)));
        let mut slowest = None;
        let begin =
            both.as_ref().map_or(start, |paths| paths.wrong.select(paths.wrong.ready, start));
        if (loads || stores) && begin.is_less_in_any(self.under_way_end) {
            let word = entry.data();
            let reference = EntryReference {
                word,
                access: accesses[place],
                cost_lanes: 0,
                cost_indices: V::all(0),
            };
            let forwarded = (entry.forward() != 0).then_some(forwarded);
            let mut waits = ReferenceWaits::new();
            let (mut end, mut own) = (ready, ReferenceWaits::new());
            let reference_end = match &mut both {
                None => self.execute_reference(
                    &reference,
                    start,
                    forwarded.as_ref(),
                    &mut own,
                    &context,
                ),
                Some(both) => {
                    both.complete = both.wrong.ready;
                    let end = self.execute_reference_on_both(
                        &reference, start, forwarded, both, &mut own, &context,
                    );
                    both.complete = both.complete.plus(V::all(arithmetic - 1));
                    end
                }
            };
            waits.replace(&mut end, &reference_end, &own);
            complete = end.plus(V::all(arithmetic - 1));
            slowest = Some(waits);
        }
        if has_late {
            complete = complete.max(late.plus(V::all(arithmetic)));
        }
        if ON_BOTH {
            let complete_there = both.map_or(complete, |mut paths| {
                if has_late {
                    paths.complete = paths.complete.max(paths.late.plus(V::all(arithmetic)));
                }
                paths.wrong.select(paths.complete, complete)
            });
            self.record_complete_on_wrong_paths(complete_there);
        }

        let last_commit = self.commit.cycle();
        let committed = self.commit.take(complete);
        let elapsed = committed.minus(last_commit);
        if let Some(slowest) = slowest {
            let waits = Waits { branches, stores: store_wait, slowest, ..Waits::new(false) };
            self.count_cycles(elapsed, &waits);
        } else {
            let mut remaining = elapsed.saturating_minus(V::all(1));
            if stores {
                self.stacks.attribute(&mut remaining, Part::Stores, store_wait);
            }
            if header.is_redirected() {
                self.stacks.attribute(&mut remaining, Part::Branches, branches);
            }
            self.stacks.add_to_base(remaining, elapsed);
        }
        self.end_entry(writes, dispatched, complete, committed);

        if loads {
            self.load_ends.set(self.loads, committed);
            self.loads += 1;
        } else if stores {
            if committed.is_less_in_any(self.lines_end) {
                let word = entry.data();
                let reference = EntryReference {
                    word,
                    access: accesses[place],
                    cost_lanes: 0,
                    cost_indices: V::all(0),
                };
                self.request_line_at_commit(&reference, &committed, &context);
            }
            self.store_ends.set(self.stores, self.drain.take(committed));
            self.stores += 1;
        }
    }
}
