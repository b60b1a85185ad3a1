//! The mappings of an address space as a list of ranges.

use std::ops::Range;

use octavo_types::Protection;

/// The backing of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Anonymous,
    Heap,
    Stack,
    /// Pages of a file or of shared memory: the number of the object, and the base page at which its page 0 would be.
    Object {
        object: usize,
        origin: u64,
        is_shared: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub rights: Protection,
    pub source: Source,
    /// `Some(true)` after `MADV_HUGEPAGE`, `Some(false)` after `MADV_NOHUGEPAGE`.
    pub wants_huge: Option<bool>,
}

impl Mapping {
    pub fn is_shared(&self) -> bool {
        matches!(self.source, Source::Object { is_shared: true, .. })
    }
}

/// Disjoint mappings by address; equal neighbours are one mapping, as in Linux.
#[derive(Clone, Default, Debug)]
pub struct Mappings(Vec<(Range<u64>, Mapping)>);

impl Mappings {
    /// The mapping that holds a base page, and its range.
    pub fn find(&self, page: u64) -> Option<(Range<u64>, Mapping)> {
        self.0.iter().find(|(range, _)| range.contains(&page)).cloned()
    }

    /// The parts of mappings inside a range.
    pub fn within(&self, range: &Range<u64>) -> Vec<(Range<u64>, Mapping)> {
        let cut = |whole: &Range<u64>| whole.start.max(range.start)..whole.end.min(range.end);
        let parts = self.0.iter().map(|(whole, mapping)| (cut(whole), *mapping));
        parts.filter(|(part, _)| !part.is_empty()).collect()
    }

    /// Removes a range.
    pub fn remove(&mut self, range: &Range<u64>) {
        let outside = [0..range.start, range.end..u64::MAX];
        if !range.is_empty() {
            self.0 = outside.iter().flat_map(|part| self.within(part)).collect();
            self.merge();
        }
    }

    /// Maps a range, in place of earlier mappings.
    pub fn place(&mut self, range: Range<u64>, mapping: Mapping) {
        self.remove(&range);
        if !range.is_empty() {
            self.0.push((range, mapping));
            self.0.sort_by_key(|(range, _)| range.start);
            self.merge();
        }
    }

    fn merge(&mut self) {
        let mut merged: Vec<(Range<u64>, Mapping)> = Vec::new();
        for (range, mapping) in self.0.drain(..) {
            match merged.last_mut() {
                Some((last, previous)) if last.end == range.start && *previous == mapping => {
                    last.end = range.end;
                }
                _ => merged.push((range, mapping)),
            }
        }
        self.0 = merged;
    }
}
