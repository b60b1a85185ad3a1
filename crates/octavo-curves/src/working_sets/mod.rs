//! Average working sets at every page size and for every window, exactly and in one pass.
//!
//! Time is counted in references of the whole program, including other streams, as in Denning, "The
//! working set model for program behavior", CACM 1968. So for one window, the working sets of fetches and
//! of data are subsets of the working set of both.
//!
//! Working sets depend on the gaps between a page's references that are longer than a window
//! ([`Gaps`]). So time is cut into *blocks* no longer than the shortest window: a page touched
//! before in the same block has no such gap, and most touches are of such base pages.
//!
//! A larger page's gap is never longer than that of a base page in it. So larger pages are processed only
//! at the first touch of a base page in a block, and only up to the first size whose page was touched
//! before in the block. A processed page is marked as touched in the block; at the end of the block its base
//! pages give the time of its last reference.

mod gaps;
#[cfg(test)]
mod tests;

use octavo_types::PageSize;

pub(crate) use self::gaps::Gaps;
use crate::sizes::Sizes;
use crate::touches::{Row, Rows, Run};

/// Maximum number of base pages in a block: the block ends after the first reference to the last one. This bounds the
/// work at the end of a batch. Tests use a small number to reach it.
const MOST_IN_USE: usize = if cfg!(test) { 24 } else { 256 };

/// An average working set: s(T, page size) of Talluri et al., "Tradeoffs in supporting two page
/// sizes", section 3.2, over every reference of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkingSet {
    /// The page size.
    pub page_size: PageSize,
    /// The window T.
    pub window_refs: u64,
    /// The stream's pages in the window, summed over all references of the program. Divided by the number of
    /// references and multiplied by the page size, it is the average in bytes.
    pub page_refs: u128,
}

/// The kernel for one stream.
pub struct WorkingSets {
    sizes: Sizes,
    windows_refs: Vec<u64>,
    /// The windows in ascending order, each once.
    windows: Vec<u64>,
    shortest_refs: u64,
    /// The references of the program, set by [`WorkingSets::finish`].
    refs: u64,
    base: Level,
    /// The larger of the sizes, ascending.
    larger: Vec<Level>,
    /// The index in `base.last` of the page of the last run; 0 before the first.
    current: usize,
    /// The first reference of the current block, counted from 1.
    start: u64,
    /// The first reference at which the next block may begin.
    end: u64,
    /// The base pages touched in the block, if there are larger pages to propagate their times to.
    in_block: Vec<Row>,
}

/// The pages of one size.
struct Level {
    page_size: PageSize,
    /// The index of the size among the sizes of the rows.
    number: usize,
    /// The last reference to each page, counted from 1; 0 for none. For base pages, the page of row *n* is at
    /// *n* + 1. For larger pages touched in the current block, it is any time in the block; a page is never
    /// earlier than the pages that it contains.
    last: Vec<u64>,
    gaps: Gaps,
}

impl WorkingSets {
    /// The state before the first reference. All windows must be at least 1.
    pub fn new(sizes: Sizes, windows_refs: Vec<u64>) -> Self {
        let mut windows = windows_refs.clone();
        windows.sort_unstable();
        windows.dedup();
        let level = |page_size| Level {
            page_size,
            number: 0,
            last: Vec::new(),
            gaps: Gaps::new(windows.len()),
        };
        WorkingSets {
            base: level(PageSize::BASE),
            larger: sizes.iter().filter(|size| *size > PageSize::BASE).map(level).collect(),
            sizes,
            windows_refs,
            shortest_refs: windows.first().copied().unwrap_or(u64::MAX),
            windows,
            refs: 0,
            current: 0,
            start: 0,
            end: 0,
            in_block: Vec::with_capacity(MOST_IN_USE + 1),
        }
    }

    /// Completes the counts at the end of the program, which has made `refs` references.
    pub fn finish(&mut self, refs: u64) {
        self.refs = refs;
        for level in self.larger.iter_mut().chain([&mut self.base]) {
            let skipped = usize::from(level.page_size == PageSize::BASE);
            for last in level.last.iter().skip(skipped).filter(|last| **last > 0) {
                // Counts the last gap as if the page were referenced again.
                let mut shorter = self.windows.len();
                level.gaps.reference(*last, refs + 1, &self.windows, &mut shorter);
            }
        }
    }

