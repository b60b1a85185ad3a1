//! The front that all machines share: it decodes the stream once, and leaves out what no design can
//! tell apart.
//!
//! From each execution of a segment come accesses to lines. References that repeat the one before
//! on their side are [counted with it](LineAccess): they are served by the first-level TLB entry and
//! the first-level line that served it, whatever the design is. That is exact for every policy of
//! replacement that does not mind if its most recent entry is used again, as long as nobody takes
//! that entry away between the two; if somebody does (another core's shootdown), the core goes on
//! with what it holds until it leaves the line. What the machine is like says how much may be left
//! out: see [`Filter`].
//!
//! A fetch repeats the one before it, too, where both are in one page and nothing else of its set of
//! the instruction cache has been fetched since its line was: loops of several lines. (Data do not:
//! between two uses of a line a walk may have read page tables through the data cache.)

mod batch;
mod image;
mod plan;

use std::hint::select_unpredictable;
use std::ops::Range;

use octavo_types::{Event, PageSize, Segment, VirtAddr};

pub use batch::{Batch, ControlEvent, ImageId, Kind, LineAccess, Lines};
pub use image::Image;
use image::Pages;
use plan::Step;

/// Which repeats are left out; what leaves out less comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Filter {
    /// None: there is a policy to which a second use of the same entry means something.
    Nothing,
    /// Those right behind what they repeat that do the same: what one changes may make the next one an
    /// access of its own, and then it matters whether that stores.
    Alike,
    /// Those right behind what they repeat: instructions and data share a first-level TLB.
    Adjacent,
    /// Those of the line that its side was at, whatever the other side did.
    BySide,
}

/// Into how many sets the front sorts fetched lines, at most.
const MAX_SETS: usize = 64;

/// How fetched lines are sorted into sets: so that each of them has only lines of whole sets of the
/// instruction cache, whatever the frames are that their pages lie in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FetchSets {
    mask: u64,
}

impl FetchSets {
    /// For an instruction cache of so many sets.
    pub fn new(cache_sets: u64, lines: Lines) -> Self {
        let in_page = 1 << (PageSize::BASE.log2() - lines.log2());
        let shared = 1 << cache_sets.trailing_zeros();
        FetchSets { mask: (MAX_SETS as u64).min(in_page).min(shared) - 1 }
    }

    #[inline(always)]
    fn of(self, line: u64) -> usize {
        (line & self.mask) as usize % MAX_SETS
    }
}

/// What both sides did last. Few words, so that they stay in registers as long as executions are
/// played.
#[derive(Clone, Copy)]
struct Sides {
    /// By side, the access that the last reference is counted with, or [`LineAccess::NOTHING`] where
    /// the next one repeats nothing; and that one's place in the batch.
    fetch: LineAccess,
    fetch_place: usize,
    data: LineAccess,
    data_place: usize,
    /// The accesses of the batch.
    len: usize,
}

/// Makes batches of what a core does.
///
/// Whether a reference is a repeat, hardly any processor can foretell: so that is not branched on. A
/// repeat writes the access that it is counted with once more, with another number; what is none writes
/// behind all others.
pub struct Front {
    lines: Lines,
    filter: Filter,
    batch: Batch,
    sides: Sides,
    /// By the low bits of a line's number, the one that was fetched last.
    fetched: [LineAccess; MAX_SETS],
    sets: FetchSets,
}

impl Front {
    /// One that has seen nothing.
    pub fn new(lines: Lines, filter: Filter, sets: FetchSets) -> Self {
        Front {
            lines,
            filter,
            batch: Batch::default(),
            sides: Sides {
                fetch: LineAccess::NOTHING,
                fetch_place: 0,
                data: LineAccess::NOTHING,
                data_place: 0,
                len: 0,
            },
            fetched: [LineAccess::NOTHING; MAX_SETS],
            sets,
        }
    }

    /// What has come since it was taken last; `emptied` is filled next.
    pub fn take_batch(&mut self, emptied: Batch) -> Batch {
        self.end_repeats();
        self.sides.len = emptied.len();
        std::mem::replace(&mut self.batch, emptied)
    }

    /// How many accesses there are to take.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Whether an event comes, or something that is no reference; what follows repeats nothing.
    pub fn mark(&mut self, mark: ControlEvent) {
        self.end_repeats();
        self.batch.mark(mark);
    }

    /// The next reference of either side is an access of its own.
    fn end_repeats(&mut self) {
        self.sides.fetch = LineAccess::NOTHING;
        self.sides.data = LineAccess::NOTHING;
        self.fetched = [LineAccess::NOTHING; MAX_SETS];
    }

    /// An execution of a segment of a process image: its number in the stream, and its addresses.
    #[inline(always)]
    pub fn execution(
        &mut self,
        image: &mut Image,
        number: usize,
        segment: &Segment,
        addresses: &[VirtAddr],
    ) {
        let steps = image.plan(number, segment, self.lines, self.filter);
        let play = Play { front: self, image, steps, segment, addresses };
        if play.front.lines == Lines::USUAL && play.front.filter == Filter::BySide {
            // The same, compiled for what nearly all machines are like.
            play.run(Lines::USUAL, Filter::BySide);
        } else {
            let (lines, filter) = (play.front.lines, play.front.filter);
            play.run(lines, filter);
        }
    }

