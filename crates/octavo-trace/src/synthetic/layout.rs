//! The places of tables and code: where Linux puts those of a program.

use octavo_types::{AddrRange, Event, MapSource, Protection, VirtAddr};

use super::error::SpecError;
use super::plan::Loop;

/// The text of a position-independent program whose addresses are not random.
const TEXT: u64 = 0x5555_5555_4000;
/// The anonymous mappings of such a program lie below this, the later ones further down.
const MMAP_TOP: u64 = 0x7fff_f7ff_f000;
const PAGE_BYTES: u64 = 4096;
/// `MAP_PRIVATE` and `MAP_ANONYMOUS` of `mmap(2)`.
const PRIVATE: u64 = 2;
const ANONYMOUS: u64 = 0x20;

/// Where each loop has its table and its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// The table and the text of each loop, in order.
    pub(super) places: Vec<(u64, u64)>,
    text_bytes: u64,
    /// The mappings of data, disjoint: tables that were given the same place share it.
    data: Vec<(u64, u64)>,
    pub(super) data_bytes: u64,
}

impl Layout {
    pub(super) fn of(loops: &[&Loop]) -> Result<Self, SpecError> {
        let mut text_bytes = 0;
        let mut texts = Vec::with_capacity(loops.len());
        for one in loops {
            texts.push(TEXT + text_bytes);
            text_bytes += one.code_bytes.next_multiple_of(PAGE_BYTES);
        }
        if text_bytes > super::code::MAX_CODE_BYTES {
            let most = octavo_types::values::size_text(super::code::MAX_CODE_BYTES);
            return Err(SpecError::new(format!("`code` of all loops must be at most {most}")));
        }
        let text_end = TEXT + text_bytes;

        let fixed = fixed_ranges(loops);
        if fixed.iter().any(|(start, end, _)| *start < text_end && *end > TEXT) {
            return Err(SpecError::new(format!(
                "`base` must keep its table out of the code, which has {TEXT:#x} to {text_end:#x}"
            )));
        }
        let mut data_bytes = fixed.iter().map(|(_, _, bytes)| bytes).sum();
        let mut data: Vec<(u64, u64)> =
            fixed.iter().map(|(start, end, _)| (*start, *end)).collect();
        let mut top = MMAP_TOP;
        let mut places = Vec::with_capacity(loops.len());
        for (one, text) in loops.iter().zip(texts) {
            if let Some(base) = one.base {
                places.push((base, text));
                continue;
            }
            let bytes = one.table_bytes.next_multiple_of(PAGE_BYTES);
            let start = place_below(top, bytes, text_end, &fixed)?;
            top = start;
            data.push((start, start + bytes));
            data_bytes += one.table_bytes;
            places.push((start, text));
        }
        Ok(Layout { places, text_bytes, data, data_bytes })
    }

    /// The mappings, as events.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let range = |start, end| AddrRange::new(VirtAddr::new(start), end - start);
        let text = Event::Map {
            range: range(TEXT, TEXT + self.text_bytes),
            protection: Protection { read: true, write: false, execute: true },
            source: MapSource::File { path: "synth".to_owned(), offset_bytes: 0 },
            flags: PRIVATE,
        };
        let data = self.data.iter().map(move |(start, end)| Event::Map {
            range: range(*start, *end),
            protection: Protection { read: true, write: true, execute: false },
            source: MapSource::Anonymous,
            flags: PRIVATE | ANONYMOUS,
        });
        std::iter::once(text).chain(data)
    }
}

/// The ranges of tables with a given `base`, with overlapping ones merged: the start, the end
/// rounded up to a page, and how many bytes of tables the range holds.
fn fixed_ranges(loops: &[&Loop]) -> Vec<(u64, u64, u64)> {
    let given = loops.iter().filter_map(|one| one.base.map(|base| (base, base + one.table_bytes)));
    let mut given: Vec<(u64, u64)> = given.collect();
    given.sort_unstable();
    let mut ranges: Vec<(u64, u64, u64)> = Vec::new();
    for (start, end) in given {
        match ranges.last_mut() {
            Some((first, last, bytes)) if start < last.next_multiple_of(PAGE_BYTES) => {
                *last = end.max(*last);
                *bytes = *last - *first;
            }
            _ => ranges.push((start, end, end - start)),
        }
    }
    ranges.iter_mut().for_each(|(_, end, _)| *end = end.next_multiple_of(PAGE_BYTES));
    ranges
}

/// The start of the highest free range of `bytes` bytes below `top` and above `floor`.
fn place_below(
    top: u64,
    bytes: u64,
    floor: u64,
    fixed: &[(u64, u64, u64)],
) -> Result<u64, SpecError> {
    let mut end = top;
    for (fixed_start, fixed_end, _) in fixed.iter().rev() {
        if *fixed_start < end && *fixed_end > end.saturating_sub(bytes) {
            end = *fixed_start;
        }
    }
    end.checked_sub(bytes).filter(|start| *start >= floor).ok_or_else(|| {
        SpecError::new(
            "`bytes` of all tables must leave them room between the code and the stack, 46 TiB",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::plan::Plan;

    fn layout(bodies: &[&str]) -> Result<Layout, SpecError> {
        let parse = |query: &&str| match crate::synthetic::read::uri(&format!("synth:gups?{query}"))
        {
            Ok(Plan::Loop(one)) => one,
            other => panic!("{other:?}"),
        };
        let loops: Vec<Loop> = bodies.iter().map(parse).collect();
        Layout::of(&loops.iter().collect::<Vec<_>>())
    }

    #[test]
    fn tables_go_down_from_the_top_and_code_goes_up() {
        let layout = layout(&["bytes=64KiB", "bytes=5000&code=5000", "bytes=4KiB"]).unwrap();
        assert_eq!(
            layout.places,
            [
                (0x7fff_f7fe_f000, 0x5555_5555_4000),
                (0x7fff_f7fe_d000, 0x5555_5555_5000),
                (0x7fff_f7fe_c000, 0x5555_5555_7000),
            ]
        );
        assert_eq!(layout.data_bytes, 65536 + 5000 + 4096);
        assert_eq!(layout.events().count(), 4);
    }

    #[test]
    fn given_places_are_kept_and_shared_and_others_keep_out() {
        let layout = layout(&[
            "bytes=8KiB&base=0x7ffff7ffa000",
            "bytes=16KiB",
            "bytes=8KiB&base=0x7ffff7ffb000",
            "bytes=8KiB",
        ])
        .unwrap();
        let tables: Vec<u64> = layout.places.iter().map(|(table, _)| *table).collect();
        assert_eq!(
            tables,
            [0x7fff_f7ff_a000, 0x7fff_f7ff_6000, 0x7fff_f7ff_b000, 0x7fff_f7ff_4000]
        );
        assert_eq!(layout.data[0], (0x7fff_f7ff_a000, 0x7fff_f7ff_d000));
        assert_eq!(layout.data_bytes, (12 + 16 + 8) << 10);
    }

    #[test]
    fn tables_without_room_are_refused() {
        let wrong = layout(&["bytes=32TiB", "bytes=32TiB"]).unwrap_err().to_string();
        assert!(wrong.starts_with("`bytes` of all tables"), "{wrong}");
        let wrong = layout(&["base=0x555555550000"]).unwrap_err().to_string();
        assert!(wrong.starts_with("`base` must keep"), "{wrong}");
        let wrong = layout(&["code=64MiB", "code=4KiB"]).unwrap_err().to_string();
        assert_eq!(wrong, "`code` of all loops must be at most 64MiB");
    }
}
