//! Sequences of page uses. Alternations between two pages, which are most uses of a program, are counted
//! instead of looked up.

use super::page::Page;

/// The use of a page, and then uses of the previous page and this one in alternation.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The page.
    pub page: Page,
    /// The previous page; meaningless in the first step.
    pub before: Page,
    /// Number of uses in alternation, beginning with the previous page. 0 in the first step.
    pub alternations: u32,
}

impl Step {
    /// The alternations, if the two pages differ: two blocks may lie in one large page.
    #[inline(always)]
    pub fn alternations_of_pages(&self) -> u32 {
        if self.page.id == self.before.id { 0 } else { self.alternations }
    }

    /// The kinds of the two pages: 1 is large.
    #[inline(always)]
    pub fn kinds(&self) -> [usize; 2] {
        [self.page, self.before].map(|page| usize::from(page.is_large()))
    }
}

/// Pending steps, so that every TLB processes many at a time.
#[derive(Debug)]
pub struct Steps {
    /// A buffer of [`MOST`] steps.
    steps: Box<[Step]>,
    len: usize,
    last: Page,
    /// [`Page::key`] of the last page and of the page before it.
    keys: [u64; 2],
}

/// Capacity in steps, which fit in the first-level cache. In tests it is small enough to be reached.
const MOST: usize = if cfg!(test) { 8 } else { 512 };

/// No page.
const NO_PAGE: Page = Page { id: u32::MAX, block: u32::MAX, number: 0 };

impl Default for Steps {
    fn default() -> Self {
        let none = Step { page: NO_PAGE, before: NO_PAGE, alternations: 0 };
        Steps { steps: vec![none; MOST].into(), len: 0, last: NO_PAGE, keys: [u64::MAX; 2] }
    }
}

impl Steps {
    /// Appends a use of a page. The steps must not be full. Returns whether they are full now.
    ///
    /// In any LRU TLB, a use of the page before the last only exchanges these two.
    #[inline(always)]
    pub fn push(&mut self, page: Page) -> bool {
        let key = page.key();
        let [last, before] = self.keys;
        if key == last {
            return false;
        }
        // Alternation cannot be predicted, so there is no branch on it.
        let alternates = key == before;
        let (next, current) = (self.len % MOST, self.len.wrapping_sub(1) % MOST);
        self.steps[current].alternations += u32::from(alternates);
        // Overwritten by the next step in case of an alternation.
        self.steps[next] = Step { page, before: self.last, alternations: 0 };
        self.len += usize::from(!alternates);
        (self.keys, self.last) = ([key, last], page);
        self.len == MOST
    }

    /// The steps.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = &Step> {
        self.steps[..self.len].iter()
    }

    /// Drops the steps, and the last pages.
    pub fn clear(&mut self) {
        (self.len, self.last, self.keys) = (0, NO_PAGE, [u64::MAX; 2]);
    }
}
