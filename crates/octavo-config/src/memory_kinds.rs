//! Kinds of DRAM and of memory tiers, and times in nanoseconds.
//!
//! Both are expanded before a machine is read, so that all other code knows cycles only.

use octavo_types::spelling::{any_of, hint, quoted};
use toml_edit::{Item, Table, Value};

use crate::check::FREQUENCY_GHZ;
use crate::error::InvalidValue;
use crate::plain_tables::plain_tables;

const PRESET: &str = include_str!("../../../python/octavo/presets/memory.toml");
/// The key for the kind of a table.
const KIND: &str = "kind";
const DRAM: &str = "dram";
const NS: &str = "_ns";
const FREQUENCY: &str = "core.pipeline.frequency_ghz";
/// The longest time, in nanoseconds.
const MAX_NS: f64 = 1e6;

/// Keys of a DRAM or tier table that stay when a later layer changes its kind; the kind stands for
/// its other keys. `None` for other tables.
pub fn kept_keys(path: &str) -> Option<&'static [&'static str]> {
    if path == DRAM || path.ends_with(".dram") {
        return Some(&["channels"]);
    }
    let (tiers, _) = path.rsplit_once('.')?;
    ["memory.tiers", "host.memory.tiers"].contains(&tiers).then_some(&["bytes", "share"])
}

/// Keys that a table may have beside the keys that are read after the expansion.
pub fn further_keys(path: &str) -> &'static [&'static str] {
    match kept_keys(path) {
        None => &[],
        Some(_) if path == DRAM || path.ends_with(".dram") => &[KIND, "transfer_ns"],
        Some(_) => &[KIND, "added_latency_ns"],
    }
}

/// Replaces each kind by its numbers, and nanoseconds by cycles. A tier's `dram` gets the keys that
/// it does not give from the machine's.
///
/// # Errors
///
/// If there is no such kind, or a time that cannot become cycles.
pub fn expand(machine: &mut Table) -> Result<(), InvalidValue> {
    let kinds = plain_tables(PRESET).expect("the preset is TOML");
    let (of_dram, of_tiers) = (table(&kinds, DRAM), table(&kinds, "tiers"));
    let ghz = frequency_ghz(machine);
    expand_dram(DRAM, machine, of_dram, ghz)?;
    let own = machine.get(DRAM).and_then(Item::as_table).cloned().unwrap_or_default();
    for path in ["memory", "host.memory"] {
        let mut parts = path.split('.').chain(["tiers"]);
        let tiers =
            parts.try_fold(&mut *machine, |table, part| table.get_mut(part)?.as_table_mut());
        for (name, tier) in tiers.into_iter().flat_map(|tiers| tiers.iter_mut()) {
            let Some(tier) = tier.as_table_mut() else { continue };
            let key = format!("{path}.tiers.{name}");
            expand_table(&key, tier, of_tiers, ghz)?;
            expand_dram(&format!("{key}.{DRAM}"), tier, of_dram, ghz)?;
            if let Some(dram) = tier.get_mut(DRAM).and_then(Item::as_table_mut) {
                complete(dram, &own);
            }
        }
    }
    Ok(())
}

fn table<'t>(kinds: &'t Table, key: &str) -> &'t Table {
    kinds.get(key).and_then(Item::as_table).expect("the preset has the table")
}

/// The clock, if the machine has one; an invalid value, which reading the machine will refuse,
/// counts as 1.
fn frequency_ghz(machine: &Table) -> Option<f64> {
    let given = machine.get("core")?.get("pipeline")?.get("frequency_ghz")?;
    Some(number(given).filter(|ghz| FREQUENCY_GHZ.contains(ghz)).unwrap_or(1.0))
}

fn number(item: &Item) -> Option<f64> {
    item.as_float().or_else(|| item.as_integer().map(|number| number as f64))
}

/// Expands the table `dram` in `parent`. Only an out-of-order core uses DRAM: without its clock, a
/// table with times to convert is dropped.
fn expand_dram(
    path: &str,
    parent: &mut Table,
    kinds: &Table,
    ghz: Option<f64>,
) -> Result<(), InvalidValue> {
    let Some(dram) = parent.get_mut(DRAM).and_then(Item::as_table_mut) else { return Ok(()) };
    let needs_clock = dram.iter().any(|(key, _)| key == KIND || key.ends_with(NS));
    expand_table(path, dram, kinds, ghz.or(Some(1.0)))?;
    if needs_clock && ghz.is_none() {
        parent.remove(DRAM);
    }
    Ok(())
}

/// Expands the kind of a table, if it has one, and its nanoseconds.
fn expand_table(
    path: &str,
    table: &mut Table,
    kinds: &Table,
    ghz: Option<f64>,
) -> Result<(), InvalidValue> {
    if let Some(kind) = table.remove(KIND) {
        let names: Vec<&str> = kinds.iter().map(|(name, _)| name).collect();
        let word = kind.as_str().unwrap_or("");
        let Some(kind) = kinds.get(word).and_then(Item::as_table) else {
            let advice = format!("give {}{}", any_of(&names), hint(word, &names));
            let (key, given) = (format!("{path}.{KIND}"), written(&kind));
            return Err(InvalidValue { key, given, advice });
        };
        complete(table, kind);
    }
    let times: Vec<String> =
        table.iter().map(|(key, _)| key.to_owned()).filter(|key| key.ends_with(NS)).collect();
    for key in times {
        let cycles = cycles_key(&key);
        let time = table.remove(&key).expect("it is there");
        let invalid = |advice: String| {
            let given = written(&time);
            InvalidValue { key: format!("{path}.{key}"), given, advice }
        };
        if table.contains_key(&cycles) {
            return Err(invalid(format!("give this or {path}.{cycles}, not both")));
        }
        let ns = number(&time).filter(|ns| (0.0..=MAX_NS).contains(ns));
        let Some(ns) = ns else {
            return Err(invalid(format!("give nanoseconds from 0 to {MAX_NS}")));
        };
        let Some(ghz) = ghz else {
            let advice = format!("give {cycles}, or {FREQUENCY}, by which {key} becomes cycles");
            return Err(InvalidValue::of_table(path, advice));
        };
        let mut value = Value::from((ns * ghz).round_ties_even() as i64);
        if let Some(time) = time.as_value() {
            *value.decor_mut() = time.decor().clone();
        }
        table.insert(&cycles, Item::Value(value));
    }
    Ok(())
}

/// A value as it is written, without comments.
fn written(item: &Item) -> Option<String> {
    let mut value = item.as_value()?.clone();
    value.decor_mut().clear();
    Some(quoted(&value.to_string()))
}

/// `transfer_cycles` of `transfer_ns`.
fn cycles_key(key: &str) -> String {
    key.strip_suffix(NS).map_or_else(|| key.to_owned(), |key| format!("{key}_cycles"))
}

/// Adds the keys of `others` that a table has neither in cycles nor in nanoseconds.
fn complete(table: &mut Table, others: &Table) {
    for (key, item) in others.iter() {
        if let (Some(Item::Table(inner)), Item::Table(others)) = (table.get_mut(key), item) {
            complete(inner, others);
        } else if !table.contains_key(key) && !table.contains_key(&cycles_key(key)) {
            table.insert(key, item.clone());
        }
    }
}
