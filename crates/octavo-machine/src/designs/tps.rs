//! Tailored Page Sizes (Guvenilir and Patt, ISCA 2020, section III.A.2): entries of first-level data
//! TLBs have a mask each, so that they hold pages of any size.
//!
//! - In the paper's machine, whose first level has an array for each page size, a fully associative
//!   array with masks takes the place of those for larger pages. The array for base pages stays.
//! - A fully associative array that holds base pages beside larger ones compares whole page numbers
//!   already (the paper's example is AMD's Zen). It keeps its entries, each of which gets a mask; arrays
//!   for larger pages beside it go, and no other array is added.
//! - Sets are chosen by bits of the page number, which differ with the page size: no entry of a
//!   set-associative array can have a mask. One that holds base pages beside larger ones stays as it
//!   is, and the array with masks stands beside it.
//!
//! The second level stays as it is, as the paper has it: a tailored page goes in there by parts of a
//! size that it holds. What the paper does not say: such a part knows the page that it is of, so
//! that a hit there fills the whole page into the first level. (Else a page that has left the
//! first level would come back in pieces of 4 KiB until all of them are gone.) The instruction side
//! stays as it is, too.

use octavo_config::{FirstLevel, PageSizes, TlbArray, TlbConfig, Ways};
use octavo_hw::Replacement;
use octavo_types::PageSize;

/// Entries of the array that is added (section III.A.2).
const ENTRIES: u64 = 32;
/// Its name.
const NAME: &str = "tps";

/// The TLBs of a machine, changed for tailored pages.
pub fn tlbs(machine: &TlbConfig) -> TlbConfig {
    let mut tlbs = machine.clone();
    let (FirstLevel::Split { l1d: data, .. } | FirstLevel::Unified { l1: data }) = &mut tlbs.first;
    data.arrays.retain(|_, array| array.page_sizes.hold(PageSize::BASE));
    if let Some(array) = data.arrays.values_mut().find(|array| can_have_masks(array)) {
        array.page_sizes = PageSizes::Any;
        return tlbs;
    }
    let any_size = TlbArray {
        entries: ENTRIES,
        ways: Ways::Full,
        page_sizes: PageSizes::Any,
        replacement: Replacement::Lru,
    };
    data.arrays.insert(NAME.to_owned(), any_size);
    tlbs
}

/// Whether an array is fully associative and holds larger pages, too.
fn can_have_masks(array: &TlbArray) -> bool {
    let holds_larger = array.page_sizes != PageSizes::List(vec![PageSize::BASE]);
    array.ways.of(array.entries) == array.entries && holds_larger
}
