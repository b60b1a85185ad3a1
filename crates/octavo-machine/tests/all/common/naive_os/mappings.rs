//! The mappings of an address space as a list of ranges.

use std::ops::Range;

use octavo_types::Protection;

/// The backing of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Anonymous,
    Heap,
    Stack,
    /// Pages of a file or of shared memory, by its number, and the base page at which its first page would be.
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
        let cut = |of: &Range<u64>| of.start.max(range.start)..of.end.min(range.end);
        let parts = self.0.iter().map(|(of, mapping)| (cut(of), *mapping));
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

    /// Places a mapping in a range, whatever was there.
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
                Some((last, of)) if last.end == range.start && *of == mapping => {
                    last.end = range.end;
                }
                _ => merged.push((range, mapping)),
            }
        }
        self.0 = merged;
    }
}
