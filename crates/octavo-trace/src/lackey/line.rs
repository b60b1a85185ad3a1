//! One line of Lackey's text.

use octavo_types::{ItemKind, PageSize, VirtAddr};

use super::{MAX_LINE_BYTES, WINDOW_BYTES};

/// What a line says.
pub(super) enum Line<'a> {
    /// `I  04016b80,3`, ` L 1ffeffe7e8,8`.
    Reference(Reference),
    /// `==123== text` and its like: one of Valgrind's own, here without its prefix.
    Message(&'a [u8]),
    /// An empty line, or the start of a superblock.
    Nothing,
}

/// A line that is one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reference {
    pub(super) kind: ItemKind,
    pub(super) addr: VirtAddr,
    pub(super) size_bytes: u16,
}

/// What may be wrong with a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Unknown,
    TooLong,
    Size,
    DataBeforeFetch,
    TooMuchData,
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
        let (label, rest) = text.split_at_checked(3).ok_or(Fault::Unknown)?;
        let kind = match label {
            b"I  " => ItemKind::Fetch,
            b" L " => ItemKind::Load,
            b" S " => ItemKind::Store,
            b" M " => ItemKind::Modify,
            b"SB " => return hex(rest).map(|_| Line::Nothing).ok_or(Fault::Unknown),
            _ => return Err(Fault::Unknown),
        };
        let comma = memchr::memchr(b',', rest).ok_or(Fault::Unknown)?;
        let addr = VirtAddr::new(hex(&rest[..comma]).ok_or(Fault::Unknown)?);
        let size_bytes = size(&rest[comma + 1..])?;
        Ok(Line::Reference(Reference { kind, addr, size_bytes }))
    }
}

/// What follows `==123== `, `--123-- ` or `**123** `, where `text` begins so.
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

fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
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

/// How a line that was seen before looks, to be recognised without parsing it again.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) kind: ItemKind,
    /// The length of the line, newline included; of a data item without the address.
    bytes: u8,
    /// The first eight bytes of a fetch, of a data item the label; the first byte is the lowest.
    start: u64,
    /// What follows, of a data item what follows the address, where `rest_mask` has bits.
    rest: u64,
    rest_mask: u64,
}

/// The length of `I  ` and ` L `.
const LABEL_BYTES: usize = 3;
/// A label's bits in a line's first word.
const LABEL_MASK: u64 = 0xff_ffff;

impl Shape {
    /// The shape of no line at all, whatever its kind.
    pub(super) const NONE: Shape =
        Shape { kind: ItemKind::Fetch, bytes: 0, start: 0, rest: 1, rest_mask: 0 };

    /// The shape of `line`, given without its newline, which says `kind`; whatever its address if
    /// it is data. Lines longer than Lackey's own have none.
    pub(super) fn of(kind: ItemKind, line: &[u8]) -> Self {
        let (start, rest) = match kind {
            ItemKind::Fetch => line.split_at(line.len().min(8)),
            _ => {
                let comma = memchr::memchr(b',', line).unwrap_or(line.len());
                (&line[..LABEL_BYTES], &line[comma..])
            }
        };
        if start.len() < LABEL_BYTES || rest.is_empty() || rest.len() > 7 {
            return Shape { kind, ..Shape::NONE };
        }
        let word = |bytes: &[u8]| bytes.iter().rfold(0, |word, &byte| word << 8 | u64::from(byte));
        Shape {
            kind,
            bytes: (start.len() + rest.len() + 1) as u8,
            start: word(start),
            rest: word(rest) | u64::from(b'\n') << (8 * rest.len()),
            rest_mask: u64::MAX >> (56 - 8 * rest.len()),
        }
    }

    /// If `window` begins with a line of this shape: its length, and its address if it is data.
    #[inline(always)]
    pub(super) fn read(&self, window: &[u8; WINDOW_BYTES]) -> Option<(usize, VirtAddr)> {
        let word = |at: usize| {
            u64::from_le_bytes(*window[at..].first_chunk().expect("no line reaches so far"))
        };
        let same = |start, rest| start == self.start && rest & self.rest_mask == self.rest;
        if self.kind == ItemKind::Fetch {
            let line = (usize::from(self.bytes), VirtAddr::NULL);
            return same(word(0), word(8)).then_some(line);
        }
        let field = window[LABEL_BYTES..].first_chunk().expect("a window is longer");
        let (digits, addr) = hex_prefix(field);
        let same = same(word(0) & LABEL_MASK, word(LABEL_BYTES + digits)) && digits > 0;
        same.then_some((usize::from(self.bytes) + digits, VirtAddr::new(addr)))
    }
}

