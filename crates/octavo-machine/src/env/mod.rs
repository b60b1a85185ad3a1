//! The environment of a design: page walks, the operating system and the data caches.

mod background;
mod check;
mod composite;
mod counters;
mod memory_port;
mod nested;
mod overlap;
mod present;
mod speculation;
mod vectors;
mod walk;
mod walker;

use octavo_config::{AddressSpaces, HostConfig, MachineConfig, WalkStart, WalkerConfig};
use octavo_hw::{
    Asid, Caches, DataAccess, MemoryTransfer, PrefetchLevel, PrivateCaches, Served, ServedBy,
    SharedCache, WalkCaches,
};
use octavo_os::frames::OutOfMemory;
use octavo_os::vmas::Pages;
use octavo_os::{Invalidation, Invalidations, Os, ProcessId, RunningOs};
use octavo_types::{AddrRange, FrameNumber, Instructions, PageNumber, PageSize, VirtAddr};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::config::{self, ConfigError};
use crate::core::{PrefetchCost, Speculation};
use crate::front::{LineAccess, Lines};
use crate::tlb::{Entry, Tlb, Translation};
use background::Background;
pub use composite::{CompositePages, HostAccess};
#[cfg(test)]
pub(crate) use memory_port::tests;
pub(crate) use nested::{Host, Port, guest_page};
use overlap::Overlap;
pub use speculation::Verified;
use vectors::VectorCounters;
pub(crate) use walk::{WalkedPage, page_start};
use walk::{WalkerCounters, place};
use walker::PageWalker;
pub use walker::{Prefetches, WalkPlan, WalkRequest, Walker};

/// The address space that translations belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressSpace {
    /// The process, for designs with page tables in software.
    pub process: ProcessId,
    /// The tag of TLB entries. All processes have the same one where a context switch flushes.
    pub asid: Asid,
}

/// All parts of a machine except its design.
pub struct Env {
    os: RunningOs,
    caches: Caches,
    lines: Lines,
    /// Private parts of each core; `None` for the running core, whose parts are in `caches` and
    /// `page_walker`.
    cores: Vec<Option<CoreParts>>,
    page_walker: PageWalker,
    core: usize,
    /// Cores that may hold translations of a process.
    holders: FxHashMap<ProcessId, FxHashSet<usize>>,
    /// Number of cores interrupted by shootdowns, excluding the initiator.
    interrupted: u64,
    /// The process that each core ran last.
    last_process: Vec<ProcessId>,
    process: ProcessId,
    asid: Asid,
    pending_invalidations: Vec<Invalidation>,
    /// Whether the running core's design has applied all pending invalidations.
    core_is_current: bool,
    /// The reason why the machine stopped.
    stopped: Option<String>,
    walker: WalkerCounters,
    vectors: VectorCounters,
    /// By core.
    overlaps: Vec<Overlap>,
    cycles: Cycles,
    l1_latency_cycles: [u32; 2],
    /// Fixed cost of a walk, in addition to its reads.
    walk_overhead_cycles: u32,
    walk_start: WalkStart,
    /// Latency of the second-level look-up of the current translation, if it missed: a walk of that translation may
    /// overlap it.
    missed_lookup_cycles: u32,
    address_spaces: AddressSpaces,
    /// The host, if programs run in a guest.
    host: Option<Box<Host>>,
    is_checked: bool,
    /// Whether the operating system observes every store (for merging of identical pages).
    tracks_stores: bool,
    /// Whether TLBs may hold guest halves of translations.
    caches_halves: bool,
    /// How the design translates composite pages, if it has any.
    composite: Option<&'static dyn CompositePages>,
    /// Whether prefetchers follow accesses to data.
    prefetches: bool,
    /// The address of the instruction of the current access, if a prefetcher or the design follows instructions.
    site: u64,
    /// The level that served the last line that missed a first-level cache.
    served_by: ServedBy,
    /// The names of the memory's tiers, by address.
    tiers: Vec<String>,
    /// Whether second-level caches may hold lines of translations.
    holds_translations: bool,
    /// Cycles so far of the walk under way that verifies a prediction.
    verified_cycles: Option<u32>,
    /// The prediction that the walk of the current access has verified.
    speculation: Speculation,
    /// Walks in the background of the current access, for a core that executes out of order.
    background: Option<Background>,
}

