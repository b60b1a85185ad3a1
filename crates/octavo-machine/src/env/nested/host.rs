//! The host: its operating system, whose one process is the virtual machine, and the hardware that
//! translates guest-physical pages.

mod composite_pages;

use octavo_config::{HostConfig, TlbsHold, WalkStart};
use octavo_hw::{Asid, Caches, WalkCaches};
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::PageTable;
use octavo_os::{Access, Os, ProcessId};
use octavo_types::{
    AddrRange, Event, FrameNumber, Instructions, MapSource, PageNumber, PageSize, Protection,
    VirtAddr,
};

use super::super::walk::{Found, WalkerCounters, found, overlap, read_entry, start_of, to_read};
use crate::config::ConfigError;
use crate::counters::Lookups;
use crate::front::Lines;
use crate::tlb::{Coalescing, Tlb, Translation};

/// The host of one virtual machine.
pub struct Host {
    pub(in crate::env) os: Os,
    vm: ProcessId,
    /// By core.
    pub(in crate::env) cores: Box<[Nested]>,
    pub(in crate::env) walker: WalkerCounters,
    walk_start: WalkStart,
    /// Whether TLBs hold the guest's half of a translation where the guest's page is the larger one.
    caches_halves: bool,
    /// Ranges of guest-physical memory that were changed, each an invalidation of all (INVEPT).
    pub(in crate::env) invepts: u64,
    /// Those that nobody else was told of yet.
    undelivered: u64,
    /// Cores that those interrupted, other than the one that made them.
    pub(in crate::env) interrupted: u64,
    /// Walks of the host's table alone, for references that half a translation served.
    pub(in crate::env) lone_walks: u64,
    /// Walks that found a page of the guest larger than the host's page behind it.
    pub(in crate::env) splintered: u64,
    /// Walks to holes of its perforated pages.
    pub(in crate::env) hole_walks: u64,
    /// How often the registers knew where the guest's bitmap of holes lies.
    pub(in crate::env) register: Lookups,
}

/// What a core has for guest-physical pages.
pub(in crate::env) struct Nested {
    pub(in crate::env) tlb: Option<Tlb>,
    pub(in crate::env) walk_caches: WalkCaches<()>,
    /// The register that says where the guest's bitmap of holes lies: the page of the host that was asked
    /// for last, and a guest-physical page in it.
    bitmap: Option<(PageNumber, Translation)>,
}

/// Through what a core's walker reads memory.
pub(super) struct Port<'e> {
    pub core: usize,
    pub caches: &'e mut Caches,
    pub lines: Lines,
}

/// What the host has behind a guest-physical page.
#[derive(Clone, Copy)]
pub(super) enum Backing {
    /// A page, or a part of one.
    Page(Translation),
    /// A page of 2 MiB whose parts lie elsewhere: a perforated page, whose bitmap says whether the page is a
    /// hole of it, if its filter does not; or a page with gaps, of whose chunk the bitmap says where the page is.
    Composite(Translation),
    /// Nothing, for who does not ask for it.
    Absent,
}

/// How a guest-physical page is used.
#[derive(Clone, Copy)]
pub(super) struct GuestAccess {
    pub stores: bool,
    /// Whether it is certain that it is: else it is looked at, and the host need not give a page.
    pub is_certain: bool,
}

/// A base page of guest-physical memory: what the host translates.
pub(super) fn guest_page(frame: FrameNumber) -> PageNumber {
    PageNumber::new(frame.raw())
}

