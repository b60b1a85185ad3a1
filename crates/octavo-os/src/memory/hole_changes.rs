//! Invalidations for changed hole bits, batched with the shootdowns of other changes (Park et al., ISCA 2020,
//! Section IV-E: "Bitmap changes will be batched with the required existing shootdowns").

use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::{EVERYTHING, Memory, ProcessId, base_pages};

impl Memory {
    /// Collects the changed bits of a process' pages with holes.
    pub(super) fn collect_changed_holes(&mut self, process: ProcessId) {
        let Some(Some(space)) = self.processes.get_mut(usize::from(process.0)) else { return };
        if !space.table.has_hole_changes() {
            return;
        }
        for (page, is_punched) in space.table.take_hole_changes() {
            self.counters.punches += u64::from(is_punched);
            self.counters.patches += u64::from(!is_punched);
            self.holes_changed.push((process, page));
        }
    }

    /// Invalidates changed bits that no other shootdown covers: one shootdown per run of pages.
    pub(super) fn invalidate_changed_holes(&mut self) {
        if !self.frames.hole_bitmaps().are_reserved() {
            return;
        }
        let live: Vec<ProcessId> = self.live().collect();
        live.into_iter().for_each(|process| self.collect_changed_holes(process));
        let mut changed = std::mem::take(&mut self.holes_changed);
        changed.sort_unstable();
        changed.dedup();
        let follows = |a: &(ProcessId, PageNumber), b: &(ProcessId, PageNumber)| {
            a.0 == b.0 && a.1.raw() + 1 == b.1.raw()
        };
        for run in changed.chunk_by(follows) {
            self.counters.hole_shootdowns += 1;
            let (process, first) = run[0];
            self.invalidate(process, first.raw()..first.raw() + run.len() as u64);
        }
    }

    /// Number of frames of all shadow nodes.
    pub(super) fn shadows(&self) -> u64 {
        self.processes.iter().flatten().map(|process| process.table.shadows()).sum()
    }

    /// Checks that the hole bitmap matches the page tables, and their counts of pages with holes.
    pub(super) fn check_holes(&self) -> Result<(), String> {
        let mut holes = FxHashMap::<FrameNumber, u16>::default();
        for process in self.live() {
            let with_holes = self.pages_with_holes_in(process, &EVERYTHING);
            let counted = self.process(process).table.pages_with_holes();
            if with_holes.len() as u64 != counted {
                return Err(format!("{} pages have holes, not {counted}", with_holes.len()));
            }
            for (region, places) in with_holes {
                let places = (0..base_pages(PageSize::HUGE)).filter(|at| places.contains(*at));
                places.for_each(|at| *holes.entry(region.frame.plus(at)).or_insert(0) += 1);
            }
        }
        let counted = self.frames.hole_bitmaps().counted();
        if holes != counted {
            return Err(format!(
                "{} frames are holes, and {} bits are set",
                holes.len(),
                counted.len()
            ));
        }
        Ok(())
    }
}
