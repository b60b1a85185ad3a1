//! Gap-Tolerant Sequential Mapping (Du et al., "Supporting Superpages in Non-Contiguous Physical Memory",
//! HPCA 2015), as described by Park et al. (ISCA 2020, Section VII-D). A *gapped page* is a 2 MiB page made
//! of any 32 of the 64 sub-blocks of 64 KiB of a 4 MiB chunk, in order.
//!
//! - The first-level TLBs hold no gapped pages: a reference to one fills a base page.
//! - The second level holds gapped pages in entries of 2 MiB pages, with the frame of their chunk. The
//!   chunk's bitmap locates a base page: sub-block number *n* of the page is the one with the *n*-th bit set.
//! - Bitmaps lie in memory, eight bytes per chunk. The walker caches some ([`GtsmSettings`]), indexed by
//!   page; others are read through the data caches, both on walks and on second-level hits.
//! - The walk caches of levels 2 and 3 have 32 entries.
//!
//! In a guest, the host has the gapped pages, since faulty frames belong to machine memory; the guest uses
//! huge pages of fault-free guest-physical memory. A guest page of 2 MiB or more backed by a gapped page is
//! held as a gapped page in the host's chunk, and the walker caches its bitmap as without a guest. For base
//! pages see the nested walks of [`env`](crate::env).
//!
//! Decisions that the paper leaves open: bitmaps are cached in the walker, not in TLB entries (64 more bits
//! would double an entry); use of a cached bitmap, and counting its bits, costs nothing. A second level that
//! is a victim level in other designs is filled by walks here.

mod entry;
mod policy;
mod settings;
mod walk;

use octavo_config::{DesignTable, Fill, FragmentationConfig, MachineConfig, TlbConfig, Ways};
use octavo_hw::{Asid, Geometry, Replacement, SetArray};
use octavo_os::frames::SubBlocks;
use octavo_os::page_table::Format;
use octavo_os::policy::{OsConfig, PolicyEntry};
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize};

use super::build::{self, Tables};
use super::registry::{
    Family, MachineResult, NamedDesign, Requirement, Setup, TranslationHardware,
};
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::{CompositePages, Env};
use crate::front::LineAccess;
use crate::state::Part;
use crate::tlb::{L1Tlb, Lookup, Tlb, Translation};
pub use policy::{GAPPED_PAGES, GtsmPolicyConfig};
pub use settings::GtsmSettings;

