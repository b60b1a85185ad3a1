//! What there is to manage: frames, processes with their mappings and page tables, shared pages;
//! and the operations on it that page-size policies are written in.
//!
//! A frame has as many *references* as page tables and objects hold it; it is freed with the last.
//! A page is mapped writable only while its frames have one.

mod compaction;
mod grow;
mod merge;
mod run;

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use rustc_hash::FxHashMap;

use crate::counters::Counters;
use crate::frames::{Frames, Holder, Order, OutOfMemory};
use crate::page_table::{Format, Leaf, PageTable};
use crate::vmas::{ObjectId, Pages, Vma, Vmas};

/// A process, dense from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessId(pub u16);

/// A process' memory.
pub struct Process {
    /// What is mapped.
    pub vmas: Vmas,
    /// Where it lies.
    pub table: PageTable,
}

/// Base pages of a process whose translation is no longer what it was: whoever has kept it must
/// forget it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stale {
    /// Whose.
    pub process: ProcessId,
    /// Which.
    pub pages: Pages,
}

/// All memory of a machine.
pub struct Memory {
    /// Physical memory.
    pub frames: Frames,
    /// What was done.
    pub counters: Counters,
    /// Of 4 KiB and what else page tables may hold, smallest first.
    sizes: Vec<PageSize>,
    format: Format,
    processes: Vec<Option<Process>>,
    /// Base frames with more than one reference.
    shared: FxHashMap<FrameNumber, u32>,
    /// The frames of objects' pages.
    objects: FxHashMap<(ObjectId, u64), FrameNumber>,
    stale: Vec<Stale>,
}

/// All base pages that there may be.
const EVERYTHING: Pages = 0..u64::MAX;

/// How many base pages a page of `size` has.
pub const fn base_pages(size: PageSize) -> u64 {
    1 << size.base_shift()
}

/// The base pages of the page of `size` that holds `page`.
pub const fn around(page: PageNumber, size: PageSize) -> Pages {
    let first = page.raw() >> size.base_shift() << size.base_shift();
    first..first + base_pages(size)
}

