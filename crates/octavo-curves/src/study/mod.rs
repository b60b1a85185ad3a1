//! The study of one process image: its fetches and its data in TLBs of every page size.
//!
//! For every page size at once, it counts the misses of fully associative LRU TLBs and the memory
//! touched, for the process and by region. [`Study`] splits a segment's references by stream;
//! [`stream`] looks up those that leave the current page in a small front of base pages; misses there
//! go to one [`recency`] order for each page size. [`pages`] holds the state of each page.

use octavo_trace::{
    AddressSpace, Observer, PresentPages, Region, RegionId, Relocation, Segments, Start,
    StreamConsumer, StreamEnd, StreamIdentity, StreamProgress,
};
use octavo_types::{
    AddrRange, Consumer, DataItem, Event, FetchPage, MapSource, PageNumber, PageSize, Segment,
    VirtAddr,
};

mod allocations;
mod bits;
mod front;
mod hits;
mod lines;
mod machine;
mod page_faults;
mod pages;
mod recency;
mod stream;
mod threads;

use allocations::Attribution;
pub use allocations::{
    AllocationSite, Allocations, AttributedMisses, CodePlace, MissColumn, NamedStack,
};

use crate::footprint::{PageSet, Residency};
use crate::sharing::Touched;
use crate::sizes::Sizes;
use front::STEP;
use lines::LineSample;
pub use machine::{ArrayShape, MachineCurve, MachineTlbs, NotModelled, TlbsOfSize};
use machine::{MachineState, Misses, Side};
use octavo_trace::{Counts, Stream};
pub use page_faults::PageFaults;
use page_faults::{HUGE_PAGES, HugePages, Untouched};
use stream::{Access, Memory, PageStream, RegionTally};
pub use stream::{Curve, Levels};
use threads::{Threads, Totals};

/// Values of `madvise(2)` that free pages.
const MADV_DONTNEED: u64 = 4;
const MADV_REMOVE: u64 = 9;

/// The most data items after one [`PageStream::reserve`]: each makes up to four accesses.
const MOST_ITEMS: usize = 1 << 16;

/// Bound on the base pages that the events of a stream may newly name as present: 64 GiB. With more, the memory counts
/// as unknown. Each page takes time, and a trace could name all of an address space in a few words.
const MOST_PRESENT: u64 = 1 << 24;

/// The configuration of a study.
#[derive(Clone, Debug)]
pub struct StudyConfig {
    /// The page sizes, studied at the same time.
    pub sizes: Sizes,
    /// Entries of each level of the instruction TLB.
    pub fetch_levels: Levels,
    /// Entries of each level of the data TLB.
    pub data_levels: Levels,
    /// The TLBs of a machine, if they are modelled, too.
    pub machine: Option<MachineTlbs>,
    /// The bytes of a core's private caches, if the lines of data that miss there are counted.
    pub core_cache_bytes: Option<u64>,
    /// Whether addresses are moved to where Linux would have put them, or stay as traced.
    pub native_layout: bool,
    /// Functions that allocate for others, as patterns with `*`. A block is attributed to the first caller
    /// that matches none of them.
    pub allocation_wrappers: Vec<String>,
}

/// Memory touched by one stream in pages of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footprint {
    /// The stream that touched it.
    pub stream: Stream,
    /// The page size.
    pub page_size: PageSize,
    /// Distinct pages touched over the whole run, times the page size.
    pub touched_bytes: u64,
    /// The most bytes touched and still mapped at one time; only for [`Stream::All`] of a process.
    pub peak_resident_bytes: Option<u64>,
}

