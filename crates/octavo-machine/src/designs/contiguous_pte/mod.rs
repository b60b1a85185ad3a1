//! Shipping hardware with a *contiguous hint* in page-table entries: the contiguous bit of arm64 (bit 52) and the N bit
//! of RISC-V's Svnapot (bit 63, with `1000` in the lowest bits of the page number). Sixteen entries of 4 KiB pages with
//! the hint map an aligned block of 64 KiB to aligned contiguous memory with equal permissions, and a TLB may hold the
//! block as one page (Linux, `Documentation/arch/arm64/hugetlbpage.rst`; RISC-V privileged specification, "Svnapot").
//!
//! - The arrays of 4 KiB pages, in both levels, also hold pages of a block's size, one entry each. A walk reads one
//!   entry of the block, and fills the whole block.
//! - The operating system sets and removes the hint as Linux does for arm64 (`arch/arm64/mm/contpte.c`). A block whose
//!   entries one operation writes all at once has the hint from the start. When an operation writes the last entry of a
//!   block that is then contiguous, the block is *folded*; when a part of it is unmapped, moved or given other
//!   permissions, it is *unfolded*. Both rewrite all entries of the block (`entries_written`) and invalidate its range,
//!   which is a shootdown. Frames of a block must have been allocated together, so that pages that are contiguous by
//!   chance are not folded: none are with the policy `base`, but parts of a split huge page are.
//! - Hardware sets accessed and dirty bits in the entry that it reads; the bits of a block are the *or* of those of its
//!   entries. A TLB entry has one dirty bit, that of the entry that was read, so that a store to a clean block walks
//!   once more.
//! - An invalidation of any page drops the entry of its block.
//!
//! Assumptions: hardware always uses the hint, although it may ignore it. The policy decides what is contiguous: `mthp`
//! maps runs of 16 KiB to 2 MiB at a fault; the named design uses runs up to 64 KiB. The same policy without the hint
//! is `conventional+mthp:largest=64KiB`. Work of the operating system is counted and takes no cycles, as elsewhere. In
//! a guest, both operating systems set hints, a TLB entry covers the smaller of the blocks or pages in both tables, and
//! the nested TLB holds blocks of the host's table. A change of mappings counts as one operation; kernels that change
//! permissions page by page unfold and fold a block on the way. A page that becomes writable by a store after a fork
//! may fold its block, which does not happen in Linux. Blocks of 2 MiB pages (32 MiB) and granules of 16 and 64 KiB are
//! left out.

#[cfg(test)]
mod naive;

use octavo_config::check::IsLater;
use octavo_config::{DesignSettings, DesignTable, InvalidValue, MachineConfig};
use octavo_os::page_table::Format;
use octavo_os::policy::OsConfig;
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::build::{self, Tables};
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};

/// Page-table entries with a contiguous hint.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<ContiguousPteSettings>()),
    ..Family::new(
        &[TranslationHardware { adapt, ..TranslationHardware::new("contiguous_pte", make) }],
        &[NamedDesign { name: "contiguous_pte", hardware: "contiguous_pte", policy: "mthp:largest=64KiB", about: "a hint in page-table entries of 64 KiB that are contiguous, as arm64 and RISC-V have it", figure: "coalescing" }],
    )
};

/// The hint in page-table entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContiguousPteSettings {
    /// Page-table entries of a block; 1 for no hint.
    pub entries: u64,
}

impl Default for ContiguousPteSettings {
    /// 64 KiB, of arm64 with 4 KiB pages and of Svnapot.
    fn default() -> Self {
        ContiguousPteSettings { entries: 16 }
    }
}

impl DesignSettings for ContiguousPteSettings {
    const TABLE: &'static str = "contiguous_pte";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        match self.entries {
            entries @ 1..=64 if entries.is_power_of_two() => Ok(()),
            entries => {
                let key = "contiguous_pte.entries";
                Err(InvalidValue::new(key, entries, "give a power of two from 1 to 64"))
            }
        }
    }
}

/// log2 of the entries of a block.
fn block_log2(config: &MachineConfig) -> u8 {
    config.designs.get::<ContiguousPteSettings>().entries.ilog2() as u8
}

/// The machine whose arrays of 4 KiB pages also hold blocks.
fn adapt(config: &MachineConfig) -> MachineConfig {
    let mut config = config.clone();
    let size = PageSize::from_log2(PageSize::BASE.log2() + block_log2(&config));
    let sizes = [size.expect("a size of blocks")];
    config.tlb = build::with_sizes(&config.tlb, &sizes);
    if let Some(tlb) = config.host.as_mut().and_then(|host| host.tlb.as_mut()) {
        build::hold(tlb, &sizes);
    }
    config
}

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let format = Format { block_log2: block_log2(config), ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    build::conventional(config, setup, tables, os)
}
