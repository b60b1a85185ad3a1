//! The first level of TLBs: one for instructions and one for data, or one for both.

use octavo_config::{FirstLevel, TlbLevel};
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber};

use super::{Coalescing, Held, Tlb};
use crate::config::ConfigError;
use crate::counters::Counters;
use crate::front::{Kind, LineAccess};

/// The first level.
pub struct FirstTlb {
    /// For both, where there is no other.
    fetch: Tlb,
    data: Option<Tlb>,
}

/// What a level says of a reference.
pub enum First {
    /// It may go on.
    Serves(Held),
    /// It is there, and was counted as a hit; but the page table has to be asked for more: the page
    /// is not to be stored to, or nobody knows yet that it was.
    Insufficient,
    /// It is not there.
    Misses,
}

impl FirstTlb {
    /// An empty one. The array of long runs, if there is one, is for data.
    pub fn new(
        config: &FirstLevel,
        coalescing: Coalescing,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let new = |level, config: &TlbLevel, coalescing| {
            Tlb::new(config, coalescing, instructions)
                .map_err(|error| ConfigError::Tlb { level, error })
        };
        let of_fetches = Coalescing { long_runs: None, ..coalescing };
        Ok(match config {
            FirstLevel::Split { l1i, l1d } => FirstTlb {
                fetch: new("l1i", l1i, of_fetches)?,
                data: Some(new("l1d", l1d, coalescing)?),
            },
            FirstLevel::Unified { l1 } => {
                FirstTlb { fetch: new("l1", l1, coalescing)?, data: None }
            }
        })
    }

    /// The one that a reference looks up.
    #[inline(always)]
    fn of(&mut self, kind: Kind) -> &mut Tlb {
        match &mut self.data {
            Some(data) if !kind.is_fetch() => data,
            _ => &mut self.fetch,
        }
    }

    /// Looks up the page of a reference and of those that repeat it.
    #[inline(always)]
    pub fn look_up(&mut self, asid: Asid, page: PageNumber, access: LineAccess) -> First {
        let kind = access.kind();
        match self.of(kind).look_up(asid, page, access.lookups()) {
            Some(held) if held.value.serves(kind == Kind::Store) => First::Serves(held),
            Some(_) => {
                self.of(kind).retract(asid, page, access.lookups());
                First::Insufficient
            }
            None => First::Misses,
        }
    }

    /// Fills a page after a miss, and returns what gave way to it.
    pub fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        held: Held,
        access: LineAccess,
    ) -> Option<(Asid, PageNumber, Held)> {
        self.of(access.kind()).fill(asid, page, held, access.lookups())
    }

    /// Replaces what was not sufficient, and returns what gave way to it.
    pub fn replace(
        &mut self,
        asid: Asid,
        page: PageNumber,
        held: Held,
        access: LineAccess,
    ) -> Option<(Asid, PageNumber, Held)> {
        let tlb = self.of(access.kind());
        tlb.take(asid, page);
        tlb.fill(asid, page, held, access.lookups())
    }

    /// Takes out all entries that cover any of these base pages.
    pub fn forget(&mut self, asid: Asid, pages: &Pages) {
        for tlb in [Some(&mut self.fetch), self.data.as_mut()].into_iter().flatten() {
            tlb.invalidate(asid, pages);
        }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        [Some(&mut self.fetch), self.data.as_mut()].into_iter().flatten().for_each(Tlb::clear);
    }

    /// Adds what was counted.
    pub fn tell(&self, counters: &mut Counters) {
        match &self.data {
            Some(data) => {
                self.fetch.tell("tlb.l1i", counters);
                data.tell("tlb.l1d", counters);
            }
            None => self.fetch.tell("tlb.l1", counters),
        }
    }
}
