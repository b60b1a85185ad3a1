//! Several page sizes that are looked up together.
//!
//! A look-up has stages, each for a whole chunk of touches: the first positions of the lists, the other
//! positions for touches not found there, and then the order of each size. So the depth of a page decides
//! which touches are passed on to the next stage, without unpredictable branches.

use octavo_types::Instructions;

use super::counted::Counted;
use super::lists::{Lists, POSITIONS};
use super::vectors::{Numbers, Vectors};
use crate::touches::{Filter, LANES, Row, Rows, Touch};

/// The stacks of neighbouring page sizes.
pub struct Group {
    /// The number of the first size, which gives the group of ids.
    first_size: usize,
    filter: Filter,
    lists: Lists,
    /// Touches whose page lies deeper, by position in the lists and size.
    missed: [[u64; LANES]; POSITIONS],
    /// Touches for the next stage.
    deeper: Vec<Deeper>,
    swaps: Vec<(u32, u32)>,
    /// The pages that have left the lists, by size.
    behind: Vec<Counted>,
}

/// A touch whose page has not been found yet in some lists.
#[derive(Clone, Copy)]
struct Deeper {
    /// The pages that move down in the lists.
    carried: Numbers,
    row: Row,
    /// A bit for each list without the page.
    missing: u32,
}

const NOTHING: Deeper = Deeper { carried: [0; LANES], row: Row(0), missing: 0 };

impl Group {
    /// Empty stacks of `sizes` page sizes (at most [`LANES`]) from number `first_size` on, a multiple of
    /// [`LANES`].
    pub fn new(first_size: usize, sizes: usize, max_entries: u32) -> Self {
        let behind = || Counted::new(max_entries.saturating_sub(POSITIONS as u32));
        Group {
            first_size,
            filter: Filter::default(),
            lists: Lists::new(sizes),
            missed: [[0; LANES]; POSITIONS],
            deeper: Vec::new(),
            swaps: Vec::new(),
            behind: std::iter::repeat_with(behind).take(sizes).collect(),
        }
    }

    /// Makes room for all pages in `rows`.
    pub fn grow(&mut self, rows: &Rows) {
        for (size, behind) in self.behind.iter_mut().enumerate() {
            behind.order.grow(rows.pages_of(self.first_size + size));
        }
    }

    /// Looks up touches. [`Group::grow`] must have made room for their pages.
    #[inline(always)]
    pub fn process<V: Vectors>(
        &mut self,
        (v, instructions): (V, Instructions),
        touches: &[Touch],
        rows: &Rows,
    ) {
        let group = self.first_size / LANES;
        self.filter.process(instructions, touches, rows, self.first_size);
        self.lists.alternate(v, self.filter.before_first());
        // Every touch is written for the next stage; the next one overwrites it if the stage does not need it.
        self.deeper.resize(touches.len() + 1, NOTHING);
        self.swaps.resize(touches.len() + 1, (0, 0));
        let mut after_first = 0;
        for (row, alternations) in self.filter.kept() {
            let ids = v.load(&rows.ids(row)[group]);
            let (missing, carried) = self.lists.touch(v, ids, alternations);
            let next = &mut self.deeper[after_first];
            v.store(carried, &mut next.carried);
            (next.row, next.missing) = (row, v.bits(missing));
            after_first += usize::from(next.missing != 0);
        }
        let mut after_second = 0;
        for at in 0..after_first {
            let Deeper { carried, row, missing } = &self.deeper[at];
            let (row, missing) = (*row, v.mask(*missing));
            let ids = v.load(&rows.ids(row)[group]);
            let (missing, carried) = self.lists.touch_deeper(v, ids, missing, v.load(carried));
            let next = &mut self.deeper[after_second];
            v.store(carried, &mut next.carried);
            (next.row, next.missing) = (row, v.bits(missing));
            after_second += usize::from(next.missing != 0);
        }
        for (lane, behind) in self.behind.iter_mut().enumerate() {
            let mut swaps = 0;
            for deeper in &self.deeper[..after_second] {
                self.swaps[swaps] = (rows.ids(deeper.row)[group][lane], deeper.carried[lane]);
                swaps += (deeper.missing >> lane & 1) as usize;
            }
            for (wanted, pushed) in &self.swaps[..swaps] {
                behind.swap(*wanted, *pushed);
            }
        }
    }

    /// Removes all pages. The counts of the lists must have been [added up](Group::count).
    pub fn clear(&mut self) {
        self.filter = Filter::default();
        let lists = std::mem::replace(&mut self.lists, Lists::new(self.behind.len()));
        for (lane, behind) in self.behind.iter_mut().enumerate() {
            lists.pages(lane).for_each(|page| behind.order.remember(page));
            behind.order.clear();
        }
    }

    /// Adds up the counts of the lists. Must be called before they reach 2^32.
    pub fn count(&mut self) {
        self.lists.count(&mut self.missed);
    }

    /// The distinct pages of size number `size` of the group, and the misses of TLBs of each number
    /// of entries.
    pub fn misses(&self, size: usize) -> (u64, Vec<u64>) {
        let behind = &self.behind[size];
        let listed = self.missed.iter().map(|missed| missed[size]);
        let deeper = behind.misses(self.missed[POSITIONS - 1][size]);
        (behind.pages, listed.chain(deeper).collect())
    }
}
