//! `[spot]`: the table of offsets, and the cost of a wrong prediction.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

/// The table of offsets, what it learns, and a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpotSettings {
    /// Sets of the table.
    pub sets: u64,
    /// Entries of a set.
    pub ways: u64,
    /// Base pages of a run: only pages of longer runs are learned.
    pub run_pages: u64,
    /// Cycles of the flush after a wrong prediction, where cycles are added up.
    pub flush_cycles: u32,
}

impl Default for SpotSettings {
    /// 32 entries, 4 in a set, and runs of more than 32 pages; a flush as long as that of a mispredicted branch.
    fn default() -> Self {
        SpotSettings { sets: 8, ways: 4, run_pages: 32, flush_cycles: 20 }
    }
}

const MAX_SETS: u64 = 4096;
const MAX_WAYS: u64 = 64;
/// The pages of 1 TiB.
const MAX_RUN_PAGES: u64 = 1 << 28;
const MAX_FLUSH_CYCLES: u32 = 1000;

impl DesignSettings for SpotSettings {
    const TABLE: &'static str = "spot";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("spot.sets", self.sets, 0, MAX_SETS)?;
        check_range("spot.ways", self.ways, 1, MAX_WAYS)?;
        check_range("spot.run_pages", self.run_pages, 0, MAX_RUN_PAGES)?;
        check_range("spot.flush_cycles", self.flush_cycles, 0, MAX_FLUSH_CYCLES)
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("sets=4097", "give a whole number from 0 to 4096"),
        ("ways=0", "give a whole number from 1 to 64"),
        ("run_pages=300000000", "give a whole number from 0 to 268435456"),
        ("flush_cycles=1001", "give a whole number from 0 to 1000"),
    ];
    crate::designs::twins::assert_rejected("spot", &invalid);
}
