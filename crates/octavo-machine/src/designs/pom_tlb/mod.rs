//! POM-TLB, a TLB in a part of memory (Ryoo, Gulur, Song and John, "Rethinking TLB Designs in Virtualized
//! Environments", ISCA 2017): a third TLB level of 16 MiB (`pom_tlb.bytes`) that all cores share, with lines in the
//! data caches.
//!
//! - It has a table for 4 KiB pages and one for 2 MiB pages, each set-associative with [`WAYS`] entries of
//!   [`ENTRY_BYTES`] bytes to a set: a set fills a line of 64 bytes, so that one read returns the whole set. The tag of
//!   an entry includes the process, so that a context switch keeps it.
//! - After a miss of the second level, or a hit that does not permit the access, a predictor gives the size of the
//!   page, one bit for each of [`PREDICTORS`] regions of 2 MiB, modulo; the set of that size is read through the data
//!   caches. A hit fills the second and the first level. After a miss, also of a wrongly predicted size, the page table
//!   is walked, the page is written to its table, and its size to the predictor.
//! - In a guest, entries translate guest-virtual to host-physical pages, so that a hit takes the place of a
//!   whole two-dimensional walk. The tables lie in the host's memory.
//! - An invalidation drops the entries of its pages from the tables, once: entries that a core writes afterwards stay
//!   when the other cores receive the same invalidation.
//!
//! Assumptions: each core has a predictor of its own, which expects small pages at first and which context switches and
//! invalidations do not change. Every walked page is written to its table and corrects the predictor. Each table has
//! half of the memory; together they take at most a 64th of the machine's memory, rounded down to a power of two. The
//! set is the page number modulo the number of sets; replacement is LRU. A page of 1 GiB is held in parts of 2 MiB, of
//! which a hit fills one. Reads enter the caches where walks do, and begin after the second-level look-up; a
//! first-level entry that does not permit a store is walked for at once. If TLBs hold guest halves of translations, so
//! do the tables. Writes of fills go through the caches off the critical path, and those of invalidations are only
//! counted. The predictor of cache bypasses is left out: every read goes through the caches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octavo_config::{DesignTable, MachineConfig, TlbConfig};
use octavo_hw::{Asid, Geometry, Replacement, SetArray};
use octavo_os::ProcessId;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize, PhysAddr};

use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::behind_tlbs::BehindTlbs;
use crate::designs::build::{self, Tables};
use crate::designs::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::env::Env;
use crate::front::LineAccess;
use crate::state::{Part, Payload};
use crate::tlb::{Lookup, TlbEntry, Translation};

#[cfg(test)]
mod naive;
mod settings;

pub use settings::PomTlbSettings;

/// A third-level TLB in memory.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<PomTlbSettings>()),
    ..Family::new(
    &[TranslationHardware {
        own_state,
        ..TranslationHardware::new("pom_tlb", make)
    }],
    &[NamedDesign { name: "pom_tlb", hardware: "pom_tlb", policy: "thp", about: "POM-TLB: a third-level TLB in a part of memory, for huge pages and small ones", figure: "tlb-in-memory" }],
)};

/// Entries of a set.
pub const WAYS: u64 = 4;
/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 16;
/// Bits of the size predictor.
pub const PREDICTORS: usize = 512;
/// The tables take at most one part in this many of memory.
const SHARE: u64 = 64;
const SET_BYTES: u64 = WAYS * ENTRY_BYTES;
/// The page sizes of the tables.
const SIZES: [PageSize; 2] = [PageSize::BASE, PageSize::HUGE];

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let reserved_bytes = bytes(config).max(PageSize::BASE.bytes());
    let tables = Tables { reserved_bytes, ..Tables::default() };
    let (mut shared, mut cores) = (None, 0..);
    build::machine_with_tables(config, setup, tables, os, |env| {
        let table = shared.get_or_insert_with(|| {
            let table = Table::new(env.reserved_frames(), bytes(config), setup.instructions);
            Arc::new(Mutex::new(table))
        });
        let core = cores.next().expect("a number for each core");
        PomTlb::new(core, &config.tlb, Arc::clone(table), setup.instructions)
    })
}

