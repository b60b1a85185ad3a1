//! What a design reaches the rest of its machine through: page walks, the operating system, the
//! data caches.

mod tell;

use octavo_config::{AddressSpaces, MachineConfig};
use octavo_hw::{Asid, Caches, PrivateCaches, ServedBy, SharedCache, WalkCaches};
use octavo_os::frames::OutOfMemory;
use octavo_os::{Access, Os, ProcessId, Stale};
use octavo_types::{
    AddrRange, FrameNumber, Instructions, PageNumber, PageSize, PhysAddr, VirtAddr,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::config::{self, ConfigError};
use crate::front::{Kind, LineAccess, Lines};
use crate::tlb::Held;

/// What a machine has beside its design: one for each design that is simulated.
pub struct Env {
    os: Os,
    caches: Caches,
    lines: Lines,
    /// By core, what only the running one has at hand.
    cores: Vec<Option<CoreParts>>,
    walk_caches: WalkCaches<()>,
    core: usize,
    /// By process, the cores that may hold translations of it.
    holders: FxHashMap<ProcessId, FxHashSet<usize>>,
    /// Cores that shootdowns interrupted, other than the one that made them.
    interrupted: u64,
    /// By core, the process that it ran last.
    ran: Vec<ProcessId>,
    process: ProcessId,
    asid: Asid,
    levels: u8,
    stale: Vec<Stale>,
    out_of_memory: Option<OutOfMemory>,
    walker: WalkerCounters,
    cycles: Cycles,
    l1_latency_cycles: [u32; 2],
    /// What a walk costs beside its reads.
    walk_overhead_cycles: u32,
    address_spaces: AddressSpaces,
}

/// What belongs to a core that does not run.
struct CoreParts {
    caches: PrivateCaches,
    walk_caches: WalkCaches<()>,
}

/// What page walkers counted.
#[derive(Clone, Copy, Default)]
struct WalkerCounters {
    /// Walks, those that ended in a fault among them.
    walks: u64,
    /// Of those, such that ended in a fault.
    faulted: u64,
    /// Entries read, by where they were.
    reads: u64,
    reads_by: [u64; 4],
    /// Entries whose accessed or dirty bit was set.
    marked: u64,
}

/// Cycles beyond those of a machine whose TLBs and first-level caches always hit, added up.
#[derive(Clone, Copy, Default)]
struct Cycles {
    tlb_l2: u64,
    walks: u64,
    /// Of fetches, of data.
    beyond_l1: [u64; 2],
}

/// What a walk found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walked {
    /// The page.
    pub held: Held,
    /// What it cost.
    pub latency_cycles: u32,
}

impl Env {
    /// With one process, which runs on core 0.
    pub fn new(
        config: &MachineConfig,
        os: Os,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let private = config.private_caches();
        let shared = SharedCache::new(&config.shared_cache(), instructions)?;
        let parts = || -> Result<CoreParts, ConfigError> {
            Ok(CoreParts {
                caches: PrivateCaches::new(&private, &shared, instructions)?,
                walk_caches: WalkCaches::new(&config.walker.walk_caches(), instructions)?,
            })
        };
        let mut cores =
            (0..config.core.count).map(|_| parts().map(Some)).collect::<Result<Vec<_>, _>>()?;
        let first = cores[0].take().expect("a machine has a core");
        Ok(Env {
            os,
            caches: Caches { private: first.caches, shared },
            lines: config::lines(config),
            cores,
            walk_caches: first.walk_caches,
            core: 0,
            holders: FxHashMap::default(),
            interrupted: 0,
            ran: vec![ProcessId::default(); config.core.count as usize],
            process: ProcessId::default(),
            asid: Asid::ONLY,
            levels: config.page_table.levels,
            stale: Vec::new(),
            out_of_memory: None,
            walker: WalkerCounters::default(),
            cycles: Cycles::default(),
            walk_overhead_cycles: config.walker.overhead_cycles,
            address_spaces: config.core.address_spaces,
            l1_latency_cycles: [private.l1i.latency_cycles, private.l1d.latency_cycles],
        })
    }

    /// The operating system.
    pub fn os(&self) -> &Os {
        &self.os
    }

    /// The address space that runs.
    #[inline(always)]
    pub fn asid(&self) -> Asid {
        self.asid
    }

