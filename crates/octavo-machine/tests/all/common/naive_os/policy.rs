//! Page-size policies: the page that a fault on anonymous memory maps.

use std::ops::Range;

use super::mappings::{Mapping, Source};
use super::reserving::Rules;
use super::{NaiveOs, Process};

/// The policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaivePolicy {
    /// Demand paging with base pages.
    Base,
    /// Linux's transparent huge pages, `enabled=always` (`Documentation/admin-guide/mm/transhuge.rst`): the first
    /// touch of an aligned 2 MiB that lies in one mapping and has no page yet gets a huge page, if one is free.
    Thp,
    /// Trident: a page of the largest order where transparent huge pages would get 2 MiB, then 2 MiB.
    Trident { largest: u8 },
    /// Huge pages by reservation.
    ReservedThp { percent: u64 },
    /// Tailored page sizes.
    Tps { percent: u64 },
}

impl NaivePolicy {
    /// The orders of pages larger than base pages that a fault may map, largest first.
    fn fault_orders(self) -> Vec<u8> {
        match self {
            NaivePolicy::Thp => vec![9],
            NaivePolicy::Trident { largest } => vec![largest, 9],
            _ => Vec::new(),
        }
    }

    /// The rules of a policy that reserves memory.
    pub(super) fn rules(self) -> Option<Rules> {
        match self {
            NaivePolicy::Base | NaivePolicy::Thp | NaivePolicy::Trident { .. } => None,
            NaivePolicy::ReservedThp { percent } => {
                Some(Rules { percent, smallest: 9, largest: 9, heap: 9, when_mapped: false })
            }
            NaivePolicy::Tps { percent } => {
                Some(Rules { percent, smallest: 1, largest: 18, heap: 9, when_mapped: true })
            }
        }
    }
}

impl Process {
    /// Whether nothing is mapped in a range of pages.
    pub(super) fn is_untouched(&self, pages: &Range<u64>) -> bool {
        self.table.overlapping(pages).is_empty()
    }
}

impl NaiveOs {
    /// Handles a fault on anonymous memory: maps at least the faulting page.
    pub(super) fn policy_fault(
        &mut self,
        process: u16,
        page: u64,
        range: Range<u64>,
        mapping: Mapping,
    ) {
        if let Some(rules) = self.policy.rules()
            && self.fault_by_reservation(rules, process, page, &range, &mapping)
        {
            return;
        }
        let mut has_missed = false;
        for order in self.policy.fault_orders() {
            let pages = 1 << order;
            let larger = page / pages * pages..(page / pages + 1) * pages;
            let fits = range.start <= larger.start && larger.end <= range.end;
            let is_untouched = self.processes[&process].is_untouched(&larger);
            if fits && mapping.wants_huge != Some(false) && is_untouched {
                if self.map_new(process, larger.start, order, mapping.rights) {
                    self.counters.bytes_mapped_untouched += (pages - 1) << 12;
                    return;
                }
                self.counters.fallbacks += u64::from(!has_missed);
                has_missed = true;
            }
        }
        assert!(self.map_new(process, page, 0, mapping.rights), "memory does not run out");
    }

    /// Called after a range has been mapped.
    pub(super) fn policy_mapped(&mut self, process: u16, pages: &Range<u64>, mapping: &Mapping) {
        // Earlier mappings of the range have given their memory back.
        self.drop_unused_objects();
        let Some(rules) = self.policy.rules() else { return };
        if matches!(mapping.source, Source::Object { .. }) {
            return;
        }
        self.claim(process, pages, mapping);
        if rules.when_mapped {
            self.reserve_range(rules, process, pages, mapping);
        }
    }

    /// Called before a range is unmapped or its frames are freed.
    pub(super) fn policy_unmapped(&mut self, process: u16, pages: &Range<u64>) {
        if self.policy.rules().is_some() {
            for (part, _) in self.processes[&process].mappings.within(pages) {
                self.end_reservations(process, &part);
            }
        }
    }

    /// Called before a process ends.
    pub(super) fn policy_ended(&mut self, process: u16) {
        self.end_reservations(process, &(0..u64::MAX));
    }

    /// Called before the pages of a range move.
    pub(super) fn policy_moving(&mut self, process: u16, pages: &Range<u64>) {
        self.policy_unmapped(process, pages);
    }
}
