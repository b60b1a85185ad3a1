//! Dense numbers for pages: a kernel stores a page's state at its row, without a look-up.

use foldhash::fast::RandomState;
use octavo_trace::Relocation;
use octavo_types::PageNumber;

use crate::sizes::Sizes;

/// The ids of a row come in groups of this length, padded with 0: a vector of AVX2, half a vector of AVX-512.
pub const LANES: usize = 8;

/// log2 of the base pages in a leaf.
const LEAF_LOG2: u8 = 6;
const LEAF_PAGES: usize = 1 << LEAF_LOG2;
/// Number of leaves found without hashing: enough for 256 MiB.
const GUESSES: usize = 1024;
/// Number of pages found at once: enough for 64 MiB. Programs use only few of them at a time.
const RECENT: usize = 1 << 14;
const NO_PAGE: u64 = u64::MAX;
const NO_LEAF: u64 = u64::MAX;
const NO_ROW: u32 = u32::MAX;

/// The dense number of a base page that a process has touched, in order of first touch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Row(pub u32);

impl Row {
    /// As an index.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Hashed with a random key, since a hostile trace could otherwise cause collisions.
type Table = std::collections::HashMap<u64, u32, RandomState>;

/// The pages of one address space.
#[derive(Default)]
pub struct Space {
    relocation: Relocation,
    /// The leaf by the traced page number shifted right by `LEAF_LOG2`.
    by_leaf: Table,
    /// The id of each page, by page size.
    by_size: Vec<Table>,
}

/// All base pages that one process, or several processes that share a core, have touched, and at each page size
/// the id of the page that contains each. Pages of different address spaces are different pages.
pub struct Rows {
    sizes: Sizes,
    /// The current address space.
    space: Space,
    /// The number of pages of each size.
    pages_by_size: Vec<u32>,
    leaves: Vec<[u32; LEAF_PAGES]>,
    /// The leaf last found, by the low bits of its number.
    guesses: Box<[(u64, u32); GUESSES]>,
    /// The traced base page last found, and its row, by the low bits of the page.
    recent: Box<[(u64, u32); RECENT]>,
    pages: Vec<PageNumber>,
    traced: Vec<PageNumber>,
    ids: Vec<[u32; LANES]>,
    groups: usize,
}

impl Rows {
    /// No pages; there will be ids at each of `sizes`, for pages relocated by `relocation`.
    pub fn new(sizes: Sizes, relocation: Relocation) -> Self {
        Rows {
            space: Space { relocation, ..Space::default() },
            pages_by_size: vec![0; sizes.len()],
            leaves: Vec::new(),
            guesses: Box::new([(NO_LEAF, 0); GUESSES]),
            recent: vec![(NO_PAGE, 0); RECENT].into_boxed_slice().try_into().expect("as many"),
            pages: Vec::new(),
            traced: Vec::new(),
            ids: Vec::new(),
            groups: sizes.len().div_ceil(LANES),
            sizes,
        }
    }

    /// Exchanges the current address space for `space`.
    pub fn exchange(&mut self, space: &mut Space) {
        std::mem::swap(&mut self.space, space);
        self.guesses.fill((NO_LEAF, 0));
        self.recent.fill((NO_PAGE, 0));
    }

    /// Sets the relocation of pages touched from now on in the current address space.
    pub fn relocate(&mut self, relocation: Relocation) {
        self.space.relocation = relocation;
    }

    /// The sizes at which there are ids.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// The number of touched pages of size number `size`. Ids are below this.
    pub fn pages_of(&self, size: usize) -> u32 {
        self.pages_by_size[size]
    }

    /// The relocated base page of a row.
    #[inline(always)]
    pub fn page(&self, row: Row) -> PageNumber {
        self.pages[row.index()]
    }

    /// The base page of a row, as traced.
    #[inline(always)]
    pub fn traced(&self, row: Row) -> PageNumber {
        self.traced[row.index()]
    }

    /// The dense number, in order of first touch, of the page of size number `size` that contains a row.
    #[inline(always)]
    pub fn id(&self, row: Row, size: usize) -> u32 {
        self.ids[row.index() * self.groups + size / LANES][size % LANES]
    }

