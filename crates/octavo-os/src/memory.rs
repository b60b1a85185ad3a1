//! The managed memory: frames, processes with their mappings and page tables, and shared objects; with the
//! operations that page-size policies are written in.
//!
//! A frame has one *reference* per page table or object that uses it, and is freed with the last. A page is
//! mapped writable only while its frames have one reference.
//!
//! An operation that runs out of memory has no effect visible to programs: pages keep their contents, and no
//! frame is lost. Pages split on the way stay split.

mod anchors;
mod check;
mod compaction;
mod composite_pages;
mod contents;
mod contiguous;
mod exchange;
mod gapped;
mod grow;
mod hole_changes;
mod holes;
mod invalidations;
mod merge;
mod objects;
mod parts_used;
mod placement;
mod ranges;
mod references;
mod run;
mod same_pages;
mod sharing;
mod splitting;

pub use contents::Content;
pub use exchange::Exchange;
pub use gapped::ChunkSearch;
pub use invalidations::Invalidation;
pub use parts_used::PartsUsedBytes;
pub use placement::Placement;
pub use same_pages::SamePages;
pub use sharing::CopyOnWrite;
pub(crate) use sharing::is_shared;

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use rustc_hash::FxHashMap;

use crate::counters::Counters;
use crate::frames::{Frames, Order, OutOfMemory, Owner};
use crate::page_table::{DesignCounter, Format, Leaf, MakeTable, PageTable, Ranges};
use crate::vmas::{ObjectId, Pages, Vmas};
use objects::Object;
use references::References;

/// A process identifier, dense from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessId(pub u16);

/// The memory of a process.
pub struct Process {
    /// Its mappings.
    pub vmas: Vmas,
    /// Its page table.
    pub table: PageTable,
}

/// All memory of a machine.
pub struct Memory {
    /// Physical memory.
    pub frames: Frames,
    /// Counters of operations.
    pub counters: Counters,
    /// Supported page sizes including 4 KiB, smallest first.
    sizes: Vec<PageSize>,
    format: Format,
    /// Makes the page tables that hardware walks, if they are not radix trees.
    make_table: Option<MakeTable>,
    /// Counters of the tables of processes that have ended.
    of_ended_tables: Vec<DesignCounter>,
    /// Events that counters of designs have counted and do not report.
    excluded_events: Vec<DesignCounter>,
    processes: Vec<Option<Process>>,
    references: References,
    objects: FxHashMap<ObjectId, Object>,
    stale: Vec<Invalidation>,
    /// Whether a 2 MiB page gets holes instead of being split.
    pub punches: bool,
    /// Base pages whose hole bit has changed without an invalidation yet.
    holes_changed: Vec<(ProcessId, PageNumber)>,
    contents: Option<Vec<Content>>,
    /// In a guest, the smallest page whose contents move by a request to the host; others are copied.
    pub exchange_from: Option<PageSize>,
    exchanges: Vec<Exchange>,
    /// Whether the policy clears free memory in the background.
    pub clears_ahead: bool,
    /// Knowledge of zero pages, if identical pages are merged.
    zeros: Option<same_pages::Contents>,
    /// Instructions at the next choice of anchor distances.
    next_anchor_choice: u64,
    /// In a guest, the ranges of the host's table at the last choice of anchor distances.
    anchor_backing: Option<Ranges>,
    /// log2 of the anchor distance chosen last.
    last_anchor_log2: u8,
    /// Chooses the frames of private base pages, if not any will do.
    placement: Option<Box<dyn Placement>>,
}

/// All base pages.
const EVERYTHING: Pages = 0..u64::MAX;

/// The number of base pages of a page of `size`.
pub const fn base_pages(size: PageSize) -> u64 {
    1 << size.base_shift()
}

/// The base pages of the page of `size` that holds `page`.
pub const fn around(page: PageNumber, size: PageSize) -> Pages {
    let first = page.raw() >> size.base_shift() << size.base_shift();
    first..first + base_pages(size)
}

/// The value of a counter; 0 if there is none of this name.
fn value_of(counters: &[DesignCounter], name: &str) -> u64 {
    counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
}

