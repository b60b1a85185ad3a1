//! One stream, checked as it passes.

use std::collections::BTreeMap;

use octavo_types::{
    AddrRange, AddressWidth, Consumer, Event, FetchPage, Item, ItemKind, MapSource, PageNumber,
    PageSize, Segment, VirtAddr,
};
use rustc_hash::FxHashSet;

use super::KEPT_OF_A_KIND;
use super::finding::{Finding, FindingKind};
use super::rights::{Rights, RightsMap};
use crate::ring::{Start, StreamConsumer};
use crate::source::Place;
use crate::stream::Ended;

/// How many threads are kept apart; in a trace with more, threads are not checked.
const MAX_THREADS: usize = 1 << 20;
/// How many findings of one execution may wait for the signal that would excuse them.
const MAX_PENDING: usize = 64;
/// The widest addresses that there are.
const WIDTH: AddressWidth = AddressWidth::LA57;
const SIGBUS: u32 = 7;
const SIGSEGV: u32 = 11;

/// Checks one stream as a consumer of it.
#[derive(Default)]
pub struct StreamChecker {
    stream: u32,
    rights: RightsMap,
    /// Mappings were recorded before anything executed, so that all of them are known.
    knows_mappings: bool,
    /// At least one mapping was recorded.
    has_mappings: bool,
    has_executed: bool,
    /// The threads that run or may run.
    threads: FxHashSet<u32>,
    /// After a fork the forking thread goes on, under a number that no event gives.
    may_adopt_thread: bool,
    exited: bool,
    instructions: u64,
    references: u64,
    /// Executions in the current batch.
    executions: usize,
    /// Findings of the last execution, which count unless a signal follows.
    pending: Vec<Waiting>,
    /// The first confirmed findings of each kind.
    found: Vec<Waiting>,
    /// The number of confirmed findings of each kind.
    counts: BTreeMap<FindingKind, u64>,
}

/// A finding, and the execution of the batch that it is about, until its place is known.
struct Waiting {
    finding: Finding,
    execution: Option<usize>,
}

impl StreamChecker {
    /// A checker for the stream of this number.
    pub fn new(stream: u32, forked: bool) -> Self {
        StreamChecker {
            stream,
            // The first thread needs no start.
            threads: if forked { FxHashSet::default() } else { FxHashSet::from_iter([1]) },
            may_adopt_thread: forked,
            ..Self::default()
        }
    }

    /// Whether the stream has recorded any mapping.
    pub fn has_mappings(&self) -> bool {
        self.has_mappings
    }

    /// How many instructions it has seen.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// How many fetches, loads and stores it has seen.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Ends a batch: gives each finding of the batch its place in the trace. `places` are the
    /// places of its executions, `whole` is the place of the batch.
    pub fn locate_findings(&mut self, places: &[Place], whole: Place) {
        for waiting in self.found.iter_mut().chain(&mut self.pending) {
            if let Some(execution) = waiting.execution.take() {
                waiting.finding.place = places.get(execution).copied().unwrap_or(whole);
            }
        }
        self.executions = 0;
    }

    /// The stream is over. `expected` is how many instructions the trace states for it.
    pub fn end(&mut self, ended: Option<Ended>, expected: Option<u64>) {
        match ended {
            // The fatal signal explains the last findings.
            Some(Ended::Signal) => self.pending.clear(),
            _ => self.confirm(),
        }
        if let Some(expected) = expected.filter(|expected| *expected != self.instructions) {
            let counted = self.instructions;
            let what = format!("the trace states {expected} instructions and holds {counted}");
            self.find(FindingKind::InstructionCount, None, || what);
        }
    }