/// The results of a region, or of the whole process.
#[derive(Clone, Debug)]
pub struct RegionResult {
    /// Fetches.
    pub fetch_references: u64,
    /// Loads and stores.
    pub data_references: u64,
    /// Misses of the instruction TLB.
    pub fetch_curves: Vec<Curve>,
    /// Misses of the data TLB.
    pub data_curves: Vec<Curve>,
    /// Accesses and misses of the machine's TLBs for code, if there is a machine.
    pub fetch_machine: Vec<MachineCurve>,
    /// Accesses and misses of the machine's TLBs for data, if there is a machine.
    pub data_machine: Vec<MachineCurve>,
    /// Memory touched.
    pub footprints: Vec<Footprint>,
    /// The pages of that memory.
    pub touched: Touched,
    /// Page faults of the process's own memory.
    pub page_faults: PageFaults,
    /// The growth in bytes of the process's own memory with 2 MiB pages wherever they fit: for each region at the
    /// time when most of it was touched.
    pub huge_growth_bytes: u64,
}

/// The counts of a thread, or of several together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadCounts {
    /// How many threads.
    pub threads: u64,
    /// Instructions.
    pub instructions: u64,
    /// As [`Study::missed_lines`].
    pub missed_lines: Option<u64>,
    /// Page walks for code at each page size of the machine, if there is a machine.
    pub fetch_walks: Vec<(PageSize, u64)>,
    /// Page walks for data.
    pub data_walks: Vec<(PageSize, u64)>,
}

/// A study under way: a consumer of one stream.
pub struct Study {
    sizes: Sizes,
    fetch: PageStream,
    data: PageStream,
    memory: ProcessMemory,
    lines: Option<LineSample>,
    native_layout: bool,
    allocation_wrappers: Vec<String>,
    /// The attribution of misses of data to blocks, if the stream reports blocks.
    attribution: Option<Box<Attribution>>,
    counts: Counts,
    threads: Threads,
    /// The counts at the beginning of the warm-up, during the warm-up.
    before_warming: Option<Box<Checkpoint>>,
}

/// All counts of a study at a moment.
struct Checkpoint {
    fetch: Vec<RegionTally>,
    data: Vec<RegionTally>,
    machine: Option<[Misses; 2]>,
    page_faults: Vec<PageFaults>,
    missed_lines: Option<u64>,
    counts: Counts,
}

struct ProcessMemory {
    space: AddressSpace,
    residency: Residency,
    huge_pages: HugePages,
    untouched: Untouched,
    /// Page faults by region, of memory whose first touches are known.
    page_faults: Vec<PageFaults>,
    /// Touched pages that no other process can have in the same frame.
    own: PageSet,
    /// Whether executions were left out.
    left_out: bool,
    /// Whether the pages that were present after the executions left out are known.
    has_present: bool,
    /// The traced pages that are present.
    present: PresentPages,
    /// The number of further pages that events may name as present.
    most_present: u64,
    machine: Option<Box<MachineState>>,
}

impl Memory for ProcessMemory {
    fn relocate(&mut self, traced: u64) -> u64 {
        self.space.relocation().page(PageNumber::new(traced)).raw()
    }

    fn region(&mut self, traced: u64) -> RegionId {
        self.space.region_of(PageNumber::new(traced))
    }

    fn touched(&mut self, traced: u64, page: u64, region: RegionId) {
        if self.residency.insert(page) {
            self.fault(traced, page, region);
        }
        if !self.space.may_be_shared(PageNumber::new(traced)) {
            self.own.insert(page);
        }
    }

    fn machine(&mut self) -> Option<&mut MachineState> {
        self.machine.as_deref_mut()
    }
}

impl ProcessMemory {
    /// Counts the page faults of a first touch of a base page.
    fn fault(&mut self, traced: u64, page: u64, region: RegionId) {
        let traced = PageNumber::new(traced);
        if !self.space.is_own(traced) {
            return;
        }
        let region = usize::from(region.0);
        if self.page_faults.len() <= region {
            self.page_faults.resize(region + 1, PageFaults::default());
        }
        let fits = || {
            let first = traced.raw().checked_sub(page % HUGE_PAGES).map(PageNumber::new);
            first.is_some_and(|first| self.space.fits(first, PageSize::HUGE))
        };
        let mut unknown = PageFaults::default();
        let is_known = self.untouched.holds(page);
        let faults = if is_known { &mut self.page_faults[region] } else { &mut unknown };
        self.huge_pages.touch(page, region, fits, faults);
    }
}

