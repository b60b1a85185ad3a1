//! Page walkers: which entries a walk reads, by what the walker of a core has cached.
//!
//! A walk may prefetch entries: it requests their lines when it begins or some cycles later, all at once, at addresses
//! that are known without a walk. The walk still reads its entries one after another. The read of a prefetched entry hits the cache
//! that the prefetch has filled, or waits until the line arrives, if that is later. Lines that the walk does not read
//! delay nothing.
//!
//! A design with radix trees of its own may leave the rest of a walk to the walk caches of the core ([`WalkPlan::radix`]).
//! In a guest, hardware may know where entries of the guest's table lie in the host's memory ([`WalkPlan::probe_in_run`]).

use octavo_hw::{Asid, WalkCaches};
use octavo_os::page_table::{PageTable, SORTED_LEVELS, Step, Walk};
use octavo_os::{Memory, ProcessId};
use octavo_types::{AddrRange, PageNumber, PhysAddr};

use super::walk::page_start;
use crate::counters::Counters;

/// The reads of a walk, in groups of probes. The probes of a group are issued together, and groups one after
/// another, so that a walk takes the sum over its groups of the slowest probe.
#[derive(Default)]
pub struct WalkPlan {
    probes: Vec<Probe>,
    group: u32,
    /// The entries of a radix tree, from the root on, that end the walk.
    radix: Vec<Step>,
    /// The entry that holds the accessed and dirty bits of the page; `None` if the walk finds none.
    pub entry: Option<PhysAddr>,
    /// Reads that the walk does not wait for.
    pub background: Vec<PhysAddr>,
    /// Cycles before the first probe: hashing, and look-ups of the walker's own caches.
    pub start_cycles: u32,
    /// Entries that are prefetched.
    pub prefetches: Prefetches,
    /// Cycles from the first probe until they are requested.
    pub prefetch_start_cycles: u32,
    /// Whether hardware requests them in the frames of a host that its placement lets it
    /// [assume](octavo_os::Placement::assumed_frame).
    pub assumes_frames: bool,
}

/// The addresses of entries that a walk prefetches.
pub type Prefetches = [Option<PhysAddr>; SORTED_LEVELS];

/// The memory that a walk reads.
pub(super) trait WalkReads {
    /// Reads the entry at an address; `is_entry` if it holds the page's accessed and dirty bits. Returns the latency in
    /// cycles, including a translation of the address by the host, and the entry's address in the machine's memory.
    /// `None` when memory has run out.
    fn read(&mut self, at: PhysAddr, is_entry: bool) -> Option<(u32, PhysAddr)>;

    /// As [`WalkReads::read`], for an entry in a run of tables: if the run is contiguous in the machine's memory,
    /// hardware knows the address there, and the host translates nothing.
    fn read_in_run(&mut self, at: PhysAddr, is_entry: bool) -> Option<(u32, PhysAddr)> {
        self.read(at, is_entry)
    }

    /// Prefetches the line of an entry, with `assumes_frames` in an assumed frame of a host. Returns as
    /// [`WalkReads::read`] does, or `None` if hardware does not know the address.
    fn prefetch(&mut self, at: PhysAddr, assumes_frames: bool) -> Option<(u32, PhysAddr)>;

    /// Counts a prefetched entry that the walk reads.
    fn use_prefetch(&mut self);
}

/// The prefetches of a walk.
struct InFlight {
    /// Cycles from the first read until they are requested.
    start_cycles: u32,
    /// Their addresses and latencies in cycles.
    lines: [Option<(PhysAddr, u32)>; SORTED_LEVELS],
}

impl InFlight {
    fn send(
        prefetches: Prefetches,
        (start_cycles, assumes_frames): (u32, bool),
        reads: &mut impl WalkReads,
    ) -> Self {
        let lines = prefetches.map(|at| {
            let (latency_cycles, place) = reads.prefetch(at?, assumes_frames)?;
            Some((place, latency_cycles))
        });
        InFlight { start_cycles, lines }
    }

