//! Victima (Kanellopoulos et al., "Victima: Drastically Increasing Address Translation Reach by Leveraging
//! Underutilized Cache Resources", MICRO 2023): lines of the second-level data cache hold *TLB blocks*, the entries of
//! eight consecutive pages.
//!
//! - There are blocks of 4 KiB pages and of 2 MiB pages. A tag has the address space, the size and the number of the
//!   block, and a bit that no line of memory has; the number selects the set.
//! - A miss of the second-level TLB looks for the block of either size in the second-level cache, beside the page walk.
//!   A hit ends the walk; it takes the latency of that cache and fills both TLB levels.
//! - A walk to a page that is *costly* to translate fills the block with the line of page-table entries that it has
//!   read. A page is costly if the number of its walks, and of its walks that read memory, are between bounds; with
//!   many misses of the second-level cache, all pages are costly. The counters of walks are in unused bits of
//!   page-table entries.
//! - When the second-level TLB evicts a costly page whose block is not there, a walk in the background fills the block.
//! - A change of mappings drops the blocks of its pages. A block that another line evicts is lost.
//! - In a guest, blocks translate guest-virtual to host-physical pages, so that a hit takes the place of a
//!   two-dimensional walk.
//!
//! Bounds and widths of counters follow summaries of the paper and the authors' later code, which agree; what these
//! leave open is Octavo's choice. With three bits the counter of walks ends at 7, so that its upper bound of 12 never
//! excludes a page.
//!
//! Assumptions: a walk that a hit ends changes neither counters nor caches; a walk that continues hides the look-up.
//! The second-level cache replaces blocks by its own policy, like other lines; the paper's TLB-aware SRRIP, which
//! favours them, is left out. If an entry of the first level or of a block does not permit a store, the page is walked
//! for. Every walk counts, and may fill a block. If the block of a walked page is there, the walk renews the pages that
//! it has seen in the block, which is not a use of the block. A block holds pages that are mapped and accessed; it is a
//! copy, so that the line of page-table entries stays in the caches. A line of fewer than 64 bytes holds fewer pages.
//! Pages of 1 GiB have no blocks. Blocks belong to the core that has walked, counters to the page. Counters saturate,
//! begin at zero when the page gets another frame, and leave out walks in the background. Misses are counted over the
//! last whole window of instructions. An evicted page of another address space is not walked to. Out of order, a walk
//! in the background takes a walker; where cycles are added up, it takes none. In a guest, a block has the pages of the
//! guest's line whose frames the host's line shows. The blocks of guest-physical pages that the paper has for nested
//! TLBs are left out.

#[cfg(test)]
mod naive;
mod predictor;
mod settings;

use octavo_config::{DesignTable, MachineConfig};
use octavo_hw::TranslationWords;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, PageNumber, PageSize};

use super::Conventional;
use super::behind_tlbs::BehindTlbs;
use super::build::{self, Tables};
use super::leaf_line::{self, seen};
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::state::Part;
use crate::tlb::{Lookup, TlbEntry, Translation};
use predictor::{CostPredictor, SharedCounts};
pub use settings::{Predictor, VictimaSettings};

/// TLB blocks in the second-level data cache.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<VictimaSettings>()),
    ..Family::new(
        &[TranslationHardware { own_state, ..TranslationHardware::new("victima", make) }],
        &[NamedDesign { name: "victima", hardware: "victima", policy: "thp", about: "Victima: lines of the second-level data cache hold TLB entries of eight pages, for huge pages and small ones", figure: "tlb-in-cache" }],
    )
};

/// The page sizes of blocks, in the order in which they are looked for.
const SIZES: [PageSize; 2] = [PageSize::BASE, PageSize::HUGE];

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = *config.designs.get::<VictimaSettings>();
    let pages = leaf_line::entries(config.cache.line_bytes);
    let tables = Tables { pages_of_translation_line: Some(pages), ..Tables::default() };
    let counts = SharedCounts::default();
    build::machine_with_tables(config, setup, tables, os, |_| {
        Ok(Victima {
            tlbs: Conventional::new(&config.tlb, setup.instructions)?,
            pages,
            predictor: CostPredictor::new(settings, counts.clone()),
            fills_on_eviction: settings.fill_on_eviction,
            lookups: Lookups::default(),
            counts: Counts::default(),
        })
    })
}

/// The contents of blocks, in a hash table at its largest, just after it has grown.
fn own_state(config: &MachineConfig) -> Vec<Part> {
    let lines = config.cache.l2.bytes / config.cache.line_bytes;
    let bytes = 4 * lines * (size_of::<TranslationWords>() as u64 + 9);
    vec![Part { setting: "the blocks of victima".to_owned(), bytes }]
}

/// Conventional TLBs in front of blocks.
struct Victima {
    tlbs: Conventional,
    /// Pages of a block.
    pages: u64,
    predictor: CostPredictor,
    fills_on_eviction: bool,
    lookups: Lookups,
    counts: Counts,
}

/// Counters of one core beside those of look-ups.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Blocks filled by walks.
    fills: u64,
    /// Pages of the filled blocks.
    filled_pages: u64,
    /// Blocks that walks have found and renewed.
    renewals: u64,
    /// Walks in the background.
    background_walks: u64,
    /// Page-table entries that these walks have read.
    background_references: u64,
}

impl BehindTlbs for Victima {
    fn tlbs(&mut self) -> &mut Conventional {
        &mut self.tlbs
    }

