//! The state of simulated hardware, in bytes of this computer, by the settings that determine it.

use octavo_hw::{Geometry, SetArray};

/// The payload of an entry of a TLB, a walk cache or a virtual cache.
pub type Payload = u64;

/// The bytes of state whose size one setting determines.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The setting: `tlb.l2.main.entries = 1536`.
    pub setting: String,
    /// Its bytes.
    pub bytes: u64,
}

impl Part {
    /// The bytes of `times` fully associative arrays of `entries` entries.
    pub fn fully_associative(key: &str, entries: u64, times: u64) -> Self {
        Part::of_entries(key, entries, Geometry::of_entries(entries, entries).ok(), times)
    }

    /// The bytes of `times` arrays of `entries` entries; 0 if there is no valid geometry.
    pub fn of_entries(key: &str, entries: u64, geometry: Option<Geometry>, times: u64) -> Self {
        let bytes = geometry.map_or(0, SetArray::<Payload>::most_bytes);
        Part { setting: format!("{key} = {entries}"), bytes: bytes * times }
    }
}
