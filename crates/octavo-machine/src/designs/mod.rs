//! The translation designs, one file each. [`HARDWARE`] lists the translation hardware, and [`DESIGNS`] the
//! named combinations of hardware and page-size policy.

mod build;
pub mod colt;
mod conventional;
mod direct_segment;
mod granule;
mod gtsm;
mod perfect;
mod perforated;
mod rmm;
mod softvm;
mod spec;
mod tps;

use std::sync::Arc;

use octavo_config::MachineConfig;
use octavo_os::frames::fragmentation::Fragmentation;
use octavo_os::page_table::{Aliases, Format};
use octavo_os::policy::OsConfig;
use octavo_types::{Instructions, PageSize};

use crate::config::ConfigError;
use crate::design::Design;
use crate::machine::{AnyMachine, Machine};
use crate::tlb::Coalescing;

pub use conventional::Conventional;
pub use direct_segment::DirectSegment;
pub use gtsm::Gtsm;
pub use perfect::{PerfectL1, PerfectL2};
pub use perforated::{Perforated, Variant};
pub use rmm::Rmm;
pub use softvm::{Physical, Softvm};
pub use spec::{DesignSpec, SpecError};

/// Translation hardware.
pub struct TranslationHardware {
    /// Its name.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// The page sizes that its page tables support.
    pub sizes: Sizes,
    /// The requirement on the page-size policy, if any.
    pub needs: Option<Requirement>,
    /// An ideal bound: shown for comparison, never recommended.
    pub is_bound: bool,
    make: fn(&MachineConfig, &Setup, &OsConfig) -> MachineResult,
}

/// The page sizes that page tables support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// The sizes of x86-64: 4 KiB, 2 MiB, 1 GiB.
    X86,
    /// All powers of two from 4 KiB to 1 GiB.
    All,
}

/// A requirement of hardware on the page-size policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// Pages of sizes that x86-64 does not have.
    TailoredPages,
    /// Perforated pages: 2 MiB with holes.
    PerforatedPages,
    /// Gapped pages: 2 MiB with gaps.
    GappedPages,
    /// Contiguous ranges of pages, backed when they are mapped.
    Ranges,
}

/// A machine, or the reason why it cannot be built.
type MachineResult = Result<Box<dyn AnyMachine>, ConfigError>;

/// Settings for building machines.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The instruction set that kernels are compiled for.
    pub instructions: Instructions,
    /// Whether each translation is checked against the page table.
    pub is_checked: bool,
    /// The initial state of memory: [`octavo_config::MemoryConfig::start`], built once for all designs.
    pub start: Arc<Fragmentation>,
    /// The initial state of the host's memory, if there is a host.
    pub host_start: Option<Arc<Fragmentation>>,
}

/// A named combination of hardware and page-size policy.
pub struct NamedDesign {
    /// Its name.
    pub name: &'static str,
    /// Name of the translation hardware.
    pub hardware: &'static str,
    /// Name and settings of the page-size policy.
    pub policy: &'static str,
    /// A description of one line.
    pub about: &'static str,
}

