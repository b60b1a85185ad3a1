//! MIX TLB (Cox and Bhattacharjee, "Efficient Address Translation for Architectures with Multiple Page Sizes", ASPLOS
//! 2017): one set-associative TLB holds pages of all sizes. Separate TLBs leave entries of one size unused while those
//! of another size overflow.
//!
//! - The index bits of the smallest page size select the set in every look-up, since the page size is not known yet.
//!   The base pages of a superpage (2 MiB, 1 GiB) therefore look in many sets, and the superpage has a *mirror* in each
//!   of them.
//! - Contiguous superpages share an entry, a *bundle*, which pays for the mirrors: as many superpages as there are sets
//!   take as many entries as they would without mirrors. The page-table entries in the line that a walk reads show which
//!   neighbours are contiguous, accessed, and alike in permissions and dirty bit.
//! - A bundle lies in an aligned group of superpages. In the first level it has any superpages of the group (a bitmap);
//!   in the second level it is a run of them (a length).
//! - 4 KiB pages have an entry each, so that without superpages this is a plain set-associative TLB.
//!
//! Only the abstract of the paper was available. From memory are bitmaps in the first level and lengths in the second,
//! as many superpages of a bundle as sets, mirrors that a miss fills, and a dirty bit of a bundle that is set only if
//! it is set in all of its superpages; here all are alike.
//!
//! Assumptions: each level has one TLB with the entries of all of its arrays, in as many sets as the array of 4 KiB
//! pages has; entries that do not make a whole way are left out. Its replacement policy is that of this array. A miss
//! writes mirrors in all sets at no cost (`mix_tlb.fill=all`), or one in the set that was looked up (`probed`), so that
//! each set misses by itself. A fill merges with a bundle of the group that the set holds and that it continues,
//! removes other bundles with a superpage in common, and makes the entry the most recently used one of each set. A
//! bundle has at most 128 superpages, and a power of two if the number of sets is not one. A hit in the second level
//! fills the part of its bundle that fits a bundle of the first. An invalidation of a superpage, and a store to a clean
//! one, drop all bundles with this superpage whole. A second level that holds victims is filled by walks as well. In a
//! guest, a bundle has the neighbours that the guest's line and the host's line show to be contiguous; the nested TLB
//! is the machine's. Energy is not modelled.

mod array;
mod entry;
#[cfg(test)]
mod naive;
mod settings;

use octavo_config::{
    DesignTable, Fill, FirstLevel, MachineConfig, PageSizes, TlbArray, TlbLevel, Ways,
};
use octavo_hw::SetArray;
use octavo_os::page_table::{Entry, PageTable};
use octavo_os::policy::OsConfig;
use octavo_types::{PageNumber, PageSize};

use super::conventional::OfWalk;
use super::registry::{Family, MachineResult, NamedDesign, Setup, Sizes, TranslationHardware};
use super::{Conventional, build};
use crate::env::Env;
use crate::state::{Part, Payload};
use crate::tlb::Translation;
use array::Mix;
use entry::MixEntry;
pub use settings::{MixFill, MixTlbSettings};

/// MIX TLBs.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<MixTlbSettings>()),
    ..Family::new(
        &[TranslationHardware { adapt, own_state, ..TranslationHardware::new("mix_tlb", make) }],
        &[NamedDesign { name: "mix_tlb", hardware: "mix_tlb", policy: "thp", about: "MIX TLB: one TLB for all page sizes, with contiguous 2 MiB pages in one entry", figure: "coalescing" }],
    )
};

/// Bytes of a page-table entry, and the most entries that a walk sees at once.
const ENTRY_BYTES: u64 = 8;
const SEEN: u64 = 8;

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = *config.designs.get::<MixTlbSettings>();
    let level = |has_runs| Mix { settings, has_runs };
    build::machine(config, setup, os, || {
        let (first, second) = (level(false), level(true));
        Conventional::<MixEntry>::with_settings(&config.tlb, first, second, setup.instructions)
    })
}

/// The machine with one array per level.
fn adapt(config: &MachineConfig) -> MachineConfig {
    let mut config = config.clone();
    match &mut config.tlb.first {
        FirstLevel::Split { l1i, l1d } => {
            unite(l1i);
            unite(l1d);
        }
        FirstLevel::Unified { l1 } => unite(l1),
    }
    if let Some(level) = &mut config.tlb.l2 {
        unite(level);
        level.fill = Fill::All;
    }
    config
}

