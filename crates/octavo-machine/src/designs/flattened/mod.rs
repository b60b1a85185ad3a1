//! Flattened page tables (Park, Vougioukas, Sandberg and Black-Schaffer, "Every Walk's a Hit: Making Page Walks
//! Single-Access Cache Hits", ASPLOS 2022): radix trees with two levels in one node of 2 MiB, so that a walk reads two
//! entries, not four.
//!
//! - Levels 4 and 3 are *merged* in one node, and so are levels 2 and 1: 262,144 entries in an aligned block of 2 MiB,
//!   found by 18 bits of the address. A bit of the entry above, and one beside the root's address, says whether a node
//!   is merged: each node is merged or not by itself.
//! - The operating system makes a merged node if memory has a free block for it then, and otherwise two levels of
//!   nodes. With five levels, level 5 has nodes of its own.
//! - A page of 2 MiB below a merged node of levels 2 and 1 has 512 equal entries, all of which the operating system writes
//!   (`entries_written`). One of 1 GiB has one entry in the merged node of levels 4 and 3.
//! - In a guest, both tables are flattened: a walk reads (2 + 1) × (2 + 1) - 1 = 8 entries, not 24.
//! - Nodes take memory (`page_table_bytes`): 2 MiB for the root, and 2 MiB for each 1 GiB of addresses that has pages.
//!
//! The paper's other half, lines of page tables that data caches keep in phases of many TLB misses, is left out.
//!
//! Assumptions: the above is from the paper's abstract and a summary of the paper. There the operating system chooses
//! which pairs of levels are merged; here it is a setting. A block is allocated like one of data, from memory that the
//! operation under way does not need. A node stays where it is, merged or not, until an operation leaves it empty: it
//! is not freed and made again where pages of another size replace its only page. The entry of a merged node counts as
//! an entry of the lower of its levels: the machine's walk cache of level 3 holds the entries that lead to merged nodes
//! of levels 2 and 1, and its caches of levels 2 and 4 those that lead to ordinary nodes. All entries of a 2 MiB page
//! share its accessed and dirty bits. Clearing a node costs no time, like other work of the operating system.

#[cfg(test)]
mod naive;

use octavo_config::check::IsLater;
use octavo_config::{DesignSettings, DesignTable, InvalidValue, MachineConfig};
use octavo_os::page_table::Format;
use octavo_os::policy::OsConfig;
use serde::{Deserialize, Serialize};

use super::build::{self, Tables};
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};

/// Merged levels of page tables.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<FlattenedSettings>()),
    ..Family::new(
        &[TranslationHardware::new("flattened", make)],
        &[NamedDesign { name: "flattened", hardware: "flattened", policy: "base", about: "page tables with two levels in one node of 2 MiB: a walk reads two entries", figure: "translation" }],
    )
};

/// Which levels are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlattenedSettings {
    /// Levels 4 and 3.
    pub upper: bool,
    /// Levels 2 and 1.
    pub lower: bool,
}

impl Default for FlattenedSettings {
    fn default() -> Self {
        FlattenedSettings { upper: true, lower: true }
    }
}

impl DesignSettings for FlattenedSettings {
    const TABLE: &'static str = "flattened";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        Ok(())
    }
}

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let FlattenedSettings { upper, lower } = *config.designs.get::<FlattenedSettings>();
    let format = Format { merges: [lower, upper], ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    build::conventional(config, setup, tables, os)
}
