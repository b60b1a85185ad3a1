//! An inverted page table: an entry of 16 bytes per frame, chained from a table of anchors (4 bytes each, as
//! many as frames, rounded up to a power of two). The hash is that of PowerPC: segment number XOR page
//! number. A frame has one entry: if it is mapped at several addresses, the one requested last owns it, and a
//! miss of another address searches its whole chain before the operating system moves the entry.

use octavo_hw::GlobalAddr;
use octavo_types::{FrameNumber, PageSize, PhysAddr};
use rustc_hash::FxHashMap;

/// Bytes of an entry of an inverted table.
const ENTRY_BYTES: u64 = 16;
/// Bytes of an anchor.
const ANCHOR_BYTES: u64 = 4;
/// Physical addresses of both tables, above all frames.
const ANCHORS: u64 = 1 << 43;
const ENTRIES: u64 = 1 << 44;
/// log2 of the pages of a segment.
const SEGMENT_PAGES_LOG2: u32 = 16;

/// An inverted table.
#[derive(Default)]
pub struct Inverted {
    anchors: u64,
    /// The chain of each anchor: pages with their frames, newest first.
    chains: FxHashMap<u64, Vec<(u64, FrameNumber)>>,
    /// The page of each frame.
    pages: FxHashMap<FrameNumber, u64>,
}

impl Inverted {
    /// An empty table for `frames` frames.
    pub fn new(frames: u64) -> Self {
        Inverted { anchors: frames.next_power_of_two(), ..Inverted::default() }
    }

    fn anchor(&self, page: u64) -> u64 {
        let in_segment = page & ((1 << SEGMENT_PAGES_LOG2) - 1);
        (in_segment ^ page >> SEGMENT_PAGES_LOG2) & (self.anchors - 1)
    }

    /// The entries that a handler loads, in order, to translate an address whose page lies in `frame`.
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

    /// Moves the entry of a frame to another page.
    fn put(&mut self, page: u64, anchor: u64, frame: FrameNumber) {
        if let Some(before) = self.pages.insert(frame, page) {
            let old_anchor = self.anchor(before);
            let chain = self.chains.get_mut(&old_anchor).expect("it was put there");
            chain.retain(|(_, held)| *held != frame);
        }
        self.chains.entry(anchor).or_default().insert(0, (page, frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverted_table_loads_the_chain_up_to_the_page() {
        let mut table = Inverted::new(1 << 4);
        let addr = |page: u64| GlobalAddr::new(page << 12);
        let frame = FrameNumber::new;
        let mut asked = |page, number| -> Vec<u64> {
            table.loads(addr(page), frame(number)).iter().map(|at| at.raw()).collect()
        };
        let anchor = ANCHORS + 3 * 4;
        let entry = |number: u64| ENTRIES + number * 16;
        assert_eq!(asked(3, 7), [anchor]);
        assert_eq!(asked(3, 7), [anchor, entry(7)]);
        assert_eq!(asked(19, 8), [anchor, entry(7)], "a chain without it");
        assert_eq!(asked(3, 7), [anchor, entry(8), entry(7)]);
        // The entry of a frame with a new page leaves its old chain.
        assert_eq!(asked(4, 8), [ANCHORS + 16]);
        assert_eq!(asked(3, 7), [anchor, entry(7)]);
        // The hash includes the segment number.
        assert_eq!(asked(1 << 16 | 2, 9), [anchor, entry(7)]);
    }
}
