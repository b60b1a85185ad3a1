//! Segments compiled to steps: the lines they fetch and the data items in between.

use octavo_types::{Access, Item, ItemKind, PageSize, Segment};

use super::Filter;
use super::batch::{LineAccess, Lines};

/// Maximum repeats of a step: half of the maximum of an access, so that a repeated step still fits.
const MAX_REPEATS: u32 = LineAccess::MAX_REPEATS / 2;

/// One step of an execution: a fetch from a line, the next data item, or the beginning of an instruction. A fetch
/// step is the access that it makes, at its relocated line.
///
/// The beginning of an instruction, which only cores and prefetchers use, holds the kind 3, the instruction's number in
/// the segment (24 bits, from bit 16), and the number of its first fetch among the segment's items (from bit 40).
///
/// A data step holds, from the bottom: its kind (two bits; of a modify, the store), whether it is a modify
/// (one bit), its size in bytes (16 bits, from bit 16), and the highest offset in a line from which it does
/// not reach into the next line, or -1 (from bit 32).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(u64);

const INSTRUCTION: u64 = 3;
const MODIFIES: u64 = 1 << 2;
const SIZE_SHIFT: u32 = 16;
const OFFSET_SHIFT: u32 = 32;
const ITEM_SHIFT: u32 = 40;
const MAX_INSTRUCTIONS: u64 = 1 << (ITEM_SHIFT - SIZE_SHIFT);

impl Step {
    fn of_data(item: &Item, lines: Lines) -> Self {
        let kind = if item.kind == ItemKind::Load { Access::Load } else { Access::Store };
        let modifies = if item.kind == ItemKind::Modify { MODIFIES } else { 0 };
        let last_whole_offset = (1 << lines.log2()) - i64::from(item.size_bytes);
        let place = (last_whole_offset.max(-1) as u64) << OFFSET_SHIFT;
        Step(place | u64::from(item.size_bytes) << SIZE_SHIFT | modifies | kind as u64)
    }

    fn of_instruction(number: usize, item: usize) -> Self {
        let (number, item) = (number as u64, item as u64);
        assert!(item < MAX_INSTRUCTIONS, "segments have fewer items");
        Step(item << ITEM_SHIFT | number << SIZE_SHIFT | INSTRUCTION)
    }

    /// The number of the instruction that begins, if one does.
    #[inline(always)]
    pub fn instruction(self) -> Option<usize> {
        let number = self.0 >> SIZE_SHIFT & (MAX_INSTRUCTIONS - 1);
        (self.0 & 3 == INSTRUCTION).then_some(number as usize)
    }

    /// The number of the item with which an instruction begins.
    #[inline(always)]
    pub fn item(self) -> usize {
        (self.0 >> ITEM_SHIFT) as usize
    }

    /// Whether it is a fetch.
    #[inline(always)]
    pub fn is_fetch(self) -> bool {
        self.0 & 3 == Access::Fetch as u64
    }

    /// The access of a fetch.
    #[inline(always)]
    pub fn fetch(self) -> LineAccess {
        LineAccess::from_bits(self.0)
    }

    /// The access of a data item to a line; of a modify, the store.
    #[inline(always)]
    pub fn data(self, line: u64) -> LineAccess {
        LineAccess::of_kind(line, self.0 & 3)
    }

    /// Whether a data item at this offset in a line reaches into the next line.
    #[inline(always)]
    pub fn spans(self, offset: u64) -> bool {
        offset as i64 > self.0 as i64 >> OFFSET_SHIFT
    }

    /// The size of a data item in bytes.
    #[inline(always)]
    pub fn size_bytes(self) -> u64 {
        self.0 >> SIZE_SHIFT & 0xffff
    }

    /// Whether a data item loads and then stores.
    #[inline(always)]
    pub fn modifies(self) -> bool {
        self.0 & MODIFIES != 0
    }

    /// The kind of a data item; of a modify, the store.
    pub fn kind(self) -> Access {
        if self.0 & 3 == Access::Load as u64 { Access::Load } else { Access::Store }
    }
}

/// The steps of a segment, with the beginnings of instructions if `marks_instructions`; `relocated` relocates a line.
pub fn steps(
    segment: &Segment,
    lines: Lines,
    filter: Filter,
    marks_instructions: bool,
    mut relocated: impl FnMut(u64) -> u64,
) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // The last fetch step, with its line as traced.
    let mut fetch: Option<(usize, u64)> = None;
    let mut instructions = 0;
    for (place, item) in segment.items().iter().enumerate() {
        if item.kind != ItemKind::Fetch {
            steps.push(Step::of_data(item, lines));
            if filter != Filter::BySide {
                fetch = None;
            }
            continue;
        }
        if marks_instructions {
            steps.push(Step::of_instruction(instructions, place));
            instructions += 1;
        }
        let first = item.addr.raw() >> lines.log2();
        // Counts lines, so that the loop ends even if line numbers wrap around.
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
                    let access = LineAccess::new(relocated(line), Access::Fetch, is_half, 0);
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
