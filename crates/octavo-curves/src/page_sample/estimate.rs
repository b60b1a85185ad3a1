//! Estimates of totals over all pages from the counts of kept pages, with their errors.
//!
//! The kept pages are a simple random sample without replacement. The theory of such samples gives
//! two sources of error:
//!
//! - *Which pages*: a total is the mean over kept pages times the number of all pages. Its variance
//!   is estimated from the spread of groups of pages (random groups; Wolter, "Introduction to variance
//!   estimation", 2007, chapter 2), with the correction for a finite population.
//! - *Depth*: for a page at depth *d*, the number of kept pages above it is hypergeometric (*n* kept
//!   pages among *N*). Groups that touch the same pages, as in a loop, share this error, so that their
//!   spread does not show it. But misses fall as entries grow. So the interval reaches from the misses
//!   at a depth that is some standard deviations larger to the misses at a depth as much smaller.
//!
//! The two errors are independent, so that their squares add up.

use super::GROUPS;

/// Standard errors to either side, so that 95% of intervals hold the true value: from Student's
/// distribution with [`GROUPS`] - 1 degrees of freedom.
const ERRORS: f64 = 2.04;
/// With fewer kept pages, there is no estimate.
const LEAST_PAGES: u64 = 30;
/// A TLB or window that holds fewer kept pages than this, on average, has no estimate.
const LEAST_HELD: f64 = 5.0;
/// Added to the squared deviations as if two kept pages deviated, since other pages may deviate even if no
/// kept page does. Together with [`ERRORS`] about the rule of three (Hanley and Lippman-Hand, "If nothing
/// goes wrong, is everything all right?", 1983).
const UNSEEN_SQUARES: f64 = 2.0;
/// An estimate whose interval is wider than this many times its value is dropped.
const MOST_WIDTH: f64 = 2.0;

/// An estimate from a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The most likely value.
    pub value: f64,
    /// The lower end of the 95% interval.
    pub low: f64,
    /// The upper end of the 95% interval.
    pub high: f64,
}

impl Estimate {
    /// The estimate, unless its interval is too wide to be useful.
    fn if_narrow(self) -> Option<Self> {
        (self.high - self.low <= MOST_WIDTH * self.value).then_some(self)
    }

    fn exactly(value: f64) -> Self {
        Estimate { value, low: value, high: value }
    }
}

/// The number of all pages, and of kept pages by group.
pub struct Population {
    pages: u64,
    kept: [u64; GROUPS],
}

impl Population {
    /// A population of `pages` pages. `kept` is the number of kept pages by group.
    pub fn new(pages: u64, kept: [u64; GROUPS]) -> Self {
        Population { pages, kept }
    }

    /// Number of kept pages.
    pub fn kept(&self) -> u64 {
        self.kept.iter().sum()
    }

    fn is_whole(&self) -> bool {
        self.kept() == self.pages
    }

    fn is_enough(&self) -> bool {
        self.is_whole() || self.kept() >= LEAST_PAGES
    }

    /// Estimates a sum over all pages from the sums over kept pages by group. Returns it with its standard error.
    fn scaled(&self, sums: &[f64; GROUPS]) -> (f64, f64) {
        let (pages, kept) = (self.pages as f64, self.kept() as f64);
        let sum: f64 = sums.iter().sum();
        if self.is_whole() {
            return (sum, 0.0);
        }
        let mean = sum / kept;
        let square = |(sum, kept): (&f64, &u64)| (sum - *kept as f64 * mean).powi(2);
        let squares: f64 = sums.iter().zip(&self.kept).map(square).sum();
        // The sum of squared deviations of pages from the mean; groups and pages each have one
        // degree of freedom less than their number.
        let groups = GROUPS as f64;
        let squares = squares * groups / (groups - 1.0) * kept / (kept - 1.0) + UNSEEN_SQUARES;
        (pages * mean, pages / kept * (squares * (1.0 - kept / pages)).sqrt())
    }

    /// Estimates the pages in a window, summed over all `refs` references, from the sums over kept pages by group.
    pub fn page_refs(&self, sums: &[f64; GROUPS], refs: u64) -> Option<Estimate> {
        let sum: f64 = sums.iter().sum();
        let holds_enough = self.is_whole() || sum >= LEAST_HELD * refs as f64;
        if !self.is_enough() || !holds_enough {
            return None;
        }
        let (value, error) = self.scaled(sums);
        let low = (value - ERRORS * error).max(sum);
        Estimate { value, low, high: value + ERRORS * error }.if_narrow()
    }

