//! Tailored Page Sizes (paper 003, Section III-B): reservations at every power of two from 8 KiB
//! to 1 GiB, and pages that grow with what is touched of them.
//!
//! Where the paper is silent:
//!
//! - *Which base pages count as utilised*: those that were taken by a fault of their own; see
//!   `reserving`.
//! - *How often a page grows*: at every fault the largest aligned range inside the reservation that
//!   reaches the threshold becomes one page; smaller ones on the way to it are not made.
//! - *Where addresses lie*: the paper's operating system may align a mapping to its page. A trace
//!   has its addresses already, so a mapping is spanned by blocks aligned in *virtual* memory, each
//!   as large as the alignment of where it begins allows.
//! - *Rounding up*: the block that reaches past the mapping's end is reserved where no other mapping
//!   and no touched page is in the way. Nobody can touch what lies past the end, so the threshold is
//!   a share of what lies before it; the rest is cleared when the page grows over it.
//! - *Throttling*: where no block of the wanted size is free, its halves are reserved, and so on
//!   down to 8 KiB; a block that was to round up falls back to exact ones.
//! - *The `brk` heap* grows in steps of some hundred kilobytes, each a request of its own. With exact
//!   spans it would get pages of that size at most; so a block of `heap` may be reserved past its
//!   end, for the heap alone to grow into. Nothing of it is used before it is touched.
//! - *A page outside of every reservation* (the mapping was moved, its reservation was broken, the
//!   process was forked) reserves the largest block around it in which nothing is mapped yet.
//! - *A mapping larger than memory* is reserved by parts when it is touched.
//! - *Partial unmapping or protection* splits the page into the largest parts on both sides;
//!   reservations are cut the same way. A page whose rights are made alike again does not grow back
//!   before it faults, or before it is merged.
//! - *Merging* (Section III-B.3): two pages that happen to lie side by side are merged now and then if
//!   asked for; the daemon that would move pages to that end is the paper's future work, and ours. The
//!   section has translations invalidated, Section III-C.2 says that none need be: none are.
//! - *Growth* makes no page stale (Section III-C.2), so none is told, but for one case of which the
//!   paper says nothing: a page that grows to 2 MiB or more frees the table below it, which walk caches
//!   may still lead to. They have to forget it: one shootdown.

use octavo_types::PageSize;

use super::reserving::{ReservationManager, Rules};
use super::{Defrag, Fault, Policy};
use crate::frames::{Order, OutOfMemory};
use crate::memory::{Memory, ProcessId};
use crate::page_table::{Aliases, SizeEncoding};
use crate::vmas::{Pages, Vma};

/// How large reservations are (Section III-B.2, "Internal Fragmentation").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Span {
    /// The fewest blocks that span the mapping exactly.
    #[default]
    Exact,
    /// The smallest block that holds what is left of the mapping.
    RoundUp,
}

/// When memory is reserved for a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReserveWhen {
    /// When it is made, as the paper has it.
    #[default]
    Mapped,
    /// When it is first touched, the largest block around that page: for programs that map far more
    /// than they use.
    Touched,
}

/// Its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TpsConfig {
    /// The share of a larger page's base pages that must be utilised for it to be made, in percent,
    /// 1 to 100. With 100, and exact spans, memory is what base pages would use.
    pub promotion_threshold_percent: u8,
    /// How large reservations are.
    pub span: Span,
    /// When memory is reserved.
    pub reserve: ReserveWhen,
    /// The largest reservation.
    pub largest: PageSize,
    /// The largest reservation that may reach past the end of the `brk` heap; none where none may.
    pub heap: Option<PageSize>,
    /// What is done where no block is free. Programs' advice is not asked: `Madvise` does what
    /// `Never` does, and `DeferMadvise` what `Defer` does.
    pub defrag: Defrag,
    /// How many instructions the programs execute between two times that pages which lie side by side
    /// are merged (Section III-B.3, "a possible future optimization"); 0 for never.
    pub merge_every_instructions: u64,
    /// How many parts of a page have accessed and dirty bits of their own, in its alias entries (Section III-C.1):
    /// 0 for none, or 2, 4, 8 or 16.
    pub vector_bits: u8,
    /// What alias entries hold (Section III-A.2).
    pub aliases: Aliases,
    /// How entries state the page size (Section III-A.1).
    pub size_encoding: SizeEncoding,
}

impl Default for TpsConfig {
    /// As the paper evaluates it (Section IV-B): "no migration or compaction is performed".
    fn default() -> Self {
        TpsConfig {
            promotion_threshold_percent: 100,
            span: Span::Exact,
            reserve: ReserveWhen::Mapped,
            largest: PageSize::LARGEST,
            heap: Some(PageSize::HUGE),
            defrag: Defrag::Never,
            merge_every_instructions: 0,
            vector_bits: 0,
            aliases: Aliases::default(),
            size_encoding: SizeEncoding::default(),
        }
    }
}

/// Tailored page sizes.
#[derive(Clone, Debug)]
pub struct Tps {
    config: TpsConfig,
    reserving: ReservationManager,
    /// When pages are merged next.
    next_merge_instructions: u64,
}

impl Tps {
    /// Nothing reserved yet.
    pub fn new(config: TpsConfig) -> Self {
        let rules = Rules {
            threshold_percent: config.promotion_threshold_percent,
            smallest: Order::new(1).expect("8 KiB"),
            largest: Order::of(config.largest),
            defrag: config.defrag,
            heap: config.heap.map(|heap| Order::of(heap.min(config.largest))),
        };
        let next_merge_instructions = config.merge_every_instructions;
        Tps { config, reserving: ReservationManager::new(rules), next_merge_instructions }
    }
}

impl Policy for Tps {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        self.reserving.serve(memory, fault)
    }

    fn mapped(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        self.reserving.claim(memory, process, pages, vma);
        // Of a mapping that is larger than memory nobody can say where it will be used.
        let fits = pages.end - pages.start <= memory.frames.shape().frames();
        if self.config.reserve == ReserveWhen::Mapped && vma.is_accessible() && fits {
            let heap = self.reserving.reserve_heap(memory, process, pages.start, vma);
            let round_up = self.config.span == Span::RoundUp && !heap;
            self.reserving.cover(memory, process, pages, round_up);
        }
        Ok(())
    }

    fn moving(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.unmapped(memory, process, pages);
    }

    fn unmapped(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.reserving.unmapped(memory, process, pages);
    }

    fn ended(&mut self, memory: &mut Memory, process: ProcessId) {
        self.reserving.ended(memory, process);
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        self.reserving.background(memory);
        let every = self.config.merge_every_instructions;
        if every == 0 || instructions < self.next_merge_instructions {
            return;
        }
        self.next_merge_instructions = instructions + every;
        for process in memory.live().collect::<Vec<_>>() {
            for (pages, vma) in memory.process(process).vmas.within(&(0..u64::MAX)) {
                if vma.is_anonymous() {
                    // Where there is no frame for a page table, the next time may have one.
                    let _ = memory.merge_pages(process, &pages);
                }
            }
        }
    }
}
