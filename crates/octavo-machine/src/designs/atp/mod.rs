//! ATP and SBFP (Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021): a prefetcher
//! of the second-level TLB, and free prefetches from the lines of page-table entries that walks read.
//!
//! - A miss of the second-level TLB looks in the *prefetch queue* (64 entries, fully associative, first in, first out). A
//!   hit moves the translation into the TLBs; otherwise a walk follows.
//! - Then *ATP* chooses one of three prefetchers, or none. STP predicts two pages to either side; H2P the last two
//!   distances between misses; MASP, by instruction, the distance before the last one and the last. A predicted page
//!   that neither the queue nor the second level holds is walked for and filled into the queue.
//! - Each prefetcher has a *fake queue* (16 entries) of the pages that it would have prefetched. A miss on a page in
//!   any fake queue counts `enable` up (8 bits), another miss down. A page in the queue of H2P alone counts `select_1`
//!   up (6 bits), one in other queues but not in H2P's down. A page in STP's queue but not in MASP's counts `select_2`
//!   up (2 bits), one in MASP's but not in STP's down. The most significant bits decide: `enable` whether anything is
//!   prefetched, `select_1` for H2P, or else `select_2` for STP, or else MASP.
//! - *SBFP* sees the other seven entries of the last line that a walk reads, also in a walk for a prefetch. A page at a
//!   *free distance*, -7 to 7, whose counter (10 bits) is above 100 is prefetched into the queue; a page at another
//!   distance enters the *sampler* (64 entries). A hit of the queue on a free prefetch, and a hit of the sampler after
//!   a miss of the queue, count the distance up; a counter that becomes full halves all counters.
//! - A change of mappings drops its pages from queue and sampler.
//! - In a guest, pages are guest-virtual, and the queue holds translations to host-physical pages.
//!
//! Only the abstract of the paper was available. Sizes, widths, the table of the counters and the threshold are those
//! on which independent implementations agree (Virtuoso's, and two for ChampSim).
//!
//! Where these differ or say nothing: hits of the queue neither train ATP nor cause prefetches, as in Virtuoso; with
//! `atp.follow_hits` they do both, as in one implementation for ChampSim. The counters of ATP begin just below the
//! values at which they decide, those of free distances at 0. A hit removes the page from its fake queue, which holds
//! free pages, too. MASP's table has 16 sets of 4 entries with LRU replacement and follows accesses to data alone;
//! fetches train only the other prefetchers. A page that is added to a queue again keeps its place in the order of the
//! queue. A prefetcher that is off is not chosen.
//!
//! Pages of 2 MiB and 1 GiB are treated as those of 4 KiB: they are numbered in units of their size, so that STP
//! predicts the huge pages beside one, and their line is that of the level at which they are mapped. Free pages have
//! the size of the walked page, predicted pages any size. Distances between misses are in base pages, from first page
//! to first page.
//!
//! A walk for a prefetch goes through walk caches and data caches. Where cycles are added up, it takes none. Out of
//! order, it takes a walker once the access is translated, and a hit on a page that it brings, also a free one, waits
//! for it. It never faults and sets no accessed bit: a page that is not mapped, or not yet accessed, is dropped.
//! `atp.walk_references` counts the entries that it reads, in a guest in both tables. All state belongs to one address
//! space, and is reset at the first miss of another one. If an entry of the queue does not permit a store, it is
//! dropped and the page is walked for.
//!
//! In a guest, free pages are those of the guest's line whose frames the host's line shows. A prefetch reads nothing
//! where the host would fault. If TLBs hold halves of translations, the queue holds translations of the smaller of both
//! pages.

mod chooser;
mod distances;
#[cfg(test)]
mod naive;
mod predictors;
pub(super) mod queue;
mod settings;

use octavo_config::{DesignTable, MachineConfig};
use octavo_hw::Asid;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, PageNumber, PageSize};

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
use chooser::Chooser;
use distances::{Distances, neighbours};
use predictors::{Miss, Predictors, Prefetcher};
use queue::Queue;
pub use settings::AtpSettings;

