//! The general path: entries of any kind, with any references and costs.

use super::both_paths::exclude_interrupted;
use super::references::{CostCursor, EntryReference, has_data_reference};
use super::waits::{ReferenceWaits, Waits};
use super::{Context, Pipeline};
use crate::core::Costs;
use crate::core::calendar::Slot;
use crate::core::lanes::Lanes;
use crate::core::wrong_paths::{OnBothPaths, OnWrongPath};
use crate::front::{Difference, Entry, Header, LineAccess, Word, each_distance};

/// The header of an entry, and when its producers are complete.
pub(super) struct Operands<V> {
    header: Header,
    /// When the last producer that is not late is complete.
    pub(super) operands: V,
    /// When the last late producer is complete.
    late: V,
    /// When the last store is complete from which a load of the entry takes its value.
    forwarded: Option<V>,
}

impl<V: Lanes> Operands<V> {
    fn new(header: Header) -> Self {
        Operands { header, operands: V::all(0), late: V::all(0), forwarded: None }
    }

    /// Adds the producers that a word names. `complete` returns when the producer at a distance is complete.
    #[inline(always)]
    fn add(&mut self, word: Word, mut complete: impl FnMut(u32) -> V) {
        match word {
            Word::Distances(distances) => {
                each_distance(distances, |distance| {
                    self.operands = self.operands.max(complete(distance));
                });
            }
            Word::Late(distances) => {
                each_distance(distances, |distance| self.late = self.late.max(complete(distance)));
            }
            Word::Forward(distance) => {
                let forwarded = self.forwarded.unwrap_or(V::all(0));
                self.forwarded = Some(forwarded.max(complete(distance)));
            }
            Word::Reference(_) => {}
        }
    }
}

impl<V: Lanes> Pipeline<V> {
    /// [`Self::execute_any`] for one lane.
    #[inline(never)]
    pub(super) fn execute_any_in_one_lane(
        &mut self,
        entry: Entry<'_>,
        accesses: &[LineAccess],
        first: usize,
        cursor: &mut CostCursor<'_, V>,
    ) {
        self.execute_any(entry, accesses, first, cursor);
    }

    /// The general path: executes an entry of any kind.
    #[inline(always)]
    pub(super) fn execute_any(
        &mut self,
        entry: Entry<'_>,
        accesses: &[LineAccess],
        first: usize,
        cursor: &mut CostCursor<'_, V>,
    ) {
        let mut references = std::mem::take(&mut self.references);
        references.clear();
        let header = entry.header();
        if self.may_begin_wrong_path(header) {
            self.begin_wrong_path(header);
        }
        let is_on_wrong_path =
            self.wrong_paths.is_under_way() && header.difference() != Difference::Earlier;
        let [mut operands, mut wrong] = [Operands::new(header), Operands::new(header)];
        entry.each_word(|word| {
            operands.add(word, |distance| self.producer_complete(distance));
            if is_on_wrong_path {
                wrong.add(word, |distance| self.producer_complete_on_wrong_paths(distance));
            }
            if let Word::Reference(word) = word {
                let mut place = word.place();
                let (mut cost_lanes, mut cost_indices) = (0, V::all(0));
                if word.is_fresh() {
                    place = first + cursor.reference as usize;
                    (cost_lanes, cost_indices) = cursor.advance();
                }
                if cost_lanes != 0 || !word.is_fetch() {
                    references.push(EntryReference {
                        word,
                        access: accesses[place],
                        cost_lanes,
                        cost_indices,
                    });
                }
            }
        });
        let wrong = is_on_wrong_path.then_some(&wrong);
        self.execute_entry(&operands, wrong, &references, cursor.costs);
        self.references = references;
        self.move_epochs_if_due();
    }

