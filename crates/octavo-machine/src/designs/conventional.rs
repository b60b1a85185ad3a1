//! What machines have: first-level TLBs for instructions and for data, each an array for each page
//! size or so, a second level behind both, and a walk behind that.

use octavo_config::{FirstLevel, TlbConfig};
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber};

use crate::config::ConfigError;
use crate::counters::Counters;
use crate::design::Design;
use crate::env::Env;
use crate::front::{Kind, LineAccess};
use crate::tlb::{Held, Tlb};

/// The conventional design.
pub struct Conventional {
    /// For both, where there is no other.
    l1i: Tlb,
    l1d: Option<Tlb>,
    l2: Option<Tlb>,
}

impl Conventional {
    /// One that knows nothing.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        let new = |name, level| {
            Tlb::new(level, instructions).map_err(|error| ConfigError::Tlb { level: name, error })
        };
        let (l1i, l1d) = match &config.first {
            FirstLevel::Split { l1i, l1d } => (new("l1i", l1i)?, Some(new("l1d", l1d)?)),
            FirstLevel::Unified { l1 } => (new("l1", l1)?, None),
        };
        let l2 = config.l2.as_ref().map(|l2| new("l2", l2)).transpose()?;
        Ok(Conventional { l1i, l1d, l2 })
    }

    /// The first level of a side.
    #[inline(always)]
    fn l1(&mut self, kind: Kind) -> &mut Tlb {
        match &mut self.l1d {
            Some(l1d) if !kind.is_fetch() => l1d,
            _ => &mut self.l1i,
        }
    }

    /// The first level has missed.
    #[inline(never)]
    fn missed(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) -> Option<Held> {
        let asid = env.asid();
        let stores = access.kind() == Kind::Store;
        if let Some(l2) = &mut self.l2
            && let Some(held) = l2.look_up(asid, page, 1)
        {
            env.add_tlb_cycles(l2.hit_latency_cycles());
            if held.value.serves(stores) {
                if l2.holds_victims() {
                    l2.take(asid, page);
                }
                self.fill_first(asid, page, held, access.kind(), access.lookups());
                return Some(held);
            }
        }
        self.walk_and_fill(env, page, access, access.lookups())
    }

    /// Whatever is held of a page is replaced by what a walk finds, for so many references that
    /// are not counted yet.
    #[inline(never)]
    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        references: u32,
    ) -> Option<Held> {
        let held = self.walk(env, page, access)?.held;
        let asid = env.asid();
        if let Some(l2) = &mut self.l2 {
            l2.take(asid, page);
            if !l2.holds_victims() {
                l2.fill(asid, page, held, 1);
            }
        }
        self.l1(access.kind()).take(asid, page);
        self.fill_first(asid, page, held, access.kind(), references);
        Some(held)
    }

    /// A page goes into a first level, and what gives way to it perhaps into the second.
    fn fill_first(
        &mut self,
        asid: Asid,
        page: PageNumber,
        held: Held,
        kind: Kind,
        references: u32,
    ) {
        let evicted = self.l1(kind).fill(asid, page, held, references);
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
        let kind = access.kind();
        let found = self.l1(kind).look_up(env.asid(), page, access.lookups());
        let held = match found {
            Some(held) if held.value.serves(kind == Kind::Store) => held,
            // It is there, and was counted; but the page table has to be asked for more.
            Some(_) => self.walk_and_fill(env, page, access, 0)?,
            None => self.missed(env, page, access)?,
        };
        Some(held.frame_of(page))
    }

    fn forget(&mut self, asid: Asid, pages: &Pages) {
        let levels = [Some(&mut self.l1i), self.l1d.as_mut(), self.l2.as_mut()];
        levels.into_iter().flatten().for_each(|level| {
            level.invalidate(asid, pages);
        });
    }

    fn flush(&mut self) {
        let levels = [Some(&mut self.l1i), self.l1d.as_mut(), self.l2.as_mut()];
        levels.into_iter().flatten().for_each(Tlb::clear);
    }

    fn tell(&self, counters: &mut Counters) {
        match &self.l1d {
            Some(l1d) => {
                self.l1i.tell("tlb.l1i", counters);
                l1d.tell("tlb.l1d", counters);
            }
            None => self.l1i.tell("tlb.l1", counters),
        }
        if let Some(l2) = &self.l2 {
            l2.tell("tlb.l2", counters);
        }
    }
}
