//! Physical memory, and how it is fragmented before a simulation begins.

use indexmap::IndexMap;
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::DramConfig;
use crate::written;

/// The seed of an initial state that gives none.
const USUAL_SEED: u64 = 1;

/// Physical memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Its size: whole frames of 4 KiB, at most 4 TiB.
    #[serde(with = "written::bytes")]
    pub bytes: u64,
    /// The largest block of the allocator: 4 MiB for Linux. A design may ask for another,
    /// such as 1 GiB for pages of any size.
    #[serde(with = "written::page_size")]
    pub largest_block: PageSize,
    /// The initial state of memory.
    pub fragmentation: FragmentationConfig,
    /// Slower parts, by name: the last frames of memory, in this order. The frames before them are local.
    #[serde(
        default,
        deserialize_with = "written::tables_or_none",
        skip_serializing_if = "IndexMap::is_empty"
    )]
    pub tiers: IndexMap<String, MemoryTier>,
}

/// A part of memory that is farther away, such as that of another processor or behind CXL.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryTier {
    /// Its size; or none, if `share` gives it.
    #[serde(default, with = "written::some_bytes", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its share of the memory, above 0 and at most 1, in whole 2 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Cycles that each access takes longer than one of local memory.
    pub added_latency_cycles: u32,
    /// Its channels and banks; if it has none, those of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram: Option<DramConfig>,
}

/// The initial state of memory, see [`octavo_os::frames::fragmentation::Fragmentation`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "State", into = "State")]
pub enum FragmentationConfig {
    /// Everything is free.
    Empty,
    /// Holes in some of the 2 MiB regions.
    Holes {
        /// The share of regions that have holes, 0 to 1.
        portion: f64,
        /// The share of holes in each of them, 0 to 1.
        fraction: f64,
        /// How they lie.
        layout: HoleLayout,
        /// The content of the holes.
        holes: HoleKind,
        /// The seed of the random places of holes and of the regions that have them.
        seed: u64,
    },
    /// Holes of several kinds, each in some of the 2 MiB regions.
    MixedHoles {
        /// The kinds, by any name. Portions are shares of all regions, and come to at most 1.
        groups: IndexMap<String, HoleGroup>,
        /// The seed of the random places of holes and of the regions that have them.
        seed: u64,
    },
    /// Faulty frames, which are never allocated.
    Faults {
        /// The share of all frames, 0 to 1.
        portion: f64,
        /// How they lie: clustered ones in runs of 64 KiB.
        layout: HoleLayout,
        /// The seed of their random places.
        seed: u64,
    },
    /// Free blocks of given sizes; background memory holds the rest.
    OrderMix {
        /// The numbers of free blocks by size; none of other sizes.
        free_blocks: IndexMap<PageSize, u64>,
        /// The share of 2 MiB regions, 0 to 1, in which background memory may be moved.
        movable_share: f64,
        /// The seed of the random places of all these.
        seed: u64,
    },
    /// The state of a real machine, which `octavo snapshot` has recorded.
    Snapshot {
        /// The file.
        file: String,
        /// The seed of the placement of frames that the file does not locate.
        seed: u64,
    },
}

/// Regions with holes of one kind.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoleGroup {
    /// The share of all regions that have them, 0 to 1.
    pub portion: f64,
    /// The share of holes in each of these, 0 to 1.
    pub fraction: f64,
    /// How they lie.
    #[serde(with = "written::LayoutName")]
    pub layout: HoleLayout,
    /// The content of the holes.
    #[serde(with = "written::HoleKindName")]
    pub holes: HoleKind,
}

/// An initial state as written: `kind` selects the other keys. (Serde's tagged enums lose the key of an
/// error.)
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct State {
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    portion: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fraction: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<written::Layout>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holes: Option<written::Holes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<IndexMap<String, HoleGroup>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_blocks: Option<IndexMap<written::SizeKey, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    movable_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    #[default]
    Empty,
    Holes,
    MixedHoles,
    Faults,
    OrderMix,
    Snapshot,
}

impl TryFrom<State> for FragmentationConfig {
    type Error = &'static str;

