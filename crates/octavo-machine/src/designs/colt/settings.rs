//! `[colt]`: the size of the array of ranges.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

use super::{Coalescing, GROUP_PAGES, LongRuns, RANGES};
use crate::tlb::Ranges;

/// The array of ranges of `colt` and `colt_fa`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColtSettings {
    /// Its entries.
    pub range_entries: u64,
    /// The most pages to which ranges are merged.
    pub range_pages: u64,
}

impl Default for ColtSettings {
    fn default() -> Self {
        ColtSettings { range_entries: RANGES.entries as u64, range_pages: RANGES.limit_pages }
    }
}

/// The most pages of a range: those of a page of 2 MiB.
const MAX_PAGES: u64 = 512;

impl DesignSettings for ColtSettings {
    const TABLE: &'static str = "colt";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("colt.range_entries", self.range_entries, 1, Ranges::MAX_ENTRIES)?;
        check_range("colt.range_pages", self.range_pages, 2 * GROUP_PAGES, MAX_PAGES)
    }
}

impl ColtSettings {
    /// The coalescing of a design with the array of these settings, if the design has one.
    pub fn applied_to(&self, coalescing: Coalescing) -> Coalescing {
        let (entries, limit_pages) = (self.range_entries as usize, self.range_pages);
        let long_runs = coalescing.long_runs;
        let long_runs = long_runs.map(|runs| LongRuns { entries, limit_pages, ..runs });
        Coalescing { long_runs, ..coalescing }
    }
}
