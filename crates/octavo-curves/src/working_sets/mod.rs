//! Average working sets at every page size and for every window, exactly and in one pass.
//!
//! Time is counted in references of the whole program, those of other streams included, as in
//! Denning, "The working set model for program behavior", CACM 1968. So the working sets of fetches
//! and of data, with one window, are parts of that of both.
//!
//! Working sets depend on the gaps between a page's references that are longer than a window
//! ([`Gaps`]). So time is cut into *blocks* no longer than the shortest window: a page touched
//! before in the same block has no such gap, and most touches are of base pages that were.
//!
//! A larger page's gap is never longer than that of a base page in it. So larger pages are looked
//! at only when a base page is touched for the first time in a block, and only as far up as none was
//! touched in the block before. Such a page is marked as touched in the block; at the block's end its
//! base pages give the time of its last reference.

mod gaps;
#[cfg(test)]
mod tests;

use octavo_types::PageSize;

pub(crate) use self::gaps::Gaps;
use crate::sizes::Sizes;
use crate::touches::{Row, Rows, Run};

/// So many base pages end a block once the reference to the last of them is over, to bound the work at the end of a
/// batch.
/// Tests reach it.
const MOST_IN_USE: usize = if cfg!(test) { 24 } else { 256 };

/// An average working set: s(T, page size) of Talluri et al., "Tradeoffs in supporting two page
/// sizes", section 3.2, over every reference of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkingSet {
    /// The page size.
    pub page_size: PageSize,
    /// The window T.
    pub window_refs: u64,
    /// The stream's pages in the window, summed over all references of the program: divided by these
    /// and times the page size it is the average in bytes.
    pub page_refs: u128,
}

/// The kernel for one stream.
pub struct WorkingSets {
    sizes: Sizes,
    windows_refs: Vec<u64>,
    /// The windows in ascending order, each once.
    windows: Vec<u64>,
    shortest_refs: u64,
    /// How many references the program had, once it is finished.
    refs: u64,
    base: Level,
    /// The larger of the sizes, ascending.
    larger: Vec<Level>,
    /// The page of the last run, as `base.last` has it; 0 before the first.
    current: usize,
    /// When the block began (counted from 1), and when the next one may begin.
    start: u64,
    end: u64,
    /// The base pages touched in it, if there are larger pages to propagate their times to.
    in_block: Vec<Row>,
}

/// The pages of one size.
struct Level {
    page_size: PageSize,
    /// Which of the rows' sizes it is.
    number: usize,
    /// When each page was last referenced, counted from 1; 0 for never. Base pages: the page of
    /// row *n* at *n* + 1. Larger pages: if they were touched in the block, any time in it; a page
    /// that holds another is never earlier than it.
    last: Vec<u64>,
    gaps: Gaps,
}

impl WorkingSets {
    /// All of `sizes` with all of `windows_refs`, each at least 1.
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

    /// The program is over; it had `refs` references.
    pub fn finish(&mut self, refs: u64) {
        self.refs = refs;
        for level in self.larger.iter_mut().chain([&mut self.base]) {
            let skipped = usize::from(level.page_size == PageSize::BASE);
            for last in level.last.iter().skip(skipped).filter(|last| **last > 0) {
                // As if the page were referenced again.
                let mut shorter = self.windows.len();
                level.gaps.reference(*last, refs + 1, &self.windows, &mut shorter);
            }
        }
    }

    /// One for each size and window, once it is finished.
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
    /// The longest gap that may be left out of account between references to a page.
    pub fn longest_gap_refs(&self) -> u64 {
        self.shortest_refs
    }

    /// Takes the next runs, with no longer gaps in them than [`WorkingSets::longest_gap_refs`].
    pub fn take(&mut self, runs: &[Run], rows: &Rows) {
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

    /// A base page is touched for the first time in the block.
    #[inline(never)]
    fn enter(&mut self, row: Row, last: u64, now: u64, rows: &Rows) {
        let WorkingSets { base, larger, windows, start, .. } = self;
        // How many windows are shorter than the gap, which at larger sizes can only be shorter.
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
                // Touched in the block, and so it is at every larger size.
                break;
            }
            if shorter > 0 {
                level.gaps.reference(*last, now, windows, &mut shorter);
            }
            *last = *start;
        }
        self.in_block.push(row);
        if self.in_block.len() >= MOST_IN_USE {
            // Not before this reference is over. One that lies in two pages has a run for each, and a block that began
            // with the second run would leave the first page out.
            self.end = now + 1;
        }
    }

    /// A block ends, and another one begins with the reference `now`.
    #[inline(never)]
    fn begin_block(&mut self, now: u64, rows: &Rows) {
        self.propagate_all(rows);
        self.in_block.clear();
        self.start = now;
        self.end = now.saturating_add(self.shortest_refs);
        // The run before may end with the very reference that begins the block.
        if let Some(row) = self.current.checked_sub(1).filter(|row| self.base.last[row + 1] == now)
            && !self.larger.is_empty()
        {
            self.in_block.push(Row(row as u32));
        }
    }

    /// Gives larger pages the times of their last references in the block so far.
    fn propagate_all(&mut self, rows: &Rows) {
        for row in &self.in_block {
            propagate(*row, self.base.last[row.index() + 1], &mut self.larger, rows);
        }
    }
}

/// Gives the pages that hold a base page the time of its last reference.
#[inline(always)]
fn propagate(row: Row, base: u64, larger: &mut [Level], rows: &Rows) {
    let ids = rows.ids(row).as_flattened();
    for level in larger {
        let last = &mut level.last[ids[level.number] as usize];
        if *last >= base {
            // So it is at every larger size.
            break;
        }
        *last = base;
    }
}
