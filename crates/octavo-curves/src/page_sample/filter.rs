//! Selects the runs of kept pages and drops all others.

use super::PageSample;
use crate::classes::first_touch;
use crate::sizes::Sizes;
use crate::touches::{Row, Rows, Run};

/// Marks a row that this stream has not touched. There are fewer page sizes than lower bits.
const UNSEEN: u32 = 1 << 31;

/// A run of a page that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    pub run: Run,
    /// One bit for the index of each size at which it is kept.
    pub sizes: u32,
}

/// Drops the runs of pages that are kept at no size.
pub struct Filter {
    sample: PageSample,
    /// The sizes at which each row is kept, one bit each; or [`UNSEEN`].
    kept: Vec<u32>,
    /// A bitmap of the page ids that this stream has touched, by size.
    touched: Vec<Vec<u64>>,
    /// Number of pages that this stream has touched, by size.
    pages: Vec<u64>,
    runs: Vec<Kept>,
}

impl Filter {
    /// A filter without pages.
    pub fn new(sample: PageSample, sizes: &Sizes) -> Self {
        Filter {
            sample,
            kept: Vec::new(),
            touched: vec![Vec::new(); sizes.len()],
            pages: vec![0; sizes.len()],
            runs: Vec::new(),
        }
    }

    /// Number of distinct pages, by size.
    pub fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// Returns the runs whose pages are kept.
    pub fn kept_runs(&mut self, runs: &[Run], rows: &Rows) -> &[Kept] {
        self.kept.resize(rows.len(), UNSEEN);
        self.runs.clear();
        for run in runs {
            let mut sizes = self.kept[run.row.index()];
            if sizes == UNSEEN {
                sizes = self.first(run.row, rows);
            }
            if sizes != 0 {
                self.runs.push(Kept { run: *run, sizes });
            }
        }
        &self.runs
    }

    /// Records the first touch of a row. Returns the sizes at which it is kept.
    #[cold]
    #[inline(never)]
    fn first(&mut self, row: Row, rows: &Rows) -> u32 {
        let mut sizes = 0;
        for (number, page_size) in rows.sizes().iter().enumerate() {
            let page = rows.page(row).raw() >> page_size.base_shift();
            sizes |= u32::from(self.sample.group(page_size, page).is_some()) << number;
            let is_new = first_touch(&mut self.touched[number], rows.id(row, number));
            self.pages[number] += u64::from(is_new);
        }
        self.kept[row.index()] = sizes;
        sizes
    }
}
