//! The predictor of pages that are costly to translate.

use std::sync::{Arc, Mutex, PoisonError};

use octavo_os::ProcessId;
use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::settings::{Predictor, VictimaSettings};
use crate::env::Env;
use crate::tlb::Translation;

/// The counters of all pages, which all cores share.
pub type SharedCounts = Arc<Mutex<WalkCounts>>;

/// The counters that hardware has in unused bits of page-table entries.
#[derive(Default)]
pub struct WalkCounts {
    /// By process, page size and number.
    pages: FxHashMap<(ProcessId, PageSize, u64), PageCounts>,
    /// Counters of processes that have ended are removed when there are this many counters.
    many: usize,
}

/// The counters of one page.
#[derive(Clone, Copy, Default)]
struct PageCounts {
    /// The frame in the page-table entry. With another frame, the entry is new and its counters are zero.
    frame: FrameNumber,
    /// Walks.
    frequency: u8,
    /// Walks that read memory.
    cost: u8,
}

/// With fewer counters than this, none are removed.
const FEW: usize = 1 << 16;

impl WalkCounts {
    /// The counters of the page that a base page belongs to.
    fn of_page(
        &mut self,
        env: &Env,
        page: PageNumber,
        translation: Translation,
    ) -> &mut PageCounts {
        if self.pages.len() >= self.many.max(FEW) {
            let live: Vec<_> = env.os().memory().live().collect();
            self.pages.retain(|(process, ..), _| live.contains(process));
            self.many = 2 * self.pages.len();
        }
        let Translation { size, entry } = translation;
        let key = (env.process(), size, page.raw() >> size.base_shift());
        let counts = self.pages.entry(key).or_default();
        if counts.frame != entry.frame() {
            *counts = PageCounts { frame: entry.frame(), ..PageCounts::default() };
        }
        counts
    }
}

/// The predictor of a core.
pub struct CostPredictor {
    settings: VictimaSettings,
    counts: SharedCounts,
    /// Instructions and misses of the second-level cache at the start of the window.
    window_start: (u64, u64),
    /// Whether the last whole window had so many misses that all pages are worth a block.
    is_bypassed: bool,
}

impl CostPredictor {
    pub fn new(settings: VictimaSettings, counts: SharedCounts) -> Self {
        CostPredictor { settings, counts, window_start: (0, 0), is_bypassed: false }
    }

    /// Whether any page may be worth a block.
    pub fn fills(&self) -> bool {
        self.settings.predictor != Predictor::Never
    }

    /// Counts a walk to a page.
    pub fn count(&mut self, env: &Env, page: PageNumber, walked: Translation, read_memory: bool) {
        if self.settings.predictor != Predictor::Bounds {
            return;
        }
        let VictimaSettings { frequency_bits, cost_bits, .. } = self.settings;
        let add = |count: &mut u8, bits: u64| {
            *count = (u64::from(*count) + 1).min((1 << bits) - 1) as u8;
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let page_counts = counts.of_page(env, page, walked);
        add(&mut page_counts.frequency, frequency_bits);
        if read_memory {
            add(&mut page_counts.cost, cost_bits);
        }
    }

    /// Whether a page that was walked to is worth a block.
    pub fn is_costly(&mut self, env: &Env, page: PageNumber, walked: Translation) -> bool {
        match self.settings.predictor {
            Predictor::Always => true,
            Predictor::Never => false,
            Predictor::Bounds => self.is_bypassed(env) || self.is_within_bounds(env, page, walked),
        }
    }

    fn is_within_bounds(&self, env: &Env, page: PageNumber, walked: Translation) -> bool {
        let settings = self.settings;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let PageCounts { frequency, cost, .. } = *counts.of_page(env, page, walked);
        (settings.frequency_min..=settings.frequency_max).contains(&u64::from(frequency))
            && (settings.cost_min..=settings.cost_max).contains(&u64::from(cost))
    }

    /// Whether the second-level cache has missed often. A window ends at the first call after its instructions.
    fn is_bypassed(&mut self, env: &Env) -> bool {
        let (instructions, misses) = env.fetches_and_l2_misses();
        let (first, misses_before) = self.window_start;
        let passed = instructions - first;
        if passed >= self.settings.window_instructions {
            let missed = misses - misses_before;
            self.is_bypassed = 1000 * missed > self.settings.bypass_misses * passed;
            self.window_start = (instructions, misses);
        }
        self.is_bypassed
    }
}
