//! Conservation of frames: references equal actual uses.

use octavo_types::{FrameNumber, PageSize};
use rustc_hash::FxHashMap;

use super::{EVERYTHING, Memory, frames_of};
use crate::frames::{Order, Owner};

impl Memory {
    /// Frames mapped by page tables or kept by objects, each counted once.
    pub fn frames_in_use(&self) -> u64 {
        self.nodes() + self.shadows() + self.count_references().len() as u64
    }

    /// Checks all invariants: data frames are exactly the frames that page tables map and objects keep, each
    /// with its number of references; page-table frames are nodes; and
    /// [`Frames::check`](crate::frames::Frames::check) holds. Returns the first error.
    pub fn check(&self) -> Result<(), String> {
        self.frames.check()?;
        let references = self.count_references();
        for (frame, count) in &references {
            if self.frames.owner(*frame) != Some(Owner::Data) {
                return Err(format!("frame {} is in use and no data", frame.raw()));
            }
            let recorded = self.references.extra(*frame) + 1;
            if recorded != *count {
                return Err(format!(
                    "frame {} has {count} references, not {recorded}",
                    frame.raw()
                ));
            }
        }
        let shared = references.values().filter(|count| **count > 1).count() as u64;
        if shared != self.references.shared_frames() {
            return Err(format!(
                "{} frames are noted as shared, and {shared} are",
                self.references.shared_frames()
            ));
        }
        let held = |owner, used: u64| match self.frames.used_frames(owner) {
            held if held == used => Ok(()),
            held => Err(format!("{held} frames belong to {owner}, but {used} are used")),
        };
        held(Owner::Data, references.len() as u64)?;
        held(Owner::PageTable, self.nodes())?;
        held(Owner::Shadow, self.shadows())?;
        self.check_holes()?;
        self.check_gaps()?;
        self.check_blocks()?;
        self.check_anchors()?;
        self.processes.iter().flatten().try_for_each(|space| space.table.check_sorted())?;
        self.check_pages()
    }

    /// Checks the page counts of page tables, by size.
    fn check_pages(&self) -> Result<(), String> {
        for process in self.live() {
            let mut counted = [0; Order::COUNT];
            let table = &self.process(process).table;
            let leaves = self.leaves(process, &EVERYTHING).into_iter();
            for leaf in leaves.filter(|leaf| !table.is_part(leaf.page)) {
                counted[Order::of(leaf.size).index()] += 1;
            }
            for (order, counted) in Order::all().zip(counted) {
                let size = order.page_size();
                let expected = self.process(process).table.pages(size);
                if expected != counted {
                    return Err(format!("{counted} pages of {size} are mapped, not {expected}"));
                }
            }
        }
        Ok(())
    }

    /// The number of mapped pages of a size, over all processes.
    pub fn pages(&self, size: PageSize) -> u64 {
        self.processes.iter().flatten().map(|process| process.table.pages(size)).sum()
    }

    /// Frames of all page tables.
    fn nodes(&self) -> u64 {
        self.processes.iter().flatten().map(|process| process.table.nodes()).sum()
    }

    /// The number of uses of each frame.
    fn count_references(&self) -> FxHashMap<FrameNumber, u32> {
        let mut references = FxHashMap::default();
        let mut count = |frame| *references.entry(frame).or_insert(0) += 1;
        for process in self.live() {
            self.leaves(process, &EVERYTHING).iter().flat_map(frames_of).for_each(&mut count);
        }
        for object in self.objects.values() {
            object.frames.values().copied().for_each(&mut count);
        }
        self.zeros().into_iter().for_each(&mut count);
        references
    }
}
