//! Merging of contiguous pages (Guvenilir and Patt, ISCA 2020, Section III-B.3): "a page merge is possible
//! when two appropriately aligned and adjacent frames map contiguous virtual address space with identical
//! permissions."

use octavo_types::{PageNumber, PageSize};

use super::{Memory, ProcessId, around, base_pages};
use crate::frames::OutOfMemory;
use crate::page_table::Leaf;
use crate::vmas::Pages;

impl Memory {
    /// Merges the pages of a range into larger pages of allowed sizes, without moving data. Only private
    /// pages are merged. Returns the number of new pages.
    pub fn merge_pages(&mut self, process: ProcessId, pages: &Pages) -> Result<u64, OutOfMemory> {
        let own = self.leaves(process, pages).into_iter().filter(|leaf| !self.is_shared(leaf));
        // Runs merged so far, each larger than the next or not adjacent to it.
        let mut runs: Vec<Leaf> = Vec::new();
        for leaf in own {
            runs.push(leaf);
            while let [.., first, second] = runs.as_slice() {
                let Some(merged) = merged(first, second) else { break };
                runs.truncate(runs.len() - 2);
                runs.push(merged);
            }
        }
        let mut made = 0;
        for run in runs {
            made += self.make_large(process, run)?;
        }
        Ok(made)
    }

    /// Maps a run by the largest allowed pages, unless it is so mapped already.
    fn make_large(&mut self, process: ProcessId, run: Leaf) -> Result<u64, OutOfMemory> {
        let now = self.process(process).table.leaf(run.page).expect("a run is mapped").size;
        if now >= run.size {
            return Ok(0);
        }
        if self.sizes().contains(&run.size) {
            self.grow(process, run.page, run.size, run.frame, run.rights)?;
            return Ok(1);
        }
        let size = PageSize::from_log2(run.size.log2() - 1).expect("larger than a base page");
        let (half, mut made) = (base_pages(size), 0);
        for at in [0, half] {
            let page = PageNumber::new(run.page.raw() + at);
            made +=
                self.make_large(process, Leaf { page, frame: run.frame.plus(at), size, ..run })?;
        }
        Ok(made)
    }
}

/// Two pages as one, if they are its halves.
fn merged(first: &Leaf, second: &Leaf) -> Option<Leaf> {
    let size = PageSize::from_log2(first.size.log2() + 1)?;
    let half = base_pages(first.size);
    let are_halves = first.size == second.size
        && around(first.page, size).start == first.page.raw()
        && second.page.raw() == first.page.raw() + half
        && first.frame.raw().is_multiple_of(base_pages(size))
        && second.frame == first.frame.plus(half)
        && first.rights == second.rights;
    are_halves.then_some(Leaf { size, ..*first })
}
