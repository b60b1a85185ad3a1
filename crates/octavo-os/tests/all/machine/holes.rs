//! A TLB of unlimited size that caches pages with holes.

use std::collections::BTreeMap;

use octavo_os::vmas::Pages;
use octavo_os::{Memory, ProcessId};
use octavo_types::{FrameNumber, PageNumber};

/// Entries of pages with holes and their bitmaps, and nodes of holes.
#[derive(Default)]
pub struct CachedPagesWithHoles {
    /// By region of 512 pages: first frame, filter, and store permission.
    pages: BTreeMap<(ProcessId, u64), (FrameNumber, u8, bool)>,
    /// Bitmap words, by 32 pages.
    words: BTreeMap<(ProcessId, u64), u32>,
    /// The shadow node and the node of holes, by region.
    nodes: BTreeMap<(ProcessId, u64), [FrameNumber; 2]>,
}

impl CachedPagesWithHoles {
    /// Fills the entry of a walked page.
    pub fn walked(&mut self, memory: &Memory, process: ProcessId, page: PageNumber) {
        let Some(walked) = memory.process(process).table.page_with_holes(page) else { return };
        let region = walked.region;
        let key = (process, page.raw() / 512);
        self.pages.insert(key, (region.frame, walked.filter, region.rights.write));
        self.nodes.insert(key, walked.hole_steps.map(|step| step.at.frame()));
        let word = memory.frames.hole_bitmaps().word(region.frame_of(page));
        // Cached words are not read again.
        let word = *self.words.entry((process, page.raw() / 32)).or_insert(word);
        let bit = word >> (page.raw() % 32) & 1 != 0;
        let filtered = walked.filter >> (page.raw() % 512 / 64) & 1 == 0;
        assert!(bit || !walked.is_hole, "a hole has its bit");
        assert!(!filtered || !walked.is_hole, "a hole has its bit in the filter");
    }

    /// Drops the entries of these pages.
    pub fn invalidate(&mut self, process: ProcessId, pages: &Pages) {
        let overlaps = |owner: ProcessId, number: u64, log2: u32| {
            let (start, end) = (number << log2, (number + 1) << log2);
            owner == process && start < pages.end && pages.start < end
        };
        self.pages.retain(|(owner, region), _| !overlaps(*owner, *region, 9));
        self.nodes.retain(|(owner, region), _| !overlaps(*owner, *region, 9));
        self.words.retain(|(owner, word), _| !overlaps(*owner, *word, 5));
    }

    /// Drops the entries of a process.
    pub fn end(&mut self, process: ProcessId) {
        self.invalidate(process, &(0..u64::MAX));
    }

    /// Checks that every base page that the cached state rules out as a hole is mapped in its place.
    pub fn check(&self, memory: &Memory) {
        for ((process, region), (frame, filter, write)) in &self.pages {
            for at in 0..512 {
                let page = PageNumber::new(region * 512 + at);
                let filtered = filter >> (at / 64) & 1 == 0;
                let word = self.words.get(&(*process, page.raw() / 32));
                let is_part = word.is_some_and(|word| word >> (at % 32) & 1 == 0);
                if filtered || is_part {
                    let table = &memory.process(*process).table;
                    // Otherwise a denied store would find the page again and again.
                    assert!(table.is_part(page), "{page:?} is stale: it is a hole now");
                    let leaf = table.leaf(page);
                    let leaf = leaf.unwrap_or_else(|| panic!("{page:?} is stale: no hole"));
                    assert_eq!(leaf.frame_of(page), frame.plus(at), "{page:?} is stale: no hole");
                    assert!(leaf.rights.write || !write, "{page:?} is stale: no stores now");
                }
            }
        }
        for ((process, region), nodes) in &self.nodes {
            let now = memory.process(*process).table.page_with_holes(PageNumber::new(region * 512));
            let now = now.expect("it has holes still").hole_steps;
            assert_eq!(now.map(|step| step.at.frame()), *nodes, "nodes of {region} are stale");
        }
    }
}