    /// Converts a depth among all pages to a depth among kept pages. Returns it with the standard deviation of
    /// the number of kept pages above that depth.
    fn depth(&self, deep: f64) -> (f64, f64) {
        // If all depths among all pages are equally likely, so are all depths among the kept pages.
        let depth = deep * self.kept() as f64 / self.pages as f64;
        // The page itself is known to be kept.
        let (others, drawn) = (self.pages as f64 - 1.0, self.kept() as f64 - 1.0);
        let share = deep / others;
        let rest = (others - drawn) / (others - 1.0).max(1.0);
        let variance = drawn * share * (1.0 - share).max(0.0) * rest;
        (if self.is_whole() { deep } else { depth }, variance.sqrt())
    }
}

/// Counts of touches by depth: the number of kept pages touched since, the page itself included.
#[derive(Clone, PartialEq, Debug)]
pub struct Depths {
    /// Touches by depth less one, and by group.
    found: Vec<[u64; GROUPS]>,
    /// Repeated touches of pages that lay deeper than `found` reaches.
    deeper: [u64; GROUPS],
}

impl Depths {
    /// No counts; depths from 1 to `depths` are distinguished.
    pub fn new(depths: usize) -> Self {
        Depths { found: vec![[0; GROUPS]; depths], deeper: [0; GROUPS] }
    }

    /// Number of distinguished depths.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether no depths are distinguished at all.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Counts a touch of a page of a group at `depth`: 1 is the page touched last.
    #[inline(always)]
    pub fn found(&mut self, depth: u32, group: usize) {
        self.found[depth as usize - 1][group] += 1;
    }

    /// Counts a repeated touch of a page of a group that lies deeper than all distinguished depths.
    #[inline(always)]
    pub fn deeper(&mut self, group: usize) {
        self.deeper[group] += 1;
    }

    /// The misses of TLBs with 1 to `max_entries` entries.
    pub fn misses(&self, population: &Population, max_entries: u32) -> Vec<Option<Estimate>> {
        let mut beyond = vec![[0.0; GROUPS]; self.found.len() + 1];
        for (group, (deeper, kept)) in self.deeper.iter().zip(&population.kept).enumerate() {
            // The first touch of a page is a miss of every TLB.
            let mut sum = deeper + kept;
            beyond[self.found.len()][group] = sum as f64;
            for (beyond, found) in beyond.iter_mut().zip(&self.found).rev() {
                sum += found[group];
                beyond[group] = sum as f64;
            }
        }
        (1..=max_entries).map(|entries| misses(&beyond, population, entries)).collect()
    }
}

/// Estimates the misses of a TLB. `beyond` is the number of look-ups of kept pages at more than a depth, by depth and
/// group.
fn misses(beyond: &[[f64; GROUPS]], population: &Population, entries: u32) -> Option<Estimate> {
    if population.pages <= u64::from(entries) {
        return Some(Estimate::exactly(population.pages as f64));
    }
    let (depth, deviation) = population.depth(f64::from(entries));
    if !population.is_enough() || (!population.is_whole() && depth < LEAST_HELD) {
        return None;
    }
    // Depths less than one kept page apart are indistinguishable in a sample.
    let margin = if population.is_whole() { 0.0 } else { (ERRORS * deviation).max(1.0) };
    let at = |depth: f64| population.scaled(&between(beyond, depth));
    let (value, error) = at(depth);
    let (least, _) = at(depth + margin);
    let (most, most_error) = at(depth - margin);
    let low = value - (value - least).hypot(ERRORS * error);
    let high = value + (most - value).hypot(ERRORS * error.max(most_error));
    // Every page misses at least once, and the number of all pages is exact.
    Estimate { value, low: low.max(population.pages as f64), high }.if_narrow()
}

/// Interpolates linearly at a fractional depth.
fn between(beyond: &[[f64; GROUPS]], depth: f64) -> [f64; GROUPS] {
    let last = beyond.len() - 1;
    let depth = depth.clamp(0.0, last as f64);
    let (at, part) = (depth as usize, depth.fract());
    let next = &beyond[(at + 1).min(last)];
    std::array::from_fn(|group| beyond[at][group] + part * (next[group] - beyond[at][group]))
}
