//! The operating system: memory events of processes, and page faults.
//!
//! Limits of the event stream: an `mremap` that keeps the old mapping (`MREMAP_DONTUNMAP`, or an old size of
//! 0) and the key of `pkey_mprotect` are unknown. Simplifications: `MADV_FREE` frees at once; `MADV_REMOVE`
//! unmaps, and the object keeps its pages; file pages stay in memory once read; of the advice of `madvise`, only that
//! on huge pages splits mappings.

mod present;
mod processes;

use octavo_types::{Access, Event, FrameNumber, PageNumber, Protection};
use rustc_hash::FxHashMap;

use crate::frames::OutOfMemory;
use crate::memory::{CopyOnWrite, Exchange, Invalidation, Memory, ProcessId, SamePages, is_shared};
use crate::page_table::Leaf;
use crate::policy::{Fault, Policy};
use crate::vmas::{Advice, Backing, ObjectId, Pages, Vma, Vmas, backing_of, pages_of};

/// An operating system with its memory.
pub struct Os {
    memory: Memory,
    policy: Box<dyn Policy>,
    copy_on_write: CopyOnWrite,
    /// The merging policy, its interval in instructions, and the time of the next scan.
    same_pages: (SamePages, u64, u64),
    /// Objects by the path of their file.
    files: FxHashMap<String, ObjectId>,
    objects: u32,
}

/// `MADV_*` of `madvise(2)`.
mod madv {
    pub const DONTNEED: u64 = 4;
    pub const FREE: u64 = 8;
    pub const REMOVE: u64 = 9;
    pub const HUGEPAGE: u64 = 14;
    pub const NOHUGEPAGE: u64 = 15;
}

impl Os {
    /// An operating system without processes.
    pub fn new(mut memory: Memory, mut policy: Box<dyn Policy>) -> Self {
        policy.start(&mut memory);
        let (copy_on_write, same_pages) = (CopyOnWrite::default(), (SamePages::Never, 0, 0));
        let files = FxHashMap::default();
        Os { memory, policy, copy_on_write, same_pages, files, objects: 0 }
    }

    /// Sets how large pages are copied on a store.
    pub fn with_copy_on_write(mut self, how: CopyOnWrite) -> Self {
        self.copy_on_write = how;
        self
    }

    /// Sets which identical pages are merged, and every how many instructions (0: never). Every store must
    /// then be [recorded](Memory::record_store). No process may exist yet.
    pub fn with_same_pages(mut self, how: SamePages, every_instructions: u64) -> Self {
        if how != SamePages::Never && every_instructions > 0 {
            self.memory.track_stores();
            self.same_pages = (how, every_instructions, every_instructions);
        }
        self
    }

    /// Its memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Its memory, mutable: for tests, and for hardware that sets accessed and dirty bits.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// The invalidations since the last call. [`RunningOs`](crate::RunningOs) takes them after each change.
    pub fn take_invalidations(&mut self) -> Vec<Invalidation> {
        self.memory.take_invalidations()
    }

    /// Runs background work; `instructions` is the number executed so far by all programs.
    pub fn background(&mut self, instructions: u64) {
        self.policy.background(&mut self.memory, instructions);
        self.memory.choose_anchor_distances(instructions);
        let (how, every, next) = self.same_pages;
        if every > 0 && instructions >= next {
            self.same_pages.2 = instructions + every;
            self.memory.merge_same_pages(how);
        }
    }

    /// Creates a process without mappings.
    ///
    /// # Errors
    ///
    /// If there is no frame for its page table.
    pub fn spawn(&mut self) -> Result<ProcessId, OutOfMemory> {
        let process = self.memory.spawn()?;
        self.memory.check_table(process)?;
        Ok(process)
    }

