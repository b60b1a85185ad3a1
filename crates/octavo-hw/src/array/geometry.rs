//! How many sets and ways an array has, and which set a number belongs to.

/// A geometry that no array can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// No sets, or no ways.
    #[error("{sets} sets of {ways} ways: give at least 1 of each")]
    Empty {
        /// As asked for.
        sets: u64,
        /// As asked for.
        ways: u64,
    },
    /// Entries that are no whole number of sets.
    #[error(
        "{entries} entries of {ways} ways: give a multiple of {ways}, such as {}",
        entries.div_ceil(*ways).max(1).saturating_mul(*ways)
    )]
    Ragged {
        /// As asked for.
        entries: u64,
        /// As asked for.
        ways: u64,
    },
    /// More entries than an array may have.
    #[error("{entries} entries: give at most {}", Geometry::MAX_ENTRIES)]
    TooMany {
        /// As asked for.
        entries: u64,
    },
}

/// The sets and ways of an array: at least 1 of each, at most 2^26 entries in all. Neither has to
/// be a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    sets: u32,
    ways: u32,
}

impl Geometry {
    /// The most entries that an array may have: 64-byte lines of 4 GiB.
    pub const MAX_ENTRIES: u64 = 1 << 26;

    /// So many sets of so many ways.
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

    /// So many entries, in sets of so many ways: as many ways as entries are fully associative.
    pub const fn of_entries(entries: u64, ways: u64) -> Result<Self, GeometryError> {
        if ways == 0 || entries == 0 {
            return Err(GeometryError::Empty { sets: if ways == 0 { 0 } else { entries }, ways });
        }
        if !entries.is_multiple_of(ways) {
            return Err(GeometryError::Ragged { entries, ways });
        }
        Self::new(entries / ways, ways)
    }

    /// How many sets there are.
    #[inline(always)]
    pub const fn sets(self) -> usize {
        self.sets as usize
    }

    /// How many entries a set has.
    #[inline(always)]
    pub const fn ways(self) -> usize {
        self.ways as usize
    }

    /// How many entries there are.
    #[inline(always)]
    pub const fn entries(self) -> usize {
        self.sets as usize * self.ways as usize
    }

    /// The set that a number (of a page, of a line) belongs to: its low bits, or where the sets
    /// are no power of two what is left of it when it is divided by them.
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
