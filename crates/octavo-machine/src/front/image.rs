//! What is known of a process image: its segments as steps, and where its addresses are to lie.

use std::ops::Range;

use octavo_trace::Relocation;
use octavo_types::{AddrRange, Event, PageNumber, PageSize, Segment, VirtAddr};

use super::Filter;
use super::batch::Lines;
use super::plan::{self, Step};

/// How many pages are relocated without a search.
const RECENT: usize = 1 << 12;

/// A process image.
pub struct Image {
    pages: Pages,
    /// All segments' steps, one after another.
    steps: Vec<Step>,
    /// By segment, where its steps are; empty where nobody has asked yet.
    ranges: Vec<(u32, u32)>,
}

/// Where pages are to lie.
pub struct Pages {
    relocation: Relocation,
    /// Bits of a virtual base page's number; what lies above is cut off.
    page_mask: u64,
    /// By a page's low bits: a page as traced, and where it is to lie.
    recent: Box<[(u64, u64)]>,
    /// Whether all pages lie where they were traced.
    is_in_place: bool,
}

impl Image {
    /// An image of which nothing is known, translated by page tables of so many levels.
    pub fn new(page_table_levels: u8) -> Self {
        let pages = Pages {
            relocation: Relocation::default(),
            page_mask: (1 << (9 * page_table_levels)) - 1,
            recent: vec![(u64::MAX, 0); RECENT].into(),
            is_in_place: true,
        };
        Image { pages, steps: Vec::new(), ranges: Vec::new() }
    }

    /// Addresses lie where `relocation` moves them.
    pub fn relocate(&mut self, relocation: Relocation) {
        self.pages.relocation = relocation;
        self.pages.is_in_place = false;
        self.pages.recent.fill((u64::MAX, 0));
        self.steps.clear();
        self.ranges.clear();
    }

    /// Where the steps of a segment are.
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
        let steps = plan::steps(segment, lines, filter, |line| self.pages.line(line, lines));
        self.steps.extend(steps);
        let end = self.steps.len();
        if self.ranges.len() <= number {
            self.ranges.resize(number + 1, (0, 0));
        }
        let number_of = |at| u32::try_from(at).expect("segments have fewer items");
        self.ranges[number] = (number_of(start), number_of(end));
        start..end
    }

    /// Steps, and where pages are to lie.
    #[inline(always)]
    pub(super) fn parts(&mut self, steps: Range<usize>) -> (&[Step], &mut Pages) {
        (&self.steps[steps], &mut self.pages)
    }

    /// An event as it is seen from where addresses are to lie; none for one that does nothing to
    /// memory.
    pub(super) fn event(&self, event: &Event) -> Option<Event> {
        let moved = |range: &AddrRange| {
            let at = self.pages.relocation.range(*range);
            let mask = self.pages.page_mask << PageSize::BASE.log2() | (PageSize::BASE.bytes() - 1);
            let room = mask.saturating_sub(at.start().raw() & mask).saturating_add(1);
            AddrRange::new(VirtAddr::new(at.start().raw() & mask), at.bytes().min(room))
        };
        Some(match event {
            Event::Map { range, protection, source, flags } => Event::Map {
                range: moved(range),
                protection: *protection,
                source: source.clone(),
                flags: *flags,
            },
            Event::Unmap { range } => Event::Unmap { range: moved(range) },
            Event::Remap { from, to } => Event::Remap { from: moved(from), to: moved(to) },
            Event::Protect { range, protection } => {
                Event::Protect { range: moved(range), protection: *protection }
            }
            Event::Advise { range, advice } => {
                Event::Advise { range: moved(range), advice: *advice }
            }
            _ => return None,
        })
    }
}

impl Pages {
    /// Where a line is to lie.
    #[inline(always)]
    pub(super) fn line(&mut self, traced: u64, lines: Lines) -> u64 {
        if self.is_in_place {
            return traced & (lines.in_pages(self.page_mask + 1) - 1);
        }
        let page = lines.page(traced);
        let recent = &self.recent[page.raw() as usize % RECENT];
        let native = if recent.0 == page.raw() { recent.1 } else { self.find(page) };
        lines.physical(traced, native)
    }

    #[cold]
    fn find(&mut self, traced: PageNumber) -> u64 {
        let native = self.relocation.page(traced).raw() & self.page_mask;
        self.recent[traced.raw() as usize % RECENT] = (traced.raw(), native);
        native
    }
}
