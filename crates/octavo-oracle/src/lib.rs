//! Slow, obvious models of the fast engines, for tests only.
//!
//! The models are written to be checked by reading: lists in recency order, sets of pages, one reference at a
//! time. A fast path is correct if it gives exactly the same numbers.

mod allocations;
mod any_size;
mod array;
mod buddy;
mod caches;
#[cfg(feature = "proptest")]
mod cases;
mod compaction;
pub mod hostile;
mod khugepaged;
mod machine_tlbs;
#[cfg(feature = "proptest")]
mod page_sequence;
mod prefetch;
mod references;
mod reservations;
mod residency;
mod sampled;
mod sets;
mod spaces;
#[cfg(feature = "proptest")]
pub mod strategies;
mod study;
mod time_slicing;
mod tlb;
mod two_sizes;
mod virtual_caches;
mod walk_caches;
mod working_set;

pub use allocations::{NaiveAllocations, NaiveBlockCounts};
pub use any_size::NaiveAnySize;
pub use array::{NaiveArray, NaiveReplacement};
pub use buddy::NaiveBuddy;
pub use caches::{NaiveCaches, NaiveCounts, NaivePrefetch, NaivePrefetchCounts};
#[cfg(feature = "proptest")]
pub use cases::{cases, factor};
pub use compaction::{NaiveCompaction, NaiveFrame};
pub use khugepaged::{NaiveHugeRange, NaiveKhugepaged};
pub use machine_tlbs::{NaiveMachineTlbs, NaiveShape};
pub use prefetch::{NaiveBounds, NaivePrefetchers, NaiveRegion, NaiveStreamer, NaiveStride};
pub use references::{NaiveReferences, Reference};
pub use reservations::NaiveReservations;
pub use residency::NaiveResidency;
pub use sampled::NaiveSampledDepths;
pub use sets::NaiveSets;
pub use spaces::{NaiveSpaces, file_value};
pub use study::{Lookups, NaiveStudy, ReferenceCounts, Stream};
pub use time_slicing::{NaiveArrival, NaiveProcess, NaiveStep, round_robin};
pub use tlb::{NaiveHierarchy, NaiveTlb};
pub use two_sizes::{NaiveTwoSizes, NaiveTwoSizesIndex, NaiveTwoSizesTlb};
pub use virtual_caches::{NaiveChange, NaiveFound, NaiveVirtualSide, NaiveWriteBack};
pub use walk_caches::{NaiveWalkCache, NaiveWalkCaches};
pub use working_set::NaiveWorkingSet;

use octavo_types::{AddressPlace, Item, ItemKind, PageNumber, PageSize, Segment, VirtAddr};

/// Shifts the offsets of each address group so that its lowest item lies at the address of the group.
fn lowest_at_start(mut places: Vec<AddressPlace>) -> Vec<AddressPlace> {
    for group in places.chunk_by_mut(|_, next| !next.leads) {
        let lowest = group.iter().map(|place| place.offset).min().unwrap_or_default();
        group.iter_mut().for_each(|place| place.offset -= lowest);
    }
    places
}

/// Maps an address of the traced program to the address that is studied.
type Relocate<'a> = Box<dyn Fn(VirtAddr) -> VirtAddr + 'a>;

/// Each item of `segment` that executed, with the address that it touched, in order.
fn executed<'a>(
    segment: &'a Segment,
    addresses: &'a [VirtAddr],
) -> impl Iterator<Item = (&'a Item, VirtAddr)> {
    assert_eq!(segment.data().len(), addresses.len(), "one address per data item");
    let mut addresses = addresses.iter();
    segment.items().iter().filter_map(move |item| {
        if item.kind == ItemKind::Fetch {
            return Some((item, item.addr));
        }
        let addr = *addresses.next().expect("one address per data item");
        let skipped = item.guarded && addr == VirtAddr::NULL;
        (!skipped).then_some((item, addr))
    })
}

/// Each page of `size` that `bytes` bytes from `addr` touch, in address order, with the first
/// byte touched in it.
fn pages_touched(addr: VirtAddr, bytes: u16, size: PageSize) -> Vec<(PageNumber, VirtAddr)> {
    let last_page = addr.wrapping_add(u64::from(bytes) - 1).page(size);
    let mut touched = vec![(addr.page(size), addr)];
    if last_page != addr.page(size) {
        touched.push((last_page, VirtAddr::new(last_page.raw() << size.log2())));
    }
    touched
}
