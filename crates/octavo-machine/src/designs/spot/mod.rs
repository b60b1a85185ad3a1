//! Contiguity-aware (CA) paging and speculative offset-based address translation (SpOT; Alverti, Psomadakis, Karakostas,
//! Gandhi, Nikas, Goumas and Koziris, "Enhancing and Exploiting Contiguity for Fast Memory Virtualization", ISCA 2020): the
//! operating system maps the pages of a mapping at one offset to their frames, so that hardware predicts the frame of a
//! page that misses the TLBs, and hides the page walk.
//!
//! - CA paging is the policy `ca` (`policy.rs`): a fault takes the frame that continues the mapping, if it is free.
//! - SpOT has a small table by the address of the instruction that loads or stores: an *offset*, page number minus
//!   frame number, and a *confidence* of two bits. A miss of the second-level TLB looks it up, beside the beginning of
//!   the walk. With a confidence of 2 or 3, the instruction continues at the page number minus the offset while the
//!   walk verifies this frame. If the frame is wrong, all later instructions are flushed, and the instruction waits for
//!   the walk.
//! - After the walk, the entry's confidence rises by 1 if the offset is that of the page, and falls by 1 if it is not;
//!   at 0 the new offset replaces it, with confidence 1. An instruction without an entry takes an empty one, or the
//!   least recently used one with confidence 0; if there is none, it gets no entry.
//! - A page is learned only if it lies in a contiguous run of more than 32 pages, which the operating system marks in
//!   page-table entries; in a guest, both tables must do so.
//! - In a guest, an offset is from guest-virtual to host-physical, so that a prediction hides a two-dimensional walk.
//!   Guest and host each have CA paging of their own.
//!
//! Walks read, fault and fill TLBs as usual, so that TLBs, caches and page tables are those of the conventional design:
//! only time differs.
//!
//! **Time.** Where cycles are added up, the walk of a right prediction costs none, as the paper counts, and a wrong
//! prediction costs its walk and a flush. Out of order, the instruction continues at once, takes a walker, and commits
//! after the walk, so that a walk that is longer than the load can fill the reorder buffer. After a wrong prediction
//! the core fetches again, as after a mispredicted branch. Accesses to the page that follow before the walk ends
//! continue at the predicted frame.
//!
//! Assumptions: the paper's abstract and the authors' kernel, which has CA paging, were available, its text was not.
//! The table, its confidences and the run of 32 pages follow the summary in a later simulator (Virtuoso), the 8 sets of
//! 4 entries and the hidden walk are from memory, and the cycles of a flush are assumed. The lowest bits of the
//! instruction's address select the set. The mark follows a run at once and costs nothing; pages of other runs change
//! confidences, but no offsets. Fetches are not predicted; stores are, and reach the cache after commit. A prediction
//! for a page that faults is wrong, and costs no flush beside that of the fault. An entry belongs to its address space,
//! and a context switch that flushes TLBs empties the table; other invalidations leave it, since walks verify. Nothing
//! is read at a wrong frame. If TLBs hold halves of translations of a guest, a prediction hides the walk, and the
//! nested TLB is looked up as usual.

#[cfg(test)]
mod naive;
mod policy;
mod predictor;
mod settings;

use octavo_config::{DesignTable, MachineConfig};
use octavo_os::page_table::Format;
use octavo_os::policy::{OsConfig, PolicyEntry};
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, PageNumber};

use super::Conventional;
use super::behind_tlbs::BehindTlbs;
use super::build::{self, Tables};
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::state::Part;
use crate::tlb::{Lookup, Translation};
use policy::CaConfig;
use predictor::{Learned, Predictor};
use settings::SpotSettings;