/// Gap-Tolerant Sequential Mapping.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<GtsmSettings>()),
    policies: &[PolicyEntry::new::<GtsmPolicyConfig>("gtsm", "huge pages, made of sound sub-blocks of 64 KiB of a chunk of 4 MiB where no block is whole")],
    ..Family::new(
        &[TranslationHardware {
            needs: Some(&Requirement { capability: GAPPED_PAGES, is_of_host: false }),
            adapt,
            own_state,
            check_guest,
            ..TranslationHardware::new("gtsm", make)
        }],
        &[NamedDesign { name: "gtsm", hardware: "gtsm", policy: "gtsm", about: "Gap-Tolerant Sequential Mapping: 2 MiB pages made of 32 of 64 sub-blocks", figure: "gaps" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let format = Format { has_gapped: true, ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    build::machine_with_tables(config, setup, tables, os, |_| {
        Gtsm::new(&config.tlb, config.designs.get(), setup.instructions)
    })
}

/// Cached bitmaps.
fn own_state(config: &MachineConfig) -> Vec<Part> {
    vec![Part::fully_associative(
        "gtsm.bitmap_entries",
        config.designs.get::<GtsmSettings>().bitmap_entries,
        1,
    )]
}

/// Rejects faulty frames in guest memory: the faults belong to host memory.
fn check_guest(config: &MachineConfig) -> Result<(), ConfigError> {
    match config.memory.fragmentation {
        FragmentationConfig::Faults { .. } => Err(ConfigError::Guest(
            "memory.fragmentation = faults: with gtsm only host memory may have faults: give \
             host.memory.fragmentation instead",
        )),
        _ => Ok(()),
    }
}

/// Base pages of a gapped page.
const PAGES: u64 = 512;

/// Gap-Tolerant Sequential Mapping.
pub struct Gtsm {
    l1: L1Tlb,
    l2: Option<Tlb>,
    /// Cached bitmaps, by number of the 2 MiB page.
    bitmaps: SetArray<SubBlocks>,
    lookups: Lookups,
    /// Second-level hits of gapped pages.
    hits: u64,
}

/// The machine with the walk caches of GTSM, for the host's table, too.
fn adapt(config: &MachineConfig) -> MachineConfig {
    let mut machine = config.clone();
    let entries = config.designs.get::<GtsmSettings>().walk_cache_entries;
    let host_caches = machine.host.iter_mut().flat_map(|host| host.walk_caches.values_mut());
    let caches = machine.walker.caches.values_mut().chain(host_caches);
    for cache in caches.filter(|cache| entries > 0 && (2..=3).contains(&cache.level)) {
        (cache.entries, cache.ways) = (entries, Ways::Full);
    }
    machine
}

impl Gtsm {
    /// A unit with empty TLBs and caches.
    pub fn new(
        config: &TlbConfig,
        gtsm: &GtsmSettings,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let mut config = config.clone();
        let l2 = config.l2.as_mut().map(|l2| {
            l2.fill = Fill::All;
            Tlb::new(l2, (), instructions)
        });
        let geometry = Geometry::of_entries(gtsm.bitmap_entries, gtsm.bitmap_entries)
            .map_err(|error| ConfigError::Tlb { level: "gtsm", error })?;
        Ok(Gtsm {
            l1: L1Tlb::new(&config.first, (), instructions)?,
            l2: l2.transpose().map_err(|error| ConfigError::Tlb { level: "l2", error })?,
            bitmaps: SetArray::new(geometry, Replacement::Lru, instructions),
            lookups: Lookups::default(),
            hits: 0,
        })
    }

    /// Serves a first-level miss.
    #[inline(never)]
    fn serve_l1_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let translation = match self.look_up_l2(env, page, access) {
            Lookup::Hit(translation) => translation,
            in_second => self.walk_and_fill(env, page, access, in_second)?,
        };
        self.l1.fill(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Looks a page up in the second level.
    fn look_up_l2(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) -> Lookup {
        let Some(l2) = &mut self.l2 else { return Lookup::Miss };
        let Some(mut translation) = env.look_up_l2(l2, page) else { return Lookup::Miss };
        if translation.is_gapped() {
            self.hits += 1;
            translation = self.base_page_of(env, page, &translation, false);
        }
        Lookup::of(Some(translation), access.is_store())
    }

    /// Walks, and fills the second level.
    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        held: Lookup,
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access, held.is_clean())?;
        let base_page = if translation.is_gapped() {
            self.base_page_of(env, page, &translation, true)
        } else {
            translation
        };
        if let Some(l2) = &mut self.l2 {
            if !matches!(held, Lookup::Miss) {
                l2.remove(env.asid(), page);
            }
            let kept = if l2.has_sets_of(PageSize::HUGE) { translation } else { base_page };
            l2.fill(env.asid(), page, kept, 1);
        }
        Some(base_page)
    }

    /// The base page of a gapped page, by the bitmap of its chunk. With `continues_walk`, a walk has just
    /// found the page.
    fn base_page_of(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        gapped: &Translation,
        continues_walk: bool,
    ) -> Translation {
        let key = env.asid().tag(page.raw() / PAGES);
        let cached = self.bitmaps.look_up(0, key).copied();
        self.lookups.hits += u64::from(cached.is_some());
        self.lookups.misses += u64::from(cached.is_none());
        let blocks = cached.unwrap_or_else(|| {
            let blocks = walk::read_bitmap(env, gapped.chunk(), continues_walk);
            self.bitmaps.insert_missed(0, key, blocks);
            blocks
        });
        gapped.part_of_chunk(page, blocks)
    }
}

impl Design for Gtsm {
    const COMPOSITE: Option<&'static dyn CompositePages> = Some(&walk::Pages);

    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.l1.look_up(env.asid(), page, access) {
            Lookup::Hit(translation) => translation,
            Lookup::Miss => self.serve_l1_miss(env, page, access)?,
            held => {
                let translation = self.walk_and_fill(env, page, access, held)?;
                self.l1.replace(env.asid(), page, translation, access);
                translation
            }
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.l1.invalidate(space.asid, pages);
        if let Some(l2) = &mut self.l2 {
            l2.invalidate(space.asid, pages);
        }
        let numbers = pages.start / PAGES..pages.end.div_ceil(PAGES);
        let number = |key: u64| key & Asid::ONLY.tag(u64::MAX);
        self.bitmaps
            .invalidate_if(|key, _| Asid::of(key) == space.asid && numbers.contains(&number(key)));
    }

    fn flush(&mut self) {
        self.l1.clear();
        self.l2.iter_mut().for_each(Tlb::clear);
        self.bitmaps.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.l1.report(counters);
        self.lookups.report("walker.cache.bitmap", counters);
        if let Some(l2) = &self.l2 {
            l2.report("tlb.l2", counters);
            counters.add("tlb.l2.gapped", "hits", self.hits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_caches_of_levels_2_and_3_have_the_papers_size() {
        let walk_caches = |setting| {
            let config = crate::resolve("skylake", &["host=usual", setting]);
            let config = config.unwrap().into_config();
            let adapted = adapt(&config);
            let of_host = |config: &MachineConfig| config.host.clone().unwrap().walk_caches;
            let caches = |config: &MachineConfig| [config.walker.caches.clone(), of_host(config)];
            [0, 1].map(|table| {
                let changed = |level: u8| {
                    let cache = |config: &MachineConfig| {
                        let caches = &caches(config)[table];
                        *caches.values().find(|cache| cache.level == level).unwrap()
                    };
                    let (given, adapted) = (cache(&config), cache(&adapted));
                    (given != adapted).then_some((adapted.entries, adapted.ways))
                };
                [2, 3, 4].map(changed)
            })
        };
        let paper = Some((32, Ways::Full));
        assert_eq!(walk_caches("core.count=1"), [[paper, paper, None]; 2]);
        assert_eq!(walk_caches("gtsm.walk_cache_entries=0"), [[None; 3]; 2]);
    }
}
