//! Memory touched, in whole pages of every size.

use octavo_types::PageSize;
use rustc_hash::FxHashMap;

use crate::sizes::Sizes;

/// Base pages in a word of a set, as a logarithm.
const WORD_LOG2: u8 = 6;

/// A set of base pages.
#[derive(Clone, Default, Debug)]
pub struct PageSet {
    words: FxHashMap<u64, u64>,
}

impl PageSet {
    /// Puts a base page in; whether it was not there.
    pub fn insert(&mut self, page: u64) -> bool {
        let word = self.words.entry(page >> WORD_LOG2).or_default();
        let bit = 1 << (page % 64);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// Takes a base page out; whether it was there.
    pub fn remove(&mut self, page: u64) -> bool {
        let Some(word) = self.words.get_mut(&(page >> WORD_LOG2)) else { return false };
        let bit = 1 << (page % 64);
        let there = *word & bit != 0;
        *word &= !bit;
        if *word == 0 {
            self.words.remove(&(page >> WORD_LOG2));
        }
        there
    }

    /// Puts every page of another set in.
    pub fn union(&mut self, other: &PageSet) {
        for (number, word) in &other.words {
            *self.words.entry(*number).or_default() |= word;
        }
    }

    /// Its base pages that are in another set, too.
    pub fn intersection(&self, other: &PageSet) -> PageSet {
        let common = |(number, word): (&u64, &u64)| {
            let common = word & other.words.get(number)?;
            (common != 0).then_some((*number, common))
        };
        PageSet { words: self.words.iter().filter_map(common).collect() }
    }

    /// Its base pages whose page of `size` has none of another set's.
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

    /// Its base pages, each so many pages on.
    pub fn moved(&self, pages: i64) -> PageSet {
        let mut moved = PageSet::default();
        for (number, word) in &self.words {
            for bit in (0..64).filter(|bit| word & (1 << bit) != 0) {
                moved.insert((number * 64 + bit).wrapping_add_signed(pages));
            }
        }
        moved
    }

    /// Its base pages in `first..end`, ascending.
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

    /// How many pages of `size` hold at least one of its base pages.
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

    /// Whether any base page in the page of `size` that holds `page` is in the set.
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

/// Memory touched and still mapped, in whole pages of every size, and the most there ever was.
///
/// A page of a size is resident while any base page in it is: as if the whole address space were
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

    /// A base page is touched; whether it was not resident.
    pub fn insert(&mut self, page: u64) -> bool {
        // A page with another base page lies in larger ones that have it, too.
        let is_new = |size: &PageSize| !self.pages.any_in_page_of(*size, page);
        let fresh = self.sizes.iter().take_while(is_new).count();
        if !self.pages.insert(page) {
            return false;
        }
        self.base_pages += 1;
        for size in 0..fresh {
            self.current[size] += 1;
            self.peak[size] = self.peak[size].max(self.current[size]);
        }
        true
    }

    /// The base pages in `first..end` are unmapped; returns those that were resident.
    pub fn remove(&mut self, first: u64, end: u64) -> Vec<u64> {
        let gone = self.pages.range(first, end);
        for &page in &gone {
            self.pages.remove(page);
            self.base_pages -= 1;
            let is_gone = |size: &PageSize| !self.pages.any_in_page_of(*size, page);
            let empty = self.sizes.iter().take_while(is_gone).count();
            self.current[..empty].iter_mut().for_each(|pages| *pages -= 1);
        }
        gone
    }

    /// Drops the pages: only peaks are read from now on.
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

    /// The most bytes ever resident in pages of size number `size`.
    pub fn peak_bytes(&self, size: usize) -> u64 {
        self.sizes.iter().nth(size).map_or(0, |page_size| self.peak[size] << page_size.log2())
    }
}
