//! Page walks, and the faults that they end in.

use octavo_config::WalkStart;
use octavo_hw::{Asid, Caches, Served, ServedBy};
use octavo_os::page_table::{Step, Walk};
use octavo_os::{Access, Os, ProcessId};
use octavo_types::{PageNumber, PageSize, PhysAddr, VirtAddr};

use super::Env;
use crate::front::{Kind, Lines};
use crate::tlb::Translation;

/// What page walkers counted.
#[derive(Clone, Copy, Default)]
pub(super) struct WalkerCounters {
    /// Walks, those that ended in a fault among them.
    pub walks: u64,
    /// Of those, such that ended in a fault.
    pub faulted: u64,
    /// Entries read, by where they were.
    pub reads: u64,
    pub reads_by: [u64; 4],
    /// Entries whose accessed or dirty bit was set.
    pub marked: u64,
    /// Lines of hole bitmaps read.
    pub bitmap_reads: u64,
}

impl WalkerCounters {
    /// An entry was read.
    pub fn read(&mut self, served: Served) {
        self.reads += 1;
        self.reads_by[place(served.by)] += 1;
    }

    /// Reads a line of a hole bitmap, which lies in the host's memory, or in that of a machine without
    /// guests; what it cost, in cycles.
    pub fn read_bitmap(&mut self, caches: &mut Caches, lines: Lines, at: PhysAddr) -> u32 {
        self.bitmap_reads += 1;
        caches.read_pte(line_of(at, lines)).latency_cycles
    }

    /// Writes an entry, if it was marked as used; what it cost, in cycles.
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

/// A page that may be used as asked.
pub(super) struct Found {
    pub translation: Translation,
    /// Whether its entry had to be written to say that it is used so.
    pub is_marked: bool,
}

impl Env {
    /// Walks the page table for a base page that runs, until it may be used as asked: a page that
    /// is not there, or may not be stored to, faults, and is walked again. None where memory has
    /// run out: the machine stops then. In a guest the host's table is walked, too.
    ///
    /// Of a perforated page, the walk ends at the page's entry: whether the base page is a hole, and may
    /// be used so, is asked for then ([`Env::use_part`], [`Env::walk_hole`]). In a guest, what is found
    /// is perforated where the guest's page or the host's behind it is. Of a page with gaps (in a guest, of the
    /// host's), what is found is that page: where the base page lies in it, the bitmap of its chunk says
    /// (`Env::read_chunk_bitmap`).
    ///
    /// What has become [stale](Env::stale) by that is to be forgotten before the page is filled
    /// anywhere.
    #[inline(never)]
    pub fn walk(&mut self, page: PageNumber, kind: Kind) -> Option<Translation> {
        if self.host.is_some() {
            return self.walk_nested(page, kind);
        }
        let mut latency_cycles = 0;
        loop {
            let walk = self.table_walk(page);
            let at = self.read(&walk, page, &mut latency_cycles);
            if walk.is_perforated {
                let perforated = self.perforated(page).expect("the walk has found it");
                self.add_walk_cycles(latency_cycles);
                return Some(Translation::perforated(&perforated, perforated.used.1));
            }
            if let Some(Found { translation, is_marked }) = self.found(&walk, page, kind) {
                let Env { walker, caches, lines, .. } = self;
                latency_cycles += walker.write_if(is_marked, caches, *lines, at);
                self.add_walk_cycles(latency_cycles);
                let gapped = self.gapped(page);
                return Some(gapped.map_or(translation, |of| {
                    Translation::gapped(&of, translation.entry.is_dirty())
                }));
            }
            self.walker.faulted += 1;
            self.fault(page, kind)?;
        }
    }

    /// What the page table says of a base page, and the operating system where that does not
    /// suffice; but nothing is read for it, or counted of a walker. For bounds.
    pub fn resolve(&mut self, page: PageNumber, kind: Kind) -> Option<Translation> {
        self.missed_lookup_cycles = 0;
        loop {
            let walk = self.table_walk(page);
            if let Some(Found { translation, .. }) = self.found(&walk, page, kind) {
                return if self.host.is_some() {
                    self.resolve_nested(page, translation, kind)
                } else {
                    Some(translation)
                };
            }
            self.fault(page, kind)?;
        }
    }

