//! Mosaic Pages (Gosakan, Han, Kuszmaul, Mubarek, Mukherjee, Sriram, Tagliavini, West, Bender, Bhattacharjee, Conway,
//! Farach-Colton, Gandhi, Johnson, Kannan and Porter, "Mosaic Pages: Big TLB Reach with Small Pages", ASPLOS 2023):
//! hashes of a page limit it to 104 frames, so that seven bits name its frame, and a TLB entry of usual width translates
//! several virtually consecutive pages, wherever their frames are.
//!
//! - Memory is cut into *buckets* of 64 frames: a front yard of 56 and a back yard of 8. One hash of the page and its
//!   process chooses the bucket of its front yard, and six more choose a back yard each. A *compressed frame number* is
//!   a bit for the kind of yard, and six bits for the place.
//! - The operating system places pages by iceberg hashing: in the front yard if it has a free frame, and else in the
//!   emptiest of the six back yards. This is the policy `iceberg`, which other designs may have, too.
//! - A TLB entry has a *table of contents*: the compressed frame numbers of `mosaic.arity` consecutive pages, which begin
//!   at a multiple of it; a page that is not mapped has an invalid number. The table's number selects the set. On a hit,
//!   the hash functions and the table give the frame of the page.
//! - A walk fills the whole table. An invalidation removes the number of its page, and the last one removes the entry.
//!
//! Sources: the paper's abstract, two summaries of it by others, and the authors' code
//! (`oscarlab/mosaic-asplos23-artifacts`, commit 3db8197); the text of the paper was not available. From their kernel
//! are the yards, the process as a part of the hashed number, the choice of each back yard in a part of memory of its
//! own, and hashing for copies of pages. From their simulator are the set of a table, and the effect of an invalidation.
//!
//! Assumptions:
//!
//! - The hash is SplitMix64, where the paper's hardware has a table, and takes no time. The first of several emptiest
//!   back yards is taken, and in a yard the first free frame after a hashed place. Buckets make up all of memory, also
//!   where page tables and shared memory take frames of them, and may lie in any tier.
//! - A page whose candidates are all taken gets any frame: Octavo has no swapping, by which the paper's operating system
//!   makes room (horizon LRU).
//! - A page in a frame that is not one of its candidates has an entry of its own: the page of a conflict, pages of files
//!   and shared memory, pages that a forked process shares with the process that placed them, and pages that `mremap` has
//!   moved.
//! - A table has the pages that are mapped and accessed, each with its own permission and dirty bit.
//! - Page tables are those of x86-64, and the last line that a walk reads is taken to show all of a table. Leaves of
//!   compressed frame numbers, which would make page tables smaller, are left out.
//! - Fully associative arrays for pages of any size hold no tables; neither does the first level if `mosaic.first_level`
//!   is false. Walks also fill a second level that is a victim level in other designs.
//! - Guests are rejected: a translation by two tables is not limited to 104 frames.

mod array;
mod candidates;
mod entry;
#[cfg(test)]
mod naive;
mod policy;
mod settings;

use octavo_config::{DesignTable, Fill, FirstLevel, MachineConfig, TlbLevel};
use octavo_hw::SetArray;
use octavo_os::policy::{OsConfig, PolicyEntry};
use octavo_types::{PageNumber, PageSize};

use self::candidates::{Buckets, Key};
use self::entry::{Layout, MosaicEntry, Toc};
use self::policy::{HASHED_FRAMES, IcebergConfig};
use self::settings::MosaicSettings;
use super::conventional::OfWalk;
use super::registry::{
    Family, MachineResult, NamedDesign, Requirement, Setup, TranslationHardware,
};
use super::{Conventional, build};
use crate::config::ConfigError;
use crate::env::Env;
use crate::state::{Part, Payload};
use crate::tlb::{TlbEntry, Translation};

