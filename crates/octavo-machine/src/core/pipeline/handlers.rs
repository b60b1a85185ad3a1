//! Software handlers of misses, which interrupt the program and drain the core.

use super::Pipeline;
use super::general::Operands;
use super::references::EntryReference;
use super::waits::{Waits, add_in_lane};
use crate::core::lanes::Lanes;
use crate::core::{Cost, Costs};

impl<V: Lanes> Pipeline<V> {
    /// Runs the software handler of a reference that is reached at a time, if it has one: when all earlier instructions
    /// are committed. Returns when the handler ends.
    #[inline(always)]
    pub(super) fn run_handler(
        &mut self,
        lane: usize,
        at: u32,
        cost: Cost,
        waits: &mut Waits<V>,
    ) -> u32 {
        if cost.handler_cycles == 0 {
            return at;
        }
        let cycles = self.config.front_end_cycles + cost.handler_cycles;
        self.traps[lane] += 1;
        add_in_lane(&mut waits.handlers, lane, cycles);
        at.max(self.commit.cycle().get(lane)) + cycles
    }

    /// Runs the software handlers of an entry's references to data, one after another, when its operands are ready. In
    /// lanes with a handler the entry is then fetched and dispatched again, and `dispatched` is changed to that time.
    #[inline(never)]
    pub(super) fn run_handlers(
        &mut self,
        dispatched: &mut V,
        entry: &Operands<V>,
        references: &[EntryReference<V>],
        costs: &[&Costs],
        waits: &mut Waits<V>,
    ) {
        for (lane, dispatched) in dispatched.as_mut_slice().iter_mut().enumerate().take(costs.len())
        {
            let ready = entry.operands.get(lane).max(*dispatched + 1);
            let mut returned = ready;
            for reference in references.iter().filter(|reference| !reference.word.is_fetch()) {
                if let Some(cost) = reference.cost(lane, costs) {
                    returned = self.run_handler(lane, returned, cost, waits);
                }
            }
            if returned > ready {
                let fetched = self.fetch.take_in(lane, returned) + self.config.front_end_cycles;
                *dispatched = self.dispatch.take_in(lane, fetched);
            }
        }
    }
}
