//! Naive TLBs for twins of designs: an array is a list of sets, and a set a list of entries in order of last use.

use octavo_config::{Fill, FirstLevel, PageSizes, TlbArray, TlbConfig, TlbLevel};
use octavo_hw::Asid;
use octavo_os::vmas::Pages;

use crate::counters::Counters;

/// An entry: a page or, in some designs, an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub asid: Asid,
    /// The first base page, and the number of base pages.
    pub first: u64,
    pub pages: u64,
    /// The base pages that an anchor translates; `None` for a page, which translates all of its own.
    pub anchored: Option<u64>,
    /// The frame of the first page.
    pub frame: u64,
    pub is_writable: bool,
    pub is_dirty: bool,
}

impl Held {
    pub fn overlaps(&self, asid: Asid, pages: &Pages) -> bool {
        self.asid == asid && self.first < pages.end && pages.start < self.first + self.pages
    }

    pub fn is_page(&self) -> bool {
        self.anchored.is_none()
    }

    pub fn covers(&self, page: u64) -> bool {
        self.anchored.is_none_or(|anchored| page - self.first < anchored)
    }

    pub fn frame_of(&self, page: u64) -> u64 {
        self.frame + (page - self.first)
    }
}

pub struct Array {
    name: String,
    /// Numbers of base pages of the page sizes that the array holds, in ascending order.
    sizes: Vec<u64>,
    /// The entries of each set, the most recently used one at the end.
    sets: Vec<Vec<Held>>,
    ways: usize,
    pub hits: u64,
}

impl Array {
    fn set(&mut self, page: u64, pages: u64) -> &mut Vec<Held> {
        let sets = self.sets.len() as u64;
        &mut self.sets[(page / pages % sets) as usize]
    }

    /// Finds the page or anchor with this number of base pages that translates a page, and uses it.
    pub fn find(&mut self, asid: Asid, page: u64, pages: u64, is_page: bool) -> Option<Held> {
        let set = self.set(page, pages);
        let is_match = |held: &Held| {
            held.is_page() == is_page
                && held.pages == pages
                && held.overlaps(asid, &(page..page + 1))
                && held.covers(page)
        };
        let at = set.iter().position(is_match)?;
        let held = set.remove(at);
        set.push(held);
        Some(held)
    }

    pub fn insert(&mut self, held: Held) -> Option<Held> {
        let ways = self.ways;
        let set = self.set(held.first, held.pages);
        let key = |held: &Held| (held.asid, held.first, held.pages, held.is_page());
        set.retain(|other| key(other) != key(&held));
        let evicted = (set.len() == ways).then(|| set.remove(0));
        set.push(held);
        evicted
    }
}

/// A level of a TLB.
pub struct Level {
    arrays: Vec<Array>,
    pub misses: u64,
    /// Repeats of references whose page no array holds.
    uncached: u64,
    pub is_victim: bool,
    pub latency_cycles: u32,
}

impl Level {
    /// A level whose arrays of base pages also hold pages of `block` base pages.
    fn new(config: &TlbLevel, block: u64) -> Self {
        let array = |(name, array): (&String, &TlbArray)| {
            let PageSizes::List(sizes) = &array.page_sizes else { panic!("arrays of sizes") };
            let mut sizes: Vec<u64> = sizes.iter().map(|size| size.bytes() >> 12).collect();
            if sizes.contains(&1) {
                sizes.push(block);
            }
            sizes.sort_unstable();
            sizes.dedup();
            let ways = array.ways.of(array.entries);
            let sets = vec![Vec::new(); (array.entries / ways) as usize];
            Array { name: name.clone(), sizes, sets, ways: ways as usize, hits: 0 }
        };
        Level {
            arrays: config.arrays.iter().map(array).collect(),
            misses: 0,
            uncached: 0,
            is_victim: config.fill == Fill::Victim,
            latency_cycles: config.hit_latency_cycles,
        }
    }