/// The private parts of a core that is not running.
struct CoreParts {
    caches: PrivateCaches,
    page_walker: PageWalker,
}

/// Cycles beyond those of a machine whose TLBs and first-level caches always hit.
#[derive(Clone, Copy, Default)]
struct Cycles {
    /// Second-level TLB look-ups, without the part that concurrent walks hide.
    tlb_l2: u64,
    /// Nested TLB look-ups of references that hit a guest half of a translation.
    tlb_nested: u64,
    walks: u64,
    /// Walks that right predictions hide, a part of `walks`.
    hidden_walks: u64,
    /// Flushes after wrong predictions.
    flushes: u64,
    /// Line accesses beyond the first-level caches: fetches, data.
    beyond_l1: [u64; 2],
}

/// Cycles charged beyond hits in first-level TLBs and caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charged {
    /// Look-ups of TLB levels behind the first.
    pub lookups: u64,
    /// Page walks.
    pub walks: u64,
    /// Lines that missed the first-level caches.
    pub caches: u64,
    /// Software that interrupts the program.
    pub handlers: u64,
}

impl Charged {
    /// The cycles charged since `before`.
    #[inline(always)]
    pub fn since(self, before: Charged) -> Charged {
        Charged {
            lookups: self.lookups - before.lookups,
            walks: self.walks - before.walks,
            caches: self.caches - before.caches,
            handlers: self.handlers - before.handlers,
        }
    }
}

impl Env {
    /// A machine with one process, running on core 0.
    pub fn new(
        config: &MachineConfig,
        os: Os,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let private = config.private_caches();
        let prefetches = !private.prefetchers.is_empty();
        let shared = SharedCache::new(&config.shared_cache(), instructions)?;
        let parts = || -> Result<CoreParts, ConfigError> {
            Ok(CoreParts {
                caches: PrivateCaches::new(&private, &shared, instructions)?,
                page_walker: PageWalker::new(WalkCaches::new(
                    &config.walker.walk_caches(),
                    instructions,
                )?),
            })
        };
        let mut cores =
            (0..config.core.count).map(|_| parts().map(Some)).collect::<Result<Vec<_>, _>>()?;
        let WalkerConfig { walkers, window_instructions, .. } = config.walker;
        let overlap = Overlap::new(walkers, window_instructions);
        let first = cores[0].take().expect("a machine has a core");
        let tracks_stores = os.memory().tracks_stores();
        Ok(Env {
            os: RunningOs::new(os),
            caches: Caches { private: first.caches, shared },
            lines: config::lines(config),
            cores,
            page_walker: first.page_walker,
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
            tracks_stores,
            caches_halves: false,
            composite: None,
            prefetches,
            site: 0,
            served_by: ServedBy::L1,
            tiers: config.placed_tiers().map(|tier| tier.name.to_owned()).collect(),
            holds_translations: false,
            verified_cycles: None,
            speculation: Speculation::None,
            background: None,
            l1_latency_cycles: [private.l1i.latency_cycles, private.l1d.latency_cycles],
        })
    }

    /// Sets whether each translation is checked against the page table.
    pub fn checked(self, is_checked: bool) -> Self {
        Env { is_checked, ..self }
    }

    /// Whether every access must be observed: for checks, or by an operating system that follows stores.
    #[inline(always)]
    pub(crate) fn observes_accesses(&self) -> bool {
        self.is_checked | self.tracks_stores
    }

    /// Whether each translation is checked against the page table.
    #[inline(always)]
    pub(crate) fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Reports a store to the operating system, if it follows stores.
    #[inline(always)]
    pub(crate) fn record_store(&mut self, access: LineAccess, frame: FrameNumber) {
        if self.tracks_stores && access.is_store() {
            self.os.record_store(frame);
        }
    }

    /// Places the machine in a guest of a host whose operating system is `os`. The current operating system
    /// becomes the guest's.
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

    /// Gives every core a walker of the design; in a guest, another one for the host's table.
    pub fn with_walkers(mut self, make: impl Fn() -> Box<dyn Walker>) -> Self {
        for walker in page_walkers(&mut self.cores, &mut self.page_walker) {
            walker.replace(make());
        }
        for core in self.host.iter_mut().flat_map(|host| &mut host.cores) {
            core.page_walker.replace(make());
        }
        self
    }

    /// The operating system; in a guest, the guest's.
    pub fn os(&self) -> &RunningOs {
        &self.os
    }

