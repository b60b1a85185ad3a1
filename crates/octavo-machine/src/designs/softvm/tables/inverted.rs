//! An entry of 16 bytes for each frame, chained from a table of anchors (4 bytes each, as many as there are
//! frames, rounded up to a power of two) by a hash of the page: its segment's number and its own, exclusive or,
//! as PowerPC's. A frame has one entry: where it is mapped at several addresses, the one that was asked for last
//! has it, and another one's miss goes through its whole chain before the operating system puts it there.

use octavo_hw::GlobalAddr;
use octavo_types::{FrameNumber, PageSize, PhysAddr};
use rustc_hash::FxHashMap;

/// Bytes of an entry of an inverted table.
const ENTRY_BYTES: u64 = 16;
/// Bytes of an anchor.
const ANCHOR_BYTES: u64 = 4;
/// Where both tables lie: above all frames, so that they are nobody else's.
const ANCHORS: u64 = 1 << 43;
const ENTRIES: u64 = 1 << 44;
/// Pages of a segment.
const SEGMENT_PAGES_LOG2: u32 = 16;

/// An inverted table.
#[derive(Default)]
pub struct Inverted {
    anchors: u64,
    /// By anchor, the pages and their frames, what was put there last first.
    chains: FxHashMap<u64, Vec<(u64, FrameNumber)>>,
    /// By frame, its page.
    pages: FxHashMap<FrameNumber, u64>,
}

impl Inverted {
    /// An empty one, for so many frames.
    pub fn new(frames: u64) -> Self {
        Inverted { anchors: frames.next_power_of_two(), ..Inverted::default() }
    }

    fn anchor(&self, page: u64) -> u64 {
        let in_segment = page & ((1 << SEGMENT_PAGES_LOG2) - 1);
        (in_segment ^ page >> SEGMENT_PAGES_LOG2) & (self.anchors - 1)
    }

    /// What a handler loads, in order, to find an address whose page lies in `frame`.
    pub fn loads(&mut self, addr: GlobalAddr, frame: FrameNumber) -> Vec<PhysAddr> {
        let page = addr.raw() >> PageSize::BASE.log2();
        let anchor = self.anchor(page);
        let chain = self.chains.entry(anchor).or_default();
        let found = chain.iter().position(|held| *held == (page, frame));
        let read = found.map_or(chain.len(), |place| place + 1);
        let entries = chain[..read].iter().map(|(_, frame)| ENTRIES + frame.raw() * ENTRY_BYTES);
        let loads = [ANCHORS + anchor * ANCHOR_BYTES].into_iter().chain(entries);
        let loads = loads.map(PhysAddr::new).collect();
        if found.is_none() {
            self.put(page, anchor, frame);
        }
        loads
    }

    /// A frame gets another page than it had.
    fn put(&mut self, page: u64, anchor: u64, frame: FrameNumber) {
        if let Some(before) = self.pages.insert(frame, page) {
            let of_before = self.anchor(before);
            let chain = self.chains.get_mut(&of_before).expect("it was put there");
            chain.retain(|(_, held)| *held != frame);
        }
        self.chains.entry(anchor).or_default().insert(0, (page, frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_gone_through_to_the_page() {
        let mut table = Inverted::new(1 << 4);
        let addr = |page: u64| GlobalAddr::new(page << 12);
        let frame = FrameNumber::new;
        let mut asked = |page, of| -> Vec<u64> {
            table.loads(addr(page), frame(of)).iter().map(|at| at.raw()).collect()
        };
        let anchor = ANCHORS + 3 * 4;
        let entry = |of: u64| ENTRIES + of * 16;
        assert_eq!(asked(3, 7), [anchor]);
        assert_eq!(asked(3, 7), [anchor, entry(7)]);
        assert_eq!(asked(19, 8), [anchor, entry(7)], "a chain without it");
        assert_eq!(asked(3, 7), [anchor, entry(8), entry(7)]);
        // The frame gets another page: its entry leaves the chain.
        assert_eq!(asked(4, 8), [ANCHORS + 16]);
        assert_eq!(asked(3, 7), [anchor, entry(7)]);
        // The segment's number is in the hash.
        assert_eq!(asked(1 << 16 | 2, 9), [anchor, entry(7)]);
    }
}
