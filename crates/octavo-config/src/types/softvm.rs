//! Machines without TLBs, or with virtual caches: what the designs of "Software-Managed Address
//! Translation" (Jacob and Mudge, HPCA 1997) have beside what all machines have.

use octavo_hw::Replacement;
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::Ways;
use crate::written;

/// Virtual caches, and what translating for them costs. What is not given is as in the paper, section 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct SoftvmConfig {
    /// The first level of virtual caches: one for instructions and one for data, each like this.
    pub l1: VirtualCacheLevel,
    /// The second level: the same.
    pub l2: VirtualCacheLevel,
    /// Settings of the operating system.
    pub kernel: KernelConfig,
    /// The costs of events, in cycles.
    pub cycles: SoftvmCycles,
    /// The TLB of designs that have one over virtual caches.
    pub tlb: SoftTlbConfig,
    /// Rates of injected events.
    pub rates: SoftvmRates,
}

/// Rates of injected events that traces do not contain, per billion instructions, in addition to those of the
/// trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SoftvmRates {
    /// The right to store is taken from `kernel.protection_bytes` bytes (section 5.4, Table 5).
    pub protections_per_billion: u32,
    /// A page is transferred by a device, which has the caches flushed of it (section 4.3).
    pub dma_pages_per_billion: u32,
}

/// One virtual cache; there are two of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualCacheLevel {
    /// How much each holds: whole lines.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: Ways,
    /// Bytes of a line; none for those of the level before, and `cache.line_bytes` before the first.
    pub line_bytes: Option<u64>,
    /// Which line of a full set gives way.
    pub replacement: Replacement,
}

/// Settings of the operating system of a machine with virtual caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelConfig {
    /// Instructions of the handler of a miss, of four bytes each, its loads among them.
    pub handler_instructions: u32,
    /// How the page tables are organised that the handler of a cache miss reads.
    pub table: TableKind,
    /// How the frame of a dirty line is known that is written back.
    pub write_back: WriteBackTranslation,
    /// When the lines of a page get a right that the page has got.
    pub increase: IncreasedRights,
    /// Where memory that is shared lies in the global address space.
    pub sharing: Sharing,
    /// The handling of synonyms: frames with several global addresses, one of which is stored to.
    pub aliases: Aliasing,
    /// Bytes that are protected alike: a page, or down to a line (section 4.3). Each has an entry of its own
    /// in the page table.
    #[serde(with = "written::bytes")]
    pub protection_bytes: u64,
}

/// Where memory lies in the global address space that several may map (section 4.3, shared memory).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One address for all mappings.
    Global,
    /// At an address for each mapping: each is another's alias.
    Aliased,
}

/// The handling of synonyms (section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aliasing {
    /// The caches are swept for the others.
    Sweep,
    /// The operating system would have refused such a mapping: the machine stops.
    Refuse,
}

/// How page tables are organised that the handler of a cache miss reads (sections 4.2 and 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// A global linear table, and root tables for its pages.
    TwoTier,
    /// Top-down tables of the operating system's own.
    Hierarchical,
    /// An entry for each frame, found by a hash.
    Inverted,
    /// A tree whose entries skip what is the same for all pages behind them.
    Guarded,
}

/// How the frame of a dirty line is known that is written back (section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteBackTranslation {
    /// The handler translates its address again.
    Again,
    /// The line has it.
    Kept,
}

/// When lines get a right that their page has got (section 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncreasedRights {
    /// When they are first stored to.
    Lazy,
    /// At once: the page is swept.
    Eager,
}

/// Cycles of what happens beyond a hit in the first level (sections 5.2 and 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SoftvmCycles {
    /// The second level is accessed.
    pub l2_cycles: u32,
    /// Memory is accessed.
    pub memory_cycles: u32,
    /// The handler runs, and what it loads is in the first level.
    pub handler_cycles: u32,
    /// Hardware that translates behind the caches makes an address and looks for it in them: one step. The
    /// paper says nothing of it; 2 is assumed.
    pub step_cycles: u32,
    /// A sweep asks the first level for a line, and it is not there.
    pub check_l1_cycles: u32,
    /// It is there, and is changed.
    pub change_l1_cycles: u32,
    /// The same at the second level.
    pub check_l2_cycles: u32,
    /// The same at the second level.
    pub change_l2_cycles: u32,
}

