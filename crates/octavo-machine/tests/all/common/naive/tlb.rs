//! Levels of TLBs as lists.

use octavo_config::{Fill, PageSizes, TlbLevel, Ways};
use octavo_machine::Counters;
use octavo_machine::designs::colt::{Coalescing, LongRuns};
use octavo_oracle::{NaiveArray, NaiveReplacement};
use octavo_types::PageSize;

/// A TLB entry: a page, or several contiguous equal pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Page {
    pub size: PageSize,
    /// The number of the first page, in units of `size`.
    pub first: u64,
    /// The number of pages.
    pub count: u64,
    /// The first base frame.
    pub frame: u64,
    pub write: bool,
    pub dirty: bool,
    /// The hole filter of a perforated page.
    pub filter: Option<u8>,
    /// Whether this is a gapped page; `frame` is then the first of its chunk.
    pub has_gaps: bool,
    /// The hole bits of an entry that is a bitmap word, not a page.
    pub bits: u32,
    /// Whether this is a guest half; `frame` is then a guest frame.
    pub half: bool,
    /// The size of the whole page, of which this may be a part.
    pub whole_size: PageSize,
    /// Vector bits known to be set: accessed bits, and dirty bits 16 positions above.
    pub known: u32,
}

impl Page {
    pub fn permits(&self, stores: bool) -> bool {
        !stores || (self.write && self.dirty)
    }

    /// Whether only its dirty bit denies the reference.
    pub fn is_clean_for(&self, stores: bool) -> bool {
        stores && self.write && !self.dirty
    }

    pub fn first_base_page(&self) -> u64 {
        self.first << self.size.base_shift()
    }

    pub fn covers(&self, page: u64) -> bool {
        (self.first..self.first + self.count).contains(&(page >> self.size.base_shift()))
    }

    /// Whether the filter of a perforated page allows a hole at a base page.
    pub fn may_be_hole(&self, page: u64) -> bool {
        self.filter.is_some_and(|filter| filter >> (page % 512 / 64) & 1 != 0)
    }

    /// A base page of a perforated page that is not a hole.
    pub fn part_of_region(&self, page: u64) -> Page {
        let frame = self.frame_of(page);
        Page { size: PageSize::BASE, first: page, count: 1, frame, filter: None, ..*self }
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let own_end = (self.first + self.count) << self.size.base_shift();
        self.first_base_page() < end && start < own_end
    }

    pub fn frame_of(&self, page: u64) -> u64 {
        self.frame + (page - self.first_base_page())
    }

    /// The part of `size` around a base page.
    fn part(&self, page: u64, size: PageSize) -> Page {
        if size == self.size {
            return *self;
        }
        let first = page >> size.base_shift();
        Page { size, first, count: 1, frame: self.frame_of(first << size.base_shift()), ..*self }
    }

    /// The whole page.
    pub fn whole(&self) -> Page {
        let first = self.first_base_page() >> self.whole_size.base_shift();
        let frame = self.frame - (self.first_base_page() - (first << self.whole_size.base_shift()));
        Page { size: self.whole_size, first, frame, known: 0, ..*self }
    }

    /// The base pages in the same aligned group as `page`.
    fn in_group(&self, page: u64, group: u64) -> Page {
        if self.size != PageSize::BASE {
            return *self;
        }
        let start = page / group * group;
        let first = self.first.max(start);
        let end = (self.first + self.count).min(start + group);
        Page { first, count: end - first, frame: self.frame_of(first), ..*self }
    }
}

pub struct Array {
    name: String,
    pub sizes: Vec<PageSize>,
    pub sets: u64,
    /// Base pages per group; the pages of a group share a set.
    group: u64,
    /// By size and number of the first page.
    pub entries: NaiveArray<(u8, u64), Page>,
    hits: u64,
}

impl Array {
    fn set(&self, page: u64, size: PageSize) -> usize {
        let number = page >> size.base_shift();
        let grouped = if size == PageSize::BASE { number / self.group } else { number };
        (grouped % self.sets) as usize
    }

