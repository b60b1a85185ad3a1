//! A machine as a tree of tables: layers over one another, each key with the layer it is from.

use octavo_types::spelling::quoted;
use toml_edit::{Item, Key, Table, TableLike, Value};

use crate::error::{InvalidValue, MachineError};
use crate::host::{self, HOST, USUAL};
use crate::memory_kinds::kept_keys;
use crate::node::NONE;
use crate::plain_tables::{normalize_tables, plain_tables};

/// The key whose value decides which others its table has.
const KIND: &str = "kind";
/// Advice on an empty table over one with keys.
const EMPTY_TABLE: &str = "an empty table changes nothing; give the keys to change, or \"none\" to \
                           take the whole table out";
/// More parts than any key has; merging trees recurses once for each part.
const MAX_PARTS: usize = 8;

/// Tables, and the layers that gave their keys.
pub struct Tree {
    pub tables: Table,
    /// The tables before the last file; empty where no file is over another.
    pub below: Table,
    /// The name of the first layer.
    base: String,
    /// Keys with the layer that gave them, the last one last.
    origins: Vec<(String, String)>,
}

impl Tree {
    /// The tables of a text with the name `origin`.
    pub fn parse(origin: &str, text: &str) -> Result<Self, MachineError> {
        let tables = plain_tables(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
            let line = before.matches('\n').count();
            let what = quoted(error.message());
            MachineError::new(origin, format!("it is no TOML: line {}: {what}", line + 1))
        })?;
        Ok(Tree { tables, below: Table::new(), base: origin.to_owned(), origins: Vec::new() })
    }

    /// The layer that gave a key, a part of its table or the table that it lies in; for a missing
    /// key, the layer that gave other keys of its table.
    pub fn origin(&self, key: &str) -> &str {
        let last_origin = |key: &str| {
            let given = self.origins.iter().rev().find(|(given, _)| overlap(given, key));
            given.map(|(_, origin)| origin.as_str())
        };
        let of_table = || match key.rsplit_once('.') {
            Some((table, _)) if !self.has(key) => last_origin(table),
            _ => None,
        };
        last_origin(key).or_else(of_table).unwrap_or(&self.base)
    }

    /// Whether there is such a key; for an element of an array, whether there is the array.
    fn has(&self, key: &str) -> bool {
        let mut parts = key.split('[').next().unwrap_or(key).split('.');
        let first = parts.next().and_then(|part| self.tables.get(part));
        parts.fold(first, |item, part| item?.get(part)).is_some()
    }

    /// Whether a layer gave this key itself, and not only parts of its table.
    pub fn gives(&self, key: &str) -> bool {
        self.origins.iter().any(|(given, _)| given == key)
    }

    /// Whether `one` was given by a later layer than `other`.
    pub fn is_later(&self, one: &str, other: &str) -> bool {
        let place = |key: &str| self.origins.iter().rposition(|(given, _)| overlap(given, key));
        place(one) > place(other)
    }

    /// Overlays a file on these tables.
    ///
    /// # Errors
    ///
    /// If a table of the file is empty, and these tables have keys in its place.
    pub fn overlay(&mut self, file: Tree) -> Result<(), MachineError> {
        self.below = self.tables.clone();
        self.overlay_table(&file.tables, &file.base)
    }

    /// Puts comments before all others.
    pub fn head(&mut self, comments: &str) {
        if let Some((mut first, _)) = self.tables.iter_mut().next() {
            let decor = first.leaf_decor_mut();
            let old = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or("").to_owned();
            decor.set_prefix(format!("{comments}{old}"));
        }
    }

    /// Applies a setting `key=value` of the command line.
    pub fn set(&mut self, origin: &str, setting: &str) -> Result<(), MachineError> {
        let wrong =
            |what: &str| Err(MachineError::new(origin, format!("{}: {what}", quoted(setting))));
        let Some((key, value)) = setting.split_once('=') else {
            return wrong("give KEY=VALUE, such as tlb.l2.main.entries=2048");
        };
        let Ok(parts) = Key::parse(key) else {
            return wrong("give a key such as tlb.l2.main.entries before the `=`");
        };
        let mut parts: Vec<String> = parts.into_iter().map(|part| part.get().to_owned()).collect();
        if parts.len() > MAX_PARTS {
            return wrong("no key has so many parts; give one such as tlb.l2.main.entries");
        }
        if let Err(what) = self.name_array(&mut parts) {
            return wrong(&what);
        }
        let value = value.trim();
        // Words need no quotes here: `64KiB`, `full`.
        let mut value: Value = value.parse().unwrap_or_else(|_| Value::from(value));
        if value.is_datetime() {
            value = Value::from(value.to_string());
        }
        let last = parts.pop().expect("a key has a part");
        let mut file = Table::new();
        let mut table = &mut file;
        for part in &parts {
            let inner = table.entry(part).or_insert(Item::Table(Table::new()));
            table = inner.as_table_mut().expect("it was made a table");
        }
        value.decor_mut().set_suffix(format!("  # {origin}"));
        table.insert(&last, Item::Value(value));
        normalize_tables(&mut file);
        self.overlay_table(&file, origin)
    }

    fn overlay_table(&mut self, over: &Table, origin: &str) -> Result<(), MachineError> {
        host::prepare(&mut self.tables, over);
        let mut given = Vec::new();
        merge(&mut self.tables, over, "", &mut given)
            .map_err(|wrong| MachineError::new(origin, wrong))?;
        self.origins.extend(given.into_iter().map(|key| (key, origin.to_owned())));
        Ok(())
    }

    /// `tlb.l2.entries` means `tlb.l2.main.entries` where `main` is the only array.
    fn name_array(&self, parts: &mut Vec<String>) -> Result<(), String> {
        let [tlb, level, key] = &parts[..] else { return Ok(()) };
        if tlb != "tlb" || !["entries", "ways", "page_sizes", "replacement"].contains(&&**key) {
            return Ok(());
        }
        let table = self.tables.get("tlb").and_then(|tlb| tlb.get(level));
        let Some(table) = table.and_then(Item::as_table) else { return Ok(()) };
        let arrays: Vec<&str> =
            table.iter().filter(|(_, item)| item.is_table()).map(|(name, _)| name).collect();
        match arrays[..] {
            [] => Ok(()),
            [only] => {
                let only = only.to_owned();
                parts.insert(2, only);
                Ok(())
            }
            _ => {
                let keys: Vec<String> =
                    arrays.iter().map(|name| format!("tlb.{level}.{name}.{key}")).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let several = keys.len();
                Err(format!(
                    "tlb.{level} has {several} arrays; give {}",
                    octavo_types::spelling::any_of(&keys)
                ))
            }
        }
    }

    /// The text of the value or the table at a key such as `tlb.l2.main.page_sizes[1]`.
    pub fn given(&self, key: &str) -> Option<String> {
        let (key, place) = match key.strip_suffix(']').and_then(|key| key.rsplit_once('[')) {
            Some((key, place)) => (key, Some(place.parse().ok()?)),
            None => (key, None),
        };
        let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
        let mut table: &dyn TableLike = &self.tables;
        for part in tables.split('.').filter(|part| !part.is_empty()) {
            table = table.get(part)?.as_table_like()?;
        }
        let item = table.get(last).filter(|item| !item.is_array_of_tables())?;
        let value = item.clone().into_value().ok()?;
        let mut value = match place {
            None => value,
            Some(place) => value.as_array()?.get(place)?.clone(),
        };
        value.decor_mut().clear();
        Some(shortened(&value.to_string()))
    }
}

