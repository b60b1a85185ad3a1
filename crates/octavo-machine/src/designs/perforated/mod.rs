//! Perforated pages (Park, Kim, Choi, Kim and Black-Schaffer, "Perforated Page: Supporting Fragmented Memory
//! Allocation for Large Pages", ISCA 2020): 2 MiB pages with holes of 4 KiB.
//!
//! - The first-level TLBs hold no perforated pages: a reference to one fills a base page, of a hole or of the
//!   region.
//! - The second level holds perforated pages with a filter of eight bits, besides base pages (including
//!   holes), 2 MiB pages, and hole bitmaps in words of 32 bits per entry. If the filter rules out a hole, the
//!   entry serves the reference. Otherwise the bitmap word is looked up, at the second level's latency again;
//!   a missing word is read from memory through the data caches, and filled.
//! - A walk to a hole passes through the entry of the shadow node; the hole's base page is filled into both
//!   levels.
//!
//! [`Variant`] lists the three variants of Figure 3.
//!
//! Decisions that the paper leaves open: bitmap words are also looked up after a second-level miss, before
//! they are read. A second level that is a victim level in other designs is filled by walks here. A shootdown
//! that covers a whole perforated page flushes its address space, as the paper describes for Linux; here only
//! if the second level holds the page's entry. Punching or patching a single hole removes the entries that
//! overlap its page: of the page, of its perforated page and of the bitmap word.
//!
//! In a guest, entries and bitmap words compose guest and host ([`Env::walk`]). The second level's entry does
//! not suffice to read the words, so that a walk precedes their read.

mod entry;
mod guest;
mod host;
mod policy;
mod second_level;
mod walk;

use octavo_config::{Fill, MachineConfig, TlbConfig};
use octavo_hw::Asid;
use octavo_os::page_table::Format;
use octavo_os::policy::{OsConfig, PolicyEntry};
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize};

use super::build::{self, Tables};
use super::registry::{
    Family, MachineResult, NamedDesign, Requirement, Setup, TranslationHardware,
};
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::{CompositePages, Env};
use crate::front::LineAccess;
use crate::tlb::{Entry, L1Tlb, Lookup, Tlb, Translation};
pub use entry::hole_filter;
pub use policy::{PERFORATED_PAGES, PerforatedConfig};
use second_level::{EntryKinds, L2Entry, WORD_PAGES, second_level};
use walk::PartAccess;

/// Perforated pages, and variants without filters.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    policies: &[PolicyEntry::new::<PerforatedConfig>("perforated", "huge pages, with holes where a region is not all free or not all used alike")],
    ..Family::new(
    &[
        hardware("perforated", |config, setup, os| make(config, setup, os, Variant::Filtered)),
        hardware("perforated_on_demand", |config, setup, os| make(config, setup, os, Variant::OnDemand)),
        hardware("perforated_all", |config, setup, os| make(config, setup, os, Variant::AllAtOnce)),
    ],
    &[
        NamedDesign { name: "perforated", hardware: "perforated", policy: "perforated", about: "perforated pages: 2 MiB pages with 4 KiB holes", figure: "holes" },
        NamedDesign { name: "perforated_on_demand", hardware: "perforated_on_demand", policy: "perforated", about: "perforated pages without hole filters", figure: "holes" },
        NamedDesign { name: "perforated_all", hardware: "perforated_all", policy: "perforated", about: "perforated pages without hole filters; whole bitmaps are filled at once", figure: "holes" },
    ],
    )
};

const fn hardware(
    name: &'static str,
    make: fn(&MachineConfig, &Setup, &OsConfig) -> MachineResult,
) -> TranslationHardware {
    TranslationHardware {
        needs: Some(&Requirement { capability: PERFORATED_PAGES, is_of_host: false }),
        ..TranslationHardware::new(name, make)
    }
}

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig, variant: Variant) -> MachineResult {
    let format = Format { holes: Some(hole_filter), ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    build::machine_with_tables(config, setup, tables, os, |_| {
        Perforated::new(&config.tlb, variant, setup.instructions)
    })
}

/// Base pages of a perforated page.
const PAGES: u64 = 512;
/// All base pages of an address space.
const EVERYTHING: Pages = 0..1 << 52;

/// The bitmap words that are filled and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All words of a page at once: 16 entries.
    AllAtOnce,
    /// The word of each reference.
    OnDemand,
    /// The word of each reference whose hole the filter does not rule out.
    Filtered,
}

/// The design with perforated pages.
pub struct Perforated {
    l1: L1Tlb,
    l2: Option<Tlb<L2Entry>>,
    variant: Variant,
    bitmaps: Lookups,
    counts: PerforatedCounts,
}

/// The outcome of a second-level look-up.
enum L2Lookup {
    /// As for other pages. A hole whose walk ended in a fault is a permission miss.
    Complete(Lookup),
    /// The page is perforated, and the bitmap word is missing.
    BitmapMiss,
}