/// A prefetch queue behind the second level.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<AtpSettings>()),
    ..Family::new(
        &[TranslationHardware { own_state, ..TranslationHardware::new("atp", make) }],
        &[NamedDesign { name: "atp", hardware: "atp", policy: "base", about: "ATP and SBFP: misses of the second level prefetch translations, also those that walks read beside", figure: "translation" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = *config.designs.get::<AtpSettings>();
    build::machine(config, setup, os, || {
        Ok(Atp {
            tlbs: Conventional::new(&config.tlb, setup.instructions)?,
            in_line: leaf_line::entries(config.cache.line_bytes),
            settings,
            state: State::new(&settings, Asid::ONLY),
            counts: Counts::default(),
        })
    })
}

fn own_state(config: &MachineConfig) -> Vec<Part> {
    let settings = config.designs.get::<AtpSettings>();
    let AtpSettings { entries, sampler_entries, fake_entries, .. } = *settings;
    let queue_bytes = |entries: u64| entries * size_of::<(Pages, Prefetched)>() as u64;
    let queues =
        queue_bytes(entries) + queue_bytes(sampler_entries) + 3 * queue_bytes(fake_entries);
    vec![
        Part { setting: "the queues of atp".to_owned(), bytes: queues },
        Part {
            setting: "atp.masp_sets and atp.masp_ways".to_owned(),
            bytes: Predictors::bytes(settings),
        },
    ]
}

/// A translation in the queue.
struct Prefetched {
    translation: Translation,
    /// The free distance at which a walk has seen the page; `None` if the walk was for this page.
    distance: Option<i64>,
}

/// Queues, counters and predictors, all of one address space.
struct State {
    asid: Asid,
    queue: Queue<Prefetched>,
    /// The free distances at which walks have seen pages.
    sampler: Queue<i64>,
    distances: Distances,
    predictors: Predictors,
    chooser: Chooser,
}

impl State {
    fn new(settings: &AtpSettings, asid: Asid) -> Self {
        State {
            asid,
            queue: Queue::new(settings.entries),
            sampler: Queue::new(settings.sampler_entries),
            distances: Distances::new(settings.distance_bits, settings.threshold),
            predictors: Predictors::new(settings),
            chooser: Chooser::new(settings),
        }
    }
}

/// Conventional TLBs with a prefetch queue.
struct Atp {
    tlbs: Conventional,
    /// Page-table entries of a line.
    in_line: u64,
    settings: AtpSettings,
    state: State,
    counts: Counts,
}

/// Counters of one core.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Look-ups of the queue.
    lookups: Lookups,
    /// Hits of free prefetches.
    free_hits: u64,
    sampler_hits: u64,
    /// Choices of each prefetcher, and of none.
    chosen: [u64; 3],
    chosen_none: u64,
    /// Walks for the predictions of each prefetcher.
    prefetches: [u64; 3],
    /// Page-table entries that these walks have read.
    references: u64,
    /// Predicted pages that the queue or the second level held.
    held: u64,
    /// Walks for prefetches that found no accessed page.
    dropped: u64,
    /// Free prefetches.
    free: u64,
    /// Pages that entered the sampler.
    sampled: u64,
    /// Translations that the queue evicted unused.
    evicted: u64,
}

/// The base pages of the page of a size that holds a base page.
fn pages_of(page: u64, size: PageSize) -> Pages {
    let order = size.base_shift();
    let first = page >> order << order;
    first..first + (1 << order)
}

impl BehindTlbs for Atp {
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
        let follows = matches!(in_second, Lookup::Miss) && self.settings.prefetches();
        let (translation, has_walked) = match in_second {
            Lookup::Hit(translation) => return Some(translation),
            Lookup::Miss if follows => self.find(env, page, access)?,
            _ => (self.walk(env, page, access, in_second.is_clean())?, true),
        };
        self.tlbs.fill_l2(env.asid(), page, translation, in_second);
        self.tlbs.fill_l1(env.asid(), page, translation, access);
        if follows {
            if has_walked {
                self.prefetch_free(env, page, translation.size);
            }
            if has_walked || self.settings.follow_hits {
                self.prefetch_predicted(env, page, access, translation.size)?;
            }
        }
        Some(translation)
    }
}

