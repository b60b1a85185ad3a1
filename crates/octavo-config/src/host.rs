//! The default host of a machine.

use toml_edit::{Item, Table};

use crate::node::NONE;
use crate::plain_tables::plain_tables;

/// The table of the host.
pub const HOST: &str = "host";
/// `host = "usual"`: a host with the preset's keys.
pub const USUAL: &str = "usual";
const PRESET: &str = include_str!("../../../python/octavo/presets/host.toml");

/// Gives a machine without a host the usual one, if `over` has keys of a host.
pub fn prepare(machine: &mut Table, over: &Table) {
    let has_host = over.get(HOST).is_some_and(|host| host.as_str() != Some(NONE));
    if has_host && !machine.get(HOST).is_some_and(Item::is_table) {
        machine.insert(HOST, usual());
    }
}

/// Replaces `usual` by the usual host, and removes `none`.
pub fn expand(machine: &mut Table) {
    match machine.get(HOST).and_then(Item::as_str) {
        Some(USUAL) => drop(machine.insert(HOST, usual())),
        Some(NONE) => drop(machine.remove(HOST)),
        _ => {}
    }
}

fn usual() -> Item {
    let mut tables = plain_tables(PRESET).expect("the preset is TOML");
    tables.remove(HOST).expect("the preset has a host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_host_expands_to_a_table() {
        assert!(usual().is_table());
    }
}
