//! Machines whose description has a table of a design.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{
    DesignSettings, DesignTable, DesignTables, InvalidValue, MachineConfig, MachineError, Resolved,
};
use octavo_hw::Replacement;
use serde::{Deserialize, Serialize};

/// The settings of a design of these tests.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Own {
    pub entries: u32,
    pub inner: Inner,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inner {
    pub ways: Option<u32>,
    pub names: Vec<String>,
}

impl DesignSettings for Own {
    const TABLE: &'static str = "own";

    fn check(&self, machine: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("own.entries", self.entries, 0, machine.core.count * 1000)
    }

    fn first_level_replacement(&self) -> Option<Replacement> {
        (self.entries > 0).then_some(Replacement::Random { seed: 0 })
    }
}

/// The tables of these tests.
pub fn tables() -> DesignTables {
    [DesignTable::of::<Own>()].into_iter().collect()
}

pub fn resolve<S: AsRef<str>>(machine: &str, settings: &[S]) -> Result<Resolved, MachineError> {
    tables().resolve(machine, settings)
}

pub fn resolve_text<S: AsRef<str>>(
    name: &str,
    text: &str,
    settings: &[S],
) -> Result<Resolved, MachineError> {
    tables().resolve_text(name, text, settings)
}

fn own(settings: &[&str]) -> Own {
    let machine = resolve("skylake", settings).unwrap_or_else(|error| panic!("{error}"));
    machine.config().designs.get::<Own>().clone()
}

fn error(settings: &[&str]) -> String {
    resolve("skylake", settings).expect_err("it is not a machine").to_string()
}

#[test]
fn missing_keys_have_their_defaults() {
    assert_eq!(own(&[]), Own::default());
    assert_eq!(own(&["own.entries=8"]), Own { entries: 8, ..Own::default() });
    let inner = Inner { ways: Some(3), names: Vec::new() };
    assert_eq!(own(&["own.inner.ways=3"]), Own { entries: 0, inner });
}

#[test]
fn table_is_written_among_the_others_if_it_differs_from_the_default() {
    let machine = |setting: &str| resolve("skylake", &["host=usual", setting]).unwrap();
    let (usual, other) = (machine("own.entries=0"), machine("own.entries=8"));
    assert_eq!(usual.hash(), resolve("skylake", &["host=usual"]).unwrap().hash());
    let own = "\"own\":{\"entries\":8,\"inner\":{\"ways\":null,\"names\":[]}},";
    assert_eq!(other.json().replace(own, ""), usual.json());
    assert!(other.json().contains(&format!("{own}\"dram\"")), "{}", other.json());
    let again = other.config().with_settings("--set", &["core.count=1"]).unwrap();
    assert_eq!(&again, other.config());
}

#[test]
fn wrong_values_are_refused_with_their_keys() {
    assert_eq!(
        error(&["own.entries=8", "own.inner.way=3"]),
        "--set: own.inner.way: there is no such key; give ways or names; did you mean `ways`?"
    );
    assert_eq!(
        error(&["own.inner.ways=many"]),
        "--set: own.inner.ways = \"many\": give a whole number from 0 to 4294967295"
    );
    assert_eq!(error(&["own=8"]), "--set: own = 8: give a table");
    assert_eq!(
        error(&["own.entries=1001"]),
        "--set: own.entries = 1001: give a whole number from 0 to 1000"
    );
    let unknown = error(&["owm.entries=8"]);
    assert!(unknown.ends_with("dram, host or own; did you mean `own`?"), "{unknown}");
}

#[test]
fn first_level_replacement_is_that_of_the_design() {
    let policies = |setting: &str| {
        let machine = resolve("skylake", &[setting]).unwrap();
        machine.config().designs.first_level_replacements().collect::<Vec<_>>()
    };
    assert_eq!(policies("own.entries=0"), []);
    assert_eq!(policies("own.entries=1"), [Replacement::Random { seed: 0 }]);
}
