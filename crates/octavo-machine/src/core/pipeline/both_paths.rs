//! Entries that [wrong paths](crate::core::wrong_paths) execute, too: where wrong paths begin, when their entries are
//! complete there, and what is left of a reference for the right path.

use super::references::EntryReference;
use super::waits::ReferenceWaits;
use super::{Context, Pipeline};
use crate::core::lanes::Lanes;
use crate::core::wrong_paths::{OnBothPaths, OnWrongPath};
use crate::core::{Costs, Speculation};
use crate::front::{Header, MAX_DISTANCE};

/// Excludes an entry from wrong paths in the lanes in which one of its references to data has a software handler or a
/// predicted frame.
pub(super) fn exclude_interrupted<V: Lanes>(
    mut wrong: OnWrongPath<V>,
    references: &[EntryReference<V>],
    costs: &[&Costs],
) -> OnWrongPath<V> {
    for reference in references.iter().filter(|reference| !reference.word.is_fetch()) {
        reference.each_cost(costs, |lane, cost| {
            if cost.handler_cycles > 0 || cost.speculation != Speculation::None {
                wrong.exclude(lane);
            }
        });
    }
    wrong
}

impl<V: Lanes> Pipeline<V> {
    /// Whether a wrong path may begin with an entry.
    #[inline(always)]
    pub(super) fn may_begin_wrong_path(&self, header: Header) -> bool {
        self.config.wrong_paths & header.is_redirected()
    }

    /// Handles a mispredicted branch directly before the next entry: its wrong path begins if it waits for long, and
    /// wrong paths under way find the misprediction.
    pub(super) fn begin_wrong_path(&mut self, header: Header) {
        self.fetch.wait(*self.dispatched.get(self.entry_before(self.config.fetch_buffer)));
        let complete = [self.producer_complete(1), self.producer_complete_on_wrong_paths(1)];
        let (fetched, dispatched) = (self.fetch.next_cycle(), self.dispatch.cycle());
        self.wrong_paths.redirect(header.difference(), fetched, dispatched, complete);
        if self.wrong_paths.is_under_way() {
            // Producers that were executed while no wrong path was under way.
            let known = self.entries_on_wrong_paths.max(self.entries.saturating_sub(MAX_DISTANCE));
            for entry in known..self.entries {
                self.complete_on_wrong_paths.set(entry, *self.complete.get(entry));
            }
        }
    }

    /// When the producer at a distance is complete on wrong paths, while one is under way.
    #[inline(always)]
    pub(super) fn producer_complete_on_wrong_paths(&self, distance: u32) -> V {
        *self.complete_on_wrong_paths.get(self.entry_before(distance))
    }

    /// Records when the current entry is complete on wrong paths: in lanes where no wrong path executes it, when it is
    /// complete on the right path.
    #[inline(always)]
    pub(super) fn record_complete_on_wrong_paths(&mut self, complete: V) {
        self.complete_on_wrong_paths.set(self.entries, complete);
        self.entries_on_wrong_paths = self.entries + 1;
    }

    /// Executes a reference of an entry that wrong paths may execute, too; `start` is its issue on the right path. In
    /// lanes where a wrong path executes it, its look-ups, walk and line begin there, and the right path waits only for
    /// the part of them after `start`. Returns when it is complete on the right path.
    #[inline(always)]
    pub(super) fn execute_reference_on_both(
        &mut self,
        reference: &EntryReference<V>,
        start: V,
        forwarded: Option<V>,
        both: &mut OnBothPaths<V>,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) -> V {
        let is_store = reference.word.is_store();
        let wrong = both.wrong;
        let began = wrong.select(if is_store { both.loaded } else { wrong.ready }, start);
        let stored = forwarded.zip(both.forwarded).map(|(right, there)| wrong.select(there, right));
        let looked_up = began.plus(own.lookups);
        let end = self.execute_reference(reference, looked_up, stored.as_ref(), own, context);
        both.complete = both.complete.max(end);
        if !is_store {
            both.loaded = both.loaded.max(end);
        }
        let translated = looked_up.plus(own.walks);
        let served = translated.plus(own.data);
        own.lookups = looked_up.saturating_minus(start);
        own.walks = translated.saturating_minus(start.max(looked_up));
        own.data = served.saturating_minus(start.max(translated));
        let hit = start.plus(V::all(if is_store { 1 } else { self.l1d_cycles }));
        // When the reference is complete if its translation and its line have arrived by `start`.
        let mut without_waits = hit;
        if let Some(stored) = forwarded.filter(|_| !is_store) {
            without_waits = stored.max(start).plus(V::all(self.config.forward_cycles));
            reference.each_cost(context.costs, |lane, cost| {
                if cost.concerns_lines() {
                    without_waits.set(lane, hit.get(lane));
                }
            });
        }
        wrong.select(end.max(without_waits), end)
    }
}