/// Mosaic pages.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<MosaicSettings>()),
    policies: &[PolicyEntry::new::<IcebergConfig>("iceberg", "iceberg hashing: 4 KiB pages, each in one of 104 frames that hashes of the page choose")],
    ..Family::new(
        &[TranslationHardware {
            needs: Some(&Requirement { capability: HASHED_FRAMES, is_of_host: false }),
            adapt,
            own_state,
            check_guest,
            ..TranslationHardware::new("mosaic", make)
        }],
        &[NamedDesign { name: "mosaic", hardware: "mosaic", policy: "iceberg", about: "Mosaic Pages: TLB entries of several 4 KiB pages in hashed frames, wherever these are", figure: "coalescing" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = config.designs.get::<MosaicSettings>();
    let layout = Layout {
        order: settings.arity.ilog2() as u8,
        buckets: Buckets::of(config.memory.bytes / PageSize::BASE.bytes()),
    };
    let first = settings.first_level.then_some(layout);
    build::machine(config, setup, os, || {
        Conventional::<MosaicEntry>::with_settings(
            &config.tlb,
            first,
            Some(layout),
            setup.instructions,
        )
    })
}

/// Rejects all guests: a translation by two tables is not limited by hashes.
fn check_guest(_: &MachineConfig) -> Result<(), ConfigError> {
    Err(ConfigError::Guest(
        "mosaic: a guest's page may be in any frame of the host, and not in one of 104 that its hash chooses: give another \
         design, or a machine without a guest",
    ))
}

/// The machine with a second level that walks fill.
fn adapt(config: &MachineConfig) -> MachineConfig {
    let mut config = config.clone();
    config.tlb.l2.iter_mut().for_each(|level| level.fill = Fill::All);
    config
}

/// The TLBs, whose entries are larger than those of other designs.
fn own_state(config: &MachineConfig) -> Vec<Part> {
    let first = match &config.tlb.first {
        FirstLevel::Split { l1i, l1d } => vec![l1i, l1d],
        FirstLevel::Unified { l1 } => vec![l1],
    };
    let of_level = |level: &TlbLevel| {
        let arrays = level.arrays.values().filter_map(|array| array.geometry().ok());
        let larger = arrays.map(|geometry| {
            SetArray::<MosaicEntry>::most_bytes(geometry)
                - SetArray::<Payload>::most_bytes(geometry)
        });
        larger.sum::<u64>()
    };
    let bytes = first.into_iter().chain(&config.tlb.l2).map(of_level).sum();
    vec![Part { setting: "the TLBs of mosaic".to_owned(), bytes }]
}

impl From<TlbEntry> for MosaicEntry {
    #[inline(always)]
    fn from(page: TlbEntry) -> Self {
        MosaicEntry { page, toc: Toc::default() }
    }
}

impl OfWalk for MosaicEntry {
    fn of_walk(
        layout: Option<Layout>,
        env: &Env,
        page: PageNumber,
        walked: Translation,
    ) -> Translation<Self> {
        let toc = layout.and_then(|layout| toc_of(layout, env, page)).unwrap_or_default();
        Translation { size: walked.size, entry: MosaicEntry { page: walked.entry, toc } }
    }
}

/// The table of contents of a walked page; `None` if the page is in none of its candidate frames.
fn toc_of(layout: Layout, env: &Env, page: PageNumber) -> Option<Toc> {
    let (first, own) = layout.place(page);
    let entries = env.table().neighbour_entries(page, layout.arity())?;
    let mut toc = Toc::new(env.process());
    for (at, entry) in entries.iter().enumerate() {
        let (is_accessed, is_dirty) = entry.used();
        if entry.is_page(1) && entry.size(1) == PageSize::BASE && is_accessed {
            let key = Key::new(env.process(), PageNumber::new(first + at as u64));
            if let Some(number) = layout.buckets.number(key, entry.frame(1)) {
                toc.add(at, number, entry.rights().write, is_dirty);
            }
        }
    }
    toc.has(own).then_some(toc)
}

#[cfg(test)]
mod tests {
    use crate::designs::DesignSpec;
    use crate::designs::registry::{TranslationHardware, policies};
    use crate::designs::twins::{GUEST, setup, tiny};

    #[test]
    fn guest_is_rejected_with_one_sentence() {
        let config = tiny(&GUEST);
        let hardware = TranslationHardware::by_name("mosaic").unwrap();
        let os = policies().parse("iceberg").unwrap();
        let refused = hardware.make(&config, &setup(&config), &os).map(|_| ()).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("mosaic: a guest's page may be in any frame of the host")
        );
    }

    #[test]
    fn other_policies_are_rejected_with_one_sentence() {
        assert_eq!(
            DesignSpec::parse("mosaic+thp").unwrap_err().to_string(),
            "mosaic+thp: mosaic needs frames that iceberg hashing has chosen, which the policy `thp` does not make: give \
             mosaic with the policy iceberg"
        );
        assert!(DesignSpec::parse("mosaic:mosaic.arity=16").is_ok());
        assert!(DesignSpec::parse("conventional+iceberg").is_ok());
    }
}
