//! Software-managed address translation (Jacob and Mudge, HPCA 1997): no TLB and no walker, but virtual
//! caches, and a handler in software for what misses the last of them.
//!
//! - An address is made global by its segment ([`space`]), and looked up in virtual caches: a first and a
//!   second level, each split. What is found there needs no translation.
//! - What both levels miss raises CACHEMISS: the [`handler`] loads the page-table entry through the same
//!   caches, and then the line, which gets the rights of the entry.
//! - A dirty line that leaves the caches is written back to memory. Where the machine keeps no translation
//!   with it, the handler translates its address again, from a buffer of such lines, before the program
//!   goes on. That may take the program's line out of the caches: then it misses once more (`restarts`).
//! - A store to a line that does not have that right asks the operating system, which may copy the page;
//!   then the line is changed, or, where protection is not lazy, all lines of the page.
//! - Whatever else changes pages sweeps the caches for their lines ([`pages`], [`sweeps`]).
//!
//! The data of a miss come from memory at a cost that every machine has; it is counted as cycles of
//! fetches and of data, as the second level's hits are. The handler's own misses, sweeps and write-backs
//! have counters of their own. Bits of the page table's entries (accessed, dirty) are set by misses and by
//! stores that ask, not by hits. A machine with several cores has caches for each, which do not see each
//! other. A switch of processes empties nothing: segments tell them apart.

mod events;
mod handler;
mod pages;
mod physical;
mod rows;
mod space;
mod sweeps;
mod tables;
mod tlb;
mod translator;

use octavo_config::{
    IncreasedRights, MachineConfig, SoftvmConfig, SoftvmCycles, WriteBackTranslation,
};
use octavo_hw::{Asid, First, GlobalAddr, Second, VirtualCaches};
use octavo_os::vmas;
use octavo_types::{FrameNumber, Instructions, PageSize};

use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::Design;
use crate::env::Env;
use crate::front::LineAccess;
use events::Events;
use handler::Handler;
use pages::{PageOf, Pages};
pub use physical::Physical;
use rows::Rows;
use space::Space;
use tables::Tables;
use tlb::{Entry, SoftTlb};
use translator::Translator;
pub use translator::{Free, InCache, Software, Tlb};

/// The side of data.
const DATA: usize = 1;

/// Virtual caches, and what translates for them.
pub struct Softvm<T> {
    translator: T,
    caches: VirtualCaches,
    space: Space,
    handler: Handler,
    tables: Tables,
    pages: Pages,
    /// What has become stale since the caches were swept last.
    stale: Vec<(Asid, vmas::Pages)>,
    /// Whether a line of the first level holds several of those that accesses are to.
    has_wider_lines: bool,
    config: SoftvmConfig,
    counts: Counts,
}

/// What is counted beside the caches and the sweeps.
#[derive(Default)]
struct Counts {
    /// Of misses.
    events: Events,
    /// Of write-backs that are translated.
    write_backs: Events,
    /// Lines written to memory that gave way in the caches.
    lines_written: u64,
    /// Accesses of programs that missed the first level, and the second: by side.
    missed: [[u64; 2]; 2],
    /// Stores that a line did not allow.
    denied: u64,
    /// Accesses whose line had left the first level again before the program went on.
    restarts: u64,
    /// What an access found at each level whose page the TLB had not.
    of_tlb_misses: Rows,
}

impl Softvm<Software> {
    /// The paper's.
    pub fn new(machine: &MachineConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Self::with(Software, machine, instructions)
    }
}

impl Softvm<Free> {
    /// The caches alone.
    pub fn free(machine: &MachineConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Self::with(Free, machine, instructions)
    }
}

impl Softvm<InCache> {
    /// SPUR's.
    pub fn in_cache(
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        Self::with(InCache, machine, instructions)
    }
}

impl Softvm<Tlb> {
    /// With a TLB beside virtual caches.
    pub fn with_tlb(
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let tlb = Tlb(SoftTlb::new(machine.softvm.tlb, instructions));
        Self::with(tlb, machine, instructions)
    }
}

impl<T: Translator> Softvm<T> {
    /// One whose caches are empty.
    fn with(
        translator: T,
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let virtual_caches = machine.virtual_caches();
        let caches = VirtualCaches::new(&virtual_caches, instructions)?;
        let config = machine.softvm;
        let line_bytes = machine.cache.line_bytes;
        Ok(Softvm {
            translator,
            space: Space::new(line_bytes),
            handler: Handler::new(config.kernel.handler_instructions, caches.line_log2(0)),
            tables: Tables::new(config.kernel.table, machine.memory.bytes / PageSize::BASE.bytes()),
            pages: Pages::default(),
            stale: Vec::new(),
            has_wider_lines: virtual_caches.l1[0].line_bytes > line_bytes,
            config,
            counts: Counts::default(),
            caches,
        })
    }