/// All translation hardware.
#[rustfmt::skip]
pub const HARDWARE: &[TranslationHardware] = &[
    TranslationHardware { name: "conventional", about: "TLBs as the machine has them", sizes: Sizes::X86, needs: None, is_bound: false, make: make_conventional },
    TranslationHardware { name: "tps", about: "an any-size first-level TLB in place of those for larger pages", sizes: Sizes::All, needs: Some(Requirement::TailoredPages), is_bound: false, make: make_tps },
    TranslationHardware { name: "granule", about: "arrays for 4 KiB pages that also hold the policy's page size, one entry each", sizes: Sizes::All, needs: None, is_bound: false, make: make_granule },
    TranslationHardware { name: "colt", about: "TLBs that coalesce contiguous base pages, in sets and in ranges", sizes: Sizes::X86, needs: None, is_bound: false, make: |config, setup, os| make_colt(config, setup, os, colt::ALL) },
    TranslationHardware { name: "colt_sa", about: "CoLT in set-associative arrays only", sizes: Sizes::X86, needs: None, is_bound: false, make: |config, setup, os| make_colt(config, setup, os, colt::SETS) },
    TranslationHardware { name: "colt_fa", about: "CoLT in a fully associative array of ranges only", sizes: Sizes::X86, needs: None, is_bound: false, make: |config, setup, os| make_colt(config, setup, os, colt::FULLY_ASSOCIATIVE) },
    TranslationHardware { name: "rmm", about: "a range TLB beside the second level", sizes: Sizes::X86, needs: Some(Requirement::Ranges), is_bound: false, make: make_rmm },
    TranslationHardware { name: "direct_segment", about: "one segment beside the TLBs", sizes: Sizes::X86, needs: Some(Requirement::Ranges), is_bound: false, make: make_direct_segment },
    TranslationHardware { name: "perforated", about: "a second-level TLB of 2 MiB pages with holes, a filter per entry, and hole bitmaps", sizes: Sizes::X86, needs: Some(Requirement::PerforatedPages), is_bound: false, make: |config, setup, os| make_perforated(config, setup, os, Variant::Filtered) },
    TranslationHardware { name: "perforated_on_demand", about: "perforated without filters", sizes: Sizes::X86, needs: Some(Requirement::PerforatedPages), is_bound: false, make: |config, setup, os| make_perforated(config, setup, os, Variant::OnDemand) },
    TranslationHardware { name: "perforated_all", about: "perforated without filters; a page's whole bitmap is filled at once", sizes: Sizes::X86, needs: Some(Requirement::PerforatedPages), is_bound: false, make: |config, setup, os| make_perforated(config, setup, os, Variant::AllAtOnce) },
    TranslationHardware { name: "gtsm", about: "a second-level TLB of 2 MiB pages made of 64 KiB sub-blocks, with bitmaps that select them", sizes: Sizes::X86, needs: Some(Requirement::GappedPages), is_bound: false, make: make_gtsm },
    TranslationHardware { name: "softvm", about: "virtual caches with a software handler for misses", sizes: Sizes::X86, needs: None, is_bound: false, make: make_softvm },
    TranslationHardware { name: "spur", about: "virtual caches with in-cache translation of misses by hardware", sizes: Sizes::X86, needs: None, is_bound: false, make: make_spur },
    TranslationHardware { name: "mips_virtual", about: "virtual caches with a software-refilled TLB", sizes: Sizes::X86, needs: None, is_bound: false, make: make_mips_virtual },
    TranslationHardware { name: "mips_physical", about: "physical caches behind a software-refilled TLB", sizes: Sizes::X86, needs: None, is_bound: false, make: make_mips_physical },
    TranslationHardware { name: "unfragmented", about: "TLBs as the machine has them, with unfragmented memory", sizes: Sizes::X86, needs: None, is_bound: true, make: make_ideal_memory },
    TranslationHardware { name: "softvm_free", about: "virtual caches whose misses are translated at no cost", sizes: Sizes::X86, needs: None, is_bound: true, make: make_softvm_free },
    TranslationHardware { name: "perfect_l1", about: "a first-level TLB that never misses", sizes: Sizes::X86, needs: None, is_bound: true, make: make_perfect_l1 },
    TranslationHardware { name: "perfect_l2", about: "a second-level TLB that never misses", sizes: Sizes::X86, needs: None, is_bound: true, make: make_perfect_l2 },
];

