//! One line of Lackey's text.

use octavo_types::{ItemKind, PageSize, VirtAddr};

use super::super::numbers::{hex_digits, leading_hex};
use super::MAX_LINE_BYTES;
use crate::learn::Reference;

/// The length of `I  ` and ` L `.
const LABEL_BYTES: usize = 3;
/// The most digits of a size, without leading zeros.
const MAX_SIZE_DIGITS: usize = 4;

/// The content of a line.
pub(super) enum Line<'a> {
    /// `I  04016b80,3`, ` L 1ffeffe7e8,8`.
    Reference(Reference),
    /// A message of Valgrind's own (`==123== text` and the like), without its prefix.
    Message(&'a [u8]),
    /// An empty line, or the start of a superblock.
    Nothing,
}

/// Errors of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Unknown,
    TooLong,
    Size,
}

impl<'a> Line<'a> {
    /// Reads any line, given without its newline.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Fault> {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if let Some(message) = message(text) {
            return Ok(Line::Message(message));
        }
        if text.len() > MAX_LINE_BYTES {
            return Err(Fault::TooLong);
        }
        if text.is_empty() {
            return Ok(Line::Nothing);
        }
        if let Some(digits) = text.strip_prefix(b"SB ") {
            return hex_digits(digits).map(|_| Line::Nothing).ok_or(Fault::Unknown);
        }
        let (kind, addr, digits) = address(text).ok_or(Fault::Unknown)?;
        Ok(Line::Reference(Reference::new(kind, addr, size(digits)?)))
    }
}

/// The reference in the line that `text` begins with, and the line's length with its newline, if
/// the line is written as Lackey writes it.
#[inline]
pub(super) fn plain_reference(text: &[u8]) -> Option<(Reference, usize)> {
    let (kind, addr, rest) = address(text)?;
    let digits = rest.iter().take(MAX_SIZE_DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
    if rest.get(digits) != Some(&b'\n') {
        return None;
    }
    let reference = Reference::new(kind, addr, size(&rest[..digits]).ok()?);
    Some((reference, text.len() - rest.len() + digits + 1))
}

/// The kind and the address of the reference that `text` begins with, and what follows the comma.
#[inline]
fn address(text: &[u8]) -> Option<(ItemKind, VirtAddr, &[u8])> {
    let (label, rest) = text.split_at_checked(LABEL_BYTES)?;
    let kind = match label {
        b"I  " => ItemKind::Fetch,
        b" L " => ItemKind::Load,
        b" S " => ItemKind::Store,
        b" M " => ItemKind::Modify,
        _ => return None,
    };
    let (addr, digits) = leading_hex(rest)?;
    let rest = rest[digits..].strip_prefix(b",")?;
    Some((kind, VirtAddr::new(addr), rest))
}

/// The text after `==123== `, `--123-- ` or `**123** `, if `text` begins so.
fn message(text: &[u8]) -> Option<&[u8]> {
    let (mark, rest) = text.split_at_checked(2)?;
    if !matches!(mark, b"==" | b"--" | b"**") {
        return None;
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // Valgrind's inner parts write `--123:1:aspacem text`.
    let rest = rest[digits..].strip_prefix(mark).or(rest[digits..].strip_prefix(b":"))?;
    (digits > 0).then(|| rest.trim_ascii())
}

fn size(digits: &[u8]) -> Result<u16, Fault> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Unknown);
    }
    let value = digits.iter().fold(0u64, |value, &digit| {
        value.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    match u16::try_from(value) {
        Ok(size) if size > 0 && u64::from(size) <= PageSize::BASE.bytes() => Ok(size),
        _ => Err(Fault::Size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Reference>, Fault> {
        Line::parse(text.as_bytes()).map(|line| match line {
            Line::Reference(reference) => Some(reference),
            _ => None,
        })
    }

    fn reference(kind: ItemKind, addr: u64, size_bytes: u16) -> Reference {
        Reference::new(kind, VirtAddr::new(addr), size_bytes)
    }

    #[test]
    fn lackeys_lines() {
        use ItemKind::{Fetch, Load, Modify, Store};
        for (text, expected) in [
            ("I  04016b80,3", reference(Fetch, 0x4016b80, 3)),
            (" L 1ffeffe7e8,8", reference(Load, 0x1ffeffe7e8, 8)),
            (" S ffffffffffffffff,4096\r", reference(Store, u64::MAX, 4096)),
            (" M 0,0016", reference(Modify, 0, 16)),
        ] {
            assert_eq!(parse(text), Ok(Some(expected)), "{text}");
        }
        for text in ["", "\r", "SB 04016b80", "==12== ", "--12-- x", "**1** x", "--1:0:main x"] {
            assert_eq!(parse(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn other_lines() {
        for text in [
            "I  ",
            "I 04016b80,3",
            "I  04016b80",
            "I  ,3",
            "I  04016b80,",
            "I  0x16b80,3",
            " L 10, 8",
            "I  10000000000000000,3",
            " X 10,8",
            " L +10,8",
            " L 10,8 ",
            "SB ",
            "== x",
            "==12 x",
            "I",
            "=",
            " L 10,8\r\r",
            "SB 10,8",
            "==12--",
        ] {
            assert_eq!(parse(text), Err(Fault::Unknown), "{text}");
        }
        for text in [" L 10,0", " L 10,4097", " L 10,99999999999999999999999"] {
            assert_eq!(parse(text), Err(Fault::Size), "{text}");
        }
        assert_eq!(parse(&"I".repeat(5000)), Err(Fault::TooLong));
    }
}
