//! From a preset or a file, and settings, to a machine that has been checked.

use std::io::Read;
use std::path::{Path, PathBuf};

use octavo_types::open_regular;
use octavo_types::spelling::{any_of, hint, quoted};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};
use twox_hash::XxHash3_128;

use crate::design_tables::DesignTables;
use crate::error::{Fault, InvalidValue, MachineError};
use crate::host;
use crate::memory_kinds;
use crate::node::{NONE, Node};
use crate::presets::{PRESETS, preset_names};
use crate::tree::Tree;
use crate::types::MachineConfig;

/// The place that errors in settings name.
const SETTING: &str = "--set";
/// How advice about a number begins.
const NUMBER: &str = "give a whole number";
/// How advice about a size begins.
const SIZE: &str = "give a size";
/// The largest file: real ones have some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How many files may extend one another.
const MAX_EXTENDED: usize = 8;
/// The key that names the machine which a file is laid over.
const EXTENDS: &str = "extends";

/// A machine that has been checked, with every key.
#[derive(Clone, PartialEq, Debug)]
pub struct Resolved {
    config: MachineConfig,
    toml: String,
}

impl Resolved {
    /// The machine.
    pub fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// The machine.
    pub fn into_config(self) -> MachineConfig {
        self.config
    }

    /// The machine as TOML, with the comments that it was written with: a file that extends no
    /// other.
    pub fn toml(&self) -> &str {
        &self.toml
    }

    /// As [`MachineConfig::to_json`].
    pub fn json(&self) -> String {
        self.config.to_json()
    }

    /// As [`MachineConfig::hash`].
    pub fn hash(&self) -> String {
        self.config.hash()
    }
}

impl MachineConfig {
    /// The canonical text: JSON on one line, every key, always in the same order.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts are JSON")
    }

    /// XXH3 (128 bits) of [`MachineConfig::to_json`], as 32 hexadecimal digits.
    pub fn hash(&self) -> String {
        format!("{:032x}", XxHash3_128::oneshot(self.to_json().as_bytes()))
    }

    /// The machine with settings such as `cache.l1d.bytes=16KiB`, in order, which errors attribute
    /// to `place`.
    ///
    /// # Errors
    ///
    /// As [`DesignTables::resolve`].
    pub fn with_settings<S: AsRef<str>>(
        &self,
        place: &str,
        settings: &[S],
    ) -> Result<Self, MachineError> {
        let tree = Tree::parse(&self.name, &self.to_toml())?;
        self.designs.finish(tree, place, settings).map(Resolved::into_config)
    }

    /// The machine as TOML without comments, as [`DesignTables::resolve_text`] reads it.
    pub fn to_toml(&self) -> String {
        toml_edit::ser::to_string_pretty(self).expect("all numbers of a machine are small")
    }
}

impl DesignTables {
    /// Reads a machine, a preset's name or the path of a TOML file (which ends with `.toml` or has
    /// a `/`), and changes it by `settings` such as `tlb.l2.entries=2048`, in order. It may have
    /// the tables of these designs; keys of designs that it does not give have their defaults.
    ///
    /// # Errors
    ///
    /// If it is not a valid machine: one sentence that names the file, the key, the allowed values and the likely
    /// intention.
    pub fn resolve<S: AsRef<str>>(
        &self,
        machine: &str,
        settings: &[S],
    ) -> Result<Resolved, MachineError> {
        let tree = Place::of(machine, Path::new(""))?.tree(0)?;
        self.finish(tree, SETTING, settings)
    }