    fn try_from(state: State) -> Result<Self, Self::Error> {
        let State {
            kind,
            portion,
            fraction,
            layout,
            holes,
            groups,
            free_blocks,
            movable_share,
            file,
            seed: given_seed,
        } = state;
        let seed = given_seed.unwrap_or(USUAL_SEED);
        let one = (portion, fraction, layout, holes);
        match (kind, one, groups, (free_blocks, movable_share), file) {
            (Kind::Empty, (None, None, None, None), None, (None, None), None)
                if given_seed.is_none() =>
            {
                Ok(FragmentationConfig::Empty)
            }
            (Kind::Holes, (Some(p), Some(f), Some(l), Some(h)), None, (None, None), None) => {
                let (layout, holes) = (l.0, h.0);
                Ok(FragmentationConfig::Holes { portion: p, fraction: f, layout, holes, seed })
            }
            (Kind::MixedHoles, (None, None, None, None), Some(groups), (None, None), None) => {
                Ok(FragmentationConfig::MixedHoles { groups, seed })
            }
            (Kind::Faults, (Some(portion), None, Some(layout), None), None, (None, None), None) => {
                Ok(FragmentationConfig::Faults { portion, layout: layout.0, seed })
            }
            (Kind::OrderMix, (None, None, None, None), None, (Some(blocks), Some(share)), None) => {
                let free_blocks = blocks.into_iter().map(|(size, n)| (size.0, n)).collect();
                Ok(FragmentationConfig::OrderMix { free_blocks, movable_share: share, seed })
            }
            (Kind::Snapshot, (None, None, None, None), None, (None, None), Some(file)) => {
                Ok(FragmentationConfig::Snapshot { file, seed })
            }
            (Kind::Empty, .., Some(_)) => {
                Err("of kind \"empty\", the default, it has no file; give kind = \"snapshot\", too")
            }
            (Kind::Empty, ..) => Err(
                "of kind \"empty\", the default, it has no other key; give a kind that has, too: \"holes\", \
                 \"mixed-holes\", \"faults\", \"order-mix\" or \"snapshot\"",
            ),
            (Kind::Holes, ..) => Err(
                "of kind \"holes\", it has the keys portion, fraction, layout and holes, and may have seed",
            ),
            (Kind::MixedHoles, ..) => {
                Err("of kind \"mixed-holes\", it has the key groups, and may have seed")
            }
            (Kind::Faults, ..) => {
                Err("of kind \"faults\", it has the keys portion and layout, and may have seed")
            }
            (Kind::OrderMix, ..) => Err(
                "of kind \"order-mix\", it has the keys free_blocks and movable_share, and may have seed",
            ),
            (Kind::Snapshot, ..) => {
                Err("of kind \"snapshot\", it has the key file, and may have seed")
            }
        }
    }
}

impl From<FragmentationConfig> for State {
    fn from(config: FragmentationConfig) -> Self {
        let of_kind = |kind| State { kind, ..State::default() };
        match config {
            FragmentationConfig::Empty => of_kind(Kind::Empty),
            FragmentationConfig::Holes { portion, fraction, layout, holes, seed } => State {
                portion: Some(portion),
                fraction: Some(fraction),
                layout: Some(written::Layout(layout)),
                holes: Some(written::Holes(holes)),
                seed: Some(seed),
                ..of_kind(Kind::Holes)
            },
            FragmentationConfig::MixedHoles { groups, seed } => {
                State { groups: Some(groups), seed: Some(seed), ..of_kind(Kind::MixedHoles) }
            }
            FragmentationConfig::Faults { portion, layout, seed } => State {
                portion: Some(portion),
                layout: Some(written::Layout(layout)),
                seed: Some(seed),
                ..of_kind(Kind::Faults)
            },
            FragmentationConfig::OrderMix { free_blocks, movable_share, seed } => {
                let keyed = |(size, blocks)| (written::SizeKey(size), blocks);
                State {
                    free_blocks: Some(free_blocks.into_iter().map(keyed).collect()),
                    movable_share: Some(movable_share),
                    seed: Some(seed),
                    ..of_kind(Kind::OrderMix)
                }
            }
            FragmentationConfig::Snapshot { file, seed } => {
                State { file: Some(file), seed: Some(seed), ..of_kind(Kind::Snapshot) }
            }
        }
    }
}