    /// The running address space.
    #[inline(always)]
    pub fn asid(&self) -> Asid {
        self.asid
    }

    /// The running process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Looks a page up in the second-level TLB and charges its latency, on hit and on miss.
    pub(crate) fn look_up_l2<E: Entry>(
        &mut self,
        l2: &mut Tlb<E>,
        page: PageNumber,
    ) -> Option<Translation<E>> {
        let translation = l2.look_up_rarely(self.asid, page, 1);
        self.charge_l2_lookup(l2.hit_latency_cycles(), translation.is_some());
        translation
    }

    /// Charges a look-up of a TLB level behind the second, which begins when that has missed. A walk that
    /// follows does not overlap it.
    pub fn charge_lookup(&mut self, latency_cycles: u32) {
        self.charge_l2_lookup(latency_cycles, true);
    }

    /// Charges a look-up of the second-level TLB or its substitute. After a miss, a walk of the same translation
    /// may overlap the look-up.
    pub(crate) fn charge_l2_lookup(&mut self, latency_cycles: u32, is_hit: bool) {
        self.cycles.tlb_l2 += u64::from(latency_cycles);
        self.missed_lookup_cycles = if is_hit { 0 } else { latency_cycles };
    }

    /// Charges a second look-up of the level that has just missed, which follows the first.
    pub(crate) fn extend_l2_lookup(&mut self, latency_cycles: u32, is_hit: bool) {
        let missed_cycles = self.missed_lookup_cycles + latency_cycles;
        self.cycles.tlb_l2 += u64::from(latency_cycles);
        self.missed_lookup_cycles = if is_hit { 0 } else { missed_cycles };
    }

    /// Accesses a line and its repeats in the caches, its page being in `frame`. Returns the frame of the
    /// line, which for a guest half of a translation is the host's, or `None` when memory has run out.
    #[inline(always)]
    pub fn access_line(&mut self, access: LineAccess, frame: FrameNumber) -> Option<FrameNumber> {
        // The translation has ended: later walks do not overlap its look-up.
        self.missed_lookup_cycles = 0;
        if self.caches_halves | self.prefetches {
            return self.access_line_slowly(access, frame);
        }
        let line = self.lines.physical(access.line(), frame.raw());
        let side = access.side();
        if !self.caches.private.hits(side, line, access.is_store(), access.repeats()) {
            self.serve_cache_miss(access, line);
        }
        Some(frame)
    }

    /// [`Self::access_line`] if TLBs may hold guest halves or lines are prefetched.
    #[inline(never)]
    fn access_line_slowly(
        &mut self,
        access: LineAccess,
        frame: FrameNumber,
    ) -> Option<FrameNumber> {
        let frame = if self.caches_halves { self.host_half(access, frame)? } else { frame };
        let line = self.lines.physical(access.line(), frame.raw());
        let (side, is_write, repeats) = (access.side(), access.is_store(), access.repeats());
        if self.prefetches && side != 0 {
            let data = DataAccess { line, is_write, repeats, site: self.site };
            if let Some(served) = self.caches.access_prefetching(&data) {
                self.charge_cache_miss(side, served);
            }
        } else if !self.caches.private.hits(side, line, is_write, repeats) {
            self.serve_cache_miss(access, line);
        }
        Some(frame)
    }

    /// Whether prefetchers follow accesses to data.
    #[inline(always)]
    pub(crate) fn prefetches(&self) -> bool {
        self.prefetches
    }

    /// Sets the address of the instruction of the next access.
    #[inline(always)]
    pub(crate) fn set_site(&mut self, site: u64) {
        self.site = site;
    }

    /// The address, as traced, of the instruction of the current access to data, for a design that
    /// [follows instructions](crate::design::Design::FOLLOWS_INSTRUCTIONS). Unspecified for a fetch.
    pub fn site(&self) -> u64 {
        self.site
    }

    /// Serves a first-level cache miss.
    #[inline(never)]
    fn serve_cache_miss(&mut self, access: LineAccess, line: u64) {
        let side = access.side();
        let served = self.caches.serve_miss(side, line, access.is_store());
        self.charge_cache_miss(side, served);
    }

    fn charge_cache_miss(&mut self, side: usize, served: Served) {
        self.served_by = served.by;
        // A machine may have a level behind the first, or memory, that is as fast or faster.
        self.cycles.beyond_l1[side] +=
            u64::from(served.latency_cycles.saturating_sub(self.l1_latency_cycles[side]));
    }

