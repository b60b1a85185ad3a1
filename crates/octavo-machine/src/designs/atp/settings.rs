//! `[atp]`: queues, prefetchers, and the counters that choose.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

/// The prefetch queue and what fills it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AtpSettings {
    /// Entries of the prefetch queue; 0 for no prefetching.
    pub entries: u64,
    /// Cycles of its look-up.
    pub lookup_cycles: u32,
    /// Whether prefetchers follow misses that hit the queue, too.
    pub follow_hits: bool,
    /// Whether H2P is on.
    pub h2p: bool,
    /// Whether MASP is on.
    pub masp: bool,
    /// Whether STP is on.
    pub stp: bool,
    /// Sets of MASP's table.
    pub masp_sets: u64,
    /// Entries of a set.
    pub masp_ways: u64,
    /// Entries of the fake queue of each prefetcher.
    pub fake_entries: u64,
    /// Bits of the counter that turns prefetchers on and off; 0 for always on.
    pub enable_bits: u64,
    /// Bits of the counter that chooses H2P or one of the others.
    pub select_1_bits: u64,
    /// Bits of the counter that chooses STP or MASP.
    pub select_2_bits: u64,
    /// Whether there are free prefetches.
    pub sbfp: bool,
    /// Entries of the sampler.
    pub sampler_entries: u64,
    /// Bits of the counter of a free distance.
    pub distance_bits: u64,
    /// Pages at distances whose counter is above this value are prefetched.
    pub threshold: u64,
}

impl Default for AtpSettings {
    /// The sizes on which independent implementations of the paper agree, and the cycles of one of them.
    fn default() -> Self {
        AtpSettings {
            entries: 64,
            lookup_cycles: 2,
            follow_hits: false,
            h2p: true,
            masp: true,
            stp: true,
            masp_sets: 16,
            masp_ways: 4,
            fake_entries: 16,
            enable_bits: 8,
            select_1_bits: 6,
            select_2_bits: 2,
            sbfp: true,
            sampler_entries: 64,
            distance_bits: 10,
            threshold: 100,
        }
    }
}

impl AtpSettings {
    /// Whether H2P, MASP and STP are on.
    pub fn prefetchers(&self) -> [bool; 3] {
        [self.h2p, self.masp, self.stp]
    }

    /// Whether anything can be prefetched.
    pub fn prefetches(&self) -> bool {
        self.entries > 0 && (self.sbfp || self.prefetchers().contains(&true))
    }
}

/// The most entries of a queue, which is searched one by one.
const MAX_ENTRIES: u64 = 1024;
const MAX_SETS: u64 = 4096;
const MAX_WAYS: u64 = 64;
const MAX_CYCLES: u32 = 1000;
const MAX_BITS: u64 = 16;

impl DesignSettings for AtpSettings {
    const TABLE: &'static str = "atp";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        let check = |name: &str, value, least, most| {
            check_range(&format!("atp.{name}"), value, least, most)
        };
        check("entries", self.entries, 0, MAX_ENTRIES)?;
        check_range("atp.lookup_cycles", self.lookup_cycles, 0, MAX_CYCLES)?;
        check("masp_sets", self.masp_sets, 1, MAX_SETS)?;
        check("masp_ways", self.masp_ways, 1, MAX_WAYS)?;
        check("fake_entries", self.fake_entries, 1, MAX_ENTRIES)?;
        check("enable_bits", self.enable_bits, 0, MAX_BITS)?;
        check("select_1_bits", self.select_1_bits, 1, MAX_BITS)?;
        check("select_2_bits", self.select_2_bits, 1, MAX_BITS)?;
        check("sampler_entries", self.sampler_entries, 1, MAX_ENTRIES)?;
        // A counter of one bit would be halved at each count.
        check("distance_bits", self.distance_bits, 2, MAX_BITS)?;
        check("threshold", self.threshold, 0, (1 << self.distance_bits) - 1)
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("entries=1025", "give a whole number from 0 to 1024"),
        ("lookup_cycles=1001", "give a whole number from 0 to 1000"),
        ("h2p=2", "give true or false"),
        ("masp_sets=0", "give a whole number from 1 to 4096"),
        ("masp_ways=65", "give a whole number from 1 to 64"),
        ("fake_entries=0", "give a whole number from 1 to 1024"),
        ("enable_bits=17", "give a whole number from 0 to 16"),
        ("select_1_bits=0", "give a whole number from 1 to 16"),
        ("select_2_bits=0", "give a whole number from 1 to 16"),
        ("sampler_entries=0", "give a whole number from 1 to 1024"),
        ("distance_bits=1", "give a whole number from 2 to 16"),
        ("threshold=1024", "give a whole number from 0 to 1023"),
    ];
    crate::designs::twins::assert_rejected("atp", &invalid);
}