    /// Forks a process: the child shares all pages until one of the two stores to them.
    ///
    /// # Errors
    ///
    /// If there are no frames for its page table: no child is created.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, OutOfMemory> {
        let child = self.memory.fork(parent)?;
        self.policy.forked(&mut self.memory, parent, child);
        self.memory.check_table(child)?;
        Ok(child)
    }

    /// Ends a process and frees its memory. Its number may be reused.
    pub fn end(&mut self, process: ProcessId) {
        self.policy.ended(&mut self.memory, process);
        self.memory.end(process);
    }

    /// Applies a memory event of a process; ignores other events.
    ///
    /// # Errors
    ///
    /// If memory runs out. Mappings and contents are then unchanged, except that a new mapping stays, partly
    /// backed, if the policy allocates its memory at once.
    pub fn event(&mut self, process: ProcessId, event: &Event) -> Result<(), OutOfMemory> {
        match event {
            Event::Map { range, protection, source, flags } => {
                let pages = pages_of(*range);
                if !self.grows_into_own_page(process, &pages, source, *protection) {
                    self.unmap(process, &pages)?;
                }
                let backing = backing_of(source, *flags, pages.start, |path| self.object(path));
                let vma = Vma { rights: *protection, backing, advice: Advice::None };
                self.change_vmas(process, &pages, |vmas| vmas.map(pages.clone(), vma));
                if vma.is_anonymous() {
                    self.policy.mapped(&mut self.memory, process, &pages, &vma)?;
                }
            }
            Event::Unmap { range } => {
                let pages = pages_of(*range);
                self.unmap(process, &pages)?;
                self.change_vmas(process, &pages, |vmas| vmas.unmap(pages.clone()));
            }
            Event::Remap { from, to } => self.relocate(process, pages_of(*from), pages_of(*to))?,
            Event::Protect { range, protection } => {
                self.protect(process, &pages_of(*range), *protection)?;
            }
            Event::Advise { range, advice } => self.advise(process, &pages_of(*range), *advice)?,
            Event::Present { range, known: true, .. } => {
                self.present(process, &pages_of(*range))?;
            }
            _ => {}
        }
        self.memory.check_table(process)
    }

    /// Serves a page fault: afterwards the page is mapped and permits the access.
    ///
    /// # Errors
    ///
    /// If memory runs out. All contents are unchanged.
    pub fn fault(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        access: Access,
    ) -> Result<(), OutOfMemory> {
        let process_memory = self.memory.process(process);
        let mapped_page = process_memory.table.leaf(page);
        let found = process_memory.vmas.find(page);
        let (mapping, vma) = found.unwrap_or_else(|| {
            self.memory.counters.faults_unmapped += u64::from(mapped_page.is_none());
            let rights = Protection { read: true, write: true, execute: true };
            let backing = Backing::Anonymous;
            (page.raw()..page.raw() + 1, Vma { rights, backing, advice: Advice::NoHuge })
        });
        // The program ran, so that the trace's record of permissions may be incomplete.
        let rights = Protection {
            read: true,
            write: vma.rights.write || access == Access::Store,
            execute: vma.rights.execute || access == Access::Fetch,
        };
        let vma = Vma { rights, ..vma };
        let served = match mapped_page {
            Some(leaf) if access == Access::Store && !leaf.rights.write => {
                self.store_to_shared(process, page, leaf, &vma)
            }
            Some(leaf) => {
                let rights = Protection { write: leaf.rights.write, ..rights };
                self.memory.map(process, leaf.page, leaf.size, leaf.frame, rights)
            }
            None => {
                self.memory.counters.faults += 1;
                self.first_touch(&Fault { process, page, mapping, vma }, access)
            }
        };
        let served = served.and_then(|()| self.memory.check_table(process));
        if served.is_err() {
            self.memory.counters.out_of_memory += 1;
        }
        served
    }

    /// Maps at least the page of a fault, which nothing maps.
    fn first_touch(&mut self, fault: &Fault, access: Access) -> Result<(), OutOfMemory> {
        let Fault { process, page, vma, .. } = fault;
        match vma.backing {
            Backing::Object { object, origin, shared } => {
                let index = page.raw().wrapping_sub(origin);
                self.object_page(*process, *page, (object, index), shared, vma, access)
            }
            _ => self.policy.fault(&mut self.memory, fault),
        }
    }

    /// Backs base pages of a mapping by contiguous frames, if none of the pages is mapped and memory can spare the
    /// frames. Returns the first frame if the frames of the pages are contiguous afterwards.
    pub fn back_contiguously(&mut self, process: ProcessId, pages: &Pages) -> Option<FrameNumber> {
        if self.memory.is_untouched(process, pages) {
            self.memory.place_run(process, pages);
        }
        let table = &self.memory.process(process).table;
        let frame_of = |page: u64| {
            let page = PageNumber::new(page);
            table.leaf(page).map(|leaf| leaf.frame_of(page))
        };
        let first = frame_of(pages.start)?;
        let is_at_its_place = |page: u64| frame_of(page) == Some(first.plus(page - pages.start));
        pages.clone().all(is_at_its_place).then_some(first)
    }

    /// Exchanges the memory behind ranges of pages of a process, as its guest asks for; returns whether each was exchanged
    /// ([`Memory::exchange_pages`]).
    ///
    /// # Errors
    ///
    /// If the table that hardware walks has found no memory to grow.
    pub fn exchange(
        &mut self,
        process: ProcessId,
        exchanges: &[Exchange],
    ) -> Result<Vec<bool>, OutOfMemory> {
        let made = self.memory.exchange_pages(process, exchanges);
        self.memory.check_table(process)?;
        Ok(made)
    }

    /// Maps an object's page, or its copy for a store to a private mapping.
    fn object_page(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        object_page: (ObjectId, u64),
        shared: bool,
        vma: &Vma,
        access: Access,
    ) -> Result<(), OutOfMemory> {
        if access == Access::Store && !shared {
            return self.memory.place_copy(process, page, object_page, vma.rights);
        }
        let rights = Protection { write: shared && vma.rights.write, ..vma.rights };
        self.memory.place_object_page(process, page, object_page, rights)
    }

    /// Serves a store to a read-only page: copies the page if it is shared.
    fn store_to_shared(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        leaf: Leaf,
        vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        if is_shared(vma) {
            return self.memory.map(process, leaf.page, leaf.size, leaf.frame, vma.rights);
        }
        self.memory.copy_on_write(process, page, vma.rights, self.copy_on_write)
    }

    fn unmap(&mut self, process: ProcessId, pages: &Pages) -> Result<(), OutOfMemory> {
        self.memory.ensure_releasable(process, pages)?;
        self.policy.unmapped(&mut self.memory, process, pages);
        self.memory.release(process, pages)
    }

    /// Changes the mappings in a range, and frees shared memory that is no longer mapped anywhere.
    fn change_vmas(&mut self, process: ProcessId, pages: &Pages, change: impl FnOnce(&mut Vmas)) {
        let had_objects = self.has_objects(process, pages);
        change(&mut self.memory.process_mut(process).vmas);
        self.memory.mappings_changed(process, pages);
        if had_objects {
            self.memory.drop_unmapped_objects();
        }
    }

    /// Whether a part of a range maps an object.
    fn has_objects(&self, process: ProcessId, pages: &Pages) -> bool {
        let parts = self.memory.process(process).vmas.within(pages);
        parts.iter().any(|(_, vma)| !vma.is_anonymous())
    }

    /// `mremap` moves page-table entries, not data.
    fn relocate(&mut self, process: ProcessId, from: Pages, to: Pages) -> Result<(), OutOfMemory> {
        let (start, pages) = (to.start, to.end - to.start);
        if from.start == start {
            // The part that no longer exists or, if the mapping grows, cannot exist yet.
            let rest = to.end.min(from.end)..to.end.max(from.end);
            self.unmap(process, &rest)?;
            let (both, grown) = (start..rest.end, from.end..to.end);
            self.change_vmas(process, &both, |vmas| vmas.relocate(from, start, pages));
            return self.notify_mapped(process, &grown);
        }
        self.memory.ensure_movable(process, &from, &to)?;
        self.unmap(process, &to)?;
        self.policy.moving(&mut self.memory, process, &from);
        // The policy may have split pages.
        self.memory.ensure_movable(process, &from, &to)?;
        let had_objects = [&from, &to].iter().any(|pages| self.has_objects(process, pages));
        self.memory.process_mut(process).vmas.relocate(from.clone(), start, pages);
        // The page table frees its areas of the old mapping before it hears of the new one, which can then have them.
        // The pages move after both.
        self.memory.mappings_changed(process, &from);
        self.memory.mappings_changed(process, &to);
        self.memory.move_pages(process, &from, &to)?;
        self.memory.release(process, &from)?;
        if had_objects {
            self.memory.drop_unmapped_objects();
        }
        self.notify_mapped(process, &to)
    }

    fn protect(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let mut parts = self.memory.process(process).vmas.within(pages);
        parts.retain(|(_, vma)| vma.rights != rights);
        for (part, _) in &parts {
            self.memory.split_at_ends(process, part)?;
        }
        let closed: Vec<_> =
            parts.iter().filter(|(_, vma)| !vma.is_accessible()).cloned().collect();
        for (_, vma) in &mut parts {
            vma.rights = rights;
        }
        self.memory.process_mut(process).vmas.change(pages, |vma| vma.rights = rights);
        self.memory.mappings_changed(process, pages);
        self.memory.protect_parts(process, &parts)?;
        for (part, _) in closed {
            self.notify_mapped(process, &part)?;
        }
        Ok(())
    }

    fn advise(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        advice: u64,
    ) -> Result<(), OutOfMemory> {
        let wanted = match advice {
            madv::HUGEPAGE => Advice::Huge,
            madv::NOHUGEPAGE => Advice::NoHuge,
            madv::DONTNEED | madv::FREE | madv::REMOVE => return self.unmap(process, pages),
            _ => return Ok(()),
        };
        // As in Linux, no page spans two mappings.
        let parts = self.memory.process(process).vmas.within(pages);
        for (part, _) in parts.iter().filter(|(_, vma)| vma.advice != wanted) {
            self.memory.split_at_ends(process, part)?;
        }
        self.memory.process_mut(process).vmas.change(pages, |vma| vma.advice = wanted);
        self.memory.mappings_changed(process, pages);
        Ok(())
    }

    fn object(&mut self, path: Option<&str>) -> ObjectId {
        let next = ObjectId(self.objects);
        let known = match path {
            Some(path) if !path.is_empty() => *self.files.entry(path.to_owned()).or_insert(next),
            _ => next,
        };
        if known == next {
            self.objects += 1;
            if path.is_none() {
                self.memory.add_shared_memory(known);
            }
        }
        known
    }
}