impl Memory {
    /// Memory with no process. Pages are of one of `sizes`, of which 4 KiB is one always.
    pub fn new(frames: Frames, sizes: &[PageSize], format: Format) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.push(PageSize::BASE);
        sizes.sort_unstable();
        sizes.dedup();
        Memory {
            frames,
            counters: Counters::default(),
            sizes,
            format,
            processes: Vec::new(),
            shared: FxHashMap::default(),
            objects: FxHashMap::default(),
            stale: Vec::new(),
        }
    }

    /// A process without any mapping.
    pub fn spawn(&mut self) -> Result<ProcessId, OutOfMemory> {
        let table = PageTable::new(self.format, &mut self.frames)?;
        self.processes.push(Some(Process { vmas: Vmas::default(), table }));
        Ok(ProcessId((self.processes.len() - 1) as u16))
    }

    /// A copy of a process that shares all its pages until one of the two stores to them.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, OutOfMemory> {
        let child = self.spawn()?;
        self.process_mut(child).vmas = self.process(parent).vmas.clone();
        for leaf in self.leaves(parent, &EVERYTHING) {
            let vma = self.process(parent).vmas.find(leaf.page);
            let write = leaf.rights.write && vma.is_some_and(|(_, vma)| is_shared(&vma));
            let rights = Protection { write, ..leaf.rights };
            if rights != leaf.rights {
                self.map(parent, leaf.page, leaf.size, leaf.frame, rights)?;
                self.forget(parent, around(leaf.page, leaf.size));
            }
            for frame in frames_of(&leaf) {
                *self.shared.entry(frame).or_insert(1) += 1;
            }
            self.map(child, leaf.page, leaf.size, leaf.frame, rights)?;
        }
        Ok(child)
    }

    /// The process is gone, and all that it alone had.
    pub fn end(&mut self, process: ProcessId) {
        self.release(process, &EVERYTHING);
        if let Some(ended) = self.processes[usize::from(process.0)].take() {
            ended.table.dissolve(&mut self.frames);
        }
    }

    /// The process.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn process(&self, process: ProcessId) -> &Process {
        self.processes[usize::from(process.0)].as_ref().expect("it has not ended")
    }

    /// The process, to be changed.
    pub fn process_mut(&mut self, process: ProcessId) -> &mut Process {
        self.processes[usize::from(process.0)].as_mut().expect("it has not ended")
    }

    /// The sizes that pages may have, smallest first.
    pub fn sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    /// What has become stale since the last call.
    pub fn take_stale(&mut self) -> Vec<Stale> {
        std::mem::take(&mut self.stale)
    }

    /// The pages that are mapped in a range, those that only reach into it included.
    pub fn leaves(&self, process: ProcessId, pages: &Pages) -> Vec<Leaf> {
        let table = &self.process(process).table;
        let (mut found, mut from) = (Vec::new(), pages.start);
        while let Some(leaf) = table.next(PageNumber::new(from), PageNumber::new(pages.end)) {
            from = leaf.page.raw() + base_pages(leaf.size);
            found.push(leaf);
        }
        found
    }

    /// Whether nothing is mapped in a range yet.
    pub fn is_untouched(&self, process: ProcessId, pages: &Pages) -> bool {
        let (from, end) = (PageNumber::new(pages.start), PageNumber::new(pages.end));
        self.process(process).table.next(from, end).is_none()
    }

    /// Gives a page new, zeroed memory.
    pub fn place_new(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let frame = self.frames.allocate(Order::of(size), Holder::Data)?;
        self.counters.bytes_zeroed += size.bytes();
        let placed = self.map(process, page, size, frame, rights);
        if placed.is_err() {
            self.frames.free(frame, Order::of(size));
        }
        placed
    }

    /// Maps a page at frames that are its own already, or an object's.
    pub fn map(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let written = of.table.map(page, size, frame, rights, &mut self.frames)?;
        self.counters.entries_written += written.entries;
        Ok(())
    }

    /// Moves what is mapped in the range of a larger page into one block, clears the rest of it,
    /// and maps that as one page. What was there must have been the process' own.
    pub fn collapse(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let pages = around(page, size);
        let frame = self.frames.allocate(Order::of(size), Holder::Data)?;
        let old = self.leaves(process, &pages);
        let copied: u64 = old.iter().map(|leaf| leaf.size.bytes()).sum();
        self.release(process, &pages);
        self.counters.bytes_copied += copied;
        self.counters.bytes_zeroed += size.bytes() - copied;
        self.counters.promotions += 1;
        self.map(process, PageNumber::new(pages.start), size, frame, rights)
    }

    /// Cuts a page into the largest allowed ones that do not straddle the ends of `kept`.
    pub fn split(
        &mut self,
        process: ProcessId,
        leaf: Leaf,
        kept: &Pages,
    ) -> Result<(), OutOfMemory> {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        of.table.unmap(leaf.page, &mut self.frames);
        self.counters.splits += 1;
        self.forget(process, around(leaf.page, leaf.size));
        let pages = around(leaf.page, leaf.size);
        let mut at = pages.start;
        while at < pages.end {
            let page = PageNumber::new(at);
            let straddles = |size: PageSize| {
                let part = around(page, size);
                [kept.start, kept.end].iter().any(|end| part.start < *end && *end < part.end)
            };
            let fits = |size: &PageSize| {
                let part = around(page, *size);
                *size < leaf.size && part.start == at && part.end <= pages.end && !straddles(*size)
            };
            let size = self.sizes.iter().rev().copied().find(fits).unwrap_or(PageSize::BASE);
            self.map(process, page, size, leaf.frame_of(page), leaf.rights)?;
            at += base_pages(size);
        }
        Ok(())
    }

    /// Moves the pages of a range to another, entry by entry; what does not fit there stays. Pages
    /// whose size does not fit the new place are split.
    pub fn move_pages(
        &mut self,
        process: ProcessId,
        from: &Pages,
        to: &Pages,
    ) -> Result<(), OutOfMemory> {
        let from = from.start..from.end.min(from.start + (to.end - to.start));
        let moved = to.start.wrapping_sub(from.start);
        self.split_at_ends(process, &from);
        for leaf in self.leaves(process, &from) {
            let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
            of.table.unmap(leaf.page, &mut self.frames);
            self.forget(process, around(leaf.page, leaf.size));
            let aligned = moved % base_pages(leaf.size) == 0;
            let size = if aligned { leaf.size } else { PageSize::BASE };
            self.counters.splits += u64::from(!aligned);
            for number in (0..base_pages(leaf.size)).step_by(base_pages(size) as usize) {
                let page = PageNumber::new((leaf.page.raw() + number).wrapping_add(moved));
                self.map(process, page, size, leaf.frame.plus(number), leaf.rights)?;
            }
        }
        Ok(())
    }

    /// Gives the pages of a range the rights of their mapping; what is shared stays without stores.
    pub fn protect(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        self.split_at_ends(process, pages);
        for leaf in self.leaves(process, pages) {
            let write = vma.rights.write && (is_shared(vma) || !self.is_shared(&leaf));
            let rights = Protection { write, ..vma.rights };
            if rights != leaf.rights {
                self.map(process, leaf.page, leaf.size, leaf.frame, rights)?;
                self.forget(process, around(leaf.page, leaf.size));
            }
        }
        Ok(())
    }

    /// Splits the pages that reach out of a range.
    fn split_at_ends(&mut self, process: ProcessId, pages: &Pages) {
        for leaf in self.leaves(process, pages) {
            let of_leaf = around(leaf.page, leaf.size);
            if of_leaf.start < pages.start || of_leaf.end > pages.end {
                // Splitting takes no more page tables than the larger page gave back, except where
                // another took them since: then the whole page goes, and faults again.
                let _ = self.split(process, leaf, pages);
            }
        }
    }

    /// The processes that have not ended.
    pub fn live(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let numbered = self.processes.iter().enumerate();
        numbered.filter(|(_, of)| of.is_some()).map(|(number, _)| ProcessId(number as u16))
    }

    /// Unmaps a range, and frees what nobody else has. Pages that reach out of it are split first.
    pub fn release(&mut self, process: ProcessId, pages: &Pages) {
        self.split_at_ends(process, pages);
        for leaf in self.leaves(process, pages) {
            let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
            of.table.unmap(leaf.page, &mut self.frames);
            self.drop_frames(&leaf);
            self.forget(process, around(leaf.page, leaf.size));
        }
    }

    /// Gives up one reference to the frames of a page.
    pub fn drop_frames(&mut self, leaf: &Leaf) {
        if self.shared.is_empty() {
            self.frames.free(leaf.frame, Order::of(leaf.size));
            return;
        }
        for frame in frames_of(leaf) {
            match self.shared.get_mut(&frame) {
                Some(2) => drop(self.shared.remove(&frame)),
                Some(references) => *references -= 1,
                None => self.frames.free(frame, Order::BASE),
            }
        }
    }

    /// Whether somebody else has a frame of the page too.
    pub fn is_shared(&self, leaf: &Leaf) -> bool {
        !self.shared.is_empty() && frames_of(leaf).any(|frame| self.shared.contains_key(&frame))
    }

    /// Whether a base frame has more than one reference.
    pub fn has_others(&self, frame: FrameNumber) -> bool {
        self.shared.contains_key(&frame)
    }

    /// The frame of an object's page, one more reference to it taken; read in when first asked.
    pub fn object_frame(
        &mut self,
        object: ObjectId,
        index: u64,
    ) -> Result<FrameNumber, OutOfMemory> {
        if let Some(frame) = self.objects.get(&(object, index)) {
            *self.shared.entry(*frame).or_insert(1) += 1;
            return Ok(*frame);
        }
        let frame = self.frames.allocate(Order::BASE, Holder::Data)?;
        self.counters.bytes_read += PageSize::BASE.bytes();
        self.objects.insert((object, index), frame);
        self.shared.insert(frame, 2);
        Ok(frame)
    }

    /// Notes that translations of these pages are no longer right.
    pub fn forget(&mut self, process: ProcessId, pages: Pages) {
        self.counters.shootdowns += 1;
        self.stale.push(Stale { process, pages });
    }

    /// Frames that page tables map or objects keep, each once; for the law of conservation.
    pub fn frames_in_use(&self) -> u64 {
        let tables: u64 =
            self.processes.iter().flatten().map(|process| process.table.nodes()).sum();
        let mut data = rustc_hash::FxHashSet::default();
        for process in self.live() {
            data.extend(self.leaves(process, &EVERYTHING).iter().flat_map(frames_of));
        }
        data.extend(self.objects.values().copied());
        tables + data.len() as u64
    }
}

/// Whether stores to a mapping go to what others map too.
pub fn is_shared(vma: &Vma) -> bool {
    matches!(vma.backing, crate::vmas::Backing::Object { shared: true, .. })
}

fn frames_of(leaf: &Leaf) -> impl Iterator<Item = FrameNumber> + use<> {
    let first = leaf.frame;
    (0..base_pages(leaf.size)).map(move |number| first.plus(number))
}
