//! What machines have: first-level TLBs for instructions and for data, each an array for each page
//! size or so, a second level behind both, and a walk behind that.

use octavo_config::{TlbConfig, TlbLevel};
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber};

use crate::config::ConfigError;
use crate::counters::Counters;
use crate::design::Design;
use crate::env::Env;
use crate::front::{Kind, LineAccess};
use crate::tlb::{First, FirstTlb, Held, Tlb};

/// The conventional design.
pub struct Conventional {
    l1: FirstTlb,
    l2: Option<Tlb>,
    /// Whether a hit in the second level fills the whole page into the first, of which the second
    /// has a part.
    fills_whole: bool,
}

impl Conventional {
    /// One that knows nothing.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        let second = |config: &TlbLevel| {
            Tlb::new(config, instructions).map_err(|error| ConfigError::Tlb { level: "l2", error })
        };
        let l1 = FirstTlb::new(&config.first, instructions)?;
        Ok(Conventional { l1, l2: config.l2.as_ref().map(second).transpose()?, fills_whole: false })
    }

    /// The same; a hit in the second level fills whole pages into the first.
    pub fn filling_whole_pages(self) -> Self {
        Conventional { fills_whole: true, ..self }
    }

    /// The first level has missed.
    #[inline(never)]
    fn missed(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) -> Option<Held> {
        let asid = env.asid();
        if let Some(l2) = &mut self.l2
            && let Some(held) = l2.search(asid, page, 1)
        {
            env.add_tlb_cycles(l2.hit_latency_cycles());
            if held.value.serves(access.kind() == Kind::Store) {
                if l2.holds_victims() {
                    l2.take(asid, page);
                }
                let held = if self.fills_whole { held.whole() } else { held };
                let evicted = self.l1.fill(asid, page, held, access);
                self.evicted(evicted);
                return Some(held);
            }
        }
        let held = self.walk_and_fill_second(env, page, access)?;
        let evicted = self.l1.fill(asid, page, held, access);
        self.evicted(evicted);
        Some(held)
    }

    /// What the first level holds is not sufficient: it is replaced by what a walk finds.
    #[inline(never)]
    fn insufficient(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Held> {
        let held = self.walk_and_fill_second(env, page, access)?;
        let evicted = self.l1.replace(env.asid(), page, held, access);
        self.evicted(evicted);
        Some(held)
    }

    fn walk_and_fill_second(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Held> {
        let held = self.walk(env, page, access)?.held;
        if let Some(l2) = &mut self.l2 {
            l2.take(env.asid(), page);
            if !l2.holds_victims() {
                l2.fill(env.asid(), page, held, 1);
            }
        }
        Some(held)
    }

    /// What the first level has evicted goes into the second, if that holds victims.
    fn evicted(&mut self, evicted: Option<(Asid, PageNumber, Held)>) {
        if let (Some(l2), Some((asid, page, held))) = (&mut self.l2, evicted)
            && l2.holds_victims()
        {
            l2.fill(asid, page, held, 1);
        }
    }
}

impl Design for Conventional {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let held = match self.l1.look_up(env.asid(), page, access) {
            First::Serves(held) => held,
            First::Insufficient => self.insufficient(env, page, access)?,
            First::Misses => self.missed(env, page, access)?,
        };
        Some(held.frame_of(page))
    }

    fn forget(&mut self, asid: Asid, pages: &Pages) {
        self.l1.forget(asid, pages);
        if let Some(l2) = &mut self.l2 {
            l2.invalidate(asid, pages);
        }
    }

    fn flush(&mut self) {
        self.l1.clear();
        if let Some(l2) = &mut self.l2 {
            l2.clear();
        }
    }

    fn tell(&self, counters: &mut Counters) {
        self.l1.tell(counters);
        if let Some(l2) = &self.l2 {
            l2.tell("tlb.l2", counters);
        }
    }
}