    fn look_up(&mut self, page: u64) -> Option<Page> {
        let all = self.entries.entries();
        for size in self.sizes.clone() {
            let found = all.iter().find(|(_, _, held)| held.size == size && held.covers(page));
            if let Some((set, key, held)) = found {
                assert_eq!(*set, self.set(page, size));
                self.entries.look_up(*set, key);
                self.hits += 1;
                return Some(*held);
            }
        }
        None
    }

    /// Removes entries that overlap the new one; an entry with the same first page is replaced.
    fn fill(&mut self, page: u64, new: Page) -> Option<Page> {
        let (size, start) = (new.size, new.first_base_page());
        if size == PageSize::BASE {
            self.entries.invalidate_if(|_, old| {
                old.size == size && old.overlaps(start, start + new.count) && old.first != new.first
            });
        }
        let set = self.set(page, size);
        let evicted = self.entries.insert(set, (size.log2(), new.first), new);
        evicted.map(|(_, page)| page)
    }
}

/// Ranges, most recently used last.
struct Ranges {
    config: LongRuns,
    entries: Vec<Page>,
    hits: u64,
}

impl Ranges {
    fn look_up(&mut self, page: u64) -> Option<Page> {
        let at = self.entries.iter().position(|range| range.covers(page))?;
        let range = self.entries.remove(at);
        self.entries.push(range);
        self.hits += 1;
        Some(range)
    }

    /// Merges ranges that continue the new one, lowest first, up to the length limit.
    fn fill(&mut self, mut new: Page) {
        let limit = self.config.limit_pages;
        loop {
            let continues = |old: &&Page| {
                let starts_at = (old.first.min(new.first), old.first.max(new.first));
                let first_end = if old.first < new.first {
                    old.first + old.count
                } else {
                    new.first + new.count
                };
                let end = (old.first + old.count).max(new.first + new.count);
                starts_at.1 <= first_end
                    && end - starts_at.0 <= limit
                    && old.frame + new.first == new.frame + old.first
                    && (old.write, old.dirty) == (new.write, new.dirty)
            };
            let lowest = self.entries.iter().filter(continues).min_by_key(|old| old.first);
            let Some(old) = lowest.copied() else { break };
            self.entries.retain(|entry| *entry != old);
            let end = (old.first + old.count).max(new.first + new.count);
            let (first, frame) = (old.first.min(new.first), old.frame.min(new.frame));
            new = Page { first, count: end - first, frame, ..new };
        }
        self.entries.retain(|old| !old.overlaps(new.first, new.first + new.count));
        if self.entries.len() == self.config.entries {
            self.entries.remove(0);
        }
        self.entries.push(new);
    }
}

/// A TLB level.
pub struct Tlb {
    pub name: &'static str,
    pub arrays: Vec<Array>,
    ranges: Option<Ranges>,
    pub hits: u64,
    pub misses: u64,
    /// Whether evictions of the first level fill this level, rather than walks.
    pub victims: bool,
}

impl Tlb {
    pub fn new(name: &'static str, level: &TlbLevel, coalescing: Coalescing) -> Self {
        let arrays = level.arrays.iter().map(|(name, config)| {
            let sizes = match &config.page_sizes {
                PageSizes::List(sizes) => {
                    let mut sizes = sizes.clone();
                    sizes.sort();
                    sizes
                }
                // A look-up hits the largest entry that covers the page.
                PageSizes::Any => (12..=30).rev().filter_map(PageSize::from_log2).collect(),
            };
            let ways = ways(config.ways, config.entries);
            let sets = config.entries / ways;
            let policy = replacement(config.replacement);
            let entries = NaiveArray::new(sets as usize, ways as usize, policy);
            // An entry of any size holds no run.
            let is_any = config.page_sizes == PageSizes::Any;
            let group = if is_any { 1 } else { 1 << coalescing.group_log2 };
            Array { name: name.clone(), sizes, sets, group, entries, hits: 0 }
        });
        let arrays = arrays.collect();
        let ranges =
            coalescing.long_runs.map(|config| Ranges { config, entries: Vec::new(), hits: 0 });
        Tlb { name, arrays, ranges, hits: 0, misses: 0, victims: level.fill == Fill::Victim }
    }

