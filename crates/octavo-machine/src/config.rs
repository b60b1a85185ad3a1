//! Derives front settings from a machine description, and the errors of machine construction.

use octavo_config::{
    BranchPrediction, FirstLevel, MachineConfig, MachineError, Resolved, TlbConfig, TlbsHold,
};
use octavo_hw::{CacheError, GeometryError, VirtualCacheError, WalkCacheError};
use octavo_os::frames::MemorySizeError;
use octavo_os::frames::fragmentation::FragmentationError;

use crate::designs::registry::design_tables;
use crate::front::{FetchSets, Filter, Front, Lines};

/// A machine description that no machine can be built from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// An invalid cache.
    #[error("cache.{0}")]
    Cache(#[from] CacheError),
    /// An invalid setting of one design.
    #[error("{0}")]
    Setting(MachineError),
    /// An invalid virtual cache.
    #[error("{table}: {error}")]
    VirtualCache {
        /// The table of its settings.
        table: &'static str,
        /// The error.
        error: VirtualCacheError,
    },
    /// An invalid TLB array.
    #[error("tlb.{level}: {error}")]
    Tlb {
        /// `l1`, `l1i`, `l1d` or `l2`.
        level: &'static str,
        /// The error.
        error: GeometryError,
    },
    /// A second-level TLB outside of the simulator that cannot be made.
    #[error("{0}")]
    Outside(String),
    /// An invalid nested TLB.
    #[error("host.tlb: {0}")]
    NestedTlb(GeometryError),
    /// An invalid host or host policy.
    #[error("host.{0}")]
    Host(Box<ConfigError>),
    /// A guest that a design rejects, in its own words.
    #[error("{0}")]
    Guest(&'static str),
    /// Memory tiers of designs whose caches see no physical addresses.
    #[error(
        "memory.tiers: {hardware} have one kind of memory: give other designs, \
         or memory.tiers=none"
    )]
    NoTiers {
        /// The hardware of such designs.
        hardware: &'static str,
    },
    /// Merging of identical pages in a guest, where the operating system does not observe stores.
    #[error(
        "same_pages = {given}: only machines without a guest merge pages: omit it, or \
         --virtualised and host.…"
    )]
    NoMerging {
        /// As given by the user.
        given: String,
    },
    /// Accessed and dirty vectors where page tables cannot hold them.
    #[error("vector_bits = {bits}: give 0: {why}")]
    NoVectors {
        /// As given by the user.
        bits: u8,
        /// The error.
        why: &'static str,
    },
    /// A host policy that the design does not support.
    #[error("policy = {policy}: {why}")]
    HostPolicy {
        /// As given by the user.
        policy: String,
        /// The error and the remedy.
        why: String,
    },
    /// An invalid walk cache.
    #[error("walker: {0}")]
    WalkCache(#[from] WalkCacheError),
    /// An invalid memory size.
    #[error("memory: {0}")]
    Memory(#[from] MemorySizeError),
    /// An invalid initial state of memory.
    #[error("memory.fragmentation: {0}")]
    Fragmentation(#[from] FragmentationError),
}

impl ConfigError {
    /// Whether the initial state of the machine's memory, or of its host's, is the error.
    pub fn is_of_memory(&self) -> bool {
        match self {
            ConfigError::Fragmentation(_) => true,
            ConfigError::Host(error) => error.is_of_memory(),
            _ => false,
        }
    }
}

/// [`DesignTables::resolve`](octavo_config::DesignTables::resolve) with the tables of all designs.
///
/// # Errors
///
/// If it is not a valid machine.
pub fn resolve<S: AsRef<str>>(machine: &str, settings: &[S]) -> Result<Resolved, MachineError> {
    design_tables().resolve(machine, settings)
}

/// [`DesignTables::resolve_text`](octavo_config::DesignTables::resolve_text) with the tables of all designs.
///
/// # Errors
///
/// If it is not a valid machine.
pub fn resolve_text<S: AsRef<str>>(
    name: &str,
    text: &str,
    settings: &[S],
) -> Result<Resolved, MachineError> {
    design_tables().resolve_text(name, text, settings)
}

/// The line geometry of the caches.
pub fn lines(config: &MachineConfig) -> Lines {
    Lines::of_bytes(config.cache.line_bytes)
}

/// The settings of a machine that its front depends on, beside the filter.
#[derive(Clone, PartialEq, Debug)]
pub struct FrontShape {
    lines: Lines,
    fetch_sets: FetchSets,
    levels: u8,
    cores: u32,
    /// How cores predict branches, and whether they follow wrong paths.
    branches: Option<(BranchPrediction, bool)>,
}

/// The settings of a machine that its front depends on, beside the filter.
pub fn shape(config: &MachineConfig) -> FrontShape {
    FrontShape {
        lines: lines(config),
        fetch_sets: fetch_sets(config),
        levels: config.page_table.levels,
        cores: config.core.count,
        branches: config.core.pipeline.as_ref().map(|core| (core.branches, core.wrong_paths)),
    }
}

/// Whether a prefetcher uses the address of the instruction of an access.
pub fn notes_sites(config: &MachineConfig) -> bool {
    let levels = config.prefetchers().levels;
    levels.iter().any(|level| level.stride.is_some() || level.region.is_some())
}

/// The front of a machine. With `notes_sites`, it notes the instruction of each access to data.
pub fn front(config: &MachineConfig, filter: Filter, notes_sites: bool) -> Front {
    let front = Front::new(lines(config), filter, fetch_sets(config));
    let front = front.noting_sites(notes_sites);
    match &config.core.pipeline {
        None => front,
        Some(pipeline) => front.for_cores(pipeline.branches, pipeline.wrong_paths),
    }
}

/// The sets by which the front sorts fetched lines.
fn fetch_sets(config: &MachineConfig) -> FetchSets {
    let l1i = &config.cache.l1i;
    let lines = l1i.bytes / config.cache.line_bytes;
    FetchSets::new((lines / l1i.ways.of(lines)).max(1), self::lines(config))
}

/// The strongest filter of repeats that keeps the counts of this machine exact.
pub fn filter(config: &MachineConfig) -> Filter {
    let TlbConfig { first, .. } = &config.tlb;
    let levels = [config.tlb.fetch(), config.tlb.data()];
    let arrays = levels.into_iter().flat_map(|level| level.arrays.values());
    let caches = [config.cache.l1i.replacement, config.cache.l1d.replacement];
    let caches = caches.into_iter().chain(config.designs.first_level_replacements());
    // If TLBs hold guest halves of translations, every fetch and every access to data looks up the nested TLB.
    let halves = config.host.as_ref().filter(|host| host.tlbs_hold == TlbsHold::Halves);
    let nested = halves.iter().filter_map(|host| host.tlb.as_ref());
    let nested = nested.flat_map(|level| level.arrays.values());
    let mut policies = arrays.chain(nested).map(|array| array.replacement).chain(caches);
    if policies.any(|policy| policy.retouch_changes()) {
        return Filter::Nothing;
    }
    match first {
        FirstLevel::Split { .. } if halves.is_none() => Filter::BySide,
        _ => Filter::Adjacent,
    }
}
