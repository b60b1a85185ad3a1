//! The TLBs of one stream, under the policy that all streams of an address space share.

use octavo_trace::Stream;
use octavo_types::Instructions;

use super::TwoSizesConfig;
use super::cores::Cores;
use super::page::Page;
use super::window::KINDS;

/// Fetches and data, as [`KINDS`] number them.
pub const FETCH: usize = 0;
/// See [`FETCH`].
pub const DATA: usize = 1;

/// The TLBs of one stream, on all cores.
pub struct Group {
    pub stream: Stream,
    pub cores: Cores,
    /// Whether references of a kind are looked up.
    looks_up: [bool; KINDS],
}

impl Group {
    /// Empty TLBs.
    pub fn new(stream: Stream, config: &TwoSizesConfig, instructions: Instructions) -> Self {
        let looks_up = match stream {
            Stream::Fetch => [true, false],
            Stream::Data => [false, true],
            Stream::All => [true, true],
        };
        Group { stream, cores: Cores::new(config, instructions), looks_up }
    }

    /// The kind that the stream consists of; `None` for both kinds.
    pub fn kind(&self) -> Option<usize> {
        match self.stream {
            Stream::Fetch => Some(FETCH),
            Stream::Data => Some(DATA),
            Stream::All => None,
        }
    }

    /// Looks up a page, if references of the kind are looked up. Returns whether the steps must be processed before the
    /// next touch.
    #[inline(always)]
    pub fn page(&mut self, kind: usize, page: Page) -> bool {
        self.looks_up[kind] && self.cores.running().page(page)
    }

    /// Looks up the last two pages in alternation, `times` times in all, if references of both kinds are looked up.
    /// (Otherwise the same page is the last one all the time.)
    #[inline(always)]
    pub fn alternate(&mut self, kinds: [usize; 2], times: u32) {
        if kinds.iter().all(|kind| self.looks_up[*kind]) {
            self.cores.running().alternate(times);
        }
    }

    /// Counts look-ups by kind, of small pages and of large ones.
    pub fn count(&mut self, lookups: [[u64; 2]; KINDS]) {
        for (lookups, _) in lookups.into_iter().zip(self.looks_up).filter(|(_, looks_up)| *looks_up)
        {
            self.cores.count(lookups);
        }
    }
}