/// All named designs, in the order of reports.
#[rustfmt::skip]
pub const DESIGNS: &[NamedDesign] = &[
    NamedDesign { name: "base4k", hardware: "conventional", policy: "base", about: "4 KiB pages on demand" },
    NamedDesign { name: "thp", hardware: "conventional", policy: "thp", about: "Linux's transparent huge pages of 2 MiB" },
    NamedDesign { name: "reserved_thp", hardware: "conventional", policy: "reserved_thp", about: "huge pages by reservation, as FreeBSD has them" },
    NamedDesign { name: "base16k", hardware: "granule", policy: "fixed:size=16KiB", about: "a base page of 16 KiB for anonymous memory" },
    NamedDesign { name: "base64k", hardware: "granule", policy: "fixed:size=64KiB", about: "a base page of 64 KiB for anonymous memory" },
    NamedDesign { name: "first_touch", hardware: "granule", policy: "first_touch", about: "256 KiB at the first touch where the mapping has room, 4 KiB elsewhere" },
    NamedDesign { name: "tps", hardware: "tps", policy: "tps", about: "Tailored Page Sizes: pages of every power of two" },
    NamedDesign { name: "colt", hardware: "colt", policy: "base", about: "CoLT: entries that hold several contiguous 4 KiB pages" },
    NamedDesign { name: "colt_sa", hardware: "colt_sa", policy: "base", about: "CoLT in set-associative arrays only" },
    NamedDesign { name: "colt_fa", hardware: "colt_fa", policy: "base", about: "CoLT in a fully associative array only" },
    NamedDesign { name: "rmm", hardware: "rmm", policy: "eager", about: "Redundant Memory Mappings: a range TLB beside the second level" },
    NamedDesign { name: "direct_segment", hardware: "direct_segment", policy: "eager", about: "a direct segment for the longest range, pages for the rest" },
    NamedDesign { name: "perforated", hardware: "perforated", policy: "perforated", about: "perforated pages: 2 MiB pages with 4 KiB holes" },
    NamedDesign { name: "perforated_on_demand", hardware: "perforated_on_demand", policy: "perforated", about: "perforated pages without hole filters" },
    NamedDesign { name: "perforated_all", hardware: "perforated_all", policy: "perforated", about: "perforated pages without hole filters; whole bitmaps are filled at once" },
    NamedDesign { name: "gtsm", hardware: "gtsm", policy: "gtsm", about: "Gap-Tolerant Sequential Mapping: 2 MiB pages made of 32 of 64 sub-blocks" },
    NamedDesign { name: "softvm", hardware: "softvm", policy: "base", about: "no TLB: virtual caches, and translation of their misses in software" },
    NamedDesign { name: "spur", hardware: "spur", policy: "base", about: "SPUR: virtual caches, and in-cache translation of their misses by hardware" },
    NamedDesign { name: "mips_virtual", hardware: "mips_virtual", policy: "base", about: "virtual caches with a software-refilled TLB of 64 entries" },
    NamedDesign { name: "mips_physical", hardware: "mips_physical", policy: "base", about: "physical caches behind a software-refilled TLB of 64 entries" },
    NamedDesign { name: "ideal2m", hardware: "unfragmented", policy: "thp", about: "a bound: huge pages of 2 MiB in unfragmented memory" },
    NamedDesign { name: "softvm_free", hardware: "softvm_free", policy: "base", about: "a bound: virtual caches whose misses are translated at no cost" },
    NamedDesign { name: "perfect_l1", hardware: "perfect_l1", policy: "base", about: "a bound: first-level TLBs that never miss" },
    NamedDesign { name: "perfect_l2", hardware: "perfect_l2", policy: "base", about: "a bound: a second-level TLB that never misses" },
];

impl Sizes {
    /// The sizes above 4 KiB.
    pub fn list(self) -> Vec<PageSize> {
        let all = PageSize::BASE.log2() + 1..=PageSize::LARGEST.log2();
        match self {
            Sizes::X86 => vec![PageSize::HUGE, PageSize::LARGEST],
            Sizes::All => all.filter_map(PageSize::from_log2).collect(),
        }
    }
}

impl TranslationHardware {
    /// Whether it has the caches of `softvm.…` and none of the machine's TLBs.
    pub fn has_virtual_caches(&self) -> bool {
        let of = ["softvm", "softvm_free", "spur", "mips_virtual", "mips_physical"];
        of.contains(&self.name)
    }