    /// The latency in cycles of the read of an entry that begins `since_cycles` after the first read: if the entry is
    /// being prefetched, the read waits for the line. The earlier of both requests brings it.
    fn read(
        &self,
        (latency_cycles, place): (u32, PhysAddr),
        since_cycles: u32,
        reads: &mut impl WalkReads,
    ) -> u32 {
        let prefetch = self.lines.iter().flatten().find(|(at, _)| *at == place);
        let Some((_, prefetch_cycles)) = prefetch else { return latency_cycles };
        reads.use_prefetch();
        let arrival_cycles = self.start_cycles.min(since_cycles) + prefetch_cycles;
        latency_cycles.max(arrival_cycles.saturating_sub(since_cycles))
    }
}

/// A read of a page-table entry.
#[derive(Clone, Copy)]
struct Probe {
    at: PhysAddr,
    group: u32,
    /// Whether the entry is in a run of tables: hardware knows its address if the run is contiguous in the machine's
    /// memory.
    is_in_run: bool,
}

impl WalkPlan {
    /// Adds a probe to the last group.
    pub fn probe(&mut self, at: PhysAddr) {
        self.probes.push(Probe { at, group: self.group, is_in_run: false });
    }

    /// Adds a probe of an entry of a run of tables to the last group. In a guest whose host has backed the run
    /// ([noted](octavo_os::frames::Frames::note_contiguous_tables)) with contiguous frames, the probe needs no
    /// translation by the host.
    pub fn probe_in_run(&mut self, at: PhysAddr) {
        self.probes.push(Probe { at, group: self.group, is_in_run: true });
    }

    /// Ends the walk with the entries of a radix tree, from the root on. After all probes so far, the walk reads the
    /// entries that the walk caches do not skip, one after another.
    pub fn radix(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.radix.extend(steps);
    }

    /// Ends the walk in the radix tree of the operating system ([`WalkPlan::radix`]), and with its entry.
    pub fn walk_radix(&mut self, request: &WalkRequest<'_>) {
        let steps = request.radix.steps();
        self.entry = steps.last().map(|step| step.at);
        self.radix(steps.iter().copied());
    }

    /// Adds probes of the radix entries from index `first` on, one after another.
    fn probe_radix(&mut self, first: usize) {
        for step in first..self.radix.len() {
            self.wait();
            self.probe(self.radix[step].at);
        }
    }

    /// Begins a new group, which waits for the groups before it.
    pub fn wait(&mut self) {
        self.group += 1;
    }

    fn clear(&mut self) {
        self.probes.clear();
        self.radix.clear();
        self.background.clear();
        (self.group, self.entry, self.start_cycles) = (0, None, 0);
        (self.prefetches, self.prefetch_start_cycles) = (Prefetches::default(), 0);
        self.assumes_frames = false;
    }

    /// As [`Planned::execute`].
    fn execute(&self, reads: &mut impl WalkReads) -> Option<u32> {
        let in_flight = InFlight::send(
            self.prefetches,
            (self.prefetch_start_cycles, self.assumes_frames),
            reads,
        );
        let (mut total, mut slowest, mut group) = (0, 0, 0);
        for probe in &self.probes {
            if probe.group != group {
                total += slowest;
                (slowest, group) = (0, probe.group);
            }
            let is_entry = self.entry == Some(probe.at);
            let read = match probe.is_in_run {
                true => reads.read_in_run(probe.at, is_entry)?,
                false => reads.read(probe.at, is_entry)?,
            };
            slowest = slowest.max(in_flight.read(read, total, reads));
        }
        for at in &self.background {
            reads.read(*at, false)?;
        }
        Some(self.start_cycles + total + slowest)
    }
}

/// A base page to be translated, and the memory that its process has it in: the guest's, or the host's with the virtual
/// machine as the process.
#[derive(Clone, Copy)]
pub struct WalkRequest<'m> {
    /// The memory.
    pub memory: &'m Memory,
    /// The process.
    pub process: ProcessId,
    /// The tag of the process in the caches of the walker.
    pub asid: Asid,
    /// The page.
    pub page: PageNumber,
    /// The entries of the operating system's radix tree. There are none if hardware walks another table.
    pub radix: &'m Walk,
}

impl<'m> WalkRequest<'m> {
    /// The page table of the process.
    #[inline(always)]
    pub fn table(&self) -> &'m PageTable {
        &self.memory.process(self.process).table
    }
}

