//! The operating system: events of processes, and faults.

mod processes;

use octavo_types::{Event, PageNumber, PageSize, Protection};
use rustc_hash::FxHashMap;

use crate::frames::{Order, OutOfMemory};
use crate::memory::{Memory, ProcessId, Stale, is_shared};
use crate::page_table::Leaf;
use crate::policy::{Fault, Policy};
use crate::vmas::{Advice, Backing, ObjectId, Pages, Vma, backing_of, pages_of};

/// What a reference does to its page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// An instruction fetch.
    Fetch,
    /// A load.
    Load,
    /// A store.
    Store,
}

/// An operating system with its memory.
pub struct Os {
    memory: Memory,
    policy: Box<dyn Policy>,
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
    /// One without processes.
    pub fn new(mut memory: Memory, mut policy: Box<dyn Policy>) -> Self {
        policy.start(&mut memory);
        Os { memory, policy, files: FxHashMap::default(), objects: 0 }
    }

    /// Its memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Its memory, for who starts and ends processes, and hardware that marks pages as used.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// What has become stale since the last call.
    pub fn take_stale(&mut self) -> Vec<Stale> {
        self.memory.take_stale()
    }

    /// What the operating system does beside the programs, after so many instructions in all.
    pub fn background(&mut self, instructions: u64) {
        self.policy.background(&mut self.memory, instructions);
    }

    /// Something happened to a process' mappings. Other events do nothing.
    pub fn event(&mut self, process: ProcessId, event: &Event) -> Result<(), OutOfMemory> {
        match event {
            Event::Map { range, protection, source, flags } => {
                let pages = pages_of(*range);
                if !self.grows_into_its_own(process, &pages, source, *protection) {
                    self.unmap(process, &pages);
                }
                let backing = backing_of(source, *flags, pages.start, |path| self.object(path));
                let vma = Vma { rights: *protection, backing, advice: Advice::None };
                self.memory.process_mut(process).vmas.map(pages.clone(), vma);
                if vma.is_anonymous() {
                    self.policy.mapped(&mut self.memory, process, &pages, &vma)?;
                }
            }
            Event::Unmap { range } => {
                let pages = pages_of(*range);
                self.unmap(process, &pages);
                self.memory.process_mut(process).vmas.unmap(pages);
            }
            Event::Remap { from, to } => self.relocate(process, pages_of(*from), pages_of(*to))?,
            Event::Protect { range, protection } => {
                self.protect(process, &pages_of(*range), *protection)?;
            }
            Event::Advise { range, advice } => self.advise(process, &pages_of(*range), *advice),
            _ => {}
        }
        Ok(())
    }

    /// Serves a reference to a page that is not mapped, or not for that. Afterwards it is.
    pub fn fault(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        access: Access,
    ) -> Result<(), OutOfMemory> {
        let found = self.memory.process(process).vmas.find(page);
        let (mapping, vma) = found.unwrap_or_else(|| {
            self.memory.counters.faults_unmapped += 1;
            let rights = Protection { read: true, write: true, execute: true };
            let backing = Backing::Anonymous;
            (page.raw()..page.raw() + 1, Vma { rights, backing, advice: Advice::NoHuge })
        });
        // The program ran: what the trace knows of rights may be less than the truth.
        let rights = Protection {
            read: true,
            write: vma.rights.write || access == Access::Store,
            execute: vma.rights.execute || access == Access::Fetch,
        };
        let vma = Vma { rights, ..vma };
        let served = match self.memory.process(process).table.leaf(page) {
            Some(leaf) if access == Access::Store && !leaf.rights.write => {
                self.store_to_shared(process, page, leaf, &vma)
            }
            Some(leaf) => {
                let rights = Protection { write: leaf.rights.write, ..rights };
                self.memory.map(process, leaf.page, leaf.size, leaf.frame, rights)
            }
            None => {
                self.memory.counters.faults += 1;
                match vma.backing {
                    Backing::Object { object, origin, shared } => {
                        let index = page.raw().wrapping_sub(origin);
                        self.object_page(process, page, (object, index), shared, &vma, access)
                    }
                    _ => {
                        let fault = Fault { process, page, mapping, vma };
                        self.policy.fault(&mut self.memory, &fault)
                    }
                }
            }
        };
        if served.is_err() {
            self.memory.counters.out_of_memory += 1;
        }
        served
    }

