//! Page walks, and the page faults that end them.

use octavo_config::WalkStart;
use octavo_hw::{Caches, Served, ServedBy};
use octavo_os::page_table::{PageTable, Walk};
use octavo_os::{ProcessId, RunningOs};
use octavo_types::{Access, PageNumber, PageSize, PhysAddr, VirtAddr};

use super::Env;
use super::walker::{Planned, WalkReads, WalkRequest};
use crate::front::Lines;
use crate::tlb::Translation;

pub(super) const READS_SUCCEED: &str = "reads of the machine's memory succeed";

/// Counters of a page walker.
#[derive(Clone, Copy, Default)]
pub(super) struct WalkerCounters {
    /// Walks, including those that ended in a page fault.
    pub walks: u64,
    /// Walks that ended in a page fault.
    pub faulted: u64,
    /// Walks by a store to a page that a TLB held as clean.
    pub walks_dirty: u64,
    /// Entries read.
    pub reads: u64,
    /// Entries read, by the level that served their lines.
    pub reads_by: [u64; 4],
    /// Entries whose accessed or dirty bit was set.
    pub marked: u64,
    /// Lines read of a design's tables beside the page table.
    pub table_reads: u64,
    /// Entries prefetched, by the level that served their lines.
    pub prefetches_by: [u64; 4],
    /// Prefetched entries that the walk read.
    pub prefetches_used: u64,
}

/// Reads of a page table in the machine's memory.
pub(super) struct EntryReads<'e> {
    pub caches: &'e mut Caches,
    pub lines: Lines,
    pub walker: &'e mut WalkerCounters,
    /// The address of the page's entry, once it is read.
    pub entry: Option<PhysAddr>,
}

impl WalkReads for EntryReads<'_> {
    #[inline(always)]
    fn read(&mut self, at: PhysAddr, is_entry: bool) -> Option<(u32, PhysAddr)> {
        self.entry = if is_entry { Some(at) } else { self.entry };
        Some((read_entry(self.caches, self.lines, at, self.walker), at))
    }

    fn prefetch(&mut self, at: PhysAddr, _: bool) -> Option<(u32, PhysAddr)> {
        Some((self.walker.prefetch(self.caches, self.lines, at), at))
    }

    fn use_prefetch(&mut self) {
        self.walker.prefetches_used += 1;
    }
}

impl WalkerCounters {
    /// Counts an entry read.
    pub fn read(&mut self, served: Served) {
        self.reads += 1;
        self.reads_by[place(served.by)] += 1;
    }

    /// Prefetches the line of an entry at a host-physical address. Returns the latency in cycles.
    pub fn prefetch(&mut self, caches: &mut Caches, lines: Lines, at: PhysAddr) -> u32 {
        let served = caches.read_pte(line_of(at, lines));
        self.prefetches_by[place(served.by)] += 1;
        served.latency_cycles
    }

    /// Reads the line of a design's table at a host-physical address. Returns the latency in cycles.
    pub fn read_table(&mut self, caches: &mut Caches, lines: Lines, at: PhysAddr) -> u32 {
        self.table_reads += 1;
        caches.read_pte(line_of(at, lines)).latency_cycles
    }

    /// Writes an entry if its accessed or dirty bit was set. Returns the latency in cycles.
    pub fn write_if(
        &mut self,
        is_marked: bool,
        caches: &mut Caches,
        lines: Lines,
        at: PhysAddr,
    ) -> u32 {
        if !is_marked {
            return 0;
        }
        self.marked += 1;
        caches.write_pte(line_of(at, lines)).latency_cycles
    }
}

/// A walked page that permits the access.
pub(crate) struct WalkedPage {
    pub translation: Translation,
    /// Whether its accessed or dirty bit had to be set.
    pub is_marked: bool,
}

impl Env {
    /// Walks the page table for a base page of the running process until the page permits the access: a
    /// missing or read-only page faults and is walked again. `None` when memory has run out, which stops the
    /// machine. In a guest, walks the host's table as well.
    ///
    /// With `is_clean`, a TLB holds the page as writable and clean, and the access is a store: the walk is made only to
    /// set the dirty bit, and is also counted as such.
    ///
    /// For a composite page the result is that page, in a guest if the guest's page or the host's page that backs
    /// it is one: the design then finds the base page. If the entry of the page does not decide whether the access is
    /// permitted, the walk ends there, and the design decides ([`CompositePages`](super::CompositePages)).
    ///
    /// Designs call [`Design::walk`](crate::design::Design::walk), which applies the invalidations that the walk
    /// causes before the page is filled anywhere.
    #[inline(never)]
    pub fn walk(&mut self, page: PageNumber, kind: Access, is_clean: bool) -> Option<Translation> {
        self.walker.walks_dirty += u64::from(is_clean);
        if self.host.is_some() {
            return self.walk_nested(page, kind);
        }
        let mut latency_cycles = 0;
        loop {
            let walk = self.table_walk(page);
            let (read_cycles, entry) = self.read(&walk, page);
            latency_cycles += read_cycles;
            let composite = self.composite.filter(|_| walk.is_composite);
            if let Some(hardware) = composite.filter(|hardware| hardware.ends_walks()) {
                self.charge_walk(latency_cycles);
                return Some(hardware.entry(self.table(), page).expect("the walk has found it"));
            }
            // If an exhausted table of the design has lost a page that is on record, the fault stops the machine.
            if let Some(at) = entry
                && let Some(WalkedPage { translation, is_marked }) =
                    self.finish_walk(&walk, page, kind)
            {
                let Env { walker, caches, lines, .. } = self;
                latency_cycles += walker.write_if(is_marked, caches, *lines, at);
                self.charge_walk(latency_cycles);
                let entry = composite.and_then(|hardware| hardware.entry(self.table(), page));
                return Some(entry.unwrap_or(translation));
            }
            self.fault_in_walk(page, kind)?;
        }
    }