    /// A row's ids at all sizes, in groups of [`LANES`].
    #[inline(always)]
    pub fn ids(&self, row: Row) -> &[[u32; LANES]] {
        &self.ids[row.index() * self.groups..][..self.groups]
    }

    /// The row of a traced base page, which is added if it is new.
    #[inline(always)]
    pub fn row(&mut self, traced: u64) -> Row {
        let recent = &self.recent[traced as usize % RECENT];
        if recent.0 == traced { Row(recent.1) } else { self.find(traced) }
    }

    #[inline(never)]
    fn find(&mut self, traced: u64) -> Row {
        let number = traced >> LEAF_LOG2;
        let guess = self.guesses[number as usize % GUESSES];
        let leaf = if guess.0 == number { guess.1 } else { self.leaf(number) };
        let row = self.leaves[leaf as usize][traced as usize % LEAF_PAGES];
        let row = if row != NO_ROW { Row(row) } else { self.add(traced, leaf) };
        self.recent[traced as usize % RECENT] = (traced, row.0);
        row
    }

    /// The leaf with this number, which is added if it is new, and guessed from now on.
    #[cold]
    #[inline(never)]
    fn leaf(&mut self, number: u64) -> u32 {
        let next = self.leaves.len() as u32;
        let leaf = *self.space.by_leaf.entry(number).or_insert(next);
        if leaf == next {
            self.leaves.push([NO_ROW; LEAF_PAGES]);
        }
        self.guesses[number as usize % GUESSES] = (number, leaf);
        leaf
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, traced: u64, leaf: u32) -> Row {
        let row = u32::try_from(self.pages.len()).ok().filter(|row| *row != NO_ROW);
        let row = row.expect("no machine has the memory to follow so many pages");
        self.leaves[leaf as usize][traced as usize % LEAF_PAGES] = row;
        let space = &mut self.space;
        let page = space.relocation.page(PageNumber::new(traced));
        self.pages.push(page);
        self.traced.push(PageNumber::new(traced));
        let first = self.ids.len();
        self.ids.resize(first + self.groups, [0; LANES]);
        space.by_size.resize_with(self.sizes.len(), Table::default);
        for (size, (page_size, table)) in self.sizes.iter().zip(&mut space.by_size).enumerate() {
            let pages = &mut self.pages_by_size[size];
            let id = *table.entry(page.raw() >> page_size.base_shift()).or_insert_with(|| {
                *pages += 1;
                *pages - 1
            });
            self.ids[first + size / LANES][size % LANES] = id;
        }
        Row(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::{AddrRange, PageSize, VirtAddr};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Rows are distinct and dense; ids are the same exactly where pages are.
        #[test]
        fn numbers_are_dense_and_unique(
            pages in prop::collection::vec(prop_oneof![0u64..600, 0u64..1 << 52], 1..400),
            moved in 0u64..3,
        ) {
            let sizes: Vec<PageSize> =
                [12, 13, 14, 15, 16, 17, 18, 21, 30].map(|l| PageSize::from_log2(l).unwrap()).into();
            let everything = AddrRange::new(VirtAddr::NULL, u64::MAX);
            let relocation = Relocation::new(vec![(everything, moved << 12)]);
            let mut rows = Rows::new(Sizes::new(sizes.clone()), relocation);
            let found: Vec<Row> = pages.iter().map(|page| rows.row(*page)).collect();
            let mut distinct = pages.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(rows.len(), distinct.len());
            for (page, row) in pages.iter().zip(&found) {
                prop_assert_eq!(rows.row(*page), *row);
                prop_assert_eq!(rows.traced(*row).raw(), *page);
                prop_assert_eq!(rows.page(*row).raw(), (page + moved) & ((1 << 52) - 1));
                for (other, other_row) in pages.iter().zip(&found) {
                    prop_assert_eq!(page == other, row == other_row);
                    for (size, page_size) in sizes.iter().enumerate() {
                        let number = |row| rows.page(row).raw() >> page_size.base_shift();
                        prop_assert_eq!(
                            number(*row) == number(*other_row),
                            rows.id(*row, size) == rows.id(*other_row, size)
                        );
                        prop_assert!(rows.id(*row, size) < rows.pages_of(size));
                        prop_assert_eq!(
                            rows.ids(*row)[size / LANES][size % LANES], rows.id(*row, size)
                        );
                    }
                }
            }
        }
    }
}
