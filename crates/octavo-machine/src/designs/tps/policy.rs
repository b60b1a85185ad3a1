//! Tailored Page Sizes (Guvenilir and Patt, ISCA 2020, Section III-B): reservations of every power of two
//! from 8 KiB to 1 GiB, and pages that grow with their touched part.
//!
//! Decisions that the paper leaves open:
//!
//! - *Utilised base pages* are those mapped by a page fault of their own; see [`ReservationManager`].
//! - *Growth*: every fault promotes the largest aligned range inside the reservation that reaches the
//!   threshold; intermediate sizes are skipped.
//! - *Addresses*: the paper's operating system may align a mapping to its page. Trace addresses are fixed, so
//!   a mapping is spanned by blocks aligned in *virtual* memory, each as large as the alignment of its start
//!   allows.
//! - *Rounding up*: the block that extends past the mapping's end is reserved if no other mapping or touched
//!   page is in the way. Pages past the end are inaccessible, so the threshold is a share of those before it;
//!   the rest is cleared when the page grows over it.
//! - *Throttling*: if no block of the wanted size is free, its halves are reserved, recursively down to 8
//!   KiB; a rounded-up block falls back to exact ones.
//! - *The `brk` heap* grows in steps of some hundred kilobytes, each a request of its own. With exact spans
//!   its pages would be limited to that size; so a block of `heap` may be reserved past its end, for the heap
//!   only. It is not used before it is touched.
//! - *A page outside of every reservation* (the mapping was moved, its reservation was broken, the process
//!   was forked) reserves the largest unmapped block around it.
//! - *A mapping larger than memory* is reserved in parts when touched.
//! - *Partial unmapping or protection* splits the page into the largest parts on both sides; reservations are
//!   split in the same way. A page whose permissions become equal again grows back only at a fault or by
//!   merging.
//! - *Merging* (Section III-B.3): contiguous pages are merged periodically if enabled; a daemon that moves
//!   pages for this purpose is future work in the paper and here. Section III-B.3 invalidates
//!   translations, while Section III-C.2 argues that none need be: none are here.
//! - *Growth* invalidates no translation (Section III-C.2), except for one case that the paper does not
//!   discuss: a page that grows to 2 MiB or more frees the table below it, which walk caches must drop, by
//!   one shootdown.

use octavo_os::frames::{Order, OutOfMemory};
use octavo_os::page_table::{Aliases, Format, MAX_VECTOR_BITS, SizeEncoding};
use octavo_os::policy::{
    Capability, Defrag, Fault, Policy, PolicySettings, ReservationManager, ReserveWhen, Rules,
    check_percent, page_size, page_size_or_none,
};
use octavo_os::vmas::{Pages, Vma};
use octavo_os::{Memory, ProcessId};
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

/// The size of reservations (Section III-B.2, "Internal Fragmentation").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// The fewest blocks that span the mapping exactly.
    #[default]
    Exact,
    /// The smallest block that holds the rest of the mapping.
    RoundUp,
}

/// Pages of every power of two from 4 KiB to the largest.
pub const TAILORED_PAGES: Capability = Capability("pages of all sizes");

/// [`Aliases`] by name.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Aliases", rename_all = "kebab-case")]
enum AliasesName {
    Pointers,
    Copies,
}

/// [`SizeEncoding`] by name.
#[derive(Serialize, Deserialize)]
#[serde(remote = "SizeEncoding", rename_all = "kebab-case")]
enum SizeEncodingName {
    FourBits,
    OneBit,
}

