//! The configuration and the results of two page sizes.

use octavo_types::PageSize;

use crate::sets::MAX_WAYS;

/// Two page sizes and when the large one is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoSizesConfig {
    /// The size of a block.
    pub small: PageSize,
    /// The size of a chunk, larger.
    pub large: PageSize,
    /// The window T of the policy.
    pub window_refs: u64,
    /// How many blocks of a chunk must have been referenced in the window for it to be one large
    /// page: 1 to as many as it has.
    pub threshold_blocks: u32,
    /// For fully associative TLBs, the largest number of entries.
    pub max_entries: u32,
    /// For set-associative ones, how many sets, as a logarithm.
    pub max_sets_log2: u8,
    /// The windows of the working sets (the policy's window is then this one).
    pub windows_refs: Vec<u64>,
}

/// How a set-associative TLB for two page sizes is indexed (section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TwoSizesIndex {
    /// By the small page number: a large page may be in several sets.
    Small,
    /// By the large page number: the blocks of a chunk share a set.
    Large,
    /// By the number of the page as it is: the same contents whether both sets are looked up at
    /// once or one after the other.
    Exact,
    /// A TLB for each page size; this is the one for small pages.
    SplitSmall,
    /// And this the one for large pages.
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
    /// How they are indexed.
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
    /// Set-associative ones, by index.
    pub sets: Vec<TwoSizesSets>,
}

impl TwoSizesTlbs {
    /// Several cores' together, of which there is at least one.
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
    /// Look-ups while the page was small, and while it was large: a reference that spans two pages
    /// makes two. With sequential access of an exactly indexed TLB each look-up of a large page,
    /// and each miss on a small one, needs a second probe.
    pub small_lookups: u64,
    /// See `small_lookups`.
    pub large_lookups: u64,
    /// Chunks that became large pages.
    pub promotions: u64,
    /// Large pages that became small ones again.
    pub demotions: u64,
    /// Blocks of promoted chunks that had been touched before: to be copied.
    pub blocks_copied: u64,
    /// Blocks of promoted chunks that had not: to be zeroed, or read in.
    pub blocks_zeroed: u64,
    /// Fully associative TLBs.
    pub stack: TwoSizesStack,
    /// Set-associative ones, by index.
    pub sets: Vec<TwoSizesSets>,
    /// For each of the windows, the bytes in the working set summed over all references.
    pub working_set_byte_refs: Vec<u128>,
}