/// The walker of a core, for page tables in a format of the design or for radix trees.
pub trait Walker: Send {
    /// Plans the walk of a base page, and updates the walker's caches.
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan);

    /// Drops entries for a range of addresses that the walker itself caches; there are none unless it says so.
    fn invalidate(&mut self, _asid: Asid, _range: AddrRange) {}

    /// Drops all entries that the walker itself caches.
    fn clear(&mut self) {}

    /// Adds the counters of the walker's caches to `counters`, under components that begin with `component`.
    fn report(&self, component: &str, counters: &mut Counters);

    /// Whether plans end in walks of radix trees, which the walk caches of the core serve.
    fn uses_walk_caches(&self) -> bool {
        false
    }
}

/// The page walker of a core: for radix trees with walk caches, or the design's own.
pub(super) struct PageWalker {
    pub caches: WalkCaches<()>,
    own: Option<Box<dyn Walker>>,
    /// Memory for the next plan of the design's walker.
    unused: WalkPlan,
}

/// The reads of a walk.
pub(super) enum Planned {
    /// The steps of a radix tree's walk from this index on, each a group of its own.
    Steps(usize),
    /// As `Steps`, with prefetches of entries of sorted nodes.
    Prefetching(usize, Prefetches),
    /// The plan of the design's walker.
    Own(WalkPlan),
}

impl Planned {
    /// Executes the reads. Returns the latency of the walk in cycles, or `None` when memory has run out.
    #[inline(always)]
    pub fn execute(&self, walk: &Walk, reads: &mut impl WalkReads) -> Option<u32> {
        let first = match self {
            Planned::Steps(first) => *first,
            Planned::Prefetching(first, prefetches) => {
                return execute_prefetching(walk, *first, *prefetches, reads);
            }
            Planned::Own(plan) => return plan.execute(reads),
        };
        let steps = walk.steps();
        let mut latency_cycles = 0;
        for (number, step) in steps.iter().enumerate().skip(first) {
            latency_cycles += reads.read(step.at, number + 1 == steps.len())?.0;
        }
        Some(latency_cycles)
    }
}

fn execute_prefetching(
    walk: &Walk,
    first: usize,
    prefetches: Prefetches,
    reads: &mut impl WalkReads,
) -> Option<u32> {
    let in_flight = InFlight::send(prefetches, (0, false), reads);
    let steps = walk.steps();
    let mut latency_cycles = 0;
    for (number, step) in steps.iter().enumerate().skip(first) {
        let read = reads.read(step.at, number + 1 == steps.len())?;
        latency_cycles += in_flight.read(read, latency_cycles, reads);
    }
    Some(latency_cycles)
}

impl PageWalker {
    /// A walker of radix trees.
    pub fn new(caches: WalkCaches<()>) -> Self {
        PageWalker { caches, own: None, unused: WalkPlan::default() }
    }

    /// Replaces the walker of radix trees.
    pub fn replace(&mut self, own: Box<dyn Walker>) {
        self.own = Some(own);
    }

    /// The walker of the design, if any.
    pub fn own(&self) -> Option<&dyn Walker> {
        self.own.as_deref()
    }

    /// Plans the walk of a base page by the caches of the walker, and updates them.
    #[inline(always)]
    pub fn plan(&mut self, request: &WalkRequest<'_>) -> Planned {
        if self.own.is_some() {
            return self.plan_own(request);
        }
        let WalkRequest { asid, page, .. } = *request;
        let first = first_read(&mut self.caches, request.radix.steps(), (asid, page));
        match request.table().sorted_entries(page) {
            [None, None] => Planned::Steps(first),
            prefetches => Planned::Prefetching(first, prefetches),
        }
    }

    #[cold]
    fn plan_own(&mut self, request: &WalkRequest<'_>) -> Planned {
        let own = self.own.as_mut().expect("a walker of the design");
        let mut plan = std::mem::take(&mut self.unused);
        plan.clear();
        own.plan(request, &mut plan);
        if !plan.radix.is_empty() {
            let first = first_read(&mut self.caches, &plan.radix, (request.asid, request.page));
            plan.probe_radix(first);
        }
        Planned::Own(plan)
    }

    /// Takes the memory of an executed plan back.
    #[inline(always)]
    pub fn reuse(&mut self, planned: Planned) {
        if let Planned::Own(plan) = planned {
            self.unused = plan;
        }
    }

