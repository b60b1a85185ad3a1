//! Curves from a sample of the pages, with their errors (Waldspurger et al., "Efficient MRC
//! construction with SHARDS", FAST 2015).
//!
//! At each page size a hash of the page's number decides whether it is kept, so that all touches of
//! a kept page are seen. A depth among kept pages, divided by the sampling rate, estimates the depth
//! among all pages. The misses of kept pages, scaled in the same way, estimate the misses of all pages,
//! for every number of entries at a fraction of the work. A working set is a sum over pages, which the
//! kept pages sample, too.
//!
//! All pages are counted, kept or not, so that [`estimate`] uses the actual rate of the sample instead
//! of the requested one.

mod estimate;
mod filter;
mod one_size;
#[cfg(test)]
mod tests;

use octavo_types::PageSize;

use crate::sizes::Sizes;
use crate::touches::{Rows, Run};
use filter::Filter;
use octavo_trace::splitmix;
use one_size::OneSize;

pub use estimate::Estimate;

/// Number of groups of kept pages, whose spread gives the error; a power of two.
pub const GROUPS: usize = 32;

/// The selection of pages that are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageSample {
    /// The probability that a page is kept, from [`PageSample::MIN_RATE`] to 1.
    pub rate: f64,
    /// The seed of the hash that selects the pages.
    pub seed: u64,
}

impl PageSample {
    /// At this rate a TLB of 4096 entries has one kept page.
    pub const MIN_RATE: f64 = 1.0 / 4096.0;

    /// The group of a page, by its number at its size; `None` if it is not kept.
    fn group(&self, page_size: PageSize, number: u64) -> Option<u8> {
        let key = splitmix(self.seed ^ splitmix(u64::from(page_size.log2())));
        let hash = splitmix(number ^ key);
        // Every product with a power of two is exact; with a rate of 1 all are kept.
        let kept = u128::from(hash) < (self.rate * 2f64.powi(64)) as u128;
        kept.then_some((hash % GROUPS as u64) as u8)
    }
}

/// The estimates from a sample of one stream at one page size.
#[derive(Clone, PartialEq, Debug)]
pub struct SampledSize {
    /// The page size.
    pub page_size: PageSize,
    /// Distinct pages, kept or not: an exact count.
    pub pages: u64,
    /// Pages that were kept.
    pub kept_pages: u64,
    /// Misses of fully associative TLBs with *n* entries, at index *n* - 1; `None` if the sample is
    /// too small.
    pub misses: Vec<Option<Estimate>>,
    /// Each window with its [`crate::WorkingSet::page_refs`]; `None` if the sample is too small.
    pub working_sets: Vec<(u64, Option<Estimate>)>,
}

/// The sampled pages of one stream, at all sizes.
pub struct SampledPages {
    filter: Filter,
    max_entries: u32,
    windows_refs: Vec<u64>,
    sizes: Vec<OneSize>,
}

impl SampledPages {
    /// Samples fully associative TLBs with 1 to `max_entries` entries (0 for no TLBs), and working sets with
    /// `windows_refs`, at each of `sizes`.
    pub fn new(sample: PageSample, sizes: &Sizes, max_entries: u32, windows_refs: &[u64]) -> Self {
        let one = |(number, page_size)| {
            OneSize::new(sample, number, page_size, max_entries, windows_refs)
        };
        SampledPages {
            filter: Filter::new(sample, sizes),
            max_entries,
            windows_refs: windows_refs.to_vec(),
            sizes: sizes.iter().enumerate().map(one).collect(),
        }
    }

    /// Completes the counts at the end of the program, which has made `refs` references.
    pub fn finish(&mut self, refs: u64) {
        self.sizes.iter_mut().for_each(|size| size.finish(refs));
    }

    /// The results at each size. [`SampledPages::finish`] must have been called.
    pub fn results(&self) -> Vec<SampledSize> {
        let sizes = self.sizes.iter().zip(self.filter.pages());
        sizes
            .map(|(size, pages)| size.result(*pages, self.max_entries, &self.windows_refs))
            .collect()
    }
}

impl SampledPages {
    /// The longest gap between references to a page that may be ignored.
    pub fn longest_gap_refs(&self) -> u64 {
        self.windows_refs.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Processes the next runs, whose gaps are at most [`SampledPages::longest_gap_refs`].
    pub fn process(&mut self, runs: &[Run], rows: &Rows) {
        let kept = self.filter.kept_runs(runs, rows);
        self.sizes.iter_mut().for_each(|size| size.grow(rows));
        for kept in kept {
            // Most pages are kept at one or two sizes.
            let mut sizes = kept.sizes;
            while sizes != 0 {
                self.sizes[sizes.trailing_zeros() as usize].process(&kept.run, rows);
                sizes &= sizes - 1;
            }
        }
    }

    /// Empties the TLBs.
    pub fn flush(&mut self) {
        self.sizes.iter_mut().for_each(OneSize::flush);
    }
}