    /// All that a walk without walk caches reads.
    pub(super) fn table_walk(&self, page: PageNumber) -> Walk {
        self.os.memory().process(self.process).table.walk(page)
    }

    /// The page that a walk has found, if it may be used as asked; it is marked as used so.
    pub(super) fn found(&mut self, walk: &Walk, page: PageNumber, kind: Kind) -> Option<Found> {
        found(&mut self.os, self.process, walk, page, kind == Kind::Store)
    }

    /// The operating system maps a page, or lets it be stored to; none where memory has run out.
    pub(super) fn fault(&mut self, page: PageNumber, kind: Kind) -> Option<()> {
        let access = match kind {
            Kind::Fetch => Access::Fetch,
            Kind::Load => Access::Load,
            Kind::Store => Access::Store,
        };
        let process = self.process;
        self.with_os(|os| os.fault(process, page, access))
    }

    /// Reads what a walk reads beyond what walk caches know; returns where the last entry lies.
    fn read(&mut self, walk: &Walk, page: PageNumber, latency_cycles: &mut u32) -> PhysAddr {
        *latency_cycles += self.walk_overhead_cycles;
        self.walker.walks += 1;
        let addr = start_of(page);
        let known = self.walk_caches.deepest(self.asid, addr);
        for (step, leads_on) in to_read(walk, known) {
            *latency_cycles += self.read_entry(step.at);
            if leads_on {
                self.walk_caches.fill(self.asid, addr, step.level, ());
            }
        }
        walk.steps().last().expect("a walk reads the root's entry").at
    }

    /// Reads an entry of a page table; returns what that costs.
    pub(super) fn read_entry(&mut self, at: PhysAddr) -> u32 {
        read_entry(&mut self.caches, self.lines, at, &mut self.walker)
    }

    /// The caches of walks of an address space.
    pub(super) fn known_of(&mut self, page: PageNumber) -> (Asid, VirtAddr, Option<(u8, ())>) {
        let addr = start_of(page);
        (self.asid, addr, self.walk_caches.deepest(self.asid, addr))
    }
}

/// The page that a walk of a process' table has found, if it may be used as asked; it is marked as
/// used so.
pub(super) fn found(
    os: &mut Os,
    process: ProcessId,
    walk: &Walk,
    page: PageNumber,
    stores: bool,
) -> Option<Found> {
    let (leaf, (was_used, was_dirty)) = (walk.leaf?, walk.used);
    if stores && !leaf.rights.write {
        return None;
    }
    let is_marked = !was_used || stores && !was_dirty;
    if is_marked {
        os.memory_mut().process_mut(process).table.mark(page, stores);
    }
    Some(Found { translation: Translation::of(&leaf, stores || was_dirty), is_marked })
}

/// The entries of a walk that a walk cache's deepest entry does not spare it, each with whether it
/// leads to a node of the next level.
pub(super) fn to_read(
    walk: &Walk,
    known: Option<(u8, ())>,
) -> impl Iterator<Item = (Step, bool)> + '_ {
    let from = known.map_or(u8::MAX, |(level, ())| level);
    let steps = walk.steps();
    debug_assert!(steps.last().is_some_and(|last| last.level < from), "a stale walk cache");
    let numbered = steps.iter().enumerate().filter(move |(_, step)| step.level < from);
    numbered.map(|(number, step)| {
        let next = steps.get(number + 1);
        (*step, next.is_some_and(|next| next.level < step.level))
    })
}

/// A walker reads an entry that lies in the host's memory, or in that of a machine without guests;
/// what it cost, in cycles.
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

/// Cycles in which a look-up that misses and the walk that follows it are both under way.
pub(super) fn overlap(start: WalkStart, lookup_cycles: u32, walk_cycles: u32) -> u32 {
    match start {
        WalkStart::AfterLookup => 0,
        WalkStart::WithLookup => lookup_cycles.min(walk_cycles),
    }
}

/// The first address of a base page.
pub(super) fn start_of(page: PageNumber) -> VirtAddr {
    VirtAddr::new(page.raw() << PageSize::BASE.log2())
}

fn place(by: ServedBy) -> usize {
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
