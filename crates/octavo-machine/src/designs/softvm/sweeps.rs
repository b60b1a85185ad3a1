//! What sweeps of the caches found, and what they cost (section 5.4).

use octavo_config::SoftvmCycles;
use octavo_hw::Swept;

use crate::counters::Counters;

/// What a sweep is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A page lost the right to be stored to, or (where that is not left to the first store) got it.
    Protection,
    /// A page is mapped no more, or elsewhere.
    Unmapped,
    /// Another address of its frame is used.
    Synonym,
    /// A line is stored to whose page had got that right: it alone is changed.
    Lazy,
    /// A device transfers the page.
    Dma,
}

/// All kinds, with the names that they are told by.
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
    /// Pages that were swept for, or single lines.
    pub pages: u64,
    /// Times that all lines of a side were gone through.
    pub whole: u64,
    /// What was found.
    pub swept: Swept,
}

impl Sweeps {
    /// What they cost: a line costs one price where it is there and is changed, another where it is only
    /// asked for ("an update is a check-and-modify").
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

/// All sweeps, by what they were for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllSweeps([Sweeps; KINDS.len()]);

impl AllSweeps {
    /// One for a page, or for a line.
    pub fn add(&mut self, kind: Kind, swept: Swept) {
        let sweeps = &mut self.0[kind as usize];
        sweeps.pages += 1;
        sweeps.swept = sweeps.swept.plus(swept);
    }

    /// All lines of a side, so many by level, are gone through: each is checked once.
    pub fn begin_whole(&mut self, kind: Kind, checked: [u64; 2]) {
        let sweeps = &mut self.0[kind as usize];
        sweeps.whole += 1;
        sweeps.swept = sweeps.swept.plus(Swept { checked, ..Swept::default() });
    }

    /// What all of them cost.
    pub fn cycles(&self, cycles: &SoftvmCycles) -> u64 {
        self.0.iter().map(|sweeps| sweeps.cycles(cycles)).sum()
    }

    /// Adds each kind to its component.
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

    /// Section 5.4: 10 of 256 lines of the first level and 50 of 256 of the second are there.
    #[test]
    fn a_change_of_protection_costs_what_the_paper_says() {
        let swept = Swept { checked: [256, 256], changed: [10, 50], written_back: [0, 0] };
        let mut all = AllSweeps::default();
        all.add(Kind::Protection, swept);
        assert_eq!(all.cycles(&SoftvmCycles::default()), 6908);
    }
}