impl Memory {
    /// Memory without processes. Pages have one of `sizes`, or 4 KiB.
    pub fn new(mut frames: Frames, sizes: &[PageSize], format: Format) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.push(PageSize::BASE);
        sizes.sort_unstable();
        sizes.dedup();
        if format.holes.is_some() {
            frames.reserve_hole_bitmaps();
        }
        if format.has_gapped {
            frames.reserve_chunk_bitmaps();
        }
        let references = References::new(frames.shape().frames());
        Memory {
            frames,
            counters: Counters::default(),
            sizes,
            format,
            make_table: None,
            of_ended_tables: Vec::new(),
            excluded_events: Vec::new(),
            processes: Vec::new(),
            references,
            objects: FxHashMap::default(),
            stale: Vec::new(),
            punches: false,
            holes_changed: Vec::new(),
            contents: None,
            exchange_from: None,
            exchanges: Vec::new(),
            clears_ahead: false,
            zeros: None,
            next_anchor_choice: 0,
            anchor_backing: None,
            last_anchor_log2: format.anchors.map_or(0, |anchors| anchors.first_log2),
            placement: None,
        }
    }

    /// Sets the page tables of processes that hardware walks instead of radix trees.
    pub fn with_tables(self, make_table: Option<MakeTable>) -> Self {
        Memory { make_table, ..self }
    }

    /// Checks that the page table of a process has found the memory to grow.
    ///
    /// # Errors
    ///
    /// If it has not.
    pub(crate) fn check_table(&self, process: ProcessId) -> Result<(), OutOfMemory> {
        self.process(process).table.check_hardware()
    }

    /// Creates a process without mappings. Its number is the lowest that no live process has.
    ///
    /// # Panics
    ///
    /// If there are 65,536 live processes.
    pub fn spawn(&mut self) -> Result<ProcessId, OutOfMemory> {
        let mut table = PageTable::new(self.format, self.make_table.as_ref(), &mut self.frames)?;
        let unused = self.processes.iter().position(Option::is_none);
        let number = unused.unwrap_or(self.processes.len());
        let id = ProcessId(u16::try_from(number).expect("at most 65,536 processes live at a time"));
        if number == self.processes.len() {
            self.processes.push(None);
        }
        if let Some(place) = self.placement.as_ref().and_then(|rule| rule.node_place(id)) {
            table.place_nodes_by(place);
        }
        self.processes[number] = Some(Process { vmas: Vmas::default(), table });
        Ok(id)
    }

    /// Ends a process and frees its memory.
    pub fn end(&mut self, process: ProcessId) {
        self.release(process, &EVERYTHING).expect("no page reaches out of everything");
        if let Some(ended) = self.processes[usize::from(process.0)].take() {
            ended.table.add_counters(&mut self.of_ended_tables);
            // Levels, unlike sums, end with their process.
            let levels = self.of_ended_tables.iter_mut().filter(|counter| counter.is_level);
            levels.for_each(|level| level.value = 0);
            ended.table.free_all(&mut self.frames);
            if ended.vmas.iter().any(|(_, vma)| !vma.is_anonymous()) {
                self.drop_unmapped_objects();
            }
        }
    }

    /// The process.
    ///
    /// # Panics
    /// If it has ended.
    pub fn process(&self, process: ProcessId) -> &Process {
        self.processes[usize::from(process.0)].as_ref().expect("it has not ended")
    }

    /// The process, mutable.
    pub fn process_mut(&mut self, process: ProcessId) -> &mut Process {
        self.processes[usize::from(process.0)].as_mut().expect("it has not ended")
    }

    /// The supported page sizes, smallest first.
    pub fn sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    /// The mapped pages that overlap a range.
    pub fn leaves(&self, process: ProcessId, pages: &Pages) -> Vec<Leaf> {
        let table = &self.process(process).table;
        let (mut found, mut from) = (Vec::new(), pages.start);
        while let Some(leaf) = table.next(PageNumber::new(from), PageNumber::new(pages.end)) {
            from = leaf.page.raw() + base_pages(leaf.size);
            found.push(leaf);
        }
        found
    }

    /// Whether nothing is mapped in a range.
    pub fn is_untouched(&self, process: ProcessId, pages: &Pages) -> bool {
        let (from, end) = (PageNumber::new(pages.start), PageNumber::new(pages.end));
        self.process(process).table.next(from, end).is_none()
    }

    /// Maps a page at newly allocated, zeroed memory, of which one base page is touched.
    ///
    /// # Errors
    ///
    /// If there is no free block of its size, or no frame for its page table.
    pub fn place_new(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let frame = match size {
            PageSize::BASE => self.allocate_private(process, page)?,
            _ => self.frames.allocate(Order::of(size), Owner::Data)?,
        };
        if let Err(error) = self.map(process, page, size, frame, rights) {
            self.frames.free(frame, Order::of(size));
            return Err(error);
        }
        self.zeroed(frame, base_pages(size));
        self.count_untouched(size);
        Ok(())
    }

    /// Counts what is untouched of a page of `size`, of which one base page is touched as it is mapped.
    pub fn count_untouched(&mut self, size: PageSize) {
        self.counters.bytes_mapped_untouched += (base_pages(size) - 1) * PageSize::BASE.bytes();
    }

    /// Maps the base pages of an untouched range, with the permissions of the mapping at its start, at new contiguous
    /// frames, if memory can spare them. If page tables find no memory, the rest of the range stays unmapped.
    pub(crate) fn place_run(&mut self, process: ProcessId, pages: &Pages) {
        let mapping = self.process(process).vmas.find(PageNumber::new(pages.start));
        let frames = pages.end - pages.start;
        let Some((_, vma)) = mapping else { return };
        let Some(first) = self.frames.allocate_surplus_run(frames, Owner::Data) else { return };
        for place in 0..frames {
            let page = PageNumber::new(pages.start + place);
            if self.place_at(process, page, first.plus(place), vma.rights).is_err() {
                self.frames.free_range(first.plus(place + 1), frames - place - 1);
                return;
            }
        }
    }

    /// Maps a base page at a data frame of the caller, and clears it.
    ///
    /// # Errors
    ///
    /// If there are no frames for its page table: the frame is freed.
    pub fn place_at(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        frame: FrameNumber,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        if let Err(error) = self.map(process, page, PageSize::BASE, frame, rights) {
            self.frames.free(frame, Order::BASE);
            return Err(error);
        }
        self.zeroed(frame, 1);
        Ok(())
    }

    /// Maps a page at frames of the process or of an object. If the same frames are mapped there already,
    /// only with other permissions or another size, accessed and dirty bits are kept.
    ///
    /// # Errors
    ///
    /// If there are no frames for its page table.
    pub fn map(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let written = space.table.map(page, size, frame, rights, &mut self.frames)?;
        self.counters.entries_written += written.entries;
        Ok(())
    }

    /// Records that the mappings of a process in a range have changed.
    pub(crate) fn mappings_changed(&mut self, process: ProcessId, pages: &Pages) {
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        space.table.mappings_changed(pages, &space.vmas, &mut self.frames);
    }

    /// The number of areas of sorted page-table nodes that hardware knows, if nodes are sorted.
    pub fn sorted_areas(&self) -> Option<u64> {
        self.format.sorted?;
        Some(self.processes.iter().flatten().filter_map(|space| space.table.sorted_areas()).sum())
    }

    /// Counters of what designs add: the tables that hardware walks, of all processes, and the placement of frames.
    pub fn design_counters(&self) -> Vec<DesignCounter> {
        let mut counters = self.all_design_counters();
        for counter in &mut counters {
            counter.value -= value_of(&self.excluded_events, counter.name);
        }
        counters
    }

    /// Excludes events since [`Memory::design_counters`] has returned `before`.
    pub(crate) fn exclude_design_events_since(&mut self, before: &[DesignCounter]) {
        let mut events = self.all_design_counters();
        events.retain(|counter| !counter.is_level);
        events.iter_mut().for_each(|counter| counter.value -= value_of(before, counter.name));
        self.excluded_events = events;
    }

    fn all_design_counters(&self) -> Vec<DesignCounter> {
        let mut sums = self.of_ended_tables.clone();
        self.processes.iter().flatten().for_each(|space| space.table.add_counters(&mut sums));
        sums.extend(self.placement.iter().flat_map(|placement| placement.counters()));
        sums
    }

    /// The number of ranges of contiguous pages, if the format of page tables keeps them.
    pub fn ranges(&self) -> Option<u64> {
        let count =
            |process: &Process| process.table.ranges().map_or(0, |ranges| ranges.len() as u64);
        self.format.keeps_ranges.then(|| self.processes.iter().flatten().map(count).sum())
    }

    /// The live processes.
    pub fn live(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let numbered = self.processes.iter().enumerate();
        let live = numbered.filter(|(_, process)| process.is_some());
        live.map(|(number, _)| ProcessId(number as u16))
    }
}

fn frames_of(leaf: &Leaf) -> impl Iterator<Item = FrameNumber> + use<> {
    let first = leaf.frame;
    (0..base_pages(leaf.size)).map(move |number| first.plus(number))
}
