//! Pieces: runs of lines that were seen before, to be recognised at once.

use octavo_types::VirtAddr;

use super::line::LABEL_BYTES;

/// How much text a piece holds at most.
pub(super) const TEXT_BYTES: usize = 128;
/// How many data lines it holds at most.
pub(super) const MAX_DATA: usize = 4;
/// How many pieces that came next it remembers.
pub(super) const LINKS: usize = 4;
/// The shortest fetch that a piece begins with, its newline included: what Lackey writes at least,
/// and what [`key`] looks at.
const MIN_FETCH_BYTES: usize = 14;

/// In place of a piece where there is none.
pub(super) const NO_PIECE: u32 = 0;

/// Text as a piece is compared with.
pub(super) type Window = [u8; TEXT_BYTES];

/// Some lines of one segment, the first of them a fetch: their text, but for the digits of data
/// addresses. Three cache lines, two of them text.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Piece {
    /// 0 where any byte may stand: after the end, and in place of the digits of data addresses,
    /// which are looked at when they are read.
    pub(super) text: Window,
    /// The keys of the pieces that came next, and these; [`NO_PIECE`] where there were fewer.
    pub(super) keys: [u32; LINKS],
    pub(super) next: [u32; LINKS],
    /// Another piece with the same first line after the same node, in a ring: itself if there is
    /// none.
    pub(super) other: u32,
    /// The node that it ends at.
    pub(super) end: u32,
    /// The segment that ends there; known if a link leads to a piece that begins one.
    pub(super) segment: u32,
    /// Where the digits of each data address end, and how many there are.
    pub(super) digits_end: [u8; MAX_DATA],
    pub(super) digits: [u8; MAX_DATA],
    /// How much text, how many lines, how many of them data.
    pub(super) bytes: u8,
    pub(super) lines: u8,
    pub(super) data: u8,
    /// Whether its first line begins a segment.
    pub(super) begins: bool,
}

const _: () = assert!(size_of::<Piece>() == 192);

impl Piece {
    /// The piece that is no piece: no link leads to it.
    pub(super) fn none() -> Self {
        Piece {
            text: [0; TEXT_BYTES],
            keys: [0; LINKS],
            next: [NO_PIECE; LINKS],
            other: NO_PIECE,
            end: 0,
            segment: 0,
            // Digits past the last data address are read too, and ignored.
            digits_end: [16; MAX_DATA],
            digits: [0; MAX_DATA],
            bytes: 0,
            lines: 0,
            data: 0,
            begins: false,
        }
    }

    /// The piece of `text`: whole lines that are references. None if it does not fit.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES {
            return None;
        }
        let mut piece = Piece::none();
        piece.text[..text.len()].copy_from_slice(text);
        piece.bytes = text.len() as u8;
        let mut start = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            if line[0] != b'I' {
                let digits = line.iter().position(|&byte| byte == b',')? - LABEL_BYTES;
                let place = usize::from(piece.data);
                let digits_start = start + LABEL_BYTES;
                *piece.digits_end.get_mut(place)? = (digits_start + digits) as u8;
                piece.digits[place] = digits as u8;
                piece.text[digits_start..][..digits].fill(0);
                piece.data += 1;
            } else if start == 0 && line.len() < MIN_FETCH_BYTES {
                return None;
            }
            start += line.len();
            piece.lines += 1;
        }
        (text.first() == Some(&b'I')).then_some(piece)
    }

    /// Where in `window` the first line begins that is not this piece's, and which line that is.
    pub(super) fn differs_at(&self, window: &Window) -> (usize, usize) {
        let text = &self.text[..usize::from(self.bytes)];
        let same = text.iter().zip(window).take_while(|(own, byte)| **own == 0 || own == byte);
        let same = &text[..same.count()];
        let start = memchr::memrchr(b'\n', same).map_or(0, |newline| newline + 1);
        (start, memchr::memchr_iter(b'\n', same).count())
    }

    /// Whether what begins at byte `start`, a line of this piece, can be a piece of its own.
    pub(super) fn can_split(&self, start: usize) -> bool {
        let rest = &self.text[start..usize::from(self.bytes)];
        let fetch_bytes = memchr::memchr(b'\n', rest).map_or(0, |newline| newline + 1);
        rest.first() == Some(&b'I') && fetch_bytes >= MIN_FETCH_BYTES
    }

    /// Cuts off what begins at byte `start`, which is line `line`, and gives it.
    pub(super) fn split(&mut self, start: usize, line: usize) -> Self {
        let mut rest = self.clone();
        rest.text.copy_within(start.., 0);
        rest.text[TEXT_BYTES - start..].fill(0);
        rest.other = NO_PIECE;
        self.text[start..].fill(0);
        rest.bytes = self.bytes - start as u8;
        rest.lines = self.lines - line as u8;
        (self.bytes, self.lines) = (start as u8, line as u8);
        let own = self.digits_end.iter().take_while(|&&end| usize::from(end) < start).count();
        let own = own.min(usize::from(self.data));
        rest.data = self.data - own as u8;
        (rest.digits_end, rest.digits) = ([16; MAX_DATA], [0; MAX_DATA]);
        for place in own..usize::from(self.data) {
            rest.digits_end[place - own] = self.digits_end[place] - start as u8;
            rest.digits[place - own] = self.digits[place];
            (self.digits_end[place], self.digits[place]) = (16, 0);
        }
        self.data = own as u8;
        rest.begins = false;
        (self.keys, self.next) = ([0; LINKS], [NO_PIECE; LINKS]);
        self.segment = 0;
        rest
    }

    /// Remembers that `next`, whose key is `key`, came after this piece.
    pub(super) fn link(&mut self, key: u32, next: u32) {
        let known = (0..LINKS).find(|&at| self.next[at] != NO_PIECE && self.keys[at] == key);
        let free = || self.next.iter().position(|&next| next == NO_PIECE);
        let place = known.or_else(free).unwrap_or_else(|| {
            self.keys.rotate_right(1);
            self.next.rotate_right(1);
            0
        });
        (self.keys[place], self.next[place]) = (key, next);
    }
}

/// A key of pieces by their first line: the address's lower digits and the size.
#[inline(always)]
pub(super) fn key(window: &Window) -> u32 {
    let word = u64::from_le_bytes(*window[6..].first_chunk().expect("a window is longer"));
    (word ^ word >> 28) as u32
}

/// The address of the fetch that `window` begins with.
pub(super) fn fetch_addr(window: &Window) -> Option<VirtAddr> {
    let digits = window.strip_prefix(b"I  ")?;
    let digits = &digits[..memchr::memchr(b',', &digits[..17])?];
    let digit = |&byte: &u8| char::from(byte).to_digit(16).map(u64::from);
    let value = digits.iter().try_fold(0, |value, byte| Some(value << 4 | digit(byte)?))?;
    (!digits.is_empty()).then_some(VirtAddr::new(value))
}
