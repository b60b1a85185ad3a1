//! Entries that hold a base page or a bundle of superpages.

use octavo_types::PageNumber;

use super::array::MixArray;
use crate::tlb::{Entry, TlbEntry};

/// The most superpages of a bundle, and the size of the aligned group that holds them.
pub const MAX_MEMBERS: u64 = 128;

/// A page and, if it is a superpage, the superpages that share its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MixEntry {
    pub page: TlbEntry,
    /// The superpages by their position in the aligned group of [`MAX_MEMBERS`]: all at the same distance from their
    /// frames, with the permissions and the dirty bit of the page, which is one of them.
    pub members: u128,
}

impl Entry for MixEntry {
    type Array = MixArray;

    #[inline(always)]
    fn of_page(page: TlbEntry) -> Self {
        MixEntry { page, members: 0 }
    }

    #[inline(always)]
    fn page(self) -> TlbEntry {
        self.page
    }

    #[inline(always)]
    fn with_page(self, page: TlbEntry) -> Self {
        MixEntry { page, ..self }
    }
}

/// The position of a superpage in its group.
fn position(number: u64) -> u64 {
    number % MAX_MEMBERS
}

impl MixEntry {
    /// The positions of the superpages that are in the group of `number`.
    pub fn members_of(number: u64, superpages: impl Iterator<Item = u64>) -> u128 {
        let in_group = superpages.filter(|other| other / MAX_MEMBERS == number / MAX_MEMBERS);
        in_group.fold(0, |members, other| members | 1 << position(other))
    }

    /// The bundle of superpage `number` (by number of its size), cut to its aligned group of `group` superpages and, if
    /// `is_run`, to the superpages that adjoin it without a gap.
    pub fn cut(self, number: u64, group: u64, is_run: bool) -> Self {
        let at = position(number);
        let group_mask = (u128::MAX >> (MAX_MEMBERS - group)) << (at / group * group);
        let mut members = (self.members | 1 << at) & group_mask;
        if is_run {
            let after = (members >> at).trailing_ones();
            let before = (members << (MAX_MEMBERS - 1 - at)).leading_ones() - 1;
            let run = u128::MAX >> (MAX_MEMBERS as u32 - after - before);
            members &= run << (at as u32 - before);
        }
        MixEntry { members, ..self }
    }

    /// The number of the first superpage of the bundle that holds superpage `number`.
    pub fn first(self, number: u64) -> u64 {
        number - position(number) + u64::from(self.members.trailing_zeros())
    }

    /// Whether a bundle whose first superpage is `first` overlaps a range of base pages; a superpage has 2^`order` base
    /// pages.
    pub fn overlaps(self, first: u64, order: u8, from: PageNumber, end: PageNumber) -> bool {
        let group = first - position(first);
        let last = (end.raw() - 1) >> order;
        let (from, last) = ((from.raw() >> order).max(group), last.min(group + MAX_MEMBERS - 1));
        from <= last && {
            let count = last - from + 1;
            self.members >> (from - group) & (u128::MAX >> (MAX_MEMBERS - count)) != 0
        }
    }

    /// Whether these superpages follow one another without a gap.
    pub fn is_run(members: u128) -> bool {
        let run = members >> members.trailing_zeros();
        run & run.wrapping_add(1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_cut_to_groups_and_runs() {
        let bundle = |members| MixEntry { page: TlbEntry::default(), members };
        let members = 0b1011_0111u128;
        assert_eq!(bundle(members).cut(128 + 2, 128, false).members, members);
        assert_eq!(bundle(members).cut(128 + 2, 4, false).members, 0b0111);
        assert_eq!(bundle(members).cut(128 + 2, 128, true).members, 0b0111);
        assert_eq!(bundle(members).cut(5, 128, true).members, 0b11_0000);
        assert_eq!(bundle(members).cut(5, 2, true).members, 0b11_0000);
        assert_eq!(bundle(members).cut(7, 8, true).members, 1 << 7);
        assert_eq!(bundle(u128::MAX).cut(127, 128, true).members, u128::MAX);
        assert_eq!(bundle(0).cut(127, 1, true).members, 1 << 127);
        assert_eq!(bundle(0b1100).first(128 + 3), 128 + 2);
        assert!(MixEntry::is_run(u128::MAX) && MixEntry::is_run(0b110) && !MixEntry::is_run(0b101));
    }

    #[test]
    fn bundle_overlaps_its_superpages_alone() {
        // Superpages 129 and 131 of 512 base pages.
        let bundle = MixEntry { page: TlbEntry::default(), members: 0b1010 };
        let overlaps = |from: u64, end: u64| {
            bundle.overlaps(129, 9, PageNumber::new(from), PageNumber::new(end))
        };
        assert!(overlaps(129 * 512, 129 * 512 + 1) && overlaps(130 * 512 - 1, 130 * 512));
        assert!(!overlaps(130 * 512, 131 * 512) && overlaps(130 * 512, 131 * 512 + 1));
        assert!(!overlaps(0, 129 * 512) && overlaps(0, u64::MAX) && !overlaps(132 * 512, u64::MAX));
    }
}