    /// Looks a page up for a store or another access and its repeats: the entry, and whether it permits the access.
    pub fn look_up(
        &mut self,
        asid: Asid,
        page: u64,
        (stores, lookups): (bool, u64),
    ) -> Option<(Held, bool)> {
        for array in &mut self.arrays {
            for pages in array.sizes.clone() {
                if let Some(held) = array.find(asid, page, pages, true) {
                    let serves = !stores || held.is_writable && held.is_dirty;
                    // The repeats hit what a walk fills.
                    array.hits += if serves { lookups } else { lookups.min(1) };
                    return Some((held, serves));
                }
            }
        }
        self.misses += lookups.min(1);
        None
    }

    pub fn base_page_array(&mut self) -> &mut Array {
        self.arrays.iter_mut().find(|array| array.sizes.contains(&1)).unwrap()
    }

    /// Fills a page, or its largest part that an array holds, and returns the evicted entry.
    pub fn fill(&mut self, page: u64, held: Held, lookups: u64) -> Option<Held> {
        let repeats = lookups.saturating_sub(1);
        let mut best: Option<(usize, u64)> = None;
        for (number, array) in self.arrays.iter().enumerate() {
            for &pages in array.sizes.iter().filter(|pages| **pages <= held.pages) {
                if best.is_none_or(|(_, most)| most < pages) {
                    best = Some((number, pages));
                }
            }
        }
        let Some((number, pages)) = best else {
            self.uncached += repeats;
            return None;
        };
        let first = page / pages * pages;
        let part = Held { first, pages, frame: held.frame_of(first), ..held };
        self.arrays[number].hits += repeats;
        self.arrays[number].insert(part)
    }

    fn drop_if(&mut self, is_out: impl Fn(&Held) -> bool) {
        for set in self.arrays.iter_mut().flat_map(|array| &mut array.sets) {
            set.retain(|held| !is_out(held));
        }
    }

    pub fn drop_page(&mut self, asid: Asid, page: u64) {
        self.drop_if(|held| held.is_page() && held.overlaps(asid, &(page..page + 1)));
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        let hits = self.uncached + self.arrays.iter().map(|array| array.hits).sum::<u64>();
        let accesses = hits + self.misses;
        let arrays =
            self.arrays.iter().map(|array| (format!("{component}.{}", array.name), array.hits));
        for (component, hits) in arrays.chain([(component.to_owned(), hits)]) {
            counters.add(&component, "accesses", accesses);
            counters.add(&component, "hits", hits);
            counters.add(&component, "misses", accesses - hits);
        }
    }
}

/// Both levels of a core.
pub struct Levels {
    /// For instructions and for data.
    pub first: [Level; 2],
    pub second: Option<Level>,
}

impl Levels {
    /// Levels whose arrays of base pages also hold pages of `block` base pages.
    pub fn new(config: &TlbConfig, block: u64) -> Self {
        let FirstLevel::Split { l1i, l1d } = &config.first else { panic!("a split first level") };
        let level = |config| Level::new(config, block);
        Levels { first: [l1i, l1d].map(level), second: config.l2.as_ref().map(level) }
    }

    pub fn fill_first(&mut self, side: usize, page: u64, held: Held, lookups: u64) {
        let evicted = self.first[side].fill(page, held, lookups);
        if let (Some(evicted), Some(second)) = (evicted, &mut self.second)
            && second.is_victim
        {
            second.fill(evicted.first, evicted, 1);
        }
    }

    pub fn drop_if(&mut self, is_out: impl Fn(&Held) -> bool) {
        self.first.iter_mut().chain(&mut self.second).for_each(|level| level.drop_if(&is_out));
    }

    pub fn report(&self, counters: &mut Counters) {
        for (level, name) in self.first.iter().zip(["tlb.l1i", "tlb.l1d"]) {
            level.report(name, counters);
        }
        self.second.iter().for_each(|level| level.report("tlb.l2", counters));
    }
}
