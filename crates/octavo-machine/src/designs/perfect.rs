//! Ideal bounds: machines whose first-level or second-level TLBs never miss (compared by Guvenilir and Patt,
//! ISCA 2020, figures 2 and 3).

use octavo_config::{MachineConfig, TlbConfig, TlbLevel};
use octavo_hw::Asid;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, Instructions};
use rustc_hash::FxHashMap;

use super::build;
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::tlb::{L1Tlb, Lookup, Translation};

/// Both bounds.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[
        TranslationHardware { is_bound: true, ..TranslationHardware::new("perfect_l1", make_l1) },
        TranslationHardware { is_bound: true, ..TranslationHardware::new("perfect_l2", make_l2) },
    ],
    &[
        NamedDesign { name: "perfect_l1", hardware: "perfect_l1", policy: "base", about: "a bound: first-level TLBs that never miss", figure: "perfect-first" },
        NamedDesign { name: "perfect_l2", hardware: "perfect_l2", policy: "base", about: "a bound: a second-level TLB that never misses", figure: "perfect-second" },
    ],
);

fn make_l1(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    build::machine(config, setup, os, || Ok(PerfectL1::default()))
}

fn make_l2(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    build::machine(config, setup, os, || PerfectL2::new(&config.tlb, setup.instructions))
}

/// Every reference hits the first level: translation is free. Page faults still happen.
#[derive(Default)]
pub struct PerfectL1 {
    /// Translations by tagged base page, so that each is resolved once.
    known: FxHashMap<u64, Translation>,
    hits: u64,
}

impl Design for PerfectL1 {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        self.hits += u64::from(access.lookups());
        let key = env.asid().tag(page.raw());
        let stores = access.kind() == Access::Store;
        if let Some(translation) = self.known.get(&key)
            && translation.entry.permits(stores)
        {
            return Some(translation.frame_of(page));
        }
        let translation = self.resolve(env, page, access)?;
        self.known.insert(key, translation);
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.known.retain(|key, _| {
            !(Asid::of(*key) == space.asid && pages.contains(&(key & Asid::ONLY.tag(u64::MAX))))
        });
    }

    fn flush(&mut self) {
        self.known.clear();
    }

    fn report(&self, counters: &mut Counters) {
        Lookups { hits: self.hits, misses: 0 }.report("tlb.l1", counters);
    }
}

/// First-level TLBs of the machine, with a second level that holds every page.
pub struct PerfectL2 {
    l1: L1Tlb,
    hit_latency_cycles: u32,
    hits: u64,
}

impl PerfectL2 {
    /// A unit with empty first-level TLBs.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Ok(PerfectL2 {
            l1: L1Tlb::new(&config.first, (), instructions)?,
            hit_latency_cycles: config.l2.as_ref().map_or(0, |l2: &TlbLevel| l2.hit_latency_cycles),
            hits: 0,
        })
    }
}

impl Design for PerfectL2 {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        let translation = match self.l1.look_up(asid, page, access) {
            Lookup::Hit(translation) => translation,
            Lookup::PermissionMiss { .. } => {
                let translation = self.resolve(env, page, access)?;
                self.l1.replace(asid, page, translation, access);
                translation
            }
            Lookup::Miss => {
                self.hits += 1;
                env.charge_l2_lookup(self.hit_latency_cycles, true);
                let translation = self.resolve(env, page, access)?;
                self.l1.fill(asid, page, translation, access);
                translation
            }
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.l1.invalidate(space.asid, pages);
    }

    fn flush(&mut self) {
        self.l1.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.l1.report(counters);
        Lookups { hits: self.hits, misses: 0 }.report("tlb.l2", counters);
    }
}