    /// The process that runs.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Why the machine cannot go on, if it cannot.
    pub fn out_of_memory(&self) -> Option<OutOfMemory> {
        self.out_of_memory
    }

    /// Walks the page table for a base page that runs, until it may be used as asked: a page that
    /// is not there, or may not be stored to, faults, and is walked again. None where memory has
    /// run out: the machine stops then.
    ///
    /// What has become [stale](Env::stale) by that is to be forgotten before the page is filled
    /// anywhere.
    #[inline(never)]
    pub fn walk(&mut self, page: PageNumber, kind: Kind) -> Option<Walked> {
        let stores = kind == Kind::Store;
        let mut latency_cycles = 0;
        loop {
            let at = self.walk_once(page, &mut latency_cycles);
            let table = &mut self.os.memory_mut().process_mut(self.process).table;
            if let Some(leaf) = table.leaf(page)
                && (!stores || leaf.rights.write)
            {
                if table.mark(page, stores) {
                    self.walker.marked += 1;
                    latency_cycles += self.caches.write_pte(line_of(at, self.lines)).latency_cycles;
                }
                let table = &self.os.memory().process(self.process).table;
                let is_dirty = table.used(page).is_some_and(|(_, dirty)| dirty);
                self.cycles.walks += u64::from(latency_cycles);
                return Some(Walked { held: Held::of(&leaf, is_dirty), latency_cycles });
            }
            self.walker.faulted += 1;
            self.fault(page, kind)?;
        }
    }

    /// What the page table says of a base page, and the operating system where that does not
    /// suffice; but nothing is read for it, or counted of a walker. For bounds.
    pub fn resolve(&mut self, page: PageNumber, kind: Kind) -> Option<Held> {
        let stores = kind == Kind::Store;
        loop {
            let table = &mut self.os.memory_mut().process_mut(self.process).table;
            if let Some(leaf) = table.leaf(page)
                && (!stores || leaf.rights.write)
            {
                table.mark(page, stores);
                let is_dirty = table.used(page).is_some_and(|(_, dirty)| dirty);
                return Some(Held::of(&leaf, is_dirty));
            }
            self.fault(page, kind)?;
        }
    }

    /// The operating system maps a page, or lets it be stored to; none where memory has run out.
    fn fault(&mut self, page: PageNumber, kind: Kind) -> Option<()> {
        let access = match kind {
            Kind::Fetch => Access::Fetch,
            Kind::Load => Access::Load,
            Kind::Store => Access::Store,
        };
        let process = self.process;
        self.with_os(|os| os.fault(process, page, access))
    }

    /// One walk; returns where the last entry lies that it read.
    fn walk_once(&mut self, page: PageNumber, latency_cycles: &mut u32) -> PhysAddr {
        self.walker.walks += 1;
        *latency_cycles += self.walk_overhead_cycles;
        let addr = VirtAddr::new(page.raw() << PageSize::BASE.log2());
        let walk = self.os.memory().process(self.process).table.walk(page);
        let known = self.walk_caches.deepest(self.asid, addr);
        let from = known.map_or(self.levels + 1, |(level, ())| level);
        let steps = walk.steps();
        debug_assert!(steps.last().is_some_and(|last| last.level < from), "a stale walk cache");
        for (number, step) in steps.iter().enumerate().filter(|(_, step)| step.level < from) {
            let served = self.caches.read_pte(line_of(step.at, self.lines));
            self.walker.reads += 1;
            self.walker.reads_by[place(served.by)] += 1;
            *latency_cycles += served.latency_cycles;
            if steps.get(number + 1).is_some_and(|next| next.level < step.level) {
                self.walk_caches.fill(self.asid, addr, step.level, ());
            }
        }
        steps.last().expect("a walk reads the root's entry").at
    }

    /// A second-level TLB has served a reference.
    #[inline(always)]
    pub fn add_tlb_cycles(&mut self, latency_cycles: u32) {
        self.cycles.tlb_l2 += u64::from(latency_cycles);
    }

    /// The line of an access is read or written, its page being in `frame`, and its repeats after
    /// it.
    #[inline(always)]
    pub fn access_line(&mut self, access: LineAccess, frame: FrameNumber) {
        let line = self.lines.physical(access.line(), frame.raw());
        let side = access.side();
        if !self.caches.private.hits(side, line, access.is_store(), access.repeats()) {
            self.missed_line(access, line);
        }
    }

