//! Machines with a further page size in their base-page arrays, such as arm64's contiguous entries and
//! RISC-V's Svnapot: the arrays for 4 KiB pages also hold pages of that size, one entry each.

use octavo_config::MachineConfig;
use octavo_os::page_table::{Aliases, Format};
use octavo_os::policy::OsConfig;

use super::Conventional;
use super::build::{self, Tables};
use super::registry::{Family, MachineResult, NamedDesign, Setup, Sizes, TranslationHardware};

/// Base pages above 4 KiB, for all anonymous memory or where the mapping has room.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[TranslationHardware {
        sizes: Sizes::All,
        ..TranslationHardware::new("granule", make)
    }],
    &[
        NamedDesign { name: "base16k", hardware: "granule", policy: "fixed:size=16KiB", about: "a base page of 16 KiB for anonymous memory", figure: "granules" },
        NamedDesign { name: "base64k", hardware: "granule", policy: "fixed:size=64KiB", about: "a base page of 64 KiB for anonymous memory", figure: "granules" },
        NamedDesign { name: "first_touch", hardware: "granule", policy: "first_touch", about: "256 KiB at the first touch where the mapping has room, 4 KiB elsewhere", figure: "granules" },
    ],
);

/// Each entry of a larger page is a full copy, like arm64's contiguous entries.
fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let tlbs = build::with_sizes(&config.tlb, &os.policy.required_sizes());
    let format = Format { aliases: Aliases::Copies, ..Format::default() };
    let tables = Tables { sizes: Sizes::All, format, ..Tables::default() };
    build::machine_with_tables(config, setup, tables, os, |_| {
        Conventional::new(&tlbs, setup.instructions)
    })
}
