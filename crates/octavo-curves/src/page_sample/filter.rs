//! What is left of touches where only some pages are kept: the one place where the others are
//! dropped.

use super::PageSample;
use crate::classes::first_touch;
use crate::sizes::Sizes;
use crate::touches::{Row, Rows, Touches};

/// This stream has not touched the row; above all page sizes, of which there are fewer.
const UNSEEN: u32 = 1 << 31;

/// References, one after the other, to a base page that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The page.
    pub row: Row,
    /// The numbers of the sizes at which it is kept, as bits.
    pub sizes: u32,
    /// The first of the references, and the last: the stream's first one is 1.
    pub first: u64,
    pub last: u64,
}

/// Drops the touches of pages that are kept at no size.
pub struct Filter {
    sample: PageSample,
    /// By row, at which sizes it is kept, as bits; or [`UNSEEN`].
    kept: Vec<u32>,
    /// By size, which pages this stream has touched, and how many.
    touched: Vec<Vec<u64>>,
    pages: Vec<u64>,
    /// The run at hand, if its page is kept; its end is not known yet. A run that goes on in the next
    /// batch comes in parts.
    current: Option<Run>,
    runs: Vec<Run>,
}

impl Filter {
    /// Nothing has been touched.
    pub fn new(sample: PageSample, sizes: &Sizes) -> Self {
        Filter {
            sample,
            kept: Vec::new(),
            touched: vec![Vec::new(); sizes.len()],
            pages: vec![0; sizes.len()],
            current: None,
            runs: Vec::new(),
        }
    }

    /// By size, how many distinct pages there were.
    pub fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// The run at hand ends where the last batch did; one of its page that follows is another.
    pub fn forget(&mut self) {
        self.current = None;
    }

    /// The runs of a batch.
    pub fn take(&mut self, batch: &Touches, rows: &Rows) -> &[Run] {
        self.kept.resize(rows.len(), UNSEEN);
        self.runs.clear();
        let start = batch.start_refs + 1;
        for touch in &batch.touches {
            if let Some(run) = self.current.take() {
                let last = start.wrapping_add_signed(touch.left_refs());
                self.runs.push(Run { last, ..run });
            }
            let row = touch.row();
            let mut sizes = self.kept[row.index()];
            if sizes == 0 {
                continue;
            }
            if sizes == UNSEEN {
                sizes = self.first(row, rows);
            }
            if sizes != 0 {
                let first = start + u64::from(touch.at_refs());
                self.current = Some(Run { row, sizes, first, last: first });
            }
        }
        if let Some(run) = &mut self.current {
            self.runs.push(Run { last: batch.end_refs, ..*run });
            run.first = batch.end_refs;
        }
        &self.runs
    }

    /// The stream touches a row for the first time.
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
