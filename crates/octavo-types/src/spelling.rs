//! Texts of users in sentences, and what they probably meant.

use strsim::normalized_damerau_levenshtein;

/// How much of a text a sentence quotes.
const MAX_QUOTED_CHARS: usize = 60;
/// How like a known word another must be for it to be a likely misspelling.
const LIKENESS: f64 = 0.6;

/// A text of the user's, short enough for a sentence and on one line.
pub fn quoted(text: &str) -> String {
    let mut short: String =
        text.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// The allowed word that is spelt most like `word`, if any is.
pub fn nearest<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    // Comparing is quadratic in the length, and what is that long is no misspelling.
    if word.len() > MAX_QUOTED_CHARS {
        return None;
    }
    let scored = allowed.iter().map(|known| (normalized_damerau_levenshtein(word, known), *known));
    let best = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 >= LIKENESS).then_some(best.1)
}

/// The end of a sentence that refuses `word`: which of the allowed words was probably meant; nothing where
/// none is like it.
pub fn hint(word: &str, allowed: &[&str]) -> String {
    nearest(word, allowed).map_or(String::new(), |meant| format!("; did you mean `{meant}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_are_near_and_other_words_are_not() {
        assert_eq!(nearest("skylke", &["zen4", "skylake"]), Some("skylake"));
        assert_eq!(nearest("potato", &["zen4", "skylake"]), None);
        assert_eq!(nearest(&"skylake".repeat(20), &["skylake"]), None);
        assert_eq!(nearest("skylake", &[]), None);
        assert_eq!(hint("skylke", &["zen4", "skylake"]), "; did you mean `skylake`?");
        assert_eq!(hint("potato", &["zen4", "skylake"]), "");
    }

    #[test]
    fn a_quoted_text_is_short_and_on_one_line() {
        assert_eq!(quoted("a\nb"), "a\\nb");
        assert_eq!(quoted(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(quoted(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
