//! Tailored Page Sizes (Guvenilir and Patt, ISCA 2020, section III.A.2): entries of first-level data TLBs
//! have a mask each, so that they hold pages of any size.
//!
//! - In the paper's machine, whose first level has an array per page size, a fully associative array with
//!   masks replaces the arrays of larger pages. The array of base pages stays.
//! - A fully associative array that holds base pages beside larger ones already compares whole page numbers
//!   (the paper's example is AMD's Zen). It keeps its entries, which get masks; other arrays of larger pages
//!   are removed, and no array is added.
//! - The set index consists of bits of the page number, which depend on the page size, so that entries of
//!   set-associative arrays cannot have masks. A set-associative array that holds base pages beside larger
//!   ones stays unchanged, and the array with masks is added.
//!
//! The second level is unchanged, as in the paper: a tailored page is filled there in parts of a supported
//! size. Beyond the paper, such a part records the page that it belongs to, so that a second-level hit fills
//! the whole page into the first level. (Otherwise a page evicted from the first level would return in 4 KiB
//! pieces.) The instruction side is unchanged, too.

mod policy;

use octavo_config::{FirstLevel, MachineConfig, PageSizes, TlbArray, TlbConfig, Ways};
use octavo_hw::Replacement;
use octavo_os::policy::{OsConfig, PolicyEntry};
use octavo_types::PageSize;

use super::Conventional;
use super::build::{self, Tables};
use super::registry::{
    Family, MachineResult, NamedDesign, Requirement, Setup, Sizes, TranslationHardware,
};
pub use policy::{Span, TAILORED_PAGES, Tps, TpsConfig};

/// Tailored Page Sizes.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    policies: &[PolicyEntry::new::<TpsConfig>("tps", "tailored page sizes: reservations and pages of every power of two that grow in place")],
    ..Family::new(
        &[TranslationHardware {
            sizes: Sizes::All,
            needs: Some(&Requirement { capability: TAILORED_PAGES, is_of_host: false }),
            ..TranslationHardware::new("tps", make)
        }],
        &[NamedDesign { name: "tps", hardware: "tps", policy: "tps", about: "Tailored Page Sizes: pages of every power of two", figure: "power-of-two-pages" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let tlbs = tlbs(&config.tlb);
    let format = os.policy.page_table_format();
    let tables = Tables { sizes: Sizes::All, format, ..Tables::default() };
    build::machine_with_tables(config, setup, tables, os, |_| {
        let tlbs = Conventional::new(&tlbs, setup.instructions)?.filling_whole_pages();
        Ok(tlbs.with_vectors(format.vector_bits))
    })
}

/// Entries of the added array (section III.A.2).
const ENTRIES: u64 = 32;
/// Its name.
const NAME: &str = "tps";

/// The TLBs of a machine, changed for tailored pages.
fn tlbs(machine: &TlbConfig) -> TlbConfig {
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

/// Whether an array is fully associative and also holds larger pages.
fn can_have_masks(array: &TlbArray) -> bool {
    let holds_larger = array.page_sizes != PageSizes::List(vec![PageSize::BASE]);
    array.ways.of(array.entries) == array.entries && holds_larger
}
