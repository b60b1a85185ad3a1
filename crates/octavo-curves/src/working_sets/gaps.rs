//! The gaps between a page's references, summed by their lengths.

/// The gaps of all pages of one size.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// Referenced pages.
    pages: u64,
    /// The references before the first one to each page, summed over pages.
    before_first_refs: u128,
    /// The number of gaps and their sum, by the number of windows that are shorter.
    by_windows: Vec<(u64, u128)>,
}

impl Gaps {
    /// No gaps, for this number of windows.
    pub fn new(windows: usize) -> Self {
        Gaps { pages: 0, before_first_refs: 0, by_windows: vec![(0, 0); windows + 1] }
    }

    /// Adds a reference to a page at `now`, after its last reference at `last`, both counted from 1; 0 is never. At
    /// most `shorter` of the windows, which are in ascending order, are shorter than the gap. Sets `shorter` to
    /// their exact number.
    #[inline(always)]
    pub fn reference(&mut self, last: u64, now: u64, windows: &[u64], shorter: &mut usize) {
        if last == 0 {
            self.pages += 1;
            self.before_first_refs += u128::from(now - 1);
            return;
        }
        let gap = now - last;
        while *shorter > 0 && windows[*shorter - 1] >= gap {
            *shorter -= 1;
        }
        // Gaps that are not longer than any window need no count, but a branch would cost as much.
        let (count, sum) = &mut self.by_windows[*shorter];
        *count += 1;
        *sum += u128::from(gap);
    }

    /// The pages in the window, summed over all `refs` references; `window` is the index of the window among the
    /// windows in ascending order.
    ///
    /// From each of its references on, a page is in the windows of min(gap, T) references, where the last gap
    /// ends with the stream. Since the gaps of a page sum to all references from its first one on, only the
    /// excess of long gaps over T must be subtracted.
    pub fn page_refs(&self, refs: u64, window: usize, window_refs: u64) -> u128 {
        let present = u128::from(self.pages) * u128::from(refs) - self.before_first_refs;
        let longer = &self.by_windows[window + 1..];
        let beyond =
            longer.iter().map(|(count, sum)| sum - u128::from(*count) * u128::from(window_refs));
        present - beyond.sum::<u128>()
    }
}
