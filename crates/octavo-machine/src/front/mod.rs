//! The front that all machines share: decodes the stream once and filters out references that no design
//! distinguishes.
//!
//! Each execution of a segment yields accesses to lines. A reference that repeats the previous one of its
//! side is [counted with it](LineAccess): the same first-level TLB entry and the same first-level line serve
//! it in every design. This filter is exact for every replacement policy that ignores a repeated use of its most
//! recent entry, as long as no other agent removes the entry in between. After a removal by another core's
//! shootdown, the core continues with the entry until it leaves the line. [`Filter`] names the repeats that may
//! be filtered out for a machine.
//!
//! A fetch also repeats the previous fetch if both lie in one page and no other line of its set of the
//! instruction cache has been fetched since its line was: loops over several lines. Data references do not
//! repeat this way, since a walk may have read page tables through the data cache between two uses of a line.

mod batch;
mod branches;
mod dataflow;
mod image;
mod ops;
mod plan;
mod wrong_paths;
#[cfg(test)]
mod wrong_paths_naive;

use std::hint::select_unpredictable;
use std::ops::Range;

use octavo_config::BranchPrediction;
use octavo_types::{Access, Event, PageSize, Segment, VirtAddr};

pub use batch::{Batch, ControlEvent, ImageId, LineAccess, Lines, Part};
use branches::Branches;
#[cfg(test)]
pub use branches::Followed;
use dataflow::{Dataflow, SegmentFlow};
pub use image::Image;
use image::Pages;
#[cfg(test)]
pub use ops::Beginning;
pub use ops::{
    Difference, Entry, Header, MAX_DISTANCE, Ops, Reference, Simple, Word, each_distance, entries,
};
use plan::Step;

/// The repeats that the front filters out, weakest filter first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Filter {
    /// No repeats: some replacement policy reacts to a second use of its most recent entry.
    Nothing,
    /// Adjacent repeats of the same kind: a reference may change state such that the next one becomes a separate
    /// access, whose kind then matters.
    Alike,
    /// Adjacent repeats: instructions and data share a first-level TLB.
    Adjacent,
    /// Repeats of the line that its side accessed last, whatever the other side did in between.
    BySide,
}

/// Maximum number of sets by which the front sorts fetched lines.
const MAX_SETS: usize = 64;

/// Groups fetched lines such that each group is a union of sets of the instruction cache, wherever the pages lie
/// in physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FetchSets {
    mask: u64,
}

