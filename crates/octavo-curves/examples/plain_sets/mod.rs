//! A straightforward implementation of one set-associative TLB or cache.

use octavo_curves::Stream;
use octavo_trace::StreamConsumer;
use octavo_types::{Consumer, Event, Segment, VirtAddr};

use crate::loaded::each_reference;

const NO_PAGE: u64 = u64::MAX;

/// LRU sets of pages or lines, the most recently used first. Each page or line of each reference is looked up.
pub struct PlainSets {
    stream: Stream,
    /// log2 of the bytes of a page or line.
    log2: u8,
    pages: Vec<u64>,
    set_mask: usize,
    ways: usize,
    /// Misses.
    pub misses: u64,
}

impl PlainSets {
    /// Empty: 2^`sets_log2` sets of `ways` pages or lines of 2^`log2` bytes.
    pub fn new(stream: Stream, log2: u8, sets_log2: u8, ways: usize) -> Self {
        let sets = 1 << sets_log2;
        PlainSets {
            stream,
            log2,
            pages: vec![NO_PAGE; sets * ways],
            set_mask: sets - 1,
            ways,
            misses: 0,
        }
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

impl Consumer for PlainSets {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let stream = self.stream;
        each_reference(stream, segment, addresses, self.log2, |first, last| {
            self.reference(first, last)
        });
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for PlainSets {}
