//! Linux's transparent huge pages: at the first touch if a whole page fits, and by `khugepaged` in the
//! background.

use std::mem;

use octavo_types::{PageNumber, PageSize};
use serde::{Deserialize, Serialize};

use super::defrag::{Defrag, Defragmenter};
use super::interval::Interval;
use super::texts::{AllowedValues, Texts};
use super::{Fault, Policy, PolicySettings};
use crate::frames::{Order, OutOfMemory};
use crate::memory::{Memory, ProcessId, around, base_pages};
use crate::vmas::{Advice, Pages, Vma};

/// Where huge pages are used: `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultHuge {
    /// In all mappings without `MADV_NOHUGEPAGE`.
    #[default]
    Always,
    /// In mappings with `MADV_HUGEPAGE`.
    Madvise,
}

/// Instructions of ten seconds, the interval of `khugepaged`, at three instructions per nanosecond.
pub(super) const TEN_SECONDS_INSTRUCTIONS: u64 = 30_000_000_000;

/// Settings of transparent huge pages, by Linux's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ThpConfig {
    /// Where huge pages are used.
    pub enabled: FaultHuge,
    /// Maximum number of unmapped base pages in a range that `khugepaged` collapses, 0 to 511: 511 by Linux's
    /// default.
    pub max_ptes_none: u32,
    /// Instructions between two scans of `khugepaged`; 0 disables it.
    pub scan_every_instructions: u64,
    /// Base pages per scan, at least 1, rounded up to whole huge pages: `pages_to_scan`, 4096 by Linux's default.
    pub pages_to_scan: u64,
}

impl Default for ThpConfig {
    /// Linux's defaults, with scans ten seconds apart.
    fn default() -> Self {
        ThpConfig {
            enabled: FaultHuge::Always,
            max_ptes_none: 511,
            scan_every_instructions: TEN_SECONDS_INSTRUCTIONS,
            pages_to_scan: 4096,
        }
    }
}

impl PolicySettings for ThpConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Thp::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        vec![PageSize::HUGE]
    }

    fn check(&self) -> Result<(), String> {
        let ThpConfig { max_ptes_none, pages_to_scan, .. } = self;
        // Linux refuses both, too.
        if u64::from(*max_ptes_none) >= base_pages(PageSize::HUGE) {
            return Err(format!("max_ptes_none = {max_ptes_none}: give 0 to 511"));
        }
        if *pages_to_scan == 0 {
            let advice = "give at least 1; scan_every_instructions=0 disables khugepaged";
            return Err(format!("pages_to_scan = 0: {advice}"));
        }
        Ok(())
    }
}

/// Settings of transparent huge pages for which memory may be compacted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefragmentingThpConfig {
    /// The reaction of a fault to a missing free block.
    pub defrag: Defrag,
    /// Whether `khugepaged` compacts memory at once if a block is missing: `khugepaged/defrag`, set by Linux's
    /// default.
    pub khugepaged_defrag: bool,
    /// All other settings.
    #[serde(flatten, skip_deserializing)]
    pub huge: ThpConfig,
}

impl Default for DefragmentingThpConfig {
    /// Linux's defaults.
    fn default() -> Self {
        DefragmentingThpConfig {
            defrag: Defrag::default(),
            khugepaged_defrag: true,
            huge: ThpConfig::default(),
        }
    }
}

impl PolicySettings for DefragmentingThpConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Thp::new(self.huge).defragmenting(self.defrag, self.khugepaged_defrag))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        self.huge.required_sizes()
    }

    fn check(&self) -> Result<(), String> {
        self.huge.check()
    }

    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        Ok(DefragmentingThpConfig { huge: texts.read()?, ..texts.read()? })
    }
}

/// Transparent huge pages of 2 MiB.
#[derive(Clone, Debug)]
pub struct Thp {
    config: ThpConfig,
    pub(super) defragmenter: Defragmenter,
    khugepaged_defrag: bool,
    scans: Interval,
    /// The process and base page at which the next scan begins.
    at: (u16, u64),
}

impl Thp {
    /// A policy before its first scan, which does not compact memory.
    pub fn new(config: ThpConfig) -> Self {
        Thp {
            config,
            defragmenter: Defragmenter::new(Defrag::Never),
            khugepaged_defrag: false,
            scans: Interval::new(config.scan_every_instructions),
            at: (0, 0),
        }
    }

    /// Compacts memory for faults by `defrag`, and for `khugepaged` if `khugepaged_defrag` is set.
    pub(super) fn defragmenting(self, defrag: Defrag, khugepaged_defrag: bool) -> Self {
        Thp { defragmenter: Defragmenter::new(defrag), khugepaged_defrag, ..self }
    }

    /// Places a new huge page, after compaction if that is necessary and enabled. Returns whether the page was
    /// placed.
    fn place_huge(&mut self, memory: &mut Memory, fault: &Fault, first: PageNumber) -> bool {
        let place = |memory: &mut Memory| {
            memory.place_new(fault.process, first, PageSize::HUGE, fault.vma.rights).is_ok()
        };
        let advised = fault.vma.advice == Advice::Huge;
        place(memory)
            || self.defragmenter.make_room(memory, Order::HUGE, advised, |_| false) && place(memory)
    }

    /// Whether a mapping may have huge pages.
    pub fn allows(&self, vma: &Vma) -> bool {
        vma.is_anonymous()
            && match vma.advice {
                Advice::Huge => true,
                Advice::NoHuge => false,
                Advice::None => self.config.enabled == FaultHuge::Always,
            }
    }