/// A TLB of the MIPS' kind, for instructions and data together (section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SoftTlbConfig {
    /// How many entries it has.
    pub entries: u64,
    /// How many of them hold nothing but pages of page tables.
    pub reserved: u64,
}

impl Default for SoftvmConfig {
    fn default() -> Self {
        Written::default().into()
    }
}

impl VirtualCacheLevel {
    const L1: Self = VirtualCacheLevel {
        bytes: 8 << 10,
        ways: Ways::Of(1),
        line_bytes: None,
        replacement: Replacement::Lru,
    };
    const L2: Self = VirtualCacheLevel { bytes: 512 << 10, ..Self::L1 };
}

impl Default for KernelConfig {
    fn default() -> Self {
        KernelConfig {
            handler_instructions: 10,
            table: TableKind::TwoTier,
            write_back: WriteBackTranslation::Again,
            increase: IncreasedRights::Lazy,
            sharing: Sharing::Global,
            aliases: Aliasing::Sweep,
            protection_bytes: PageSize::BASE.bytes(),
        }
    }
}

impl Default for SoftvmCycles {
    fn default() -> Self {
        SoftvmCycles {
            l2_cycles: 20,
            memory_cycles: 90,
            handler_cycles: 10,
            step_cycles: 2,
            check_l1_cycles: 3,
            change_l1_cycles: 5,
            check_l2_cycles: 20,
            change_l2_cycles: 40,
        }
    }
}

impl Default for SoftTlbConfig {
    fn default() -> Self {
        SoftTlbConfig { entries: 64, reserved: 8 }
    }
}

/// The same as it is written: what is not there is the paper's.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    l1: WrittenLevel,
    l2: WrittenLevel,
    kernel: KernelConfig,
    cycles: SoftvmCycles,
    tlb: SoftTlbConfig,
    rates: SoftvmRates,
}

/// A level, some of whose keys are there.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenLevel {
    bytes: Option<Bytes>,
    ways: Option<Ways>,
    line_bytes: Option<u64>,
    replacement: Option<Policy>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
struct Bytes(#[serde(with = "written::bytes")] u64);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
struct Policy(#[serde(with = "written::replacement")] Replacement);

impl WrittenLevel {
    fn over(self, usual: VirtualCacheLevel) -> VirtualCacheLevel {
        VirtualCacheLevel {
            bytes: self.bytes.map_or(usual.bytes, |bytes| bytes.0),
            ways: self.ways.unwrap_or(usual.ways),
            line_bytes: self.line_bytes,
            replacement: self.replacement.map_or(usual.replacement, |policy| policy.0),
        }
    }

    fn of(level: VirtualCacheLevel) -> Self {
        let VirtualCacheLevel { bytes, ways, line_bytes, replacement } = level;
        WrittenLevel {
            bytes: Some(Bytes(bytes)),
            ways: Some(ways),
            line_bytes,
            replacement: Some(Policy(replacement)),
        }
    }
}

impl From<Written> for SoftvmConfig {
    fn from(written: Written) -> Self {
        let Written { l1, l2, kernel, cycles, tlb, rates } = written;
        let (l1, l2) = (l1.over(VirtualCacheLevel::L1), l2.over(VirtualCacheLevel::L2));
        SoftvmConfig { l1, l2, kernel, cycles, tlb, rates }
    }
}

impl From<SoftvmConfig> for Written {
    fn from(config: SoftvmConfig) -> Self {
        let SoftvmConfig { l1, l2, kernel, cycles, tlb, rates } = config;
        Written { l1: WrittenLevel::of(l1), l2: WrittenLevel::of(l2), kernel, cycles, tlb, rates }
    }
}
