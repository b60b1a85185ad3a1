//! The host: its operating system, whose only process is the virtual machine, and the hardware that
//! translates guest-physical pages.

mod composite_pages;

use octavo_config::{HostConfig, TlbsHold, WalkStart};
use octavo_hw::{Asid, Caches, WalkCaches};
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::PageTable;
use octavo_os::{Os, ProcessId};
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, Instructions, MapSource, PageNumber, PageSize,
    Protection, VirtAddr,
};

use super::super::walk::{
    READS_SUCCEED, WalkedPage, WalkerCounters, finish_walk, overlap_cycles, read_entry,
};
use super::super::walker::PageWalker;
use crate::config::ConfigError;
use crate::counters::Lookups;
use crate::front::Lines;
use crate::tlb::{Tlb, Translation};

/// The host of one virtual machine.
pub struct Host {
    pub(in crate::env) os: Os,
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
    /// Those of them by a store to a page that the nested TLB held as clean.
    pub(in crate::env) lone_walks_dirty: u64,
    /// Walks that found a guest page larger than the host page that backs it.
    pub(in crate::env) splintered: u64,
    /// Walks to holes of the host's perforated pages.
    pub(in crate::env) hole_walks: u64,
    /// Look-ups of the registers that hold the location of the guest's hole bitmap.
    pub(in crate::env) register: Lookups,
}

/// Translation hardware of a core for guest-physical pages.
pub(in crate::env) struct Nested {
    pub(in crate::env) tlb: Option<Tlb>,
    pub(in crate::env) page_walker: PageWalker,
    /// The register with the location of the guest's hole bitmap: the translation used last, and a
    /// guest-physical page in it.
    bitmap: Option<(PageNumber, Translation)>,
}

/// The memory port of a core's walker.
pub(super) struct Port<'e> {
    pub core: usize,
    pub caches: &'e mut Caches,
    pub lines: Lines,
}

/// The host page that backs a guest-physical page.
#[derive(Clone, Copy)]
pub(super) enum Backing {
    /// A page, or a part of one.
    Page(Translation),
    /// A 2 MiB page whose base pages may lie elsewhere: a perforated page, or a gapped page. Its bitmap is
    /// needed to locate a base page, unless a perforated page's filter rules out a hole.
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
pub(super) fn guest_page(frame: FrameNumber) -> PageNumber {
    PageNumber::new(frame.raw())
}

impl Host {
    /// A host whose virtual machine has `guest_bytes` of untouched memory.
    ///
    /// # Errors
    ///
    /// If the nested TLB or a walk cache is invalid. Exhausted host memory, which is no configuration error,
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
                bitmap: None,
            })
        };
        let cores = (0..cores).map(|_| nested()).collect::<Result<_, _>>()?;
        let vm_mapped = map_guest_memory(&mut os, guest_bytes);
        let host = Host {
            os,
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
            hole_walks: 0,
            register: Lookups::default(),
        };
        Ok((host, vm_mapped))
    }

    /// The page table that translates guest-physical pages.
    pub(super) fn table(&self) -> &PageTable {
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
            let resolve_part =
                self.resolve_part(page, &translation, stores, is_new, port, &mut latency_cycles)?;
            if let Some((part, used_bitmap)) = resolve_part {
                if used_bitmap || !self.holds_perforated(port.core) {
                    self.fill_base_page(page, part, references, port.core);
                }
                return Ok((part, latency_cycles));
            }
            backing = self.walk(page, usage, port, &mut latency_cycles)?;
            self.fill_tlb(page, backing, references, port.core);
            is_new = false;
        }
    }

    /// Translates a guest-physical page; for a composite page, only to the page's entry, without its bitmap.
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
        if let Some(tlb) = &mut self.cores[port.core].tlb {
            let translation = tlb.look_up(Asid::ONLY, page, references);
            *latency_cycles += tlb.hit_latency_cycles();
            if let Some(translation) = translation {
                let serves = translation.entry.permits(usage.stores);
                if !serves || translation.needs_bitmap(page) {
                    tlb.retract(Asid::ONLY, page, references);
                }
                if serves {
                    return Ok((Backing::of(translation), true));
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
        match (backing, &mut self.cores[core].tlb) {
            (Backing::Page(translation), Some(tlb)) => {
                tlb.remove(Asid::ONLY, page);
                tlb.fill(Asid::ONLY, page, translation, references);
            }
            (Backing::Composite(translation), Some(tlb)) if tlb.has_sets_of(PageSize::HUGE) => {
                // Repeats will hit the base page that is filled next.
                let references = if translation.needs_bitmap(page) { 1 } else { references };
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
            let table = &self.os.memory().process(self.vm).table;
            let page_walker = &mut self.cores[port.core].page_walker;
            let planned = page_walker.plan(table, &walk, (Asid::ONLY, page));
            let (mut entry, walker) = (None, &mut self.walker);
            let read_cycles = planned.execute(&walk, |at, is_entry| {
                entry = if is_entry { Some(at) } else { entry };
                Some(read_entry(port.caches, port.lines, at, walker))
            });
            *latency_cycles += read_cycles.expect(READS_SUCCEED);
            page_walker.reuse(planned);
            let perforated = walk.is_perforated.then(|| self.composite_page(page)).flatten();
            if let Some(translation) =
                perforated.filter(|translation| translation.may_be_hole(page))
            {
                return Ok(Backing::Composite(translation));
            }
            if let Some(at) = entry
                && let Some(WalkedPage { translation, is_marked }) =
                    finish_walk(&mut self.os, self.vm, &walk, page, stores)
            {
                *latency_cycles += self.walker.write_if(is_marked, port.caches, port.lines, at);
                return Ok(self
                    .composite_page(page)
                    .map_or(Backing::Page(translation), Backing::Composite));
            }
            if !is_certain {
                return Ok(Backing::Absent);
            }
            self.walker.faulted += 1;
            self.fault(page, stores)?;
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

    /// Serves an EPT violation: the host maps a page or makes it writable.
    fn fault(&mut self, page: PageNumber, stores: bool) -> Result<(), OutOfMemory> {
        let access = if stores { Access::Store } else { Access::Load };
        let served = self.os.fault(self.vm, page, access);
        self.apply_invalidations();
        served
    }

    /// Runs the host's background work; `instructions` is the number executed so far.
    pub(super) fn background(&mut self, instructions: u64) {
        self.os.background(instructions);
        self.apply_invalidations();
    }

    /// Flushes the nested TLBs, walk caches and bitmap registers if the host's table has changed (INVEPT).
    fn apply_invalidations(&mut self) {
        let changed = self.os.take_invalidations().len() as u64;
        if changed == 0 {
            return;
        }
        self.invepts += changed;
        self.undelivered += changed;
        for nested in &mut self.cores {
            nested.tlb.iter_mut().for_each(Tlb::clear);
            nested.page_walker.clear();
            nested.bitmap = None;
        }
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
    os.event(vm, &map)?;
    // Nothing is cached yet.
    os.take_invalidations();
    Ok(())
}
