//! Messages about invalid settings of all policies and designs: the values that they allow are accepted, and those just
//! outside of their bounds are not.

use std::collections::BTreeSet;

use octavo_os::policy::OsConfig;
use octavo_types::values::{size, size_text};

use super::registry;
use crate::config::resolve;

/// Values of which some are invalid for nearly any setting.
const PROBES: [&str; 8] =
    ["many", "99999999999999999999", "0", "3", "5000000000000", "3KiB", "3MiB", "4TiB"];

/// Gives a value to a setting. Returns the message if that is invalid.
type Set = Box<dyn Fn(&str) -> Result<(), String>>;

/// Each setting of a policy, and of the hardware of a design, by its key.
fn settings() -> Vec<(String, Set)> {
    let mut settings: Vec<(String, Set)> = Vec::new();
    for policy in registry::policies().iter() {
        let usual = OsConfig::new((policy.usual)());
        for (key, _) in usual.to_settings() {
            let (usual, name) = (usual.clone(), key.clone());
            let set = move |value: &str| {
                let changed = usual.clone().set(&name, value);
                changed.map_err(|error| error.to_string())
            };
            settings.push((key, Box::new(set)));
        }
    }
    let of_designs = registry::designs()
        .into_iter()
        .flat_map(|design| registry::explain(design.name).expect("a named design").settings);
    for key in of_designs.map(|(key, _)| key).collect::<BTreeSet<_>>() {
        let name = key.clone();
        let set = move |value: &str| {
            let machine = resolve("skylake", &[format!("{name}={value}")]);
            machine.map(|_| ()).map_err(|error| error.to_string())
        };
        settings.push((key, Box::new(set)));
    }
    settings
}

/// The values that a message allows: all numbers and sizes, or else all words. `None` if it is about another setting, or
/// has no values.
fn allowed(key: &str, message: &str) -> Option<(String, Vec<String>)> {
    let (_, advice) = message.split_once(&format!("{key} = "))?.1.split_once(": give ")?;
    let end = advice.find([';', ':']).unwrap_or(advice.len());
    let mut advice = advice[..end].to_owned();
    // The reason of a bound.
    while let Some((start, end)) = advice.find('(').zip(advice.find(')')) {
        advice.replace_range(start..=end, "");
    }
    if ["a size in bytes,", "a text in quotes", "more than"].iter().any(|no| advice.starts_with(no))
    {
        return None;
    }
    let words = advice.split([' ', ',', '"']).filter(|word| !["", "or"].contains(word));
    let words: Vec<String> = words.map(str::to_owned).collect();
    let (values, others): (Vec<_>, Vec<_>) =
        words.into_iter().partition(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    Some((advice, if values.is_empty() { others } else { values }))
}

/// The values just below and above the bounds that a message sets as `LEAST to MOST`.
fn outside(advice: &str, values: &[String]) -> Vec<String> {
    let [least, most, ..] = values else { return Vec::new() };
    let is_range = advice.replace('"', "").contains(&format!("{least} to {most}"));
    let numbers = (least.parse::<u64>(), most.parse::<u64>());
    let found = match (numbers, size(least).ok().zip(size(most).ok())) {
        _ if !is_range => Vec::new(),
        ((Ok(least), Ok(most)), _) => {
            let both = [least.checked_sub(1), most.checked_add(1)];
            both.into_iter().flatten().map(|number| number.to_string()).collect()
        }
        (_, Some((least, most))) => vec![size_text(least / 2), size_text(2 * most)],
        _ => Vec::new(),
    };
    found.into_iter().filter(|value| !values.contains(value)).collect()
}

#[test]
fn values_that_messages_allow_are_accepted() {
    let mut checked = [0; 2];
    let all = settings();
    let names_another = |key: &str, message: &str| {
        let others = all.iter().map(|(other, _)| other).filter(|other| other.contains('.'));
        others.filter(|other| *other != key).any(|other| message.contains(other.as_str()))
    };
    for (key, set) in &all {
        let messages = PROBES.iter().filter_map(|value| set(value).err());
        for message in messages.collect::<BTreeSet<_>>() {
            let Some((advice, values)) = allowed(key, &message) else { continue };
            for value in &values {
                // A value within bounds may not fit another setting.
                let refused = set(value).err().filter(|refused| !names_another(key, refused));
                assert_eq!(refused, None, "{message}");
                checked[0] += 1;
            }
            for value in outside(&advice, &values) {
                assert!(set(&value).is_err(), "{value} is accepted: {message}");
                checked[1] += 1;
            }
        }
    }
    assert!(checked[0] > 200 && checked[1] > 100, "{checked:?}");
}
