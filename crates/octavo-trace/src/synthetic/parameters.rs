//! Named values, from a URI or a TOML table, each taken once and checked.

use octavo_types::spelling::quoted;
use octavo_types::values::{self, Refused};

use super::error::SpecError;

/// The parameters that one description was given.
pub(super) struct Parameters<'k> {
    /// The kind that they belong to.
    kind: &'k str,
    given: Vec<(String, String)>,
    /// Every name that was read so far; in the end, all allowed names.
    allowed: Vec<&'static str>,
}

impl<'k> Parameters<'k> {
    /// `given` are names and values.
    pub(super) fn new(kind: &'k str, given: Vec<(String, String)>) -> Self {
        Parameters { kind, given, allowed: Vec::new() }
    }

    /// The parameter that goes by any of `names`: the name that was given, and the value.
    fn text(&mut self, names: &[&'static str]) -> Result<Option<(String, String)>, SpecError> {
        self.allowed.extend(names);
        let mut found: Option<(String, String)> = None;
        let mut index = 0;
        while index < self.given.len() {
            if !names.contains(&self.given[index].0.as_str()) {
                index += 1;
                continue;
            }
            let (name, value) = self.given.remove(index);
            if let Some((first, _)) = &found {
                let what = if *first == name {
                    format!("`{name}` is given twice, once is allowed")
                } else {
                    format!("`{first}` and `{name}` mean the same, one of them is allowed")
                };
                return Err(SpecError::new(what));
            }
            found = Some((name, value));
        }
        Ok(found)
    }

    /// The parameter, read by `read` and from `least` to `most`.
    fn bounded(
        &mut self,
        names: &[&'static str],
        read: fn(&str) -> Result<u64, Refused>,
        (least, most): (u64, u64),
        show: fn(u64) -> String,
    ) -> Result<Option<u64>, SpecError> {
        let Some((name, text)) = self.text(names)? else { return Ok(None) };
        let wrong =
            |allowed: &str| SpecError::new(format!("`{name}={}` must be {allowed}", quoted(&text)));
        let value = read(&text).map_err(wrong)?;
        if !(least..=most).contains(&value) {
            return Err(wrong(&format!("from {} to {}", show(least), show(most))));
        }
        Ok(Some(value))
    }

    pub(super) fn size(
        &mut self,
        names: &[&'static str],
        bounds: (u64, u64),
        default: u64,
    ) -> Result<u64, SpecError> {
        Ok(self.bounded(names, values::size, bounds, values::size_text)?.unwrap_or(default))
    }

    pub(super) fn count(
        &mut self,
        names: &[&'static str],
        bounds: (u64, u64),
    ) -> Result<Option<u64>, SpecError> {
        self.bounded(names, values::count, bounds, |count| count.to_string())
    }

    pub(super) fn fraction(
        &mut self,
        names: &[&'static str],
        bounds: (u64, u64),
        default: u64,
    ) -> Result<u64, SpecError> {
        let read = self.bounded(names, values::fraction, bounds, values::fraction_text)?;
        Ok(read.unwrap_or(default))
    }

    pub(super) fn address(
        &mut self,
        names: &[&'static str],
        bounds: (u64, u64),
    ) -> Result<Option<u64>, SpecError> {
        self.bounded(names, values::address, bounds, |address| format!("{address:#x}"))
    }

    /// The parameter as an index into `words`; 0 if it is not given.
    pub(super) fn choice(
        &mut self,
        names: &[&'static str],
        words: &[&'static str],
    ) -> Result<usize, SpecError> {
        let Some((name, text)) = self.text(names)? else { return Ok(0) };
        let found = words.iter().position(|word| *word == text);
        found.ok_or_else(|| SpecError::unknown(&format!("`{name}`:"), &text, words))
    }

    /// The given parameters that were never read.
    pub(super) fn rest(self) -> Vec<(String, String)> {
        self.given
    }

    /// Reports a given parameter that was never read as unknown.
    pub(super) fn finish(self) -> Result<(), SpecError> {
        match self.given.first() {
            None => Ok(()),
            Some((name, _)) => {
                let what = format!("among the parameters of {},", self.kind);
                Err(SpecError::unknown(&what, name, &self.allowed))
            }
        }
    }
}