impl Atp {
    /// The translation of a page that all TLBs miss, from the queue or by a walk, and whether it is by a walk.
    fn find(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<(Translation, bool)> {
        if self.state.asid != env.asid() {
            self.state = State::new(&self.settings, env.asid());
        }
        env.charge_lookup(self.settings.lookup_cycles);
        let found = self.state.queue.take(page.raw());
        let lookup = Lookup::of(found.as_ref().map(|found| found.translation), access.is_store());
        if let Lookup::Hit(translation) = lookup {
            self.counts.lookups.hits += 1;
            if let Some(distance) = found.and_then(|found| found.distance) {
                self.counts.free_hits += 1;
                self.state.distances.count(distance);
            }
            return Some((translation, false));
        }
        self.counts.lookups.misses += 1;
        if let Some(distance) = self.state.sampler.take(page.raw()) {
            self.counts.sampler_hits += 1;
            self.state.distances.count(distance);
        }
        Some((self.walk(env, page, access, lookup.is_clean())?, true))
    }

    /// Trains the prefetchers with a miss, and prefetches the predictions of the chosen one. `None` when memory has run
    /// out.
    fn prefetch_predicted(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        size: PageSize,
    ) -> Option<()> {
        if !self.settings.prefetchers().contains(&true) {
            return Some(());
        }
        let (table, _) = env.tables(page).next().expect("a process has a table");
        let miss = Miss {
            first: pages_of(page.raw(), size).start,
            size,
            site: (access.kind() != Access::Fetch).then(|| env.site()),
            reach_pages: table.reach_pages(),
        };
        self.state.chooser.learn(page.raw());
        let chosen = self.state.chooser.choose();
        let predicted = self.state.predictors.predict(&miss);
        match chosen {
            Some(prefetcher) => {
                self.counts.chosen[prefetcher as usize] += 1;
                for page in predicted[prefetcher as usize].into_iter().flatten() {
                    self.prefetch(env, prefetcher, PageNumber::new(page))?;
                }
            }
            None => self.counts.chosen_none += 1,
        }
        for (prefetcher, pages) in Prefetcher::ALL.into_iter().zip(predicted) {
            for page in pages.into_iter().flatten() {
                self.prefetch_fake(prefetcher, PageNumber::new(page), size);
            }
        }
        Some(())
    }

    /// Walks to a predicted page. `None` when memory has run out.
    fn prefetch(&mut self, env: &mut Env, prefetcher: Prefetcher, page: PageNumber) -> Option<()> {
        if self.holds(env, page) {
            self.counts.held += 1;
            return Some(());
        }
        self.counts.prefetches[prefetcher as usize] += 1;
        self.counts.references += env.walk_to_prefetch(page)?;
        match seen(env, page, page, self.in_line) {
            Some(translation) => {
                self.fill_queue(env, page, Prefetched { translation, distance: None });
                self.prefetch_free(env, page, translation.size);
            }
            None => self.counts.dropped += 1,
        }
        Some(())
    }

    /// Adds a predicted page, and the pages that would be free with it, to the fake queue of a prefetcher.
    fn prefetch_fake(&mut self, prefetcher: Prefetcher, page: PageNumber, size: PageSize) {
        let State { chooser, distances, .. } = &mut self.state;
        chooser.add(prefetcher, pages_of(page.raw(), size));
        if self.settings.sbfp {
            let neighbours = neighbours(page, size, self.in_line);
            for (_, page) in neighbours.filter(|(distance, _)| distances.is_useful(*distance)) {
                chooser.add(prefetcher, pages_of(page.raw(), size));
            }
        }
    }

    /// Prefetches or samples the pages that the walk to a page of this size has seen beside it.
    fn prefetch_free(&mut self, env: &mut Env, page: PageNumber, size: PageSize) {
        if !self.settings.sbfp {
            return;
        }
        for (distance, other) in neighbours(page, size, self.in_line) {
            let seen = seen(env, page, other, self.in_line);
            let Some(translation) = seen.filter(|seen| seen.size == size) else { continue };
            if !self.state.distances.is_useful(distance) {
                self.state.sampler.push(pages_of(other.raw(), size), distance);
                self.counts.sampled += 1;
            } else if !self.holds(env, other) {
                self.counts.free += 1;
                self.fill_queue(env, other, Prefetched { translation, distance: Some(distance) });
            }
        }
    }

    /// Whether the queue or the second level holds a page.
    fn holds(&mut self, env: &Env, page: PageNumber) -> bool {
        self.state.queue.holds(page.raw())
            || self.tlbs.l2().is_some_and(|l2| l2.holds(env.asid(), page))
    }

    /// Adds a page that the last walk has seen to the queue.
    fn fill_queue(&mut self, env: &mut Env, page: PageNumber, prefetched: Prefetched) {
        let size = prefetched.translation.size;
        let pages = pages_of(page.raw(), size);
        // A page that the first level holds waits for no walk.
        if !self.tlbs.l1().holds(env.asid(), page) {
            env.keep_seen(PageNumber::new(pages.start), size);
        }
        self.counts.evicted += u64::from(self.state.queue.push(pages, prefetched));
    }
}

impl Design for Atp {
    const FOLLOWS_INSTRUCTIONS: bool = true;

    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.translate_behind_tlbs(env, access)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
        if self.state.asid == space.asid {
            self.state.queue.invalidate(pages);
            self.state.sampler.invalidate(pages);
        }
    }

