//! What the engine makes of a machine's description.

use octavo_config::{FirstLevel, MachineConfig, MachineError, SoftvmConfig, TlbConfig, TlbsHold};
use octavo_hw::{CacheError, GeometryError, VirtualCacheError, WalkCacheError};
use octavo_os::frames::MemorySizeError;
use octavo_os::frames::fragmentation::FragmentationError;

use crate::front::{FetchSets, Filter, Front, Lines};

/// A machine that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A cache.
    #[error("cache.{0}")]
    Cache(#[from] CacheError),
    /// A setting that a design has for itself.
    #[error("{design}: {error}")]
    Setting {
        /// As asked for.
        design: String,
        /// What is wrong.
        error: MachineError,
    },
    /// A virtual cache.
    #[error("softvm: {0}")]
    VirtualCache(#[from] VirtualCacheError),
    /// A TLB.
    #[error("tlb.{level}: {error}")]
    Tlb {
        /// `l1`, `l1i`, `l1d` or `l2`.
        level: &'static str,
        /// What is wrong.
        error: GeometryError,
    },
    /// The nested TLB.
    #[error("host.tlb: {0}")]
    NestedTlb(GeometryError),
    /// A host that cannot be, or a policy of it.
    #[error("host.{0}")]
    Host(Box<ConfigError>),
    /// Faults of a guest's memory, under hardware that has them in the host's.
    #[error(
        "memory.fragmentation = faults: under {hardware} a guest's memory has none, but its host's may: \
         give host.memory.fragmentation instead"
    )]
    FaultsOfGuest {
        /// Its name.
        hardware: &'static str,
    },
    /// Stores of programs in a guest, of which nobody is told.
    #[error(
        "same_pages = {given}: pages are merged on machines without a guest alone: leave it, or \
         --virtualised and host.…, out"
    )]
    NoMerging {
        /// As asked for.
        given: String,
    },
    /// Accessed and dirty bits of parts, where there can be none.
    #[error("vector_bits = {bits}: give 0: {why}")]
    NoVectors {
        /// As asked for.
        bits: u8,
        /// What is wrong.
        why: &'static str,
    },
    /// A policy of the host that the design cannot have.
    #[error("policy = {policy}: {why}")]
    HostPolicy {
        /// As asked for.
        policy: String,
        /// What is wrong, and what to give instead.
        why: String,
    },
    /// A walk cache.
    #[error("walker: {0}")]
    WalkCache(#[from] WalkCacheError),
    /// The memory.
    #[error("memory: {0}")]
    Memory(#[from] MemorySizeError),
    /// What memory is like at the start.
    #[error("memory.fragmentation: {0}")]
    Fragmentation(#[from] FragmentationError),
}

/// Where lines lie.
pub fn lines(config: &MachineConfig) -> Lines {
    Lines::of_bytes(config.cache.line_bytes)
}

/// The front of such a machine.
pub fn front(config: &MachineConfig, filter: Filter) -> Front {
    Front::new(lines(config), filter, fetch_sets(config))
}

/// How it sorts fetched lines.
fn fetch_sets(config: &MachineConfig) -> FetchSets {
    let l1i = &config.cache.l1i;
    let lines = l1i.bytes / config.cache.line_bytes;
    FetchSets::new((lines / l1i.ways.of(lines)).max(1), self::lines(config))
}

/// Which repeats the front may leave out for such a machine.
pub fn filter(config: &MachineConfig) -> Filter {
    let TlbConfig { first, .. } = &config.tlb;
    let levels = [config.tlb.fetch(), config.tlb.data()];
    let arrays = levels.into_iter().flat_map(|level| level.arrays.values());
    let SoftvmConfig { l1: virtual_l1, .. } = config.softvm;
    let caches =
        [config.cache.l1i.replacement, config.cache.l1d.replacement, virtual_l1.replacement];
    // Halves of translations are looked up for every reference of either side.
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
