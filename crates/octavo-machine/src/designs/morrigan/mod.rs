//! Morrigan (Vavouliotis, Alvarez, Grot, Jiménez and Casas, "Morrigan: A Composite Instruction TLB Prefetcher", MICRO
//! 2021): fetches that miss the second-level TLB prefetch the translations of pages that missed after them before.
//!
//! - A miss of the second-level TLB by a fetch looks in the *prefetch buffer* (fully associative, first in, first out). A
//!   hit moves the translation into the TLBs; otherwise a walk follows.
//! - Four *Markov tables* have pages that missed, and their *successors*, the pages that missed next: up to 1, 2, 4 and 8.
//!   A page begins in the first table. An entry without room for a further successor moves to the next table; in the last
//!   one, the successor replaces the one with the least confidence.
//! - A full table evicts the entry with the lowest *frequency*, the number of its page's misses, as frequency predicts
//!   its use better than recency. Frequencies are halved at times, so that tables follow the phases of a program.
//! - After a miss, whether the buffer had the page or not, the missed page is learned as a successor of the one before,
//!   and its own successors are prefetched into the buffer.
//! - If no table has the page, a *sequential prefetcher* prefetches the next page.
//! - The line that the walk for a prefetch reads last shows other pages, which are prefetched as well (*free* prefetches):
//!   for the most likely successor and for the next page.
//! - A change of mappings drops its pages from the buffer. Misses of loads and stores neither train nor look in the buffer.
//! - In a guest, pages are guest-virtual, and the buffer holds translations to host-physical pages.
//!
//! Only the abstract of the paper was available: it has the tables with chains of variable length, frequencies that adapt to
//! phases, the sequential prefetcher and the use of page-table locality, and no sizes. From memory are the four tables, a
//! buffer of 64 entries and when the sequential prefetcher is used. Assumed are the sizes of the tables, which are fully associative,
//! confidences of two bits, the misses of a phase, that the least frequent entry of a table goes, of several the
//! oldest (the paper has a frequency stack, with a choice among its candidates), and for which prefetches free ones follow.
//!
//! Pages of 2 MiB and 1 GiB are treated as those of 4 KiB: the tables have their first base page, and the next page is
//! that of the same size behind. Walks for prefetches, their time, their lack of faults and the reset of all state at the
//! first miss of another address space are those of `atp`.

#[cfg(test)]
mod naive;
mod settings;
mod tables;

use octavo_config::{DesignTable, MachineConfig};
use octavo_hw::Asid;
use octavo_os::around;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, PageNumber, PageSize};

use super::atp::queue::Queue;
use super::behind_tlbs::BehindTlbs;
use super::leaf_line::{self, seen};
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use super::{Conventional, build};
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::state::Part;
use crate::tlb::{Lookup, Translation};
use settings::MorriganSettings;
use tables::Tables;