impl FetchSets {
    /// The sets for an instruction cache of `cache_sets` sets.
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

/// The last access of each side. Few words, so that they stay in registers while a segment is added.
#[derive(Clone, Copy)]
struct Sides {
    /// The access that counts the last fetch, or [`LineAccess::NOTHING`] if the next fetch repeats nothing.
    fetch: LineAccess,
    /// The index of `fetch` in the batch.
    fetch_place: usize,
    /// The access that counts the last data reference, or [`LineAccess::NOTHING`].
    data: LineAccess,
    /// The index of `data` in the batch.
    data_place: usize,
    /// Number of accesses in the batch.
    len: usize,
}

/// Builds batches from the references of a core.
///
/// Branch predictors cannot predict whether a reference is a repeat, so that the code does not branch on it. A
/// repeat rewrites the access that counts it with a higher repeat count; any other reference appends an access.
pub struct Front {
    lines: Lines,
    filter: Filter,
    batch: Batch,
    sides: Sides,
    /// The line fetched last in each set.
    fetched: [LineAccess; MAX_SETS],
    sets: FetchSets,
    /// Dependences between instructions, for machines with cores.
    flow: Option<Box<Dataflow>>,
    /// Whether prefetchers or designs use the addresses of instructions.
    notes_sites: bool,
    /// The address of the last instruction, if `notes_sites`.
    site: u64,
}

impl Front {
    /// A front with an empty batch.
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
            flow: None,
            notes_sites: false,
            site: 0,
        }
    }

    /// A front that records the address of the instruction of each access to data, if `notes_sites`.
    pub fn noting_sites(self, notes_sites: bool) -> Self {
        Front { notes_sites, ..self }
    }

    /// A front that adds instructions for cores, which predict branches by `prediction`. With `with_wrong_paths`, each
    /// entry has its [`Difference`] from wrong paths.
    pub fn for_cores(self, prediction: BranchPrediction, with_wrong_paths: bool) -> Self {
        let dataflow = Dataflow::new(Branches::new(prediction), with_wrong_paths);
        Front { flow: Some(Box::new(dataflow)), ..self }
    }

    /// Stops adding instructions for cores. Instructions in the current batch are not used.
    pub fn drop_cores(&mut self) {
        self.flow = None;
    }

    /// Returns the current batch; `emptied` is filled next.
    pub fn take_batch(&mut self, emptied: Batch) -> Batch {
        self.end_repeats();
        self.sides.len = emptied.len();
        std::mem::replace(&mut self.batch, emptied)
    }

    /// The number of accesses in the current batch.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether the current batch is empty.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Appends a control event. The references after it repeat no earlier one.
    pub fn push_event(&mut self, event: ControlEvent) {
        self.end_repeats();
        self.batch.push_event(event);
    }

    /// Makes the next reference of either side a separate access.
    fn end_repeats(&mut self) {
        self.sides.fetch = LineAccess::NOTHING;
        self.sides.data = LineAccess::NOTHING;
        self.fetched = [LineAccess::NOTHING; MAX_SETS];
    }

    /// Adds an execution of a segment: its number in the stream, and its data addresses.
    #[inline(always)]
    pub fn execution(
        &mut self,
        image: &mut Image,
        number: usize,
        segment: &Segment,
        addresses: &[VirtAddr],
    ) {
        let steps = image.plan(number, segment, self.lines, self.filter);
        let is_for_cores = self.flow.is_some();
        let notes_sites = self.notes_sites;
        let play = Play { front: self, image, number, steps, segment, addresses };
        if is_for_cores || notes_sites {
            let (lines, filter) = (play.front.lines, play.front.filter);
            match (is_for_cores, notes_sites) {
                (true, false) => play.run::<true, false>(lines, filter),
                (true, true) => play.run::<true, true>(lines, filter),
                (false, _) => play.run::<false, true>(lines, filter),
            }
            return;
        }
        if play.front.lines == Lines::USUAL && play.front.filter == Filter::BySide {
            // Compiled separately for the configuration of nearly all machines.
            play.run::<false, false>(Lines::USUAL, Filter::BySide);
        } else {
            let (lines, filter) = (play.front.lines, play.front.filter);
            play.run::<false, false>(lines, filter);
        }
    }

    /// Adds the accesses of a data item that spans lines.
    #[cold]
    #[inline(never)]
    fn spanning(&mut self, pages: &mut Pages, addr: VirtAddr, step: Step) {
        let first = addr.raw() >> self.lines.log2();
        let last = addr.wrapping_add(step.size_bytes() - 1).raw() >> self.lines.log2();
        let kinds = [(step.modifies(), Access::Load), (true, step.kind())];
        for (_, kind) in kinds.into_iter().filter(|(does, _)| *does) {
            let mut line = first;
            loop {
                let is_half = line != first && !plan::begins_page(line, self.lines);
                let relocated = pages.line(line, self.lines);
                let access = LineAccess::new(relocated, kind, is_half, 0);
                let before = self.sides.len;
                self.sides.data(self.batch.room(1), access, self.filter);
                self.batch.set_len(self.sides.len);
                if self.notes_sites && self.sides.len > before {
                    self.batch.room_with_sites(0, true).1[before] = self.site;
                }
                if self.flow.is_some() {
                    let is_fresh = self.sides.len > before;
                    let is_store = kind == Access::Store;
                    self.batch.ops.data(self.sides.data_place, is_fresh, is_store);
                }
                if line == last {
                    break;
                }
                line = line.wrapping_add(1) & (u64::MAX >> self.lines.log2());
            }
        }
    }

    /// Appends a memory event of the running process at relocated addresses. Other events are dropped.
    pub fn event(&mut self, image: &Image, event: &Event) {
        if let Some(event) = image.event(event) {
            self.push_event(ControlEvent::Memory(event));
        }
    }

    /// Appends a context switch.
    pub fn switch(&mut self, core: usize, image: ImageId) {
        if let Some(flow) = &mut self.flow {
            flow.switch();
        }
        self.push_event(ControlEvent::Switch { core, image });
    }
}

/// An execution of a segment.
struct Play<'a> {
    front: &'a mut Front,
    image: &'a mut Image,
    /// The segment's number in the stream.
    number: usize,
    steps: Range<usize>,
    segment: &'a Segment,
    addresses: &'a [VirtAddr],
}

