//! A fully associative array of ranges of base pages.

use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, PageNumber, PageSize};

use super::{TlbEntry, Translation};

/// Ranges of base pages of any length and alignment, each with the entry of its first page. No two of an
/// address space overlap. Replacement is LRU.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// First page of each range, tagged with its address space.
    firsts: Vec<u64>,
    /// Length of each range, in pages.
    pages: Vec<u64>,
    values: Vec<TlbEntry>,
    used_at: Vec<u64>,
    now: u64,
    entries: usize,
}

impl Ranges {
    /// The most entries: a look-up compares all of them.
    pub const MAX_ENTRIES: u64 = 1024;

    /// An empty array of `entries` ranges, 1 to [`Ranges::MAX_ENTRIES`].
    pub fn new(entries: usize) -> Self {
        Ranges {
            firsts: Vec::with_capacity(entries),
            pages: Vec::with_capacity(entries),
            values: Vec::with_capacity(entries),
            used_at: Vec::with_capacity(entries),
            now: 0,
            entries,
        }
    }

    /// Looks a base page up: its translation, and the index of its range until the next removal. A hit uses
    /// the range.
    #[inline]
    pub fn look_up(&mut self, asid: Asid, page: PageNumber) -> Option<(Translation, usize)> {
        let key = asid.tag(page.raw());
        let mut entries = self.firsts.iter().zip(&self.pages);
        let at = entries.position(|(first, pages)| key.wrapping_sub(*first) < *pages)?;
        self.touch(at);
        Some((base_page(self.values[at], key - self.firsts[at]), at))
    }

    /// Uses a range.
    #[inline(always)]
    pub fn touch(&mut self, at: usize) {
        self.now += 1;
        self.used_at[at] = self.now;
    }

    /// Fills a range, given the entry of its first page. Overlapping ranges are removed.
    pub fn put(&mut self, asid: Asid, pages: Pages, first: TlbEntry) {
        self.merge(asid, pages, first, 0);
    }

    /// Fills a range, given the entry of its first page. Ranges that continue it with equal permissions are
    /// merged with it, lowest first, up to `limit_pages` in total; other overlapping ranges are removed.
    pub fn merge(&mut self, asid: Asid, pages: Pages, entry: TlbEntry, limit_pages: u64) {
        let (mut first, mut count, mut entry) =
            (asid.tag(pages.start), pages.end - pages.start, entry);
        let continues = |this: &Self, at: usize, first: u64, count: u64, entry: TlbEntry| {
            let (other, others) = (this.firsts[at], this.pages[at]);
            let hull = (other + others).max(first + count) - other.min(first);
            let touches = other <= first + count && first <= other + others;
            let frame = entry.frame().raw().wrapping_add(other.wrapping_sub(first));
            let is_alike = this.values[at] == entry.at(FrameNumber::new(frame));
            touches && is_alike && hull <= limit_pages
        };
        loop {
            let fitting = (0..self.firsts.len())
                .filter(|at| continues(self, *at, first, count, entry))
                .min_by_key(|at| self.firsts[*at]);
            let Some(at) = fitting else { break };
            let end = (self.firsts[at] + self.pages[at]).max(first + count);
            if self.firsts[at] < first {
                (first, entry) = (self.firsts[at], self.values[at]);
            }
            count = end - first;
            self.remove(at);
        }
        self.drop_overlapping(first, first + count);
        if self.firsts.len() == self.entries {
            let oldest = (0..self.entries).min_by_key(|at| self.used_at[*at]);
            self.remove(oldest.expect("an array has entries"));
        }
        self.now += 1;
        self.firsts.push(first);
        self.pages.push(count);
        self.values.push(entry);
        self.used_at.push(self.now);
    }

    /// Removes the ranges that overlap any of these base pages, whole, and returns their number.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        let last = Asid::ONLY.tag(u64::MAX);
        let (start, end) = (pages.start.min(last), pages.end.min(last));
        self.drop_overlapping(asid.tag(start), asid.tag(end))
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.drop_overlapping(0, u64::MAX);
    }

    fn drop_overlapping(&mut self, from: u64, to: u64) -> usize {
        let before = self.firsts.len();
        for at in (0..before).rev() {
            if self.firsts[at] < to && from < self.firsts[at] + self.pages[at] {
                self.remove(at);
            }
        }
        before - self.firsts.len()
    }

    fn remove(&mut self, at: usize) {
        self.firsts.swap_remove(at);
        self.pages.swap_remove(at);
        self.values.swap_remove(at);
        self.used_at.swap_remove(at);
    }
}

/// The page at position `number` of a range with this first page.
fn base_page(first: TlbEntry, number: u64) -> Translation {
    let frame = FrameNumber::new(first.frame().raw() + number);
    Translation { size: PageSize::BASE, entry: first.at(frame) }
}
