//! `[pom_tlb]`: the size of the tables in memory.

use octavo_config::check::IsLater;
use octavo_config::{DesignSettings, InvalidValue, MachineConfig, written};
use octavo_types::PageSize;
use octavo_types::values::size_text;
use serde::{Deserialize, Serialize};

/// The tables of POM-TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PomTlbSettings {
    /// Bytes of both tables.
    #[serde(with = "written::bytes")]
    pub bytes: u64,
}

impl Default for PomTlbSettings {
    fn default() -> Self {
        PomTlbSettings { bytes: 16 << 20 }
    }
}

/// The most bytes.
const MAX_BYTES: u64 = 1 << 30;

impl DesignSettings for PomTlbSettings {
    const TABLE: &'static str = "pom_tlb";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        let is_allowed = (PageSize::BASE.bytes()..=MAX_BYTES).contains(&self.bytes);
        if is_allowed && self.bytes.is_power_of_two() {
            return Ok(());
        }
        let given = format!("\"{}\"", size_text(self.bytes));
        let advice = "give a power of two from \"4KiB\" to \"1GiB\"";
        Err(InvalidValue::new("pom_tlb.bytes", given, advice))
    }
}
