//! The parts of a machine in the types of the crates that build them.

use std::path::Path;
use std::sync::Arc;

use octavo_hw::{
    CacheConfig, Geometry, GeometryError, MemoryTierConfig, PrefetchersConfig, PrivateConfig,
    SharedConfig, WalkCacheConfig,
};
use octavo_os::frames::fragmentation::{Faults, Fragmentation, Holes, OrderMix};
use octavo_os::frames::snapshot::{Snapshot, SnapshotError};
use octavo_os::frames::{MemoryShape, MemorySizeError, Order};
use octavo_types::PageSize;

use crate::types::{
    CacheConfigs, CacheLevel, DramConfig, FirstLevel, FragmentationConfig, HoleGroup, HostConfig,
    MachineConfig, MemoryConfig, MemoryTier, TlbArray, TlbConfig, TlbLevel, WalkCache,
    WalkerConfig,
};

impl MachineConfig {
    /// The private caches of each core.
    pub fn private_caches(&self) -> PrivateConfig {
        let CacheConfigs { line_bytes, l1i, l1d, l2, .. } = self.cache;
        PrivateConfig {
            l1i: l1i.with_lines(line_bytes),
            l1d: l1d.with_lines(line_bytes),
            l2: l2.with_lines(line_bytes),
            pte_entry: self.walker.pte_entry,
            prefetchers: self.prefetchers(),
        }
    }

    /// The prefetchers of each core. The host's memory is the machine's, where there is a host.
    pub fn prefetchers(&self) -> PrefetchersConfig {
        let memory = self.physical_memory();
        PrefetchersConfig {
            levels: [&self.cache.l1d, &self.cache.l2].map(|level| level.prefetch.prefetchers()),
            memory_lines: memory.bytes / self.cache.line_bytes,
        }
    }

    /// The last level, and the memory behind it.
    pub fn shared_cache(&self) -> SharedConfig {
        SharedConfig {
            llc: self.cache.llc.with_lines(self.cache.line_bytes),
            memory_latency_cycles: self.cache.memory_latency_cycles,
            others_fill_every_cycles: self.cache.others_fill_every_cycles,
            tiers: self
                .placed_tiers()
                .map(|tier| MemoryTierConfig {
                    first_line: tier.first_frame * self.lines_of_frame(),
                    added_latency_cycles: tier.config.added_latency_cycles,
                })
                .collect(),
        }
    }

    /// The memory behind the caches: the host's, if there is a host.
    pub fn physical_memory(&self) -> &MemoryConfig {
        self.host.as_ref().map_or(&self.memory, |host| &host.memory)
    }

    /// The tiers of the memory behind the caches, by address.
    pub fn placed_tiers(&self) -> impl Iterator<Item = PlacedTier<'_>> {
        self.physical_memory().placed_tiers()
    }

    /// The DRAM of local memory and of each tier, with the first line of each.
    pub fn drams(&self) -> Vec<(u64, Option<DramConfig>)> {
        let tiers = self
            .placed_tiers()
            .map(|tier| (tier.first_frame * self.lines_of_frame(), tier.config.dram.or(self.dram)));
        [(0, self.dram)].into_iter().chain(tiers).collect()
    }

    fn lines_of_frame(&self) -> u64 {
        PageSize::BASE.bytes() / self.cache.line_bytes
    }
}

/// A tier, and where it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlacedTier<'m> {
    /// Its name.
    pub name: &'m str,
    /// Its first frame. It ends where the next one begins, or memory ends.
    pub first_frame: u64,
    /// Its other properties.
    pub config: &'m MemoryTier,
}

impl MemoryTier {
    /// Its frames in a memory of `memory_bytes`.
    pub fn frames(&self, memory_bytes: u64) -> u64 {
        let of_share = |share: f64| {
            let bytes = (share * memory_bytes as f64) as u64;
            // All memory, even if that is no multiple of 2 MiB.
            if share == 1.0 { bytes } else { bytes - bytes % PageSize::HUGE.bytes() }
        };
        let bytes = self.bytes.or(self.share.map(of_share)).unwrap_or(0);
        bytes / PageSize::BASE.bytes()
    }
}

impl MemoryConfig {
    /// The frames and the largest block.
    ///
    /// # Errors
    ///
    /// If there is no frame, or more than 4 TiB.
    pub fn shape(&self) -> Result<MemoryShape, MemorySizeError> {
        let frames = self.bytes / PageSize::BASE.bytes();
        MemoryShape::new(frames, Order::of(self.largest_block))
    }

