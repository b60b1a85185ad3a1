//! References to data: translation, and the line of a load. They are handed to the memory side lane by lane where a lane
//! has a cost, or may wait for a walk or line under way.

use super::Pipeline;
use super::references::EntryReference;
use super::waits::ReferenceWaits;
use crate::core::lanes::Lanes;
use crate::core::memory_side::MemoryContext;
use crate::core::stack::Part;
use crate::core::{Cost, Costs, Speculation};
use crate::front::LineAccess;

/// The costs of the part that an entry belongs to, and a time in each lane before which neither the entry nor a later
/// one makes a request.
pub(super) struct Context<'a, V> {
    pub(super) costs: &'a [&'a Costs],
    pub(super) now: V,
}

impl<V: Lanes> Pipeline<V> {
    /// The context of an entry for the memory side of a lane.
    #[inline(always)]
    pub(super) fn memory_context<'a>(
        &self,
        context: &Context<'a, V>,
        lane: usize,
    ) -> MemoryContext<'a> {
        MemoryContext {
            costs: context.costs[lane],
            now: self.absolute(lane, context.now.get(lane)),
        }
    }

    /// Executes a reference to data after its look-ups in later TLB levels, and sets its waits for walk and line.
    /// Returns when a load has its data, or a cycle after a store has its translation.
    #[inline(always)]
    pub(super) fn execute_reference(
        &mut self,
        reference: &EntryReference<V>,
        looked_up: V,
        forwarded: Option<&V>,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) -> V {
        let translated = self.translate(reference, looked_up, context);
        own.walks = translated.minus(looked_up);
        match reference.word.is_store() {
            true => {
                if self.config.store_prefetch {
                    self.prefetch_for_store(reference, &translated, context);
                }
                translated.plus(V::all(1))
            }
            false => self.load(reference, translated, forwarded, own, context),
        }
    }

    /// When the page of a reference is translated whose later TLB levels have been looked up at a time.
    #[inline(always)]
    fn translate(&mut self, reference: &EntryReference<V>, at: V, context: &Context<'_, V>) -> V {
        if reference.cost_lanes == 0 && !at.is_less_in_any(self.walks_end) {
            return at;
        }
        self.translate_by_lane(reference, &at, context)
    }

    /// [`Self::translate`] lane by lane, for a reference that has a cost or may wait for a walk under way.
    #[inline(never)]
    fn translate_by_lane(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        context: &Context<'_, V>,
    ) -> V {
        let mut translated = *at;
        for lane in 0..self.memory.len() {
            let cost = reference.cost(lane, context.costs);
            let at = at.get(lane);
            if cost.is_some() || at < self.walks_end.get(lane) {
                translated.set(lane, self.translate_in(lane, reference.access, at, cost, context));
            }
        }
        translated
    }

    /// When an access in a lane continues, at its translation or at its predicted frame. Records when the walk of a
    /// prediction ends, and from when on the next entry is fetched again after a wrong one.
    pub(super) fn translate_in(
        &mut self,
        lane: usize,
        access: LineAccess,
        at: u32,
        cost: Option<Cost>,
        context: &Context<'_, V>,
    ) -> u32 {
        let (memory_context, from) = (self.memory_context(context, lane), self.absolute(lane, at));
        let memory = &mut self.memory[lane];
        let (translated, walks_end) =
            (memory.translate(access, from, cost, &memory_context), memory.walks_end());
        self.walks_end.set(lane, self.since_epoch(lane, walks_end));
        self.update_under_way_end(lane);
        let translated = self.since_epoch(lane, translated);
        let walk = cost.filter(|cost| cost.walk_cycles > 0);
        match walk.map_or(Speculation::None, |cost| cost.speculation) {
            Speculation::None => translated,
            Speculation::Right => {
                self.verification_end.set(lane, self.verification_end.get(lane).max(translated));
                at
            }
            Speculation::Wrong => {
                let refetch = translated + self.config.mispredict_cycles;
                self.refetch_from.set(lane, self.refetch_from.get(lane).max(refetch));
                self.needs_refetch = true;
                translated
            }
        }
    }

    fn update_under_way_end(&mut self, lane: usize) {
        self.under_way_end.set(lane, self.walks_end.get(lane).max(self.lines_end.get(lane)));
    }

    /// When a load that is translated at a time has its data. Sets its wait for the line.
    #[inline(always)]
    fn load(
        &mut self,
        reference: &EntryReference<V>,
        at: V,
        forwarded: Option<&V>,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) -> V {
        let mut end: V = match forwarded {
            Some(stored) => stored.max(at).plus(V::all(self.config.forward_cycles)),
            None => at.plus(V::all(self.l1d_cycles)),
        };
        let may_hit_in_flight = forwarded.is_none() && at.is_less_in_any(self.lines_end);
        if reference.cost_lanes == 0 && !may_hit_in_flight {
            return end;
        }
        self.load_by_lane(reference, &at, forwarded.is_some(), &mut end, own, context);
        end
    }

    /// [`Self::load`] lane by lane, for a load that has a cost or may wait for a line under way. Changes `end` in lanes
    /// in which the load waits for its line.
    #[inline(never)]
    fn load_by_lane(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        is_forwarded: bool,
        end: &mut V,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) {
        for lane in 0..self.memory.len() {
            let cost = reference.cost(lane, context.costs).filter(Cost::concerns_lines);
            let at = at.get(lane);
            if cost.is_none() && (is_forwarded || at >= self.lines_end.get(lane)) {
                continue;
            }
            let (line, part) = self.line_in(lane, reference.access, at, cost, context);
            own.data.set(lane, line - at);
            own.served.set(lane, part as u32);
            end.set(lane, line + self.l1d_cycles);
        }
    }

    /// When the line of an access is in the first-level cache of a lane, and the part of the stack for the wait.
    /// Without a cost the access hits, but its line may be under way.
    #[inline(always)]
    pub(super) fn line_in(
        &mut self,
        lane: usize,
        access: LineAccess,
        at: u32,
        cost: Option<Cost>,
        context: &Context<'_, V>,
    ) -> (u32, Part) {
        let (memory_context, at) = (self.memory_context(context, lane), self.absolute(lane, at));
        let memory = &mut self.memory[lane];
        let (line, part) = match cost {
            Some(cost) => memory.miss(access, at, cost, &memory_context),
            None => memory.hit(access, at, &memory_context),
        };
        let lines_end = memory.lines_end();
        self.lines_end.set(lane, self.since_epoch(lane, lines_end));
        self.update_under_way_end(lane);
        (self.since_epoch(lane, line), part)
    }
}
