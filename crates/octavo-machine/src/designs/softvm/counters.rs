//! Reports the counters of machines with virtual caches.

use super::settings::SoftvmCycles;
use octavo_hw::VirtualCaches;

use super::translator::Translator;
use super::{Counts, Softvm};
use crate::counters::{Counters, Lookups};
use crate::env::Charged;

impl<T: Translator> Softvm<T> {
    /// The cycles of all counters. Hardware walks tables, software interrupts the program.
    pub(super) fn charged_cycles(&self) -> Charged {
        let cycles = &self.config.cycles;
        let Counts { events, write_backs, missed, .. } = &self.counts;
        let translation =
            events.cycles(cycles, T::IS_HARDWARE) + write_backs.cycles(cycles, T::IS_HARDWARE);
        let sweeps = self.pages.sweeps.cycles(cycles);
        let [walks, handlers] = if T::IS_HARDWARE { [translation, 0] } else { [0, translation] };
        Charged {
            lookups: 0,
            walks,
            caches: missed_cycles(*missed, cycles).iter().sum(),
            handlers: handlers + sweeps,
        }
    }

    /// Adds all counters.
    pub(super) fn report_all(&self, counters: &mut Counters) {
        let Counts { events, write_backs, lines_written, missed, denied, restarts, table1 } =
            &self.counts;
        let cycles = &self.config.cycles;
        events.report("softvm", counters);
        counters.add("softvm", "denied", *denied);
        counters.add("softvm", "restarts", *restarts);
        write_backs.report("softvm.write_back", counters);
        counters.add("softvm.write_back", "lines", *lines_written);
        self.pages.sweeps.report(counters);
        self.translator.report(counters);
        if let Some(tlb) = self.translator.tlb() {
            table1.report(*missed, [0, 1].map(|side| tlb.lookups(side)), counters);
        }
        counters.add("softvm.segments", "reloads", self.space.reloads());
        counters.add_level("softvm.segments", "used", self.space.segments());
        report_caches(&self.caches, *missed, cycles, counters);
        for (name, value) in [
            ("cycles_handler", events.cycles(cycles, T::IS_HARDWARE)),
            ("cycles_write_backs", write_backs.cycles(cycles, T::IS_HARDWARE)),
            ("cycles_sweeps", self.pages.sweeps.cycles(cycles)),
        ] {
            counters.add("core", name, value);
        }
    }
}

/// Adds the counters of the caches, and the cycles of accesses that missed the first level, and the second.
pub fn report_caches(
    caches: &VirtualCaches,
    missed: [[u64; 2]; 2],
    cycles: &SoftvmCycles,
    counters: &mut Counters,
) {
    let names = [["vcache.l1i", "vcache.l2i"], ["vcache.l1d", "vcache.l2d"]];
    for (side, names) in names.into_iter().enumerate() {
        for (name, level) in names.into_iter().zip(caches.counters(side)) {
            Lookups { hits: level.hits, misses: level.misses }.report(name, counters);
            counters.add(name, "write_backs", level.write_backs);
        }
    }
    for (name, beyond_l1) in
        ["cycles_fetches", "cycles_data"].into_iter().zip(missed_cycles(missed, cycles))
    {
        counters.add("core", name, beyond_l1);
    }
}

/// By side, the cycles of accesses that missed the first level, and the second.
pub fn missed_cycles(missed: [[u64; 2]; 2], cycles: &SoftvmCycles) -> [u64; 2] {
    missed.map(|[l1, l2]| l1 * u64::from(cycles.l2_cycles) + l2 * u64::from(cycles.memory_cycles))
}
