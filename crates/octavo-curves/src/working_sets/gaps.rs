//! The gaps between a page's references, summed by their lengths.

/// The gaps of all pages of one size.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// Pages referenced at all.
    pages: u64,
    /// The number of references before each page's first one, added up.
    before_first_refs: u128,
    /// How many gaps there were that so many of the windows are shorter than, and their sum.
    by_windows: Vec<(u64, u128)>,
}

impl Gaps {
    /// No gaps, for so many windows.
    pub fn new(windows: usize) -> Self {
        Gaps { pages: 0, before_first_refs: 0, by_windows: vec![(0, 0); windows + 1] }
    }

    /// A page is referenced at `now`, and was last at `last`, both counted from 1; 0 is never. At
    /// most `shorter` of the windows, which are in ascending order, are shorter than the gap;
    /// `shorter` is set to their exact number.
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
        // Gaps that are longer than no window need no count, but a branch would cost as much.
        let (count, sum) = &mut self.by_windows[*shorter];
        *count += 1;
        *sum += u128::from(gap);
    }

    /// The pages in the window, summed over all of the stream's `refs` references; `window` is the
    /// number of the window among those in ascending order.
    ///
    /// A page is in the windows of the min(gap, T) references from each of its own on, the gap
    /// after its last one being the way to the stream's end. As its gaps add up to all references
    /// from its first one on, only what the long ones have beyond T is to be taken off.
    pub fn page_refs(&self, refs: u64, window: usize, window_refs: u64) -> u128 {
        let present = u128::from(self.pages) * u128::from(refs) - self.before_first_refs;
        let longer = &self.by_windows[window + 1..];
        let beyond =
            longer.iter().map(|(count, sum)| sum - u128::from(*count) * u128::from(window_refs));
        present - beyond.sum::<u128>()
    }
}