    /// The hardware of this name.
    pub fn by_name(name: &str) -> Option<&'static TranslationHardware> {
        HARDWARE.iter().find(|hardware| hardware.name == name)
    }

    /// Builds a machine with this hardware and operating system, without checking their fit; a host is
    /// checked against both.
    pub fn make(&self, config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
        if let Some(host) = &config.host {
            self.check_guest(&config.memory)?;
            self.check_host(host).map_err(|wrong| ConfigError::Host(Box::new(wrong)))?;
        }
        (self.make)(config, setup, os)
    }
}

fn make_conventional(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Conventional::new(&config.tlb, setup.instructions))
}

fn make_tps(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let tlbs = tps::tlbs(&config.tlb);
    let format = os.policy.page_table_format();
    machine_with_format(config, setup, (Sizes::All, format), os, || {
        let tlbs = Conventional::new(&tlbs, setup.instructions)?.filling_whole_pages();
        Ok(tlbs.with_vectors(format.vector_bits))
    })
}

fn make_colt(
    config: &MachineConfig,
    setup: &Setup,
    os: &OsConfig,
    coalescing: Coalescing,
) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || {
        Conventional::coalescing(&config.tlb, coalescing, setup.instructions)
    })
}

fn make_rmm(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Rmm::new(&config.tlb, setup.instructions))
}

fn make_direct_segment(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || DirectSegment::new(&config.tlb, setup.instructions))
}

fn make_softvm(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Softvm::new(config, setup.instructions))
}

fn make_spur(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Softvm::in_cache(config, setup.instructions))
}

fn make_softvm_free(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Softvm::free(config, setup.instructions))
}

fn make_mips_virtual(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Softvm::with_tlb(config, setup.instructions))
}

fn make_mips_physical(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Physical::new(config, setup.instructions))
}

/// Each entry of a larger page is a full copy, like arm64's contiguous entries.
fn make_granule(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let tlbs = granule::tlbs(&config.tlb, &os.policy.required_sizes());
    let format = Format { aliases: Aliases::Copies, ..Format::default() };
    machine_with_format(config, setup, (Sizes::All, format), os, || {
        Conventional::new(&tlbs, setup.instructions)
    })
}

fn make_perforated(
    config: &MachineConfig,
    setup: &Setup,
    os: &OsConfig,
    variant: Variant,
) -> MachineResult {
    let format = Format { has_perforated: true, ..Format::default() };
    machine_with_format(config, setup, (Sizes::X86, format), os, || {
        Perforated::new(&config.tlb, variant, setup.instructions)
    })
}

fn make_gtsm(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let config = gtsm::machine(config);
    let format = Format { has_gapped: true, ..Format::default() };
    machine_with_format(&config, setup, (Sizes::X86, format), os, || {
        Gtsm::new(&config.tlb, &config.gtsm, setup.instructions)
    })
}

fn make_ideal_memory(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let setup = Setup { start: Arc::default(), host_start: None, ..setup.clone() };
    make_conventional(config, &setup, os)
}

fn make_perfect_l1(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || Ok(PerfectL1::default()))
}

fn make_perfect_l2(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    machine(config, setup, Sizes::X86, os, || PerfectL2::new(&config.tlb, setup.instructions))
}

/// A machine whose page tables support these sizes, in the default format.
fn machine<D: Design + 'static>(
    config: &MachineConfig,
    setup: &Setup,
    sizes: Sizes,
    os: &OsConfig,
    make: impl Fn() -> Result<D, ConfigError>,
) -> MachineResult {
    machine_with_format(config, setup, (sizes, Format::default()), os, make)
}

/// A machine with page tables of this format; the number of levels is the machine's.
fn machine_with_format<D: Design + 'static>(
    config: &MachineConfig,
    setup: &Setup,
    (sizes, format): (Sizes, Format),
    os: &OsConfig,
    make: impl Fn() -> Result<D, ConfigError>,
) -> MachineResult {
    let env = build::env(config, setup, (sizes, format), os)?;
    let mmus = (0..config.core.count).map(|_| make()).collect::<Result<_, _>>()?;
    Ok(Box::new(Machine::new(env, mmus, setup.instructions)))
}