    /// As [`DesignTables::resolve`], of the text of a file called `name`. It may extend a preset, and no files.
    ///
    /// # Errors
    ///
    /// If it is not a valid machine.
    pub fn resolve_text<S: AsRef<str>>(
        &self,
        name: &str,
        text: &str,
        settings: &[S],
    ) -> Result<Resolved, MachineError> {
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(too_large(name));
        }
        self.finish(extended(name, text, None, 0)?, SETTING, settings)
    }

    fn finish<S: AsRef<str>>(
        &self,
        mut tree: Tree,
        place: &str,
        settings: &[S],
    ) -> Result<Resolved, MachineError> {
        let before = tree.tables.clone();
        for setting in settings {
            tree.set(place, setting.as_ref())?;
        }
        host::expand(&mut tree.tables);
        let expanded = memory_kinds::expand(&mut tree.tables);
        let invalid = |wrong: InvalidValue| MachineError::new(tree.origin(&wrong.key), wrong);
        expanded.map_err(invalid)?;
        let explain = |(key, mut fault): (String, Fault)| {
            if let Fault::UnknownKey { key: unknown, allowed } = &mut fault
                && (key.is_empty() || key == *unknown)
                && tree.origin(unknown) != place
            {
                allowed.push(EXTENDS);
            }
            if let Fault::Missing(missing) = &fault {
                let added = |before| {
                    let advice = new_table(&tree.tables, before, &key, missing)?;
                    Some(InvalidValue::of_table(key.clone(), advice))
                };
                let wrong = added(&before)
                    .or_else(|| taken_out(&tree, &key, missing))
                    .or_else(|| added(&tree.below));
                if let Some(wrong) = wrong {
                    return invalid(wrong);
                }
            }
            let given = tree.given(&key);
            invalid(self.with_better_advice(fault.of(key, given), &tree, &before))
        };
        let mut config = self.read_shared(&tree.tables).map_err(explain)?;
        config.designs = self.read(&tree.tables).map_err(explain)?;
        config.check_with_origins(&|one, other| tree.is_later(one, other)).map_err(invalid)?;
        // The text may be written to a file in any folder.
        place_snapshots(&mut tree.tables, |file| std::path::absolute(file).unwrap_or(file.into()));
        Ok(Resolved { config, toml: DocumentMut::from(tree.tables).to_string() })
    }

    /// Replaces the advice on a value of the wrong type by better advice: the keys of the table
    /// that was there `before`, or the bounds that the checks set for a number.
    fn with_better_advice(&self, wrong: InvalidValue, tree: &Tree, before: &Table) -> InvalidValue {
        let Some(given) = tree.given(&wrong.key) else { return wrong };
        if table_at(&tree.tables, &wrong.key).is_none()
            && let Some(table) = table_at(before, &wrong.key)
        {
            let keys: Vec<&str> = table.iter().map(|(key, _)| key).collect();
            let advice = format!("it is a table; give a key in it: {}", any_of(&keys));
            return InvalidValue::new(wrong.key, given, advice);
        }
        let kind = [NUMBER, SIZE].into_iter().find(|kind| wrong.advice.starts_with(kind));
        // A number in quotes is a number if TOML has no integer for it.
        let is_text = |number: &i128| given.starts_with('"') && i64::try_from(*number).is_ok();
        let number = given.trim_matches('"').parse::<i128>().ok();
        let number = number.filter(|number| !is_text(number));
        let is_large = number.is_some_and(|number| number > 0);
        if let Some(kind) = kind
            && let Some(advice) = self.advice_on_number(tree, &wrong.key, is_large)
        {
            let advice = match advice.strip_prefix("give at least ") {
                Some(least) if number.is_none() => format!("{kind} from {least}"),
                _ => advice,
            };
            return InvalidValue { advice, ..wrong };
        }
        wrong
    }

    /// The advice of the checks for a number outside the bounds that they set. `None` if they accept all
    /// numbers that are tried: the least one and the greatest of each type, which come first if the
    /// given one `is_large`.
    fn advice_on_number(&self, tree: &Tree, key: &str, is_large: bool) -> Option<String> {
        let (above, name) = key.rsplit_once('.')?;
        let mut numbers = [0, i64::from(u8::MAX), i64::from(u32::MAX), i64::MAX];
        if is_large {
            numbers.reverse();
        }
        numbers.into_iter().find_map(|number| {
            let mut tables = tree.tables.clone();
            let mut table: &mut dyn TableLike = &mut tables;
            for part in above.split('.') {
                table = table.get_mut(part)?.as_table_like_mut()?;
            }
            table.insert(name, toml_edit::value(number));
            let mut config = self.read_shared(&tables).ok()?;
            config.designs = self.read(&tables).ok()?;
            let checked = config.check_with_origins(&|one, other| tree.is_later(one, other));
            checked.err().filter(|wrong| wrong.key == key).map(|wrong| wrong.advice)
        })
    }

    /// The part of a machine that all designs share.
    ///
    /// # Errors
    ///
    /// The key of a wrong value, and what is wrong with it.
    fn read_shared(&self, tables: &Table) -> Result<MachineConfig, (String, Fault)> {
        let mut shared = tables.clone();
        self.names().for_each(|name| drop(shared.remove(name)));
        serde_path_to_error::deserialize(Node::Table(&shared)).map_err(|error| {
            let key = error.path().to_string();
            // The whole machine has no key.
            let key = if key == "." { String::new() } else { key };
            let mut fault = error.into_inner();
            if let Fault::UnknownKey { key: unknown, allowed } = &mut fault
                && (key.is_empty() || key == *unknown)
            {
                allowed.extend(self.names());
            }
            if let Fault::UnknownKey { key: unknown, allowed } = &mut fault {
                let table = key.strip_suffix(&format!(".{unknown}")).unwrap_or(&key);
                allowed.extend(memory_kinds::further_keys(table));
            }
            (key, fault)
        })
    }
}

