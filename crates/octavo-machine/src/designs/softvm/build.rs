//! Constructors and registration of machines with virtual caches.

use super::settings::TableKind;
use octavo_config::{DesignSettings, DesignTable, MachineConfig};
use octavo_hw::{CacheConfig, Geometry, ServedBy, SetArray, VirtualCacheError, VirtualCaches};
use octavo_os::policy::OsConfig;
use octavo_types::values::size_text;
use octavo_types::{Instructions, PageSize};

use super::event_injection::EventInjector;
use super::handler::Handler;
use super::pages::Pages;
use super::settings::SoftvmConfig;
use super::space::Space;
use super::tables::Tables;
use super::tlb::SoftTlb;
use super::translator::Translator;
use super::{Counts, Free, InCache, Physical, Softvm, Software, Tlb};
use crate::config::ConfigError;
use crate::design::Design;
use crate::designs::build;
use crate::designs::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::state::{Part, Payload};

/// Translation in software, its peers and its bound.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<SoftvmConfig>()),
    ..Family::new(
        &[
            hardware("softvm", UNUSED_BY_SOFTVM, |config, setup, os| make(config, setup, os, Softvm::new)),
            hardware("spur", UNUSED_BY_SPUR, |config, setup, os| make(config, setup, os, Softvm::in_cache)),
            hardware("mips_virtual", UNUSED_BY_MIPS_VIRTUAL, |config, setup, os| make(config, setup, os, Softvm::with_tlb)),
            hardware("mips_physical", UNUSED_BY_MIPS_PHYSICAL, |config, setup, os| make(config, setup, os, Physical::new)),
            TranslationHardware {
                is_bound: true,
                ..hardware("softvm_free", UNUSED_BY_SOFTVM_FREE, |config, setup, os| make(config, setup, os, Softvm::free))
            },
        ],
        &[
            NamedDesign { name: "softvm", hardware: "softvm", policy: "base", about: "no TLB: virtual caches, and translation of their misses in software", figure: "software-translation" },
            NamedDesign { name: "spur", hardware: "spur", policy: "base", about: "SPUR: virtual caches, and in-cache translation of their misses by hardware", figure: "in-cache-translation" },
            NamedDesign { name: "mips_virtual", hardware: "mips_virtual", policy: "base", about: "virtual caches with a software-refilled TLB of 64 entries", figure: "software-refill-virtual" },
            NamedDesign { name: "mips_physical", hardware: "mips_physical", policy: "base", about: "physical caches behind a software-refilled TLB of 64 entries", figure: "software-refill-physical" },
            NamedDesign { name: "softvm_free", hardware: "softvm_free", policy: "base", about: "a bound: virtual caches whose misses are translated at no cost", figure: "software-translation" },
        ],
    )
};

const UNUSED_BY_SOFTVM: &[&str] = &["softvm.tlb", "softvm.cycles.step_cycles"];
const UNUSED_BY_SPUR: &[&str] = &[
    "softvm.tlb",
    "softvm.kernel.table",
    "softvm.kernel.handler_instructions",
    "softvm.cycles.handler_cycles",
];
const UNUSED_BY_MIPS_VIRTUAL: &[&str] =
    &["softvm.kernel.table", "softvm.kernel.protection_bytes", "softvm.cycles.step_cycles"];
const UNUSED_BY_MIPS_PHYSICAL: &[&str] = &[
    "softvm.kernel.table",
    "softvm.kernel.write_back",
    "softvm.kernel.increase",
    "softvm.kernel.aliases",
    "softvm.kernel.protection_bytes",
    "softvm.rates",
    "softvm.cycles.step_cycles",
    "softvm.cycles.check_l1_cycles",
    "softvm.cycles.change_l1_cycles",
    "softvm.cycles.check_l2_cycles",
    "softvm.cycles.change_l2_cycles",
];
const UNUSED_BY_SOFTVM_FREE: &[&str] = &[
    "softvm.tlb",
    "softvm.kernel.table",
    "softvm.kernel.handler_instructions",
    "softvm.cycles.handler_cycles",
    "softvm.cycles.step_cycles",
];

/// The payload of an entry of the software-refilled TLB.
type TlbPayload = [u64; 4];