    /// Looks for a block with the page. A hit is charged; a walk hides a look-up that misses or does not permit the
    /// access.
    fn look_up_behind(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_second: &Lookup,
    ) -> Lookup {
        if !matches!(in_second, Lookup::Miss) {
            return Lookup::Miss;
        }
        let found = SIZES.into_iter().find_map(|size| {
            let (number, at) = self.place(size, page);
            let entry = decode(env.translation_line(size, number)?[at])?;
            Some((Translation { size, entry }, number))
        });
        self.lookups.hits += u64::from(found.is_some());
        self.lookups.misses += u64::from(found.is_none());
        let Some((translation, number)) = found else { return Lookup::Miss };
        let latency_cycles = env.use_translation_line(translation.size, number);
        let lookup = Lookup::of(Some(translation), access.is_store());
        if let Lookup::Hit(_) = lookup {
            env.charge_lookup(latency_cycles);
        }
        lookup
    }

    fn walk_and_fill_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (held, is_clean): (Lookup, bool),
    ) -> Option<Translation> {
        let before = env.entries_read_from_memory();
        let translation = self.walk(env, page, access, is_clean)?;
        self.tlbs.fill_l2(env.asid(), page, translation, held);
        if self.predictor.fills() && SIZES.contains(&translation.size) {
            let read_memory = env.entries_read_from_memory() > before;
            self.predictor.count(env, page, translation, read_memory);
            self.fill_or_renew(env, page, translation);
        }
        Some(translation)
    }

    /// Fills the block of a page that the second level has evicted, by a walk in the background, if the page is costly.
    /// `None` when memory has run out.
    fn after_fill(&mut self, env: &mut Env) -> Option<()> {
        let Some((asid, page, evicted)) = self.tlbs.take_evicted_from_l2() else { return Some(()) };
        let whole = evicted.whole();
        if !self.fills_on_eviction || asid != env.asid() || !SIZES.contains(&whole.size) {
            return Some(());
        }
        let (number, at) = self.place(whole.size, page);
        if env.translation_line(whole.size, number).is_some()
            || !self.predictor.is_costly(env, page, whole)
        {
            return Some(());
        }
        let Some(references) = self.walk_in_background(env, page) else {
            return env.stopped().is_none().then_some(());
        };
        self.counts.background_walks += 1;
        self.counts.background_references += references;
        let words = self.words(env, page, whole.size);
        // In a guest, TLBs may hold another translation of a page than both tables give.
        if words[at] != NONE {
            self.fill(env, whole.size, number, words);
        }
        Some(())
    }
}

impl Victima {
    /// The number of the block of a page, and the place of the page in it.
    fn place(&self, size: PageSize, page: PageNumber) -> (u64, usize) {
        let number = page.raw() >> size.base_shift();
        (number / self.pages, (number % self.pages) as usize)
    }

    /// Renews the block of a walked page if it is there; otherwise fills it if the page is costly.
    fn fill_or_renew(&mut self, env: &mut Env, page: PageNumber, walked: Translation) {
        let (number, at) = self.place(walked.size, page);
        let is_costly = self.predictor.is_costly(env, page, walked);
        let is_there = env.translation_line(walked.size, number).is_some();
        if !is_there && !is_costly {
            return;
        }
        let mut words = self.words(env, page, walked.size);
        words[at] = encode(walked.entry);
        match env.translation_line(walked.size, number) {
            Some(held) => {
                for (held, seen) in held.iter_mut().zip(words).filter(|(_, seen)| *seen != NONE) {
                    *held = seen;
                }
                self.counts.renewals += 1;
            }
            None => self.fill(env, walked.size, number, words),
        }
    }

    fn fill(&mut self, env: &mut Env, size: PageSize, number: u64, words: TranslationWords) {
        env.fill_translation_line(size, number, words);
        self.counts.fills += 1;
        self.counts.filled_pages += words.iter().filter(|word| **word != NONE).count() as u64;
    }

    /// The contents of the block of a walked page: the pages that the walk has seen.
    fn words(&self, env: &Env, page: PageNumber, size: PageSize) -> TranslationWords {
        let order = size.base_shift();
        let first = (page.raw() >> order) / self.pages * self.pages;
        let mut words = TranslationWords::default();
        for (number, word) in (first..first + self.pages).zip(&mut words) {
            let seen = seen(env, page, PageNumber::new(number << order), self.pages);
            *word = seen.filter(|seen| seen.size == size).map_or(NONE, |seen| encode(seen.entry));
        }
        words
    }
}

/// The word of a block for a page that it does not have.
const NONE: u64 = 0;

fn encode(entry: TlbEntry) -> u64 {
    entry.bits() << 1 | 1
}

fn decode(word: u64) -> Option<TlbEntry> {
    (word != NONE).then(|| TlbEntry::from_bits(word >> 1))
}

impl Design for Victima {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.translate_behind_tlbs(env, access)
    }

    /// The environment drops the blocks.
    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
    }

    fn flush(&mut self) {
        self.tlbs.flush();
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        self.lookups.report("tlb.blocks", counters);
        let counts = &self.counts;
        counters.add("tlb.blocks", "fills", counts.fills);
        counters.add("tlb.blocks", "filled_pages", counts.filled_pages);
        counters.add("tlb.blocks", "renewals", counts.renewals);
        counters.add("tlb.blocks", "background_walks", counts.background_walks);
        counters.add("tlb.blocks", "background_references", counts.background_references);
    }
}
