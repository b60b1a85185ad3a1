//! Entries of the second level that hold a page, or a cluster of base pages.

use crate::tlb::{Entry, TlbEntry};

use super::array::ClusterArray;

/// A page and, if a cluster is held for it, the pages of that cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClusterEntry {
    /// The page that was walked or looked up. Its frame lies in the cluster's group of frames.
    pub page: TlbEntry,
    /// All pages of the cluster that are held; none where the page is held alone.
    pub subpages: Subpages,
}

impl Entry for ClusterEntry {
    type Array = ClusterArray;

    #[inline(always)]
    fn of_page(page: TlbEntry) -> Self {
        ClusterEntry { page, subpages: Subpages::default() }
    }

    #[inline(always)]
    fn page(self) -> TlbEntry {
        self.page
    }

    #[inline(always)]
    fn with_page(self, page: TlbEntry) -> Self {
        ClusterEntry { page, ..self }
    }
}

impl From<TlbEntry> for ClusterEntry {
    #[inline(always)]
    fn from(page: TlbEntry) -> Self {
        Self::of_page(page)
    }
}

impl From<ClusterEntry> for TlbEntry {
    #[inline(always)]
    fn from(entry: ClusterEntry) -> Self {
        entry.page
    }
}

/// The pages of a cluster by position: for each a valid bit, and the low bits of its frame below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Subpages(u32);

/// Bits of a page.
const BITS: u64 = 4;
/// The valid bit of a page.
const VALID: u32 = 8;
/// The valid bits of all pages.
const ALL_VALID: u32 = 0x8888_8888;

impl Subpages {
    /// The low bits of the frame of the page at a position, if it is valid.
    #[inline(always)]
    pub fn get(self, at: u64) -> Option<u64> {
        let bits = self.0 >> (BITS * at);
        (bits & VALID != 0).then_some(u64::from(bits & (VALID - 1)))
    }

    /// The number of valid pages.
    pub fn count(self) -> u64 {
        u64::from((self.0 & ALL_VALID).count_ones())
    }

    /// Whether no page is valid.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Without the pages that `others` has.
    pub fn without(self, others: Subpages) -> Subpages {
        // From each valid bit, the four bits of its page.
        let gone = (others.0 & ALL_VALID) / VALID * 0xf;
        Subpages(self.0 & !gone)
    }

    /// Translates the frames of a guest's pages by `host`, whose positions are these frames.
    pub fn translated_by(self, host: Subpages) -> Subpages {
        let pages =
            (0..u64::from(u32::BITS) / BITS).filter_map(|at| Some((at, host.get(self.get(at)?)?)));
        pages.collect()
    }
}

impl FromIterator<(u64, u64)> for Subpages {
    /// Valid pages: position, and low bits of the frame.
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(pages: I) -> Self {
        let add = |all, (at, low)| all | (VALID | low as u32) << (BITS * at);
        Subpages(pages.into_iter().fold(0, add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subpages_keep_their_frames() {
        let pages: Subpages = [(0, 7), (3, 0), (7, 5)].into_iter().collect();
        let all = (0..8).map(|at| pages.get(at)).collect::<Vec<_>>();
        assert_eq!(all, [Some(7), None, None, Some(0), None, None, None, Some(5)]);
        let rest = pages.without([(3, 1), (4, 4)].into_iter().collect());
        assert_eq!((pages.count(), rest.count()), (3, 2));
        assert_eq!(rest, [(0, 7), (7, 5)].into_iter().collect());
        assert!(rest.without(pages).is_empty() && !rest.is_empty());
    }

    #[test]
    fn host_translates_the_frames_of_a_guest() {
        let guest: Subpages = [(0, 7), (3, 0), (7, 5)].into_iter().collect();
        let host = [(0, 2), (7, 1), (3, 6)].into_iter().collect();
        assert_eq!(guest.translated_by(host), [(0, 1), (3, 2)].into_iter().collect());
    }
}
