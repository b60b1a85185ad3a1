//! State of the front for each process: segments as steps, and the relocation of addresses.

use std::ops::Range;

use octavo_trace::Relocation;
use octavo_types::{AddrRange, Event, PageNumber, PageSize, Segment, VirtAddr};

use super::Filter;
use super::batch::Lines;
use super::dataflow::SegmentFlow;
use super::plan::{self, Step};

/// Size of the table of recently relocated pages.
const RECENT: usize = 1 << 12;

/// A process image.
pub struct Image {
    pages: Pages,
    /// The steps of all segments, concatenated.
    steps: Vec<Step>,
    /// The step range of each segment; empty before the segment's first execution.
    ranges: Vec<(u32, u32)>,
    /// The dependences of each planned segment, if instructions are marked.
    flows: Vec<SegmentFlow>,
    /// Whether steps mark the first fetch of each instruction, for cores and prefetchers.
    marks_instructions: bool,
}

/// Relocation of base pages.
pub struct Pages {
    relocation: Relocation,
    /// Mask of the valid bits of a base page number; higher bits are cleared.
    page_mask: u64,
    /// Recent relocations, indexed by the low bits of the traced page: (traced page, relocated page).
    recent: Box<[(u64, u64)]>,
    /// Whether there is no relocation.
    is_in_place: bool,
}

impl Image {
    /// An image without segments, translated by page tables of `page_table_levels` levels.
    pub fn new(page_table_levels: u8) -> Self {
        let pages = Pages {
            relocation: Relocation::default(),
            page_mask: (1 << (9 * page_table_levels)) - 1,
            recent: vec![(u64::MAX, 0); RECENT].into(),
            is_in_place: true,
        };
        Image {
            pages,
            steps: Vec::new(),
            ranges: Vec::new(),
            flows: Vec::new(),
            marks_instructions: false,
        }
    }

    /// An image whose steps mark the beginnings of instructions, if `marks_instructions`.
    pub fn marking_instructions(self, marks_instructions: bool) -> Self {
        Image { marks_instructions, ..self }
    }

    /// Stops marking instructions, and discards all steps.
    pub fn stop_marking_instructions(&mut self) {
        self.marks_instructions = false;
        self.flows.clear();
        self.steps.clear();
        self.ranges.clear();
    }

    /// Relocates all later addresses by `relocation`.
    pub fn relocate(&mut self, relocation: Relocation) {
        self.pages.relocation = relocation;
        self.pages.is_in_place = false;
        self.pages.recent.fill((u64::MAX, 0));
        self.steps.clear();
        self.ranges.clear();
    }

    /// The step range of a segment, planned at its first execution.
    #[inline(always)]
    pub(super) fn plan(
        &mut self,
        number: usize,
        segment: &Segment,
        lines: Lines,
        filter: Filter,
    ) -> Range<usize> {
        match self.ranges.get(number) {
            Some((start, end)) if start < end => *start as usize..*end as usize,
            _ => self.make_plan(number, segment, lines, filter),
        }
    }

    #[cold]
    fn make_plan(
        &mut self,
        number: usize,
        segment: &Segment,
        lines: Lines,
        filter: Filter,
    ) -> Range<usize> {
        let start = self.steps.len();
        let steps = plan::steps(segment, lines, filter, self.marks_instructions, |line| {
            self.pages.line(line, lines)
        });
        self.steps.extend(steps);
        let end = self.steps.len();
        if self.ranges.len() <= number {
            self.ranges.resize(number + 1, (0, 0));
        }
        let number_of = |at| u32::try_from(at).expect("segments have fewer items");
        if self.marks_instructions {
            self.flows.resize(self.ranges.len(), SegmentFlow::EMPTY.clone());
            self.flows[number] = SegmentFlow::new(segment);
        }
        self.ranges[number] = (number_of(start), number_of(end));
        start..end
    }

    /// The steps of a range, the dependences of all planned segments if instructions are marked, and the page relocation.
    #[inline(always)]
    pub(super) fn parts(&mut self, steps: Range<usize>) -> (&[Step], &[SegmentFlow], &mut Pages) {
        (&self.steps[steps], &self.flows, &mut self.pages)
    }

    /// A memory event at relocated addresses; `None` for an event that does not concern memory.
    pub(super) fn event(&self, event: &Event) -> Option<Event> {
        let relocated = |range: &AddrRange| {
            let at = self.pages.relocation.range(*range);
            let mask = self.pages.page_mask << PageSize::BASE.log2() | (PageSize::BASE.bytes() - 1);
            let room = mask.saturating_sub(at.start().raw() & mask).saturating_add(1);
            AddrRange::new(VirtAddr::new(at.start().raw() & mask), at.bytes().min(room))
        };
        Some(match event {
            Event::Map { range, protection, source, flags } => Event::Map {
                range: relocated(range),
                protection: *protection,
                source: source.clone(),
                flags: *flags,
            },
            Event::Unmap { range } => Event::Unmap { range: relocated(range) },
            Event::Remap { from, to } => Event::Remap { from: relocated(from), to: relocated(to) },
            Event::Protect { range, protection } => {
                Event::Protect { range: relocated(range), protection: *protection }
            }
            Event::Advise { range, advice } => {
                Event::Advise { range: relocated(range), advice: *advice }
            }
            Event::Present { range, known, first } => {
                Event::Present { range: relocated(range), known: *known, first: *first }
            }
            _ => return None,
        })
    }
}

impl Pages {
    /// The relocated line of a traced line.
    #[inline(always)]
    pub(super) fn line(&mut self, traced: u64, lines: Lines) -> u64 {
        if self.is_in_place {
            return traced & (lines.in_pages(self.page_mask + 1) - 1);
        }
        let page = lines.page(traced);
        let recent = &self.recent[page.raw() as usize % RECENT];
        let relocated = if recent.0 == page.raw() { recent.1 } else { self.find(page) };
        lines.physical(traced, relocated)
    }

    #[cold]
    fn find(&mut self, traced: PageNumber) -> u64 {
        let relocated = self.relocation.page(traced).raw() & self.page_mask;
        self.recent[traced.raw() as usize % RECENT] = (traced.raw(), relocated);
        relocated
    }
}