impl Study {
    /// A study of an empty stream. Until [`StreamConsumer::started`] gives a relocation, addresses stay
    /// as traced.
    pub fn new(config: &StudyConfig) -> Self {
        let sizes = config.sizes.clone();
        Study {
            fetch: PageStream::new(Side::Fetch, sizes.clone(), config.fetch_levels.clone()),
            data: PageStream::new(Side::Data, sizes.clone(), config.data_levels.clone()),
            memory: ProcessMemory {
                space: AddressSpace::new(Relocation::default(), None),
                residency: Residency::new(sizes.clone()),
                huge_pages: HugePages::default(),
                untouched: Untouched::default(),
                page_faults: Vec::new(),
                own: PageSet::default(),
                left_out: false,
                has_present: false,
                present: PresentPages::default(),
                most_present: MOST_PRESENT,
                machine: config.machine.as_ref().map(|tlbs| Box::new(MachineState::new(tlbs))),
            },
            lines: config.core_cache_bytes.map(LineSample::new),
            native_layout: config.native_layout,
            allocation_wrappers: config.allocation_wrappers.clone(),
            attribution: None,
            counts: Counts::default(),
            threads: Threads::default(),
            before_warming: None,
            sizes,
        }
    }

    /// The counts of the stream.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether all memory of the process is known: no executions were left out, or the pages present after them are
    /// known.
    pub fn knows_memory(&self) -> bool {
        !self.memory.left_out || self.memory.has_present
    }

    /// Estimated misses of lines of data in a core's private caches; `None` if they are not counted.
    pub fn missed_lines(&self) -> Option<u64> {
        self.lines.as_ref().map(LineSample::misses)
    }

    /// Misses of the first level so far: of fetches at each page size, then of data.
    pub fn first_level_misses(&self) -> Vec<u64> {
        let mut misses = self.fetch.first_level_misses();
        misses.extend(self.data.first_level_misses());
        misses
    }

    /// The misses of the machine's TLBs so far, of fetches and of data; accesses are left out.
    pub fn machine_curves(&self) -> Vec<(Stream, MachineCurve)> {
        let machine = self.memory.machine.as_deref().into_iter();
        let sides = [(Stream::Fetch, Side::Fetch), (Stream::Data, Side::Data)];
        let curves = |machine: &MachineState, (stream, side)| {
            machine.curves(side, None, |_| 0).into_iter().map(move |curve| (stream, curve))
        };
        machine
            .flat_map(|machine| sides.map(|side| curves(machine, side)).into_iter().flatten())
            .collect()
    }

    /// The counts that are kept by thread.
    fn thread_totals(&self) -> Totals {
        let mut totals = vec![self.counts.instructions, self.missed_lines().unwrap_or(0)];
        if let Some(machine) = self.memory.machine.as_deref() {
            totals.extend(machine.walks(Side::Fetch).chain(machine.walks(Side::Data)));
        }
        totals
    }

    /// The counts of each thread, in the order in which they began, and of all threads after the
    /// first [`MOST_NAMED_THREADS`](octavo_trace::MOST_NAMED_THREADS) together. `initial` is the
    /// number of threads that no event begins.
    pub fn threads(&self, initial: u64) -> (Vec<ThreadCounts>, ThreadCounts) {
        let sizes: Vec<PageSize> = self
            .memory
            .machine
            .as_deref()
            .map_or(Vec::new(), |machine| machine.page_sizes().collect());
        let counts = |threads: u64, totals: Totals| {
            let (fetch, data) = totals[2..].split_at(sizes.len());
            let walks =
                |counts: &[u64]| sizes.iter().copied().zip(counts.iter().copied()).collect();
            ThreadCounts {
                threads,
                instructions: totals[0],
                missed_lines: self.lines.as_ref().map(|_| totals[1]),
                fetch_walks: walks(fetch),
                data_walks: walks(data),
            }
        };
        let (threads, further) = self.threads.results(self.thread_totals(), initial);
        let threads = threads.into_iter().map(|totals| counts(1, totals)).collect();
        (threads, counts(further.threads, further.counts))
    }

