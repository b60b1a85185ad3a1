//! All designs, a file each.

mod conventional;

use octavo_config::MachineConfig;
use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::{BasePages, Policy, Thp, ThpConfig};
use octavo_os::{Memory, Os};
use octavo_types::{Instructions, PageSize};

use crate::config::ConfigError;
use crate::design::Design;
use crate::env::Env;
use crate::machine::{Machine, Run};

pub use conventional::Conventional;

/// A design that can be asked for by name.
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    make: fn(&MachineConfig, &Setup) -> Made,
}

/// A machine, or why there can be none.
type Made = Result<Box<dyn Run>, ConfigError>;

/// How machines are made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What kernels are compiled for.
    pub instructions: Instructions,
    /// Whether each translation is compared with what the page table says.
    pub is_checked: bool,
}

/// All designs, in the order in which they are told of.
pub const ALL: &[Known] = &[
    Known { name: "base4k", about: "4 KiB pages, as they are touched", make: base4k },
    Known { name: "thp", about: "Linux's transparent huge pages of 2 MiB", make: thp },
];

impl Known {
    /// The design of this name.
    pub fn by_name(name: &str) -> Option<&'static Known> {
        ALL.iter().find(|known| known.name == name)
    }

    /// A machine of this design.
    pub fn make(&self, config: &MachineConfig, setup: &Setup) -> Made {
        (self.make)(config, setup)
    }
}

fn base4k(config: &MachineConfig, setup: &Setup) -> Made {
    conventional(config, setup, &[], Box::new(BasePages))
}

fn thp(config: &MachineConfig, setup: &Setup) -> Made {
    let policy = Box::new(Thp::new(ThpConfig::default()));
    conventional(config, setup, &[PageSize::HUGE], policy)
}

fn conventional(
    config: &MachineConfig,
    setup: &Setup,
    sizes: &[PageSize],
    policy: Box<dyn Policy>,
) -> Made {
    let make = || Conventional::new(&config.tlb, setup.instructions);
    machine(config, setup, (sizes, Order::LINUX), policy, make)
}

/// A machine whose operating system has pages of these sizes, and blocks up to this order.
fn machine<D: Design + 'static>(
    config: &MachineConfig,
    setup: &Setup,
    (sizes, largest): (&[PageSize], Order),
    policy: Box<dyn Policy>,
    make: impl Fn() -> Result<D, ConfigError>,
) -> Result<Box<dyn Run>, ConfigError> {
    let shape = MemoryShape::new(config.memory.bytes / PageSize::BASE.bytes(), largest)?;
    let format = Format { levels: config.page_table.levels, ..Format::default() };
    let memory = Memory::new(Frames::new(shape), sizes, format);
    let env = Env::new(config, Os::new(memory, policy), setup.instructions)?;
    let mmus = (0..config.core.count).map(|_| make()).collect::<Result<_, _>>()?;
    Ok(Box::new(Machine::new(env, mmus, setup.instructions, setup.is_checked)))
}
