//! Trident (Ram, Panwar and Basu, "Trident: Harnessing Architectural Resources for All Page Sizes in x86 Processors",
//! MICRO 2021): transparent pages of 1 GiB, then of 2 MiB, then of 4 KiB.
//!
//! - A fault maps 1 GiB if the aligned range lies in its mapping, nothing of it is mapped, and a block is free;
//!   otherwise it does as transparent huge pages do ([`Thp`]).
//! - Free blocks of 1 GiB are cleared in the background, one at a time, so that a fault need not clear its page.
//! - `khugepaged` scans as for huge pages. Where an aligned 1 GiB begins, it collapses all of it, if its pages are private
//!   and at most so many base pages are missing; then it goes on behind it. For lack of a block it compacts memory, and
//!   where that does not help, or 1 GiB does not fit, it collapses ranges of 2 MiB.
//! - *Smart compaction* frees the 1 GiB of physical memory with the least data ([`free_emptiest_block`]).
//! - In a guest, the host may exchange the memory behind a page and behind its new place in place of a copy
//!   ([`Memory::exchange_from`]).
//!
//! The design `trident` of `octavo-machine` says which of this is from the authors' kernel, and what is assumed.
//!
//! [`free_emptiest_block`]: crate::frames::free_emptiest_block

use octavo_types::{FrameNumber, PageNumber, PageSize};
use serde::{Deserialize, Serialize};

use super::defrag::Defragmenter;
use super::interval::Interval;
use super::texts::{AllowedValues, Texts, page_size, page_size_or_none};
use super::thp::{ScannedRange, may_collapse};
use super::{DefragmentingThpConfig, Fault, Policy, PolicySettings, Thp, ThpConfig};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::memory::{Memory, around, base_pages};
use crate::vmas::Advice;

/// Settings of Trident.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TridentConfig {
    /// The largest page: 1 GiB; 2 MiB for transparent huge pages alone.
    #[serde(with = "page_size")]
    pub largest: PageSize,
    /// Maximum number of unmapped base pages in a range of the largest size that `khugepaged` collapses; at most all but
    /// one of 1 GiB.
    pub max_ptes_none_largest: u64,
    /// Whether compaction for the largest page frees the block with the least data, instead of scanning memory.
    pub smart_compaction: bool,
    /// Instructions in which one free block of the largest size is cleared in the background; 0 disables that.
    pub clear_every_instructions: u64,
    /// In a guest, the smallest page that the host exchanges in place of a copy: 2 MiB or 4 KiB.
    #[serde(with = "page_size_or_none")]
    pub exchange: Option<PageSize>,
    /// Settings of transparent huge pages.
    #[serde(flatten, skip_deserializing)]
    pub huge: DefragmentingThpConfig,
}

/// The most missing base pages of a page.
const MAX_PTES_NONE_LARGEST: u64 = base_pages(PageSize::LARGEST) - 1;

impl Default for TridentConfig {
    /// The defaults of the authors' kernel, without hypercalls.
    fn default() -> Self {
        TridentConfig {
            largest: PageSize::LARGEST,
            max_ptes_none_largest: MAX_PTES_NONE_LARGEST,
            smart_compaction: true,
            clear_every_instructions: 300_000_000,
            exchange: None,
            huge: DefragmentingThpConfig {
                huge: ThpConfig {
                    pages_to_scan: 2 * base_pages(PageSize::LARGEST),
                    ..ThpConfig::default()
                },
                ..DefragmentingThpConfig::default()
            },
        }
    }
}

impl PolicySettings for TridentConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Trident::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        let larger = Some(self.largest).filter(|size| *size > PageSize::HUGE);
        self.huge.required_sizes().into_iter().chain(larger).collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.largest < PageSize::HUGE {
            return Err(format!(
                "largest = {}: give a power of two from 2MiB to 1GiB",
                self.largest
            ));
        }
        if self.max_ptes_none_largest > MAX_PTES_NONE_LARGEST {
            let given = self.max_ptes_none_largest;
            return Err(format!(
                "max_ptes_none_largest = {given}: give 0 to {MAX_PTES_NONE_LARGEST}"
            ));
        }
        if let Some(size) = self.exchange
            && ![PageSize::BASE, PageSize::HUGE].contains(&size)
        {
            return Err(format!("exchange = {size}: give 2MiB or 4KiB, or none"));
        }
        self.huge.check()
    }

    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        Ok(TridentConfig { huge: self.huge.read(texts)?, ..texts.read()? })
    }
}

/// Transparent pages of 1 GiB and 2 MiB.
#[derive(Clone, Debug)]
pub struct Trident {
    config: TridentConfig,
    thp: Thp,
    /// Makes blocks of the largest size.
    defragmenter: Defragmenter,
    clearing: Interval,
}