/// A prefetch buffer for fetches behind the second level.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<MorriganSettings>()),
    ..Family::new(
        &[TranslationHardware { own_state, ..TranslationHardware::new("morrigan", make) }],
        &[NamedDesign { name: "morrigan", hardware: "morrigan", policy: "base", about: "Morrigan: fetches that miss the second level prefetch translations of pages that missed next before", figure: "translation" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = *config.designs.get::<MorriganSettings>();
    build::machine(config, setup, os, || {
        Ok(Morrigan {
            tlbs: Conventional::new(&config.tlb, setup.instructions)?,
            in_line: leaf_line::entries(config.cache.line_bytes),
            settings,
            state: State::new(&settings, Asid::ONLY),
            predicted: Vec::new(),
            counts: Counts::default(),
        })
    })
}

fn own_state(config: &MachineConfig) -> Vec<Part> {
    let settings = config.designs.get::<MorriganSettings>();
    let buffer = settings.entries * size_of::<(Pages, Prefetched)>() as u64;
    vec![
        Part { setting: "morrigan.entries".to_owned(), bytes: buffer },
        Part {
            setting: "the tables of morrigan".to_owned(),
            bytes: Tables::bytes(settings.pages()),
        },
    ]
}

/// The prefetcher of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Markov,
    Sequential,
    Free,
}

/// A translation in the buffer.
struct Prefetched {
    translation: Translation,
    source: Source,
}

/// Buffer and tables, all of one address space.
struct State {
    asid: Asid,
    buffer: Queue<Prefetched>,
    tables: Tables,
    /// The page that missed last.
    last: Option<u64>,
}

impl State {
    fn new(settings: &MorriganSettings, asid: Asid) -> Self {
        State {
            asid,
            buffer: Queue::new(settings.entries),
            tables: Tables::new(settings.pages(), settings.phase_misses),
            last: None,
        }
    }
}

/// Conventional TLBs with a prefetch buffer for fetches.
struct Morrigan {
    tlbs: Conventional,
    /// Page-table entries of a line.
    in_line: u64,
    settings: MorriganSettings,
    state: State,
    /// The successors predicted last.
    predicted: Vec<u64>,
    counts: Counts,
}

/// Counters of one core.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Look-ups of the buffer.
    lookups: Lookups,
    /// Hits by what has prefetched the page, in the order of [`Source`].
    hits: [u64; 3],
    /// Prefetches: walks to successors and to next pages, and free ones.
    prefetches: [u64; 3],
    /// Page-table entries that these walks have read.
    references: u64,
    /// Misses that no table had.
    unpredicted: u64,
    /// Predicted pages that the buffer or the second level held.
    held: u64,
    /// Walks for prefetches that found no accessed page.
    dropped: u64,
    /// Entries that tables evicted.
    replaced: u64,
    /// Translations that the buffer evicted unused.
    evicted: u64,
}

impl BehindTlbs for Morrigan {
    fn tlbs(&mut self) -> &mut Conventional {
        &mut self.tlbs
    }

    #[inline(never)]
    fn serve_l1_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let in_second = self.tlbs.look_up_l2(env, page, access);
        let is_fetch = access.kind() == Access::Fetch;
        let follows = is_fetch && matches!(in_second, Lookup::Miss) && self.settings.prefetches();
        let translation = match in_second {
            Lookup::Hit(translation) => return Some(translation),
            Lookup::Miss if follows => self.find(env, page, access)?,
            _ => self.walk(env, page, access, in_second.is_clean())?,
        };
        self.tlbs.fill_l2(env.asid(), page, translation, in_second);
        self.tlbs.fill_l1(env.asid(), page, translation, access);
        if follows {
            self.follow(env, page, translation.size)?;
        }
        Some(translation)
    }
}

impl Morrigan {
    /// The translation of a page that all TLBs miss, from the buffer or by a walk.
    fn find(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) -> Option<Translation> {
        if self.state.asid != env.asid() {
            self.state = State::new(&self.settings, env.asid());
        }
        env.charge_lookup(self.settings.lookup_cycles);
        if let Some(Prefetched { translation, source }) = self.state.buffer.take(page.raw()) {
            self.counts.lookups.hits += 1;
            self.counts.hits[source as usize] += 1;
            return Some(translation);
        }
        self.counts.lookups.misses += 1;
        self.walk(env, page, access, false)
    }

    /// Learns a miss, and prefetches the pages that are expected to miss next. `None` when memory has run out.
    fn follow(&mut self, env: &mut Env, page: PageNumber, size: PageSize) -> Option<()> {
        let pages = around(page, size);
        let State { tables, last, .. } = &mut self.state;
        if let Some(last) = last.replace(pages.start).filter(|last| *last != pages.start) {
            self.counts.replaced += tables.learn(last, pages.start);
        }
        let mut predicted = std::mem::take(&mut self.predicted);
        tables.predict(pages.start, &mut predicted);
        self.counts.unpredicted += u64::from(predicted.is_empty());
        for (number, next) in predicted.iter().enumerate() {
            self.prefetch(env, PageNumber::new(*next), Source::Markov, number == 0)?;
        }
        let (table, _) = env.tables(page).next().expect("a process has a table");
        let is_sequential = predicted.is_empty() && self.settings.sequential;
        if is_sequential && pages.end < table.reach_pages() {
            self.prefetch(env, PageNumber::new(pages.end), Source::Sequential, true)?;
        }
        self.predicted = predicted;
        Some(())
    }