    /// The cycles charged so far.
    #[inline(always)]
    pub fn charged(&self) -> Charged {
        let Cycles { tlb_l2, tlb_nested, walks, beyond_l1: [fetches, data], .. } = self.cycles;
        Charged { lookups: tlb_l2 + tlb_nested, walks, caches: fetches + data, handlers: 0 }
    }

    /// Logs the lines transferred between the last-level cache and memory, the prefetches and the walks in the
    /// background, for a core that executes out of order.
    pub(crate) fn logging_transfers(mut self) -> Self {
        self.caches.shared.log_transfers();
        self.log_prefetches(true);
        self.background = Some(Background::default());
        self
    }

    fn log_prefetches(&mut self, logs: bool) {
        let others = self.cores.iter_mut().flatten().map(|core| &mut core.caches);
        others.chain([&mut self.caches.private]).for_each(|caches| caches.log_prefetches(logs));
    }

    /// The level that served the last line that missed a first-level cache.
    pub fn served_by(&self) -> ServedBy {
        self.served_by
    }

    /// Fills the last-level cache as its other users have done in the first `cycles` cycles.
    pub(crate) fn fill_by_others(&mut self, cycles: u64) {
        self.caches.shared.fill_by_others(cycles);
    }

    /// Whether others use the last-level cache as time passes.
    pub(crate) fn is_filled_by_others(&self) -> bool {
        self.caches.shared.filled_by_others().is_some()
    }

    /// Ends the log of [`Self::logging_transfers`].
    pub(crate) fn stop_logging_transfers(&mut self) {
        self.caches.shared.stop_logging_transfers();
        self.log_prefetches(false);
        self.background = None;
    }

    /// Moves the transfers logged since the last call to `out`: first those of the access, ending with the last line
    /// that it read from memory, then those of its prefetches. Returns the number of transfers of the access.
    pub(crate) fn take_transfers(&mut self, out: &mut Vec<MemoryTransfer>) -> usize {
        let first = out.len();
        out.append(self.caches.shared.transfers());
        let prefetches = self.caches.private.prefetches();
        let before = prefetches.and_then(|all| all.first()).map(|first| first.transfers_before);
        let own = before.unwrap_or(out.len() - first);
        let last = first + own;
        if let Some(read) = out[first..last].iter().rposition(|transfer| !transfer.is_write()) {
            out[first + read..last].rotate_left(1);
        }
        own
    }

    /// Whether the access has caused prefetches, or was the first to use a prefetched line.
    pub(crate) fn has_prefetched(&self) -> bool {
        self.caches.private.has_prefetched()
    }

    /// Moves the prefetches logged since the last call to `out`. `transfers` is the number of transfers of the access
    /// and its prefetches, `first_transfer` the index of the first one. Returns the level of the prefetched line that
    /// the access was the first to use, if any.
    pub(crate) fn take_prefetches(
        &mut self,
        (first_transfer, transfers): (usize, usize),
        out: &mut Vec<PrefetchCost>,
    ) -> Option<PrefetchLevel> {
        let l1_cycles = self.l1_latency_cycles[1];
        let logged = self.caches.private.prefetches()?;
        let ends = logged.iter().skip(1).map(|next| next.transfers_before).chain([transfers]);
        out.extend(logged.iter().zip(ends).map(|(prefetch, end)| PrefetchCost {
            line: prefetch.line,
            level: prefetch.level,
            served: prefetch.by,
            cycles: prefetch.latency_cycles.saturating_sub(l1_cycles),
            uses_l2: prefetch.uses_l2,
            first_transfer: (first_transfer + prefetch.transfers_before) as u32,
            transfers: (end - prefetch.transfers_before) as u32,
        }));
        logged.clear();
        self.caches.private.take_used()
    }

    /// The physical line of an access whose base page lies in a frame.
    pub(crate) fn physical_line(&self, access: LineAccess, frame: FrameNumber) -> u64 {
        self.lines.physical(access.line(), frame.raw())
    }

    /// The base page of an access.
    #[inline(always)]
    pub fn page(&self, access: LineAccess) -> PageNumber {
        self.lines.page(access.line())
    }

