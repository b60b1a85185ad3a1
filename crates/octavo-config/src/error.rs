//! Errors of machine descriptions, as one sentence each.

use std::fmt::{self, Display};

use octavo_types::spelling::{any_of, hint, quoted};
use serde::de::{Error, Expected, Unexpected};

/// An invalid or unreadable machine: one sentence that names the place, the allowed values, and the
/// value that was probably meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(String);

impl MachineError {
    pub(crate) fn new(place: &str, what: impl Display) -> Self {
        // Not shortened, since the end of a path is most informative.
        let place: String = place.chars().filter(|c| !c.is_control()).collect();
        MachineError(format!("{place}: {what}"))
    }

    /// The error that `word`, introduced by `what`, is none of `allowed`.
    pub(crate) fn unknown(what: &str, word: &str, allowed: &[&str]) -> Self {
        let list = any_of(allowed);
        MachineError(format!("{what} `{}`: give {list}{}", quoted(word), hint(word, allowed)))
    }
}

/// An invalid value: `tlb.l2.main.entries = 1537: give a multiple of 12 (ways), such as 1548`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {advice}", given.as_ref().map_or(String::new(), |given| format!(" = {given}")))]
pub struct InvalidValue {
    /// The key, with the tables that it lies in.
    pub key: String,
    /// The given value as written; `None` for whole tables and missing values.
    pub given: Option<String>,
    /// The remedy.
    pub advice: String,
}

impl InvalidValue {
    /// The value of a key, and its remedy.
    pub fn new(key: impl Into<String>, given: impl Display, advice: impl Into<String>) -> Self {
        InvalidValue { key: key.into(), given: Some(given.to_string()), advice: advice.into() }
    }

    pub(crate) fn of_table(key: impl Into<String>, advice: impl Into<String>) -> Self {
        InvalidValue { key: key.into(), given: None, advice: advice.into() }
    }
}

/// A number for an error message, with an exponent if it would have many zeros.
pub(crate) fn decimal(number: f64) -> String {
    match number == 0.0 || (1e-6..1e16).contains(&number.abs()) {
        true => number.to_string(),
        false => format!("{number:e}"),
    }
}

/// An error met while reading a value, before its key is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The value is something else than this.
    Mismatch(String),
    /// There is no such key.
    UnknownKey { key: String, allowed: Vec<&'static str> },
    /// The word is none of the allowed ones.
    UnknownWord { word: String, allowed: &'static [&'static str] },
    /// The table lacks this key.
    Missing(&'static str),
    /// Any other error, as a sentence.
    Other(String),
}

impl Fault {
    /// The error for the value of `key`, written as `given`.
    pub fn of(self, key: String, given: Option<String>) -> InvalidValue {
        let (key, given, advice) = match self {
            Fault::Mismatch(wanted) => (key, given, format!("give {wanted}")),
            Fault::UnknownKey { key: unknown, allowed } => {
                let hint = hint(&unknown, &allowed);
                let advice = format!("there is no such key; give {}{hint}", any_of(&allowed));
                let has_key = key == unknown || key.ends_with(&format!(".{unknown}"));
                (if has_key { key } else { within(&key, &unknown) }, None, advice)
            }
            Fault::UnknownWord { word, allowed } => {
                let advice = format!("give {}{}", any_of(allowed), hint(&word, allowed));
                (key, given, advice)
            }
            Fault::Missing(missing) => {
                let advice = "it is missing; a machine has every key, or `extends` one that has, \
                              such as \"skylake\"";
                (within(&key, missing), None, advice.to_owned())
            }
            Fault::Other(sentence) => (key, None, sentence),
        };
        InvalidValue { key, given, advice }
    }
}

/// The full key of `key` in `table`, which is empty for the whole machine.
fn within(table: &str, key: &str) -> String {
    let key = quoted(key);
    if table.is_empty() { key } else { format!("{table}.{key}") }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.clone().of(String::new(), None))
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: Display>(sentence: T) -> Self {
        Fault::Other(sentence.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Fault::Mismatch(plain(&wanted.to_string()))
    }

    fn invalid_value(_: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Fault::Mismatch(plain(&wanted.to_string()))
    }

    fn unknown_variant(word: &str, allowed: &'static [&'static str]) -> Self {
        Fault::UnknownWord { word: word.to_owned(), allowed }
    }

    fn unknown_field(key: &str, allowed: &'static [&'static str]) -> Self {
        Fault::UnknownKey { key: key.to_owned(), allowed: allowed.to_vec() }
    }

    fn missing_field(key: &'static str) -> Self {
        Fault::Missing(key)
    }
}

/// The expected value of a serde error, in plain words.
fn plain(wanted: &str) -> String {
    match wanted {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" => "a whole number from 0".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "string or map" => "a text in quotes".to_owned(),
        _ if wanted.starts_with("variant ") || wanted.starts_with("enum ") => {
            "one of the words that are allowed, in quotes".to_owned()
        }
        _ if wanted.starts_with("struct ") || wanted == "a map" => "a table".to_owned(),
        _ => wanted.to_owned(),
    }
}