/// How many hexadecimal digits `field` begins with, and their value; 0 if there are none.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn hex_prefix(field: &[u8; 16]) -> (usize, u64) {
    use std::arch::x86_64::*;
    // SAFETY: the field has the 16 bytes that are loaded, at any alignment; every x86-64
    // processor has SSE2.
    unsafe {
        let text = _mm_loadu_si128(field.as_ptr().cast());
        // As signed bytes: from '0' to '9' as it is, from 'a' to 'f' in lower case.
        let lower_case = _mm_or_si128(text, _mm_set1_epi8(0x20));
        let between = |bytes, first: u8, last: u8| {
            let from = _mm_cmpgt_epi8(bytes, _mm_set1_epi8(first as i8 - 1));
            _mm_and_si128(from, _mm_cmplt_epi8(bytes, _mm_set1_epi8(last as i8 + 1)))
        };
        let letters = between(lower_case, b'a', b'f');
        let valid = _mm_or_si128(between(text, b'0', b'9'), letters);
        let digits = (!_mm_movemask_epi8(valid)).trailing_zeros();
        // A digit's value is in its low four bits, a letter's 9 above that.
        let nine = _mm_and_si128(letters, _mm_set1_epi8(9));
        let values = _mm_and_si128(_mm_add_epi8(text, nine), _mm_set1_epi8(0x0f));
        // Pairs of digits become bytes, the first the high half; then the first byte the highest.
        let pairs = _mm_or_si128(_mm_slli_epi16(values, 4), _mm_srli_epi16(values, 8));
        let bytes = _mm_packus_epi16(_mm_and_si128(pairs, _mm_set1_epi16(0x00ff)), pairs);
        let value = (_mm_cvtsi128_si64(bytes) as u64).swap_bytes();
        // What came after the digits goes out at the low end.
        (digits as usize, value.unbounded_shr(64 - 4 * digits))
    }
}

/// How many hexadecimal digits `field` begins with, and their value; 0 if there are none.
#[cfg(not(target_arch = "x86_64"))]
fn hex_prefix(field: &[u8; 16]) -> (usize, u64) {
    let digits = field.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    (digits, hex(&field[..digits]).unwrap_or(0))
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
        Reference { kind, addr: VirtAddr::new(addr), size_bytes }
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

    /// The fast path takes exactly what the slow one takes, for every byte in every place.
    #[test]
    fn shapes_read_what_lines_say() {
        let kinds = [ItemKind::Fetch, ItemKind::Load, ItemKind::Store, ItemKind::Modify];
        for (kind, addr, size_bytes) in kinds.into_iter().flat_map(|kind| {
            [0, 0x4016b80, 0x1ffeffe7e8, 0x9abcdef01, u64::MAX, 0x1234_5678_9abc_def0]
                .into_iter()
                .flat_map(move |addr| [1, 16, 512, 4096].map(|size| (kind, addr, size)))
        }) {
            let reference = reference(kind, addr, size_bytes);
            let label = ["I  ", " L ", " S ", " M "][kind as usize];
            let line = format!("{label}{addr:08x},{size_bytes}\n");
            let shape = Shape::of(kind, line.trim_end().as_bytes());
            let mut window = [b'\n'; WINDOW_BYTES];
            window[..line.len()].copy_from_slice(line.as_bytes());
            if kind != ItemKind::Fetch {
                assert_eq!(shape.read(&window), Some((line.len(), reference.addr)), "{line}");
            } else if line.len() <= 16 {
                assert_eq!(shape.read(&window), Some((line.len(), VirtAddr::NULL)), "{line}");
            }
            for (place, byte) in (0..line.len()).flat_map(|p| (0..=255).map(move |b| (p, b))) {
                let mut window = window;
                window[place] = byte;
                let Some((bytes, addr)) = shape.read(&window) else { continue };
                assert_eq!(window[bytes - 1], b'\n');
                let Ok(Line::Reference(read)) = Line::parse(&window[..bytes - 1]) else {
                    panic!("{:?} is no line", window.escape_ascii().to_string())
                };
                let addr = if kind == ItemKind::Fetch { reference.addr } else { addr };
                assert_eq!(read, Reference { kind, addr, size_bytes });
            }
        }
        assert_eq!(Shape::NONE.read(&[0; WINDOW_BYTES]), None);
        assert_eq!(Shape::NONE.read(&[1; WINDOW_BYTES]), None);
    }
}