    /// Walks to a page, and fills the buffer with it and, with `frees`, with pages that the walk sees beside it. `None`
    /// when memory has run out.
    fn prefetch(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        source: Source,
        frees: bool,
    ) -> Option<()> {
        if self.holds(env, page) {
            self.counts.held += 1;
            return Some(());
        }
        self.counts.prefetches[source as usize] += 1;
        self.counts.references += env.walk_to_prefetch(page)?;
        let Some(translation) = seen(env, page, page, self.in_line) else {
            self.counts.dropped += 1;
            return Some(());
        };
        self.fill_buffer(env, page, Prefetched { translation, source });
        if frees && self.settings.free {
            self.prefetch_free(env, page, translation.size);
        }
        Some(())
    }

    /// Fills the buffer with the pages that the walk to a page of this size has seen beside it.
    fn prefetch_free(&mut self, env: &mut Env, page: PageNumber, size: PageSize) {
        let (order, number) = (size.base_shift(), page.raw() >> size.base_shift());
        let first = number / self.in_line * self.in_line;
        for other in (first..first + self.in_line).filter(|other| *other != number) {
            let other = PageNumber::new(other << order);
            let seen = seen(env, page, other, self.in_line).filter(|seen| seen.size == size);
            if let Some(translation) = seen
                && !self.holds(env, other)
            {
                self.counts.prefetches[Source::Free as usize] += 1;
                self.fill_buffer(env, other, Prefetched { translation, source: Source::Free });
            }
        }
    }

    /// Whether the buffer or the second level holds a page.
    fn holds(&mut self, env: &Env, page: PageNumber) -> bool {
        self.state.buffer.holds(page.raw())
            || self.tlbs.l2().is_some_and(|l2| l2.holds(env.asid(), page))
    }

    /// Adds a page that the last walk has seen to the buffer.
    fn fill_buffer(&mut self, env: &mut Env, page: PageNumber, prefetched: Prefetched) {
        let size = prefetched.translation.size;
        let pages = around(page, size);
        // A page that the first level holds waits for no walk.
        if !self.tlbs.l1().holds(env.asid(), page) {
            env.keep_seen(PageNumber::new(pages.start), size);
        }
        self.counts.evicted += u64::from(self.state.buffer.push(pages, prefetched));
    }
}

impl Design for Morrigan {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.translate_behind_tlbs(env, access)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
        if self.state.asid == space.asid {
            self.state.buffer.invalidate(pages);
        }
    }

    fn flush(&mut self) {
        self.tlbs.flush();
        self.state = State::new(&self.settings, self.state.asid);
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        let counts = &self.counts;
        counts.lookups.report("tlb.ipb", counters);
        let [markov_hits, sequential_hits, free_hits] = counts.hits;
        let [markov, sequential, free] = counts.prefetches;
        for (counter, value) in [
            ("hits_markov", markov_hits),
            ("hits_sequential", sequential_hits),
            ("hits_free", free_hits),
            ("prefetches_markov", markov),
            ("prefetches_sequential", sequential),
            ("prefetches_free", free),
            ("walk_references", counts.references),
            ("unpredicted", counts.unpredicted),
            ("held", counts.held),
            ("dropped", counts.dropped),
            ("replaced", counts.replaced),
            ("evicted", counts.evicted),
        ] {
            counters.add("morrigan", counter, value);
        }
    }
}
