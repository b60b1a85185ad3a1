//! `[revelator]`: what is prefetched, and when.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

/// The speculation engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RevelatorSettings {
    /// Whether lines of data are prefetched.
    pub data: bool,
    /// Whether entries of level 1 of page tables are prefetched; in a guest, of both tables.
    pub entries: bool,
    /// Cycles of the hash functions.
    pub hash_cycles: u32,
    /// The filter: a candidate is left out if its hash function has placed less than this percentage of all pages.
    pub min_percent: u32,
}

impl Default for RevelatorSettings {
    /// Both prefetches and two cycles, as in the paper, and an assumed filter.
    fn default() -> Self {
        RevelatorSettings { data: true, entries: true, hash_cycles: 2, min_percent: 10 }
    }
}

const MAX_HASH_CYCLES: u32 = 1000;

impl DesignSettings for RevelatorSettings {
    const TABLE: &'static str = "revelator";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("revelator.hash_cycles", self.hash_cycles, 0, MAX_HASH_CYCLES)?;
        check_range("revelator.min_percent", self.min_percent, 0, 100)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::resolve;

    #[test]
    fn invalid_settings_are_rejected_with_one_sentence() {
        for (setting, advice) in [
            ("hash_cycles=1001", "give a whole number from 0 to 1000"),
            ("min_percent=101", "give a whole number from 0 to 100"),
            ("data=2", "give true or false"),
        ] {
            let result = resolve("skylake", &[&format!("revelator.{setting}")]).map(|_| ());
            let message = result.unwrap_err().to_string();
            assert!(message.contains("revelator.") && message.contains(advice), "{message}");
        }
    }
}
