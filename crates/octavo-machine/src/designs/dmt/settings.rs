//! `[dmt]`: which mappings have translation entry areas, and how a guest's areas are read.

use octavo_config::check::{IsLater, check_pages, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig, written};
use serde::{Deserialize, Serialize};

/// Mappings with translation entry areas, and the reads of a guest's areas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DmtSettings {
    /// The parts of a process' address space that have entry areas at a time: the registers of a core.
    pub registers: u64,
    /// The fewest bytes of a mapping with an entry area.
    #[serde(with = "written::bytes")]
    pub min_bytes: u64,
    /// Mappings share an entry area if they occupy at least this percentage of the addresses from the first to the
    /// last.
    pub min_occupancy_percent: u64,
    /// Whether pages of 2 MiB have entry areas of their own.
    pub huge: bool,
    /// In a guest, whether its entry areas are placed in the host's memory by hypercalls, so that hardware reads them
    /// without a translation by the host.
    pub paravirtual: bool,
}

impl Default for DmtSettings {
    /// The values of the authors' kernel, with the paravirtual guest that the paper calls pvDMT.
    fn default() -> Self {
        DmtSettings {
            registers: 16,
            min_bytes: 64 << 20,
            min_occupancy_percent: 98,
            huge: true,
            paravirtual: true,
        }
    }
}

const MAX_REGISTERS: u64 = 1024;
/// More than all addresses: no mappings share an area.
const MAX_OCCUPANCY_PERCENT: u64 = 101;

impl DesignSettings for DmtSettings {
    const TABLE: &'static str = "dmt";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("dmt.registers", self.registers, 0, MAX_REGISTERS)?;
        let percent = self.min_occupancy_percent;
        check_range("dmt.min_occupancy_percent", percent, 1, MAX_OCCUPANCY_PERCENT)?;
        check_pages("dmt.min_bytes", self.min_bytes)
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("registers=1025", "give a whole number from 0 to 1024"),
        ("min_bytes=0", "give a multiple of \"4KiB\" up to \"1TiB\""),
        ("min_bytes=6KiB", "give a multiple of \"4KiB\" up to \"1TiB\""),
        ("min_bytes=2TiB", "give a multiple of \"4KiB\" up to \"1TiB\""),
        ("min_occupancy_percent=0", "give a whole number from 1 to 101"),
        ("min_occupancy_percent=102", "give a whole number from 1 to 101"),
        ("huge=2", "give true or false"),
        ("paravirtual=2", "give true or false"),
    ];
    crate::designs::twins::assert_rejected("dmt", &invalid);
}
