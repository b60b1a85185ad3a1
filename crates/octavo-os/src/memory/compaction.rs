//! Compaction of memory with live processes: moved pages are remapped.

use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::references::References;
use super::{EVERYTHING, Memory, ProcessId};
use crate::frames::{
    Compaction, CompactionLimits, Compactor, FrameRelocator, Frames, Order, free_emptiest_block,
};
use crate::vmas::ObjectId;

/// A frame mapped by a base page of a process.
type Mapped = (FrameNumber, ProcessId, PageNumber);

/// The users of base-page frames. Collected once per compaction: keeping them current would slow every page
/// fault.
struct Residents<'a, F> {
    /// The frames of base pages with their processes and pages, in order of frames.
    mapped: Vec<Mapped>,
    /// The frames of objects' pages.
    objects: FxHashMap<FrameNumber, (ObjectId, u64)>,
    references: &'a References,
    stays: F,
    moves: Vec<(FrameNumber, FrameNumber)>,
}

/// The base pages that map a frame.
fn of_frame(mapped: &[Mapped], frame: FrameNumber) -> &[Mapped] {
    let from = mapped.partition_point(|(other, ..)| *other < frame);
    let to = mapped.partition_point(|(other, ..)| *other <= frame);
    &mapped[from..to]
}

impl<F: Fn(FrameNumber) -> bool> FrameRelocator for Residents<'_, F> {
    fn may_move(&self, frame: FrameNumber) -> bool {
        // Another process may map it as part of a larger page.
        let mapped = of_frame(&self.mapped, frame).len();
        let found = mapped + usize::from(self.objects.contains_key(&frame));
        found as u64 == u64::from(self.references.extra(frame)) + 1 && !(self.stays)(frame)
    }

    fn moved(&mut self, from: FrameNumber, to: FrameNumber) {
        self.moves.push((from, to));
    }
}

impl Memory {
    /// Makes free blocks of `order`, within `limits`, by moving base pages, including shared ones, and
    /// background memory. Larger pages, and frames selected by `stays`, are not moved. Each moved page is
    /// copied, remapped and invalidated in each process.
    pub fn compact_for(
        &mut self,
        compactor: &mut Compactor,
        order: Order,
        limits: CompactionLimits,
        stays: impl Fn(FrameNumber) -> bool,
    ) -> Compaction {
        self.compact_by(stays, |frames, residents| {
            compactor.compact(frames, order, limits, residents)
        })
    }

    /// Frees the block of `order` with the least data to move ([`free_emptiest_block`]); pages are moved as by
    /// [`Memory::compact_for`].
    pub fn compact_smartly(
        &mut self,
        order: Order,
        stays: impl Fn(FrameNumber) -> bool,
    ) -> Compaction {
        self.compact_by(stays, |frames, residents| free_emptiest_block(frames, order, residents))
    }

    fn compact_by<F: Fn(FrameNumber) -> bool>(
        &mut self,
        stays: F,
        compact: impl FnOnce(&mut Frames, &mut Residents<'_, F>) -> Compaction,
    ) -> Compaction {
        let mut mapped = Vec::new();
        for process in self.live() {
            let leaves = self.leaves(process, &EVERYTHING).into_iter();
            let table = &self.process(process).table;
            let base =
                leaves.filter(|leaf| leaf.size == PageSize::BASE && !table.is_part(leaf.page));
            mapped.extend(base.map(|leaf| (leaf.frame, process, leaf.page)));
        }
        mapped.sort_unstable();
        let pages = self.objects.iter().flat_map(|(id, object)| {
            object.frames.iter().map(|(index, frame)| (*frame, (*id, *index)))
        });
        let objects = pages.collect();
        let references = &self.references;
        let mut residents = Residents { mapped, objects, references, stays, moves: Vec::new() };
        let done = compact(&mut self.frames, &mut residents);
        let Residents { mapped, objects, moves, .. } = residents;
        for (from, to) in &moves {
            self.moved(*from, *to, 1);
            for _ in 0..self.references.extra(*from) {
                self.references.drop_reference(*from);
                self.references.add(*to);
            }
            if let Some((object, index)) = objects.get(from) {
                self.objects.entry(*object).or_default().frames.insert(*index, *to);
            }
            for (_, process, page) in of_frame(&mapped, *from) {
                self.move_page(*process, *page, *to);
            }
        }
        self.counters.compactions += 1;
        self.counters.frames_compacted += done.moved_frames;
        let background = done.moved_frames - moves.len() as u64;
        self.counters.bytes_copied += background * PageSize::BASE.bytes();
        done
    }

    /// Remaps a base page to another frame.
    fn move_page(&mut self, process: ProcessId, page: PageNumber, to: FrameNumber) {
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let used = space.table.used(page).expect("a mapped page moves");
        let rights = space.table.leaf(page).expect("a mapped page moves").rights;
        let frames = &mut self.frames;
        let written = space.table.map_used(page, PageSize::BASE, to, rights, used, frames);
        self.counters.entries_written += written.expect("its tables are there").entries;
        self.invalidate(process, page.raw()..page.raw() + 1);
    }
}