impl Trident {
    /// A policy before its first scan.
    pub fn new(config: TridentConfig) -> Self {
        let DefragmentingThpConfig { defrag, khugepaged_defrag, huge } = config.huge;
        let every = if config.has_larger() { config.clear_every_instructions } else { 0 };
        Trident {
            config,
            thp: Thp::new(huge).defragmenting(defrag, khugepaged_defrag),
            defragmenter: Defragmenter::new(defrag).smart(config.smart_compaction),
            clearing: Interval::new(every),
        }
    }

    fn order(&self) -> Order {
        Order::of(self.config.largest)
    }

    /// Maps the largest page around a fault, if that is possible. Returns `Err` if only a block was missing.
    fn place_largest(&mut self, memory: &mut Memory, fault: &Fault) -> Result<bool, OutOfMemory> {
        let pages = around(fault.page, self.config.largest);
        let fits = fault.mapping.start <= pages.start && pages.end <= fault.mapping.end;
        if !self.config.has_larger()
            || !fits
            || !self.thp.allows(&fault.vma)
            || !memory.is_untouched(fault.process, &pages)
        {
            return Ok(false);
        }
        let advised = fault.vma.advice == Advice::Huge;
        let (block, is_clear) = match self.allocate(memory) {
            Err(_) if self.defragmenter.make_room(memory, self.order(), advised, |_| false) => {
                self.allocate(memory)?
            }
            found => found?,
        };
        let (first, rights) = (PageNumber::new(pages.start), fault.vma.rights);
        let mapped = memory.map(fault.process, first, self.config.largest, block, rights);
        if let Err(error) = mapped {
            memory.frames.free(block, self.order());
            return Err(error);
        }
        if !is_clear {
            memory.zeroed(block, self.order().frames());
        }
        memory.count_untouched(self.config.largest);
        Ok(true)
    }

    /// Allocates a block of the largest size in the first tier of memory that has one, a clear one if there is one. Returns
    /// whether it is clear.
    fn allocate(&self, memory: &mut Memory) -> Result<(FrameNumber, bool), OutOfMemory> {
        let (frames, order) = (&mut memory.frames, self.order());
        let buddy = frames.buddy();
        let clear = buddy.tiers().filter(|_| memory.clears_ahead).find_map(|tier| {
            let in_tier = buddy.blocks_in_larger(order).filter(|at| tier.contains(&at.raw()));
            let mut in_tier = in_tier.peekable();
            in_tier.peek()?;
            Some(in_tier.find(|block| frames.is_clear(*block, order)))
        });
        if let Some(block) = clear.flatten() {
            frames.allocate_at(block, order, Owner::Data);
            return Ok((block, true));
        }
        Ok((frames.allocate_free(order, Owner::Data)?, false))
    }
}

impl TridentConfig {
    /// Whether there are pages larger than 2 MiB.
    fn has_larger(&self) -> bool {
        self.largest > PageSize::HUGE
    }

    /// Collapses the largest page that begins with a range, if that is possible. Returns its number of base pages.
    fn collapse_largest(
        &self,
        memory: &mut Memory,
        range: &ScannedRange,
        defragmenter: &mut Defragmenter,
    ) -> Option<u64> {
        let pages = around(PageNumber::new(range.first), self.largest);
        let limits = (PageSize::HUGE, self.max_ptes_none_largest);
        let is_made = self.has_larger()
            && pages.start == range.first
            && pages.end <= range.mapping_end
            && may_collapse(memory, range.process, &pages, limits)
            && {
                let defragmenter = self.huge.khugepaged_defrag.then_some(defragmenter);
                range.collapse(memory, self.largest, defragmenter)
            };
        is_made.then(|| base_pages(self.largest))
    }
}

impl Policy for Trident {
    fn start(&mut self, memory: &mut Memory) {
        let order = self.order();
        memory.exchange_from = self.config.exchange.filter(|_| self.config.has_larger());
        memory.clears_ahead = self.config.has_larger() && self.config.clear_every_instructions > 0;
        if memory.clears_ahead {
            // The work was done before the programs began.
            let before = memory.counters;
            let free: Vec<_> = memory.frames.buddy().blocks_in_larger(order).collect();
            free.into_iter().for_each(|block| memory.clear_ahead(block, order));
            memory.counters = before;
        }
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        match self.place_largest(memory, fault) {
            Ok(true) => Ok(()),
            Ok(false) => self.thp.fault(memory, fault),
            Err(_) => {
                // A fault that gets none of the sizes it wants falls back once.
                let fallbacks = memory.counters.fallbacks + 1;
                let served = self.thp.fault(memory, fault);
                memory.counters.fallbacks = fallbacks;
                served
            }
        }
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        self.defragmenter.background(memory, |_| false);
        let Trident { config, thp, defragmenter, clearing } = self;
        thp.run_background(memory, instructions, |memory, range| {
            config.collapse_largest(memory, range, defragmenter)
        });
        if clearing.is_due(instructions) {
            let order = Order::of(config.largest);
            let mut free = memory.frames.buddy().blocks_in_larger(order);
            let next = free.find(|block| !memory.frames.is_clear(*block, order));
            drop(free);
            if let Some(block) = next {
                memory.clear_ahead(block, order);
            }
        }
    }
}
