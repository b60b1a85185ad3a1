//! Counts and costs of cache sweeps (section 5.4).

use super::settings::SoftvmCycles;
use octavo_hw::Swept;

use crate::counters::Counters;

/// The cause of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A page lost store permission, or gained it without lazy protection.
    Protection,
    /// A page was unmapped or moved.
    Unmapped,
    /// Another address of the page's frame is used.
    Synonym,
    /// A store to a line of a page that gained store permission lazily: only this line is changed.
    Lazy,
    /// A device transfers the page.
    Dma,
}

/// All kinds, with their component names.
const KINDS: [(Kind, &str); 5] = [
    (Kind::Protection, "softvm.protection"),
    (Kind::Unmapped, "softvm.unmapped"),
    (Kind::Synonym, "softvm.synonyms"),
    (Kind::Lazy, "softvm.lazy"),
    (Kind::Dma, "softvm.dma"),
];

/// Sweeps of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sweeps {
    /// Pages swept for, or single lines.
    pub pages: u64,
    /// Sweeps of all lines of a side.
    pub whole: u64,
    /// Lines checked, changed and written back.
    pub swept: Swept,
}

impl Sweeps {
    /// The cost in cycles: a line has one cost if it is present and changed, another if it is only checked
    /// ("an update is a check-and-modify").
    pub fn cycles(&self, cycles: &SoftvmCycles) -> u64 {
        let Swept { checked, changed, .. } = self.swept;
        let level = |level: usize, check: u32, change: u32| {
            let absent = checked[level] - changed[level];
            changed[level] * u64::from(change) + absent * u64::from(check)
        };
        level(0, cycles.check_l1_cycles, cycles.change_l1_cycles)
            + level(1, cycles.check_l2_cycles, cycles.change_l2_cycles)
    }
}

/// All sweeps, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllSweeps([Sweeps; KINDS.len()]);

impl AllSweeps {
    /// Adds a sweep for a page or a line.
    pub fn add(&mut self, kind: Kind, swept: Swept) {
        let sweeps = &mut self.0[kind as usize];
        sweeps.pages += 1;
        sweeps.swept = sweeps.swept.plus(swept);
    }

    /// Adds a sweep of a whole side, with the number of its lines by level.
    pub fn begin_whole(&mut self, kind: Kind, checked: [u64; 2]) {
        let sweeps = &mut self.0[kind as usize];
        sweeps.whole += 1;
        sweeps.swept = sweeps.swept.plus(Swept { checked, ..Swept::default() });
    }

    /// The total cost in cycles.
    pub fn cycles(&self, cycles: &SoftvmCycles) -> u64 {
        self.0.iter().map(|sweeps| sweeps.cycles(cycles)).sum()
    }

    /// Reports each kind under its component.
    pub fn report(&self, counters: &mut Counters) {
        for (kind, component) in KINDS {
            let Sweeps { pages, whole, swept } = self.0[kind as usize];
            let Swept { checked, changed, written_back } = swept;
            for (name, value) in [
                ("pages", pages),
                ("whole", whole),
                ("l1_checked", checked[0]),
                ("l1_changed", changed[0]),
                ("l1_written_back", written_back[0]),
                ("l2_checked", checked[1]),
                ("l2_changed", changed[1]),
                ("l2_written_back", written_back[1]),
            ] {
                counters.add(component, name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 5.4: 10 of 256 lines are present in the first level and 50 of 256 in the second.
    #[test]
    fn protection_change_has_the_cost_of_the_paper() {
        let swept = Swept { checked: [256, 256], changed: [10, 50], written_back: [0, 0] };
        let mut all = AllSweeps::default();
        all.add(Kind::Protection, swept);
        assert_eq!(all.cycles(&SoftvmCycles::default()), 6908);
    }
}
