//! `[softvm]`: the settings of machines with virtual caches, and their checks.

use octavo_config::check::{IsLater, SizedArray, check_geometry, check_latency, check_range};
use octavo_config::{
    CacheLevel, DesignSettings, InvalidValue, MachineConfig, PrefetchConfig, Ways, written,
};
use octavo_hw::{CacheConfig, Replacement, VirtualCacheConfig};
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

/// The most instructions of a handler: four KiB of them.
const MAX_HANDLER_INSTRUCTIONS: u32 = 1024;
/// The most bytes of a line: a line lies in one page.
const MAX_LINE_BYTES: u64 = 4096;
/// The most entries of a TLB that is fully associative.
const MAX_TLB_ENTRIES: u64 = 65_536;

/// Virtual caches, and the cost of translating for them. Defaults are those of the paper's section 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct SoftvmConfig {
    /// The first level of virtual caches: two equal ones, for instructions and for data.
    pub l1: VirtualCacheLevel,
    /// The second level: two equal caches, too.
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
    /// Store permission is revoked for `kernel.protection_bytes` bytes (section 5.4, Table 5).
    pub protections_per_billion: u32,
    /// A device transfers a page, after the caches are flushed of its lines (section 4.3).
    pub dma_pages_per_billion: u32,
}

/// A virtual cache. A level has two equal ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualCacheLevel {
    /// Bytes of each cache: whole lines.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: Ways,
    /// Bytes of a line; by default those of the level before, in the first level `cache.line_bytes`.
    pub line_bytes: Option<u64>,
    /// The replacement policy.
    pub replacement: Replacement,
}

/// Settings of the operating system of a machine with virtual caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelConfig {
    /// Instructions of the miss handler, its loads among them, of four bytes each.
    pub handler_instructions: u32,
    /// The organisation of the page tables that the miss handler reads.
    pub table: TableKind,
    /// How the frame of a dirty line is found for a write-back.
    pub write_back: WriteBackTranslation,
    /// When the lines of a page get a permission that the page has gained.
    pub increase: IncreasedRights,
    /// The global addresses of shared memory.
    pub sharing: Sharing,
    /// The handling of synonyms: frames with several global addresses, one of which is stored to.
    pub aliases: Aliasing,
    /// Bytes of a unit of protection: a page, or down to a line (section 4.3). Each unit has an entry of its own in the
    /// page table.
    #[serde(with = "written::bytes")]
    pub protection_bytes: u64,
}

/// The global addresses of memory that several processes may map (section 4.3, shared memory).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One address for all mappings.
    Global,
    /// One address for each mapping: they are aliases of one another.
    Aliased,
}

/// The handling of synonyms (section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aliasing {
    /// The caches are swept for lines of the other addresses.
    Sweep,
    /// The operating system would have refused such a mapping: the machine stops.
    Refuse,
}

/// The organisation of the page tables that the miss handler reads (sections 4.2 and 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// A global linear table, and root tables for its pages.
    TwoTier,
    /// Top-down tables of the operating system's own.
    Hierarchical,
    /// An entry for each frame, found by a hash.
    Inverted,
    /// A tree whose entries skip the address bits that are equal for all pages below them.
    Guarded,
}

/// How the frame of a dirty line is found for a write-back (section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteBackTranslation {
    /// The handler translates its address again.
    Again,
    /// The line keeps the frame.
    Kept,
}

/// When lines get a permission that their page has gained (section 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncreasedRights {
    /// When they are first stored to.
    Lazy,
    /// At once: the page is swept.
    Eager,
}

/// Cycles of events beyond a hit in the first level (sections 5.2 and 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SoftvmCycles {
    /// An access to the second level.
    pub l2_cycles: u32,
    /// An access to memory.
    pub memory_cycles: u32,
    /// A run of the handler whose loads hit the first level.
    pub handler_cycles: u32,
    /// A step of hardware that translates behind the caches: it computes an address and looks it up in them. The paper
    /// gives no number; 2 is assumed.
    pub step_cycles: u32,
    /// A sweep looks a line up in the first level and misses.
    pub check_l1_cycles: u32,
    /// A sweep finds a line in the first level and changes it.
    pub change_l1_cycles: u32,
    /// A sweep looks a line up in the second level and misses.
    pub check_l2_cycles: u32,
    /// A sweep finds a line in the second level and changes it.
    pub change_l2_cycles: u32,
}

