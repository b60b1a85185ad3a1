//! The configuration and the results of two page sizes.

use octavo_types::PageSize;

use crate::lanes::MAX_WAYS;

/// Two page sizes, and the conditions of the large one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoSizesConfig {
    /// The size of a block.
    pub small: PageSize,
    /// The size of a chunk, larger.
    pub large: PageSize,
    /// The window T of the policy.
    pub window_refs: u64,
    /// Number of blocks of a chunk that must be in the window for the chunk to be a large page: from 1 to all
    /// its blocks.
    pub threshold_blocks: u32,
    /// The most entries of fully associative TLBs.
    pub max_entries: u32,
    /// log2 of the most sets of set-associative TLBs.
    pub max_sets_log2: u8,
    /// The windows of the working sets, each with a policy of the same window.
    pub windows_refs: Vec<u64>,
}

/// The index of a set-associative TLB for two page sizes (section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TwoSizesIndex {
    /// The small page number: a large page may be in several sets.
    Small,
    /// The large page number: the blocks of a chunk share a set.
    Large,
    /// The number of the page at its own size. The contents are the same whether the two possible sets are
    /// looked up in parallel or one after the other.
    Exact,
    /// The TLB for small pages, if each page size has a TLB.
    SplitSmall,
    /// The TLB for large pages, if each page size has a TLB.
    SplitLarge,
}

/// Misses of fully associative TLBs, with the page size in the tag.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TwoSizesStack {
    /// Misses on small pages with *n* entries, at index *n* - 1.
    pub small_misses: Vec<u64>,
    /// Misses on large pages, likewise.
    pub large_misses: Vec<u64>,
    /// Entries that changes of page size invalidated, likewise.
    pub invalidated: Vec<u64>,
}

/// Misses of set-associative TLBs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TwoSizesSets {
    /// Their index.
    pub index: TwoSizesIndex,
    /// Misses on small pages with 2^*s* sets of *w* ways, at `[s][w - 1]`.
    pub small_misses: Vec<[u64; MAX_WAYS]>,
    /// Misses on large pages, likewise.
    pub large_misses: Vec<[u64; MAX_WAYS]>,
    /// Entries that changes of page size invalidated, likewise.
    pub invalidated: Vec<[u64; MAX_WAYS]>,
}

/// The results of one core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TwoSizesTlbs {
    /// See [`TwoSizesResult::small_lookups`].
    pub small_lookups: u64,
    /// See [`TwoSizesResult::small_lookups`].
    pub large_lookups: u64,
    /// Fully associative TLBs.
    pub stack: TwoSizesStack,
    /// Set-associative TLBs, by index.
    pub sets: Vec<TwoSizesSets>,
}

impl TwoSizesTlbs {
    /// The sum over cores, of which there must be at least one.
    pub fn sum(several: Vec<TwoSizesTlbs>) -> TwoSizesTlbs {
        let add = |mut sum: TwoSizesTlbs, other: TwoSizesTlbs| {
            sum.small_lookups += other.small_lookups;
            sum.large_lookups += other.large_lookups;
            for (sum, other) in [
                (&mut sum.stack.small_misses, &other.stack.small_misses),
                (&mut sum.stack.large_misses, &other.stack.large_misses),
                (&mut sum.stack.invalidated, &other.stack.invalidated),
            ] {
                add_counts(sum, other);
            }
            for (sum, other) in sum.sets.iter_mut().zip(&other.sets) {
                add_counts(sum.small_misses.as_flattened_mut(), other.small_misses.as_flattened());
                add_counts(sum.large_misses.as_flattened_mut(), other.large_misses.as_flattened());
                add_counts(sum.invalidated.as_flattened_mut(), other.invalidated.as_flattened());
            }
            sum
        };
        several.into_iter().reduce(add).expect("there is a core")
    }
}

/// Adds other counts of the same TLBs.
pub(crate) fn add_counts(sum: &mut [u64], other: &[u64]) {
    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
}

/// The results of two page sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TwoSizesResult {
    /// The configuration.
    pub config: TwoSizesConfig,
    /// Look-ups of small pages. A reference that spans two pages makes two look-ups. With sequential access of
    /// an exactly indexed TLB, each look-up of a large page, and each miss on a small page, needs a second
    /// probe.
    pub small_lookups: u64,
    /// Look-ups of large pages.
    pub large_lookups: u64,
    /// Chunks that became large pages.
    pub promotions: u64,
    /// Large pages that became small ones again.
    pub demotions: u64,
    /// Blocks of promoted chunks that had been touched before, which must be copied.
    pub blocks_copied: u64,
    /// Blocks of promoted chunks that had not been touched before, which must be zeroed or read.
    pub blocks_zeroed: u64,
    /// Fully associative TLBs.
    pub stack: TwoSizesStack,
    /// Set-associative TLBs, by index.
    pub sets: Vec<TwoSizesSets>,
    /// The bytes in the working set of each window, summed over all references.
    pub working_set_byte_refs: Vec<u128>,
}