/// Bytes of both tables in a machine: a power of two.
fn bytes(config: &MachineConfig) -> u64 {
    let memory = config.host.as_ref().map_or(&config.memory, |host| &host.memory);
    let share = (memory.bytes / SHARE).max(2 * SET_BYTES);
    1 << share.min(config.designs.get::<PomTlbSettings>().bytes).ilog2()
}

fn geometry(bytes: u64) -> Geometry {
    let entries = bytes / 2 / ENTRY_BYTES;
    Geometry::of_entries(entries, WAYS).expect("a power of two of sets")
}

fn own_state(config: &MachineConfig) -> Vec<Part> {
    let bytes = 2 * SetArray::<Payload>::most_bytes(geometry(bytes(config)));
    vec![Part { setting: "the tables of pom_tlb".to_owned(), bytes }]
}

/// The contents of the tables, and their place in memory.
struct Table {
    frames: Box<[FrameNumber]>,
    /// By size.
    sizes: [SetArray<TlbEntry>; 2],
    /// Invalidations that not every core has received.
    receipts: Vec<Receipt>,
}

/// An invalidation, and the cores that have received it.
struct Receipt {
    process: ProcessId,
    pages: Pages,
    cores: Vec<usize>,
}

impl Table {
    /// Empty tables of `bytes` bytes together, in these frames.
    fn new(frames: &[FrameNumber], bytes: u64, instructions: Instructions) -> Self {
        let table = || SetArray::new(geometry(bytes), Replacement::Lru, instructions);
        Table { frames: frames.into(), sizes: [table(), table()], receipts: Vec::new() }
    }

    /// The set that may hold the page of a size, and the address of its line.
    fn place(&self, size: usize, page: PageNumber) -> (usize, PhysAddr) {
        let sets = self.sizes[size].geometry();
        let set = sets.set_of(page.raw() >> SIZES[size].base_shift());
        let at = (size * sets.sets() + set) as u64 * SET_BYTES;
        let frame = self.frames[(at / PageSize::BASE.bytes()) as usize];
        (set, PhysAddr::new(frame.start().raw() + at % PageSize::BASE.bytes()))
    }

    /// The translation of a base page by an entry of this size.
    fn look_up(&mut self, size: usize, asid: Asid, page: PageNumber) -> Option<Translation> {
        let (set, _) = self.place(size, page);
        let entry = *self.sizes[size].look_up(set, key(size, asid, page))?;
        Some(Translation { size: SIZES[size], entry })
    }

    /// Puts a page, or the part of it that an entry holds, into its set. Returns the address of the line.
    fn fill(&mut self, asid: Asid, page: PageNumber, translation: Translation) -> PhysAddr {
        let size = usize::from(is_huge(&translation));
        let entry = translation.part(page, SIZES[size]).entry;
        let (set, at) = self.place(size, page);
        self.sizes[size].insert(set, key(size, asid, page), entry);
        at
    }

    /// Whether a core is the first that receives an invalidation.
    fn is_first(&mut self, core: usize, process: ProcessId, pages: &Pages) -> bool {
        let earlier = self.receipts.iter_mut().find(|receipt| {
            (receipt.process, &receipt.pages) == (process, pages) && !receipt.cores.contains(&core)
        });
        match earlier {
            Some(receipt) => {
                receipt.cores.push(core);
                false
            }
            None => {
                let receipt = Receipt { process, pages: pages.clone(), cores: vec![core] };
                self.receipts.push(receipt);
                true
            }
        }
    }

    /// Drops the entries of these base pages. Returns their number.
    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> u64 {
        let mut dropped = 0;
        for (array, size) in self.sizes.iter_mut().zip(SIZES) {
            let order = size.base_shift();
            let numbers = pages.start >> order..((pages.end - 1) >> order) + 1;
            if numbers.end - numbers.start > array.len() as u64 {
                let number = |key: u64| key & Asid::ONLY.tag(u64::MAX);
                dropped += array.invalidate_if(|key, _| {
                    Asid::of(key) == asid && numbers.contains(&number(key))
                });
                continue;
            }
            for number in numbers {
                let set = array.geometry().set_of(number);
                dropped += usize::from(array.invalidate(set, asid.tag(number)).is_some());
            }
        }
        dropped as u64
    }
}

