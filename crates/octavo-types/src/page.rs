//! Page sizes as powers of two held by their logarithm, and page numbers.

use std::fmt;
use std::str::FromStr;

use crate::values::{size, size_text};

/// A page number: an address shifted right by the logarithm of some page size.
///
/// It does not carry its size; the code that holds one says which size it means.
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

    /// The size of `bytes`, or `None` where that is no power of two in 4 KiB..=1 GiB.
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() { Self::from_log2(bytes.trailing_zeros() as u8) } else { None }
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("page size `{0}`: give a power of two from 4KiB to 1GiB, such as 4KiB, 64KiB or 2MiB")]
pub struct ParsePageSizeError(String);

impl FromStr for PageSize {
    type Err = ParsePageSizeError;

    /// Reads `64KiB`, `64K`, `64kB` or plain bytes; units are powers of 1024, in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = size(text).ok().and_then(Self::from_bytes);
        bytes.ok_or_else(|| ParsePageSizeError(text.to_owned()))
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
    fn other_texts_are_refused() {
        for text in ["", "KiB", "3KiB", "2KiB", "2GiB", "4KiBs", "-4KiB", "99999999999999999999G"] {
            assert!(text.parse::<PageSize>().is_err(), "{text}");
        }
    }
}
