//! The host of a virtual machine.

use indexmap::IndexMap;
use octavo_os::policy::{OsConfig, Policies, PolicyError};
use serde::{Deserialize, Serialize};

use super::{MemoryConfig, PageTableConfig, TlbLevel, WalkCache};
use crate::written;

/// The host of a virtual machine. With a host, programs run in the guest of one virtual machine,
/// and the machine's other keys on memory, page tables, TLBs and walk caches describe the guest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// The policy that gives the virtual machine its memory, such as `thp:max_ptes_none=0`; or
    /// [`HostConfig::OF_DESIGN`].
    pub policy: String,
    /// The translations that TLBs hold.
    pub tlbs_hold: TlbsHold,
    /// Its physical memory.
    pub memory: MemoryConfig,
    /// The shape of the table that translates guest-physical addresses.
    pub page_table: PageTableConfig,
    /// The nested TLB of each core, from guest-physical to host-physical pages.
    #[serde(default)]
    pub tlb: Option<TlbLevel>,
    /// The walk caches of each core for the host's table, by name.
    #[serde(default, deserialize_with = "written::tables_or_none")]
    pub walk_caches: IndexMap<String, WalkCache>,
}

/// The translations that the TLBs of a machine with a guest hold (Park et al., ISCA 2020, section V).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlbsHold {
    /// Translations from guest-virtual to host-physical pages, of the smaller of both pages' sizes.
    Final,
    /// As `Final`, except where the guest's page is larger than the host's: TLBs then hold the
    /// translation from guest-virtual to guest-physical pages, and each reference looks up the
    /// nested TLB for the rest.
    Halves,
}

impl HostConfig {
    /// The name that stands for each design's own policy.
    pub const OF_DESIGN: &str = "design";

    /// The policy, one of `policies`; `None` for the design's own.
    ///
    /// # Errors
    ///
    /// If there is no such policy.
    pub fn own_policy(&self, policies: &Policies) -> Result<Option<OsConfig>, PolicyError> {
        match &*self.policy {
            Self::OF_DESIGN => Ok(None),
            policy => policies.parse(policy).map(Some),
        }
    }
}
