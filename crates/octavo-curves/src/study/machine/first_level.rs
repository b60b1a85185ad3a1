//! The first level of one side and page size: a set-associative LRU array, which records the hits of pages in
//! the front only when they leave it.

use std::collections::VecDeque;
use std::ops::Range;

use octavo_hw::KeyIndex;

use super::ArrayShape;
use crate::study::front::{FRONT, Front};

/// The time of an entry that is used by a page of the front, which has the time of its last use.
const IN_FRONT: u64 = u64::MAX;
/// No page.
const NO_KEY: u64 = u64::MAX;
/// Sets with more ways are not scanned.
const MAX_SCANNED_WAYS: usize = 16;

/// An array. The number of an entry is set times ways plus way.
pub struct FirstLevel {
    shift: u8,
    sets: u64,
    ways: usize,
    /// The page number of each entry, in units of the entry's size.
    keys: Box<[u64]>,
    /// The time of the last use of each entry; 0 if it is free.
    times: Box<[u64]>,
    /// For each entry of base pages that is used by a page of the front, the slot of that page.
    slots: Box<[u8]>,
    /// Whether the page of each entry may be stored to without a walk.
    pub ready: Box<[bool]>,
    /// The index, if sets are too wide to be scanned.
    wide: Option<Wide>,
}

/// An index of the entries of wide sets.
struct Wide {
    /// The entries that hold a page.
    index: KeyIndex,
    /// The number of entries that hold a page.
    held: usize,
    /// If there is one set: its entries with the times of their uses, the earliest first. An element is outdated
    /// if its entry has another time now.
    queue: VecDeque<(u32, u64)>,
}

impl Wide {
    fn new(entries: usize) -> Self {
        Wide { index: KeyIndex::new(entries), held: 0, queue: VecDeque::new() }
    }
}

impl FirstLevel {
    /// An empty array.
    pub fn new(shape: &ArrayShape) -> Self {
        let entries = shape.entries() as usize;
        assert!(entries > 0, "an array has entries");
        let is_wide = shape.ways as usize > MAX_SCANNED_WAYS;
        FirstLevel {
            shift: shape.entry_size.base_shift(),
            sets: shape.sets.into(),
            ways: shape.ways as usize,
            keys: vec![NO_KEY; entries].into(),
            times: vec![0; entries].into(),
            slots: vec![0; entries].into(),
            ready: vec![false; entries].into(),
            wide: is_wide.then(|| Wide::new(entries)),
        }
    }

    /// log2 of the base pages that an entry covers.
    #[inline(always)]
    pub fn shift(&self) -> u8 {
        self.shift
    }

    /// The entries of the set that a page goes to.
    #[inline(always)]
    fn set_of(&self, key: u64) -> Range<usize> {
        let is_power = self.sets & (self.sets - 1) == 0;
        let set = if is_power { key & (self.sets - 1) } else { key % self.sets };
        let first = set as usize * self.ways;
        first..first + self.ways
    }

    /// The entry that holds a base page.
    #[inline(always)]
    pub fn find(&self, page: u64) -> Option<usize> {
        self.find_key(page >> self.shift)
    }

    #[inline(always)]
    fn find_key(&self, key: u64) -> Option<usize> {
        if let Some(wide) = &self.wide {
            return wide.index.find(&self.keys, key, 0, self.keys.len());
        }
        let set = self.set_of(key);
        let way = self.keys[set.clone()].iter().position(|held| *held == key);
        way.map(|way| set.start + way)
    }

    #[inline(always)]
    fn set_entry_time(&mut self, entry: usize, time: u64) {
        self.times[entry] = time;
        if let Some(wide) = &mut self.wide
            && self.sets == 1
        {
            wide.queue.push_back((entry as u32, time));
            if wide.queue.len() > 8 * self.keys.len() {
                wide.queue.retain(|(entry, time)| self.times[*entry as usize] == *time);
            }
        }
    }

