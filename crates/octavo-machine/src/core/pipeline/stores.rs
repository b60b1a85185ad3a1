//! Loads and stores at commit: loads leave the load queue, stores enter the data cache in order when their lines have
//! arrived.

use super::references::EntryReference;
use super::{Context, Pipeline};
use crate::core::lanes::Lanes;

impl<V: Lanes> Pipeline<V> {
    /// Frees the load queue entries of a committed entry, and lets its stores enter the data cache.
    #[inline(always)]
    pub(super) fn commit_references(
        &mut self,
        committed: V,
        references: &[EntryReference<V>],
        context: &Context<'_, V>,
    ) {
        for reference in references {
            if reference.word.is_fetch() {
                continue;
            }
            if !reference.word.is_store() {
                self.load_ends.set(self.loads, committed);
                self.loads += 1;
                continue;
            }
            let requests_line = reference.cost_lanes != 0 && !self.config.store_prefetch;
            if requests_line || committed.is_less_in_any(self.lines_end) {
                self.request_line_at_commit(reference, &committed, context);
            }
            // In lanes where the line is in the cache, nothing has delayed `drain`.
            let entered = self.drain.take(committed);
            self.store_ends.set(self.stores, entered);
            self.stores += 1;
        }
    }

    /// With `store_prefetch`: requests the line of a store that is translated at a time.
    #[inline(always)]
    pub(super) fn prefetch_for_store(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        context: &Context<'_, V>,
    ) {
        if reference.cost_lanes != 0 || at.is_less_in_any(self.lines_end) {
            self.request_line(reference, at, true, context, |_, _, _| ());
        }
    }

    /// Delays this store and later ones until its line has arrived, in lanes where the line is not in the cache at
    /// commit.
    #[inline(always)]
    pub(super) fn request_line_at_commit(
        &mut self,
        reference: &EntryReference<V>,
        committed: &V,
        context: &Context<'_, V>,
    ) {
        let is_first = !self.config.store_prefetch;
        self.request_line(reference, committed, is_first, context, |core, lane, arrived| {
            core.drain.wait_in(lane, arrived);
        });
    }

    /// Requests the line of a store at a time, and calls `arrives` for each lane in which the line may not be in the
    /// cache then, with the time when it is. Only the first request of a store (`is_first`) pays for the costs of its
    /// line.
    #[inline(never)]
    fn request_line(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        is_first: bool,
        context: &Context<'_, V>,
        mut arrives: impl FnMut(&mut Self, usize, u32),
    ) {
        for lane in 0..self.memory.len() {
            let (at, cost) = (at.get(lane), reference.cost(lane, context.costs));
            let cost = cost.filter(|cost| is_first && cost.concerns_lines());
            if cost.is_some() || at < self.lines_end.get(lane) {
                let (arrived, _) = self.line_in(lane, reference.access, at, cost, context);
                arrives(self, lane, arrived);
            }
        }
    }
}