/// The error for a part of a machine that `none` took out, though every machine has it.
fn taken_out(tree: &Tree, table: &str, missing: &str) -> Option<InvalidValue> {
    let key = if table.is_empty() { missing.to_owned() } else { format!("{table}.{missing}") };
    if !tree.gives(&key) {
        return None;
    }
    let next = match key.as_str() {
        "cache.l2" => "cache.llc.latency_cycles",
        "cache.llc" => "cache.memory_latency_cycles",
        _ => {
            let advice = "every machine has it; none takes out what a machine need not have, such as tlb.l2, an array \
                          of a TLB or a walk cache";
            return Some(InvalidValue::new(key, NONE, advice));
        }
    };
    let [line, latency] = ["cache.line_bytes", next].map(|key| tree.given(key).unwrap_or_default());
    let advice = format!(
        "every machine has it; for one without it, give a cache of one line that costs what comes behind it: \
         {key}.bytes={line}, {key}.ways=1 and {key}.latency_cycles={latency}"
    );
    Some(InvalidValue::new(key, NONE, advice))
}

/// The advice about a table of `tables` that settings or a file have added to the machine `before`, and that lacks a key.
/// `None` for a table that this machine has, and where a file extends no machine.
fn new_table(tables: &Table, before: &Table, key: &str, missing: &str) -> Option<String> {
    if before.is_empty() || key.is_empty() {
        return None;
    }
    let (above, name) = key.rsplit_once('.').unwrap_or(("", key));
    let held = if above.is_empty() {
        before.contains_key(name)
    } else {
        table_at(before, above).is_some_and(|table| table.contains_key(name))
    };
    if held {
        return None;
    }
    let others: Vec<&str> = table_at(tables, above)
        .into_iter()
        .flat_map(TableLike::iter)
        .filter_map(|(other, item)| (item.is_table() && other != name).then_some(other))
        .collect();
    let needs = format!("a new one needs {missing} and its other keys");
    if others.is_empty() {
        return Some(format!("the machine has no such table; {needs}"));
    }
    Some(format!("`{above}` has {}; {needs}{}", any_of(&others), hint(name, &others)))
}

/// The table at a key.
fn table_at<'t>(tables: &'t Table, key: &str) -> Option<&'t dyn TableLike> {
    key.split('.')
        .try_fold(tables as &dyn TableLike, |table, part| table.get(part)?.as_table_like())
}

/// The source of a machine.
enum Place {
    Preset(&'static str, &'static str),
    File(PathBuf),
}

impl Place {
    /// The place of a preset's name, or of a path relative to `folder`.
    fn of(machine: &str, folder: &Path) -> Result<Self, MachineError> {
        if let Some((name, text)) = PRESETS.iter().find(|(name, _)| *name == machine) {
            return Ok(Place::Preset(name, text));
        }
        if machine.ends_with(".toml") || machine.contains('/') {
            return Ok(Place::File(folder.join(machine)));
        }
        let names: Vec<&str> = preset_names().chain(["a file that ends with .toml"]).collect();
        Err(MachineError::unknown("there is no machine", machine, &names))
    }

