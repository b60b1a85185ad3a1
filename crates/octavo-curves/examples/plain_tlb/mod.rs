//! One set-associative TLB as anybody would write it.

use octavo_curves::Stream;
use octavo_types::{Consumer, Event, Segment, VirtAddr};

use crate::loaded::each_reference;

const NO_PAGE: u64 = u64::MAX;

/// Sets of pages, the most recently used one first, asked for each page of each reference.
pub struct PlainTlb {
    stream: Stream,
    pages: Vec<u64>,
    set_mask: usize,
    ways: usize,
    /// What was not found.
    pub misses: u64,
}

impl PlainTlb {
    /// An empty one of 2^`sets_log2` sets.
    pub fn new(stream: Stream, sets_log2: u8, ways: usize) -> Self {
        let sets = 1 << sets_log2;
        PlainTlb { stream, pages: vec![NO_PAGE; sets * ways], set_mask: sets - 1, ways, misses: 0 }
    }

    #[inline(always)]
    fn reference(&mut self, first: u64, last: u64) {
        self.look_up(first);
        if last != first {
            self.look_up(last);
        }
    }

    #[inline(always)]
    fn look_up(&mut self, page: u64) {
        let set = page as usize & self.set_mask;
        let pages = &mut self.pages[set * self.ways..][..self.ways];
        let found = pages.iter().position(|held| *held == page);
        self.misses += u64::from(found.is_none());
        let way = found.unwrap_or(pages.len() - 1);
        pages.copy_within(..way, 1);
        pages[0] = page;
    }
}

impl Consumer for PlainTlb {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let stream = self.stream;
        each_reference(stream, segment, addresses, |first, last| self.reference(first, last));
    }

    fn event(&mut self, _: &Event) {}
}