/// A unified TLB like that of MIPS (section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SoftTlbConfig {
    /// Number of entries.
    pub entries: u64,
    /// Number of entries reserved for pages of page tables.
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

/// [`SoftvmConfig`] as users write it; keys that are missing have the paper's values.
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

/// A level with optional keys.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenLevel {
    bytes: Option<Bytes>,
    ways: Option<Ways>,
    line_bytes: Option<LineBytes>,
    replacement: Option<Policy>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
struct Bytes(#[serde(with = "written::bytes")] u64);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
struct LineBytes(#[serde(deserialize_with = "written::bytes::deserialize")] u64);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
struct Policy(#[serde(with = "written::replacement")] Replacement);

impl WrittenLevel {
    fn over(self, usual: VirtualCacheLevel) -> VirtualCacheLevel {
        VirtualCacheLevel {
            bytes: self.bytes.map_or(usual.bytes, |bytes| bytes.0),
            ways: self.ways.unwrap_or(usual.ways),
            line_bytes: self.line_bytes.map(|bytes| bytes.0),
            replacement: self.replacement.map_or(usual.replacement, |policy| policy.0),
        }
    }

    fn of(level: VirtualCacheLevel) -> Self {
        let VirtualCacheLevel { bytes, ways, line_bytes, replacement } = level;
        WrittenLevel {
            bytes: Some(Bytes(bytes)),
            ways: Some(ways),
            line_bytes: line_bytes.map(LineBytes),
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

impl SoftvmConfig {
    /// The virtual caches of each core.
    pub fn caches(&self, machine: &MachineConfig) -> VirtualCacheConfig {
        let [l1, l2] = self.line_bytes(machine);
        VirtualCacheConfig { l1: [self.l1.with_lines(l1); 2], l2: [self.l2.with_lines(l2); 2] }
    }

    /// Bytes of a line of the first level of virtual caches, and of the second.
    fn line_bytes(&self, machine: &MachineConfig) -> [u64; 2] {
        let l1 = self.l1.line_bytes.unwrap_or(machine.cache.line_bytes);
        [l1, self.l2.line_bytes.unwrap_or(l1)]
    }
}

impl VirtualCacheLevel {
    /// The cache with lines of `line_bytes` bytes. [`SoftvmCycles`] has the cost of a hit.
    fn with_lines(&self, line_bytes: u64) -> CacheConfig {
        let VirtualCacheLevel { bytes, ways, replacement, .. } = *self;
        let prefetch = PrefetchConfig::default();
        CacheLevel { bytes, ways, latency_cycles: 0, replacement, prefetch }.with_lines(line_bytes)
    }
}

impl DesignSettings for SoftvmConfig {
    const TABLE: &'static str = "softvm";

    fn check(&self, machine: &MachineConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
        let softvm = self;
        let [l1_bytes, l2_bytes] = self.line_bytes(machine);
        let physical = Lines { key: "cache.line_bytes", bytes: machine.cache.line_bytes, least: 8 };
        let l1 = Lines { key: "softvm.l1.line_bytes", bytes: l1_bytes, least: physical.bytes };
        let l2 = Lines { key: "softvm.l2.line_bytes", bytes: l2_bytes, least: l1_bytes };
        check_lines(&l1, &physical, is_later)?;
        // Without a setting, lines of the first level have the machine's size.
        let before = if softvm.l1.line_bytes.is_some() { &l1 } else { &physical };
        check_lines(&l2, before, is_later)?;
        let levels = [("softvm.l1", softvm.l1, l1_bytes), ("softvm.l2", softvm.l2, l2_bytes)];
        for (key, level, line_bytes) in levels {
            let lines = SizedArray::lines(key, level.bytes, line_bytes, level.ways);
            check_geometry(&lines.of_own_lines(), is_later)?;
        }
        let instructions = softvm.kernel.handler_instructions;
        check_range(
            "softvm.kernel.handler_instructions",
            instructions,
            1,
            MAX_HANDLER_INSTRUCTIONS,
        )?;
        let SoftvmCycles {
            l2_cycles,
            memory_cycles,
            handler_cycles,
            step_cycles,
            check_l1_cycles,
            change_l1_cycles,
            check_l2_cycles,
            change_l2_cycles,
        } = softvm.cycles;
        for (name, cycles) in [
            ("l2_cycles", l2_cycles),
            ("memory_cycles", memory_cycles),
            ("handler_cycles", handler_cycles),
            ("step_cycles", step_cycles),
            ("check_l1_cycles", check_l1_cycles),
            ("change_l1_cycles", change_l1_cycles),
            ("check_l2_cycles", check_l2_cycles),
            ("change_l2_cycles", change_l2_cycles),
        ] {
            check_latency(&format!("softvm.cycles.{name}"), cycles)?;
        }
        check_protection(softvm.kernel, l2_bytes)?;
        if machine.host.is_some() && softvm.kernel.table == TableKind::Hierarchical {
            let advice = "give \"two-tier\", \"inverted\" or \"guarded\": what the operating system of a guest \
                          has in its own tables are frames of the guest";
            return Err(InvalidValue::new("softvm.kernel.table", "\"hierarchical\"", advice));
        }
        let SoftvmRates { protections_per_billion, dma_pages_per_billion } = softvm.rates;
        check_rate("softvm.rates.protections_per_billion", protections_per_billion)?;
        check_rate("softvm.rates.dma_pages_per_billion", dma_pages_per_billion)?;
        check_tlb(softvm.tlb, is_later)
    }

    fn first_level_replacement(&self) -> Option<Replacement> {
        Some(self.l1.replacement)
    }
}

fn check_rate(key: &str, per_billion: u32) -> Result<(), InvalidValue> {
    check_range(key, per_billion, 0, 1_000_000_000)
}

fn check_protection(kernel: KernelConfig, l2_line_bytes: u64) -> Result<(), InvalidValue> {
    let (bytes, page) = (kernel.protection_bytes, PageSize::BASE.bytes());
    let key = "softvm.kernel.protection_bytes";
    if !bytes.is_power_of_two() || !(l2_line_bytes..=page).contains(&bytes) {
        let advice =
            format!("give a power of two from {l2_line_bytes} (softvm.l2.line_bytes) to {page}");
        return Err(InvalidValue::new(key, bytes, advice));
    }
    if bytes < page && kernel.table != TableKind::TwoTier {
        let advice =
            format!("give {page}: only the two-tier table has entries for less than a page");
        return Err(InvalidValue::new(key, bytes, advice));
    }
    Ok(())
}

/// The size of a cache's lines.
struct Lines {
    /// The setting.
    key: &'static str,
    bytes: u64,
    /// The fewest bytes allowed.
    least: u64,
}

/// Checks that lines of a level consist of whole lines of the level before it.
fn check_lines(lines: &Lines, before: &Lines, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let may_be = |least: u64| {
        lines.bytes.is_power_of_two() && (least..=MAX_LINE_BYTES).contains(&lines.bytes)
    };
    if may_be(before.bytes) {
        return Ok(());
    }
    if may_be(before.least) && is_later(before.key, lines.key) {
        let advice =
            format!("give a power of two from {} to {} ({})", before.least, lines.bytes, lines.key);
        return Err(InvalidValue::new(before.key, before.bytes, advice));
    }
    let (least, key) = (before.bytes, before.key);
    let advice = format!("give a power of two from {least} ({key}) to {MAX_LINE_BYTES}");
    Err(InvalidValue::new(lines.key, lines.bytes, advice))
}

fn check_tlb(tlb: SoftTlbConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let SoftTlbConfig { entries, reserved } = tlb;
    let (entries_key, reserved_key) = ("softvm.tlb.entries", "softvm.tlb.reserved");
    check_range(entries_key, entries, 2, MAX_TLB_ENTRIES)?;
    if (1..entries).contains(&reserved) {
        return Ok(());
    }
    if reserved > 0 && is_later(entries_key, reserved_key) {
        let advice = format!("give more than {reserved} (softvm.tlb.reserved)");
        return Err(InvalidValue::new(entries_key, entries, advice));
    }
    let advice = format!("give a whole number from 1 to {}, less than all entries", entries - 1);
    Err(InvalidValue::new(reserved_key, reserved, advice))
}