    fn tree(&self, depth: usize) -> Result<Tree, MachineError> {
        match self {
            Place::Preset(name, text) => Tree::parse(name, text),
            Place::File(path) => {
                let name = path.to_string_lossy();
                let text = read(path, &name)?;
                let folder = path.parent().filter(|_| !is_descriptor(path));
                let folder = folder.unwrap_or(Path::new(""));
                extended(&name, &text, Some(folder), depth)
            }
        }
    }
}

/// Whether a path names an open file of this process, as `/dev/stdin` and `/proc/self/fd/3` do. Such a file has no
/// folder of its own: paths in it are relative to the current one.
fn is_descriptor(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    path == Path::new("/dev/stdin") || ["/dev/fd", "/proc/self/fd"].map(Path::new).contains(&folder)
}

fn too_large(name: &str) -> MachineError {
    MachineError::new(name, format!("it has more than {MAX_FILE_BYTES} bytes; no machine has"))
}

fn read(path: &Path, name: &str) -> Result<String, MachineError> {
    let mut bytes = Vec::new();
    open_regular(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let why = error.to_string();
            // The system's number of the error does not help.
            let why = why.split(" (os error ").next().unwrap_or(&why);
            MachineError::new(name, format!("cannot read it: {why}"))
        })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large(name));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        MachineError::new(name, format!("it is not text in UTF-8: byte {at} is not"))
    })
}

/// Changes the paths of the snapshots from which the memory of the machine and of its host begin.
fn place_snapshots(tables: &mut Table, place: impl Fn(&Path) -> PathBuf) {
    for memory in [&["memory", "fragmentation"][..], &["host", "memory", "fragmentation"]] {
        let fragmentation = memory
            .iter()
            .try_fold(tables as &mut dyn TableLike, |t, key| t.get_mut(key)?.as_table_like_mut());
        if let Some(Item::Value(file)) = fragmentation.and_then(|table| table.get_mut("file"))
            && let Some(name) = file.as_str()
            && let Some(placed) = place(Path::new(name)).to_str()
        {
            let decor = file.decor().clone();
            *file = Value::from(placed);
            *file.decor_mut() = decor;
        }
    }
}

/// A file laid over the machine that it extends, if it extends one. Paths in it are relative to its
/// `folder`.
fn extended(
    name: &str,
    text: &str,
    folder: Option<&Path>,
    depth: usize,
) -> Result<Tree, MachineError> {
    let mut file = Tree::parse(name, text)?;
    if let Some(folder) = folder {
        place_snapshots(&mut file.tables, |file| folder.join(file));
    }
    let Some(extends) = file.tables.remove(EXTENDS) else { return Ok(file) };
    let wrong = |what: String| MachineError::new(name, format!("{EXTENDS}{what}"));
    let Some(base) = extends.as_str() else {
        return Err(wrong(": give a text in quotes, such as \"skylake\"".to_owned()));
    };
    let place = Place::of(base, folder.unwrap_or(Path::new("")))
        .map_err(|error| wrong(format!(": {error}")))?;
    if depth == MAX_EXTENDED {
        let what = "files extend one another, or more than 8 do; give a preset such as \"skylake\"";
        return Err(wrong(format!(" = \"{}\": {what}", quoted(base))));
    }
    if let (Place::File(_), None) = (&place, folder) {
        return Err(wrong(format!(" = \"{}\": give a preset", quoted(base))));
    }
    let mut tree = place.tree(depth + 1)?;
    if !file.tables.contains_key("name") {
        // Otherwise it would have the name of the machine that it extends.
        let stem = Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
        file.tables.insert("name", Item::Value(Value::from(stem.as_ref())));
    }
    tree.overlay(file)?;
    tree.head(&format!("# {} extends {}.\n", quoted(name), quoted(base)));
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descriptors_have_no_folder() {
        let is = |path: &str| is_descriptor(Path::new(path));
        assert!(["/dev/stdin", "/dev/fd/3", "/proc/self/fd/3"].into_iter().all(is));
        assert!(!["/dev/shm/m.toml", "/proc/self/cwd/m.toml", "m.toml"].into_iter().any(is));
    }
}
