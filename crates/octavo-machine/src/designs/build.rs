//! Builds machines around designs: operating systems, and a host if configured.

use octavo_config::{
    FirstLevel, HostConfig, MachineConfig, MemoryConfig, PageSizes, TlbConfig, TlbLevel,
};
use octavo_os::frames::fragmentation::Fragmentation;
use octavo_os::frames::{MemoryShape, Order};
use octavo_os::page_table::{Aliases, Format, MakeTable};
use octavo_os::policy::OsConfig;
use octavo_os::{Memory, Os};
use octavo_types::PageSize;

use super::Conventional;
use super::registry::{MachineResult, Setup, Sizes, TranslationHardware, policies};
use crate::config::{self, ConfigError};
use crate::core::CoreSetup;
use crate::design::Design;
use crate::env::{Env, Walker};
use crate::machine::Machine;

/// The memory settings that a design needs.
#[derive(Clone)]
pub struct Tables {
    /// The sizes that page tables support.
    pub sizes: Sizes,
    /// The format of page tables; the number of levels is the machine's.
    pub format: Format,
    /// The format of the host's page tables, if it is another one.
    pub host_format: Option<Format>,
    /// Bytes reserved for tables of the design, in whole frames.
    pub reserved_bytes: u64,
    /// The tables and the walker of hardware that does not walk radix trees alone.
    pub hardware: Option<HardwareFormat>,
    /// Pages of a line of translations, if second-level caches hold such lines.
    pub pages_of_translation_line: Option<u64>,
}

/// The tables and the walker of hardware that does not walk radix trees alone, native and in guests.
#[derive(Clone)]
pub struct HardwareFormat {
    /// Makes the table of a process; `None` if that is the operating system's radix tree.
    pub table: Option<MakeTable>,
    /// Makes the walker of a core of a machine.
    pub walker: fn(&MachineConfig) -> Box<dyn Walker>,
}

impl Default for Tables {
    /// Page tables of x86-64.
    fn default() -> Self {
        Tables {
            sizes: Sizes::X86,
            format: Format::default(),
            host_format: None,
            reserved_bytes: 0,
            hardware: None,
            pages_of_translation_line: None,
        }
    }
}

/// A machine with page tables of x86-64; `make` makes the memory-management unit of a core.
pub fn machine<D: Design + 'static>(
    config: &MachineConfig,
    setup: &Setup,
    os: &OsConfig,
    make: impl Fn() -> Result<D, ConfigError>,
) -> MachineResult {
    machine_with_tables(config, setup, Tables::default(), os, |_| make())
}

/// A machine with conventional TLBs and these page tables.
pub fn conventional(
    config: &MachineConfig,
    setup: &Setup,
    tables: Tables,
    os: &OsConfig,
) -> MachineResult {
    machine_with_tables(config, setup, tables, os, |_| {
        Conventional::new(&config.tlb, setup.instructions)
    })
}

/// A machine with these page tables and reserved memory. `make` gets the environment, which has the reserved memory.
pub fn machine_with_tables<D: Design + 'static>(
    config: &MachineConfig,
    setup: &Setup,
    tables: Tables,
    os: &OsConfig,
    mut make: impl FnMut(&Env) -> Result<D, ConfigError>,
) -> MachineResult {
    let mut env = env(config, setup, &tables, os)?;
    if let Some(HardwareFormat { walker, .. }) = tables.hardware {
        env = env.with_walkers(|| walker(config));
    }
    if let Some(pages) = tables.pages_of_translation_line {
        env = env.with_translation_lines(pages);
    }
    let mmus = (0..config.core.count).map(|_| make(&env)).collect::<Result<_, _>>()?;
    let machine = Machine::new(env, mmus, setup.instructions);
    Ok(match &config.core.pipeline {
        Some(pipeline) => {
            let cores = CoreSetup::new(config, pipeline, config::lines(config));
            Box::new(machine.with_cores(cores))
        }
        None => Box::new(machine),
    })
}

