//! Bounds: machines whose first-level TLBs, or whose second-level one, never miss (Tailored Page
//! Sizes, figures 2 and 3, compares the two).

use octavo_config::{TlbConfig, TlbLevel};
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions};
use rustc_hash::FxHashMap;

use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::{Kind, LineAccess};
use crate::tlb::{Coalescing, First, FirstTlb, Held};

/// Every reference hits the first level: translation costs nothing. Pages are still faulted in.
#[derive(Default)]
pub struct PerfectL1 {
    /// By base page, so that the page table is asked but once.
    known: FxHashMap<u64, Held>,
    hits: u64,
}

impl Design for PerfectL1 {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        self.hits += u64::from(access.lookups());
        let key = env.asid().tag(page.raw());
        let stores = access.kind() == Kind::Store;
        if let Some(held) = self.known.get(&key)
            && held.value.serves(stores)
        {
            return Some(held.frame_of(page));
        }
        let held = self.resolve(env, page, access)?;
        self.known.insert(key, held);
        Some(held.frame_of(page))
    }

    fn forget(&mut self, of: AddressSpace, pages: &Pages) {
        self.known.retain(|key, _| {
            !(Asid::of(*key) == of.asid && pages.contains(&(key & Asid::ONLY.tag(u64::MAX))))
        });
    }

    fn flush(&mut self) {
        self.known.clear();
    }

    fn tell(&self, counters: &mut Counters) {
        Lookups { hits: self.hits, misses: 0 }.tell("tlb.l1", counters);
    }
}

/// First-level TLBs as the machine has them, and behind them a second level that has every page.
pub struct PerfectL2 {
    l1: FirstTlb,
    hit_latency_cycles: u32,
    hits: u64,
}

impl PerfectL2 {
    /// One whose first level knows nothing.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Ok(PerfectL2 {
            l1: FirstTlb::new(&config.first, Coalescing::default(), instructions)?,
            hit_latency_cycles: config.l2.as_ref().map_or(0, |l2: &TlbLevel| l2.hit_latency_cycles),
            hits: 0,
        })
    }
}

impl Design for PerfectL2 {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        let held = match self.l1.look_up(asid, page, access) {
            First::Serves(held) => held,
            First::Insufficient => {
                let held = self.resolve(env, page, access)?;
                self.l1.replace(asid, page, held, access);
                held
            }
            First::Misses => {
                self.hits += 1;
                env.add_lookup(self.hit_latency_cycles, true);
                let held = self.resolve(env, page, access)?;
                self.l1.fill(asid, page, held, access);
                held
            }
        };
        Some(held.frame_of(page))
    }

    fn forget(&mut self, of: AddressSpace, pages: &Pages) {
        self.l1.forget(of.asid, pages);
    }

    fn flush(&mut self) {
        self.l1.clear();
    }

    fn tell(&self, counters: &mut Counters) {
        self.l1.tell(counters);
        Lookups { hits: self.hits, misses: 0 }.tell("tlb.l2", counters);
    }
}
