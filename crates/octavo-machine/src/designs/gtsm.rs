//! Gap-Tolerant Sequential Mapping (Du et al., "Supporting Superpages in Non-Contiguous Physical Memory", HPCA
//! 2015), as Perforated Page tells of it (ISCA 2020, paper 004, Section VII-D): pages of 2 MiB made of any 32
//! sub-blocks of 64 KiB of a chunk of 4 MiB, in order.
//!
//! - The first level is as the machine has it, and holds no page with gaps: a reference to one fills a base page.
//! - The second level holds them in entries as those of pages of 2 MiB, with the frame of their chunk. Where a
//!   base page lies in that, the chunk's bitmap says: the sub-block of number *n* of the page is the one with the
//!   *n*-th bit that is set.
//! - Bitmaps lie in memory, eight bytes a chunk. The walker keeps some ([`GtsmHardware`]), found by the page;
//!   another one is read through the data caches. So both walks and hits of the second level may read one.
//! - The walk caches of levels 2 and 3 have 32 entries.
//!
//! In a guest the host has the pages with gaps: faults of memory are the machine's. The guest has huge pages of
//! guest-physical memory, which has no faults. Where its page has 2 MiB or more, and the host a page with gaps
//! behind it, the second level holds a page with gaps: the guest's page in the host's chunk, whose bitmap the
//! walker keeps as without a guest ([`env`](crate::env)'s nested walks say what is behind base pages).
//!
//! What the paper leaves open: that bitmaps are kept in the walker and not in the TLB's entries (64 bits more
//! for each would be twice the entry), and that a bitmap which is there, and counting its bits, costs nothing. A
//! level that is filled with victims elsewhere is filled by walks here.

use octavo_config::{Fill, GtsmHardware, MachineConfig, TlbConfig, Ways};
use octavo_hw::{Asid, Geometry, Replacement, SetArray};
use octavo_os::frames::SubBlocks;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber};

use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::{Kind, LineAccess};
use crate::tlb::{Coalescing, L1Tlb, Lookup, Tlb, Translation};

/// Base pages of a page with gaps.
const PAGES: u64 = 512;

/// Gap-Tolerant Sequential Mapping.
pub struct Gtsm {
    l1: L1Tlb,
    l2: Option<Tlb>,
    /// By the number of the page.
    bitmaps: SetArray<SubBlocks>,
    lookups: Lookups,
    /// References that an entry of a page with gaps was found for in the second level.
    hits: u64,
}

/// The machine, with the walk caches that such a design has: those of a host's table, too.
pub fn machine(config: &MachineConfig) -> MachineConfig {
    let mut machine = config.clone();
    let entries = config.gtsm.walk_cache_entries;
    let of_host = machine.host.iter_mut().flat_map(|host| host.walk_caches.values_mut());
    let caches = machine.walker.caches.values_mut().chain(of_host);
    for cache in caches.filter(|cache| entries > 0 && (2..=3).contains(&cache.level)) {
        (cache.entries, cache.ways) = (entries, Ways::Full);
    }
    machine
}

impl Gtsm {
    /// One that knows nothing.
    pub fn new(
        config: &TlbConfig,
        gtsm: &GtsmHardware,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let none = Coalescing::default();
        let mut config = config.clone();
        let l2 = config.l2.as_mut().map(|l2| {
            l2.fill = Fill::All;
            Tlb::new(l2, none, instructions)
        });
        let geometry = Geometry::of_entries(gtsm.bitmap_entries, gtsm.bitmap_entries)
            .map_err(|error| ConfigError::Tlb { level: "gtsm", error })?;
        Ok(Gtsm {
            l1: L1Tlb::new(&config.first, none, instructions)?,
            l2: l2.transpose().map_err(|error| ConfigError::Tlb { level: "l2", error })?,
            bitmaps: SetArray::new(geometry, Replacement::Lru, instructions),
            lookups: Lookups::default(),
            hits: 0,
        })
    }

    /// The first level has missed.
    #[inline(never)]
    fn missed(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let translation = match self.second(env, page, access) {
            Lookup::Hit(translation) => translation,
            in_second => self.walk_and_fill(env, page, access, &in_second)?,
        };
        self.l1.fill(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Looks a page up in the second level.
    fn second(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) -> Lookup {
        let Some(l2) = &mut self.l2 else { return Lookup::Miss };
        let Some(mut translation) = env.look_up_second(l2, page) else { return Lookup::Miss };
        if translation.is_gapped() {
            self.hits += 1;
            translation = self.base_page_of(env, page, &translation, false);
        }
        match translation.entry.serves(access.kind() == Kind::Store) {
            true => Lookup::Hit(translation),
            false => Lookup::PermissionMiss,
        }
    }

    /// Walks, and fills the second level.
    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_second: &Lookup,
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access)?;
        let base_page_of = if translation.is_gapped() {
            self.base_page_of(env, page, &translation, true)
        } else {
            translation
        };
        if let Some(l2) = &mut self.l2 {
            if !matches!(in_second, Lookup::Miss) {
                l2.remove(env.asid(), page);
            }
            let kept = if l2.holds_perforated() { translation } else { base_page_of };
            l2.fill(env.asid(), page, kept, 1);
        }
        Some(base_page_of)
    }

    /// A base page of a page with gaps, by the bitmap of its chunk; `continues_walk` says whether a walk has
    /// just found the page.
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
            let blocks = env.read_chunk_bitmap(gapped.chunk(), continues_walk);
            self.bitmaps.insert_missed(0, key, blocks);
            blocks
        });
        gapped.part_of_chunk(page, blocks)
    }
}

impl Design for Gtsm {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.l1.look_up(env.asid(), page, access) {
            Lookup::Hit(translation) => translation,
            Lookup::PermissionMiss => {
                let translation = self.walk_and_fill(env, page, access, &Lookup::PermissionMiss)?;
                self.l1.replace(env.asid(), page, translation, access);
                translation
            }
            Lookup::Miss => self.missed(env, page, access)?,
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, of: AddressSpace, pages: &Pages) {
        self.l1.invalidate(of.asid, pages);
        if let Some(l2) = &mut self.l2 {
            l2.invalidate(of.asid, pages);
        }
        let numbers = pages.start / PAGES..pages.end.div_ceil(PAGES);
        let number = |key: u64| key & Asid::ONLY.tag(u64::MAX);
        self.bitmaps
            .invalidate_if(|key, _| Asid::of(key) == of.asid && numbers.contains(&number(key)));
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
    fn walk_caches_of_two_levels_are_those_of_the_paper() {
        let walk_caches = |setting| {
            let config = octavo_config::resolve("skylake", &["host=usual", setting]);
            let config = config.unwrap().into_config();
            let made = machine(&config);
            let of_host = |config: &MachineConfig| config.host.clone().unwrap().walk_caches;
            let caches = |config: &MachineConfig| [config.walker.caches.clone(), of_host(config)];
            [0, 1].map(|whose| {
                let is_own = |level: u8| {
                    let of = |config: &MachineConfig| {
                        let caches = &caches(config)[whose];
                        *caches.values().find(|cache| cache.level == level).unwrap()
                    };
                    let (given, made) = (of(&config), of(&made));
                    (given != made).then_some((made.entries, made.ways))
                };
                [2, 3, 4].map(is_own)
            })
        };
        let paper = Some((32, Ways::Full));
        assert_eq!(walk_caches("core.count=1"), [[paper, paper, None]; 2]);
        assert_eq!(walk_caches("gtsm.walk_cache_entries=0"), [[None; 3]; 2]);
    }
}
