//! What a design reaches the rest of its machine through: page walks, the operating system, the
//! data caches.

mod check;
mod counters;
mod gapped;
mod nested;
mod overlap;
mod perforated;
mod vectors;
mod walk;

use octavo_config::{AddressSpaces, HostConfig, MachineConfig, WalkStart, WalkerConfig};
use octavo_hw::{Asid, Caches, PrivateCaches, SharedCache, WalkCaches};
use octavo_os::frames::OutOfMemory;
use octavo_os::{Invalidation, Os, ProcessId};
use octavo_types::{AddrRange, FrameNumber, Instructions, PageNumber, PageSize, VirtAddr};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::config::{self, ConfigError};
use crate::design::AddressSpace;
use crate::front::{LineAccess, Lines};
use crate::tlb::{Tlb, Translation};
use nested::Host;
use overlap::Overlap;
pub(crate) use perforated::PartAccess;
use vectors::VectorCounters;
use walk::WalkerCounters;

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
    last_process: Vec<ProcessId>,
    process: ProcessId,
    asid: Asid,
    pending_invalidations: Vec<Invalidation>,
    /// Whether the design of the core that runs knows of all that is stale.
    core_is_current: bool,
    /// Why the machine cannot go on.
    stopped: Option<String>,
    walker: WalkerCounters,
    vectors: VectorCounters,
    /// By core.
    overlaps: Vec<Overlap>,
    cycles: Cycles,
    l1_latency_cycles: [u32; 2],
    /// What a walk costs beside its reads.
    walk_overhead_cycles: u32,
    walk_start: WalkStart,
    /// Cycles of a look-up that has missed, until the walk that follows it.
    missed_lookup_cycles: u32,
    address_spaces: AddressSpaces,
    /// Where programs run in a guest.
    host: Option<Box<Host>>,
    is_checked: bool,
    /// Whether the operating system has to be told of every store.
    follows_stores: bool,
    /// Whether TLBs may hold halves of translations.
    caches_halves: bool,
}

/// What belongs to a core that does not run.
struct CoreParts {
    caches: PrivateCaches,
    walk_caches: WalkCaches<()>,
}

