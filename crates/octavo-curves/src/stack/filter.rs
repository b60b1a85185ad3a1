//! Filters out touches that alternate between two pages before any list is searched.
//!
//! Most touches of programs alternate between two pages, one of code and one of data. Such a page is
//! at depth 2 at every page size at which the two differ, and the order of all other pages does not
//! change. So these touches are only counted.

use crate::touches::{Row, Rows, Touch};

/// A row, and the id of its page at the size of the filter.
#[derive(Clone, Copy)]
struct Page {
    row: Row,
    id: u32,
}

/// No page has this id.
const NO_PAGE: Page = Page { row: Row(u32::MAX), id: u32::MAX };

/// Removes touches that alternate between two pages.
pub struct Filter {
    /// The two pages touched last, and then the touches of one chunk without immediate repeats.
    pages: Vec<Page>,
    /// The kept touches, and their indexes in `pages`.
    kept: Vec<(Row, u32)>,
}

impl Default for Filter {
    fn default() -> Self {
        Filter { pages: vec![NO_PAGE; 2], kept: Vec::new() }
    }
}

impl Filter {
    /// Filters the next touches by their pages of size number `size`, which must be the smallest size in use.
    #[inline(always)]
    pub fn process(&mut self, touches: &[Touch], rows: &Rows, size: usize) {
        // Every touch is written, without a branch; the next one overwrites it if it is filtered out.
        let last_two = [self.pages[self.pages.len() - 2], self.pages[self.pages.len() - 1]];
        self.pages.resize(touches.len() + 3, NO_PAGE);
        self.pages[..2].copy_from_slice(&last_two);
        let (mut len, mut last) = (2, last_two[1].id);
        for touch in touches {
            let page = Page { row: touch.row(), id: rows.id(touch.row(), size) };
            self.pages[len] = page;
            len += usize::from(page.id != last);
            last = page.id;
        }
        self.pages.truncate(len);
        self.kept.resize(len, (Row(0), 0));
        let mut kept = 0;
        for (at, three) in (0..).zip(self.pages.windows(3)) {
            self.kept[kept] = (three[2].row, at);
            kept += usize::from(three[2].id != three[0].id);
        }
        self.kept.truncate(kept);
    }

    /// The alternations before the first kept touch.
    #[inline(always)]
    pub fn before_first(&self) -> u32 {
        self.kept.first().map_or(self.end(), |first| first.1)
    }

    /// The kept touches, each with the number of alternations that follow it.
    #[inline(always)]
    pub fn kept(&self) -> impl Iterator<Item = (Row, u32)> + '_ {
        let ends = self.kept.iter().skip(1).map(|next| next.1).chain([self.end()]);
        self.kept.iter().zip(ends).map(|(kept, end)| (kept.0, end - kept.1 - 1))
    }

    fn end(&self) -> u32 {
        self.pages.len() as u32 - 2
    }
}