impl Host {
    /// A host whose virtual machine has so much memory, none of which it has used.
    ///
    /// # Errors
    ///
    /// Where there is no such nested TLB or walk cache; where memory runs out, which is no error of the
    /// configuration, inside.
    pub(crate) fn new(
        config: &HostConfig,
        mut os: Os,
        (guest_bytes, cores): (u64, u32),
        walk_start: WalkStart,
        instructions: Instructions,
    ) -> Result<(Self, Result<(), OutOfMemory>), ConfigError> {
        let nested = || -> Result<Nested, ConfigError> {
            let tlb = config.tlb.as_ref();
            let tlb = tlb.map(|tlb| Tlb::new(tlb, Coalescing::default(), instructions));
            Ok(Nested {
                tlb: tlb.transpose().map_err(ConfigError::NestedTlb)?,
                walk_caches: WalkCaches::new(&config.walk_caches(), instructions)?,
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
            splintered: 0,
            hole_walks: 0,
            register: Lookups::default(),
        };
        Ok((host, vm_mapped))
    }

    /// The table that translates guest-physical pages.
    pub(super) fn table(&self) -> &PageTable {
        &self.os.memory().process(self.vm).table
    }

    /// Translates a guest-physical page for so many references that use it alike: what holds it, and
    /// what that cost in cycles. The host serves a page that is not there, or may not be stored to.
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
                Backing::Absent => unreachable!("the host gives what is used"),
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

    /// The same, but of a page whose parts lie elsewhere its entry alone: what takes a bitmap is left open.
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

    /// What the nested TLB has of a page; else what a walk finds, which the TLB has from then on. And
    /// whether there was no walk.
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
                let serves = translation.entry.serves(usage.stores);
                if !serves || translation.needs_bitmap(page) {
                    tlb.retract(Asid::ONLY, page, references);
                }
                if serves {
                    return Ok((Backing::of(translation), true));
                }
            } else {
                missed_lookup_cycles = tlb.hit_latency_cycles();
            }
        }
        let mut walk_cycles = 0;
        let backing = self.walk(page, usage, port, &mut walk_cycles)?;
        *latency_cycles +=
            walk_cycles - overlap(self.walk_start, missed_lookup_cycles, walk_cycles);
        self.fill_tlb(page, backing, references, port.core);
        Ok((backing, false))
    }

    /// The nested TLB has what a walk has found for so many references: it may have it already, and not
    /// say enough of it.
    fn fill_tlb(&mut self, page: PageNumber, backing: Backing, references: u32, core: usize) {
        match (backing, &mut self.cores[core].tlb) {
            (Backing::Page(translation), Some(tlb)) => {
                tlb.remove(Asid::ONLY, page);
                tlb.fill(Asid::ONLY, page, translation, references);
            }
            (Backing::Composite(translation), Some(tlb)) if tlb.holds_perforated() => {
                // Those that repeat it will find what is told apart.
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
        let addr = start_of(page);
        let GuestAccess { stores, is_certain } = usage;
        // What is only looked at is not stored to.
        let stores = stores && is_certain;
        loop {
            self.walker.walks += 1;
            let walk = self.table().walk(page);
            let caches = &mut self.cores[port.core].walk_caches;
            let known = caches.deepest(Asid::ONLY, addr);
            for (step, leads_on) in to_read(&walk, known) {
                *latency_cycles += read_entry(port.caches, port.lines, step.at, &mut self.walker);
                if leads_on {
                    caches.fill(Asid::ONLY, addr, step.level, ());
                }
            }
            let perforated = walk.is_perforated.then(|| self.composite_page(page)).flatten();
            if let Some(translation) =
                perforated.filter(|translation| translation.may_be_hole(page))
            {
                return Ok(Backing::Composite(translation));
            }
            if let Some(Found { translation, is_marked }) =
                found(&mut self.os, self.vm, &walk, page, stores)
            {
                let at = walk.steps().last().expect("a walk reads the root's entry").at;
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

    /// What holds a guest-physical page, and is used so; nothing is read for that, or counted of a
    /// walker.
    pub(super) fn resolve(
        &mut self,
        page: PageNumber,
        stores: bool,
    ) -> Result<Translation, OutOfMemory> {
        loop {
            let walk = self.table().walk(page);
            if let Some(found) = found(&mut self.os, self.vm, &walk, page, stores) {
                return Ok(found.translation);
            }
            self.fault(page, stores)?;
        }
    }

    /// An EPT violation: the host gives the virtual machine a page, or lets it be stored to.
    fn fault(&mut self, page: PageNumber, stores: bool) -> Result<(), OutOfMemory> {
        let access = if stores { Access::Store } else { Access::Load };
        let served = self.os.fault(self.vm, page, access);
        self.apply_invalidations();
        served
    }

    /// What the host does beside its guest, after so many instructions in all.
    pub(super) fn background(&mut self, instructions: u64) {
        self.os.background(instructions);
        self.apply_invalidations();
    }

    /// What was kept of a table that has changed is dropped, all of it: so INVEPT does.
    fn apply_invalidations(&mut self) {
        let changed = self.os.take_invalidations().len() as u64;
        if changed == 0 {
            return;
        }
        self.invepts += changed;
        self.undelivered += changed;
        for nested in &mut self.cores {
            nested.tlb.iter_mut().for_each(Tlb::clear);
            nested.walk_caches.clear();
            nested.bitmap = None;
        }
    }

    /// Whether TLBs hold halves of translations.
    pub fn caches_halves(&self) -> bool {
        self.caches_halves
    }

    /// Whether no frame of its memory was lost; else what is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.os.memory().check().map_err(|wrong| format!("the host: {wrong}"))
    }

    /// How many changes there were since this was asked last.
    pub(super) fn take_undelivered(&mut self) -> u64 {
        std::mem::take(&mut self.undelivered)
    }
}

/// The virtual machine begins: all its memory is one anonymous mapping of its process.
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
    // Nobody has kept anything yet.
    os.take_invalidations();
    Ok(())
}
