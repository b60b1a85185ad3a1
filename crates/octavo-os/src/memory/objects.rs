//! Objects: files, whose pages stay in memory once read, and shared memory, which lasts until its last
//! mapping is removed.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Memory, ProcessId};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::vmas::{Backing, ObjectId};

/// A file, or shared memory.
#[derive(Default)]
pub(super) struct Object {
    /// The frames of its pages.
    pub frames: FxHashMap<u64, FrameNumber>,
    /// Whether it is shared memory: zero-filled, and freed with its last mapping.
    is_shared_memory: bool,
}

impl Memory {
    /// Declares an object to be shared memory; other objects are files. It must be mapped before the next
    /// call of [`Memory::drop_unmapped_objects`].
    pub fn add_shared_memory(&mut self, object: ObjectId) {
        self.objects.entry(object).or_default().is_shared_memory = true;
    }

    /// Frees shared memory that no process maps any more.
    pub fn drop_unmapped_objects(&mut self) {
        if !self.objects.values().any(|object| object.is_shared_memory) {
            return;
        }
        let mut mapped = FxHashSet::default();
        for process in self.processes.iter().flatten() {
            mapped.extend(process.vmas.iter().filter_map(|(_, vma)| match vma.backing {
                Backing::Object { object, .. } => Some(object),
                _ => None,
            }));
        }
        let mut dropped = Vec::new();
        self.objects.retain(|id, object| {
            let stays = !object.is_shared_memory || mapped.contains(id);
            if !stays {
                dropped.extend(object.frames.values().copied());
            }
            stays
        });
        // Sorted, so that the allocator's state does not depend on hash order.
        dropped.sort_unstable();
        dropped.into_iter().for_each(|frame| self.drop_range(frame, 1));
    }

    /// The frame of an object's page, with one more reference; read in at its first use.
    ///
    /// # Errors
    ///
    /// If there is no frame to read it into.
    pub fn object_frame(
        &mut self,
        object: ObjectId,
        index: u64,
    ) -> Result<FrameNumber, OutOfMemory> {
        let frame = self.read_in(object, index)?;
        self.references.add(frame);
        Ok(frame)
    }

    /// The frame of an object's page, if it has been read in.
    pub fn object_page(&self, object: ObjectId, index: u64) -> Option<FrameNumber> {
        self.objects.get(&object)?.frames.get(&index).copied()
    }

    /// Maps an object's page, writable only if stores may change the object.
    ///
    /// # Errors
    ///
    /// If there is no frame to read it into or for its page table. It may have been read in.
    pub fn place_object_page(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        (object, index): (ObjectId, u64),
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let frame = self.object_frame(object, index)?;
        let placed = self.map(process, page, PageSize::BASE, frame, rights);
        if placed.is_err() {
            self.drop_range(frame, 1);
        }
        placed
    }

    /// Maps a private copy of an object's page.
    ///
    /// # Errors
    ///
    /// If there is no frame for the copy, to read the page into, or for the page table. It may have been read
    /// in.
    pub fn place_copy(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        (object, index): (ObjectId, u64),
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let from = self.read_in(object, index)?;
        let copy = self.allocate_private(process, page)?;
        if let Err(error) = self.map(process, page, PageSize::BASE, copy, rights) {
            self.frames.free(copy, Order::BASE);
            return Err(error);
        }
        self.counters.copy_on_write_faults += 1;
        self.copied(from, copy, 1);
        Ok(())
    }

    /// The frame of an object's page, without a reference.
    fn read_in(&mut self, object: ObjectId, index: u64) -> Result<FrameNumber, OutOfMemory> {
        let entry = self.objects.entry(object).or_default();
        if let Some(frame) = entry.frames.get(&index) {
            return Ok(*frame);
        }
        let frame = self.frames.allocate(Order::BASE, Owner::Data)?;
        entry.frames.insert(index, frame);
        if entry.is_shared_memory {
            self.zeroed(frame, 1);
        } else {
            self.read(object, index, frame);
        }
        Ok(frame)
    }
}
