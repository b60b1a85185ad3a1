//! Quoting user input in messages, and suggestions for misspelt words.

use strsim::normalized_damerau_levenshtein;

/// How much of a text a sentence quotes.
const MAX_QUOTED_CHARS: usize = 60;
/// The least similarity to a known word that makes another word a likely misspelling.
const LIKENESS: f64 = 0.6;

/// A text whose characters all print: a control character, or one that changes the direction of
/// writing, is written as an escape. So a name can neither end a line nor command a terminal.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        let code = u32::from(c);
        match c {
            '\n' => printable.push_str("\\n"),
            '\r' => printable.push_str("\\r"),
            '\t' => printable.push_str("\\t"),
            _ if c.is_control() => printable += &format!("\\x{code:02x}"),
            _ if is_direction(c) => printable += &format!("\\u{code:04x}"),
            _ => printable.push(c),
        }
    }
    printable
}

/// Whether a character embeds, overrides or isolates a direction of writing.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text of the user's, short enough for a sentence and on one line.
pub fn quoted(text: &str) -> String {
    quoted_to(text, MAX_QUOTED_CHARS)
}

/// At most the first `chars` characters of a text, on one line.
pub fn quoted_to(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => printable(&text[..end]) + "…",
        None => printable(text),
    }
}

/// The allowed word that is spelt most like `word`, if any is.
pub fn nearest<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    // Comparing takes time quadratic in the length, and so long a word is no misspelling.
    if word.len() > MAX_QUOTED_CHARS {
        return None;
    }
    let scored = allowed.iter().map(|known| (normalized_damerau_levenshtein(word, known), *known));
    let best = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 >= LIKENESS).then_some(best.1)
}

/// `a, b or c`.
pub fn any_of(words: &[&str]) -> String {
    match words {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The end of a message that refuses `word`: the allowed word that was probably meant; empty if
/// none is similar.
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
    fn terminals_get_no_commands() {
        assert_eq!(printable("a\u{1b}[2J\t\u{9b}\u{202e}\u{7f}"), r"a\x1b[2J\t\x9b\u202e\x7f");
        assert_eq!(printable("naïve “\\n” 日本"), "naïve “\\n” 日本");
    }

    #[test]
    fn a_quoted_text_is_short_and_on_one_line() {
        assert_eq!(quoted("a\nb"), "a\\nb");
        assert_eq!(quoted_to("abcd", 3), "abc…");
        assert_eq!(quoted_to("abc", 3), "abc");
        assert_eq!(quoted(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(quoted(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