    /// The result of each size and window. [`WorkingSets::finish`] must have been called.
    pub fn results(&self) -> Vec<WorkingSet> {
        let all = self.sizes.iter().flat_map(|page_size| {
            let mut levels = self.larger.iter().chain([&self.base]);
            let level = levels.find(|level| level.page_size == page_size);
            self.windows_refs.iter().map(move |&window_refs| {
                let window = self.windows.partition_point(|window| *window < window_refs);
                let gaps = level.map(|level| &level.gaps);
                let page_refs =
                    gaps.map_or(0, |gaps| gaps.page_refs(self.refs, window, window_refs));
                WorkingSet { page_size, window_refs, page_refs }
            })
        });
        all.collect()
    }
}

impl WorkingSets {
    /// The longest gap between references to a page that may be ignored.
    pub fn longest_gap_refs(&self) -> u64 {
        self.shortest_refs
    }

    /// Processes the next runs, whose gaps are at most [`WorkingSets::longest_gap_refs`].
    pub fn process(&mut self, runs: &[Run], rows: &Rows) {
        self.make_room(rows);
        for run in runs {
            if run.first >= self.end {
                self.begin_block(run.first, rows);
            }
            self.current = run.row.index() + 1;
            let last = self.base.last[self.current];
            if last < self.start {
                self.enter(run.row, last, run.first, rows);
            }
            self.base.last[self.current] = run.last;
        }
        // The stream may end here.
        self.propagate_all(rows);
    }
}

impl WorkingSets {
    fn make_room(&mut self, rows: &Rows) {
        self.base.last.resize(rows.len() + 1, 0);
        for level in &mut self.larger {
            let number = rows.sizes().iter().position(|size| size == level.page_size);
            level.number = number.expect("rows have ids at every size asked for");
            level.last.resize(rows.pages_of(level.number) as usize, 0);
        }
    }

    /// Processes the first touch of a base page in the block.
    #[inline(never)]
    fn enter(&mut self, row: Row, last: u64, now: u64, rows: &Rows) {
        let WorkingSets { base, larger, windows, start, .. } = self;
        // The number of windows shorter than the gap, which can only decrease at larger sizes.
        let mut shorter = 0;
        if last == 0 || now - last > self.shortest_refs {
            shorter = windows.len();
            base.gaps.reference(last, now, windows, &mut shorter);
        }
        if larger.is_empty() {
            return;
        }
        let ids = rows.ids(row).as_flattened();
        for level in larger {
            let last = &mut level.last[ids[level.number] as usize];
            if *last >= *start {
                // Touched in the block, as are all larger pages.
                break;
            }
            if shorter > 0 {
                level.gaps.reference(*last, now, windows, &mut shorter);
            }
            *last = *start;
        }
        self.in_block.push(row);
        if self.in_block.len() >= MOST_IN_USE {
            // Not before the end of this reference: a reference that spans two pages has a run for each, and a block
            // that began with the second run would miss the first page.
            self.end = now + 1;
        }
    }

    /// Ends the block, and begins another one with the reference `now`.
    #[inline(never)]
    fn begin_block(&mut self, now: u64, rows: &Rows) {
        self.propagate_all(rows);
        self.in_block.clear();
        self.start = now;
        self.end = now.saturating_add(self.shortest_refs);
        // The run before may end with the reference that begins the block.
        if let Some(row) = self.current.checked_sub(1).filter(|row| self.base.last[row + 1] == now)
            && !self.larger.is_empty()
        {
            self.in_block.push(Row(row as u32));
        }
    }

    /// Sets the times of the last references in the block to larger pages.
    fn propagate_all(&mut self, rows: &Rows) {
        for row in &self.in_block {
            propagate(*row, self.base.last[row.index() + 1], &mut self.larger, rows);
        }
    }
}

/// Sets the time of the last reference to the pages that contain a base page.
#[inline(always)]
fn propagate(row: Row, base: u64, larger: &mut [Level], rows: &Rows) {
    let ids = rows.ids(row).as_flattened();
    for level in larger {
        let last = &mut level.last[ids[level.number] as usize];
        if *last >= base {
            // All larger pages have a time at least as late.
            break;
        }
        *last = base;
    }
}
