//! `[morrigan]`: the prefetch buffer, the tables, and what is prefetched.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

use super::tables::TABLES;

/// The prefetcher of instruction translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MorriganSettings {
    /// Entries of the prefetch buffer; 0 for no prefetching.
    pub entries: u64,
    /// Cycles of its look-up.
    pub lookup_cycles: u32,
    /// Entries of the table whose entries have one successor.
    pub pages_1: u64,
    /// Entries of the table whose entries have up to two successors.
    pub pages_2: u64,
    /// Entries of the table whose entries have up to four successors.
    pub pages_4: u64,
    /// Entries of the table whose entries have up to eight successors.
    pub pages_8: u64,
    /// Misses after which the frequencies of all entries are halved; 0 for never.
    pub phase_misses: u64,
    /// Whether the next page is prefetched after a miss without prediction.
    pub sequential: bool,
    /// Whether pages are prefetched that the walk to the most likely successor, or to the next page, sees beside it.
    pub free: bool,
}

impl Default for MorriganSettings {
    /// Assumed sizes.
    fn default() -> Self {
        MorriganSettings {
            entries: 64,
            lookup_cycles: 2,
            pages_1: 128,
            pages_2: 128,
            pages_4: 128,
            pages_8: 64,
            phase_misses: 4096,
            sequential: true,
            free: true,
        }
    }
}

impl MorriganSettings {
    /// The entries of each table, from that of one successor on.
    pub fn pages(&self) -> [u64; TABLES] {
        [self.pages_1, self.pages_2, self.pages_4, self.pages_8]
    }

    /// Whether anything can be prefetched.
    pub fn prefetches(&self) -> bool {
        self.entries > 0 && (self.sequential || self.pages().iter().any(|pages| *pages > 0))
    }
}

/// The most entries of the buffer and of a table, which are searched one by one.
const MAX_ENTRIES: u64 = 1024;
const MAX_CYCLES: u32 = 1000;
const MAX_PHASE: u64 = 1 << 32;

impl DesignSettings for MorriganSettings {
    const TABLE: &'static str = "morrigan";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("morrigan.entries", self.entries, 0, MAX_ENTRIES)?;
        check_range("morrigan.lookup_cycles", self.lookup_cycles, 0, MAX_CYCLES)?;
        let keys = ["morrigan.pages_1", "morrigan.pages_2", "morrigan.pages_4", "morrigan.pages_8"];
        for (key, pages) in keys.into_iter().zip(self.pages()) {
            check_range(key, pages, 0, MAX_ENTRIES)?;
        }
        check_range("morrigan.phase_misses", self.phase_misses, 0, MAX_PHASE)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::resolve;

    #[test]
    fn invalid_settings_are_rejected_with_one_sentence() {
        for (setting, advice) in [
            ("entries=1025", "give a whole number from 0 to 1024"),
            ("lookup_cycles=1001", "give a whole number from 0 to 1000"),
            ("pages_1=1025", "give a whole number from 0 to 1024"),
            ("pages_8=1025", "give a whole number from 0 to 1024"),
            ("phase_misses=4294967297", "give a whole number from 0 to 4294967296"),
            ("phase_misses=many", "give a whole number from 0 to 4294967296"),
            ("free=2", "give true or false"),
        ] {
            let result = resolve("skylake", &[&format!("morrigan.{setting}")]).map(|_| ());
            let message = result.unwrap_err().to_string();
            assert!(message.contains("morrigan.") && message.contains(advice), "{message}");
        }
    }
}
