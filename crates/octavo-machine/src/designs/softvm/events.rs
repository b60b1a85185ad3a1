//! The cost of translation as a function of event counts (section 5.2, Table 4).

use super::settings::SoftvmCycles;

use crate::counters::Counters;

/// Counts of the events of Table 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// Loads and stores that miss the second level, including the handler's own loads of page-table entries
    /// at virtual addresses: each runs a handler.
    pub data_misses: u64,
    /// Fetches that miss the second level: each runs a handler.
    pub fetch_misses: u64,
    /// Handler loads that miss the first level.
    pub handler_l1d_misses: u64,
    /// Handler loads by physical address that also miss the second level.
    pub handler_l2d_misses: u64,
    /// Page-table entries loaded from memory for a handler that missed them.
    pub entry_loads: u64,
    /// Handler fetches that miss the first level.
    pub handler_l1i_misses: u64,
    /// Handler fetches that also miss the second level.
    pub handler_l2i_misses: u64,
}

impl Events {
    /// Name, count and cycles per event of each row, in the paper's order. Running the handler costs
    /// `handler_cycles`, or `step_cycles` in hardware.
    pub fn rows(&self, cycles: &SoftvmCycles, is_hardware: bool) -> [(&'static str, u64, u64); 7] {
        let SoftvmCycles { l2_cycles, memory_cycles, handler_cycles, step_cycles, .. } = *cycles;
        let run = if is_hardware { step_cycles } else { handler_cycles };
        let [l2, memory, handler] = [l2_cycles, memory_cycles, run].map(u64::from);
        [
            ("data_misses", self.data_misses, handler),
            ("fetch_misses", self.fetch_misses, handler),
            ("handler_l1d_misses", self.handler_l1d_misses, l2),
            ("handler_l2d_misses", self.handler_l2d_misses, memory),
            ("entry_loads", self.entry_loads, memory),
            ("handler_l1i_misses", self.handler_l1i_misses, l2),
            ("handler_l2i_misses", self.handler_l2i_misses, memory),
        ]
    }

    /// The total in cycles.
    pub fn cycles(&self, cycles: &SoftvmCycles, is_hardware: bool) -> u64 {
        self.rows(cycles, is_hardware).iter().map(|(_, times, cycles)| times * cycles).sum()
    }

    /// Adds the rows to a component.
    pub fn report(&self, component: &str, counters: &mut Counters) {
        for (name, times, _) in self.rows(&SoftvmCycles::default(), false) {
            counters.add(component, name, times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 4, for a million instructions of gcc.
    #[test]
    fn costs_of_gcc_match_table_4() {
        let events = Events {
            data_misses: 697,
            fetch_misses: 4756,
            handler_l1d_misses: 596,
            handler_l2d_misses: 32,
            entry_loads: 53,
            handler_l1i_misses: 985,
            handler_l2i_misses: 35,
        };
        let cycles = SoftvmCycles::default();
        let each = events.rows(&cycles, false).map(|(_, times, cycles)| times * cycles);
        assert_eq!(each, [6_970, 47_560, 11_920, 2_880, 4_770, 19_700, 3_150]);
        assert_eq!(events.cycles(&cycles, false), 96_950);
    }
}