    /// A data item that reaches into the next line, or further.
    #[cold]
    #[inline(never)]
    fn spanning(&mut self, pages: &mut Pages, addr: VirtAddr, step: Step) {
        let first = addr.raw() >> self.lines.log2();
        let last = addr.wrapping_add(step.size_bytes() - 1).raw() >> self.lines.log2();
        let kinds = [(step.modifies(), Kind::Load), (true, step.kind())];
        for (_, kind) in kinds.into_iter().filter(|(does, _)| *does) {
            let mut line = first;
            loop {
                let is_half = line != first && !plan::begins_page(line, self.lines);
                let native = pages.line(line, self.lines);
                let access = LineAccess::new(native, kind, is_half, 0);
                self.sides.data(self.batch.room(1), access, self.filter);
                self.batch.set_len(self.sides.len);
                if line == last {
                    break;
                }
                line = line.wrapping_add(1) & (u64::MAX >> self.lines.log2());
            }
        }
    }

    /// The process that runs did something: its addresses are moved where they are to lie. Events
    /// that do nothing to memory are left out.
    pub fn event(&mut self, image: &Image, event: &Event) {
        if let Some(event) = image.event(event) {
            self.mark(ControlEvent::Memory(event));
        }
    }

    /// From here on a core runs a process.
    pub fn run(&mut self, core: usize, image: ImageId) {
        self.mark(ControlEvent::Switch { core, image });
    }
}

/// An execution.
struct Play<'a> {
    front: &'a mut Front,
    image: &'a mut Image,
    steps: Range<usize>,
    segment: &'a Segment,
    addresses: &'a [VirtAddr],
}

impl Play<'_> {
    #[inline(always)]
    fn run(self, lines: Lines, filter: Filter) {
        let Play { front, image, steps, segment, addresses } = self;
        // A step that loads and stores makes two accesses.
        let most = 2 * steps.len();
        let (steps, pages) = image.parts(steps);
        let mut addresses = addresses.iter();
        let mut sides = front.sides;
        let mut out = front.batch.room(most);
        for step in steps {
            if step.is_fetch() {
                let access = step.fetch();
                let fetched = &mut front.fetched[front.sets.of(access.line())];
                sides.fetch(out, access, fetched, lines, filter);
                continue;
            }
            let addr = *addresses.next().expect("an address for each data item");
            if addr == VirtAddr::NULL && segment.has_guarded() {
                continue;
            }
            let offset = addr.raw() & ((1 << lines.log2()) - 1);
            if step.spans(offset) {
                front.sides = sides;
                front.spanning(pages, addr, *step);
                sides = front.sides;
                out = front.batch.room(most);
                continue;
            }
            let line = pages.line(addr.raw() >> lines.log2(), lines);
            if step.modifies() {
                sides.data(out, LineAccess::new(line, Kind::Load, false, 0), filter);
            }
            sides.data(out, step.data(line), filter);
        }
        front.batch.set_len(sides.len);
        front.sides = sides;
    }
}

impl Sides {
    /// Instructions are fetched from a line; `fetched` is the one of its set that was fetched last.
    #[inline(always)]
    fn fetch(
        &mut self,
        out: &mut [LineAccess],
        access: LineAccess,
        fetched: &mut LineAccess,
        lines: Lines,
        filter: Filter,
    ) {
        let (last, times) = (self.fetch, 1 + access.repeats());
        let is_in_page = lines.same_page(access, last);
        let is_repeat = last.has_room(times)
            & match filter {
                Filter::Nothing => false,
                Filter::Alike | Filter::Adjacent => access.same_line(last),
                // What is the latest of its set is there still, and is the latest of its TLB's.
                Filter::BySide => is_in_page & access.same_line(*fetched) & access.is_whole(),
            };
        *fetched = access;
        self.fetch = select_unpredictable(is_repeat, last.repeated(times), access);
        self.fetch_place = select_unpredictable(is_repeat, self.fetch_place, self.len);
        self.len += usize::from(!is_repeat);
        out[self.fetch_place] = self.fetch;
        // A walk may have read page tables through the cache of data.
        let ends_data_repeats = !is_in_page | (filter != Filter::BySide) & !is_repeat;
        self.data = if ends_data_repeats { LineAccess::NOTHING } else { self.data };
    }

    /// Data are referenced in a line. What repeats a store may store, too, or load.
    #[inline(always)]
    fn data(&mut self, out: &mut [LineAccess], access: LineAccess, filter: Filter) {
        let last = self.data;
        let is_repeat = access.same_line(last)
            & match filter {
                Filter::Alike => last.is_store() == access.is_store(),
                _ => last.is_store() | !access.is_store(),
            }
            & last.has_room(1)
            & (filter != Filter::Nothing);
        self.data = select_unpredictable(is_repeat, last.repeated(1), access);
        self.data_place = select_unpredictable(is_repeat, self.data_place, self.len);
        self.len += usize::from(!is_repeat);
        out[self.data_place] = self.data;
        if filter != Filter::BySide && !is_repeat {
            self.fetch = LineAccess::NOTHING;
        }
    }
}
