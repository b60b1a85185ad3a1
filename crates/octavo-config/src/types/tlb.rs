//! TLBs: levels of arrays.

use indexmap::IndexMap;
use octavo_hw::Replacement;
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

/// The TLBs of a core.
#[derive(Clone, PartialEq, Debug)]
pub struct TlbConfig {
    /// What each access looks up first.
    pub first: FirstLevel,
    /// What misses there look up, instructions and data alike.
    pub l2: Option<TlbLevel>,
}

/// The first level of TLBs.
#[derive(Clone, PartialEq, Debug)]
pub enum FirstLevel {
    /// One for instructions and one for data: `[tlb.l1i]` and `[tlb.l1d]`.
    Split {
        /// For instructions.
        l1i: TlbLevel,
        /// For data.
        l1d: TlbLevel,
    },
    /// One for both: `[tlb.l1]`.
    Unified {
        /// For both.
        l1: TlbLevel,
    },
}

/// One level: arrays that are all looked up at once.
#[derive(Clone, PartialEq, Debug)]
pub struct TlbLevel {
    /// What a hit here costs beyond the level before; 0 for a first level, which is looked up
    /// beside the cache.
    pub hit_latency_cycles: u32,
    /// What fills it.
    pub fill: Fill,
    /// Its arrays by name, in the order in which they are written: `[tlb.l1d.4k]`.
    pub arrays: IndexMap<String, TlbArray>,
}

/// What fills a level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// A walk fills this level and those before; a hit here fills those before, and stays.
    All,
    /// What the level before evicts; a hit here moves the entry there. Not for a first level.
    Victim,
}

/// One array.
#[derive(Clone, PartialEq, Debug)]
pub struct TlbArray {
    /// How many entries it has.
    pub entries: u64,
    /// Entries of a set.
    pub ways: Ways,
    /// The pages that it holds.
    pub page_sizes: PageSizes,
    /// Which entry of a full set gives way.
    pub replacement: Replacement,
}

/// Entries of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ways {
    /// As many as there are entries: fully associative.
    Full,
    /// So many, of which the entries are a multiple.
    Of(u64),
}

impl Ways {
    /// The number, of an array of so many entries.
    pub const fn of(self, entries: u64) -> u64 {
        match self {
            Ways::Full => entries,
            Ways::Of(ways) => ways,
        }
    }
}

/// The pages that an array holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PageSizes {
    /// Of any size from 4 KiB to 1 GiB, each entry with a mask of its own; such an array is fully
    /// associative.
    Any,
    /// Of these, each looked up at its own index; at least one, the smallest first, none twice.
    List(Vec<PageSize>),
}

impl PageSizes {
    /// Whether pages of a size are held.
    pub fn hold(&self, size: PageSize) -> bool {
        match self {
            PageSizes::Any => true,
            PageSizes::List(sizes) => sizes.contains(&size),
        }
    }
}