    /// Takes the confirmed findings since the last call, of each kind only the first ones.
    pub fn take(&mut self) -> impl Iterator<Item = Finding> + '_ {
        self.found.drain(..).map(|waiting| waiting.finding)
    }

    /// How many findings there are of each kind.
    pub fn counts(&self) -> &BTreeMap<FindingKind, u64> {
        &self.counts
    }

    pub(super) fn undecodable(&mut self, place: Place, what: String) {
        self.find(FindingKind::Undecodable, None, || what);
        self.locate_findings(&[], place);
    }

    /// Confirms the findings of the last execution, which no signal has excused.
    fn confirm(&mut self) {
        for waiting in self.pending.drain(..) {
            let count = self.counts.entry(waiting.finding.kind).or_default();
            *count += 1;
            if *count <= KEPT_OF_A_KIND {
                self.found.push(waiting);
            }
        }
    }

    /// Adds a finding that a signal may still excuse.
    fn suspect(
        &mut self,
        kind: FindingKind,
        instruction: u64,
        addr: Option<VirtAddr>,
        describe: impl FnOnce() -> String,
    ) {
        let known = self.counts.get(&kind).copied().unwrap_or(0);
        let what = if known < KEPT_OF_A_KIND { describe() } else { String::new() };
        let (stream, place) = (self.stream, Place::Whole);
        let finding = Finding { kind, stream, instruction, addr, place, what };
        self.pending.push(Waiting { finding, execution: Some(self.executions) });
    }

    /// Adds a finding about an event or the order of events, which nothing excuses.
    fn find(
        &mut self,
        kind: FindingKind,
        addr: Option<VirtAddr>,
        describe: impl FnOnce() -> String,
    ) {
        self.confirm();
        self.suspect(kind, self.instructions, addr, describe);
        self.confirm();
    }

    /// Whether an execution is certainly sound; if not, [`Self::check_items`] checks each item.
    #[inline]
    fn is_sound(&mut self, segment: &Segment, addresses: &[VirtAddr]) -> bool {
        if !self.has_mappings {
            let is_canonical = |run: &FetchPage| {
                let wraps = run.spilled && run.page == PageNumber::default();
                !wraps && WIDTH.holds_all(&[run.page.raw() << PageSize::BASE.log2()])
            };
            return WIDTH.holds_all(VirtAddr::slice_to_raw(addresses))
                && segment.fetch_pages().iter().all(is_canonical);
        }
        let mut sound = WIDTH.holds_all(VirtAddr::slice_to_raw(addresses));
        for run in segment.fetch_pages() {
            sound &= self.rights.of(run.page).is_some_and(Rights::executable);
        }
        for (item, addr) in segment.data().iter().zip(addresses) {
            if item.guarded && *addr == VirtAddr::NULL {
                continue;
            }
            let allows =
                if item.loads == item.references { Rights::readable } else { Rights::writable };
            let page = addr.page(PageSize::BASE);
            sound &= self.rights.of(page).is_some_and(allows);
            let last = addr.wrapping_add(u64::from(item.size_bytes) - 1).page(PageSize::BASE);
            sound &= last == page || self.rights.of(last).is_some_and(allows);
        }
        sound
    }

    /// Checks each item of an execution.
    #[cold]
    fn check_items(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let mut addresses = addresses.iter();
        let mut fetches = 0u64;
        for item in segment.items() {
            let addr = if item.kind == ItemKind::Fetch {
                fetches += 1;
                item.addr
            } else {
                *addresses.next().expect("one address for each data item")
            };
            if item.guarded && addr == VirtAddr::NULL {
                continue;
            }
            if let Some((kind, what)) = self.fault_of(item, addr)
                && self.pending.len() < MAX_PENDING
            {
                // Data before any fetch belongs to the instruction before.
                let instruction = (self.instructions + fetches).saturating_sub(1);
                self.suspect(kind, instruction, Some(addr), || describe(item, addr, what));
            }
        }
    }

    /// The rule that an item breaks, if any.
    fn fault_of(&mut self, item: &Item, addr: VirtAddr) -> Option<(FindingKind, &'static str)> {
        let last = addr.wrapping_add(u64::from(item.size_bytes) - 1);
        if !WIDTH.holds(addr, item.size_bytes) {
            return Some((FindingKind::NotCanonical, "at an address that is not canonical"));
        }
        for page in [addr, last].map(|addr| addr.page(PageSize::BASE)) {
            let Some(rights) = self.rights.of(page) else {
                if self.knows_mappings && self.rights.is_known() {
                    return Some((FindingKind::Unmapped, "where nothing is mapped"));
                }
                continue;
            };
            let (reads, writes) = match item.kind {
                ItemKind::Fetch if !rights.executable() => {
                    return Some((FindingKind::NotExecutable, "of memory that is not executable"));
                }
                ItemKind::Fetch => continue,
                ItemKind::Load => (true, false),
                ItemKind::Store => (false, true),
                ItemKind::Modify => (true, true),
            };
            if reads && !rights.readable() {
                return Some((FindingKind::NotReadable, "of memory that is not readable"));
            }
            if writes && !rights.writable() {
                return Some((FindingKind::NotWritable, "of memory that is not writable"));
            }
        }
        None
    }

    fn thread_starts(&mut self, thread: u32) {
        if self.threads.len() < MAX_THREADS {
            self.threads.insert(thread);
        }
    }

    fn thread_runs(&mut self, thread: u32) {
        if self.threads.contains(&thread) || self.threads.len() >= MAX_THREADS {
            return;
        }
        if std::mem::take(&mut self.may_adopt_thread) {
            self.threads.insert(thread);
            return;
        }
        self.find(FindingKind::ThreadOrder, None, || {
            format!("thread {thread} runs, which was not started or has ended")
        });
    }

    /// Checks a range of memory that an event names.
    fn must_be_canonical(&mut self, range: AddrRange, event: &Event) {
        if WIDTH.fold_range(range) != range {
            self.find(FindingKind::NotCanonical, Some(range.start()), || {
                let (start, end) = (range.start(), range.end());
                format!("{} of {start} to {end}, which are not canonical addresses", name_of(event))
            });
        }
    }

    /// Checks that a range which an event changes is mapped.
    fn must_be_mapped(&mut self, range: AddrRange, what: &str) {
        if !self.knows_mappings || !self.rights.is_known() || range.is_empty() {
            return;
        }
        if let Some(gap) = self.rights.first_gap(range) {
            self.find(FindingKind::MappingOrder, Some(gap), || {
                let (start, end) = (range.start(), range.end());
                format!("{what} of {start} to {end}, of which {gap} is not mapped")
            });
        }
    }
}

