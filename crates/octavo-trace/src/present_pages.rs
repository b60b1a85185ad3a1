//! The memory that a process is known to have had before its counted executions.

use std::ops::Range;

use octavo_types::{AddrRange, Event, PageSize};
use rangemap::RangeSet;

/// `MADV_DONTNEED`, `MADV_FREE` and `MADV_REMOVE` of `madvise(2)`.
const GIVE_BACK: [u64; 3] = [4, 8, 9];

/// The base pages that events have named as present, without those that are mapped again or given
/// back since. Whenever counting begins, events name all memory of a process again.
#[derive(Clone, Default)]
pub struct PresentPages(RangeSet<u64>);

impl PresentPages {
    /// Adds base pages. Returns the pages that it did not have, in order.
    pub fn add(&mut self, pages: Range<u64>) -> Vec<Range<u64>> {
        let new = self.missing(&pages);
        if !new.is_empty() {
            self.0.insert(pages);
        }
        new
    }

    /// The base pages of a range that it does not have, in order.
    pub fn missing(&self, pages: &Range<u64>) -> Vec<Range<u64>> {
        if pages.is_empty() {
            return Vec::new();
        }
        let (mut missing, mut at) = (Vec::new(), pages.start);
        for held in self.0.overlapping(pages) {
            missing.push(at..held.start);
            at = held.end;
        }
        missing.push(at..pages.end);
        missing.retain(|part| part.start < part.end);
        missing
    }

    /// Removes the memory that an event maps, unmaps, moves or gives back.
    pub fn event(&mut self, event: &Event) {
        let ranges: &[&AddrRange] = match event {
            Event::Map { range, .. } | Event::Unmap { range } => &[range],
            Event::Advise { range, advice } if GIVE_BACK.contains(advice) => &[range],
            Event::Remap { from, to } => &[from, to],
            _ => &[],
        };
        for range in ranges {
            let wide = range.widened_to(PageSize::BASE);
            let [start, end] = [wide.start(), wide.end()].map(|at| at.page(PageSize::BASE).raw());
            self.remove(start..end);
        }
    }

    /// Removes base pages.
    pub fn remove(&mut self, pages: Range<u64>) {
        if pages.start < pages.end {
            self.0.remove(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use octavo_oracle::cases;
    use octavo_types::{MapSource, Protection, VirtAddr};
    use proptest::prelude::*;

    use super::*;

    const PAGES: u64 = 40;

    fn event(kind: u64, pages: Range<u64>, to: u64) -> Event {
        let range_of = |pages: Range<u64>| {
            AddrRange::new(VirtAddr::new(pages.start << 12), (pages.end - pages.start) << 12)
        };
        let range = range_of(pages.clone());
        let (protection, source) = (Protection::from_bits(3), MapSource::Anonymous);
        match kind {
            0 => Event::Map { range, protection, source, flags: 0 },
            1 => Event::Unmap { range },
            2 => Event::Remap { from: range, to: range_of(to..to + (pages.end - pages.start)) },
            3 => Event::Protect { range, protection },
            advice => Event::Advise { range, advice },
        }
    }

    proptest! {
        #![proptest_config(cases(200))]

        #[test]
        fn new_pages_are_those_that_a_set_of_pages_lacks(
            steps in prop::collection::vec((0u64..16, 0..PAGES, 0..PAGES, 0..PAGES), 1..40),
        ) {
            let (mut present, mut naive) = (PresentPages::default(), BTreeSet::new());
            for (kind, one, other, to) in steps {
                let pages = one.min(other)..one.max(other);
                if kind > 9 {
                    let new: Vec<u64> = pages.clone().filter(|page| naive.insert(*page)).collect();
                    let found: Vec<u64> = present.add(pages).into_iter().flatten().collect();
                    prop_assert_eq!(found, new);
                    continue;
                }
                present.event(&event(kind, pages.clone(), to));
                if [0, 1, 2, 4, 8, 9].contains(&kind) {
                    naive.retain(|page| !pages.contains(page));
                }
                if kind == 2 {
                    naive.retain(|page| !(to..to + (pages.end - pages.start)).contains(page));
                }
            }
        }
    }
}