fn key(size: usize, asid: Asid, page: PageNumber) -> u64 {
    asid.tag(page.raw() >> SIZES[size].base_shift())
}

fn is_huge(translation: &Translation) -> bool {
    translation.size >= PageSize::HUGE
}

/// The tag of a process' entries; `None` if its number is too high for one: the process then uses no table.
fn tag(process: ProcessId) -> Option<Asid> {
    Asid::new(process.0)
}

/// Conventional TLBs in front of the tables in memory.
pub struct PomTlb {
    core: usize,
    tlbs: Conventional,
    table: Arc<Mutex<Table>>,
    /// Whether the last page of a region was huge.
    predicts_huge: Box<[bool; PREDICTORS]>,
    lookups: Lookups,
    counts: Counts,
}

/// Counters of one core beside those of look-ups.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Pages of another size than predicted.
    mispredicted: u64,
    /// Lines written by fills.
    fills: u64,
    /// Entries dropped by invalidations.
    invalidated: u64,
}

impl PomTlb {
    fn new(
        core: usize,
        config: &TlbConfig,
        table: Arc<Mutex<Table>>,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        Ok(PomTlb {
            core,
            tlbs: Conventional::new(config, instructions)?,
            table,
            predicts_huge: Box::new([false; PREDICTORS]),
            lookups: Lookups::default(),
            counts: Counts::default(),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BehindTlbs for PomTlb {
    fn tlbs(&mut self) -> &mut Conventional {
        &mut self.tlbs
    }

    /// Reads the set of the predicted size.
    fn look_up_behind(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        _: &Lookup,
    ) -> Lookup {
        let Some(asid) = tag(env.process()) else { return Lookup::Miss };
        let size = usize::from(self.predicts_huge[region(page)]);
        let (at, found) = {
            let mut table = self.table();
            (table.place(size, page).1, table.look_up(size, asid, page))
        };
        let latency_cycles = env.read_memory(at);
        env.charge_lookup(latency_cycles);
        self.lookups.hits += u64::from(found.is_some());
        self.lookups.misses += u64::from(found.is_none());
        Lookup::of(found, access.is_store())
    }

    fn walk_and_fill_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (held, is_clean): (Lookup, bool),
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access, is_clean)?;
        self.tlbs.fill_l2(env.asid(), page, translation, held);
        if let Some(asid) = tag(env.process()) {
            let at = self.table().fill(asid, page, translation);
            env.write_memory(at);
            self.counts.fills += 1;
            let predicted = &mut self.predicts_huge[region(page)];
            self.counts.mispredicted += u64::from(*predicted != is_huge(&translation));
            *predicted = is_huge(&translation);
        }
        Some(translation)
    }
}

/// The predictor of a base page.
fn region(page: PageNumber) -> usize {
    (page.raw() >> PageSize::HUGE.base_shift()) as usize % PREDICTORS
}

impl Design for PomTlb {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.translate_behind_tlbs(env, access)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
        let mut table = self.table();
        if table.is_first(self.core, space.process, pages)
            && let Some(asid) = tag(space.process)
        {
            let dropped = table.invalidate(asid, pages);
            drop(table);
            self.counts.invalidated += dropped;
        }
    }

    fn apply_invalidations(&mut self, _env: &Env) {
        self.table().receipts.clear();
    }

    /// The tables keep their entries, whose tags name the process.
    fn flush(&mut self) {
        self.tlbs.flush();
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        self.lookups.report("tlb.pom", counters);
        counters.add("tlb.pom", "mispredicted", self.counts.mispredicted);
        counters.add("tlb.pom", "fills", self.counts.fills);
        counters.add("tlb.pom", "invalidated", self.counts.invalidated);
    }
}