    /// Drops cached entries for a range of addresses.
    pub fn invalidate(&mut self, asid: Asid, range: AddrRange) {
        self.caches.invalidate(asid, range);
        if let Some(own) = &mut self.own {
            own.invalidate(asid, range);
        }
    }

    /// Drops all cached entries.
    pub fn clear(&mut self) {
        self.caches.clear();
        if let Some(own) = &mut self.own {
            own.clear();
        }
    }
}

/// The index of the first entry of a radix tree that the walk caches do not skip. Fills the walk caches from that entry
/// on.
#[inline(always)]
fn first_read(
    caches: &mut WalkCaches<()>,
    steps: &[Step],
    (asid, page): (Asid, PageNumber),
) -> usize {
    let addr = page_start(page);
    let deepest = caches.deepest(asid, addr).map_or(u8::MAX, |(level, ())| level);
    let first = steps.iter().take_while(|step| step.level >= deepest).count();
    debug_assert!(first < steps.len(), "a stale walk cache");
    for (step, next) in steps.iter().zip(&steps[1..]).skip(first) {
        // An entry that points to a node of the next level, not an alias.
        if next.level < step.level {
            caches.fill(asid, addr, step.level, ());
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use octavo_os::frames::{Frames, MemoryShape, Order};
    use octavo_os::page_table::Format;
    use octavo_types::{FrameNumber, Instructions, PageSize, Protection};

    use super::*;
    use crate::config::resolve;

    const HIT: u32 = 4;
    const MEMORY: u32 = 200;

    /// A memory behind a cache that keeps all lines, each of one entry.
    #[derive(Default)]
    struct Cached {
        held: Vec<PhysAddr>,
        used: u32,
        /// Whether hardware does not know the addresses of entries in advance.
        cannot_prefetch: bool,
    }

    impl Cached {
        fn look_up(&mut self, at: PhysAddr) -> (u32, PhysAddr) {
            let latency_cycles = if self.held.contains(&at) { HIT } else { MEMORY };
            self.held.push(at);
            (latency_cycles, at)
        }
    }

    impl WalkReads for Cached {
        fn read(&mut self, at: PhysAddr, _is_entry: bool) -> Option<(u32, PhysAddr)> {
            Some(self.look_up(at))
        }

        fn prefetch(&mut self, at: PhysAddr, _: bool) -> Option<(u32, PhysAddr)> {
            (!self.cannot_prefetch).then(|| self.look_up(at))
        }

        fn use_prefetch(&mut self) {
            self.used += 1;
        }
    }

    /// The walk of a page, with the addresses of its entries of levels 1 and 2.
    fn walk() -> (Walk, [PhysAddr; 2]) {
        let mut frames = Frames::new(MemoryShape::new(64, Order::BASE).unwrap());
        let mut table = PageTable::new(Format::default(), None, &mut frames).unwrap();
        let (page, frame) = (PageNumber::new(5), FrameNumber::new(60));
        let rights = Protection::from_bits(1);
        table.map(page, PageSize::BASE, frame, rights, &mut frames).unwrap();
        let walk = table.walk(page);
        (walk, [walk.steps()[3].at, walk.steps()[2].at])
    }

    /// The latency of a walk from a step on, and how many prefetches it uses.
    fn executed(first: usize, prefetches: Prefetches, memory: Cached) -> (u32, u32) {
        let mut memory = memory;
        let planned = Planned::Prefetching(first, prefetches);
        let latency_cycles = planned.execute(&walk().0, &mut memory).unwrap();
        (latency_cycles, memory.used)
    }

    #[test]
    fn prefetches_overlap_the_steps_before() {
        let [leaf, upper] = walk().1.map(Some);
        let run = |first, prefetches| executed(first, prefetches, Cached::default());
        assert_eq!(run(0, [None, None]), (4 * MEMORY, 0));
        // Both lines have arrived when they are read.
        assert_eq!(run(0, [leaf, upper]), (2 * MEMORY + 2 * HIT, 2));
        assert_eq!(run(0, [leaf, None]), (3 * MEMORY + HIT, 1));
        assert_eq!(run(0, [None, upper]), (3 * MEMORY + HIT, 1));
        // The first step waits for a prefetch that began when it did, and the next one hits.
        assert_eq!(run(2, [leaf, upper]), (MEMORY + HIT, 2));
        assert_eq!(run(3, [leaf, upper]), (MEMORY, 1));
    }

    #[test]
    fn prefetches_of_other_lines_delay_nothing() {
        let [leaf, _] = walk().1.map(Some);
        let other = Some(PhysAddr::new(0x3_f000));
        assert_eq!(executed(0, [other, other], Cached::default()), (4 * MEMORY, 0));
        let memory = Cached { cannot_prefetch: true, ..Cached::default() };
        assert_eq!(executed(0, [leaf, other], memory), (4 * MEMORY, 0));
    }

    #[test]
    fn walk_waits_for_a_late_prefetch() {
        let (walk, [leaf, upper]) = walk();
        // The upper three entries hit. The prefetch of the last entry began with the read of the first.
        let held = vec![walk.steps()[0].at, walk.steps()[1].at, upper];
        let memory = Cached { held, ..Cached::default() };
        let expected = 3 * HIT + (MEMORY - 3 * HIT);
        assert_eq!(executed(0, [Some(leaf), Some(upper)], memory), (expected, 2));
    }

    #[test]
    fn plans_of_designs_prefetch_with_their_first_probe() {
        let [first, second, third] = [0x1000, 0x2000, 0x3000].map(PhysAddr::new);
        let mut plan = WalkPlan { start_cycles: 7, ..WalkPlan::default() };
        plan.probe(first);
        plan.wait();
        plan.probe(second);
        plan.probe(third);
        let latency = |plan: &WalkPlan| plan.execute(&mut Cached::default()).unwrap();
        assert_eq!(latency(&plan), 7 + 2 * MEMORY);
        plan.prefetches = [Some(second), Some(third)];
        assert_eq!(latency(&plan), 7 + MEMORY + HIT);
        plan.prefetches = [Some(second), None];
        assert_eq!(latency(&plan), 7 + 2 * MEMORY);
    }

    #[test]
    fn prefetches_that_begin_later_arrive_later_but_delay_no_read() {
        let [first, second] = [0x1000, 0x2000].map(PhysAddr::new);
        let mut plan = WalkPlan { prefetch_start_cycles: 30, ..WalkPlan::default() };
        plan.probe(first);
        plan.wait();
        plan.probe(second);
        let latency = |plan: &WalkPlan| plan.execute(&mut Cached::default()).unwrap();
        plan.prefetches = [Some(second), None];
        // It arrives 30 cycles after the read that it overlaps.
        assert_eq!(latency(&plan), MEMORY + 30);
        // The read itself comes first.
        plan.prefetches = [Some(first), None];
        assert_eq!(latency(&plan), 2 * MEMORY);
    }

    /// Plans two probes of a group and then the walk of a radix tree.
    struct ProbesFirst(Vec<Step>);

    impl Walker for ProbesFirst {
        fn plan(&mut self, _: &WalkRequest<'_>, plan: &mut WalkPlan) {
            plan.probe(PhysAddr::new(0x3_0000));
            plan.probe(PhysAddr::new(0x3_1000));
            plan.radix(self.0.iter().copied());
        }

        fn report(&self, _: &str, _: &mut Counters) {}
    }

    #[test]
    fn plans_of_designs_end_in_radix_trees_that_walk_caches_shorten() {
        let frames = Frames::new(MemoryShape::new(64, Order::BASE).unwrap());
        let mut memory = Memory::new(frames, &[], Format::default());
        let process = memory.spawn().unwrap();
        let caches = &resolve::<&str>("skylake", &[]).unwrap().into_config().walker.walk_caches();
        let mut walker = PageWalker::new(WalkCaches::new(caches, Instructions::PORTABLE).unwrap());
        walker.replace(Box::new(ProbesFirst(walk().0.steps().to_vec())));
        // The probes, then four entries one after another; with filled walk caches, the probes and the last entry.
        for reads in [4, 1] {
            let (radix, _) = &walk();
            let (asid, page) = (Asid::ONLY, PageNumber::new(5));
            let request = WalkRequest { memory: &memory, process, asid, page, radix };
            let planned = walker.plan(&request);
            let latency = planned.execute(radix, &mut Cached::default());
            assert_eq!(latency, Some(MEMORY + reads * MEMORY));
            walker.reuse(planned);
        }
    }
}