    /// Translates a base page by page table and operating system, without memory reads or walker counters.
    /// For ideal bounds.
    pub fn resolve(&mut self, page: PageNumber, kind: Access) -> Option<Translation> {
        loop {
            let walk = self.table_walk(page);
            if let Some(WalkedPage { translation, .. }) = self.finish_walk(&walk, page, kind) {
                return if self.host.is_some() {
                    self.resolve_nested(page, translation, kind)
                } else {
                    Some(translation)
                };
            }
            self.fault(page, kind)?;
        }
    }

    /// The page table of the running process.
    pub(crate) fn table(&self) -> &PageTable {
        &self.os.memory().process(self.process).table
    }

    /// The walk of a base page, without walk caches.
    pub(crate) fn table_walk(&self, page: PageNumber) -> Walk {
        self.table().walk(page)
    }

    /// The page that a walk has found, if it permits the access; sets its accessed and dirty bits.
    pub(crate) fn finish_walk(
        &mut self,
        walk: &Walk,
        page: PageNumber,
        kind: Access,
    ) -> Option<WalkedPage> {
        finish_walk(&mut self.os, self.process, walk, page, kind == Access::Store)
    }

    /// Serves a page fault. `None` when memory has run out.
    pub(super) fn fault(&mut self, page: PageNumber, kind: Access) -> Option<()> {
        let process = self.process;
        self.with_os(|os| os.fault(process, page, kind))
    }

    /// Serves the page fault that a walk has ended in.
    pub(crate) fn fault_in_walk(&mut self, page: PageNumber, kind: Access) -> Option<()> {
        self.walker.faulted += 1;
        self.fault(page, kind)
    }

    /// Reads the entries of a walk that the walk caches do not skip. Returns the latency in cycles, and the
    /// address of the page's entry if the walk has found one.
    pub(super) fn read(&mut self, walk: &Walk, page: PageNumber) -> (u32, Option<PhysAddr>) {
        self.walker.walks += 1;
        let planned = self.plan_walk(walk, page);
        let Env { page_walker, caches, lines, walker, .. } = self;
        let mut reads = EntryReads { caches, lines: *lines, walker, entry: None };
        let latency_cycles = planned.execute(walk, &mut reads);
        let entry = reads.entry;
        page_walker.reuse(planned);
        (self.walk_overhead_cycles + latency_cycles.expect(READS_SUCCEED), entry)
    }

    /// Plans a walk of the running process' table.
    #[inline(always)]
    pub(super) fn plan_walk(&mut self, walk: &Walk, page: PageNumber) -> Planned {
        let Env { process, asid, .. } = *self;
        let memory = self.os.memory();
        self.page_walker.plan(&WalkRequest { memory, process, asid, page, radix: walk })
    }

    /// Reads a page-table entry. Returns the latency in cycles.
    pub(crate) fn read_entry(&mut self, at: PhysAddr) -> u32 {
        read_entry(&mut self.caches, self.lines, at, &mut self.walker)
    }
}

/// The page that a walk of a process' table has found, if it permits the access; sets its accessed and dirty
/// bits.
pub(super) fn finish_walk(
    os: &mut RunningOs,
    process: ProcessId,
    walk: &Walk,
    page: PageNumber,
    stores: bool,
) -> Option<WalkedPage> {
    // For an entry with the contiguous hint, TLBs hold its block.
    let (leaf, (was_used, was_dirty)) = (walk.cacheable()?, walk.used);
    if stores && !leaf.rights.write {
        return None;
    }
    let is_marked = !was_used || stores && !was_dirty;
    if is_marked {
        os.mark(process, page, stores);
    }
    Some(WalkedPage { translation: Translation::of(&leaf, stores || was_dirty), is_marked })
}

/// Reads a page-table entry at a host-physical address. Returns the latency in cycles.
pub(super) fn read_entry(
    caches: &mut Caches,
    lines: Lines,
    at: PhysAddr,
    walker: &mut WalkerCounters,
) -> u32 {
    let served = caches.read_pte(line_of(at, lines));
    walker.read(served);
    served.latency_cycles
}

/// Cycles by which a missed look-up and the walk that follows it overlap.
pub(super) fn overlap_cycles(start: WalkStart, lookup_cycles: u32, walk_cycles: u32) -> u32 {
    match start {
        WalkStart::AfterLookup => 0,
        WalkStart::WithLookup => lookup_cycles.min(walk_cycles),
    }
}

/// The first address of a base page.
pub(crate) fn page_start(page: PageNumber) -> VirtAddr {
    VirtAddr::new(page.raw() << PageSize::BASE.log2())
}

pub(super) fn place(by: ServedBy) -> usize {
    match by {
        ServedBy::L1 => 0,
        ServedBy::L2 => 1,
        ServedBy::Llc => 2,
        ServedBy::Memory => 3,
    }
}

pub(super) fn line_of(at: PhysAddr, lines: Lines) -> u64 {
    at.raw() >> lines.log2()
}