/// CA paging, and predicted frames.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<SpotSettings>()),
    policies: &[PolicyEntry::new::<CaConfig>("ca", "contiguity-aware paging: a fault takes the frame that continues its mapping")],
    ..Family::new(
        &[TranslationHardware { own_state, ..TranslationHardware::new("spot", make) }],
        &[NamedDesign { name: "spot", hardware: "spot", policy: "ca", about: "SpOT and CA paging: loads go on at predicted frames while walks verify them", figure: "translation" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = *config.designs.get::<SpotSettings>();
    let format = Format { keeps_ranges: true, ..Format::default() };
    build::machine_with_tables(config, setup, Tables { format, ..Tables::default() }, os, |_| {
        Ok(Spot {
            tlbs: Conventional::new(&config.tlb, setup.instructions)?,
            predictor: Predictor::new(&settings),
            settings,
            counts: Counts::default(),
        })
    })
}

fn own_state(config: &MachineConfig) -> Vec<Part> {
    let bytes = Predictor::bytes(config.designs.get());
    vec![Part { setting: "spot.sets and spot.ways".to_owned(), bytes }]
}

/// Conventional TLBs whose misses have predictions.
struct Spot {
    tlbs: Conventional,
    predictor: Predictor,
    settings: SpotSettings,
    counts: Counts,
}

/// Counters of one core.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Misses whose instruction had an entry, and others.
    lookups: Lookups,
    right: u64,
    wrong: u64,
    /// Wrong predictions for pages that faulted.
    faulted: u64,
    /// Cycles of the walks of right predictions.
    hidden_cycles: u64,
    /// Instructions that got an entry.
    fills: u64,
    /// Misses after which no entry was free for the instruction.
    without_room: u64,
    /// Misses of pages in runs that are too short.
    short_runs: u64,
}

impl BehindTlbs for Spot {
    fn tlbs(&mut self) -> &mut Conventional {
        &mut self.tlbs
    }

    fn walk_and_fill_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (held, is_clean): (Lookup, bool),
    ) -> Option<Translation> {
        let translation = match held {
            Lookup::Miss if access.kind() != Access::Fetch && self.settings.sets > 0 => {
                self.walk_with_prediction(env, page, access)?
            }
            _ => self.walk(env, page, access, is_clean)?,
        };
        self.tlbs.fill_l2(env.asid(), page, translation, held);
        Some(translation)
    }
}

impl Spot {
    /// Walks for a miss of both levels, behind a prediction if there is one, and learns from the walk.
    fn walk_with_prediction(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let instruction = (env.asid(), env.site());
        let found = self.predictor.look_up(instruction);
        self.counts.lookups.hits += u64::from(found.is_some());
        self.counts.lookups.misses += u64::from(found.is_none());
        let translation = match found.filter(|entry| entry.is_confident) {
            None => self.walk(env, page, access, false)?,
            Some(entry) => {
                let frame = FrameNumber::new(page.raw().wrapping_sub(entry.offset));
                let flush_cycles = self.settings.flush_cycles;
                let (translation, verified) =
                    self.walk_speculatively(env, page, access, (frame, flush_cycles))?;
                self.counts.right += u64::from(verified.is_right);
                self.counts.wrong += u64::from(!verified.is_right);
                self.counts.faulted += u64::from(verified.has_faulted);
                if verified.is_right {
                    self.counts.hidden_cycles += u64::from(verified.walk_cycles);
                }
                translation
            }
        };
        self.learn(env, instruction, page);
        Some(translation)
    }

    fn learn(&mut self, env: &Env, instruction: predictor::Instruction, page: PageNumber) {
        let frame = env.frame(page).expect("a walk has found it");
        let is_in_long_run = env.tables(page).all(|(table, page)| {
            let range = table.ranges().and_then(|ranges| ranges.find(page));
            range.is_some_and(|run| run.pages.end - run.pages.start > self.settings.run_pages)
        });
        self.counts.short_runs += u64::from(!is_in_long_run);
        let offset = page.raw().wrapping_sub(frame.raw());
        match self.predictor.learn(instruction, offset, is_in_long_run) {
            Learned::New => self.counts.fills += 1,
            Learned::NoRoom => self.counts.without_room += 1,
            Learned::Updated | Learned::ShortRun => (),
        }
    }
}

impl Design for Spot {
    const FOLLOWS_INSTRUCTIONS: bool = true;

    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.translate_behind_tlbs(env, access)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
    }

    fn flush(&mut self) {
        self.tlbs.flush();
        self.predictor.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        let counts = &self.counts;
        counts.lookups.report("spot", counters);
        counters.add("spot", "predictions", counts.right + counts.wrong);
        counters.add("spot", "right", counts.right);
        counters.add("spot", "wrong", counts.wrong);
        counters.add("spot", "cycles_hidden", counts.hidden_cycles);
        counters.add("spot", "faulted", counts.faulted);
        let flushes = counts.wrong - counts.faulted;
        counters.add("spot", "cycles_flushes", flushes * u64::from(self.settings.flush_cycles));
        counters.add("spot", "fills", counts.fills);
        counters.add("spot", "without_room", counts.without_room);
        counters.add("spot", "short_runs", counts.short_runs);
    }
}
