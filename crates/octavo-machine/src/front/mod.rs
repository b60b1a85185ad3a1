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

use octavo_types::{Event, PageNumber, PageSize, Segment, VirtAddr};

pub use batch::{Batch, ImageId, Kind, LineAccess, Lines, Mark};
pub use image::Image;
use plan::Step;

/// Which repeats are left out; what leaves out less comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Filter {
    /// None: there is a policy to which a second use of the same entry means something.
    Nothing,
    /// Those right behind what they repeat: instructions and data share a first-level TLB.
    Adjacent,
    /// Those of the line that its side was at, whatever the other side did.
    BySide,
}

/// No line has this number.
const NO_LINE: u64 = u64::MAX;

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

/// What a side did last.
#[derive(Clone, Copy)]
struct Last {
    /// The line, as traced; [`NO_LINE`] where the next reference repeats nothing.
    line: u64,
    /// Its place in the batch.
    place: u32,
    /// Its base page, as traced, and what is added to its lines' numbers to relocate them.
    page: u64,
    moved: u64,
}

impl Last {
    const NOTHING: Last = Last { line: NO_LINE, place: 0, page: u64::MAX, moved: 0 };
}

/// Makes batches of what a core does.
pub struct Front {
    lines: Lines,
    filter: Filter,
    batch: Batch,
    fetch: Last,
    data: Last,
    /// By the low bits of a line's number, the one that was fetched last, as traced.
    fetched: [u64; MAX_SETS],
    sets: FetchSets,
    /// Whether the last access to data was a store: its repeats may store, too.
    is_dirty: bool,
    /// Whether the page of the code has changed since data were referenced last.
    has_moved: bool,
}

impl Front {
    /// One that has seen nothing.
    pub fn new(lines: Lines, filter: Filter, sets: FetchSets) -> Self {
        Front {
            lines,
            filter,
            batch: Batch::default(),
            fetch: Last::NOTHING,
            data: Last::NOTHING,
            fetched: [NO_LINE; MAX_SETS],
            sets,
            is_dirty: false,
            has_moved: false,
        }
    }

    /// What has come since it was taken last; `emptied` is filled next.
    pub fn take(&mut self, emptied: Batch) -> Batch {
        self.forget();
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
    pub fn mark(&mut self, mark: Mark) {
        self.forget();
        self.batch.mark(mark);
    }

    /// The next reference of either side is an access of its own.
    fn forget(&mut self) {
        self.fetch = Last::NOTHING;
        self.data = Last::NOTHING;
        self.fetched = [NO_LINE; MAX_SETS];
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
        let steps = image.steps(number, segment, self.lines, self.filter);
        let mut addresses = addresses.iter();
        for index in steps {
            match image.step(index) {
                Step::Fetch { line, is_half, repeats } => {
                    self.fetch(image, line, is_half, repeats);
                }
                Step::Data { last_whole_offset, size_bytes, loads, stores } => {
                    let addr = *addresses.next().expect("an address for each data item");
                    if addr == VirtAddr::NULL && segment.has_guarded() {
                        continue;
                    }
                    let offset = (addr.raw() & ((1 << self.lines.log2()) - 1)) as i32;
                    if offset > last_whole_offset {
                        self.spanning(image, addr, size_bytes, (loads, stores));
                        continue;
                    }
                    let line = addr.raw() >> self.lines.log2();
                    if loads {
                        self.data(image, line, Kind::Load, false);
                    }
                    if stores {
                        self.data(image, line, Kind::Store, false);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn fetch(&mut self, image: &mut Image, line: u64, is_half: bool, repeats: u32) {
        if line == self.fetch.line && self.filter != Filter::Nothing {
            self.batch.access_mut(self.fetch.place).repeat(1 + repeats);
            return;
        }
        if self.filter == Filter::Adjacent {
            self.data.line = NO_LINE;
        }
        let page = self.lines.page(line).raw();
        let fetched = &mut self.fetched[self.sets.of(line)];
        if page == self.fetch.page && line == *fetched && !is_half && self.filter == Filter::BySide
        {
            self.fetch.line = line;
            self.batch.access_mut(self.fetch.place).repeat(1 + repeats);
            return;
        }
        *fetched = line;
        if page != self.fetch.page {
            self.has_moved = true;
            (self.fetch.page, self.fetch.moved) = (page, self.moved(image, page));
        }
        self.fetch.line = line;
        let moved = line.wrapping_add(self.fetch.moved);
        self.fetch.place = self.batch.push(LineAccess::new(moved, Kind::Fetch, is_half, repeats));
    }

    #[inline(always)]
    fn data(&mut self, image: &mut Image, line: u64, kind: Kind, is_half: bool) {
        let is_repeat = line == self.data.line
            && (self.is_dirty || kind == Kind::Load)
            && !self.has_moved
            && self.filter != Filter::Nothing;
        if is_repeat {
            self.batch.access_mut(self.data.place).repeat(1);
            return;
        }
        if self.filter == Filter::Adjacent {
            self.fetch.line = NO_LINE;
        }
        let page = self.lines.page(line).raw();
        if page != self.data.page {
            (self.data.page, self.data.moved) = (page, self.moved(image, page));
        }
        self.is_dirty = kind == Kind::Store;
        self.data.line = line;
        self.has_moved = false;
        let moved = line.wrapping_add(self.data.moved);
        self.data.place = self.batch.push(LineAccess::new(moved, kind, is_half, 0));
    }

    /// A data item that reaches into the next line, or further.
    #[cold]
    #[inline(never)]
    fn spanning(
        &mut self,
        image: &mut Image,
        addr: VirtAddr,
        size_bytes: u16,
        (loads, stores): (bool, bool),
    ) {
        let first = addr.raw() >> self.lines.log2();
        let last = addr.wrapping_add(u64::from(size_bytes) - 1).raw() >> self.lines.log2();
        let kinds = [(loads, Kind::Load), (stores, Kind::Store)];
        for (_, kind) in kinds.into_iter().filter(|(does, _)| *does) {
            let mut line = first;
            loop {
                let is_half = line != first && !plan::begins_page(line, self.lines);
                self.data(image, line, kind, is_half);
                if line == last {
                    break;
                }
                line = line.wrapping_add(1) & (u64::MAX >> self.lines.log2());
            }
        }
    }

    /// What is added to the numbers of a page's lines to relocate them.
    #[inline(always)]
    fn moved(&self, image: &mut Image, page: u64) -> u64 {
        let native = image.page(PageNumber::new(page)).raw();
        native.wrapping_sub(page) << (PageSize::BASE.log2() - self.lines.log2())
    }

    /// The process that runs did something: its addresses are moved where they are to lie. Events
    /// that do nothing to memory are left out.
    pub fn event(&mut self, image: &Image, event: &Event) {
        if let Some(event) = image.event(event) {
            self.mark(Mark::Event(event));
        }
    }

    /// From here on a core runs a process.
    pub fn run(&mut self, core: usize, image: ImageId) {
        self.mark(Mark::Run { core, image });
    }
}