/// Further counters.
#[derive(Clone, Copy, Default)]
struct PerforatedCounts {
    /// Second-level hits of perforated pages.
    hits: u64,
    /// Such hits, and walks, that the filter decided.
    filtered: u64,
    hole_walks: u64,
    flushes: u64,
    targeted: u64,
    flushed: u64,
}

impl Perforated {
    /// A unit with empty TLBs.
    pub fn new(
        config: &TlbConfig,
        variant: Variant,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let mut config = config.clone();
        let l2 = config.l2.as_mut().map(|l2| {
            l2.fill = Fill::All;
            second_level(l2, instructions)
        });
        let l2 = l2.transpose().map_err(|error| ConfigError::Tlb { level: "l2", error })?;
        Ok(Perforated {
            l1: L1Tlb::new(&config.first, (), instructions)?,
            l2,
            variant,
            bitmaps: Lookups::default(),
            counts: PerforatedCounts::default(),
        })
    }

    /// Serves a first-level miss.
    #[inline(never)]
    fn serve_l1_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let in_second = self.look_up_l2(env, page, access)?;
        let translation = match in_second {
            L2Lookup::Complete(Lookup::Hit(translation)) => translation,
            _ => self.walk_and_fill(env, page, access, in_second)?,
        };
        self.l1.fill(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Looks a page up in the second level (Figure 4), and walks to a hole of a perforated page found there.
    fn look_up_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<L2Lookup> {
        let found = self.l2.as_mut().and_then(|l2| env.look_up_l2(l2, page));
        let Some(mut translation) = found.map(|found| found.page()) else {
            return Some(L2Lookup::Complete(Lookup::Miss));
        };
        if translation.is_perforated() {
            self.counts.hits += 1;
            let is_hole = match self.look_up_hole(env, page, &translation) {
                Some(is_hole) => is_hole,
                None if env.is_guest() => return Some(L2Lookup::BitmapMiss),
                None => self.fetch_bitmap(env, page, &translation, false)?,
            };
            if is_hole {
                let hole = self.walk_hole(env, page, access, false)?;
                let faulted = Lookup::PermissionMiss { is_clean: false };
                return Some(L2Lookup::Complete(hole.map_or(faulted, Lookup::Hit)));
            }
            translation = translation.part_of_region(page);
        }
        Some(L2Lookup::Complete(Lookup::of(Some(translation), access.is_store())))
    }

    /// Walks from the root until the page permits the access, and fills the second level.
    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_second: L2Lookup,
    ) -> Option<Translation> {
        let mut has_no_bits = matches!(in_second, L2Lookup::BitmapMiss);
        let mut is_clean = matches!(&in_second, L2Lookup::Complete(held) if held.is_clean());
        loop {
            let translation = self.walk(env, page, access, std::mem::take(&mut is_clean))?;
            let asid = env.asid();
            if !translation.is_perforated() {
                if let Some(l2) = &mut self.l2 {
                    if !matches!(in_second, L2Lookup::Complete(Lookup::Miss)) {
                        l2.remove(asid, page);
                    }
                    l2.fill(asid, page, held(translation), 1);
                }
                return Some(translation);
            }
            let is_cached = self.holds_perforated() && env.is_cached(&translation);
            if is_cached {
                self.fill_l2(asid, page, translation);
            }
            let known = if has_no_bits { None } else { self.look_up_hole(env, page, &translation) };
            has_no_bits = false;
            let (is_hole, has_changed) = match known {
                Some(is_hole) => (is_hole, false),
                None => {
                    let (fetched, has_changed) =
                        env.noting_changes(|env| self.fetch_bitmap(env, page, &translation, true));
                    (fetched?, has_changed)
                }
            };
            if has_changed {
                continue;
            }
            if is_hole {
                if let Some(hole) = self.walk_hole(env, page, access, true)? {
                    return Some(hole);
                }
                continue;
            }
            let answer = env.delivering(
                |env| walk::use_part(env, page, access.kind()),
                |space, pages| self.invalidate(space, pages),
            )?;
            if let PartAccess::Page(part) = answer {
                if !is_cached {
                    self.fill_l2(asid, page, part);
                } else if part.entry.is_dirty() && !translation.entry.is_dirty() {
                    self.fill_l2(asid, page, translation.with_dirty());
                }
                return Some(part);
            }
        }
    }

    /// Walks to a hole and fills its page; inner `None` after a page fault.
    fn walk_hole(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        continues_walk: bool,
    ) -> Option<Option<Translation>> {
        self.counts.hole_walks += 1;
        let answer = env.delivering(
            |env| walk::walk_hole(env, page, access.kind(), continues_walk),
            |space, pages| self.invalidate(space, pages),
        )?;
        let PartAccess::Page(translation) = answer else { return Some(None) };
        self.fill_l2(env.asid(), page, translation);
        Some(Some(translation))
    }

