//! Page sizes as powers of two held by their logarithm, and page numbers.

use std::fmt;
use std::str::FromStr;

use crate::values::{size, size_text};

/// A page number: an address shifted right by the logarithm of some page size.
///
/// It does not carry the page size, which the code that holds it has to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct PageNumber(u64);

impl PageNumber {
    /// The page whose number is `raw`.
    #[inline(always)]
    pub const fn new(raw: u64) -> Self {
        PageNumber(raw)
    }

    /// The number itself.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A hash of [`PageNumber::HASH_BITS`] bits. It differs for neighbouring pages, and for pages
    /// at the same place in areas far apart.
    #[inline(always)]
    pub const fn hash(self) -> usize {
        (self.0 ^ self.0 >> Self::HASH_BITS) as usize % (1 << Self::HASH_BITS)
    }

    /// How many bits a hash has.
    pub const HASH_BITS: u32 = 12;
}

/// A page size: a power of two, any from 4 KiB up to 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u8);

impl PageSize {
    /// The base page of x86-64.
    pub const BASE: PageSize = PageSize(12);
    /// 2 MiB, the leaf of the second page-table level of x86-64.
    pub const HUGE: PageSize = PageSize(21);
    /// 1 GiB, the largest size studied.
    pub const LARGEST: PageSize = PageSize(30);

    /// The size of `2^log2` bytes, or `None` outside 4 KiB..=1 GiB.
    pub const fn from_log2(log2: u8) -> Option<Self> {
        if log2 >= Self::BASE.0 && log2 <= Self::LARGEST.0 { Some(PageSize(log2)) } else { None }
    }

    /// The size of `bytes`, or `None` where that is not a power of two in 4 KiB..=1 GiB.
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() { Self::from_log2(bytes.trailing_zeros() as u8) } else { None }
    }

    /// The page size whose ratio to `bytes` is nearest to one.
    pub fn nearest(bytes: u64) -> Self {
        let least = Self::BASE.bytes();
        let below: u64 = 1 << bytes.clamp(least, Self::LARGEST.bytes()).ilog2();
        // Squares, in 128 bits: the geometric mean of both neighbours is not an integer.
        let is_above = u128::from(bytes).pow(2) > 2 * u128::from(below).pow(2);
        let log2 = below.trailing_zeros() as u8 + u8::from(is_above);
        Self(log2.min(Self::LARGEST.0))
    }

    /// The base-2 logarithm of the size in bytes.
    #[inline(always)]
    pub const fn log2(self) -> u8 {
        self.0
    }

    /// The size in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }

    /// How many bits a base page number is shifted right by to give this size's page number.
    #[inline(always)]
    pub const fn base_shift(self) -> u8 {
        self.0 - Self::BASE.0
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size_text(self.bytes()))
    }
}

impl fmt::Debug for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no page size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsePageSizeError {
    text: String,
    /// The nearest page size, where the text is a size.
    nearest: Option<PageSize>,
}

impl std::error::Error for ParsePageSizeError {}

impl fmt::Display for ParsePageSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = "a power of two from 4KiB to 1GiB, such as 4KiB, 64KiB or 2MiB";
        match self.nearest {
            Some(size) => {
                write!(f, "page size `{}`: the nearest is {size}; give {allowed}", self.text)
            }
            None => write!(f, "page size `{}`: give {allowed}", self.text),
        }
    }
}

impl FromStr for PageSize {
    type Err = ParsePageSizeError;

    /// Reads `64KiB`, `64K`, `64kB` or plain bytes; units are powers of 1024, in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = size(text).ok();
        bytes.and_then(Self::from_bytes).ok_or_else(|| ParsePageSizeError {
            text: text.to_owned(),
            nearest: bytes.map(Self::nearest),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_written() {
        for log2 in 12..=30 {
            let size = PageSize::from_log2(log2).unwrap();
            assert_eq!(size.to_string().parse(), Ok(size));
            assert_eq!(size.bytes().to_string().parse(), Ok(size));
        }
        assert_eq!("64k".parse(), Ok(PageSize::from_log2(16).unwrap()));
        assert_eq!("2 MB".parse(), Ok(PageSize::HUGE));
    }

    #[test]
    fn error_names_the_nearest_page_size() {
        for (text, nearest) in [
            ("3k", "4KiB"),
            ("0", "4KiB"),
            ("5MiB", "4MiB"),
            ("6MiB", "8MiB"),
            ("1025MiB", "1GiB"),
            ("2TiB", "1GiB"),
        ] {
            let error = text.parse::<PageSize>().unwrap_err().to_string();
            assert!(error.contains(&format!("the nearest is {nearest};")), "{error}");
        }
        let error = "many".parse::<PageSize>().unwrap_err().to_string();
        assert!(error.starts_with("page size `many`: give a power of two"), "{error}");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "KiB", "3KiB", "2KiB", "2GiB", "4KiBs", "-4KiB", "99999999999999999999G"] {
            assert!(text.parse::<PageSize>().is_err(), "{text}");
        }
    }
}