    /// The tiers, by address, at the end of memory.
    pub fn placed_tiers(&self) -> impl Iterator<Item = PlacedTier<'_>> {
        let all = self.tiers.values().map(|tier| tier.frames(self.bytes)).sum::<u64>();
        let mut next = self.bytes / PageSize::BASE.bytes() - all;
        self.tiers.iter().map(move |(name, config)| {
            let first_frame = next;
            next += config.frames(self.bytes);
            PlacedTier { name, first_frame, config }
        })
    }

    /// The initial state of memory; reads the snapshot, if any.
    ///
    /// # Errors
    ///
    /// If the snapshot's file cannot be read, or is no snapshot.
    pub fn start(&self) -> Result<Fragmentation, SnapshotError> {
        Ok(match &self.fragmentation {
            FragmentationConfig::Empty => Fragmentation::Empty,
            &FragmentationConfig::Holes { portion, fraction, layout, holes, .. } => {
                Fragmentation::Holes(Holes { portion, fraction, layout, kind: holes })
            }
            FragmentationConfig::MixedHoles { groups, .. } => {
                let holes = |group: &HoleGroup| {
                    let HoleGroup { portion, fraction, layout, holes } = *group;
                    Holes { portion, fraction, layout, kind: holes }
                };
                Fragmentation::MixedHoles(groups.values().map(holes).collect())
            }
            &FragmentationConfig::Faults { portion, layout, .. } => {
                Fragmentation::Faults(Faults { portion, layout })
            }
            FragmentationConfig::OrderMix { free_blocks, movable_share, .. } => {
                let mut by_order = [0; Order::COUNT];
                for (size, blocks) in free_blocks {
                    by_order[Order::of(*size).index()] = *blocks;
                }
                Fragmentation::OrderMix(OrderMix {
                    free_blocks: by_order,
                    largest: Order::of(self.largest_block),
                    movable_share: *movable_share,
                })
            }
            FragmentationConfig::Snapshot { file, .. } => {
                Fragmentation::Snapshot(Arc::new(Snapshot::read(Path::new(file))?))
            }
        })
    }

    /// The seed of the random placement of [`MemoryConfig::start`].
    pub fn seed(&self) -> u64 {
        match self.fragmentation {
            // Nothing is random.
            FragmentationConfig::Empty => 0,
            FragmentationConfig::Holes { seed, .. }
            | FragmentationConfig::MixedHoles { seed, .. }
            | FragmentationConfig::Faults { seed, .. }
            | FragmentationConfig::OrderMix { seed, .. }
            | FragmentationConfig::Snapshot { seed, .. } => seed,
        }
    }
}

impl TlbConfig {
    /// The level that instruction fetches look up first.
    pub fn fetch(&self) -> &TlbLevel {
        match &self.first {
            FirstLevel::Split { l1i, .. } => l1i,
            FirstLevel::Unified { l1 } => l1,
        }
    }

    /// The level that loads and stores look up first.
    pub fn data(&self) -> &TlbLevel {
        match &self.first {
            FirstLevel::Split { l1d, .. } => l1d,
            FirstLevel::Unified { l1 } => l1,
        }
    }

    /// The levels by their keys, in the order of looking up.
    pub fn levels(&self) -> impl Iterator<Item = (&'static str, &TlbLevel)> {
        let first = match &self.first {
            FirstLevel::Split { l1i, l1d } => [Some(("l1i", l1i)), Some(("l1d", l1d))],
            FirstLevel::Unified { l1 } => [Some(("l1", l1)), None],
        };
        first.into_iter().flatten().chain(self.l2.as_ref().map(|l2| ("l2", l2)))
    }
}

impl TlbArray {
    /// The entries as sets and ways.
    ///
    /// # Errors
    ///
    /// If there can be no such array.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::of_entries(self.entries, self.ways.of(self.entries))
    }
}

impl WalkerConfig {
    /// The page-walk caches, in the order in which they are written.
    pub fn walk_caches(&self) -> Vec<WalkCacheConfig> {
        self.caches.values().map(WalkCache::config).collect()
    }
}

impl HostConfig {
    /// The walk caches of its table, in the order in which they are written.
    pub fn walk_caches(&self) -> Vec<WalkCacheConfig> {
        self.walk_caches.values().map(WalkCache::config).collect()
    }
}

impl WalkCache {
    /// The cache for a page table of nine bits a level, at a level that has been checked.
    pub fn config(&self) -> WalkCacheConfig {
        WalkCacheConfig {
            ways: self.ways.of(self.entries),
            replacement: self.replacement,
            ..WalkCacheConfig::x86_64(self.level, self.entries)
        }
    }
}

impl CacheLevel {
    /// The cache with lines of `line_bytes`.
    pub fn with_lines(&self, line_bytes: u64) -> CacheConfig {
        let CacheLevel { bytes, ways, latency_cycles, replacement, .. } = *self;
        // Lines of 0 bytes make no sets; the checks refuse such a cache.
        let lines = bytes.checked_div(line_bytes).unwrap_or(0);
        CacheConfig { bytes, ways: ways.of(lines), line_bytes, latency_cycles, replacement }
    }
}
