//! Address-space identifiers, and keys that carry one.

/// The identifier of an address space in the entries of an array, as a PCID is on x86-64.
///
/// It has 12 bits there, and here; the last value is left out, so that no key is
/// [`crate::NO_KEY`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asid(u16);

impl Asid {
    /// Bits of a number that an identifier is put above: a base page number of 64-bit addresses
    /// has as many.
    pub(crate) const NUMBER_BITS: u32 = 52;

    /// The identifier of the only address space.
    pub const ONLY: Asid = Asid(0);
    /// The largest one.
    pub const LAST: Asid = Asid(0xffe);

    /// The identifier `raw`, or `None` above [`Asid::LAST`].
    pub const fn new(raw: u16) -> Option<Self> {
        if raw <= Self::LAST.0 { Some(Asid(raw)) } else { None }
    }

    /// Its value.
    #[inline(always)]
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// The key of `number` (a page number of 52 bits at most; what lies above is lost) in this
    /// address space: the number in the low bits, so that they index a set.
    #[inline(always)]
    pub const fn tag(self, number: u64) -> u64 {
        (self.0 as u64) << Self::NUMBER_BITS | number & ((1 << Self::NUMBER_BITS) - 1)
    }

    /// The identifier in a key that [`Asid::tag`] made.
    #[inline(always)]
    pub const fn of(key: u64) -> Self {
        Asid((key >> Self::NUMBER_BITS) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_round_trip_and_differ_from_the_empty_key() {
        assert_eq!((Asid::new(4095), Asid::new(4094)), (None, Some(Asid::LAST)));
        assert_eq!(Asid::of(Asid::LAST.tag(u64::MAX)), Asid::LAST);
        assert_ne!(Asid::LAST.tag(u64::MAX), crate::NO_KEY);
        assert_eq!(Asid::ONLY.tag(77), 77);
    }
}
