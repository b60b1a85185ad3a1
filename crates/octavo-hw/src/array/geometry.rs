//! The geometry of an array: sets and ways, and the set of a number.

/// An invalid geometry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// No sets, or no ways.
    #[error("{sets} sets of {ways} ways: give at least 1 of each")]
    Empty {
        /// As given by the user.
        sets: u64,
        /// As given by the user.
        ways: u64,
    },
    /// Entries that are not a multiple of the ways.
    #[error(
        "{entries} entries of {ways} ways: give a multiple of {ways}, such as {}",
        entries.div_ceil(*ways).max(1).saturating_mul(*ways)
    )]
    Ragged {
        /// As given by the user.
        entries: u64,
        /// As given by the user.
        ways: u64,
    },
    /// Too many entries.
    #[error("{entries} entries: give at most {}", Geometry::MAX_ENTRIES)]
    TooMany {
        /// As given by the user.
        entries: u64,
    },
}

/// The sets and ways of an array: at least 1 of each, at most 2^26 entries in total. Neither must be a power
/// of two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    sets: u32,
    ways: u32,
}

impl Geometry {
    /// Maximum number of entries: the 64-byte lines of 4 GiB.
    pub const MAX_ENTRIES: u64 = 1 << 26;

    /// A geometry of `sets` sets of `ways` ways.
    pub const fn new(sets: u64, ways: u64) -> Result<Self, GeometryError> {
        if sets == 0 || ways == 0 {
            return Err(GeometryError::Empty { sets, ways });
        }
        let entries = sets.saturating_mul(ways);
        if entries > Self::MAX_ENTRIES {
            return Err(GeometryError::TooMany { entries });
        }
        Ok(Geometry { sets: sets as u32, ways: ways as u32 })
    }

    /// A geometry of `entries` entries in sets of `ways`; equal numbers are fully associative.
    pub const fn of_entries(entries: u64, ways: u64) -> Result<Self, GeometryError> {
        if ways == 0 || entries == 0 {
            return Err(GeometryError::Empty { sets: if ways == 0 { 0 } else { entries }, ways });
        }
        if !entries.is_multiple_of(ways) {
            return Err(GeometryError::Ragged { entries, ways });
        }
        Self::new(entries / ways, ways)
    }

    /// The number of sets.
    #[inline(always)]
    pub const fn sets(self) -> usize {
        self.sets as usize
    }

    /// The number of ways.
    #[inline(always)]
    pub const fn ways(self) -> usize {
        self.ways as usize
    }

    /// The number of entries.
    #[inline(always)]
    pub const fn entries(self) -> usize {
        self.sets as usize * self.ways as usize
    }

    /// The set of a number (of a page or line): its low bits, or its remainder if the number of sets is not a
    /// power of two.
    #[inline(always)]
    pub const fn set_of(self, number: u64) -> usize {
        let sets = self.sets as u64;
        if sets & (sets - 1) == 0 {
            (number & (sets - 1)) as usize
        } else {
            (number % sets) as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_divide_into_sets() {
        let geometry = Geometry::of_entries(1536, 12).unwrap();
        assert_eq!((geometry.sets(), geometry.ways(), geometry.entries()), (128, 12, 1536));
        assert_eq!((geometry.set_of(129), geometry.set_of(u64::MAX)), (1, 127));
        let geometry = Geometry::new(3, 5).unwrap();
        assert_eq!((geometry.set_of(5), geometry.entries()), (2, 15));
    }

    #[test]
    fn invalid_values_are_rejected_with_one_sentence() {
        let sentence = |result: Result<Geometry, GeometryError>| result.unwrap_err().to_string();
        assert_eq!(
            sentence(Geometry::of_entries(64, 6)),
            "64 entries of 6 ways: give a multiple of 6, such as 66"
        );
        assert_eq!(
            sentence(Geometry::of_entries(0, 4)),
            "0 sets of 4 ways: give at least 1 of each"
        );
        assert_eq!(sentence(Geometry::new(4, 0)), "4 sets of 0 ways: give at least 1 of each");
        let most = Geometry::MAX_ENTRIES;
        assert_eq!(
            sentence(Geometry::new(most, 2)),
            format!("{} entries: give at most {most}", 2 * most)
        );
        assert!(Geometry::new(u64::MAX, u64::MAX).is_err() && Geometry::new(most, 1).is_ok());
    }
}
