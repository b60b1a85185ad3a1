//! Sequences of page uses. Alternations between two pages, which are most uses of a program, are counted
//! instead of looked up.

use super::page::Page;

/// The use of a page, and then uses of the previous page and this one in alternation.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The page.
    pub page: Page,
    /// Number of uses in alternation, beginning with the previous page. 0 in the first step.
    pub alternations: u32,
}

/// Pending steps, so that every TLB processes many at a time.
#[derive(Debug)]
pub struct Steps {
    /// A buffer of [`ROOM`] steps.
    steps: Box<[Step]>,
    len: usize,
    /// The last page, and the page before it.
    last: [Page; 2],
}

/// Room for steps, which fit in the first-level cache. In tests it is small enough to be reached.
const ROOM: usize = if cfg!(test) { 16 } else { 512 };
/// The number of steps from which they must be processed before the next touch. It appends fewer than there is room for.
const MOST: usize = ROOM - 8;

impl Default for Steps {
    fn default() -> Self {
        let none = Step { page: Page::NONE, alternations: 0 };
        Steps { steps: vec![none; ROOM].into(), len: 0, last: [Page::NONE; 2] }
    }
}

impl Steps {
    /// Appends a use of a page. Returns whether the steps must be processed before the next touch.
    ///
    /// In any LRU TLB, a use of the page before the last only exchanges these two.
    #[inline(always)]
    pub fn push(&mut self, page: Page) -> bool {
        let [last, before] = self.last;
        if page == last {
            return false;
        }
        // Alternation cannot be predicted, so there is no branch on it.
        let alternates = page == before;
        let (next, current) = (self.len % ROOM, self.len.wrapping_sub(1) % ROOM);
        self.steps[current].alternations += u32::from(alternates);
        // Overwritten by the next step in case of an alternation.
        self.steps[next] = Step { page, alternations: 0 };
        self.len += usize::from(!alternates);
        self.last = [page, last];
        debug_assert!(self.len < ROOM, "one touch has too many steps");
        self.len >= MOST
    }

    /// Appends uses of the last two pages in alternation, `times` times in all. They must differ.
    #[inline(always)]
    pub fn alternate(&mut self, times: u32) {
        self.steps[self.len.wrapping_sub(1) % ROOM].alternations += times;
        if times % 2 == 1 {
            self.last.swap(0, 1);
        }
    }

    /// The steps.
    #[inline(always)]
    pub fn all(&self) -> &[Step] {
        &self.steps[..self.len]
    }

    /// Drops the steps, and the last pages.
    pub fn clear(&mut self) {
        (self.len, self.last) = (0, [Page::NONE; 2]);
    }
}