    /// Whether a base page of a perforated page is a hole; `None` if neither the filter nor the second level
    /// knows.
    fn look_up_hole(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        translation: &Translation,
    ) -> Option<bool> {
        if self.variant == Variant::Filtered && !translation.may_be_hole(page) {
            self.counts.filtered += 1;
            return Some(false);
        }
        let l2 = self.l2.as_mut()?;
        // No walk overlaps this look-up: a walk or an entry has found the page before.
        env.charge_l2_lookup(l2.hit_latency_cycles(), true);
        let found = l2.look_up_word(env.asid(), page);
        self.bitmaps.hits += u64::from(found.is_some());
        self.bitmaps.misses += u64::from(found.is_none());
        found.map(|word| bit(word, page))
    }

    /// Reads and fills bitmap words, and returns whether a base page is a hole. With `continues_walk` the
    /// read is part of a walk.
    fn fetch_bitmap(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        translation: &Translation,
        continues_walk: bool,
    ) -> Option<bool> {
        let is_kept = env.delivering(
            |env| walk::read_bitmap(env, page, translation, continues_walk),
            |space, pages| self.invalidate(space, pages),
        )?;
        let asid = env.asid();
        let own = page.raw() / WORD_PAGES * WORD_PAGES;
        let first = page.raw() / PAGES * PAGES;
        let filled = match self.variant {
            Variant::AllAtOnce => first..first + PAGES,
            Variant::OnDemand | Variant::Filtered => own..own + WORD_PAGES,
        };
        for at in filled.step_by(WORD_PAGES as usize).map(PageNumber::new) {
            let word = walk::bitmap_word(env, at, translation);
            if let Some(l2) = self.l2.as_mut().filter(|_| is_kept) {
                l2.fill_word(asid, at, word);
            }
        }
        Some(bit(walk::bitmap_word(env, page, translation), page))
    }

    fn holds_perforated(&self) -> bool {
        self.l2.as_ref().is_some_and(|l2| l2.has_sets_of(PageSize::HUGE))
    }

    /// Fills a page into the second level.
    fn fill_l2(&mut self, asid: Asid, page: PageNumber, translation: Translation) {
        if let Some(l2) = &mut self.l2 {
            l2.fill(asid, page, held(translation), 1);
        }
    }

    /// Removes the entries that overlap any of these pages, and returns their number.
    fn remove_entries(&mut self, asid: Asid, pages: &Pages) -> u64 {
        let removed_from_l2 = self.l2.as_mut().map_or(0, |l2| l2.invalidate(asid, pages));
        (self.l1.invalidate(asid, pages) + removed_from_l2) as u64
    }
}

/// A page as the second level holds it.
fn held(translation: Translation) -> Translation<L2Entry> {
    Translation { size: translation.size, entry: L2Entry::of_page(translation.entry) }
}

/// The bit of a base page in its bitmap word.
fn bit(word: u32, page: PageNumber) -> bool {
    word >> (page.raw() % WORD_PAGES) & 1 != 0
}

impl Design for Perforated {
    const COMPOSITE: Option<&'static dyn CompositePages> = Some(&walk::Pages);

    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.l1.look_up(env.asid(), page, access) {
            Lookup::Hit(translation) => translation,
            Lookup::Miss => self.serve_l1_miss(env, page, access)?,
            held => {
                let held = L2Lookup::Complete(held);
                let translation = self.walk_and_fill(env, page, access, held)?;
                self.l1.replace(env.asid(), page, translation, access);
                translation
            }
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        let is_whole = self.l2.as_ref().is_some_and(|l2| l2.has_perforated_in(space.asid, pages));
        let targeted = self.remove_entries(space.asid, pages);
        if is_whole {
            self.counts.flushes += 1;
            self.counts.targeted += targeted;
            self.counts.flushed += targeted + self.remove_entries(space.asid, &EVERYTHING);
        }
    }

    fn flush(&mut self) {
        self.l1.clear();
        if let Some(l2) = &mut self.l2 {
            l2.clear();
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.l1.report(counters);
        let Some(l2) = &self.l2 else { return };
        l2.report("tlb.l2", counters);
        self.bitmaps.report("tlb.l2.bitmap", counters);
        let PerforatedCounts { hits, filtered, hole_walks, flushes, targeted, flushed } =
            self.counts;
        counters.add("tlb.l2.perforated", "hits", hits);
        counters.add("tlb.l2.perforated", "filtered", filtered);
        counters.add("walker", "hole_walks", hole_walks);
        counters.add("tlb.flushes", "made", flushes);
        counters.add("tlb.flushes", "entries", flushed);
        counters.add("tlb.flushes", "entries_targeted", targeted);
        let EntryKinds { base, huge, perforated, bitmap, larger } = l2.content();
        let kinds = [
            ("entries_4k", base),
            ("entries_2m", huge),
            ("entries_perforated", perforated),
            ("entries_bitmap", bitmap),
            ("entries_larger", larger),
        ];
        for (kind, entries) in kinds {
            counters.add_level("tlb.l2.content", kind, entries);
        }
    }
}