    /// Charges a new walk, or a further part of the last one if `continues_walk`.
    pub(crate) fn charge_walk_part(&mut self, latency_cycles: u32, continues_walk: bool) {
        match continues_walk {
            true => self.extend_walk(latency_cycles),
            false => self.charge_walk(latency_cycles),
        }
    }

    /// Charges a further part of the last walk.
    pub(crate) fn extend_walk(&mut self, latency_cycles: u32) {
        if let Some(cycles) = &mut self.verified_cycles {
            *cycles += latency_cycles;
            return;
        }
        self.cycles.walks += u64::from(latency_cycles);
        self.overlaps[self.core].extend(latency_cycles);
    }

    /// Charges a new walk.
    fn charge_walk(&mut self, latency_cycles: u32) {
        if let Some(cycles) = &mut self.verified_cycles {
            *cycles += latency_cycles;
            return;
        }
        let lookup_cycles = std::mem::take(&mut self.missed_lookup_cycles);
        let hidden_cycles = walk::overlap_cycles(self.walk_start, lookup_cycles, latency_cycles);
        self.cycles.tlb_l2 -= u64::from(hidden_cycles);
        self.cycles.walks += u64::from(latency_cycles);
        let (instruction, _) = self.fetches_and_l2_misses();
        self.overlaps[self.core].walk(instruction, latency_cycles);
    }

    /// Number of page-table entries that walks have read from memory so far; in a guest, including entries of the
    /// host's table.
    pub fn entries_read_from_memory(&self) -> u64 {
        let count = |walker: &WalkerCounters| walker.reads_by[place(ServedBy::Memory)];
        count(&self.walker) + self.host.as_ref().map_or(0, |host| count(&host.walker))
    }

    /// Instructions that the running core has fetched so far, and misses of its second-level cache.
    pub fn fetches_and_l2_misses(&self) -> (u64, u64) {
        let counters = self.caches.private.counters();
        (counters.l1i.accesses(), counters.l2.misses)
    }

    /// Number of walks so far.
    #[inline(always)]
    pub fn walks(&self) -> u64 {
        self.walker.walks
    }

    /// Bytes of a cache line.
    pub fn line_bytes(&self) -> u64 {
        1 << self.lines.log2()
    }

    /// Runs `work`. Returns its result, and whether mappings have changed meanwhile.
    #[inline(always)]
    pub(crate) fn noting_changes<T>(&mut self, work: impl FnOnce(&mut Env) -> T) -> (T, bool) {
        let before = self.pending_invalidations.len();
        let done = work(self);
        (done, self.pending_invalidations.len() > before)
    }

    /// Runs `work` for the design of the running core, and has `invalidate` apply the invalidations that it causes.
    /// The machine delivers them to the other cores.
    #[inline(always)]
    pub(crate) fn delivering<T>(
        &mut self,
        work: impl FnOnce(&mut Env) -> T,
        mut invalidate: impl FnMut(AddressSpace, &Pages),
    ) -> T {
        let before = self.pending_invalidations.len();
        let done = work(self);
        for invalidation in &self.pending_invalidations[before..] {
            invalidate(self.address_space(invalidation.process), &invalidation.pages);
        }
        done
    }

    /// Has `invalidate` apply the invalidations since the last access again: for parts of a design beside the TLBs that
    /// have walked.
    #[inline(always)]
    pub(crate) fn repeat_delivery(&self, mut invalidate: impl FnMut(AddressSpace, &Pages)) {
        for invalidation in &self.pending_invalidations {
            invalidate(self.address_space(invalidation.process), &invalidation.pages);
        }
    }

    /// Invalidations not yet delivered to every core: for the machine alone.
    #[inline(always)]
    pub(crate) fn pending_invalidations(&self) -> &[Invalidation] {
        &self.pending_invalidations
    }

    /// Discards the pending invalidations after delivery to every core.
    pub(crate) fn clear_invalidations(&mut self) {
        self.pending_invalidations.clear();
        self.core_is_current = true;
    }

    /// The core that has applied the pending invalidations already, if any.
    pub(crate) fn current_core(&self) -> Option<usize> {
        self.core_is_current.then_some(self.core)
    }

    /// The address-space identifier of a process. All processes share one where a context switch flushes.
    pub fn asid_of(&self, process: ProcessId) -> Asid {
        match self.address_spaces {
            AddressSpaces::Flushed => Asid::ONLY,
            AddressSpaces::Tagged => {
                Asid::new(process.0).expect("fewer processes than identifiers")
            }
        }
    }