const fn hardware(
    name: &'static str,
    unused_settings: &'static [&'static str],
    make: fn(&MachineConfig, &Setup, &OsConfig) -> MachineResult,
) -> TranslationHardware {
    TranslationHardware {
        replaces_tlbs: true,
        unused_settings,
        own_state,
        ..TranslationHardware::new(name, make)
    }
}

/// An invalid virtual cache.
pub fn invalid_cache(error: VirtualCacheError) -> ConfigError {
    ConfigError::VirtualCache { table: SoftvmConfig::TABLE, error }
}

fn make<D: Design + 'static>(
    config: &MachineConfig,
    setup: &Setup,
    os: &OsConfig,
    new: fn(&MachineConfig, Instructions) -> Result<D, ConfigError>,
) -> MachineResult {
    if config.placed_tiers().next().is_some() {
        let hardware = "softvm, spur, mips_virtual and mips_physical";
        return Err(ConfigError::NoTiers { hardware });
    }
    build::machine(config, setup, os, || new(config, setup.instructions))
}

/// The software-refilled TLB and the caches.
fn own_state(machine: &MachineConfig) -> Vec<Part> {
    let entries = machine.designs.get::<SoftvmConfig>().tlb.entries;
    let geometry = Geometry::of_entries(entries, entries).ok();
    let tlb = Part {
        setting: format!("softvm.tlb.entries = {entries}"),
        bytes: geometry.map_or(0, SetArray::<TlbPayload>::most_bytes),
    };
    let lines = |cache: &CacheConfig| cache.geometry("").map_or(0, SetArray::<Payload>::most_bytes);
    let caches = machine.designs.get::<SoftvmConfig>().caches(machine);
    let levels = [("l1", caches.l1), ("l2", caches.l2)].map(|(name, sides)| Part {
        setting: format!("softvm.{name}.bytes = \"{}\"", size_text(sides[0].bytes)),
        bytes: sides.iter().map(lines).sum(),
    });
    [tlb].into_iter().chain(levels).collect()
}

impl Softvm<Software> {
    /// The paper's machine: a software handler.
    pub fn new(machine: &MachineConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Self::with(Software, machine, instructions)
    }
}

impl Softvm<Free> {
    /// Virtual caches with free translation, an ideal bound.
    pub fn free(machine: &MachineConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Self::with(Free, machine, instructions)
    }
}

impl Softvm<InCache> {
    /// SPUR's in-cache translation.
    pub fn in_cache(
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        Self::with(InCache, machine, instructions)
    }
}

impl Softvm<Tlb> {
    /// Virtual caches with a software-refilled TLB.
    pub fn with_tlb(
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let tlb = Tlb(SoftTlb::new(machine.designs.get::<SoftvmConfig>().tlb, instructions));
        Self::with(tlb, machine, instructions)
    }
}

impl<T: Translator> Softvm<T> {
    /// A machine with empty caches.
    fn with(
        translator: T,
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let virtual_caches = machine.designs.get::<SoftvmConfig>().caches(machine);
        let caches = VirtualCaches::new(&virtual_caches, instructions).map_err(invalid_cache)?;
        let config = *machine.designs.get::<SoftvmConfig>();
        let line_bytes = machine.cache.line_bytes;
        // A TLB translates whole pages.
        let page_bytes = PageSize::BASE.bytes();
        let entry_bytes = if T::LOOKS_UP { page_bytes } else { config.kernel.protection_bytes };
        let table = if T::READS_TABLES { config.kernel.table } else { TableKind::TwoTier };
        let event_injection = EventInjector::new(config.rates);
        Ok(Softvm {
            translator,
            space: Space::new(line_bytes, config.kernel.sharing),
            handler: Handler::new(
                config.kernel.handler_instructions,
                caches.line_log2(0),
                entry_bytes.trailing_zeros(),
            ),
            tables: Tables::new(table, machine.memory.bytes / PageSize::BASE.bytes()),
            pages: Pages::new(entry_bytes),
            pending_invalidations: Vec::new(),
            injects_events: event_injection.is_enabled(),
            event_injection,
            has_wider_lines: virtual_caches.l1[0].line_bytes > line_bytes,
            config,
            counts: Counts::default(),
            served_by: ServedBy::L1,
            caches,
        })
    }
}