    /// The name and hits of each array.
    fn arrays(&self) -> Vec<(&str, u64)> {
        let ranges = self.ranges.iter().map(|ranges| (ranges.config.name, ranges.hits));
        self.arrays.iter().map(|array| (&*array.name, array.hits)).chain(ranges).collect()
    }

    /// Whether this level holds pages of 2 MiB, and therefore perforated ones.
    pub fn holds_perforated(&self) -> bool {
        self.arrays.iter().any(|array| array.sizes.contains(&PageSize::HUGE))
    }

    /// Reports its counters.
    pub fn report(&self, counters: &mut Counters) {
        report(self.name, self.hits, self.misses, counters);
        for (name, hits) in self.arrays() {
            let misses = self.hits + self.misses - hits;
            report(&format!("{}.{name}", self.name), hits, misses, counters);
        }
    }

    pub fn look_up(&mut self, page: u64) -> Option<Page> {
        let mut found = self.arrays.iter_mut().find_map(|array| array.look_up(page));
        if found.is_none() {
            found = self.ranges.as_mut().and_then(|ranges| ranges.look_up(page));
        }
        match found {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        found
    }

    /// Fills the page of a base page: a long run into the ranges, otherwise the largest part that an array
    /// can hold. Returns the eviction.
    pub fn fill(&mut self, page: u64, new: Page) -> Option<Page> {
        if let Some(ranges) = &mut self.ranges
            && new.count > ranges.config.above_pages
        {
            ranges.fill(new);
            return None;
        }
        let best = self.arrays.iter_mut().flat_map(|array| {
            let sizes = array.sizes.iter().filter(|size| **size <= new.size);
            sizes.max().copied().map(|part| (part, array))
        });
        let (part, array) = best.max_by(|a, b| a.0.cmp(&b.0).then(std::cmp::Ordering::Greater))?;
        array.fill(page, new.part(page, part).in_group(page, array.group))
    }

    /// Removes the page that holds a base page, but no bitmap words.
    pub fn take(&mut self, page: u64) {
        for array in &mut self.arrays {
            let is_page = |held: &Page| array.sizes.contains(&held.size);
            array.entries.invalidate_if(|_, held| is_page(held) && held.covers(page));
        }
    }

    /// The entry that a look-up of a base page finds.
    pub fn entry(&mut self, page: u64) -> Option<&mut Page> {
        self.arrays.iter_mut().find_map(|array| {
            let all = array.entries.entries();
            let found = array.sizes.iter().find_map(|size| {
                all.iter().find(|(_, _, held)| held.size == *size && held.covers(page))
            });
            let (set, key) = found.map(|(set, key, _)| (*set, *key))?;
            array.entries.probe(set, &key)
        })
    }

    pub fn invalidate(&mut self, start: u64, end: u64) {
        for array in &mut self.arrays {
            array.entries.invalidate_if(|_, held| held.overlaps(start, end));
        }
        if let Some(ranges) = &mut self.ranges {
            ranges.entries.retain(|range| !range.overlaps(start, end));
        }
    }
}

pub fn ways(ways: Ways, entries: u64) -> u64 {
    match ways {
        Ways::Full => entries,
        Ways::Of(ways) => ways,
    }
}

pub fn replacement(policy: octavo_hw::Replacement) -> NaiveReplacement {
    match policy {
        octavo_hw::Replacement::Lru => NaiveReplacement::Lru,
        octavo_hw::Replacement::TreePlru => NaiveReplacement::TreePlru,
        octavo_hw::Replacement::Fifo => NaiveReplacement::Fifo,
        octavo_hw::Replacement::Srrip => NaiveReplacement::Srrip,
        other => panic!("{other:?} is not compared"),
    }
}

/// Reports look-ups.
pub fn report(component: &str, hits: u64, misses: u64, counters: &mut Counters) {
    counters.add(component, "accesses", hits + misses);
    counters.add(component, "hits", hits);
    counters.add(component, "misses", misses);
}