/// TLBs whose arrays for base pages also hold pages of `sizes`, except for sizes that their level holds already.
pub fn with_sizes(tlbs: &TlbConfig, sizes: &[PageSize]) -> TlbConfig {
    let mut tlbs = tlbs.clone();
    match &mut tlbs.first {
        FirstLevel::Split { l1i, l1d } => {
            hold(l1i, sizes);
            hold(l1d, sizes);
        }
        FirstLevel::Unified { l1 } => hold(l1, sizes),
    }
    tlbs.l2.iter_mut().for_each(|l2| hold(l2, sizes));
    tlbs
}

/// Adds `sizes` to the arrays of a level that hold base pages, except for sizes that it holds already.
pub fn hold(level: &mut TlbLevel, sizes: &[PageSize]) {
    let is_new =
        |size: &&PageSize| !level.arrays.values().any(|array| array.page_sizes.hold(**size));
    let new: Vec<PageSize> = sizes.iter().filter(is_new).copied().collect();
    for array in level.arrays.values_mut() {
        if let PageSizes::List(held) = &mut array.page_sizes
            && held.contains(&PageSize::BASE)
        {
            held.extend(&new);
            held.sort_unstable();
        }
    }
}

/// All parts of a machine except its design.
fn env(
    config: &MachineConfig,
    setup: &Setup,
    tables: &Tables,
    system: &OsConfig,
) -> Result<Env, ConfigError> {
    let format = Format { levels: config.page_table.levels, ..tables.format };
    // Faulty frames belong to machine memory: in a guest, only host pages have gaps.
    let own_format = Format {
        has_gapped: format.has_gapped && config.host.is_none(),
        vector_bits: vector_bits(config, format, system)?,
        ..format
    };
    // The tables of a design lie in the machine's memory, which is the host's.
    let reserved_bytes = if config.host.is_none() { tables.reserved_bytes } else { 0 };
    let own = Tables { format: own_format, reserved_bytes, ..tables.clone() };
    let os = os(&config.memory, &setup.start, own, system)?;
    let env = Env::new(config, os, setup.instructions)?.checked(setup.is_checked);
    let Some(host) = &config.host else { return Ok(env) };
    check_merging(system)?;
    let host_error = |error| ConfigError::Host(Box::new(error));
    let format = tables.host_format.unwrap_or(format);
    let host_os =
        host_os(host, setup, Tables { format, ..tables.clone() }, system).map_err(host_error)?;
    env.in_guest(config, host, host_os, setup.instructions)
}

/// The number of parts of a page with accessed and dirty bits of their own. Aliases that are full copies have
/// no room for vectors, and in a guest two tables would need them.
fn vector_bits(
    config: &MachineConfig,
    format: Format,
    system: &OsConfig,
) -> Result<u8, ConfigError> {
    let bits = system.policy.page_table_format().vector_bits;
    if bits > 0 && format.aliases == Aliases::Copies {
        return Err(ConfigError::NoVectors {
            bits,
            why: "aliases that are full copies have no room for them",
        });
    }
    if bits > 0 && config.host.is_some() {
        return Err(ConfigError::NoVectors {
            bits,
            why: "only machines without a guest support them",
        });
    }
    Ok(bits)
}

fn host_os(
    host: &HostConfig,
    setup: &Setup,
    tables: Tables,
    system: &OsConfig,
) -> Result<Os, ConfigError> {
    let format = Format { levels: host.page_table.levels, ..tables.format };
    let tables = Tables { format, ..tables };
    let host_system = own_policy(host)?;
    host_system.as_ref().map_or(Ok(()), check_merging)?;
    let start = setup.host_start.as_deref().unwrap_or(&Fragmentation::Empty);
    os(&host.memory, start, tables, host_system.as_ref().unwrap_or(system))
}