/// Cycles beyond those of a machine whose TLBs and first-level caches always hit, added up.
#[derive(Clone, Copy, Default)]
struct Cycles {
    /// Of look-ups of the second level, but for what walks that started with them hide.
    tlb_l2: u64,
    /// Of references that half a translation served.
    tlb_nested: u64,
    walks: u64,
    /// Of fetches, of data.
    beyond_l1: [u64; 2],
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
        let WalkerConfig { walkers, window_instructions, .. } = config.walker;
        let overlap = Overlap::new(walkers, window_instructions);
        let first = cores[0].take().expect("a machine has a core");
        let follows_stores = os.memory().follows_stores();
        Ok(Env {
            os,
            caches: Caches { private: first.caches, shared },
            lines: config::lines(config),
            cores,
            walk_caches: first.walk_caches,
            core: 0,
            holders: FxHashMap::default(),
            interrupted: 0,
            last_process: vec![ProcessId::default(); config.core.count as usize],
            process: ProcessId::default(),
            asid: Asid::ONLY,
            pending_invalidations: Vec::new(),
            core_is_current: true,
            stopped: None,
            walker: WalkerCounters::default(),
            vectors: VectorCounters::default(),
            overlaps: vec![overlap; config.core.count as usize],
            cycles: Cycles::default(),
            walk_overhead_cycles: config.walker.overhead_cycles,
            walk_start: config.walker.start,
            missed_lookup_cycles: 0,
            address_spaces: config.core.address_spaces,
            host: None,
            is_checked: false,
            follows_stores,
            caches_halves: false,
            l1_latency_cycles: [private.l1i.latency_cycles, private.l1d.latency_cycles],
        })
    }

    /// The same; whether each translation is compared with what the page table says.
    pub fn checked(self, is_checked: bool) -> Self {
        Env { is_checked, ..self }
    }

    /// Whether somebody wants to know of every access.
    #[inline(always)]
    pub(crate) fn observes_accesses(&self) -> bool {
        self.is_checked | self.follows_stores
    }

    /// Whether each translation is compared with what the page table says.
    #[inline(always)]
    pub(crate) fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The line of an access lies in `frame`: the operating system is told of a store, if it follows those.
    #[inline(always)]
    pub(crate) fn record_store(&mut self, access: LineAccess, frame: FrameNumber) {
        if self.follows_stores && access.is_store() {
            self.os.memory_mut().note_stored(frame);
        }
    }

    /// The same; programs run in a guest of such a host, whose operating system is `os`. The one that
    /// is there already is the guest's.
    pub fn in_guest(
        self,
        config: &MachineConfig,
        host: &HostConfig,
        os: Os,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let guest = (config.memory.bytes, config.core.count);
        let (host, vm_mapped) = Host::new(host, os, guest, self.walk_start, instructions)?;
        let caches_halves = host.caches_halves();
        let mut env = Env { host: Some(Box::new(host)), caches_halves, ..self };
        vm_mapped.unwrap_or_else(|error| env.stop_for_host(error));
        Ok(env)
    }

    /// The operating system: of a guest, the guest's.
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

    /// Looks a page up in the second-level TLB, for its latency whether it is there or not.
    pub(crate) fn look_up_second(&mut self, l2: &mut Tlb, page: PageNumber) -> Option<Translation> {
        let translation = l2.look_up_rarely(self.asid, page, 1);
        self.add_lookup(l2.hit_latency_cycles(), translation.is_some());
        translation
    }

    /// The second-level TLB, or what is looked up in its place, was looked up. After a miss comes
    /// either [`Env::walk`], which may have started with the look-up, or [`Env::resolve`].
    pub(crate) fn add_lookup(&mut self, latency_cycles: u32, is_hit: bool) {
        self.cycles.tlb_l2 += u64::from(latency_cycles);
        self.missed_lookup_cycles = if is_hit { 0 } else { latency_cycles };
    }

    /// The line of an access is read or written, its page being in `frame`, and its repeats after
    /// it: the frame of the line, which of half a translation is the host's. None where memory has run out.
    #[inline(always)]
    pub fn access_line(&mut self, access: LineAccess, frame: FrameNumber) -> Option<FrameNumber> {
        let frame = if self.caches_halves { self.other_half(access, frame)? } else { frame };
        let line = self.lines.physical(access.line(), frame.raw());
        let side = access.side();
        if !self.caches.private.hits(side, line, access.is_store(), access.repeats()) {
            self.missed_line(access, line);
        }
        Some(frame)
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

    /// A walk is over, or so was a part of one that is under way.
    fn add_or_extend_walk(&mut self, latency_cycles: u32, continues_walk: bool) {
        match continues_walk {
            true => self.extend_walk(latency_cycles),
            false => self.add_walk_cycles(latency_cycles),
        }
    }

    /// What has been added of the last walk was not all of it.
    fn extend_walk(&mut self, latency_cycles: u32) {
        self.cycles.walks += u64::from(latency_cycles);
        self.overlaps[self.core].extend(latency_cycles);
    }

    /// A walk is over.
    fn add_walk_cycles(&mut self, latency_cycles: u32) {
        let lookup_cycles = std::mem::take(&mut self.missed_lookup_cycles);
        let hidden_cycles = walk::overlap(self.walk_start, lookup_cycles, latency_cycles);
        self.cycles.tlb_l2 -= u64::from(hidden_cycles);
        self.cycles.walks += u64::from(latency_cycles);
        let l1i = self.caches.private.counters().l1i;
        self.overlaps[self.core].walk(l1i.hits + l1i.misses, latency_cycles);
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
    pub fn pending_invalidations(&self) -> &[Invalidation] {
        &self.pending_invalidations
    }

    /// All cores have been told.
    pub(crate) fn clear_invalidations(&mut self) {
        self.pending_invalidations.clear();
        self.core_is_current = true;
    }

    /// The core that knows already what is stale, if it does.
    pub(crate) fn current_core(&self) -> Option<usize> {
        self.core_is_current.then_some(self.core)
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

    /// The same, with what it is to the operating system.
    pub(crate) fn address_space(&self, process: ProcessId) -> AddressSpace {
        AddressSpace { process, asid: self.asid_of(process) }
    }

    /// Does something with the operating system; what becomes stale is collected.
    pub(crate) fn with_os<T>(
        &mut self,
        work: impl FnOnce(&mut Os) -> Result<T, OutOfMemory>,
    ) -> Option<T> {
        let done = work(&mut self.os);
        self.collect_invalidations();
        done.map_err(|error| self.stopped = Some(error.to_string())).ok()
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
        let before = std::mem::replace(&mut self.last_process[core], process);
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

    /// Whether no frame was lost, and every page table says what memory holds; else what is wrong.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        let host = self.host.as_ref().map_or(Ok(()), |host| host.check());
        self.os.memory().check().and(host)
    }

    /// The core that runs.
    pub(crate) fn core(&self) -> usize {
        self.core
    }

    fn collect_invalidations(&mut self) {
        for invalidation in self.os.take_invalidations() {
            let asid = self.asid_of(invalidation.process);
            let start = VirtAddr::new(invalidation.pages.start << PageSize::BASE.log2());
            // Less than all that 64 bits address, which no number of bytes says.
            let pages = invalidation.pages.end.min((1 << 52) - 1) - invalidation.pages.start;
            let range = AddrRange::new(start, pages << PageSize::BASE.log2());
            let has_shadows = self.os.memory().frames.hole_bitmaps().are_there();
            let others = self.cores.iter_mut().flatten().map(|core| &mut core.walk_caches);
            for caches in others.chain([&mut self.walk_caches]) {
                caches.invalidate(asid, range);
                if has_shadows {
                    caches.invalidate(asid, perforated::of_shadow(range));
                }
            }
            let holders = self.holders.get(&invalidation.process).into_iter().flatten();
            self.interrupted += holders.filter(|core| **core != self.core).count() as u64;
            self.pending_invalidations.push(invalidation);
        }
    }
}