    /// Misses of data by allocation site and instruction, if the stream reports blocks. The regions are
    /// numbered as in [`Study::regions`].
    pub fn allocations(&self) -> Option<Allocations> {
        let mut numbers = Vec::new();
        let (fetch, data) = (self.fetch.regions(), self.data.regions());
        let references = |tallies: &[RegionTally], index: usize| {
            tallies.get(index).map_or(0, |tally: &RegionTally| tally.references)
        };
        let mut next = 0;
        for index in 0..self.memory.space.regions().len() {
            let is_result = references(&fetch, index) + references(&data, index) > 0;
            numbers.push(is_result.then_some(next));
            next += usize::from(is_result);
        }
        let number = |region: RegionId| numbers.get(usize::from(region.0)).copied().flatten();
        self.attribution.as_ref().map(|attribution| attribution.result(number))
    }

    /// The page sizes of the study.
    pub fn page_sizes(&self) -> impl Iterator<Item = PageSize> + '_ {
        self.sizes.iter()
    }

    /// The result of the whole process.
    pub fn total(&self) -> RegionResult {
        let sum = |stream: &PageStream| {
            let mut regions = stream.regions().into_iter();
            let first = regions.next();
            first.map(|first| {
                regions.fold(first, |mut sum, region| {
                    sum.add(&region);
                    sum
                })
            })
        };
        let mut total = self.result(sum(&self.fetch), sum(&self.data), None);
        for footprint in total.footprints.iter_mut().filter(|f| f.stream == Stream::All) {
            let size = self.sizes.iter().position(|size| size == footprint.page_size);
            footprint.peak_resident_bytes = size.map(|s| self.memory.residency.peak_bytes(s));
        }
        total
    }

    /// Each region that was referenced, with its result.
    pub fn regions(&self) -> Vec<(Region, RegionResult)> {
        let (fetch, data) = (self.fetch.regions(), self.data.regions());
        let mut results = Vec::new();
        for (index, region) in self.memory.space.regions().iter().enumerate() {
            let result =
                self.result(fetch.get(index).cloned(), data.get(index).cloned(), Some(index));
            if result.fetch_references + result.data_references > 0 {
                results.push((region.clone(), result));
            }
        }
        results
    }

    /// The result of these tallies, for one region or all regions.
    fn result(
        &self,
        fetch: Option<RegionTally>,
        data: Option<RegionTally>,
        region: Option<usize>,
    ) -> RegionResult {
        let curves = |stream: &PageStream, tally: &Option<RegionTally>| {
            let tally = tally.as_ref().filter(|tally| tally.references > 0);
            tally.map_or_else(Vec::new, |tally| stream.curves(tally))
        };
        let machine = |side: Side, tally: &Option<RegionTally>| match (&self.memory.machine, tally)
        {
            (Some(machine), Some(tally)) if tally.references > 0 => {
                machine.curves(side, region, |page_size| tally.lookups(page_size))
            }
            _ => Vec::new(),
        };
        let touched = |tally: &Option<RegionTally>| {
            tally.as_ref().map(|t| t.touched.clone()).unwrap_or_default()
        };
        let touched = Touched::new(touched(&fetch), touched(&data), &self.memory.own);
        let mut footprints = Vec::new();
        for stream in [Stream::Fetch, Stream::Data, Stream::All] {
            let set = touched.by(stream);
            footprints.extend(self.sizes.iter().map(|size| footprint(stream, &set, size)));
        }
        RegionResult {
            fetch_references: fetch.as_ref().map_or(0, |tally| tally.references),
            data_references: data.as_ref().map_or(0, |tally| tally.references),
            fetch_curves: curves(&self.fetch, &fetch),
            data_curves: curves(&self.data, &data),
            fetch_machine: machine(Side::Fetch, &fetch),
            data_machine: machine(Side::Data, &data),
            footprints,
            touched,
            page_faults: self.page_faults(region),
            huge_growth_bytes: self.huge_growth(region) << PageSize::BASE.log2(),
        }
    }

    /// Base pages by which one region, or all regions, grow with 2 MiB pages.
    fn huge_growth(&self, region: Option<usize>) -> u64 {
        let all = self.memory.huge_pages.growth();
        let regions = region.map_or(all, |region| all.get(region..=region).unwrap_or(&[]));
        regions.iter().map(|growth| growth.pages).sum()
    }

    /// Page faults of one region, or of all regions.
    fn page_faults(&self, region: Option<usize>) -> PageFaults {
        let all = self.memory.page_faults.as_slice();
        let regions = region.map_or(all, |region| all.get(region..=region).unwrap_or(&[]));
        let mut sum = PageFaults::default();
        regions.iter().for_each(|faults| sum.add(*faults));
        sum
    }

    #[inline(always)]
    fn fetches(&mut self, segment: &Segment) {
        let [first, others @ ..] = segment.fetch_pages() else { return };
        self.fetch.reserve();
        if !self.fetch.access_at_once(first.page.raw(), first.fetches.into(), false) {
            self.fetches_slow(std::slice::from_ref(first), 0);
        }
        if !others.is_empty() {
            self.fetches_slow(others, first.fetches);
        }
    }

    /// Makes the fetches from pages that are not found at once, or that follow the first page. `fetches_before` is the
    /// number of earlier fetches of the segment.
    #[inline(never)]
    fn fetches_slow(&mut self, runs: &[FetchPage], mut fetches_before: u32) {
        for run in runs {
            let (traced, references) = (run.page.raw(), run.fetches.into());
            let order = order_of_fetch(fetches_before);
            self.fetch.reserve();
            if run.spilled {
                // The second half of the instruction before.
                let access = Access { traced, references: 0, stores: false, order: order - 2 };
                self.fetch.access_spilled(access, &mut self.memory);
            }
            let access = Access { traced, references, stores: false, order };
            self.fetch.access(access, &mut self.memory);
            fetches_before += run.fetches;
        }
    }

    /// Ends an execution, after all its references.
    #[inline(always)]
    fn end_segment(&mut self) {
        if let Some(machine) = &mut self.memory.machine
            && machine.has_pending()
        {
            machine.end_segment(self.fetch.front());
        }
    }

    /// Makes the references of at most [`MOST_ITEMS`] data items of an execution.
    #[inline(always)]
    fn data(&mut self, segment: &Segment, items: &[DataItem], addresses: &[VirtAddr]) {
        self.data.reserve();
        let mut time = self.data.front().now();
        for (item, addr) in items.iter().zip(addresses) {
            let front = self.data.front();
            match front.guess(addr.page(PageSize::BASE).raw(), item.stores) {
                Some(slot) if !spans_pages(item, *addr) => {
                    time += STEP;
                    front.use_at(time, slot, item.references.into());
                }
                _ => {
                    front.set_now(time);
                    self.data_slow(segment, item, *addr);
                    time = self.data.front().now();
                }
            }
        }
        self.data.front().set_now(time);
    }

    /// Makes the references of more than [`MOST_ITEMS`] data items.
    #[cold]
    fn data_in_parts(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let parts = segment.data().chunks(MOST_ITEMS);
        for (items, addresses) in parts.zip(addresses.chunks(MOST_ITEMS)) {
            self.data(segment, items, addresses);
        }
    }

    /// Makes the references of a data item whose page is not found at once, that spans two pages, or that was not
    /// executed.
    #[inline(never)]
    fn data_slow(&mut self, segment: &Segment, item: &DataItem, addr: VirtAddr) {
        let references = u64::from(item.references);
        if item.guarded && addr == VirtAddr::NULL {
            self.counts.skipped(item);
            return;
        }
        let traced = addr.page(PageSize::BASE).raw();
        let order = order_of_data(item.fetches_before);
        if spans_pages(item, addr) {
            // A modify that spans two pages is a load of both and then a store to both.
            for number in 0..item.references {
                let stores = number >= item.loads;
                let access = Access { traced, references: 1, stores, order };
                self.data.access(access, &mut self.memory);
                self.attribute(segment, item, addr);
                self.data.access_spilled(Access { traced: traced + 1, ..access }, &mut self.memory);
                let second = VirtAddr::new((traced + 1) << PageSize::BASE.log2());
                self.attribute(segment, item, second);
            }
        } else {
            let access = Access { traced, references, stores: item.stores, order };
            self.data.access(access, &mut self.memory);
            self.attribute(segment, item, addr);
        }
    }

    /// Attributes the misses of the access to data that was looked up last.
    fn attribute(&mut self, segment: &Segment, item: &DataItem, addr: VirtAddr) {
        let Some(attribution) = &mut self.attribution else { return };
        let ideal = self.data.take_missed();
        let modelled = self.memory.machine.as_mut().map_or(0, |machine| machine.take_walked());
        if (ideal, modelled) != (0, 0) {
            let region = || self.memory.space.region_of(addr.page(PageSize::BASE));
            attribution.missed(segment, item, addr, region, [ideal, modelled]);
        }
    }

    /// Records that pages of a traced range are present: all of them if `known`, otherwise an unknown part.
    fn present(&mut self, range: AddrRange, known: bool) {
        let (first, end) = base_pages(range);
        let new = self.memory.present.missing(&(first..end));
        let pages = new.iter().map(|part| part.end - part.start).sum();
        let left = self.memory.most_present.checked_sub(pages);
        let Some(left) = left.filter(|_| known) else {
            self.memory.has_present &= !self.memory.space.has_own(&(first..end));
            return;
        };
        self.memory.most_present = left;
        for traced in self.memory.present.add(first..end).into_iter().flatten() {
            let number = PageNumber::new(traced);
            let page = self.memory.relocate(traced);
            // A page that is known to be untouched is touched by a later execution.
            if self.memory.untouched.holds(page) {
                self.memory.present.remove(traced..traced + 1);
            } else if self.memory.space.is_own(number) {
                let region = self.memory.region(traced);
                self.memory.touched(traced, page, region);
                self.data.present(page, region);
            }
        }
    }

    /// Records that the mapping of a traced range has changed.
    fn mapping_changed(&mut self, range: AddrRange) {
        let range = range.widened_to(PageSize::BASE);
        let (first, end) = base_pages(range);
        let page = self.memory.relocate(first);
        self.fetch.mapping_changed(first, end, page);
        self.data.mapping_changed(first, end, page);
    }

    /// Unmaps the memory of a traced range. Returns the relocated base pages that were resident.
    fn unmap(&mut self, range: AddrRange) -> Vec<u64> {
        let (page, end) = self.relocated(range);
        self.memory.huge_pages.unmap(page, end);
        self.memory.residency.remove(page, end)
    }

    /// The relocated base pages of a traced range: the first, and the one past the last.
    fn relocated(&mut self, range: AddrRange) -> (u64, u64) {
        let (first, end) = base_pages(range);
        let page = self.memory.relocate(first);
        (page, page + end.saturating_sub(first))
    }

    fn remap(&mut self, from: AddrRange, to: AddrRange) {
        let moved = self.unmap(from);
        self.unmap(to);
        let ((old, old_end), (new, new_end)) = (self.relocated(from), self.relocated(to));
        self.memory.untouched.moved(old..old_end, new..new_end);
        let region = self.memory.region(base_pages(from).0);
        let region = usize::from(region.0);
        for page in moved.into_iter().filter(|page| page - old < new_end - new) {
            self.memory.residency.insert(page - old + new);
            self.memory.huge_pages.moved_to(page - old + new, region);
        }
    }
}