    /// The first-level cache has missed.
    #[inline(never)]
    fn missed_line(&mut self, access: LineAccess, line: u64) {
        let side = access.side();
        let served = self.caches.missed(side, line, access.is_store());
        self.cycles.beyond_l1[side] +=
            u64::from(served.latency_cycles - self.l1_latency_cycles[side]);
    }

    /// The base page of an access.
    #[inline(always)]
    pub fn page(&self, access: LineAccess) -> PageNumber {
        self.lines.page(access.line())
    }

    /// How many walks there were.
    #[inline(always)]
    pub fn walks(&self) -> u64 {
        self.walker.walks
    }

    /// Bytes of a line of the caches.
    pub fn line_bytes(&self) -> u64 {
        1 << self.lines.log2()
    }

    /// What whoever keeps translations has to forget, since the machine last told all cores.
    #[inline(always)]
    pub fn stale(&self) -> &[Stale] {
        &self.stale
    }

    /// All cores have been told.
    pub(crate) fn clear_stale(&mut self) {
        self.stale.clear();
    }

    /// The identifier of a process' address space: the only one, where a switch empties all that
    /// would carry it.
    pub fn asid_of(&self, process: ProcessId) -> Asid {
        match self.address_spaces {
            AddressSpaces::Flushed => Asid::ONLY,
            AddressSpaces::Tagged => {
                Asid::new(process.0).expect("fewer processes than identifiers")
            }
        }
    }

    /// Does something with the operating system; what becomes stale is collected.
    pub(crate) fn with_os<T>(
        &mut self,
        work: impl FnOnce(&mut Os) -> Result<T, OutOfMemory>,
    ) -> Option<T> {
        let done = work(&mut self.os);
        self.collect_stale();
        done.map_err(|error| self.out_of_memory = Some(error)).ok()
    }

    /// From here on a core runs a process. Returns whether the core's translations belong to
    /// another process that is not told apart from it.
    pub(crate) fn run(&mut self, core: usize, process: ProcessId) -> bool {
        if core != self.core {
            let next = self.cores[core].take().expect("a core that does not run");
            let before = CoreParts {
                caches: std::mem::replace(&mut self.caches.private, next.caches),
                walk_caches: std::mem::replace(&mut self.walk_caches, next.walk_caches),
            };
            self.cores[self.core] = Some(before);
            self.core = core;
        }
        (self.process, self.asid) = (process, self.asid_of(process));
        let before = std::mem::replace(&mut self.ran[core], process);
        let flushes = self.address_spaces == AddressSpaces::Flushed && before != process;
        if flushes {
            self.walk_caches.clear();
            self.holders.entry(before).or_default().remove(&core);
        }
        self.holders.entry(process).or_default().insert(core);
        flushes
    }

    /// A process is over.
    pub(crate) fn end(&mut self, process: ProcessId) {
        self.with_os(|os| {
            os.end(process);
            Ok(())
        });
        self.holders.remove(&process);
    }

    /// The core that runs.
    pub(crate) fn core(&self) -> usize {
        self.core
    }

    fn collect_stale(&mut self) {
        for stale in self.os.take_stale() {
            let asid = self.asid_of(stale.process);
            let start = VirtAddr::new(stale.pages.start << PageSize::BASE.log2());
            let pages = stale.pages.end.min(1 << 52) - stale.pages.start;
            let range = AddrRange::new(start, pages << PageSize::BASE.log2());
            self.walk_caches.invalidate(asid, range);
            for core in self.cores.iter_mut().flatten() {
                core.walk_caches.invalidate(asid, range);
            }
            let holders = self.holders.get(&stale.process).into_iter().flatten();
            self.interrupted += holders.filter(|core| **core != self.core).count() as u64;
            self.stale.push(stale);
        }
    }
}

fn place(by: ServedBy) -> usize {
    match by {
        ServedBy::L1 => 0,
        ServedBy::L2 => 1,
        ServedBy::Llc => 2,
        ServedBy::Memory => 3,
    }
}

fn line_of(at: PhysAddr, lines: Lines) -> u64 {
    at.raw() >> lines.log2()
}
