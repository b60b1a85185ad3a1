//! TLBs: levels of arrays.

use indexmap::IndexMap;
use octavo_hw::Replacement;
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use crate::written;

/// The TLBs of a core.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Levels", into = "Levels")]
pub struct TlbConfig {
    /// The first level of every access.
    pub first: FirstLevel,
    /// The level behind it, for instructions and data.
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

/// The levels as they are written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Levels {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l1: Option<TlbLevel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l1i: Option<TlbLevel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l1d: Option<TlbLevel>,
    #[serde(default)]
    l2: Option<TlbLevel>,
}

impl TryFrom<Levels> for TlbConfig {
    type Error = &'static str;

    fn try_from(levels: Levels) -> Result<Self, Self::Error> {
        let first = match (levels.l1, levels.l1i, levels.l1d) {
            (None, Some(l1i), Some(l1d)) => FirstLevel::Split { l1i, l1d },
            (Some(l1), None, None) => FirstLevel::Unified { l1 },
            _ => return Err("give either l1i and l1d, or l1 for both; `none` takes one out"),
        };
        Ok(TlbConfig { first, l2: levels.l2 })
    }
}

impl From<TlbConfig> for Levels {
    fn from(TlbConfig { first, l2 }: TlbConfig) -> Self {
        let (l1, l1i, l1d) = match first {
            FirstLevel::Split { l1i, l1d } => (None, Some(l1i), Some(l1d)),
            FirstLevel::Unified { l1 } => (Some(l1), None, None),
        };
        Levels { l1, l1i, l1d, l2 }
    }
}

/// One level: arrays that are all looked up at once. A page is filled into the first of them that
/// holds its size.
#[derive(Clone, PartialEq, Debug)]
pub struct TlbLevel {
    /// Latency of a look-up, hit or miss, beyond the level before; 0 for a first level, which is
    /// looked up beside the cache.
    pub hit_latency_cycles: u32,
    /// The source of its entries.
    pub fill: Fill,
    /// Its arrays by name, in the order in which they are written: `[tlb.l1d.4k]`.
    pub arrays: IndexMap<String, TlbArray>,
}

/// The source of the entries of a level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// A walk fills this level and those before; a hit here fills those before, and stays.
    All,
    /// Evictions of the previous level; a hit here moves the entry there. Not for a first level.
    Victim,
}

/// One array.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbArray {
    /// How many entries it has.
    pub entries: u64,
    /// Entries of a set.
    pub ways: Ways,
    /// The pages that it holds.
    pub page_sizes: PageSizes,
    /// Which entry of a full set is evicted.
    #[serde(with = "written::replacement")]
    pub replacement: Replacement,
}

/// Entries of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ways {
    /// As many as there are entries: fully associative.
    Full,
    /// This number, of which the number of entries is a multiple.
    Of(u64),
}

impl Ways {
    /// The number of ways of an array of `entries`.
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
    /// Pages of any size from 4 KiB to 1 GiB, each entry with a mask of its own; such an array is
    /// fully associative.
    Any,
    /// Pages of these sizes, each looked up at its own index; at least one, the smallest first,
    /// none twice.
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