/// The base pages of a range: the first, and the one past the last. Its ends are rounded up, as the kernel does for
/// `munmap` (whose start is aligned) and `brk` (whose start is not).
fn base_pages(range: AddrRange) -> (u64, u64) {
    let page = |addr: VirtAddr| addr.raw().div_ceil(PageSize::BASE.bytes());
    (page(range.start()), page(range.end()))
}

/// The position of a fetch among all references of its segment, given the number of fetches before it.
#[inline(always)]
fn order_of_fetch(fetches_before: u32) -> u32 {
    2 * fetches_before + 2
}

/// The position of data among all references of its segment: behind the fetches before it.
#[inline(always)]
fn order_of_data(fetches_before: u32) -> u32 {
    2 * fetches_before + 1
}

/// Whether a data reference spans two base pages.
#[inline(always)]
fn spans_pages(item: &DataItem, addr: VirtAddr) -> bool {
    addr.raw() % PageSize::BASE.bytes() > u64::from(item.last_whole_offset)
}

fn footprint(stream: Stream, set: &PageSet, page_size: PageSize) -> Footprint {
    let touched_bytes = set.pages_of(page_size) << page_size.log2();
    Footprint { stream, page_size, touched_bytes, peak_resident_bytes: None }
}

impl Consumer for Study {
    #[inline(always)]
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.counts.executed(segment);
        if let Some(lines) = &mut self.lines {
            lines.look_up_execution(segment, addresses);
        }
        self.fetches(segment);
        if segment.data().len() <= MOST_ITEMS {
            self.data(segment, segment.data(), addresses);
        } else {
            self.data_in_parts(segment, addresses);
        }
        self.end_segment();
        if let Some(attribution) = &mut self.attribution {
            attribution.executed(segment);
        }
    }

    fn event(&mut self, event: &Event) {
        if let Event::AllocationStack { .. } = event
            && self.attribution.is_none()
        {
            let machine = self.memory.machine.as_deref();
            let columns = MissColumn::all(&self.sizes, machine);
            let wrappers = std::mem::take(&mut self.allocation_wrappers);
            self.data.take_missed();
            self.attribution = Some(Box::new(Attribution::new(columns, wrappers)));
            if let Some(machine) = &mut self.memory.machine {
                machine.take_walked();
            }
        }
        if let Some(attribution) = &mut self.attribution {
            attribution.event(event);
        }
        self.memory.present.event(event);
        let ProcessMemory { space, machine, .. } = &mut self.memory;
        if let Some(machine) = machine
            && machine.event(event, |range| space.relocation().range(range))
        {
            self.fetch.front().forbid_all();
            self.data.front().forbid_all();
        }
        match event {
            Event::Map { range, source, .. } => {
                // A stack or heap that grows replaces no mapping.
                if !matches!(source, MapSource::Stack | MapSource::Heap) {
                    self.unmap(*range);
                }
                let (page, end) = self.relocated(*range);
                self.memory.untouched.emptied(page..end);
            }
            Event::Unmap { range } => {
                self.unmap(*range);
                let (page, end) = self.relocated(*range);
                self.memory.untouched.unmapped(page..end);
            }
            Event::Advise { range, advice: MADV_DONTNEED | MADV_REMOVE } => {
                let (page, end) = self.relocated(*range);
                self.memory.untouched.emptied(page..end);
                self.memory.huge_pages.give_back(page, end);
                self.memory.residency.remove(page, end);
                self.mapping_changed(*range);
            }
            Event::Remap { from, to } => self.remap(*from, *to),
            Event::Present { range, known, first } => {
                if *first {
                    // No counted execution came before: executions so far were skipped, or not sampled.
                    if !self.memory.left_out {
                        self.resumed();
                    }
                    self.memory.has_present = true;
                }
                self.present(*range, *known);
            }
            _ => {}
        }
        if self.memory.space.apply(event) {
            match event {
                Event::Map { range, .. }
                | Event::Unmap { range }
                | Event::Protect { range, .. } => self.mapping_changed(*range),
                Event::Remap { from, to } => {
                    self.mapping_changed(*from);
                    self.mapping_changed(*to);
                }
                _ => {}
            }
        }
        self.counts.event(event);
        match *event {
            Event::ThreadStart { thread } => self.threads.begin(thread),
            Event::ThreadSwitch { thread } => {
                let totals = self.thread_totals();
                self.threads.switch(thread, totals);
            }
            _ => {}
        }
    }
}

