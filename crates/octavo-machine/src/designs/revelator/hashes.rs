//! The hash functions: frames in which the operating system places a page first, and in which hardware looks for it.

use octavo_os::frames::{Frames, Order};
use octavo_os::page_table::{DesignCounter, INDEX_BITS, NodePlace};
use octavo_os::{Placement, ProcessId};
use octavo_trace::splitmix;
use octavo_types::{FrameNumber, PageNumber};

/// Most hash functions.
pub const MAX_FUNCTIONS: u32 = 6;

/// The function for nodes of page tables: none of those for pages, since a page and a node of the same number, which a
/// guest's memory has, would compete for one frame.
const OF_NODES: usize = 7;

/// Counters of the pages that each function has placed.
const PLACED: [&str; MAX_FUNCTIONS as usize] = [
    "hash_1_pages",
    "hash_2_pages",
    "hash_3_pages",
    "hash_4_pages",
    "hash_5_pages",
    "hash_6_pages",
];

/// The hash functions of a memory, and how many pages each has placed.
pub struct Hashes {
    /// The frames of local memory.
    frames: u64,
    /// Pages by the function that has placed them.
    placed: Vec<u64>,
    /// Pages for which no frame that a function gives was free.
    unhashed: u64,
}

impl Hashes {
    /// At least one function, for the local part of a memory.
    pub fn new(functions: u32, frames: &Frames) -> Self {
        let local = frames.buddy().tiers().next().expect("a memory has local memory");
        Hashes { frames: local.end, placed: vec![0; functions as usize], unhashed: 0 }
    }

    /// The frame that a function gives for a page.
    fn frame(&self, function: usize, process: ProcessId, page: u64) -> FrameNumber {
        frame(self.frames, function, process, page)
    }

    /// The frame of the node of level 1 for a page.
    pub fn node(&self, process: ProcessId, page: PageNumber) -> FrameNumber {
        self.frame(OF_NODES, process, page.raw() >> INDEX_BITS)
    }

    /// The candidate frames of a page: those of the functions that have placed at least `min_percent` of all pages.
    pub fn candidates(
        &self,
        process: ProcessId,
        page: PageNumber,
        min_percent: u32,
    ) -> impl Iterator<Item = FrameNumber> {
        let all = self.placed.iter().sum::<u64>() + self.unhashed;
        let is_likely = move |placed: u64| placed * 100 >= all * u64::from(min_percent);
        let functions = self.placed.iter().enumerate();
        let likely = functions.filter(move |(_, placed)| is_likely(**placed));
        likely.map(move |(function, _)| self.frame(function, process, page.raw()))
    }
}

fn frame(frames: u64, function: usize, process: ProcessId, page: u64) -> FrameNumber {
    let key = page ^ u64::from(process.0) << 45 ^ (function as u64) << 61;
    FrameNumber::new(splitmix(key) % frames)
}

impl Placement for Hashes {
    fn choose(
        &mut self,
        frames: &Frames,
        process: ProcessId,
        page: PageNumber,
    ) -> Option<FrameNumber> {
        for function in 0..self.placed.len() {
            let frame = self.frame(function, process, page.raw());
            if frames.is_free(frame, Order::BASE) {
                self.placed[function] += 1;
                return Some(frame);
            }
        }
        self.unhashed += u64::from(frames.free_frames() > 0);
        None
    }

    fn node_place(&self, process: ProcessId) -> Option<NodePlace> {
        let frames = self.frames;
        Some(Box::new(move |page| frame(frames, OF_NODES, process, page.raw() >> INDEX_BITS)))
    }

    fn assumed_frame(&self, process: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        Some(self.frame(0, process, page.raw()))
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let placed = PLACED.iter().zip(&self.placed).map(|(name, pages)| (*name, *pages));
        let all = placed.chain([("unhashed_pages", self.unhashed)]);
        all.map(|(name, value)| DesignCounter { name, value, is_level: false }).collect()
    }
}
