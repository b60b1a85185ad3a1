//! Fetch: branches, wrong frames and costs of fetches delay it.

use super::references::EntryReference;
use super::waits::{Waits, add_in_lane};
use super::{Context, Pipeline};
use crate::core::lanes::Lanes;
use crate::front::Header;

impl<V: Lanes> Pipeline<V> {
    /// Delays fetch for an entry: for branches, wrong frames, and costs of the entry's own fetches. Later entries are
    /// fetched behind it.
    #[inline(always)]
    pub(super) fn fetch_entry(
        &mut self,
        header: Header,
        references: &[EntryReference<V>],
        context: &Context<'_, V>,
        waits: &mut Waits<V>,
    ) {
        waits.branches = self.delay_fetch(header);
        if std::mem::take(&mut self.needs_refetch) {
            let before = self.fetch.cycle();
            self.fetch.wait(std::mem::replace(&mut self.refetch_from, V::all(0)));
            waits.flushes = Some(self.fetch.cycle().minus(before));
        }
        for reference in references.iter().filter(|reference| reference.word.is_fetch()) {
            self.fetch_line(reference, context, waits);
        }
    }

    /// Delays fetch until the fetch buffer has room and the branch before an entry is resolved, and counts the branch.
    /// Returns the wait for the branch.
    #[inline(always)]
    pub(super) fn delay_fetch(&mut self, header: Header) -> V {
        let mut branches = V::all(0);
        self.fetch.wait(*self.dispatched.get(self.entry_before(self.config.fetch_buffer)));
        if header.continues() {
            self.continuations += 1;
        }
        self.taken += u64::from(header.is_after_taken());
        if header.is_redirected() {
            self.mispredicted += 1;
            let before = self.fetch.cycle();
            let resolved = self.producer_complete(1).plus(V::all(self.config.mispredict_cycles));
            self.fetch.wait(resolved);
            branches = self.fetch.cycle().minus(before);
        }
        self.fetch.end_cycle_if(header.is_after_taken() && !header.is_redirected());
        branches
    }

    /// Delays fetch by the costs of a fetch.
    #[inline(never)]
    fn fetch_line(
        &mut self,
        reference: &EntryReference<V>,
        context: &Context<'_, V>,
        waits: &mut Waits<V>,
    ) {
        reference.each_cost(context.costs, |lane, cost| {
            self.fetch.make_room_in(lane);
            let start = self.run_handler(lane, self.fetch.cycle().get(lane), cost, waits);
            let looked_up = start + cost.lookup_cycles;
            let translated =
                self.translate_in(lane, reference.access, looked_up, Some(cost), context);
            let arrived = match cost.cache_cycles {
                0 => translated,
                _ => {
                    let (memory_context, at) =
                        (self.memory_context(context, lane), self.absolute(lane, translated));
                    let filled = self.memory[lane].fill(at, cost, &memory_context);
                    self.since_epoch(lane, filled)
                }
            };
            add_in_lane(&mut waits.fetch_lookups, lane, looked_up - start);
            add_in_lane(&mut waits.fetch_walks, lane, translated - looked_up);
            add_in_lane(&mut waits.fetches, lane, arrived - translated);
            self.fetch.wait_in(lane, arrived);
        });
    }
}