impl StreamConsumer for Study {
    #[inline(always)]
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        // Attribution follows the threads of each execution.
        if self.attribution.is_some() {
            return 0;
        }
        hits::process(self, segments, words)
    }

    fn started(&mut self, start: &Start) {
        let relocation =
            if self.native_layout { start.relocation.clone() } else { Relocation::default() };
        self.memory.space = AddressSpace::new(relocation, start.stack);
    }

    fn resumed(&mut self) {
        self.memory.left_out = true;
        self.memory.has_present = false;
        self.memory.untouched.clear();
    }
}

impl Observer for Study {
    fn ended(&mut self, _: &StreamIdentity, _: &StreamEnd) {
        self.fetch.keep_results_only();
        self.data.keep_results_only();
        self.memory.residency.keep_results_only();
        self.memory.huge_pages = self.memory.huge_pages.results_only();
        self.memory.untouched = Untouched::default();
        self.memory.present = PresentPages::default();
        if let Some(attribution) = &mut self.attribution {
            **attribution = attribution.results_only();
        }
        if let Some(machine) = &mut self.memory.machine {
            machine.keep_results_only();
        }
    }

    fn snapshot(&self) -> Option<Self> {
        let memory = ProcessMemory {
            space: self.memory.space.clone(),
            residency: self.memory.residency.results_only(),
            huge_pages: self.memory.huge_pages.results_only(),
            untouched: Untouched::default(),
            page_faults: self.memory.page_faults.clone(),
            own: self.memory.own.clone(),
            left_out: self.memory.left_out,
            has_present: self.memory.has_present,
            present: PresentPages::default(),
            most_present: self.memory.most_present,
            machine: self.memory.machine.as_ref().map(|machine| Box::new(machine.results_only())),
        };
        Some(Study {
            sizes: self.sizes.clone(),
            fetch: self.fetch.results_only(),
            data: self.data.results_only(),
            memory,
            lines: self.lines.as_ref().map(LineSample::results_only),
            native_layout: self.native_layout,
            allocation_wrappers: Vec::new(),
            attribution: (self.attribution.as_ref())
                .map(|attribution| Box::new(attribution.results_only())),
            counts: self.counts.clone(),
            threads: self.threads.clone(),
            before_warming: None,
        })
    }