    /// Executes an entry. `wrong` has its operands on wrong paths, if those may execute it.
    #[inline(always)]
    fn execute_entry(
        &mut self,
        entry: &Operands<V>,
        wrong: Option<&Operands<V>>,
        references: &[EntryReference<V>],
        costs: &[&Costs],
    ) {
        let header = entry.header;
        let has_costs = references.iter().any(|reference| reference.cost_lanes != 0);
        let mut waits = Waits::new(has_costs);
        let context = Context { costs, now: self.wrong_paths.earliest_request(self.fetch.cycle()) };

        self.fetch_entry(header, references, &context, &mut waits);
        let writes = header.writes_integer();
        let (room, store_room) = self.room_for(writes, references);
        let wrong = wrong.map(|operands| {
            let (difference, room) = (header.difference(), room.max(store_room));
            let late = if has_data_reference(references) { V::all(0) } else { operands.late };
            let wrong = self.wrong_paths.dispatch(difference, room, operands.operands.max(late));
            (operands, exclude_interrupted(wrong, references, costs))
        });
        let mut dispatched = self.dispatch_entry(room, store_room, &mut waits);
        if has_costs && costs.iter().any(|costs| costs.has_handlers) {
            self.run_handlers(&mut dispatched, entry, references, costs, &mut waits);
        }
        let complete =
            self.execute_dispatched(dispatched, entry, wrong, references, &context, &mut waits);

        let last_commit = self.commit.cycle();
        let mut verified = complete;
        if has_costs {
            verified = verified.max(std::mem::replace(&mut self.verification_end, V::all(0)));
            waits.verification = verified.minus(complete);
        }
        let committed = self.commit.take(verified);
        self.count_cycles(committed.minus(last_commit), &waits);
        self.end_entry(writes, dispatched, complete, committed);
        self.commit_references(committed, references, &context);
        if has_costs {
            for (lane, memory) in self.memory.iter_mut().enumerate() {
                memory.drop_completed(self.epochs[lane] + u64::from(context.now.get(lane)));
            }
        }
    }

    /// Executes the references and the arithmetic of a dispatched entry. `wrong` has its operands and its dispatch on
    /// wrong paths. Returns when the entry is complete.
    #[inline(always)]
    fn execute_dispatched(
        &mut self,
        dispatched: V,
        entry: &Operands<V>,
        wrong: Option<(&Operands<V>, OnWrongPath<V>)>,
        references: &[EntryReference<V>],
        context: &Context<'_, V>,
        waits: &mut Waits<V>,
    ) -> V {
        let ready = entry.operands.max(dispatched.plus(V::all(1)));
        let arithmetic = self.arithmetic_cycles(entry.header);
        let has_data = has_data_reference(references);
        // Without references, an entry begins when its late producers are complete, too.
        let begin = if has_data { ready } else { ready.max(entry.late) };
        let mut complete = begin;
        let (mut loaded, mut load_waits) = (ready, ReferenceWaits::new());
        let mut on_both = wrong
            .map(|(operands, wrong)| OnBothPaths::new(wrong, operands.late, operands.forwarded));
        if !has_data {
            complete = self.issue.take(Slot::new(0, 0), begin, dispatched);
        }
        for reference in references {
            let word = reference.word;
            if word.is_fetch() {
                continue;
            }
            let stores = u32::from(word.is_store());
            let slot = Slot::new(1 - stores, stores);
            // A store waits for the loads before it in its instruction.
            let earliest = if word.is_store() { loaded } else { ready };
            let start = self.issue.take(slot, earliest, dispatched);
            let mut lookups = V::all(0);
            reference.each_cost(context.costs, |lane, cost| {
                lookups.set(lane, cost.lookup_cycles);
            });
            let mut own = ReferenceWaits { lookups, ..ReferenceWaits::new() };
            let end = match &mut on_both {
                None => {
                    let looked_up = start.plus(lookups);
                    self.execute_reference(
                        reference,
                        looked_up,
                        entry.forwarded.as_ref(),
                        &mut own,
                        context,
                    )
                }
                Some(both) => self.execute_reference_on_both(
                    reference,
                    start,
                    entry.forwarded,
                    both,
                    &mut own,
                    context,
                ),
            };
            if word.is_store() {
                // The waits of the slowest load come before the store's own.
                own.lookups = own.lookups.plus(load_waits.lookups);
                own.walks = own.walks.plus(load_waits.walks);
                (own.data, own.served) = (load_waits.data, load_waits.served);
            } else {
                load_waits.replace(&mut loaded, &end, &own);
            }
            waits.slowest.replace(&mut complete, &end, &own);
        }
        if has_data {
            // The references hide one cycle of the arithmetic.
            complete = complete.max(entry.late.plus(V::all(1))).plus(V::all(arithmetic - 1));
        } else {
            complete = complete.plus(V::all(arithmetic));
        }
        if self.wrong_paths.is_under_way() {
            let complete_there = on_both.map_or(complete, |both| {
                both.wrong.select(both.complete(has_data, arithmetic), complete)
            });
            self.record_complete_on_wrong_paths(complete_there);
        }
        complete
    }
}
