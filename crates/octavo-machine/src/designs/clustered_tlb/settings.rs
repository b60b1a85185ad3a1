//! `[clustered_tlb]`: how much of the second level holds clusters, and which.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

/// The clustered part of the second level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusteredTlbSettings {
    /// The part of the ways of the array of 4 KiB pages that hold clusters, in percent; 0 for none.
    pub ways_percent: u64,
    /// Base pages of a cluster.
    pub cluster_pages: u64,
    /// The fewest pages of a cluster that share an entry. Of fewer, only the requested page is held.
    pub min_pages: u64,
}

impl Default for ClusteredTlbSettings {
    /// Clusters of eight pages. Assumed: a quarter of the ways hold clusters, and any two pages are a cluster.
    fn default() -> Self {
        ClusteredTlbSettings { ways_percent: 25, cluster_pages: 8, min_pages: 2 }
    }
}

impl DesignSettings for ClusteredTlbSettings {
    const TABLE: &'static str = "clustered_tlb";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        let ClusteredTlbSettings { ways_percent, cluster_pages, min_pages } = *self;
        check_range("clustered_tlb.ways_percent", ways_percent, 0, 99)?;
        if ![2, 4, 8].contains(&cluster_pages) {
            let key = "clustered_tlb.cluster_pages";
            return Err(InvalidValue::new(key, cluster_pages, "give 2, 4 or 8"));
        }
        check_range("clustered_tlb.min_pages", min_pages, 1, cluster_pages)
    }
}

impl ClusteredTlbSettings {
    /// The number of `ways` that hold clusters. Of several ways, one remains for pages.
    pub fn ways_of(&self, ways: u64) -> u64 {
        match self.ways_percent {
            0 => 0,
            percent => ((ways * percent + 50) / 100).max(1).min(ways - 1),
        }
    }
}
