//! The arrays that translation designs are built from: TLBs, page-walk caches, data caches.
//!
//! Independent of operating systems and page tables. [`SetArray`] is the set-associative array of keys, with
//! a [`Replacement`] policy, that all others are built from; [`AnySizeArray`] is a TLB whose entries each
//! have their own page size; [`Caches`] are the data caches of a core; [`WalkCaches`] cache upper levels of
//! page walks; [`VirtualCaches`] are data caches by virtual address.
//!
//! Each is compared with a plain model in `octavo-oracle`, exactly, access by access.

mod array;
mod asid;
mod caches;
mod virtual_caches;
mod walk_caches;

pub use array::{
    AnySizeArray, Geometry, GeometryError, KeyIndex, NO_KEY, ParseReplacementError, Replacement,
    SetArray, Slot,
};
pub use asid::Asid;
pub use caches::{
    CacheConfig, CacheCounters, CacheError, Caches, DataAccess, LevelPrefetchers, MemoryCounters,
    MemoryTierConfig, MemoryTransfer, Prefetch, PrefetchBounds, PrefetchCounters, PrefetchLevel,
    PrefetchersConfig, PrivateCaches, PrivateConfig, PrivateCounters, PteEntry, RegionConfig,
    Served, ServedBy, SharedCache, SharedConfig, SideNumber, StreamerConfig, StrideConfig,
    TranslationCounters, TranslationLine, TranslationWords,
};
pub use virtual_caches::{
    Change, GlobalAddr, L1Lookup, L2Lookup, Line, Swept, VirtualCacheConfig, VirtualCacheError,
    VirtualCaches, WriteBack,
};
pub use walk_caches::{WalkCacheConfig, WalkCacheCounters, WalkCacheError, WalkCaches};
