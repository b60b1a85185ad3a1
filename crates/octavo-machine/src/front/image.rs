//! What is known of a process image: its segments as steps, and where its addresses are to lie.

use octavo_trace::Relocation;
use octavo_types::{AddrRange, Event, PageNumber, PageSize, Segment, VirtAddr};

use super::Filter;
use super::batch::Lines;
use super::plan::{self, Step};

/// How many pages are relocated without a search.
const RECENT: usize = 1 << 12;

/// A process image.
pub struct Image {
    relocation: Relocation,
    /// Bits of a virtual base page's number; what lies above is cut off.
    page_mask: u64,
    /// All segments' steps, one after another.
    steps: Vec<Step>,
    /// By segment, where its steps are; empty where nobody has asked yet.
    ranges: Vec<(u32, u32)>,
    /// By a page's low bits: a page as traced, and where it is to lie.
    recent: Box<[(u64, u64)]>,
}

impl Image {
    /// An image of which nothing is known, translated by page tables of so many levels.
    pub fn new(page_table_levels: u8) -> Self {
        Image {
            relocation: Relocation::default(),
            page_mask: (1 << (9 * page_table_levels)) - 1,
            steps: Vec::new(),
            ranges: Vec::new(),
            recent: vec![(u64::MAX, 0); RECENT].into(),
        }
    }

    /// Addresses lie where `relocation` moves them.
    pub fn relocate(&mut self, relocation: Relocation) {
        self.relocation = relocation;
        self.recent.fill((u64::MAX, 0));
    }

    /// Where the steps of a segment are.
    #[inline(always)]
    pub(super) fn steps(
        &mut self,
        number: usize,
        segment: &Segment,
        lines: Lines,
        filter: Filter,
    ) -> std::ops::Range<u32> {
        match self.ranges.get(number) {
            Some((start, end)) if start < end => *start..*end,
            _ => self.plan(number, segment, lines, filter),
        }
    }

    #[cold]
    fn plan(
        &mut self,
        number: usize,
        segment: &Segment,
        lines: Lines,
        filter: Filter,
    ) -> std::ops::Range<u32> {
        let start = self.steps.len() as u32;
        self.steps.extend(plan::steps(segment, lines, filter));
        let end = u32::try_from(self.steps.len()).expect("segments have fewer items");
        if self.ranges.len() <= number {
            self.ranges.resize(number + 1, (0, 0));
        }
        self.ranges[number] = (start, end);
        start..end
    }

    /// A step.
    #[inline(always)]
    pub(super) fn step(&self, index: u32) -> Step {
        self.steps[index as usize]
    }

    /// Where a base page is to lie.
    #[inline(always)]
    pub(super) fn page(&mut self, traced: PageNumber) -> PageNumber {
        let recent = &self.recent[traced.raw() as usize % RECENT];
        match recent.0 == traced.raw() {
            true => PageNumber::new(recent.1),
            false => self.find(traced),
        }
    }

    #[cold]
    fn find(&mut self, traced: PageNumber) -> PageNumber {
        let native = self.relocation.page(traced).raw() & self.page_mask;
        self.recent[traced.raw() as usize % RECENT] = (traced.raw(), native);
        PageNumber::new(native)
    }

    /// An event as it is seen from where addresses are to lie; none for one that does nothing to
    /// memory.
    pub(super) fn event(&self, event: &Event) -> Option<Event> {
        let moved = |range: &AddrRange| {
            let at = self.relocation.range(*range);
            let mask = self.page_mask << PageSize::BASE.log2() | (PageSize::BASE.bytes() - 1);
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
