//! `[mix_tlb]`: which sets a miss fills, and how many superpages an entry holds.

use octavo_config::check::IsLater;
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

use super::entry::MAX_MEMBERS;

/// Mirrors and bundles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixTlbSettings {
    /// Which sets a miss of a superpage fills.
    pub fill: MixFill,
    /// The most superpages of a bundle; a level has no larger bundles than sets.
    pub bundle_pages: u64,
}

/// Which sets a miss of a superpage fills.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MixFill {
    /// Every set that one of its base pages looks in.
    All,
    /// The set that was looked up.
    Probed,
}

impl Default for MixTlbSettings {
    fn default() -> Self {
        MixTlbSettings { fill: MixFill::All, bundle_pages: MAX_MEMBERS }
    }
}

impl DesignSettings for MixTlbSettings {
    const TABLE: &'static str = "mix_tlb";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        match self.bundle_pages {
            pages @ 1..=MAX_MEMBERS if pages.is_power_of_two() => Ok(()),
            pages => {
                let key = "mix_tlb.bundle_pages";
                Err(InvalidValue::new(key, pages, "give a power of two from 1 to 128"))
            }
        }
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("fill=some", "probed"),
        ("bundle_pages=0", "give a power of two from 1 to 128"),
        ("bundle_pages=12", "give a power of two from 1 to 128"),
        ("bundle_pages=256", "give a power of two from 1 to 128"),
    ];
    crate::designs::twins::assert_rejected("mix_tlb", &invalid);
}