/// An operating system whose memory is in its initial state.
fn os(
    memory: &MemoryConfig,
    start: &Fragmentation,
    tables: Tables,
    system: &OsConfig,
) -> Result<Os, ConfigError> {
    let configured = Order::of(memory.largest_block);
    let needed = system.policy.required_sizes().into_iter().max().map_or(Order::BASE, Order::of);
    let frames = memory.bytes / PageSize::BASE.bytes();
    let shape = MemoryShape::new(frames, configured.max(needed))?;
    // The initially free frames do not depend on the largest block, so that all designs start equal.
    let mut frames = start.build(shape, memory.seed())?;
    frames.set_tiers(memory.placed_tiers().map(|tier| tier.first_frame).collect());
    let make_table = tables.hardware.and_then(|hardware| hardware.table);
    let mut memory =
        Memory::new(frames, &tables.sizes.list(), tables.format).with_tables(make_table);
    memory.frames.reserve_for_design(tables.reserved_bytes / PageSize::BASE.bytes());
    Ok(system.build(memory))
}

/// Policies that observe stores are supported neither in guests nor in hosts.
fn check_merging(system: &OsConfig) -> Result<(), ConfigError> {
    match system.setting("same_pages") {
        Some(given) if system.merges_pages() => Err(ConfigError::NoMerging { given }),
        _ => Ok(()),
    }
}

/// The policy of a host that has one of its own.
pub(super) fn own_policy(host: &HostConfig) -> Result<Option<OsConfig>, ConfigError> {
    let wrong = |error| refused(host, format!("{error}"));
    host.own_policy(&policies()).map_err(wrong)
}

/// The error of a host's policy.
pub(super) fn refused(host: &HostConfig, why: String) -> ConfigError {
    ConfigError::HostPolicy { policy: host.policy.clone(), why }
}

impl TranslationHardware {
    /// Rejects a host policy whose pages this hardware cannot translate.
    pub(super) fn check_host(&self, host: &HostConfig) -> Result<(), ConfigError> {
        let name = self.name;
        let Some(OsConfig { policy, .. }) = own_policy(host)? else { return Ok(()) };
        // Guest pages of any size may be backed by any host pages.
        let requirement = self
            .needs
            .filter(|requirement| requirement.is_of_host && !requirement.is_met_by(&policy));
        if let Some(requirement) = requirement {
            let (needed, remedy) = (requirement.capability.0, requirement.remedy());
            return Err(refused(
                host,
                format!("{name} needs {needed} of the host, too: give {remedy}, or \"design\""),
            ));
        }
        match self.sizes.unsupported(&policy) {
            None => Ok(()),
            Some(size) => {
                let names: Vec<_> = Sizes::All.supported_by().map(|one| one.name).collect();
                Err(refused(
                    host,
                    format!(
                        "it makes pages of {size}, which the page tables of {name} do not support: give \
                         another policy, or the hardware {}",
                        names.join(" or ")
                    ),
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::counters::Counters;
    use crate::designs::twins::{self, Action, equals_twin, machine, setup};
    use crate::env::{WalkPlan, WalkRequest};

    /// A walker of the operating system's radix trees.
    struct RadixWalker;

    impl Walker for RadixWalker {
        fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
            assert_eq!(request.table().walk(request.page).steps(), request.radix.steps());
            plan.walk_radix(request);
        }

        fn report(&self, _: &str, _: &mut Counters) {}

        fn uses_walk_caches(&self) -> bool {
            true
        }
    }

    /// A walker without tables of its own that does no more than that of the machine.
    fn compare(
        config: &MachineConfig,
        policy: &str,
        actions: &[(usize, Action)],
    ) -> Result<(), TestCaseError> {
        let hardware = Some(HardwareFormat { table: None, walker: |_| Box::new(RadixWalker) });
        let os = policies().parse(policy).unwrap();
        let tables = Tables { hardware, ..Tables::default() };
        let own = conventional(config, &setup(config), tables, &os).unwrap();
        let machines = [machine("conventional", config, policy), own];
        twins::compare(config, machines, actions).map(|_| ())
    }

    equals_twin!(compare);
}
