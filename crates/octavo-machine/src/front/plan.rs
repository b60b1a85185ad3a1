//! A segment as the lines that it fetches and the data items between.

use octavo_types::{Item, ItemKind, PageSize, Segment};

use super::Filter;
use super::batch::{Kind, LineAccess, Lines};

/// The most repeats of a step: as much again has room in an access.
const MAX_REPEATS: u32 = LineAccess::MAX_REPEATS / 2;

/// One thing that an execution of a segment does: instructions are fetched from a line, or the next
/// data item is referenced. A fetch is the access that it makes, where its line is to lie.
///
/// A data item has, from the bottom, its kind (two bits, and if it loads and then stores, that it
/// stores), whether it loads and then stores, how many bytes it touches, and the highest offset in a
/// line from which it does not reach into the next one, or -1 (16 bits each, from 16 and 32 up).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(u64);

const MODIFIES: u64 = 1 << 2;
const SIZE_SHIFT: u32 = 16;
const OFFSET_SHIFT: u32 = 32;

impl Step {
    fn of_data(item: &Item, lines: Lines) -> Self {
        let kind = if item.kind == ItemKind::Load { Kind::Load } else { Kind::Store };
        let modifies = if item.kind == ItemKind::Modify { MODIFIES } else { 0 };
        let last_whole_offset = (1 << lines.log2()) - i64::from(item.size_bytes);
        let place = (last_whole_offset.max(-1) as u64) << OFFSET_SHIFT;
        Step(place | u64::from(item.size_bytes) << SIZE_SHIFT | modifies | kind as u64)
    }

    /// Whether it fetches.
    #[inline(always)]
    pub fn is_fetch(self) -> bool {
        self.0 & 3 == Kind::Fetch as u64
    }

    /// The access that a fetch makes.
    #[inline(always)]
    pub fn fetch(self) -> LineAccess {
        LineAccess::from_bits(self.0)
    }

    /// The last access that a data item makes to a line.
    #[inline(always)]
    pub fn data(self, line: u64) -> LineAccess {
        LineAccess::of_kind(line, self.0 & 3)
    }

    /// Whether a data item reaches beyond its line from an offset.
    #[inline(always)]
    pub fn spans(self, offset: u64) -> bool {
        offset as i64 > self.0 as i64 >> OFFSET_SHIFT
    }

    /// How many bytes a data item touches.
    #[inline(always)]
    pub fn size_bytes(self) -> u64 {
        self.0 >> SIZE_SHIFT & 0xffff
    }

    /// Whether a data item loads and then stores.
    #[inline(always)]
    pub fn modifies(self) -> bool {
        self.0 & MODIFIES != 0
    }

    /// What a data item does, or does last.
    pub fn kind(self) -> Kind {
        if self.0 & 3 == Kind::Load as u64 { Kind::Load } else { Kind::Store }
    }
}

/// The steps of a segment; `native` says where a line is to lie.
pub fn steps(
    segment: &Segment,
    lines: Lines,
    filter: Filter,
    mut native: impl FnMut(u64) -> u64,
) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // The last fetch among them, with its line as traced.
    let mut fetch: Option<(usize, u64)> = None;
    for item in segment.items() {
        if item.kind != ItemKind::Fetch {
            steps.push(Step::of_data(item, lines));
            if filter != Filter::BySide {
                fetch = None;
            }
            continue;
        }
        let first = item.addr.raw() >> lines.log2();
        // Counted, so that it ends even where line numbers wrap around.
        let offset = item.addr.raw() & ((1 << lines.log2()) - 1);
        let others = (offset + u64::from(item.size_bytes) - 1) >> lines.log2();
        for line in (0..=others).map(|by| first.wrapping_add(by)) {
            match fetch {
                Some((at, before))
                    if before == line
                        && filter != Filter::Nothing
                        && steps[at].fetch().repeats() < MAX_REPEATS =>
                {
                    steps[at] = Step(steps[at].fetch().repeated(1).bits());
                }
                _ => {
                    fetch = Some((steps.len(), line));
                    let is_half = line != first && !begins_page(line, lines);
                    let access = LineAccess::new(native(line), Kind::Fetch, is_half, 0);
                    steps.push(Step(access.bits()));
                }
            }
        }
    }
    steps
}

/// Whether a line is the first of its base page.
pub fn begins_page(line: u64, lines: Lines) -> bool {
    line.trailing_zeros() >= u32::from(PageSize::BASE.log2() - lines.log2())
}
