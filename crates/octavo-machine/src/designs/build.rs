//! What machines have beside their designs: operating systems, and a host where there is one.

use octavo_config::{FragmentationConfig, HostConfig, MachineConfig, MemoryConfig};
use octavo_os::frames::fragmentation::Fragmentation;
use octavo_os::frames::{MemoryShape, Order};
use octavo_os::page_table::{Aliases, Format};
use octavo_os::policy::{OsConfig, Setting};
use octavo_os::{Memory, Os};
use octavo_types::PageSize;

use super::{Requirement, Setup, Sizes, TranslationHardware};
use crate::config::ConfigError;
use crate::env::Env;

/// All of a machine but its designs. Page tables say these sizes in such a format, but for their levels,
/// which are the machine's.
pub fn env(
    config: &MachineConfig,
    setup: &Setup,
    (sizes, format): (Sizes, Format),
    system: &OsConfig,
) -> Result<Env, ConfigError> {
    let format = Format { levels: config.page_table.levels, ..format };
    // Faults of memory are the machine's: in a guest no page has gaps.
    let machine_settings = Format {
        has_gapped: format.has_gapped && config.host.is_none(),
        vector_bits: vector_bits(config, format, system)?,
        ..format
    };
    let os = os(&config.memory, &setup.start, (sizes, machine_settings), system)?;
    let env = Env::new(config, os, setup.instructions)?.checked(setup.is_checked);
    let Some(host) = &config.host else { return Ok(env) };
    check_merging(system)?;
    let of_host = |error| ConfigError::Host(Box::new(error));
    let host_os = host_os(host, setup, (sizes, format), system).map_err(of_host)?;
    env.in_guest(config, host, host_os, setup.instructions)
}

/// How many parts of a page have bits of their own. Aliases that are copies have no room for these, and in a guest
/// two tables would have to say them.
fn vector_bits(
    config: &MachineConfig,
    format: Format,
    system: &OsConfig,
) -> Result<u8, ConfigError> {
    let bits = system.policy.vector_bits();
    if bits > 0 && format.aliases == Aliases::Copies {
        return Err(ConfigError::NoVectors {
            bits,
            why: "aliases that are copies have no room for them",
        });
    }
    if bits > 0 && config.host.is_some() {
        return Err(ConfigError::NoVectors {
            bits,
            why: "they are kept on machines without a guest alone",
        });
    }
    Ok(bits)
}

fn host_os(
    host: &HostConfig,
    setup: &Setup,
    (sizes, format): (Sizes, Format),
    system: &OsConfig,
) -> Result<Os, ConfigError> {
    let format = Format { levels: host.page_table.levels, ..format };
    let machine_settings = own_policy(host)?;
    machine_settings.as_ref().map_or(Ok(()), check_merging)?;
    let start = setup.host_start.as_deref().unwrap_or(&Fragmentation::Empty);
    os(&host.memory, start, (sizes, format), machine_settings.as_ref().unwrap_or(system))
}

/// An operating system with nothing but free memory, as it is at the start.
fn os(
    memory: &MemoryConfig,
    start: &Fragmentation,
    (sizes, format): (Sizes, Format),
    system: &OsConfig,
) -> Result<Os, ConfigError> {
    let configured = Order::of(memory.largest_block);
    let needed = system.policy.needs().into_iter().max().map_or(Order::BASE, Order::of);
    let frames = memory.bytes / PageSize::BASE.bytes();
    let shape = MemoryShape::new(frames, configured.max(needed))?;
    // The same frames are free whatever the largest block is, and so for all designs.
    let frames = start.build(shape, memory.seed())?;
    Ok(system.build(Memory::new(frames, &sizes.list(), format)))
}

/// What has to be told of every store is not in a guest, nor a host.
fn check_merging(system: &OsConfig) -> Result<(), ConfigError> {
    match system.merges_pages() {
        true => Err(ConfigError::NoMerging { given: system.same_pages.text() }),
        false => Ok(()),
    }
}

fn own_policy(host: &HostConfig) -> Result<Option<OsConfig>, ConfigError> {
    let wrong = |error| refused(host, format!("{error}"));
    host.own_policy().map_err(wrong)
}

fn refused(host: &HostConfig, why: String) -> ConfigError {
    ConfigError::HostPolicy { policy: host.policy.clone(), why }
}

impl TranslationHardware {
    /// Whether a guest's memory is such that its pages need not have gaps: its faults are the host's.
    pub(super) fn check_guest(&self, memory: &MemoryConfig) -> Result<(), ConfigError> {
        let has_faults = matches!(memory.fragmentation, FragmentationConfig::Faults { .. });
        match self.needs == Some(Requirement::GappedPages) && has_faults {
            true => Err(ConfigError::FaultsOfGuest { hardware: self.name }),
            false => Ok(()),
        }
    }

    /// Whether it can translate what a host with a policy of its own makes.
    pub(super) fn check_host(&self, host: &HostConfig) -> Result<(), ConfigError> {
        let name = self.name;
        let Some(OsConfig { policy, .. }) = own_policy(host)? else { return Ok(()) };
        // Tailored pages of a guest may lie in whatever pages the host has.
        let requirement = self.needs.filter(|requirement| {
            *requirement == Requirement::Ranges && !requirement.is_met_by(&policy)
        });
        if let Some(requirement) = requirement {
            let (requirement, remedy) = (requirement.name(), requirement.remedy());
            return Err(refused(
                host,
                format!(
                    "{name} needs {requirement} of the host, too: give {remedy}, or \"design\""
                ),
            ));
        }
        let supported = self.sizes.list();
        match policy.needs().into_iter().find(|size| !supported.contains(size)) {
            None => Ok(()),
            Some(size) => Err(refused(
                host,
                format!(
                    "it makes pages of {size}, which the page tables of {name} cannot say: give \
                     another policy, or the hardware tps"
                ),
            )),
        }
    }
}