    /// The address space of a process.
    pub(crate) fn address_space(&self, process: ProcessId) -> AddressSpace {
        AddressSpace { process, asid: self.asid_of(process) }
    }

    /// Runs `work` on the operating system, and applies the invalidations that it causes to the walk caches of all
    /// cores. `None` when memory has run out.
    pub(crate) fn with_os<T>(
        &mut self,
        work: impl FnOnce(&mut Os) -> Result<T, OutOfMemory>,
    ) -> Option<T> {
        let (done, invalidations) = self.os.change(work);
        self.invalidate_walk_caches(invalidations);
        let runs = self.os.take_contiguous_tables();
        if self.host.is_some() {
            self.back_contiguous_tables(runs);
        }
        self.exchange_memory();
        done.map_err(|error| self.stopped = Some(error.to_string())).ok()
    }

    /// Has the host exchange the memory behind guest frames, as the guest's operating system has asked. Without a host,
    /// the operating system copies.
    fn exchange_memory(&mut self) {
        let exchanges = self.os.take_exchanges();
        if exchanges.is_empty() {
            return;
        }
        let made = match self.host.is_some() {
            true => self.with_host(|host, _| host.exchange(&exchanges)),
            false => None,
        };
        self.os.count_exchanges(&exchanges, made.as_deref());
    }

    /// Switches a core to a process. Returns whether the core's translations must be flushed, because they
    /// belong to another process with the same identifier.
    pub(crate) fn switch_to(&mut self, core: usize, process: ProcessId) -> bool {
        if core != self.core {
            let next = self.cores[core].take().expect("a core that does not run");
            let suspended = CoreParts {
                caches: std::mem::replace(&mut self.caches.private, next.caches),
                page_walker: std::mem::replace(&mut self.page_walker, next.page_walker),
            };
            self.cores[self.core] = Some(suspended);
            self.core = core;
        }
        (self.process, self.asid) = (process, self.asid_of(process));
        let previous = std::mem::replace(&mut self.last_process[core], process);
        let flushes = self.address_spaces == AddressSpaces::Flushed && previous != process;
        if flushes {
            self.page_walker.clear();
            self.caches.private.clear_translations();
            self.holders.entry(previous).or_default().remove(&core);
        }
        self.holders.entry(process).or_default().insert(core);
        flushes
    }

    /// Ends a process.
    pub(crate) fn exit(&mut self, process: ProcessId) {
        self.with_os(|os| {
            os.end(process);
            Ok(())
        });
        self.holders.remove(&process);
    }

    /// Checks that no frame is lost and that every page table agrees with the allocated frames.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        let host = self.host.as_ref().map_or(Ok(()), |host| host.check());
        self.os.memory().check().and(host)
    }

    /// The running core.
    pub(crate) fn core(&self) -> usize {
        self.core
    }

    /// Applies invalidations to the walk caches of all cores, and keeps them for the designs.
    fn invalidate_walk_caches(&mut self, invalidations: Invalidations) {
        for invalidation in invalidations {
            let asid = self.asid_of(invalidation.process);
            let start = VirtAddr::new(invalidation.pages.start << PageSize::BASE.log2());
            // One page less than the 64-bit space, whose size in bytes 64 bits cannot represent.
            let pages = invalidation.pages.end.min((1 << 52) - 1) - invalidation.pages.start;
            let range = AddrRange::new(start, pages << PageSize::BASE.log2());
            self.invalidate_translation_lines(
                asid,
                invalidation.pages.start,
                invalidation.pages.end,
            );
            let further = self.composite.and_then(|composite| composite.further_tags(range));
            for walker in page_walkers(&mut self.cores, &mut self.page_walker) {
                walker.invalidate(asid, range);
                if let Some(further) = further {
                    walker.invalidate(asid, further);
                }
            }
            let holders = self.holders.get(&invalidation.process).into_iter().flatten();
            self.interrupted += holders.filter(|core| **core != self.core).count() as u64;
            self.pending_invalidations.push(invalidation);
        }
    }
}

/// The page walkers of all cores.
fn page_walkers<'e>(
    others: &'e mut [Option<CoreParts>],
    running: &'e mut PageWalker,
) -> impl Iterator<Item = &'e mut PageWalker> {
    others.iter_mut().flatten().map(|core| &mut core.page_walker).chain([running])
}
