//! The kept pages of one size: their depths among each other, and their times in windows, by group.

use octavo_types::PageSize;

use super::estimate::{Depths, Population};
use super::{GROUPS, PageSample, SampledSize};
use crate::stack::{MAX_PAGES, NO_ID, Order};
use crate::touches::{Rows, Run};
use crate::working_sets::Gaps;

/// The group of a page that has not been touched.
const NO_GROUP: u8 = u8::MAX;

/// One page size.
pub struct OneSize {
    sample: PageSample,
    page_size: PageSize,
    /// The index of the size among the sizes of the rows.
    number: usize,
    order: Order,
    /// The page touched last.
    newest: u32,
    /// The group of each page, by id.
    groups: Vec<u8>,
    /// The last reference to each page, by id, counted from 1; 0 for none.
    last: Vec<u64>,
    depths: Depths,
    /// Kept pages, by group.
    kept: [u64; GROUPS],
    /// The windows in ascending order, each once.
    windows: Vec<u64>,
    shortest_refs: u64,
    gaps: Vec<Gaps>,
    refs: u64,
}

impl OneSize {
    /// Empty counts at the size with index `number` among the rows' sizes.
    pub fn new(
        sample: PageSample,
        number: usize,
        page_size: PageSize,
        max_entries: u32,
        windows_refs: &[u64],
    ) -> Self {
        let mut windows = windows_refs.to_vec();
        windows.sort_unstable();
        windows.dedup();
        let capacity = match max_entries {
            0 => 0,
            _ => depths_wanted(sample.rate, max_entries),
        };
        OneSize {
            sample,
            page_size,
            number,
            order: Order::new(capacity),
            newest: NO_ID,
            groups: Vec::new(),
            last: Vec::new(),
            depths: Depths::new(capacity as usize),
            kept: [0; GROUPS],
            gaps: vec![Gaps::new(windows.len()); GROUPS],
            shortest_refs: windows.first().copied().unwrap_or(u64::MAX),
            windows,
            refs: 0,
        }
    }

    /// Makes room for all pages in `rows`.
    pub fn grow(&mut self, rows: &Rows) {
        let ids = rows.pages_of(self.number);
        self.order.grow(ids);
        self.groups.resize(ids as usize, NO_GROUP);
        self.last.resize(ids as usize, 0);
    }

    /// Processes a run whose page is kept at this size. [`OneSize::grow`] must have made room for it.
    #[inline(always)]
    pub fn process(&mut self, run: &Run, rows: &Rows) {
        let id = rows.id(run.row, self.number);
        let last = self.last[id as usize];
        if last == 0 {
            let page = rows.page(run.row).raw() >> self.page_size.base_shift();
            let group = self.sample.group(self.page_size, page);
            let group = group.expect("the run of a page that is kept");
            self.groups[id as usize] = group;
            self.kept[usize::from(group)] += 1;
        }
        self.last[id as usize] = run.last;
        if id != self.newest && !self.depths.is_empty() {
            self.look_up(id);
        }
        if last == 0 || run.first - last > self.shortest_refs {
            let mut shorter = self.windows.len();
            let gaps = &mut self.gaps[usize::from(self.groups[id as usize])];
            gaps.reference(last, run.first, &self.windows, &mut shorter);
        }
    }

    /// Looks up a page that is not the newest.
    #[inline(always)]
    fn look_up(&mut self, id: u32) {
        self.newest = id;
        let group = usize::from(self.groups[id as usize]);
        match self.order.slot(id) {
            Some(slot) => {
                self.depths.found(self.order.depth(slot), group);
                self.order.replace(slot, id);
            }
            None => {
                if !self.order.is_new(id) {
                    self.depths.deeper(group);
                }
                self.order.push(id);
            }
        }
    }

    /// Empties the TLBs.
    pub fn flush(&mut self) {
        self.order.clear();
        self.newest = NO_ID;
    }

    /// Completes the counts at the end of the program, which has made `refs` references.
    pub fn finish(&mut self, refs: u64) {
        self.refs = refs;
        if self.windows.is_empty() {
            return;
        }
        for (last, group) in self.last.iter().zip(&self.groups).filter(|(last, _)| **last > 0) {
            // Counts the last interval as if the page were referenced again.
            let mut shorter = self.windows.len();
            let gaps = &mut self.gaps[usize::from(*group)];
            gaps.reference(*last, refs + 1, &self.windows, &mut shorter);
        }
    }

    /// The result, for `pages` pages in all.
    pub fn result(&self, pages: u64, max_entries: u32, windows_refs: &[u64]) -> SampledSize {
        let population = Population::new(pages, self.kept);
        let window = |&refs: &u64| (refs, population.page_refs(&self.page_refs(refs), self.refs));
        SampledSize {
            page_size: self.page_size,
            pages,
            kept_pages: population.kept(),
            misses: self.depths.misses(&population, max_entries),
            working_sets: windows_refs.iter().map(window).collect(),
        }
    }

    /// The kept pages in a window, summed over all references, by group.
    pub fn page_refs(&self, window_refs: u64) -> [f64; GROUPS] {
        let window = self.windows.partition_point(|window| *window < window_refs);
        let page_refs = |gaps: &Gaps| gaps.page_refs(self.refs, window, window_refs);
        std::array::from_fn(|group| page_refs(&self.gaps[group]) as f64)
    }

    /// The counts, for tests.
    #[cfg(test)]
    pub fn counted(&self) -> (&Depths, &[u64; GROUPS]) {
        (&self.depths, &self.kept)
    }
}

/// Number of depths of a sample that cover `max_entries` entries: ten standard deviations above the expectation.
fn depths_wanted(rate: f64, max_entries: u32) -> u32 {
    let expected = rate * f64::from(max_entries);
    ((expected + 10.0 * expected.sqrt() + 16.0) as u32).min(MAX_PAGES)
}
