//! Page tables and page walkers.

use indexmap::IndexMap;
use octavo_hw::{PteEntry, Replacement};
use serde::{Deserialize, Serialize};

use super::Ways;
use crate::written;

/// The page table's shape: a radix tree of nine bits a level, above pages of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageTableConfig {
    /// Its levels: 4 or 5.
    pub levels: u8,
}

/// The page walkers of a core.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkerConfig {
    /// How many walks may be under way at once: 1 to 64.
    pub walkers: u32,
    /// Instructions that the core has under way, 1 to 65536: walks for instructions farther apart
    /// never overlap.
    pub window_instructions: u32,
    /// When a walk starts.
    #[serde(default)]
    pub start: WalkStart,
    /// Cycles that a walk takes beside its reads: those of the trap and the handler where software
    /// walks.
    pub overhead_cycles: u32,
    /// Where page-table entries enter the data caches.
    #[serde(with = "written::PteEntryName")]
    pub pte_entry: PteEntry,
    /// The page-walk caches by name: `[walker.caches.pde]`. There may be none.
    #[serde(default, deserialize_with = "written::tables_or_none")]
    pub caches: IndexMap<String, WalkCache>,
}

/// When a walk starts, where there is a TLB between the first level and the walk: the second level,
/// or the nested TLB before a walk of the host's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WalkStart {
    /// When the look-up has missed: a miss costs the look-up and the walk.
    #[default]
    AfterLookup,
    /// With the look-up, and a hit aborts it: a miss costs the longer of the two.
    WithLookup,
}

/// The page-walk cache of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCache {
    /// The level of the page table, the table of base pages being 1: an entry of level 2 leads to
    /// such a table.
    pub level: u8,
    /// How many entries it has.
    pub entries: u64,
    /// Entries of a set.
    pub ways: Ways,
    /// Which entry of a full set is evicted.
    #[serde(with = "written::replacement")]
    pub replacement: Replacement,
}
