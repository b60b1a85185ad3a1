//! Errors of descriptions, a sentence each.

use octavo_types::spelling::{any_of, hint, quoted};

/// A description that names no synthetic trace: one sentence that names the parameter, what is
/// allowed, and what was probably meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

impl SpecError {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        SpecError(sentence.into())
    }

    /// `word` is none of `allowed`.
    pub(super) fn unknown(what: &str, word: &str, allowed: &[&str]) -> Self {
        if word.is_empty() {
            return SpecError(format!("{what} is empty: give {}", any_of(allowed)));
        }
        let list = allowed.join(", ");
        let hint = hint(word, allowed);
        SpecError(format!("{what} `{}` is none of {list}{hint}", quoted(word)))
    }

    /// The same error, in a part of a description.
    pub(super) fn within(self, place: &str) -> Self {
        SpecError(format!("{place}: {}", self.0))
    }
}
