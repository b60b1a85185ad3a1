//! Clustered TLB (Pham, Bhattacharjee, Eckert and Loh, "Increasing TLB Reach by Exploiting Clustering in Page
//! Translations", HPCA 2014): a part of the second level holds *clusters*, aligned groups of eight pages whose frames
//! lie in one aligned group of eight frames, in any order. CoLT requires the same order.
//!
//! - An entry has the numbers of both groups, and for each page of the group a valid bit and the low three bits of
//!   its frame. It has one set of permissions and one dirty bit.
//! - A walk sees, at no cost, the line of eight page-table entries around the one that it reads. Entries of this
//!   line that are present, accessed, in the same group of frames as the requested page, and alike in permissions
//!   and dirty bit, fill one TLB entry. If they are fewer than `clustered_tlb.min_pages`, the requested page
//!   alone is filled into the conventional part.
//! - Both parts are looked up together. The first level holds single pages.
//! - An invalidation clears the valid bits of its pages. So does a store to a clean page, before the walk that it
//!   causes fills the page again.
//!
//! Assumptions: both parts are as large as the machine's second level. A part of the ways of its array of 4 KiB pages
//! (`clustered_tlb.ways_percent`) holds clusters; the other ways hold pages of all sizes of that array. Sets and
//! replacement remain, and the number of the cluster selects the set. An array of a single way holds no clusters, and
//! neither does a machine without a second level. A second level that holds victims is filled by walks as well. Pages
//! of one cluster that lie in several groups of frames have an entry for each group; a fill takes its pages from the
//! other entries of the cluster, and leaves a copy in the conventional part, which is looked up first. A cluster has
//! no more pages than a cache line has page-table entries. In a guest it has the pages whose guest frames the
//! guest's line shows in one group, and whose host frames the host's line shows in one group.

mod array;
mod entry;
#[cfg(test)]
mod naive;
mod settings;

use octavo_config::{DesignTable, Fill, MachineConfig, TlbConfig, Ways};
use octavo_hw::SetArray;
use octavo_os::page_table::PageTable;
use octavo_os::policy::OsConfig;
use octavo_types::{PageNumber, PageSize};

use super::conventional::OfWalk;
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use super::{Conventional, build};
use crate::env::Env;
use crate::state::{Part, Payload};
use crate::tlb::{EntrySettings, TlbEntry, Translation};
use array::ClusterConfig;
use entry::{ClusterEntry, Subpages};
pub use settings::ClusteredTlbSettings;

/// Clustered TLB.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<ClusteredTlbSettings>()),
    ..Family::new(
        &[TranslationHardware { own_state, ..TranslationHardware::new("clustered_tlb", make) }],
        &[NamedDesign { name: "clustered_tlb", hardware: "clustered_tlb", policy: "base", about: "Clustered TLB: second-level entries of eight 4 KiB pages in eight nearby frames", figure: "coalescing" }],
    )
};

/// Bytes of a page-table entry.
const ENTRY_BYTES: u64 = 8;

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let (tlb, clusters) = split(config);
    build::machine(config, setup, os, || {
        let clusters = clusters.map(|clusters| (clusters, setup.instructions));
        Conventional::<TlbEntry, ClusterEntry>::with_settings(
            &tlb,
            (),
            clusters,
            setup.instructions,
        )
    })
}

/// The TLBs of a machine without the ways that hold clusters, and the array of clusters in these ways.
fn split(config: &MachineConfig) -> (TlbConfig, Option<ClusterConfig>) {
    let settings = config.designs.get::<ClusteredTlbSettings>();
    let mut tlb = config.tlb.clone();
    let clusters = tlb.l2.as_mut().and_then(|level| {
        level.fill = Fill::All;
        let array =
            level.arrays.values_mut().find(|array| array.page_sizes.hold(PageSize::BASE))?;
        let all = array.ways.of(array.entries);
        let (sets, ways) = (array.entries / all, settings.ways_of(all));
        array.entries -= sets * ways;
        if array.ways != Ways::Full {
            array.ways = Ways::Of(all - ways);
        }
        let line_entries = config.cache.line_bytes / ENTRY_BYTES;
        ClusterConfig::new((sets, ways), array.replacement, settings, line_entries)
    });
    (tlb, clusters)
}