/// A value as it is written, short enough for a sentence and on one line. Its quotes are TOML's, and
/// are not escaped.
fn shortened(value: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut short: String = value.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect();
    if value.chars().count() > MAX_CHARS {
        short.push('…');
    }
    short
}

/// Whether one key is the other or a table that it lies in.
fn overlap(one: &str, other: &str) -> bool {
    let within = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    within(one, other) || within(other, one)
}

/// Lays tables over others, and records the keys that they gave. An empty table over one with keys
/// is refused: it would change nothing, but its writer may have meant to empty the other one.
fn merge(
    base: &mut Table,
    over: &Table,
    prefix: &str,
    given: &mut Vec<String>,
) -> Result<(), InvalidValue> {
    for (key, item) in over.iter() {
        let path = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
        let is_none = item.as_str() == Some(NONE);
        match (base.get_mut(key), item) {
            (Some(Item::Table(_)), _) if is_none => {
                base.remove(key);
                given.push(path);
            }
            // A host that is there already stays.
            (Some(Item::Table(_)), item) if path == HOST && item.as_str() == Some(USUAL) => {}
            (Some(Item::Table(inner)), Item::Table(table))
                if table.is_empty() && !inner.is_empty() =>
            {
                return Err(InvalidValue::new(path, "{}", EMPTY_TABLE));
            }
            (Some(Item::Table(inner)), Item::Table(table)) if !changes_kind(inner, table) => {
                merge(inner, table, &path, given)?;
            }
            (Some(Item::Table(inner)), Item::Table(table)) if kept_keys(&path).is_some() => {
                let kept = kept_keys(&path).unwrap_or_default();
                inner.retain(|key, _| kept.contains(&key));
                merge(inner, table, &path, given)?;
            }
            (Some(inner), _) => {
                *inner = item.clone();
                given.push(path);
            }
            (None, _) => {
                base.insert(key, item.clone());
                record_origins(item, path, given);
            }
        }
    }
    Ok(())
}

/// Records the keys of a new table's values, or the key of a value itself.
fn record_origins(item: &Item, path: String, given: &mut Vec<String>) {
    match item {
        Item::Table(table) if !table.is_empty() => {
            table
                .iter()
                .for_each(|(key, item)| record_origins(item, format!("{path}.{key}"), given));
        }
        _ => given.push(path),
    }
}

/// Whether a table is of another kind than the one it is laid over, and so replaces that one.
fn changes_kind(base: &Table, over: &Table) -> bool {
    let kind = |table: &Table| table.get(KIND).and_then(Item::as_str).map(str::to_owned);
    kind(over).is_some_and(|new| kind(base) != Some(new))
}
