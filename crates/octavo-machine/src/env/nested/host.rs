//! The host: its operating system, whose only process is the virtual machine, and the hardware that
//! translates guest-physical pages.

use std::collections::BTreeMap;

use octavo_config::{HostConfig, TlbsHold, WalkStart};
use octavo_hw::{Asid, Caches, WalkCaches};
use octavo_os::frames::{Frames, OutOfMemory};
use octavo_os::page_table::{PageTable, Walk};
use octavo_os::vmas::{Pages, range_of};
use octavo_os::{Exchange, Invalidations, Memory, Os, ProcessId, RunningOs};
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, Instructions, MapSource, PageNumber, PageSize, PhysAddr,
    Protection, VirtAddr,
};

use super::super::composite::{CompositePages, HostAccess, HostCounts};
use super::super::walk::{
    EntryReads, READS_SUCCEED, WalkedPage, WalkerCounters, finish_walk, overlap_cycles, read_entry,
};
use super::super::walker::{PageWalker, WalkRequest};
use crate::config::ConfigError;
use crate::counters::Lookups;
use crate::front::Lines;
use crate::tlb::{Tlb, Translation};

/// The host of one virtual machine.
pub struct Host {
    pub(in crate::env) os: RunningOs,
    vm: ProcessId,
    /// Translation hardware, by core.
    pub(in crate::env) cores: Box<[Nested]>,
    pub(in crate::env) walker: WalkerCounters,
    walk_start: WalkStart,
    /// Whether TLBs hold guest halves of splintered translations.
    caches_halves: bool,
    /// Changed ranges of guest-physical memory; each causes an INVEPT.
    pub(in crate::env) invepts: u64,
    /// INVEPTs not yet delivered to the cores' TLBs.
    undelivered: u64,
    /// Number of cores interrupted by INVEPTs, excluding the initiator.
    pub(in crate::env) interrupted: u64,
    /// Walks of the host's table only, for references that hit a guest half.
    pub(in crate::env) lone_walks: u64,
    /// Lone walks caused by a store to a page that the nested TLB held as clean.
    pub(in crate::env) lone_walks_dirty: u64,
    /// Walks that found a guest page larger than the host page that backs it.
    pub(in crate::env) splintered: u64,
    /// How the design translates composite pages, if it has any.
    pub(in crate::env) composite: Option<&'static dyn CompositePages>,
    /// Counters of composite pages.
    pub(crate) counts: HostCounts,
    /// Runs of guest frames for tables of the guest that contiguous host frames back: the number of frames and the
    /// first host frame, by the first guest frame.
    contiguous_tables: BTreeMap<u64, (u64, FrameNumber)>,
}

/// Translation hardware of a core for guest-physical pages.
pub(in crate::env) struct Nested {
    pub(in crate::env) tlb: Option<Tlb>,
    pub(in crate::env) page_walker: PageWalker,
    /// The register with the place of a guest table of the design: the translation used last, and a guest-physical
    /// page in it.
    register: Option<(PageNumber, Translation)>,
}

/// The memory port of a core's walker.
pub struct Port<'e> {
    pub(super) core: usize,
    pub(super) caches: &'e mut Caches,
    pub(super) lines: Lines,
}

/// The host page that backs a guest-physical page.
#[derive(Clone, Copy)]
pub(super) enum Backing {
    /// A page, or a part of one.
    Page(Translation),
    /// A composite page of 2 MiB.
    Composite(Translation),
    /// No page is mapped, and the access did not demand one.
    Absent,
}

/// The kind of access to a guest-physical page.
#[derive(Clone, Copy)]
pub(super) struct GuestAccess {
    pub stores: bool,
    /// Whether the page is certainly accessed. Otherwise it is only inspected, and the host need not map it.
    pub is_certain: bool,
}

/// The guest-physical page of a guest frame.
pub(crate) fn guest_page(frame: FrameNumber) -> PageNumber {
    PageNumber::new(frame.raw())
}

