//! The cycles of translation: every look-up and every access of a walker, serial or overlapped as in the machine.

use octavo_config::{MachineConfig, WalkStart};

use super::tlb::Page;
use super::{L1D, L2, LLC, NaiveMachine};

/// Total cycles so far, and latencies.
pub struct Cycles {
    pub all: u64,
    l2_latency: u64,
    nested_latency: u64,
    /// Latencies by cache, then of memory.
    latencies: [u64; 4],
    /// The first line and the added latency of each tier of the memory.
    tiers: Vec<(u64, u64)>,
    overhead: u64,
    overlaps: bool,
    /// The last look-up of the second level, if it missed: its latency, and the total cycles after it.
    missed: Option<(u64, u64)>,
    /// The latency of the last look-up of the nested TLB if it missed, else 0.
    nested_missed: u64,
}

impl Cycles {
    pub fn new(config: &MachineConfig) -> Self {
        let caches = &config.cache;
        let latency = |number| match number {
            LLC => caches.llc.latency_cycles,
            L2 => caches.l2.latency_cycles,
            L1D => caches.l1d.latency_cycles,
            _ => caches.memory_latency_cycles,
        };
        let host_tlb = config.host.as_ref().and_then(|host| host.tlb.as_ref());
        Cycles {
            all: 0,
            l2_latency: config.tlb.l2.as_ref().map_or(0, |l2| l2.hit_latency_cycles.into()),
            nested_latency: host_tlb.map_or(0, |tlb| tlb.hit_latency_cycles.into()),
            latencies: [0, 1, 2, 3].map(|number| latency(number).into()),
            tiers: tiers(config).into_iter().map(|(_, first, added)| (first, added)).collect(),
            overhead: config.walker.overhead_cycles.into(),
            overlaps: config.walker.start == WalkStart::WithLookup,
            missed: None,
            nested_missed: 0,
        }
    }

    /// Charges a look-up of the second level, or of another structure with its latency.
    pub fn tlb_access(&mut self, is_hit: bool) {
        self.all += self.l2_latency;
        self.missed = (!is_hit).then_some((self.l2_latency, self.all));
    }

    pub fn needs_no_walk(&mut self) {
        self.missed = None;
    }

    pub fn start_walk(&mut self) {
        self.all += self.overhead;
    }

    /// Ends a walk: its cycles since the look-up may overlap the look-up.
    pub fn walked(&mut self) {
        if let Some((lookup, before)) = self.missed.take().filter(|_| self.overlaps) {
            self.all -= lookup.min(self.all - before);
        }
    }

    pub fn looked_up_nested(&mut self, is_hit: bool) {
        self.all += self.nested_latency;
        self.nested_missed = if is_hit { 0 } else { self.nested_latency };
    }

    /// Returns the latency of the last missed look-up, and the total cycles.
    pub fn start_walk_of_host(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.nested_missed), self.all)
    }

    pub fn walked_host(&mut self, lookup: u64, before: u64) {
        if self.overlaps {
            self.all -= lookup.min(self.all - before);
        }
    }
}

impl NaiveMachine {
    /// Cycles that translation has cost.
    pub fn translation_cycles(&self) -> u64 {
        self.cycles.all
    }

    pub fn look_up_l2(&mut self, page: u64) -> Option<Page> {
        let found = self.l2.as_mut()?.look_up(page);
        self.cycles.tlb_access(found.is_some());
        found
    }

    /// A walker access to a line.
    pub fn access_for_walk(&mut self, line: u64, is_write: bool) {
        let served = self.caches.access(L1D, line, is_write);
        self.cycles.all += self.cycles.latencies[served.unwrap_or(3)];
        if served.is_none() {
            let tier = self.cycles.tiers.iter().rfind(|(first, _)| *first <= line);
            self.cycles.all += tier.map_or(0, |(_, added)| *added);
        }
    }
}

/// The tiers of machine memory (the host's in a guest): name, first line and added latency.
pub fn tiers(config: &MachineConfig) -> Vec<(String, u64, u64)> {
    let memory = config.host.as_ref().map_or(&config.memory, |host| &host.memory);
    let mut end = memory.bytes;
    let mut tiers = Vec::new();
    for (name, tier) in memory.tiers.iter().rev() {
        end -= tier.bytes.expect("tiers of these tests have bytes");
        tiers.insert(
            0,
            (name.clone(), end / config.cache.line_bytes, tier.added_latency_cycles.into()),
        );
    }
    tiers
}