/// Puts the entries of all arrays of a level into the sets of the array of base pages.
fn unite(level: &mut TlbLevel) {
    let base_array = level.arrays.values().find(|array| array.page_sizes.hold(PageSize::BASE));
    let Some(array) = base_array.or_else(|| level.arrays.values().next()) else { return };
    let (sets, replacement) = (array.entries / array.ways.of(array.entries), array.replacement);
    let ways = level.arrays.values().map(|array| array.entries).sum::<u64>() / sets;
    let sizes = [&[PageSize::BASE], &Sizes::X86.list()[..]].concat();
    let page_sizes = PageSizes::List(sizes);
    let array = TlbArray { entries: sets * ways, ways: Ways::Of(ways), page_sizes, replacement };
    level.arrays.clear();
    level.arrays.insert("mix".to_owned(), array);
}

/// The TLBs, whose entries are larger than those of other designs.
fn own_state(config: &MachineConfig) -> Vec<Part> {
    let tlb = adapt(config).tlb;
    let first = match &tlb.first {
        FirstLevel::Split { l1i, l1d } => vec![l1i, l1d],
        FirstLevel::Unified { l1 } => vec![l1],
    };
    let arrays = first.into_iter().chain(&tlb.l2).flat_map(|level| level.arrays.values());
    let larger = arrays.filter_map(|array| array.geometry().ok()).map(|geometry| {
        SetArray::<MixEntry>::most_bytes(geometry) - SetArray::<Payload>::most_bytes(geometry)
    });
    vec![Part { setting: "the TLBs of mix_tlb".to_owned(), bytes: larger.sum() }]
}

impl OfWalk for MixEntry {
    fn of_walk(_: Mix, env: &Env, page: PageNumber, walked: Translation) -> Translation<Self> {
        let order = walked.size.base_shift();
        let mut entry = MixEntry { page: walked.entry, members: 0 };
        if order > 0 {
            let seen = SEEN.min(env.line_bytes() / ENTRY_BYTES);
            let number = page.raw() >> order;
            let per_table = env.tables(page).map(|(table, page)| seen_in(table, page, order, seen));
            let both = per_table.reduce(|one, other| one & other).unwrap_or_default();
            let members = (0..2 * SEEN).filter(|at| both >> at & 1 != 0);
            let members = members.map(|at| number.wrapping_add(at).wrapping_sub(SEEN));
            entry.members = MixEntry::members_of(number, members);
        }
        Translation { size: walked.size, entry }
    }
}

/// The neighbours of a mapped page of 2^`order` base pages that continue it in a table, as bits: bit [`SEEN`] is the
/// page, lower bits are pages before it. They are in the line that a walk reads, or parts of the same larger page.
fn seen_in(table: &PageTable, page: PageNumber, order: u8, seen: u64) -> u16 {
    let bit = |at: u64, own: u64| 1u16 << (SEEN + at - own);
    let alone = bit(0, 0);
    let Some((entries, level)) = table.entries_around(page, seen as usize) else { return alone };
    let size = table.leaf(page).map_or(PageSize::BASE, |leaf| leaf.size);
    if size.base_shift() > order {
        let parts = 1u64 << (size.base_shift() - order);
        let own = page.raw() >> order & (parts - 1);
        let around = own.saturating_sub(SEEN)..parts.min(own + SEEN);
        return around.fold(0, |bits, at| bits | bit(at, own));
    }
    if size.base_shift() < order {
        return alone;
    }
    let at = page.raw() >> order & (seen - 1);
    let own = entries[at as usize];
    let continues = |(number, other): &(u64, Entry)| {
        other.is_page(level)
            && other.size(level) == size
            && other.frame(level).raw() + (at << order)
                == own.frame(level).raw() + (number << order)
            && other.rights() == own.rights()
            && other.used() == own.used()
    };
    let entries = (0..seen).zip(entries.iter().copied());
    entries.filter(continues).fold(0, |bits, (number, _)| bits | bit(number, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolve;

    #[test]
    fn levels_have_the_entries_of_all_arrays() {
        let geometry = |settings: &[&str]| {
            let config = adapt(&resolve("skylake", settings).unwrap().into_config());
            let FirstLevel::Split { l1i, l1d } = config.tlb.first else { unreachable!() };
            [l1i, l1d, config.tlb.l2.unwrap()].map(|level| {
                let array = &level.arrays["mix"];
                (array.entries, array.ways.of(array.entries))
            })
        };
        // 128 and 8 entries in 16 sets; 64, 32 and 4 in 16; 1536 and 16 in 128.
        assert_eq!(geometry(&[]), [(128, 8), (96, 6), (1536, 12)]);
        assert_eq!(geometry(&["tlb.l1d.4k.ways=full"])[1], (100, 100));
        assert_eq!(geometry(&["tlb.l1d.4k.ways=8"])[1], (96, 12));
    }
}
