//! Validation of hosts.

use super::{IsLater, check_level, check_levels, check_walk_caches, memory};
use crate::error::InvalidValue;
use crate::types::{HostConfig, TlbsHold};
use octavo_os::policy::Policies;

pub fn check(
    host: &HostConfig,
    policies: &Policies,
    is_later: &IsLater<'_>,
) -> Result<(), InvalidValue> {
    if let Err(error) = host.own_policy(policies) {
        let own = HostConfig::OF_DESIGN;
        let advice = format!("give \"{own}\", each design's own, or another: {error}");
        return Err(InvalidValue::new("host.policy", format!("\"{}\"", host.policy), advice));
    }
    memory::check("host.memory", &host.memory, is_later)?;
    check_levels("host.page_table", host.page_table.levels)?;
    if let Some(tlb) = &host.tlb {
        check_level("host.tlb", tlb, true, is_later)?;
    }
    if host.tlbs_hold == TlbsHold::Halves && host.tlb.is_none() {
        let advice = "give \"final\", or the host a tlb: the other halves lie there";
        return Err(InvalidValue::new("host.tlbs_hold", "\"halves\"", advice));
    }
    check_walk_caches("host.walk_caches", &host.walk_caches, host.page_table.levels, is_later)
}