    fn set_warming(&mut self, warming: bool) -> bool {
        if let Some(attribution) = &mut self.attribution {
            attribution.set_counting(!warming);
        }
        if warming {
            self.before_warming = Some(Box::new(Checkpoint {
                fetch: self.fetch.checkpoint(),
                data: self.data.checkpoint(),
                machine: self.memory.machine.as_ref().map(|machine| machine.checkpoint()),
                page_faults: self.memory.page_faults.clone(),
                missed_lines: self.missed_lines(),
                counts: self.counts.clone(),
            }));
        } else if let Some(before) = self.before_warming.take() {
            self.fetch.roll_back(before.fetch);
            self.data.roll_back(before.data);
            if let (Some(machine), Some(misses)) = (&mut self.memory.machine, before.machine) {
                machine.roll_back(misses);
            }
            self.memory.page_faults = before.page_faults;
            if let (Some(lines), Some(misses)) = (&mut self.lines, before.missed_lines) {
                lines.roll_back(misses);
            }
            self.counts.roll_back(&before.counts);
        }
        let totals = self.thread_totals();
        self.threads.set_warming(warming, totals);
        true
    }

    fn window_counts(&self) -> Vec<u64> {
        let mut counts = self.first_level_misses();
        counts.extend(self.machine_curves().iter().map(|(_, curve)| curve.misses));
        counts
    }

    fn progress(&self) -> StreamProgress {
        StreamProgress {
            references: self.counts.references(),
            instructions: self.counts.instructions,
            resident_bytes: self.memory.residency.resident_bytes(),
        }
    }
}