    /// An object's page is mapped; a store to a private one copies it first.
    fn object_page(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        (object, index): (ObjectId, u64),
        shared: bool,
        vma: &Vma,
        access: Access,
    ) -> Result<(), OutOfMemory> {
        let frame = self.memory.object_frame(object, index)?;
        let rights = Protection { write: shared && vma.rights.write, ..vma.rights };
        self.memory.map(process, page, PageSize::BASE, frame, rights)?;
        if access == Access::Store && !shared {
            let leaf = self.memory.process(process).table.leaf(page).expect("mapped just now");
            return self.store_to_shared(process, page, leaf, vma);
        }
        Ok(())
    }

    /// A store to a page that was mapped for reading: it is copied where others have it too.
    fn store_to_shared(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        mut leaf: Leaf,
        vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        if is_shared(vma) || !self.memory.is_shared(&leaf) {
            return self.memory.map(process, leaf.page, leaf.size, leaf.frame, vma.rights);
        }
        self.memory.counters.copy_on_write_faults += 1;
        if leaf.size > PageSize::BASE {
            let one = page.raw()..page.raw() + 1;
            self.memory.split(process, leaf, &one)?;
            leaf = self.memory.process(process).table.leaf(page).expect("split, not unmapped");
        }
        let order = Order::BASE;
        let copy = self.memory.frames.allocate(order, crate::frames::Holder::Data)?;
        self.memory.drop_frames(&leaf);
        self.memory.counters.bytes_copied += PageSize::BASE.bytes();
        self.memory.forget(process, page.raw()..page.raw() + 1);
        self.memory.map(process, page, PageSize::BASE, copy, vma.rights)
    }

    fn unmap(&mut self, process: ProcessId, pages: &Pages) {
        self.policy.unmapped(&mut self.memory, process, pages);
        self.memory.release(process, pages);
    }

    /// `mremap` moves page-table entries, not data.
    fn relocate(&mut self, process: ProcessId, from: Pages, to: Pages) -> Result<(), OutOfMemory> {
        if from.start == to.start {
            let gone = to.end.min(from.end)..from.end;
            self.unmap(process, &gone);
            let vmas = &mut self.memory.process_mut(process).vmas;
            vmas.relocate(from.clone(), to.start, to.end - to.start);
            return self.opened(process, &(from.end..to.end));
        }
        self.unmap(process, &to);
        self.policy.moving(&mut self.memory, process, &from);
        self.memory.move_pages(process, &from, &to)?;
        self.memory.release(process, &from);
        let vmas = &mut self.memory.process_mut(process).vmas;
        vmas.relocate(from, to.start, to.end - to.start);
        self.opened(process, &to)
    }

    fn protect(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let before = self.memory.process(process).vmas.within(pages);
        self.memory.process_mut(process).vmas.change(pages, |vma| vma.rights = rights);
        let closed = before.into_iter().filter(|(_, vma)| !vma.is_accessible());
        for (part, _) in closed {
            self.opened(process, &part)?;
        }
        for (part, vma) in self.memory.process(process).vmas.within(pages) {
            self.memory.protect(process, &part, &vma)?;
        }
        Ok(())
    }

    fn advise(&mut self, process: ProcessId, pages: &Pages, advice: u64) {
        let set = |os: &mut Os, advice| {
            os.memory.process_mut(process).vmas.change(pages, |vma| vma.advice = advice);
        };
        match advice {
            madv::HUGEPAGE => set(self, Advice::Huge),
            madv::NOHUGEPAGE => set(self, Advice::NoHuge),
            madv::DONTNEED | madv::FREE | madv::REMOVE => self.unmap(process, pages),
            _ => {}
        }
    }

    fn object(&mut self, path: Option<&str>) -> ObjectId {
        let next = ObjectId(self.objects);
        let known = match path {
            Some(path) if !path.is_empty() => *self.files.entry(path.to_owned()).or_insert(next),
            _ => next,
        };
        self.objects += u32::from(known == next);
        known
    }
}