impl StreamConsumer for StreamChecker {
    fn width(&self) -> Option<AddressWidth> {
        None
    }

    fn started(&mut self, start: &Start) {
        self.rights.start(start.stack);
    }
}

impl Consumer for StreamChecker {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        if !self.pending.is_empty() {
            self.confirm();
        }
        if self.exited {
            self.find(FindingKind::AfterExit, None, || {
                "instructions after the process has exited".to_owned()
            });
        }
        self.has_executed = true;
        if !self.is_sound(segment, addresses) {
            self.check_items(segment, addresses);
        }
        self.instructions += u64::from(segment.instructions());
        self.references += segment.references(addresses);
        self.executions += 1;
    }

    fn event(&mut self, event: &Event) {
        if self.exited {
            self.find(FindingKind::AfterExit, None, || {
                format!("{} after the process has exited", name_of(event))
            });
        }
        for range in event.ranges() {
            self.must_be_canonical(range, event);
        }
        match event {
            Event::Map { range, protection, source, .. } => {
                self.has_mappings = true;
                self.knows_mappings |= !self.has_executed;
                if *source == MapSource::Stack {
                    self.rights.stack(*range);
                }
                self.rights.set(*range, Some((*protection).into()));
            }
            Event::Unmap { range } => self.rights.set(*range, None),
            Event::Remap { from, to } => {
                self.must_be_mapped(*from, "a remapping");
                self.rights.remap(*from, *to);
            }
            Event::Protect { range, protection } => {
                self.must_be_mapped(*range, "a protection");
                self.rights.set(*range, Some((*protection).into()));
            }
            Event::ThreadStart { thread } => self.thread_starts(*thread),
            Event::ThreadSwitch { thread } => self.thread_runs(*thread),
            Event::ThreadEnd { thread } => drop(self.threads.remove(thread)),
            Event::Signal { signal: SIGBUS | SIGSEGV } => self.pending.clear(),
            Event::Exit { .. } => self.exited = true,
            _ => {}
        }
    }
}

fn describe(item: &Item, addr: VirtAddr, what: &str) -> String {
    let size = item.size_bytes;
    let kind = match item.kind {
        ItemKind::Fetch => "a fetch",
        ItemKind::Load => "a load",
        ItemKind::Store => "a store",
        ItemKind::Modify => "a load and store",
    };
    format!("{kind} of {size} bytes at {addr} {what}")
}

fn name_of(event: &Event) -> &'static str {
    match event {
        Event::Map { .. } => "a mapping",
        Event::Unmap { .. } => "an unmapping",
        Event::Remap { .. } => "a remapping",
        Event::Protect { .. } => "a protection",
        Event::Advise { .. } => "an advice",
        Event::ThreadStart { .. } => "a thread's start",
        Event::ThreadSwitch { .. } => "a thread's turn",
        Event::ThreadEnd { .. } => "a thread's end",
        Event::Fork { .. } => "a fork",
        Event::Exec { .. } => "an exec",
        Event::Signal { .. } => "a signal",
        Event::Mark { .. } => "a mark",
        Event::Translation { .. } => "a translation",
        Event::WindowBegin { .. } => "a window's begin",
        Event::WindowEnd { .. } => "a window's end",
        Event::AllocationStack { .. } => "an allocation's stack",
        Event::Allocate { .. } => "an allocation",
        Event::Release { .. } => "a block's release",
        Event::Present { .. } => "memory that is present",
        Event::Exit { .. } => "another exit",
    }
}
