//! Memory touched, in whole pages of every size.

use octavo_types::PageSize;
use rustc_hash::FxHashMap;

use crate::sizes::Sizes;

/// log2 of the base pages in a word of a set.
const WORD_LOG2: u8 = 6;

/// A set of base pages.
#[derive(Clone, Default, Debug)]
pub struct PageSet {
    words: FxHashMap<u64, u64>,
}

impl PageSet {
    /// Inserts a base page. Returns whether it was absent.
    pub fn insert(&mut self, page: u64) -> bool {
        let word = self.words.entry(page >> WORD_LOG2).or_default();
        let bit = 1 << (page % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes a base page. Returns whether it was present.
    pub fn remove(&mut self, page: u64) -> bool {
        let Some(word) = self.words.get_mut(&(page >> WORD_LOG2)) else { return false };
        let bit = 1 << (page % 64);
        let was_present = *word & bit != 0;
        *word &= !bit;
        if *word == 0 {
            self.words.remove(&(page >> WORD_LOG2));
        }
        was_present
    }

    /// Inserts every page of another set.
    pub fn union(&mut self, other: &PageSet) {
        for (number, word) in &other.words {
            *self.words.entry(*number).or_default() |= word;
        }
    }

    /// The base pages that are in both sets.
    pub fn intersection(&self, other: &PageSet) -> PageSet {
        let common = |(number, word): (&u64, &u64)| {
            let common = word & other.words.get(number)?;
            (common != 0).then_some((*number, common))
        };
        PageSet { words: self.words.iter().filter_map(common).collect() }
    }

    /// The base pages whose page of `size` contains no base page of another set.
    pub fn apart_from(&self, other: &PageSet, size: PageSize) -> PageSet {
        let shift = size.base_shift();
        let apart = |(number, word): (&u64, &u64)| {
            let first = number << WORD_LOG2;
            let apart = if shift >= WORD_LOG2 {
                if other.any_in_page_of(size, first) { 0 } else { *word }
            } else {
                let group = (1u64 << (1 << shift)) - 1;
                let groups = (first..first + 64).step_by(1 << shift);
                let kept = groups.filter(|page| !other.any_in_page_of(size, *page));
                kept.fold(0, |kept, page| kept | group << (page % 64)) & word
            };
            (apart != 0).then_some((*number, apart))
        };
        PageSet { words: self.words.iter().filter_map(apart).collect() }
    }

    /// The base pages, each moved by `pages`.
    pub fn moved(&self, pages: i64) -> PageSet {
        let mut moved = PageSet::default();
        for (number, word) in &self.words {
            for bit in (0..64).filter(|bit| word & (1 << bit) != 0) {
                moved.insert((number * 64 + bit).wrapping_add_signed(pages));
            }
        }
        moved
    }

    /// The base pages in `first..end`, ascending.
    pub fn range(&self, first: u64, end: u64) -> Vec<u64> {
        if first >= end {
            return Vec::new();
        }
        let (first_word, last_word) = (first >> WORD_LOG2, (end - 1) >> WORD_LOG2);
        let mut numbers: Vec<u64> = if last_word - first_word < self.words.len() as u64 {
            (first_word..=last_word).filter(|number| self.words.contains_key(number)).collect()
        } else {
            let inside = |number: &&u64| (first_word..=last_word).contains(*number);
            self.words.keys().filter(inside).copied().collect()
        };
        numbers.sort_unstable();
        let pages = numbers.iter().flat_map(|number| {
            let word = self.words[number];
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| number * 64 + bit)
        });
        pages.filter(|page| (first..end).contains(page)).collect()
    }

    /// Number of pages of `size` that contain a base page of the set.
    pub fn pages_of(&self, size: PageSize) -> u64 {
        let shift = size.base_shift();
        if shift >= WORD_LOG2 {
            let mut numbers: Vec<u64> =
                self.words.keys().map(|number| number >> (shift - WORD_LOG2)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            return numbers.len() as u64;
        }
        let group = 1u32 << shift;
        let mask = (1u64 << group) - 1;
        let pages_in = |word: u64| {
            (0..64 / group).filter(|index| word >> (index * group) & mask != 0).count() as u64
        };
        if group == 1 {
            return self.words.values().map(|word| u64::from(word.count_ones())).sum();
        }
        self.words.values().map(|word| pages_in(*word)).sum()
    }

    /// Whether the page of `size` that contains `page` contains any base page of the set.
    fn any_in_page_of(&self, size: PageSize, page: u64) -> bool {
        let shift = size.base_shift();
        let first = page >> shift << shift;
        if shift < WORD_LOG2 {
            let mask = ((1u64 << (1 << shift)) - 1) << (first % 64);
            self.words.get(&(first >> WORD_LOG2)).is_some_and(|word| word & mask != 0)
        } else {
            let words = first >> WORD_LOG2..(first >> WORD_LOG2) + (1 << (shift - WORD_LOG2));
            words.into_iter().any(|number| self.words.contains_key(&number))
        }
    }
}

/// Memory touched and still mapped, in whole pages of every size, and its peak.
///
/// A page of a size is resident while any base page in it is, as if the whole address space were
/// mapped with that size.
pub struct Residency {
    sizes: Sizes,
    pages: PageSet,
    current: Vec<u64>,
    peak: Vec<u64>,
    base_pages: u64,
}

impl Residency {
    /// No resident pages.
    pub fn new(sizes: Sizes) -> Self {
        let none = vec![0; sizes.len()];
        let (current, peak) = (none.clone(), none);
        Residency { sizes, pages: PageSet::default(), current, peak, base_pages: 0 }
    }

    /// Makes a base page resident. Returns whether it was not.
    pub fn insert(&mut self, page: u64) -> bool {
        // If a page of one size is resident already, so are the larger pages that contain it.
        let is_new = |size: &PageSize| !self.pages.any_in_page_of(*size, page);
        let new_sizes = self.sizes.iter().take_while(is_new).count();
        if !self.pages.insert(page) {
            return false;
        }
        self.base_pages += 1;
        for size in 0..new_sizes {
            self.current[size] += 1;
            self.peak[size] = self.peak[size].max(self.current[size]);
        }
        true
    }

    /// Unmaps the base pages in `first..end`. Returns the pages that were resident.
    pub fn remove(&mut self, first: u64, end: u64) -> Vec<u64> {
        let removed = self.pages.range(first, end);
        for &page in &removed {
            self.pages.remove(page);
            self.base_pages -= 1;
            let is_empty = |size: &PageSize| !self.pages.any_in_page_of(*size, page);
            let empty = self.sizes.iter().take_while(is_empty).count();
            self.current[..empty].iter_mut().for_each(|pages| *pages -= 1);
        }
        removed
    }

    /// Drops the pages, if only peaks are read from now on.
    pub fn keep_results_only(&mut self) {
        *self = self.results_only();
    }

    /// The peaks so far, without pages.
    pub fn results_only(&self) -> Self {
        Residency {
            sizes: self.sizes.clone(),
            pages: PageSet::default(),
            current: self.current.clone(),
            peak: self.peak.clone(),
            base_pages: self.base_pages,
        }
    }

    /// Resident base pages, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.base_pages << PageSize::BASE.log2()
    }

    /// The peak of resident bytes, in pages of the size with index `size`.
    pub fn peak_bytes(&self, size: usize) -> u64 {
        self.sizes.iter().nth(size).map_or(0, |page_size| self.peak[size] << page_size.log2())
    }
}
