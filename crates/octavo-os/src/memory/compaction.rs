//! Compaction of memory in which processes live: what moves is mapped anew.

use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::objects::Object;
use super::{EVERYTHING, Memory, ProcessId};
use crate::frames::{Compaction, CompactionLimits, Compactor, FrameOwner, Order};
use crate::vmas::ObjectId;

/// Who holds data by base pages, looked up once for each compaction: to know it at any time would
/// cost every fault.
struct Residents<F> {
    /// The frames of base pages with who maps them, in order of frames.
    mapped: Vec<(FrameNumber, ProcessId, PageNumber)>,
    /// The frames of objects' pages.
    objects: FxHashMap<FrameNumber, (ObjectId, u64)>,
    stays: F,
    moves: Vec<(FrameNumber, FrameNumber)>,
}

impl<F> Residents<F> {
    fn of(&self, frame: FrameNumber) -> &[(FrameNumber, ProcessId, PageNumber)] {
        let from = self.mapped.partition_point(|(of, ..)| *of < frame);
        let to = self.mapped.partition_point(|(of, ..)| *of <= frame);
        &self.mapped[from..to]
    }
}

impl<F: Fn(FrameNumber) -> bool> FrameOwner for Residents<F> {
    fn may_move(&self, frame: FrameNumber) -> bool {
        let known = !self.of(frame).is_empty() || self.objects.contains_key(&frame);
        known && !(self.stays)(frame)
    }

    fn moved(&mut self, from: FrameNumber, to: FrameNumber) {
        self.moves.push((from, to));
    }
}

impl Memory {
    /// Makes free blocks of `order`, within `limits`, by moving base pages, shared ones too, and
    /// what is foreign; larger pages stay, and so do frames that `stays` names. Each page that moved
    /// is copied, mapped where it is now, and forgotten where it was, in each process.
    pub fn compact_for(
        &mut self,
        compactor: &mut Compactor,
        order: Order,
        limits: CompactionLimits,
        stays: impl Fn(FrameNumber) -> bool,
    ) -> Compaction {
        let mut mapped = Vec::new();
        for process in self.live() {
            let leaves = self.leaves(process, &EVERYTHING).into_iter();
            let base = leaves.filter(|leaf| leaf.size == PageSize::BASE);
            mapped.extend(base.map(|leaf| (leaf.frame, process, leaf.page)));
        }
        mapped.sort_unstable();
        let of_object = |(id, object): (&ObjectId, &Object)| {
            let id = *id;
            object
                .frames
                .iter()
                .map(move |(index, frame)| (*frame, (id, *index)))
                .collect::<Vec<_>>()
        };
        let objects = self.objects.iter().flat_map(of_object).collect();
        let mut residents = Residents { mapped, objects, stays, moves: Vec::new() };
        let done = compactor.compact(&mut self.frames, order, limits, &mut residents);
        for (from, to) in &residents.moves {
            self.move_frame(*from, *to, &residents);
        }
        self.counters.compactions += 1;
        self.counters.frames_compacted += done.moved_frames;
        // What was foreign is nobody's here.
        let foreign = done.moved_frames - residents.moves.len() as u64;
        self.counters.bytes_copied += foreign * PageSize::BASE.bytes();
        done
    }

    /// What was in `from` is in `to`.
    fn move_frame<F>(&mut self, from: FrameNumber, to: FrameNumber, residents: &Residents<F>) {
        self.copied(from, to, 1);
        self.references.move_to(from, to);
        if let Some((object, index)) = residents.objects.get(&from) {
            let object = self.objects.get_mut(object).expect("it has the frame");
            object.frames.insert(*index, to);
        }
        for &(_, process, page) in residents.of(from) {
            let of = self.processes[usize::from(process.0)].as_mut().expect("it lives");
            let used = of.table.used(page).unwrap_or_default();
            let rights = of.table.leaf(page).expect("only what is mapped is told").rights;
            let frames = &mut self.frames;
            let written = of.table.map_used(page, PageSize::BASE, to, rights, used, frames);
            self.counters.entries_written += written.expect("its tables are there").entries;
            self.forget(process, page.raw()..page.raw() + 1);
        }
    }
}