    /// Whether a scan is due; if so, schedules the next one.
    pub fn is_due(&mut self, instructions: u64) -> bool {
        self.scans.is_due(instructions)
    }

    /// Scans the next ranges of huge pages, and calls `make` for each range that may be collapsed.
    pub fn scan(
        &mut self,
        memory: &mut Memory,
        mut make: impl FnMut(&mut Memory, ProcessId, PageNumber, &Vma),
    ) {
        self.scan_with(
            memory,
            |_, _| None,
            |memory, range| {
                make(memory, range.process, PageNumber::new(range.first), &range.vma);
            },
        );
    }

    /// [`Self::scan`] that has `larger` look at each range first: it returns the number of base pages that it has made
    /// one page, and the scan goes on behind them.
    fn scan_with(
        &mut self,
        memory: &mut Memory,
        mut larger: impl FnMut(&mut Memory, &ScannedRange) -> Option<u64>,
        mut make: impl FnMut(&mut Memory, &ScannedRange),
    ) {
        let max_none = u64::from(self.config.max_ptes_none);
        let mut left = self.config.pages_to_scan;
        let live: Vec<ProcessId> = memory.live().collect();
        let begin = live.iter().position(|process| process.0 >= self.at.0).unwrap_or(0);
        for process in live[begin..].iter().copied() {
            let from = if process.0 == self.at.0 { self.at.1 } else { 0 };
            for (pages, vma) in memory.process(process).vmas.within(&(from..u64::MAX)) {
                if !self.allows(&vma) {
                    continue;
                }
                let mut page = around(PageNumber::new(pages.start), PageSize::HUGE);
                if page.start < pages.start {
                    page = page.end..page.end + 512;
                }
                while page.end <= pages.end {
                    if left == 0 {
                        self.at = (process.0, page.start);
                        return;
                    }
                    let range =
                        ScannedRange { process, first: page.start, mapping_end: pages.end, vma };
                    let scanned = larger(memory, &range).unwrap_or_else(|| {
                        if may_collapse(memory, process, &page, (PageSize::BASE, max_none)) {
                            make(memory, &range);
                        }
                        page.end - page.start
                    });
                    left = left.saturating_sub(scanned);
                    page = page.start + scanned..page.start + scanned + 512;
                }
            }
        }
        self.at = (0, 0);
    }

    /// Background work. A scan has `larger` look at each range of a huge page first: it returns the number of base pages
    /// that it has made one page, and the scan goes on behind them.
    pub(super) fn run_background(
        &mut self,
        memory: &mut Memory,
        instructions: u64,
        larger: impl FnMut(&mut Memory, &ScannedRange) -> Option<u64>,
    ) {
        self.defragmenter.background(memory, |_| false);
        if !self.is_due(instructions) {
            return;
        }
        let mut defragmenter = mem::take(&mut self.defragmenter);
        let compacts = self.khugepaged_defrag;
        self.scan_with(memory, larger, |memory, range| {
            let defragmenter = compacts.then_some(&mut defragmenter);
            range.collapse(memory, PageSize::HUGE, defragmenter);
        });
        self.defragmenter = defragmenter;
    }
}

/// The range of a huge page that `khugepaged` scans.
pub(super) struct ScannedRange {
    pub process: ProcessId,
    /// Its first base page.
    pub first: u64,
    /// The end of its mapping.
    pub mapping_end: u64,
    pub vma: Vma,
}

impl ScannedRange {
    /// Collapses the page of `size` that begins with the range, after compaction by `defragmenter`, if there is one and
    /// no block is free. Returns whether it was collapsed.
    pub fn collapse(
        &self,
        memory: &mut Memory,
        size: PageSize,
        defragmenter: Option<&mut Defragmenter>,
    ) -> bool {
        let first = PageNumber::new(self.first);
        let collapse = |memory: &mut Memory| {
            memory.collapse(self.process, first, size, self.vma.rights).is_ok()
        };
        if collapse(memory) {
            return true;
        }
        let Some(defragmenter) = defragmenter else { return false };
        defragmenter.compact(memory, Order::of(size), |_| false);
        // Without a free block, a later scan tries again.
        collapse(memory)
    }
}

/// Whether the mapped pages of a larger page's range may be collapsed: they are private, none is larger than
/// `largest_part`, and at most `max_none` base pages of the range are unmapped, but not all.
pub(super) fn may_collapse(
    memory: &Memory,
    process: ProcessId,
    pages: &Pages,
    (largest_part, max_none): (PageSize, u64),
) -> bool {
    let leaves = memory.leaves(process, pages);
    if leaves.is_empty() || leaves.iter().any(|leaf| leaf.size > largest_part) {
        return false;
    }
    let present: u64 = leaves.iter().map(|leaf| base_pages(leaf.size)).sum();
    pages.end - pages.start - present <= max_none
        && !leaves.iter().any(|leaf| memory.is_shared(leaf))
}

impl Policy for Thp {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let huge = around(fault.page, PageSize::HUGE);
        let fits = fault.mapping.start <= huge.start && huge.end <= fault.mapping.end;
        if fits && self.allows(&fault.vma) && memory.is_untouched(fault.process, &huge) {
            if self.place_huge(memory, fault, PageNumber::new(huge.start)) {
                return Ok(());
            }
            memory.counters.fallbacks += 1;
        }
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        self.run_background(memory, instructions, |_, _| None);
    }
}
