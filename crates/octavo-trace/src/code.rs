//! Maps instruction addresses to the files that they were mapped from.

use std::collections::BTreeMap;

use octavo_types::{AddrRange, Event, MapSource, VirtAddr};

/// The files that a process has had mapped, by traced address. Unmapped files are kept until
/// another mapping takes their place, as callers ask at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct CodeMap {
    mappings: BTreeMap<VirtAddr, Mapping>,
}

#[derive(Clone, Debug)]
struct Mapping {
    end: VirtAddr,
    /// None where there is no file.
    file: Option<(String, u64)>,
}

impl CodeMap {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies an event.
    pub fn apply(&mut self, event: &Event) {
        if let Event::Map { range, source, .. } = event
            && !range.is_empty()
        {
            let file = match source {
                MapSource::File { path, offset_bytes } => Some((path.to_string(), *offset_bytes)),
                _ => None,
            };
            self.replace(*range, file);
        }
    }

    /// The file that the instruction at a traced address came from, and its offset there.
    pub fn file_at(&self, addr: VirtAddr) -> Option<(&str, u64)> {
        let (start, mapping) = self.mappings.range(..=addr).next_back()?;
        let (path, offset_bytes) = mapping.file.as_ref().filter(|_| addr < mapping.end)?;
        Some((path, offset_bytes + (addr.raw() - start.raw())))
    }

    fn replace(&mut self, range: AddrRange, file: Option<(String, u64)>) {
        let (start, end) = (range.start(), range.end());
        let before = self.mappings.range(..start).next_back().map(|(start, _)| *start);
        let inside = self.mappings.range(start..end).map(|(start, _)| *start);
        for old in before.into_iter().chain(inside).collect::<Vec<_>>() {
            let Some(mapping) = self.mappings.remove(&old) else { continue };
            if mapping.end > end {
                let file = mapping.file.clone();
                let moved = end.raw() - old.raw();
                let file = file.map(|(path, offset_bytes)| (path, offset_bytes + moved));
                self.mappings.insert(end, Mapping { end: mapping.end, file });
            }
            if old < start {
                self.mappings.insert(old, Mapping { end: mapping.end.min(start), ..mapping });
            }
        }
        self.mappings.insert(start, Mapping { end, file });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::Protection;
    use proptest::prelude::*;

    fn map(page: u64, pages: u64, file: u8) -> Event {
        let source = match file {
            0 => MapSource::Anonymous,
            _ => MapSource::File { path: format!("/lib/{file}"), offset_bytes: 0x3000 },
        };
        Event::Map {
            range: AddrRange::new(VirtAddr::new(page << 12), pages << 12),
            protection: Protection::from_bits(5),
            source,
            flags: 0,
        }
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Against a list of all mappings, in which the last one that holds an address counts.
        #[test]
        fn the_last_mapping_counts(
            maps in prop::collection::vec((0u64..32, 0u64..8, 0u8..4), 0..24),
        ) {
            let mut code = CodeMap::new();
            maps.iter().for_each(|&(page, pages, file)| code.apply(&map(page, pages, file)));
            for page in 0..48 {
                let addr = VirtAddr::new((page << 12) + 0x123);
                let last = maps.iter().rfind(|(first, n, _)| (*first..first + n).contains(&page));
                let expected = last.filter(|(.., file)| *file > 0).map(|(first, _, file)| {
                    (format!("/lib/{file}"), 0x3000 + ((page - first) << 12) + 0x123)
                });
                let found = code.file_at(addr).map(|(path, offset)| (path.to_owned(), offset));
                prop_assert_eq!(found, expected);
            }
        }
    }
}
