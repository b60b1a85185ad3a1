//! What is wrong with a description, in one sentence.

use strsim::normalized_damerau_levenshtein;

/// How much of a text an error quotes.
const MAX_QUOTED_CHARS: usize = 60;
/// How like a known word another must be for it to be a likely misspelling.
const LIKENESS: f64 = 0.6;

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
        let list = allowed.join(", ");
        let hint = nearest(word, allowed)
            .map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
        SpecError(format!("{what} `{}` is none of {list}{hint}", quoted(word)))
    }

    /// The same error, in a part of a description.
    pub(super) fn within(self, place: &str) -> Self {
        SpecError(format!("{place}: {}", self.0))
    }
}

/// A text of the user's, short enough for a sentence.
pub(super) fn quoted(text: &str) -> String {
    let mut short: String =
        text.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// The allowed word that is spelt most like `word`, if any is.
fn nearest<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    // Comparing is quadratic in the length, and what is that long is no misspelling.
    if word.len() > MAX_QUOTED_CHARS {
        return None;
    }
    let scored = allowed.iter().map(|known| (normalized_damerau_levenshtein(word, known), *known));
    let best = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 >= LIKENESS).then_some(best.1)
}
