//! Address-space identifiers, and keys that carry one.

/// The identifier of an address space in the entries of an array, as a PCID is on x86-64.
///
/// It has 12 bits as on x86-64; the last value is excluded, so that no key equals [`crate::NO_KEY`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asid(u16);

impl Asid {
    /// Bits of a key below the identifier: enough for the base page number of a 64-bit address.
    pub(crate) const NUMBER_BITS: u32 = 52;

    /// The identifier of the only address space, where identifiers are not used.
    pub const ONLY: Asid = Asid(0);
    /// The largest identifier.
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

    /// The key of `number` (a page number of at most 52 bits; higher bits are lost) in this address space,
    /// with the number in the low bits to index a set.
    #[inline(always)]
    pub const fn tag(self, number: u64) -> u64 {
        (self.0 as u64) << Self::NUMBER_BITS | number & ((1 << Self::NUMBER_BITS) - 1)
    }

    /// The identifier of a key of [`Asid::tag`].
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
