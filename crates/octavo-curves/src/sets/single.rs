//! One set-associative TLB: the baseline for the speed of simulating all TLBs at once.

use octavo_trace::{Relocation, Segments, Stream, StreamConsumer};
use octavo_types::{Consumer, Event, Instructions, PageSize, Segment, VirtAddr};

use super::pages::{Page, Pages};
use super::{MAX_SETS_LOG2, SetIndex};
use crate::lanes::{Lanes, MAX_WAYS, Machine, Work, run, up_to_first};
use crate::sizes::Sizes;
use crate::touches::{Kernel, MOST_WORDS, Rows, Splitter, Touches};

/// One set-associative LRU TLB of one stream, as an engine of its own: a baseline for speed.
///
/// Touches are made as in [`crate::Curves`]. With portable instructions a set is searched way by way;
/// with others, all its ways are compared at once.
pub struct SingleSets {
    rows: Rows,
    splitter: Splitter,
    tlb: Single,
    emptied: Touches,
}

impl SingleSets {
    /// An empty TLB of 2^`sets_log2` (at most [`MAX_SETS_LOG2`]) sets of 1 to [`MAX_WAYS`] ways.
    pub fn new(
        stream: Stream,
        page_size: PageSize,
        index: SetIndex,
        sets_log2: u8,
        ways: usize,
        instructions: Instructions,
    ) -> Self {
        SingleSets {
            rows: Rows::new(Sizes::new(vec![page_size]), Relocation::default()),
            splitter: Splitter::new(stream),
            tlb: Single::new(page_size, index, sets_log2, ways, instructions),
            emptied: Touches::default(),
        }
    }

    /// Misses so far.
    pub fn misses(&mut self) -> u64 {
        self.dispatch();
        self.tlb.misses
    }

    fn dispatch_if_full(&mut self) {
        if self.splitter.is_full() {
            self.dispatch();
        }
    }

    fn dispatch(&mut self) {
        let batch = self.splitter.take(std::mem::take(&mut self.emptied));
        self.tlb.process(&batch, &self.rows);
        self.emptied = batch;
    }
}

impl Consumer for SingleSets {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.splitter.segment(segment, addresses, &mut self.rows);
        self.dispatch_if_full();
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for SingleSets {
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        let words = &words[..words.len().min(MOST_WORDS)];
        let taken_words = self.splitter.executions(segments, words, &mut self.rows);
        self.dispatch_if_full();
        taken_words
    }
}

/// The kernel.
struct Single {
    pages: Pages,
    sets: Vec<Lanes>,
    ways: usize,
    at_once: Option<Instructions>,
    last: Page,
    misses: u64,
}

impl Single {
    fn new(
        page_size: PageSize,
        index: SetIndex,
        sets_log2: u8,
        ways: usize,
        instructions: Instructions,
    ) -> Self {
        let sets_log2 = sets_log2.min(MAX_SETS_LOG2);
        let plain = instructions == Instructions::PORTABLE;
        Single {
            pages: Pages::new(page_size, index, sets_log2),
            sets: vec![Lanes::EMPTY; 1 << sets_log2],
            ways: ways.clamp(1, MAX_WAYS),
            at_once: (!plain).then_some(instructions),
            last: Page::NONE,
            misses: 0,
        }
    }

    /// Looks up an id way by way, moving each way back by one. Returns whether it hit.
    #[inline(always)]
    fn touch(ways: &mut [u32], id: u32) -> bool {
        let mut moved = id;
        for way in ways {
            std::mem::swap(way, &mut moved);
            if moved == id {
                return true;
            }
        }
        false
    }
}

impl Kernel for Single {
    fn process(&mut self, batch: &Touches, rows: &Rows) {
        self.pages.follow(rows, |_, _| ());
        if let Some(instructions) = self.at_once {
            return run(instructions, AtOnce { tlb: self, batch });
        }
        let by_row = self.pages.by_row();
        for page in batch.touches.iter().map(|touch| by_row[touch.row().index()]) {
            if page != self.last {
                self.last = page;
                let set = &mut self.sets[page.index_bits() as usize];
                self.misses += u64::from(!Self::touch(&mut set.0[..self.ways], page.id()));
            }
        }
    }

    fn flush(&mut self, _: u64) {
        self.sets.fill(Lanes::EMPTY);
        self.last = Page::NONE;
    }
}

/// The processing of a batch that compares all ways of a set at once.
struct AtOnce<'a> {
    tlb: &'a mut Single,
    batch: &'a Touches,
}

impl Work for AtOnce<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let Single { pages, sets, ways, last, misses, .. } = self.tlb;
        let by_row = pages.by_row();
        let ways = (1 << *ways) - 1;
        for page in self.batch.touches.iter().map(|touch| by_row[touch.row().index()]) {
            if page != *last {
                *last = page;
                let set = &mut sets[page.index_bits() as usize];
                let at = machine.equal(set, page.id()) & ways;
                machine.push(set, page.id(), up_to_first(at));
                *misses += u64::from(at == 0);
            }
        }
    }
}
