//! The part of a table that is never touched, computed from a seed and not stored.

use octavo_types::values::WHOLE;

use super::permutation::Permutation;
use super::plan::UnusedPlan;
use crate::splitmix::splitmix;

const PAGE_BYTES: u64 = 4096;
/// The size of a large page: unused base pages are placed in each such region.
pub(super) const REGION_BYTES: u64 = 2 << 20;
const REGION_PAGES: u64 = REGION_BYTES / PAGE_BYTES;

/// Computes which part of one table is unused.
pub(super) enum Unused {
    /// `holes` base pages in each of `fragmented` regions of the table.
    Pages { regions: Permutation, fragmented: u64, holes: u64, clustered: bool, seed: u64 },
    /// Whole slots of one size, and the rest behind the last slot.
    Slots { slots: Permutation, count: u64, unused: u64, slot_bytes: u64 },
}

impl Unused {
    /// The same plan and size give the same unused part for every loop over the table.
    pub(super) fn new(plan: &UnusedPlan, table_bytes: u64) -> Self {
        let part_of = |all: u64, share: u64| {
            let product = u128::from(all) * u128::from(share);
            ((product + u128::from(WHOLE / 2)) / u128::from(WHOLE)) as u64
        };
        match *plan {
            UnusedPlan::Pages { share, portion, clustered, seed } => {
                let regions = table_bytes / REGION_BYTES;
                Unused::Pages {
                    regions: Permutation::new(regions, seed),
                    fragmented: part_of(regions, portion),
                    holes: part_of(REGION_PAGES, share),
                    clustered,
                    seed,
                }
            }
            UnusedPlan::Slots { share, slot_bytes, seed } => {
                let count = table_bytes / slot_bytes;
                Unused::Slots {
                    slots: Permutation::new(count, seed),
                    count,
                    // At least one slot is used.
                    unused: part_of(count, share).min(count - 1),
                    slot_bytes,
                }
            }
        }
    }

    /// Whether the byte at an offset is never touched.
    pub(super) fn has(&self, offset: u64) -> bool {
        match self {
            Unused::Pages { regions, fragmented, holes, clustered, seed } => {
                let (region, page) = (offset / REGION_BYTES, offset / PAGE_BYTES % REGION_PAGES);
                if *holes == 0 || regions.at(region) >= *fragmented {
                    return false;
                }
                // A number below `limit` that is the same for the same region and part.
                let drawn = |part: u64, limit: u64| {
                    let at = seed ^ (region * (REGION_PAGES + 1) + part + 1);
                    ((u128::from(splitmix(at)) * u128::from(limit)) >> 64) as u64
                };
                if *clustered {
                    let first = drawn(REGION_PAGES, REGION_PAGES - holes + 1);
                    return (first..first + holes).contains(&page);
                }
                // The region has an equal part for each hole, which lies somewhere in its part.
                let part = ((page + 1) * holes - 1) / REGION_PAGES;
                let (low, high) = (part * REGION_PAGES / holes, (part + 1) * REGION_PAGES / holes);
                page == low + drawn(part, high - low)
            }
            Unused::Slots { slots, count, unused, slot_bytes } => {
                let slot = offset / slot_bytes;
                slot >= *count || slots.at(slot) < *unused
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Counts page by page: as many regions have holes as they should, each as many, in the
        /// right places.
        #[test]
        fn unused_pages_are_as_planned(
            regions in 1u64..20,
            share in 0u64..=990_000_000,
            portion in 0..=WHOLE,
            clustered: bool,
            seed: u64,
        ) {
            let plan = UnusedPlan::Pages { share, portion, clustered, seed };
            let unused = Unused::new(&plan, regions * REGION_BYTES);
            let holes = (512.0 * share as f64 / WHOLE as f64).round() as usize;
            let mut fragmented = 0;
            for region in 0..regions {
                let at = |page: &usize| {
                    unused.has(region * REGION_BYTES + *page as u64 * PAGE_BYTES + seed % 4096)
                };
                let found: Vec<usize> = (0..512).filter(at).collect();
                if found.is_empty() {
                    continue;
                }
                fragmented += 1;
                prop_assert_eq!(found.len(), holes);
                for (hole, at) in found.iter().enumerate() {
                    if clustered {
                        prop_assert_eq!(*at, found[0] + hole);
                    } else {
                        let part = hole * 512 / holes..(hole + 1) * 512 / holes;
                        prop_assert!(part.contains(at), "{hole} of {holes}: {at}");
                    }
                }
            }
            let wanted = (regions as f64 * portion as f64 / WHOLE as f64).round() as u64;
            prop_assert_eq!(fragmented, if holes == 0 { 0 } else { wanted });
        }

        #[test]
        fn unused_slots_are_as_planned(
            slots in 1u64..2000,
            rest in 0u64..4096,
            share in 0u64..=990_000_000,
            seed: u64,
        ) {
            let slot_bytes = 20480;
            let plan = UnusedPlan::Slots { share, slot_bytes, seed };
            let unused = Unused::new(&plan, slots * slot_bytes + rest);
            let found = (0..slots).filter(|slot| unused.has(slot * slot_bytes + 7)).count() as u64;
            let wanted = (slots as f64 * share as f64 / WHOLE as f64).round() as u64;
            prop_assert_eq!(found, wanted.min(slots - 1));
            prop_assert!(unused.has(slots * slot_bytes), "what is left at the end is not a slot");
        }
    }
}
