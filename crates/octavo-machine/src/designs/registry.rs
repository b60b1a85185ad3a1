//! The registry: all translation hardware and the named combinations of hardware and page-size policy. A
//! design declares both, with its requirements and settings, in the [`Family`] of its own file, which
//! [`crate::designs`] lists.

use std::sync::Arc;

use octavo_config::{DesignTable, DesignTables, MachineConfig};
use octavo_os::frames::fragmentation::Fragmentation;
use octavo_os::policy::{self, Capability, OsConfig, Policies, PolicyConfig, PolicyEntry};
use octavo_types::{Instructions, PageSize};

use super::FAMILIES;
use crate::config::ConfigError;
use crate::machine::AnyMachine;
use crate::state::Part;

/// Designs that share an idea.
pub struct Family {
    /// Their translation hardware.
    pub hardware: &'static [TranslationHardware],
    /// Their named combinations of hardware and policy.
    pub designs: &'static [NamedDesign],
    /// The table of the machine description that only they use, which a design may therefore set for itself.
    pub settings: Option<DesignTable>,
    /// The policies of page sizes that were published with them.
    pub policies: &'static [PolicyEntry],
}

/// Translation hardware.
pub struct TranslationHardware {
    /// Its name.
    pub name: &'static str,
    /// The page sizes that its page tables support.
    pub sizes: Sizes,
    /// The requirement on the page-size policy, if any.
    pub needs: Option<&'static Requirement>,
    /// An ideal bound: shown for comparison, never recommended.
    pub is_bound: bool,
    /// Whether it has caches of its own in place of the machine's TLBs.
    pub replaces_tlbs: bool,
    /// Keys, and tables of keys, among the settings of its family that do not affect it.
    pub(super) unused_settings: &'static [&'static str],
    /// The machine with the settings that it replaces; the rest is built from it.
    pub(crate) adapt: fn(&MachineConfig) -> MachineConfig,
    /// The state of one core beside the machine's TLBs and caches, by the settings that determine its size.
    pub(crate) own_state: fn(&MachineConfig) -> Vec<Part>,
    /// Rejects guests that it does not support.
    pub(super) check_guest: fn(&MachineConfig) -> Result<(), ConfigError>,
    pub(super) make: fn(&MachineConfig, &Setup, &OsConfig) -> MachineResult,
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
pub struct Requirement {
    /// The property of the policy.
    pub capability: Capability,
    /// Whether a host with a policy of its own must meet it, too.
    pub is_of_host: bool,
}

/// A machine, or the reason why it cannot be built.
pub type MachineResult = Result<Box<dyn AnyMachine>, ConfigError>;

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

impl Setup {
    /// Settings for building a machine whose translations are not checked.
    ///
    /// # Errors
    ///
    /// If a snapshot of memory cannot be read: a sentence without its full stop.
    pub fn new(machine: &MachineConfig, instructions: Instructions) -> Result<Self, String> {
        let start = machine.memory.start();
        let start = start.map_err(|error| format!("memory.fragmentation: {error}"))?.into();
        let host_start = machine.host.as_ref().map(|host| host.memory.start()).transpose();
        let host_start =
            host_start.map_err(|error| format!("host.memory.fragmentation: {error}"))?;
        let host_start = host_start.map(Into::into);
        Ok(Setup { instructions, is_checked: false, start, host_start })
    }
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
    /// Name of the figure of its mechanism.
    pub figure: &'static str,
}

fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().map(|(family, _)| family)
}

/// A named design with the settings of a machine that only its family has and that affect it, and with the idea, the
/// paper and the assumptions of its hardware: the documentation at the top of its source file.
pub struct Explained {
    /// The design.
    pub design: &'static NamedDesign,
    /// Keys of a machine with their defaults, if there are any.
    pub settings: Vec<(String, String)>,
    /// The documentation, in Markdown.
    pub documentation: String,
}

/// Explains a named design; `None` if there is none of this name.
pub fn explain(name: &str) -> Option<Explained> {
    FAMILIES.iter().find_map(|(family, source)| {
        let design = family.designs.iter().find(|design| design.name == name)?;
        let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
        let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let documentation = lines.collect::<Vec<_>>().join("\n");
        let mut settings = family.settings.map_or_else(Vec::new, |table| table.default_settings());
        let hardware = TranslationHardware::by_name(design.hardware)?;
        settings.retain(|(key, _)| hardware.uses(key));
        Some(Explained { design, settings, documentation })
    })
}

/// All translation hardware.
pub fn hardware() -> impl Iterator<Item = &'static TranslationHardware> {
    families().flat_map(|family| family.hardware)
}

/// All named designs, in the order of reports: bounds last.
pub fn designs() -> Vec<&'static NamedDesign> {
    let all = families().flat_map(|family| family.designs);
    let is_bound = |design: &&NamedDesign| {
        TranslationHardware::by_name(design.hardware).is_some_and(|hardware| hardware.is_bound)
    };
    let (bounds, mut designs): (Vec<_>, Vec<_>) = all.partition(is_bound);
    designs.extend(bounds);
    designs
}

