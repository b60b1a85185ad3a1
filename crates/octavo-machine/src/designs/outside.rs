//! A design whose second-level TLB is code outside of the simulator, such as a user's Python class. The first
//! level is the machine's, so that the code is called for first-level misses alone; it decides which pages it
//! holds, and the design keeps their translations. So the code can neither translate wrongly nor return a
//! page that was invalidated: both are errors, which stop the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_config::{FirstLevel, MachineConfig};
use octavo_hw::Asid;
use octavo_os::policy::{OsConfig, PolicyConfig};
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize};

use super::build;
use super::registry::{MachineResult, Setup, TranslationHardware, policies};
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::tlb::{L1Tlb, Lookup, TlbEntry, Translation};

/// The result of a call, or why it failed: a sentence without its full stop.
pub type Called<T> = Result<T, String>;

/// A second-level TLB outside of the simulator. Pages are base page numbers.
pub trait OutsideLevel: Send {
    /// The size of the page that it holds for a base page; `None` for a miss.
    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Called<Option<PageSize>>;
    /// Holds the page of this size that covers a base page.
    fn fill(&mut self, asid: Asid, page: PageNumber, size: PageSize) -> Called<()>;
    /// Drops all pages that overlap these base pages.
    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> Called<()>;
    /// Drops all pages.
    fn flush(&mut self) -> Called<()>;
}

/// Makes the level of a core.
pub type MakeLevel = Arc<dyn Fn() -> Called<Box<dyn OutsideLevel>> + Send + Sync>;

/// Stands for the hardware in the machine's footprint.
pub(super) const HARDWARE: TranslationHardware = TranslationHardware::new("outside", refuse);

fn refuse(_: &MachineConfig, _: &Setup, _: &OsConfig) -> MachineResult {
    unreachable!("machine() makes it")
}

/// Rejects a policy with pages that the page tables of the design `name` do not have.
pub(super) fn check_sizes(name: &str, policy: &PolicyConfig) -> Result<(), String> {
    let Some(size) = HARDWARE.sizes.unsupported(policy) else { return Ok(()) };
    Err(format!(
        "it makes pages of {size}, which the page tables of {name} do not have: give one of {}",
        allowed_policies().join(", ")
    ))
}

/// The policies whose default settings make pages of sizes that the page tables have.
pub(super) fn allowed_policies() -> Vec<&'static str> {
    let policies = policies();
    let allowed =
        policies.iter().filter(|entry| HARDWARE.sizes.unsupported(&(entry.usual)()).is_none());
    allowed.map(|entry| entry.name).collect()
}

/// The machine of the design `name`, whose cores have such levels.
pub(super) fn machine(
    name: &str,
    config: &MachineConfig,
    setup: &Setup,
    os: &OsConfig,
    make: &MakeLevel,
) -> MachineResult {
    if let Some(host) = &config.host
        && let Some(own) = build::own_policy(host)?
    {
        check_sizes(name, &own.policy)
            .map_err(|why| ConfigError::Host(Box::new(build::refused(host, why))))?;
    }
    let latency_cycles = config.tlb.l2.as_ref().map_or(0, |l2| l2.hit_latency_cycles);
    build::machine(config, setup, os, || {
        let level = make().map_err(ConfigError::Outside)?;
        Outside::new(&config.tlb.first, level, latency_cycles, setup.instructions)
    })
}

/// The memory-management unit.
struct Outside {
    l1: L1Tlb,
    level: Box<dyn OutsideLevel>,
    latency_cycles: u32,
    lookups: Lookups,
    /// Pages that were filled and not invalidated since, by address space, size and first base page, including pages
    /// that the level has evicted.
    filled: BTreeMap<(Asid, PageSize, u64), TlbEntry>,
    /// The error of a call in which the machine cannot stop.
    failed: Option<String>,
}

impl Outside {
    fn new(
        first: &FirstLevel,
        level: Box<dyn OutsideLevel>,
        latency_cycles: u32,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let l1 = L1Tlb::new(first, (), instructions)?;
        let (lookups, filled) = (Lookups::default(), BTreeMap::new());
        Ok(Outside { l1, level, latency_cycles, lookups, filled, failed: None })
    }

    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Called<Option<Translation>> {
        let Some(size) = self.level.look_up(asid, page)? else { return Ok(None) };
        let entry = self.filled.get(&(asid, size, first_page(page, size))).copied();
        let entry = entry.ok_or_else(|| {
            let page = page.raw();
            format!(
                "look_up returned {size} for page {page:#x}: no page of this size was filled there, or it was \
                 invalidated since"
            )
        })?;
        Ok(Some(Translation { size, entry }))
    }

    fn fill(&mut self, asid: Asid, page: PageNumber, translation: Translation) -> Called<()> {
        let Translation { size, entry } = translation;
        self.filled.insert((asid, size, first_page(page, size)), entry);
        self.level.fill(asid, page, size)
    }

    fn drop_pages(&mut self, asid: Asid, pages: &Pages) -> Called<()> {
        for size in HARDWARE.sizes.list().into_iter().chain([PageSize::BASE]) {
            let from = first_page(PageNumber::new(pages.start), size);
            let gone = self.filled.range((asid, size, from)..(asid, size, pages.end));
            let gone: Vec<_> = gone.map(|(key, _)| *key).collect();
            for key in gone {
                self.filled.remove(&key);
            }
        }
        self.level.invalidate(asid, pages)
    }

    /// Serves an access that the first level does not.
    #[inline(never)]
    fn serve(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_first: Lookup,
    ) -> Option<Translation> {
        let asid = env.asid();
        let replaces = !matches!(in_first, Lookup::Miss);
        let held = if replaces {
            in_first
        } else {
            let found = self.look_up(asid, page);
            let found = found.map_err(|error| env.stop(error)).ok()?;
            env.charge_l2_lookup(self.latency_cycles, found.is_some());
            self.lookups.hits += u64::from(found.is_some());
            self.lookups.misses += u64::from(found.is_none());
            Lookup::of(found, access.is_store())
        };
        if let Lookup::Hit(translation) = held {
            self.l1.fill(asid, page, translation, access);
            return Some(translation);
        }
        let translation = self.walk(env, page, access, held.is_clean())?;
        let mut filled = Ok(());
        if !matches!(held, Lookup::Miss) {
            filled = self.drop_pages(asid, &(page.raw()..page.raw() + 1));
        }
        filled = filled.and_then(|()| self.fill(asid, page, translation));
        filled.map_err(|error| env.stop(error)).ok()?;
        if replaces {
            self.l1.replace(asid, page, translation, access);
        } else {
            self.l1.fill(asid, page, translation, access);
        }
        Some(translation)
    }
}

fn first_page(page: PageNumber, size: PageSize) -> u64 {
    page.raw() >> size.base_shift() << size.base_shift()
}

impl Design for Outside {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        if let Some(error) = self.failed.take() {
            env.stop(error);
            return None;
        }
        let page = env.page(access);
        let translation = match self.l1.look_up(env.asid(), page, access) {
            Lookup::Hit(translation) => translation,
            held => self.serve(env, page, access, held)?,
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.l1.invalidate(space.asid, pages);
        let dropped = self.drop_pages(space.asid, pages);
        self.failed = self.failed.take().or(dropped.err());
    }

    fn flush(&mut self) {
        self.l1.clear();
        self.filled.clear();
        let flushed = self.level.flush();
        self.failed = self.failed.take().or(flushed.err());
    }

    fn report(&self, counters: &mut Counters) {
        self.l1.report(counters);
        self.lookups.report("tlb.l2", counters);
    }
}