impl Play<'_> {
    #[inline(always)]
    fn run<const FOR_CORES: bool, const NOTES_SITES: bool>(self, lines: Lines, filter: Filter) {
        let Play { front, image, number, steps, segment, addresses } = self;
        // A step that loads and stores makes two accesses.
        let most = 2 * steps.len();
        let (steps, flows, pages) = image.parts(steps);
        let depends = if FOR_CORES { &flows[number] } else { SegmentFlow::EMPTY };
        let mut addresses = addresses.iter();
        let mut sides = front.sides;
        let mut flow = Flow { dataflow: None, ops: Ops::default(), in_instruction: false };
        if FOR_CORES {
            (flow.dataflow, flow.ops) = (front.flow.take(), std::mem::take(&mut front.batch.ops));
            flow.begin(flows, number);
        }
        let (mut out, mut sites) = front.batch.room_with_sites(most, NOTES_SITES);
        for step in steps {
            if (FOR_CORES || NOTES_SITES)
                && let Some(number) = step.instruction()
            {
                if FOR_CORES {
                    flow.instruction(depends, number);
                }
                if NOTES_SITES {
                    front.site = segment.items()[step.item()].addr.raw();
                }
                continue;
            }
            let before = sides.len;
            if step.is_fetch() {
                let access = step.fetch();
                let fetched = &mut front.fetched[front.sets.of(access.line())];
                sides.fetch(out, access, fetched, lines, filter);
                if FOR_CORES {
                    flow.ops.fetch(sides.len > before);
                }
                continue;
            }
            let addr = *addresses.next().expect("an address for each data item");
            if addr == VirtAddr::NULL && segment.has_guarded() {
                continue;
            }
            if FOR_CORES {
                flow.data(addr, *step);
            }
            let offset = addr.raw() & ((1 << lines.log2()) - 1);
            if step.spans(offset) {
                front.sides = sides;
                if FOR_CORES {
                    (front.flow, front.batch.ops) =
                        (flow.dataflow.take(), std::mem::take(&mut flow.ops));
                }
                front.spanning(pages, addr, *step);
                if FOR_CORES {
                    (flow.dataflow, flow.ops) =
                        (front.flow.take(), std::mem::take(&mut front.batch.ops));
                }
                sides = front.sides;
                (out, sites) = front.batch.room_with_sites(most, NOTES_SITES);
                continue;
            }
            let line = pages.line(addr.raw() >> lines.log2(), lines);
            if step.modifies() {
                sides.data(out, LineAccess::new(line, Access::Load, false, 0), filter);
                if NOTES_SITES && sides.len > before {
                    sites[before] = front.site;
                }
                if FOR_CORES {
                    flow.ops.data(sides.data_place, sides.len > before, false);
                }
            }
            let before = sides.len;
            sides.data(out, step.data(line), filter);
            if NOTES_SITES && sides.len > before {
                sites[before] = front.site;
            }
            if FOR_CORES {
                let is_store = step.kind() == Access::Store;
                flow.ops.data(sides.data_place, sides.len > before, is_store);
            }
        }
        front.batch.set_len(sides.len);
        front.sides = sides;
        if FOR_CORES {
            flow.end(depends);
            (front.flow, front.batch.ops) = (flow.dataflow, flow.ops);
        }
    }
}

/// The instructions of an execution, for cores.
struct Flow {
    dataflow: Option<Box<Dataflow>>,
    ops: Ops,
    /// Whether an instruction of this execution has begun; data before it are of the segment before.
    in_instruction: bool,
}

impl Flow {
    /// Begins the execution.
    #[inline(always)]
    fn begin(&mut self, flows: &[SegmentFlow], number: usize) {
        if let Some(dataflow) = &mut self.dataflow {
            dataflow.begin(flows, number);
        }
    }

    /// Begins an instruction.
    #[inline(always)]
    fn instruction(&mut self, segment: &SegmentFlow, number: usize) {
        if let Some(dataflow) = &mut self.dataflow {
            dataflow.instruction(segment, number, &mut self.ops);
        }
        self.in_instruction = true;
    }

    /// Ends the execution.
    #[inline(always)]
    fn end(&mut self, segment: &SegmentFlow) {
        if let Some(dataflow) = &mut self.dataflow {
            dataflow.end(segment);
        }
    }

    /// Adds a load or store of the instruction.
    #[inline(always)]
    fn data(&mut self, addr: VirtAddr, step: Step) {
        let Some(dataflow) = &mut self.dataflow else { return };
        if !self.in_instruction {
            dataflow.continuation(&mut self.ops);
            self.in_instruction = true;
        }
        let is_store = step.kind() == Access::Store;
        if step.modifies() || !is_store {
            dataflow.load(addr, step.size_bytes(), &mut self.ops);
        }
        if is_store {
            dataflow.store(addr, step.size_bytes());
        }
    }
}

impl Sides {
    /// Adds a fetch; `fetched` is the line of its set that was fetched last.
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
                // The last line of its set is still cached, and its page is the most recent one in the TLB.
                Filter::BySide => is_in_page & access.same_line(*fetched) & access.is_whole(),
            };
        *fetched = access;
        self.fetch = select_unpredictable(is_repeat, last.repeated(times), access);
        self.fetch_place = select_unpredictable(is_repeat, self.fetch_place, self.len);
        self.len += usize::from(!is_repeat);
        out[self.fetch_place] = self.fetch;
        // A walk may have read page tables through the data cache.
        let ends_data_repeats = !is_in_page | (filter != Filter::BySide) & !is_repeat;
        self.data = if ends_data_repeats { LineAccess::NOTHING } else { self.data };
    }

    /// Adds a data reference. A repeat of a store may be a load or a store.
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