/// The table of the machine description that designs with this hardware may set for themselves, if there is one.
pub fn own_table(hardware: &TranslationHardware) -> Option<&'static str> {
    let is_of = |family: &&Family| family.hardware.iter().any(|other| other.name == hardware.name);
    Some(families().find(is_of)?.settings?.name)
}

/// All policies of page sizes: those of the operating system, then those of designs.
pub fn policies() -> Policies {
    let mut policies = Policies::default();
    policies.extend(families().flat_map(|family| family.policies).copied());
    policies
}

/// The tables of all designs, with their default settings.
pub fn design_tables() -> DesignTables {
    let tables: DesignTables = families().filter_map(|family| family.settings).collect();
    tables.with_policies(policies())
}

/// Whether a key is `table`, or one of this table.
fn is_in(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Family {
    /// Designs without settings of their own.
    pub const fn new(
        hardware: &'static [TranslationHardware],
        designs: &'static [NamedDesign],
    ) -> Self {
        Family { hardware, designs, settings: None, policies: &[] }
    }
}

impl NamedDesign {
    /// Whether a machine with this design can be built, as far as its guest goes: a design may reject guests.
    pub fn supports(&self, config: &MachineConfig) -> bool {
        let hardware = TranslationHardware::by_name(self.hardware);
        config.host.is_none() || hardware.is_some_and(|of| (of.check_guest)(config).is_ok())
    }
}

impl Requirement {
    /// Whether a policy meets it.
    pub fn is_met_by(&self, policy: &PolicyConfig) -> bool {
        policy.capabilities().contains(&self.capability)
    }

    /// The policies that meet it, as `the policy NAME`.
    pub fn remedy(&self) -> String {
        format!("the policy {}", policies().with_capability(self.capability).join(" or "))
    }
}

/// Ranges, of guest and host.
pub const RANGES: Requirement = Requirement { capability: policy::RANGES, is_of_host: true };

impl Sizes {
    /// The names of the hardware whose page tables support these sizes.
    pub fn supported_by(self) -> impl Iterator<Item = &'static TranslationHardware> {
        hardware().filter(move |one| one.sizes == self)
    }

    /// The first size of the pages that a policy makes which these do not include.
    pub fn unsupported(self, policy: &PolicyConfig) -> Option<PageSize> {
        let supported = self.list();
        policy.required_sizes().into_iter().find(|size| !supported.contains(size))
    }

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
    /// Hardware for the page sizes of x86-64 and any policy that makes these.
    pub const fn new(
        name: &'static str,
        make: fn(&MachineConfig, &Setup, &OsConfig) -> MachineResult,
    ) -> Self {
        TranslationHardware {
            name,
            sizes: Sizes::X86,
            needs: None,
            is_bound: false,
            replaces_tlbs: false,
            unused_settings: &[],
            adapt: MachineConfig::clone,
            own_state: |_| Vec::new(),
            check_guest: |_| Ok(()),
            make,
        }
    }

    /// The hardware of this name.
    pub fn by_name(name: &str) -> Option<&'static TranslationHardware> {
        hardware().find(|hardware| hardware.name == name)
    }

    /// Whether a key of the settings of its family affects it.
    fn uses(&self, key: &str) -> bool {
        !self.unused_settings.iter().any(|table| is_in(key, table))
    }

    /// Builds a machine with this hardware and operating system, without checking their fit; a host is
    /// checked against both.
    pub fn make(&self, config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
        if let Some(host) = &config.host {
            (self.check_guest)(config)?;
            self.check_host(host).map_err(|wrong| ConfigError::Host(Box::new(wrong)))?;
        }
        (self.make)(&(self.adapt)(config), setup, os)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_designs_have_unique_names_and_accept_their_own_settings() {
        for entry in families().flat_map(|family| family.policies) {
            assert_eq!(policies().iter().filter(|other| other.name == entry.name).count(), 1);
            let mut config = OsConfig::new((entry.usual)());
            for (key, value) in config.to_settings() {
                assert_eq!(config.set(&key, &value), Ok(()), "{} {key}", entry.name);
            }
            assert_eq!(config, OsConfig::new((entry.usual)()));
        }
    }

    #[test]
    fn unused_settings_are_settings_of_the_family() {
        for family in families() {
            let settings = family.settings.map_or_else(Vec::new, |table| table.default_settings());
            for unused in family.hardware.iter().flat_map(|hardware| hardware.unused_settings) {
                assert!(settings.iter().any(|(key, _)| is_in(key, unused)), "{unused}");
            }
        }
    }

    #[test]
    fn names_are_unique_and_designs_name_hardware() {
        let names = |all: Vec<&'static str>| {
            let mut unique = all.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), all.len(), "{all:?}");
        };
        names(hardware().map(|hardware| hardware.name).collect());
        names(designs().iter().map(|design| design.name).collect());
        for design in designs() {
            assert!(TranslationHardware::by_name(design.hardware).is_some(), "{}", design.name);
            assert!(explain(design.name).is_some(), "{}", design.name);
        }
    }
}
