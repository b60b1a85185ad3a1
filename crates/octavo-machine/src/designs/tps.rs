//! Tailored Page Sizes (Guvenilir and Patt, ISCA 2020, section III.A.2): the first-level arrays for
//! larger pages give way to one whose entries have any size.
//!
//! The second level stays as it is, as the paper has it: a tailored page goes in there by parts of a
//! size that it holds. What the paper does not say: such a part knows the page that it is of, so
//! that a hit there fills the whole page into the first level. (Else a page that has left the
//! first level would come back in pieces of 4 KiB until all of them are gone.) The instruction side
//! stays as it is, too.

use octavo_config::{FirstLevel, PageSizes, TlbArray, TlbConfig, Ways};
use octavo_hw::Replacement;
use octavo_types::PageSize;

/// Entries of the any-size TLB (section III.A.2).
const ENTRIES: u64 = 32;
/// The name of the any-size array.
const NAME: &str = "tps";

/// The TLBs of a machine, changed for tailored pages.
pub fn tlbs(machine: &TlbConfig) -> TlbConfig {
    let mut tlbs = machine.clone();
    let (FirstLevel::Split { l1d: data, .. } | FirstLevel::Unified { l1: data }) = &mut tlbs.first;
    data.arrays.retain(|_, array| array.page_sizes == PageSizes::List(vec![PageSize::BASE]));
    let any_size = TlbArray {
        entries: ENTRIES,
        ways: Ways::Full,
        page_sizes: PageSizes::Any,
        replacement: Replacement::Lru,
    };
    data.arrays.insert(NAME.to_owned(), any_size);
    tlbs
}