    /// The entry of a page's set with the least time: a free entry, if there is any.
    #[inline(always)]
    fn oldest(&mut self, key: u64) -> usize {
        if self.wide.is_some() && self.sets == 1 {
            return self.oldest_of_all();
        }
        let set = self.set_of(key);
        let least = |best: (u64, usize), now: (u64, usize)| if now.0 < best.0 { now } else { best };
        let times = self.times[set.clone()].iter().copied();
        times.zip(set.clone()).fold((u64::MAX, set.start), least).1
    }

    /// As [`FirstLevel::oldest`], if there is only one set.
    fn oldest_of_all(&mut self) -> usize {
        let wide = self.wide.as_mut().expect("the set is wide");
        if wide.held < self.keys.len() {
            return self.times.iter().position(|time| *time == 0).expect("one is free");
        }
        while let Some((entry, time)) = wide.queue.front() {
            if self.times[*entry as usize] == *time {
                return *entry as usize;
            }
            wide.queue.pop_front();
        }
        // All entries are used by pages of the front.
        0
    }

    /// Fills an entry for a page of the front, which has missed.
    #[inline(always)]
    pub fn fill_for_front(&mut self, page: u64, slot: usize, front: &mut Front) -> usize {
        let key = page >> self.shift;
        let mut entry = self.oldest(key);
        if self.times[entry] == IN_FRONT {
            entry = self.victim_in_front(key, front);
            if self.shift == 0 {
                front.forbid(self.slots[entry].into());
            } else {
                front.forbid_pages(self.keys[entry], self.shift);
            }
        }
        self.hold(entry, key);
        self.ready[entry] = false;
        self.use_by_front(entry, slot);
        entry
    }

    /// Records that the page of the front in `slot` uses an entry.
    #[inline(always)]
    pub fn use_by_front(&mut self, entry: usize, slot: usize) {
        self.times[entry] = IN_FRONT;
        self.slots[entry] = slot as u8;
    }

    /// The victim, if pages of the front use all entries of the set.
    #[inline(never)]
    fn victim_in_front(&self, key: u64, front: &Front) -> usize {
        let set = self.set_of(key);
        if self.shift == 0 {
            let used = |entry: &usize| front.used(self.slots[*entry].into());
            return set.min_by_key(used).expect("a set has entries");
        }
        // Each page of the front uses one entry.
        let mut used = [0; FRONT];
        for (page, time) in front.uses() {
            if let Some(entry) = self.find(page)
                && set.contains(&entry)
            {
                let way = entry - set.start;
                used[way] = used[way].max(time);
            }
        }
        set.clone().min_by_key(|entry| used[entry - set.start]).expect("a set has entries")
    }

    /// Replaces the page of an entry.
    #[inline(always)]
    fn hold(&mut self, entry: usize, key: u64) {
        let before = std::mem::replace(&mut self.keys[entry], key);
        if let Some(wide) = &mut self.wide {
            match before {
                NO_KEY => wide.held += 1,
                _ => wide.index.remove(before, entry),
            }
            wide.index.add(key, entry);
        }
    }

    /// Records that the last page of the front that used the entry of a page has left the front. Its last use was at
    /// `time`.
    #[inline(always)]
    pub fn leave_front(&mut self, page: u64, time: u64) {
        if let Some(entry) = self.find(page) {
            self.set_entry_time(entry, time);
        }
    }

    /// Invalidates the entries that cover any of these base pages. Returns whether there were any.
    pub fn invalidate(&mut self, pages: Range<u64>) -> bool {
        if pages.is_empty() {
            return false;
        }
        let keys = pages.start >> self.shift..=(pages.end - 1) >> self.shift;
        let mut any = false;
        if keys.end() - keys.start() < 16 {
            for key in keys {
                if let Some(entry) = self.find_key(key) {
                    any = true;
                    self.free(entry);
                }
            }
            return any;
        }
        for entry in 0..self.keys.len() {
            if self.keys[entry] != NO_KEY && keys.contains(&self.keys[entry]) {
                any = true;
                self.free(entry);
            }
        }
        any
    }

    fn free(&mut self, entry: usize) {
        if let Some(wide) = &mut self.wide {
            wide.index.remove(self.keys[entry], entry);
            wide.held -= 1;
        }
        self.keys[entry] = NO_KEY;
        self.times[entry] = 0;
        self.ready[entry] = false;
    }
}
