//! Filters out touches that alternate between two pages before any page is looked up.
//!
//! Most touches of programs alternate between two pages, one of code and one of data. Such a page is
//! at depth 2 at every page size at which the two differ, at depth 1 at the others, and the order of all
//! other pages does not change. So these touches are only counted.

use octavo_types::Instructions;

use super::{Row, Rows, Touch};
use crate::lanes::{Machine, Work, run};

/// No touch has this row.
const NO_ROW: u32 = u32::MAX;

/// Removes touches of the page touched two touches before.
pub struct Filter {
    /// The rows touched last, two of the chunk before, and then those of the chunk.
    rows: Vec<u32>,
    /// Whether the last two touches before the chunk were of different pages.
    apart: bool,
    /// The kept touches, by their index in the chunk.
    kept: Vec<u32>,
}

impl Default for Filter {
    fn default() -> Self {
        Filter { rows: vec![NO_ROW; 2], apart: false, kept: Vec::new() }
    }
}

impl Filter {
    /// Filters the next touches by their pages of size number `size`, which must be the smallest size in use.
    pub fn process(
        &mut self,
        instructions: Instructions,
        touches: &[Touch],
        rows: &Rows,
        size: usize,
    ) {
        let id = |row| if row == NO_ROW { NO_ROW } else { rows.id(Row(row), size) };
        if let [.., before, last] = self.rows[..] {
            self.apart = id(before) != id(last);
        }
        run(instructions, Pass { filter: self, touches });
        // The same base page is the same page of every size.
        if size >= rows.sizes().below(1) {
            self.keep_differing(id);
        }
    }

    /// Keeps only touches whose page differs from that of two touches before.
    #[inline(always)]
    fn keep_differing(&mut self, id: impl Fn(u32) -> u32) {
        let mut kept = 0;
        for number in 0..self.kept.len() {
            let at = self.kept[number];
            self.kept[kept] = at;
            let [before, now] = [at as usize, at as usize + 2].map(|place| id(self.rows[place]));
            kept += usize::from(before != now);
        }
        self.kept.truncate(kept);
    }

    /// Whether the last two touches before the chunk were of different pages. If not, the alternations
    /// [before the first kept touch](Filter::before_first) are of one page.
    #[inline(always)]
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// The alternations before the first kept touch.
    #[inline(always)]
    pub fn before_first(&self) -> u32 {
        self.kept.first().copied().unwrap_or(self.touches())
    }

    /// The kept touches, each with the number of alternations that follow it.
    #[inline(always)]
    pub fn kept(&self) -> impl ExactSizeIterator<Item = (Row, u32)> + '_ {
        let now = &self.rows[2..];
        (0..self.kept.len()).map(move |number| {
            let (at, next) = (self.kept[number], self.kept.get(number + 1));
            (Row(now[at as usize]), next.unwrap_or(&self.touches()) - at - 1)
        })
    }

    fn touches(&self) -> u32 {
        self.rows.len() as u32 - 2
    }
}

/// The pass over the rows of a chunk.
struct Pass<'a> {
    filter: &'a mut Filter,
    touches: &'a [Touch],
}

impl Work for Pass<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let Filter { rows, kept, .. } = self.filter;
        rows.drain(..rows.len() - 2);
        rows.extend(self.touches.iter().map(|touch| touch.row().0));
        kept.resize(self.touches.len(), 0);
        let found = machine.differing(&rows[..self.touches.len()], &rows[2..], kept);
        kept.truncate(found);
    }
}