    /// The first level does not serve an access.
    #[inline(never)]
    fn beyond_first(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
        mut first: First,
    ) -> Option<FrameNumber> {
        let (side, stores, repeats) = (access.side(), access.is_store(), access.repeats());
        loop {
            let second = match first {
                First::Hits(frame) => return Some(frame),
                First::Denies => Second::Denies,
                First::Misses => self.caches.second(side, addr, stores, 0),
            };
            match second {
                Second::Hits(_) => self.counts.missed[side][0] += 1,
                Second::Denies => self.denied(env, access, addr)?,
                Second::Misses => {
                    self.counts.missed[side][0] += 1;
                    self.counts.missed[side][1] += 1;
                    self.cache_miss(env, access, addr)?;
                }
            }
            self.write_back(env);
            if second != Second::Denies {
                // The program goes on, where the handler of write-backs has left its line.
                if let Some(line) = self.caches.probe(side, addr) {
                    self.caches.repeat(side, repeats);
                    return Some(line.frame());
                }
                self.counts.restarts += 1;
            }
            first = self.caches.first(side, addr, stores, repeats);
        }
    }

    /// CACHEMISS (section 4.1): the line of an access comes into the caches.
    fn cache_miss(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<()> {
        let (side, stores) = (access.side(), access.is_store());
        let (page, frame, may_store) = self.resolve_page(env, access)?;
        let may_store = self.claim(page, (frame, may_store), (side, stores));
        let loads = self.tables.loads(env.os().memory(), addr, page.0, frame);
        let parts = (&mut self.caches, &self.handler, &mut self.counts.events);
        self.translator.missed(parts, side, addr, loads);
        self.caches.load_and_map(side, addr, (frame, may_store), stores, 0);
        Some(())
    }

    /// A store to a line without that right.
    fn denied(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<()> {
        self.counts.denied += 1;
        let (page, frame, may_store) = self.resolve_page(env, access)?;
        self.claim(page, (frame, may_store), (access.side(), true));
        let is_lazy = self.config.kernel.increase == IncreasedRights::Lazy;
        self.pages.allow(&mut self.caches, page.0, addr, is_lazy);
        Some(())
    }

    /// The page of an access as the page table has it, once it may be used so; what becomes stale by that
    /// is swept.
    fn resolve_page(
        &mut self,
        env: &mut Env,
        access: LineAccess,
    ) -> Option<((PageOf, GlobalAddr), FrameNumber, bool)> {
        let page = env.page(access);
        let held = self.resolve(env, page, access)?;
        self.settle(env);
        let process = env.process();
        let at = self.space.of_page(process, page);
        Some(((PageOf { process, page }, at), held.frame_of(page), held.value.is_writable()))
    }

    /// As [`Pages::claim`].
    fn claim(
        &mut self,
        page: (PageOf, GlobalAddr),
        leaf: (FrameNumber, bool),
        how: (usize, bool),
    ) -> bool {
        let may_store = self.pages.claim(&mut self.caches, page, leaf, how);
        self.write_swept();
        may_store
    }

    /// Dirty lines that gave way go to memory. (Instructions are never dirty.)
    fn write_back(&mut self, env: &Env) {
        while let Some(line) = self.caches.next_write_back(DATA) {
            self.counts.lines_written += 1;
            if self.config.kernel.write_back == WriteBackTranslation::Again {
                let page = self.space.page_of(line.at);
                let entry = Entry::new(page, line.frame, true);
                let loads = self.tables.loads(env.os().memory(), line.at, page, line.frame);
                let parts = (&mut self.caches, &self.handler, &mut self.counts.write_backs);
                self.translator.write_back(parts, line.at, entry, loads);
            }
        }
    }

    /// What a sweep writes back needs no translation: whoever sweeps for a page knows where it lies.
    fn write_swept(&mut self) {
        while self.caches.next_write_back(DATA).is_some() {}
    }

    /// The lines of pages that have changed are made what the page table says now.
    #[inline(never)]
    fn sweep_stale(&mut self, env: &Env) {
        let is_lazy = self.config.kernel.increase == IncreasedRights::Lazy;
        for (asid, range) in std::mem::take(&mut self.stale) {
            let memory = env.os().memory();
            let leaf = |page: PageOf| {
                let lives = memory.live().any(|process| process == page.process);
                lives.then(|| memory.process(page.process).table.leaf(page.page)).flatten()
            };
            let is_meant = |process| env.asid_of(process) == asid;
            self.translator.forget(&range, &is_meant);
            self.pages.settle(&mut self.caches, &range, is_meant, leaf, is_lazy);
        }
        self.write_swept();
    }

    /// The TLB does not have the page of an access.
    #[inline(never)]
    fn refill(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<()> {
        let ((page, _), frame, may_store) = self.resolve_page(env, access)?;
        let entry = Entry::new(page, frame, may_store);
        let parts = (&mut self.caches, &self.handler, &mut self.counts.events);
        self.translator.refill(parts, access.side(), addr, entry);
        self.write_back(env);
        Some(())
    }

    /// An access whose page the TLB has not: it is refilled first.
    #[inline(never)]
    fn access_refilled(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
    ) -> Option<FrameNumber> {
        self.refill(env, access, addr)?;
        let side = access.side();
        let before = self.counts.missed[side];
        let frame = self.access_caches(env, access, addr)?;
        let after = self.counts.missed[side];
        self.counts.of_tlb_misses.add(side, before, after);
        Some(frame)
    }

    /// An access whose page needs no look-up, or has had it.
    #[inline(always)]
    fn access_caches(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
    ) -> Option<FrameNumber> {
        let side = access.side();
        let is_rest = access.lookups() == access.repeats();
        if self.has_wider_lines
            && is_rest
            && addr.raw() & ((1 << self.caches.line_log2(side)) - 1) != 0
            && let Some(frame) = self.rest_of_line(addr, access)
        {
            return Some(frame);
        }
        match self.caches.first(side, addr, access.is_store(), access.repeats()) {
            First::Hits(frame) => Some(frame),
            first => self.beyond_first(env, access, addr, first),
        }
    }

    /// The rest of a reference whose first part was in the same line: nothing is looked up for it.
    #[inline(never)]
    fn rest_of_line(&mut self, addr: GlobalAddr, access: LineAccess) -> Option<FrameNumber> {
        let line = self.caches.probe(access.side(), addr)?;
        self.caches.repeat(access.side(), access.repeats());
        Some(line.frame())
    }
}

impl<T: Translator> Design for Softvm<T> {
    const INTERLEAVES: bool = true;

    /// Nothing is translated before the caches are asked: [`Softvm::access`] does it all.
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.access(env, access)
    }

    #[inline(always)]
    fn access(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let addr = self.space.of_access(env.process(), access);
        if T::LOOKS_UP && !self.translator.look_up(access.side(), addr, access.lookups()) {
            return self.access_refilled(env, access, addr);
        }
        self.access_caches(env, access, addr)
    }

    fn forget(&mut self, asid: Asid, pages: &vmas::Pages) {
        self.stale.push((asid, pages.clone()));
    }

    fn settle(&mut self, env: &Env) {
        if !self.stale.is_empty() {
            self.sweep_stale(env);
        }
    }

    /// Segments tell processes apart: lines stay.
    fn flush(&mut self) {}

    fn tell(&self, counters: &mut Counters) {
        let Counts { events, write_backs, lines_written, missed, denied, restarts, of_tlb_misses } =
            &self.counts;
        let cycles = &self.config.cycles;
        events.tell("softvm", counters);
        counters.add("softvm", "denied", *denied);
        counters.add("softvm", "restarts", *restarts);
        write_backs.tell("softvm.write_back", counters);
        counters.add("softvm.write_back", "lines", *lines_written);
        self.pages.sweeps.tell(counters);
        self.translator.tell(counters);
        if let Some(tlb) = self.translator.tlb() {
            of_tlb_misses.tell(*missed, [0, 1].map(|side| tlb.lookups(side)), counters);
        }
        counters.add("softvm.segments", "reloads", self.space.reloads());
        counters.level("softvm.segments", "used", self.space.segments());
        tell_caches(&self.caches, *missed, cycles, counters);
        for (name, value) in [
            ("cycles_handler", events.cycles(cycles, T::IS_HARDWARE)),
            ("cycles_write_backs", write_backs.cycles(cycles, T::IS_HARDWARE)),
            ("cycles_sweeps", self.pages.sweeps.cycles(cycles)),
        ] {
            counters.add("core", name, value);
        }
    }
}

/// Adds what the caches counted, and the cycles of accesses that missed the first level, and the second.
fn tell_caches(
    caches: &VirtualCaches,
    missed: [[u64; 2]; 2],
    cycles: &SoftvmCycles,
    counters: &mut Counters,
) {
    let names = [["vcache.l1i", "vcache.l2i"], ["vcache.l1d", "vcache.l2d"]];
    for (side, names) in names.into_iter().enumerate() {
        for (name, level) in names.into_iter().zip(caches.counters(side)) {
            Lookups { hits: level.hits, misses: level.misses }.tell(name, counters);
            counters.add(name, "write_backs", level.write_backs);
        }
    }
    for (name, [l1, l2]) in ["cycles_fetches", "cycles_data"].into_iter().zip(missed) {
        let beyond_l1 = l1 * u64::from(cycles.l2_cycles) + l2 * u64::from(cycles.memory_cycles);
        counters.add("core", name, beyond_l1);
    }
}