    fn flush(&mut self) {
        self.tlbs.flush();
        self.state = State::new(&self.settings, self.state.asid);
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        let counts = &self.counts;
        counts.lookups.report("tlb.pq", counters);
        let [h2p, masp, stp] = counts.chosen;
        let [walks_h2p, walks_masp, walks_stp] = counts.prefetches;
        for (counter, value) in [
            ("free_hits", counts.free_hits),
            ("sampler_hits", counts.sampler_hits),
            ("chosen_h2p", h2p),
            ("chosen_masp", masp),
            ("chosen_stp", stp),
            ("chosen_none", counts.chosen_none),
            ("prefetches_h2p", walks_h2p),
            ("prefetches_masp", walks_masp),
            ("prefetches_stp", walks_stp),
            ("walk_references", counts.references),
            ("held", counts.held),
            ("dropped", counts.dropped),
            ("free", counts.free),
            ("sampled", counts.sampled),
            ("evicted", counts.evicted),
        ] {
            counters.add("atp", counter, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_types::Instructions;

    use super::*;
    use crate::config::resolve;
    use crate::core::{Costs, InBackground};
    use crate::env::tests::{FIRST, env};

    /// The pages that an access makes the design keep from walks.
    fn kept(atp: &mut Atp, env: &mut Env, page: u64) -> Vec<u64> {
        let access = LineAccess::new(page << 6, Access::Load, false, 0);
        atp.translate(env, access).expect("memory suffices");
        let mut costs = Costs::default();
        env.take_transfers(&mut costs.transfers);
        env.take_background(&mut costs);
        let walks =
            costs.background.iter().filter(|noted| matches!(noted, InBackground::Walk { .. }));
        assert!(walks.count() > 0);
        let pages = costs.background.iter().filter_map(|noted| match noted {
            InBackground::Page { first, .. } => Some(first.raw()),
            InBackground::Walk { .. } => None,
        });
        pages.collect()
    }

    #[test]
    fn pages_of_the_first_level_wait_for_no_prefetch() {
        let settings = [
            "tlb.l2=none",
            "atp.sbfp=false",
            "atp.h2p=false",
            "atp.masp=false",
            "atp.enable_bits=0",
        ];
        let config = resolve("skylake", &settings).unwrap().into_config();
        let settings = *config.designs.get::<AtpSettings>();
        let mut atp = Atp {
            tlbs: Conventional::new(&config.tlb, Instructions::PORTABLE).unwrap(),
            in_line: leaf_line::entries(config.cache.line_bytes),
            settings,
            state: State::new(&settings, Asid::ONLY),
            counts: Counts::default(),
        };
        let mut env = env(&[]).logging_transfers();
        // Pages that are not accessed yet are dropped.
        assert!(kept(&mut atp, &mut env, FIRST).is_empty());
        assert!(kept(&mut atp, &mut env, FIRST + 1).is_empty());
        assert!(atp.state.queue.holds(FIRST));
        atp.flush();
        assert_eq!(kept(&mut atp, &mut env, FIRST + 1), [FIRST]);
    }
}