/// The second level, whose entries are larger than those of other designs.
fn own_state(config: &MachineConfig) -> Vec<Part> {
    let (tlb, clusters) = split(config);
    let arrays = tlb.l2.iter().flat_map(|level| level.arrays.values());
    let larger = arrays.filter_map(|array| array.geometry().ok()).map(|geometry| {
        SetArray::<ClusterEntry>::most_bytes(geometry) - SetArray::<Payload>::most_bytes(geometry)
    });
    let clusters = clusters.map(|array| SetArray::<ClusterEntry>::most_bytes(array.geometry));
    let bytes = larger.chain(clusters).sum();
    vec![Part { setting: "the second level of clustered_tlb".to_owned(), bytes }]
}

impl OfWalk for ClusterEntry {
    fn of_walk(
        clusters: EntrySettings<Self>,
        env: &Env,
        page: PageNumber,
        walked: Translation,
    ) -> Translation<Self> {
        let alone = walked.in_format();
        let Some((ClusterConfig { pages, min_pages, .. }, _)) = clusters else { return alone };
        if walked.size > PageSize::BASE {
            return alone;
        }
        let seen = env.tables(page).map(|(table, page)| subpages_in(table, page, pages));
        let subpages = seen.reduce(|own, host| own.translated_by(host)).unwrap_or_default();
        if subpages.count() < min_pages {
            return alone;
        }
        Translation { size: walked.size, entry: ClusterEntry { page: walked.entry, subpages } }
    }
}

/// The pages of a base page's cluster that a walk to the mapped page sees in the page's group of frames. A larger page
/// holds its whole cluster.
fn subpages_in(table: &PageTable, page: PageNumber, pages: u64) -> Subpages {
    let Some(entries) = table.neighbour_entries(page, pages as usize) else {
        return (0..pages).map(|at| (at, at)).collect();
    };
    let own = entries[(page.raw() % pages) as usize];
    let seen = (0..pages).zip(entries).filter(|(_, other)| {
        other.is_page(1)
            && other.size(1) == PageSize::BASE
            && other.frame(1).raw() / pages == own.frame(1).raw() / pages
            && other.rights() == own.rights()
            && other.used() == own.used()
    });
    seen.map(|(at, other)| (at, other.frame(1).raw() % pages)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolve;

    #[test]
    fn clusters_take_ways_of_the_array_of_base_pages() {
        let split = |settings: &[&str]| {
            let config = resolve("skylake", settings).unwrap().into_config();
            let (tlb, clusters) = split(&config);
            let array = &tlb.l2.unwrap().arrays["main"];
            let ways_of = |array: ClusterConfig| (array.geometry.entries(), array.geometry.ways());
            ((array.entries, array.ways.of(array.entries)), clusters.map(ways_of))
        };
        assert_eq!(split(&[]), ((1152, 9), Some((384, 3))));
        let percent = "clustered_tlb.ways_percent=1";
        assert_eq!(split(&[percent]), ((1408, 11), Some((128, 1))));
        let percent = "clustered_tlb.ways_percent=99";
        assert_eq!(split(&[percent]), ((128, 1), Some((1408, 11))));
        assert_eq!(split(&["clustered_tlb.ways_percent=0"]), ((1536, 12), None));
        assert_eq!(split(&["tlb.l2.main.ways=1"]), ((1536, 1), None));
        assert_eq!(split(&["tlb.l2.main.ways=full"]), ((1152, 1152), Some((384, 384))));
    }

    #[test]
    fn invalid_settings_are_rejected_with_one_sentence() {
        let invalid = [
            ("ways_percent=100", "give a whole number from 0 to 99"),
            ("cluster_pages=6", "give 2, 4 or 8"),
            ("cluster_pages=16", "give 2, 4 or 8"),
            ("min_pages=0", "give a whole number from 1 to 8"),
            ("min_pages=9", "give a whole number from 1 to 8"),
        ];
        crate::designs::twins::assert_rejected("clustered_tlb", &invalid);
    }
}