/// Settings of TPS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TpsConfig {
    /// The share of utilised base pages that triggers promotion, in percent, 1 to 100. With 100 and exact
    /// spans, memory use is that of base pages.
    pub promotion_threshold_percent: u8,
    /// The size of reservations.
    pub span: Span,
    /// When memory is reserved.
    pub reserve: ReserveWhen,
    /// The largest reservation.
    #[serde(with = "page_size")]
    pub largest: PageSize,
    /// The largest reservation that may extend past the end of the `brk` heap; `None` disables it.
    #[serde(with = "page_size_or_none")]
    pub heap: Option<PageSize>,
    /// The reaction to a missing free block. `madvise` advice is ignored: `Madvise` acts like `Never`, and
    /// `DeferMadvise` like `Defer`.
    pub defrag: Defrag,
    /// Instructions between two merges of contiguous pages (Section III-B.3, "a possible future
    /// optimization"); 0 for never.
    pub merge_every_instructions: u64,
    /// The number of parts of a page with accessed and dirty bits of their own, in its alias entries (Section
    /// III-C.1): 0 for none, or 2, 4, 8 or 16.
    pub vector_bits: u8,
    /// The content of alias entries (Section III-A.2).
    #[serde(with = "AliasesName")]
    pub aliases: Aliases,
    /// How entries state the page size (Section III-A.1).
    #[serde(with = "SizeEncodingName")]
    pub size_encoding: SizeEncoding,
}

impl Default for TpsConfig {
    /// The paper's evaluation (Section IV-B): "no migration or compaction is performed".
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

impl PolicySettings for TpsConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Tps::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        let sizes = PageSize::BASE.log2() + 1..=self.largest.log2();
        sizes.filter_map(PageSize::from_log2).collect()
    }

    fn page_table_format(&self) -> Format {
        Format {
            encoding: self.size_encoding,
            aliases: self.aliases,
            vector_bits: self.vector_bits,
            ..Format::default()
        }
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[TAILORED_PAGES]
    }

    fn check(&self) -> Result<(), String> {
        if ![0, 2, 4, 8, MAX_VECTOR_BITS].contains(&self.vector_bits) {
            return Err(format!("vector_bits = {}: give 0, 2, 4, 8 or 16", self.vector_bits));
        }
        check_percent("promotion_threshold_percent", self.promotion_threshold_percent)
    }
}

/// Tailored page sizes.
#[derive(Clone, Debug)]
pub struct Tps {
    config: TpsConfig,
    reserving: ReservationManager,
    /// The time of the next merge.
    next_merge_instructions: u64,
}

impl Tps {
    /// A policy without reservations.
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
        // It is unknown which part of a mapping larger than memory will be used.
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
                    // Without a frame for a page table, the next merge tries again.
                    let _ = memory.merge_pages(process, &pages);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_os::CopyOnWrite;
    use octavo_os::policy::OsConfig;

    use super::*;

    #[test]
    fn settings_change_their_field() {
        let mut config = OsConfig::new(TpsConfig::default().into());
        config.set("promotion_threshold_percent", "50").unwrap();
        config.set("span", "round-up").unwrap();
        config.set("heap", "none").unwrap();
        config.set("copy_on_write", "whole").unwrap();
        let expected = TpsConfig {
            promotion_threshold_percent: 50,
            span: Span::RoundUp,
            heap: None,
            ..TpsConfig::default()
        };
        assert_eq!(config.policy, expected.into());
        assert_eq!(config.copy_on_write, CopyOnWrite::Whole);
    }

    #[test]
    fn invalid_values_are_rejected_with_one_sentence() {
        let mut config = OsConfig::new(TpsConfig::default().into());
        let mut sentence = |key, value| config.set(key, value).unwrap_err().to_string();
        assert_eq!(
            sentence("span", "round"),
            "span = round: give exact or round-up; did you mean `round-up`?"
        );
        assert_eq!(
            sentence("promotion_threshold_percent", "0"),
            "promotion_threshold_percent = 0: give a share in percent, 1 to 100"
        );
        assert_eq!(sentence("vector_bits", "256"), "vector_bits = 256: give 0, 2, 4, 8 or 16");
        assert_eq!(
            sentence("heap", "2"),
            "heap = 2: give a power of two from 4KiB to 1GiB, such as 64KiB, or none"
        );
        let unknown = sentence("promotion_treshold_percent", "50");
        assert!(unknown.ends_with("did you mean `promotion_threshold_percent`?"), "{unknown}");
    }
}
