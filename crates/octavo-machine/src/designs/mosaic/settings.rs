//! `[mosaic]`: the pages of an entry, and which levels have such entries.

use octavo_config::check::IsLater;
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

use super::entry::MAX_ARITY;

/// Tables of contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MosaicSettings {
    /// The pages of an entry.
    pub arity: u64,
    /// Whether the first level holds tables of contents, too, instead of single pages.
    pub first_level: bool,
}

impl Default for MosaicSettings {
    /// The arity that fits an entry of usual width, in all TLBs.
    fn default() -> Self {
        MosaicSettings { arity: 4, first_level: true }
    }
}

impl DesignSettings for MosaicSettings {
    const TABLE: &'static str = "mosaic";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        if self.arity.is_power_of_two() && self.arity <= MAX_ARITY as u64 {
            return Ok(());
        }
        Err(InvalidValue::new("mosaic.arity", self.arity, "give a power of two from 1 to 64"))
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("arity=0", "give a power of two from 1 to 64"),
        ("arity=12", "give a power of two from 1 to 64"),
        ("arity=128", "give a power of two from 1 to 64"),
        ("first_level=2", "give true or false"),
    ];
    crate::designs::twins::assert_rejected("mosaic", &invalid);
}
