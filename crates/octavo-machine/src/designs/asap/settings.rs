//! `[asap]`: which areas and which entries are prefetched.

use octavo_config::check::{IsLater, check_pages, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig, written};
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

/// Areas, and the levels whose entries are prefetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AsapSettings {
    /// The number of areas in the registers of a core.
    pub registers: u64,
    /// The fewest bytes of an area.
    #[serde(with = "written::bytes")]
    pub min_bytes: u64,
    /// Whether entries of level 1 are prefetched; in a guest, of its table.
    pub leaf: bool,
    /// Whether entries of level 2 are prefetched; in a guest, of its table.
    pub upper: bool,
    /// In a guest, whether entries of level 1 of the host's table are prefetched.
    pub host_leaf: bool,
    /// In a guest, whether entries of level 2 of the host's table are prefetched.
    pub host_upper: bool,
}

impl Default for AsapSettings {
    /// Sixteen registers, which is more than the paper's programs need for nearly all of their memory, and all levels. An
    /// area has as many addresses as a node of level 1.
    fn default() -> Self {
        AsapSettings {
            registers: 16,
            min_bytes: PageSize::HUGE.bytes(),
            leaf: true,
            upper: true,
            host_leaf: true,
            host_upper: true,
        }
    }
}

const MAX_REGISTERS: u64 = 1024;

impl DesignSettings for AsapSettings {
    const TABLE: &'static str = "asap";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("asap.registers", self.registers, 0, MAX_REGISTERS)?;
        check_pages("asap.min_bytes", self.min_bytes)
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("registers=1025", "give a whole number from 0 to 1024"),
        ("min_bytes=0", "give a multiple of \"4KiB\" up to \"1TiB\""),
        ("min_bytes=6KiB", "give a multiple of \"4KiB\" up to \"1TiB\""),
        ("min_bytes=2TiB", "give a multiple of \"4KiB\" up to \"1TiB\""),
        ("leaf=2", "give true or false"),
    ];
    crate::designs::twins::assert_rejected("asap", &invalid);
}
