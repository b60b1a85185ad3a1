//! `[anchor]`: the anchor distance, who chooses it, and the latency of the look-up of an anchor.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use octavo_os::page_table::AnchorFormat;
use serde::{Deserialize, Serialize};

/// Anchors of page tables and TLBs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnchorSettings {
    /// The distance of all processes, in base pages; 1 for no anchors; 0 if the operating system chooses it.
    pub distance: u64,
    /// The largest distance that the operating system chooses.
    pub max_distance: u64,
    /// Instructions between two choices.
    pub choose_every_instructions: u64,
    /// Cycles of the look-up of an anchor, which follows the look-up of the page.
    pub lookup_cycles: u64,
}

impl Default for AnchorSettings {
    /// Distances up to 2^16 and one more cycle, from memory of the paper; the time between choices is assumed.
    fn default() -> Self {
        AnchorSettings {
            distance: 0,
            max_distance: MAX_DISTANCE,
            choose_every_instructions: 10_000_000,
            lookup_cycles: 1,
        }
    }
}

/// The largest number of TOML.
const MAX_INSTRUCTIONS: u64 = i64::MAX as u64;
const MAX_DISTANCE: u64 = 1 << AnchorFormat::MAX_LOG2;

impl AnchorSettings {
    /// The anchors of page tables.
    pub fn format(&self) -> AnchorFormat {
        let is_chosen = self.distance == 0;
        AnchorFormat {
            first_log2: self.distance.max(1).ilog2() as u8,
            largest_log2: self.max_distance.ilog2() as u8,
            choose_every_instructions: if is_chosen { self.choose_every_instructions } else { 0 },
        }
    }
}

impl DesignSettings for AnchorSettings {
    const TABLE: &'static str = "anchor";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        let is_distance = |pages: u64| pages.is_power_of_two() && pages <= MAX_DISTANCE;
        if self.distance != 0 && !is_distance(self.distance) {
            let advice = "give a power of two from 1 to 65536, or 0, with which it is chosen";
            return Err(InvalidValue::new("anchor.distance", self.distance, advice));
        }
        if !is_distance(self.max_distance) {
            let advice = "give a power of two from 1 to 65536";
            return Err(InvalidValue::new("anchor.max_distance", self.max_distance, advice));
        }
        let every = self.choose_every_instructions;
        check_range("anchor.choose_every_instructions", every, 1, MAX_INSTRUCTIONS)?;
        check_range("anchor.lookup_cycles", self.lookup_cycles, 0, 1000)
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("distance=3", "give a power of two from 1 to 65536, or 0"),
        ("distance=131072", "give a power of two from 1 to 65536, or 0"),
        ("max_distance=0", "give a power of two from 1 to 65536"),
        ("choose_every_instructions=0", "give a whole number from 1"),
        ("lookup_cycles=1001", "give a whole number from 0 to 1000"),
    ];
    crate::designs::twins::assert_rejected("anchor", &invalid);
}