impl Host {
    /// A host whose virtual machine has `guest_bytes` of untouched memory.
    ///
    /// # Errors
    ///
    /// If the nested TLB or a walk cache is invalid. Exhausted host memory, which is not a configuration error,
    /// is the inner result.
    pub(crate) fn new(
        config: &HostConfig,
        mut os: Os,
        (guest_bytes, cores): (u64, u32),
        walk_start: WalkStart,
        instructions: Instructions,
    ) -> Result<(Self, Result<(), OutOfMemory>), ConfigError> {
        let nested = || -> Result<Nested, ConfigError> {
            let tlb = config.tlb.as_ref();
            let tlb = tlb.map(|tlb| Tlb::new(tlb, (), instructions));
            Ok(Nested {
                tlb: tlb.transpose().map_err(ConfigError::NestedTlb)?,
                page_walker: PageWalker::new(WalkCaches::new(&config.walk_caches(), instructions)?),
                register: None,
            })
        };
        let cores = (0..cores).map(|_| nested()).collect::<Result<_, _>>()?;
        // It copies: no hypervisor exchanges its memory.
        os.memory_mut().exchange_from = None;
        let vm_mapped = map_guest_memory(&mut os, guest_bytes);
        let host = Host {
            os: RunningOs::new(os),
            vm: ProcessId::default(),
            cores,
            walker: WalkerCounters::default(),
            walk_start,
            caches_halves: config.tlbs_hold == TlbsHold::Halves,
            invepts: 0,
            undelivered: 0,
            interrupted: 0,
            lone_walks: 0,
            lone_walks_dirty: 0,
            splintered: 0,
            composite: None,
            counts: HostCounts::default(),
            contiguous_tables: BTreeMap::new(),
        };
        Ok((host, vm_mapped))
    }

    /// The page table that translates guest-physical pages.
    pub(crate) fn table(&self) -> &PageTable {
        &self.os.memory().process(self.vm).table
    }

    /// Translates a guest-physical page for `references` equal references: the translation and its latency in
    /// cycles. Serves a page fault if the page is missing or not writable.
    pub(super) fn translate(
        &mut self,
        page: PageNumber,
        stores: bool,
        references: u32,
        port: &mut Port<'_>,
    ) -> Result<(Translation, u32), OutOfMemory> {
        let mut latency_cycles = 0;
        let usage = GuestAccess { stores, is_certain: true };
        let (mut backing, mut is_new) =
            self.look_up_or_walk(page, usage, references, port, &mut latency_cycles)?;
        loop {
            let translation = match backing {
                Backing::Page(translation) => return Ok((translation, latency_cycles)),
                Backing::Absent => unreachable!("the host maps accessed pages"),
                Backing::Composite(translation) => translation,
            };
            let hardware = self.composite.expect("a composite page has its design");
            let access = HostAccess { page, translation: &translation, stores, is_new };
            let found = hardware.find_in_host(self, &access, port, &mut latency_cycles)?;
            if let Some((part, needed_more)) = found {
                if let Some(tlb) = &mut self.cores[port.core].tlb
                    && (needed_more || !tlb.has_sets_of(PageSize::HUGE))
                {
                    tlb.fill(Asid::ONLY, page, part, references);
                }
                return Ok((part, latency_cycles));
            }
            backing = self.walk(page, usage, port, &mut latency_cycles)?;
            self.fill_tlb(page, backing, references, port.core);
            is_new = false;
        }
    }

    /// Translates a guest-physical page; for a composite page, only to the page's entry.
    pub(super) fn backing_entry(
        &mut self,
        page: PageNumber,
        usage: GuestAccess,
        port: &mut Port<'_>,
    ) -> Result<(Backing, u32), OutOfMemory> {
        let mut latency_cycles = 0;
        let (backing, _) = self.look_up_or_walk(page, usage, 1, port, &mut latency_cycles)?;
        Ok((backing, latency_cycles))
    }

    /// Looks a page up in the nested TLB, or walks and fills it. Also returns whether the TLB hit.
    fn look_up_or_walk(
        &mut self,
        page: PageNumber,
        usage: GuestAccess,
        references: u32,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<(Backing, bool), OutOfMemory> {
        let mut missed_lookup_cycles = 0;
        let composite = self.composite;
        if let Some(tlb) = &mut self.cores[port.core].tlb {
            let translation = tlb.look_up(Asid::ONLY, page, references);
            *latency_cycles += tlb.hit_latency_cycles();
            if let Some(translation) = translation {
                let serves = translation.entry.permits(usage.stores);
                if !serves || is_undecided(composite, &translation, page) {
                    tlb.retract(Asid::ONLY, page, references);
                }
                if serves {
                    return Ok((Backing::of(translation, composite), true));
                }
                self.walker.walks_dirty += u64::from(translation.entry.is_writable());
            } else {
                missed_lookup_cycles = tlb.hit_latency_cycles();
            }
        }
        let mut walk_cycles = 0;
        let backing = self.walk(page, usage, port, &mut walk_cycles)?;
        *latency_cycles +=
            walk_cycles - overlap_cycles(self.walk_start, missed_lookup_cycles, walk_cycles);
        self.fill_tlb(page, backing, references, port.core);
        Ok((backing, false))
    }

    /// Fills the nested TLB with the result of a walk for `references` references, in place of an entry that
    /// did not permit the access.
    fn fill_tlb(&mut self, page: PageNumber, backing: Backing, references: u32, core: usize) {
        let composite = self.composite;
        match (backing, &mut self.cores[core].tlb) {
            (Backing::Page(translation), Some(tlb)) => {
                tlb.remove(Asid::ONLY, page);
                tlb.fill(Asid::ONLY, page, translation, references);
            }
            (Backing::Composite(translation), Some(tlb)) if tlb.has_sets_of(PageSize::HUGE) => {
                // Repeats will hit the base page that is filled next.
                let is_undecided = is_undecided(composite, &translation, page);
                let references = if is_undecided { 1 } else { references };
                tlb.fill(Asid::ONLY, page, translation, references);
            }
            _ => {}
        }
    }

    /// Walks the host's table for a guest-physical page.
    fn walk(
        &mut self,
        page: PageNumber,
        usage: GuestAccess,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Backing, OutOfMemory> {
        let GuestAccess { stores, is_certain } = usage;
        // An inspection stores nothing.
        let stores = stores && is_certain;
        loop {
            self.walker.walks += 1;
            let walk = self.table().walk(page);
            let (memory, process) = (self.os.memory(), self.vm);
            let page_walker = &mut self.cores[port.core].page_walker;
            let request = WalkRequest { memory, process, asid: Asid::ONLY, page, radix: &walk };
            let planned = page_walker.plan(&request);
            let Port { caches, lines, .. } = port;
            let walker = &mut self.walker;
            let mut reads = EntryReads { caches, lines: *lines, walker, entry: None };
            *latency_cycles += planned.execute(&walk, &mut reads).expect(READS_SUCCEED);
            let entry = reads.entry;
            page_walker.reuse(planned);
            let composite = self.composite.filter(|_| walk.is_composite);
            if let Some(hardware) = composite.filter(|hardware| hardware.ends_walks())
                && let Some(translation) = hardware.entry(self.table(), page)
                && hardware.is_undecided(&translation, page)
            {
                return Ok(Backing::Composite(translation));
            }
            if let Some(at) = entry
                && let Some(WalkedPage { translation, is_marked }) =
                    finish_walk(&mut self.os, self.vm, &walk, page, stores)
            {
                *latency_cycles += self.walker.write_if(is_marked, port.caches, port.lines, at);
                let entry = composite.and_then(|hardware| hardware.entry(self.table(), page));
                return Ok(entry.map_or(Backing::Page(translation), Backing::Composite));
            }
            if !is_certain {
                return Ok(Backing::Absent);
            }
            self.fault_in_walk(page, stores)?;
        }
    }

    /// Translates a guest-physical page without memory reads or walker counters.
    pub(super) fn resolve(
        &mut self,
        page: PageNumber,
        stores: bool,
    ) -> Result<Translation, OutOfMemory> {
        loop {
            let walk = self.table().walk(page);
            if let Some(found) = finish_walk(&mut self.os, self.vm, &walk, page, stores) {
                return Ok(found.translation);
            }
            self.fault(page, stores)?;
        }
    }

    /// Serves the page fault that a walk has ended in.
    pub(crate) fn fault_in_walk(
        &mut self,
        page: PageNumber,
        stores: bool,
    ) -> Result<(), OutOfMemory> {
        self.walker.faulted += 1;
        self.fault(page, stores)
    }

    /// Serves an EPT violation: the host maps a page or makes it writable.
    fn fault(&mut self, page: PageNumber, stores: bool) -> Result<(), OutOfMemory> {
        let access = if stores { Access::Store } else { Access::Load };
        let vm = self.vm;
        let (served, invalidations) = self.os.change(|os| os.fault(vm, page, access));
        self.flush_if_any(invalidations);
        served
    }

    /// Maps guest-physical pages that the guest has used since before its first instruction. No INVEPT is counted.
    pub(in crate::env) fn present(&mut self, pages: &Pages) -> Result<(), OutOfMemory> {
        let (vm, range) = (self.vm, range_of(pages));
        let event = Event::Present { range, known: true, first: false };
        let (done, invalidations) = self.os.change(|os| os.event(vm, &event));
        let invepts = self.invepts;
        self.flush_if_any(invalidations);
        self.invepts = invepts;
        done
    }

    /// Backs a run of guest frames, which the guest reserves for tables that are contiguous by design, with contiguous
    /// host frames, if the guest has used none of the run and memory can spare the frames. The guest requests this when
    /// it reserves the run.
    pub(super) fn back_contiguously(&mut self, start: FrameNumber, frames: u64) {
        let (vm, first) = (self.vm, guest_page(start).raw());
        let pages = first..first + frames;
        let (backing, invalidations) = self.os.change(|os| os.back_contiguously(vm, &pages));
        self.flush_if_any(invalidations);
        self.contiguous_tables
            .retain(|start, (frames, _)| start + *frames <= pages.start || pages.end <= *start);
        if let Some(backing) = backing {
            self.contiguous_tables.insert(first, (frames, backing));
        }
    }

    /// Exchanges the memory behind guest frames by a hypercall. Returns for each exchange whether it was made.
    ///
    /// # Errors
    /// If host memory has run out.
    pub(in crate::env) fn exchange(
        &mut self,
        exchanges: &[Exchange],
    ) -> Result<Vec<bool>, OutOfMemory> {
        let vm = self.vm;
        let (made, invalidations) = self.os.change(|os| os.exchange(vm, exchanges));
        self.flush_if_any(invalidations);
        made
    }

    /// The host-physical address of an entry of the guest's tables, if its run is contiguous in the host's memory, too.
    pub(super) fn place_in_run(&self, at: PhysAddr) -> Option<PhysAddr> {
        let frame = at.frame();
        let number = guest_page(frame).raw();
        let (first, (frames, backing)) = self.contiguous_tables.range(..=number).next_back()?;
        let distance = number - first;
        let start = backing.plus(distance).start().raw();
        (distance < *frames).then(|| PhysAddr::new(start + (at.raw() - frame.start().raw())))
    }

    /// The host-physical address of an entry of the guest's tables that hardware assumes without a walk.
    pub(super) fn assumed_place(&self, at: PhysAddr) -> Option<PhysAddr> {
        let (memory, vm) = self.memory();
        let frame = memory.assumed_frame(vm, guest_page(at.frame()))?;
        Some(PhysAddr::new(frame.start().raw() + (at.raw() - at.frame().start().raw())))
    }

    /// Its memory, and the process that is the virtual machine.
    pub(crate) fn memory(&self) -> (&Memory, ProcessId) {
        (self.os.memory(), self.vm)
    }

    /// Runs the host's background work; `instructions` is the number executed so far.
    pub(super) fn background(&mut self, instructions: u64) {
        let ((), invalidations) = self.os.change(|os| os.background(instructions));
        self.flush_if_any(invalidations);
    }

    /// Flushes the nested TLBs, walk caches and registers if the host's table has changed (INVEPT).
    fn flush_if_any(&mut self, invalidations: Invalidations) {
        let changed = invalidations.count();
        if changed == 0 {
            return;
        }
        self.invepts += changed;
        self.undelivered += changed;
        for nested in &mut self.cores {
            nested.tlb.iter_mut().for_each(Tlb::clear);
            nested.page_walker.clear();
            nested.register = None;
        }
    }

    /// The physical memory of the machine.
    pub(crate) fn frames(&self) -> &Frames {
        &self.os.memory().frames
    }

    /// Counts a walk to a base page of a composite page; with `is_new`, also as the first walk of the access.
    pub(crate) fn begin_part_walk(&mut self, is_new: bool) {
        self.counts.part_walks += 1;
        self.walker.walks += u64::from(is_new);
    }

    /// The walk caches of the core of a port.
    pub(crate) fn walk_caches(&mut self, port: &Port<'_>) -> &mut WalkCaches<()> {
        &mut self.cores[port.core].page_walker.caches
    }

    /// Reads an entry of the host's table. Returns the latency in cycles.
    pub(crate) fn read_entry(&mut self, at: PhysAddr, port: &mut Port<'_>) -> u32 {
        read_entry(port.caches, port.lines, at, &mut self.walker)
    }

    /// Reads the line of a table of the design at a host-physical address. Returns the latency in cycles.
    pub(crate) fn read_table(&mut self, at: PhysAddr, port: &mut Port<'_>) -> u32 {
        self.walker.read_table(port.caches, port.lines, at)
    }

    /// The page that a walk has found, if it permits the access; sets its accessed and dirty bits.
    pub(crate) fn finish_walk(
        &mut self,
        walk: &Walk,
        page: PageNumber,
        stores: bool,
    ) -> Option<WalkedPage> {
        finish_walk(&mut self.os, self.vm, walk, page, stores)
    }

    /// Writes an entry if its accessed or dirty bit was set. Returns the latency in cycles.
    pub(crate) fn write_if(&mut self, is_marked: bool, at: PhysAddr, port: &mut Port<'_>) -> u32 {
        self.walker.write_if(is_marked, port.caches, port.lines, at)
    }

    /// The host frame of a guest-physical page, if mapped.
    pub(crate) fn backing_frame(&self, page: PageNumber) -> Option<FrameNumber> {
        self.table().leaf(page).map(|leaf| leaf.frame_of(page))
    }

    /// The host-physical address of a page of a guest table of the design, and its latency in cycles, by the register
    /// of the core. A miss refills the register.
    ///
    /// # Errors
    /// If host memory has run out.
    pub(crate) fn place_by_register(
        &mut self,
        page: PageNumber,
        port: &mut Port<'_>,
    ) -> Result<(PhysAddr, u32), OutOfMemory> {
        let known = self.cores[port.core].register.filter(|(held, translation)| {
            let shift = translation.size.base_shift();
            held.raw() >> shift == page.raw() >> shift
        });
        let Lookups { hits, misses } = &mut self.counts.register;
        let (translation, cost) = match known {
            Some((_, translation)) => {
                *hits += 1;
                (translation, 0)
            }
            None => {
                *misses += 1;
                let (translation, cost) = self.translate(page, false, 1, port)?;
                self.cores[port.core].register = Some((page, translation));
                (translation, cost)
            }
        };
        Ok((translation.frame_of(page).start(), cost))
    }

    /// Whether TLBs hold guest halves of translations.
    pub fn caches_halves(&self) -> bool {
        self.caches_halves
    }

    /// Checks that no frame of host memory is lost.
    pub fn check(&self) -> Result<(), String> {
        self.os.memory().check().map_err(|wrong| format!("the host: {wrong}"))
    }

    /// Returns and resets the number of undelivered INVEPTs.
    pub(super) fn take_undelivered(&mut self) -> u64 {
        std::mem::take(&mut self.undelivered)
    }
}

impl Backing {
    /// The backing given by an entry of the nested TLB.
    fn of(translation: Translation, composite: Option<&'static dyn CompositePages>) -> Self {
        match composite.is_some_and(|hardware| hardware.is_composite(&translation)) {
            true => Backing::Composite(translation),
            // An array without entries of the whole page's size holds a part of it; use the whole page.
            false => Backing::Page(translation.whole()),
        }
    }
}

/// Whether an entry is a composite page that does not suffice to find a base page.
fn is_undecided(
    composite: Option<&'static dyn CompositePages>,
    translation: &Translation,
    page: PageNumber,
) -> bool {
    let composite = composite.filter(|hardware| hardware.is_composite(translation));
    composite.is_some_and(|hardware| hardware.is_undecided(translation, page))
}

/// Maps the memory of the virtual machine: one anonymous mapping of its process.
fn map_guest_memory(os: &mut Os, guest_bytes: u64) -> Result<(), OutOfMemory> {
    let bytes = guest_bytes.next_multiple_of(PageSize::BASE.bytes());
    let vm = os.spawn()?;
    let map = Event::Map {
        range: AddrRange::new(VirtAddr::NULL, bytes),
        protection: Protection { read: true, write: true, execute: true },
        source: MapSource::Anonymous,
        flags: 0,
    };
    os.event(vm, &map)
}
