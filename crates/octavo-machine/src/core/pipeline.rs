//! An out-of-order core, in one pass over the instructions in program order: each gets the cycles of its fetch,
//! dispatch, execution and commit from those of the instructions before it.
//!
//! - Fetch: `width` instructions a cycle, none in the cycle of a taken branch behind it, none before a
//!   mispredicted branch is resolved, and at most `fetch_buffer` instructions ahead of dispatch. Misses of
//!   fetches stop it.
//! - Dispatch: in order, `front_end_cycles` later, when reorder buffer, registers, load queue and store
//!   queue have room.
//! - Execution: when all producers are complete, in a free slot of the issue width and of the load or store
//!   ports. An instruction takes a cycle; a load completes when its data comes, a store when its address is
//!   translated.
//! - Software that serves a miss interrupts the program: it begins when all instructions before are committed,
//!   and the instruction is fetched again behind it.
//! - A load pays the look-ups of later TLB levels, then the walk, then the line. Walks of one page and misses
//!   of one line are merged. A walk takes one of the core's walkers, a miss one of the outstanding misses of
//!   each level that it misses, a line from memory its bank and channel. All are given in program order, to the
//!   earliest time that is free.
//! - Commit: in order, `commit_width` a cycle. Stores then enter the data cache in order.
//!
//! The machine has played the accesses in program order and gives the cost of each walk and line. If a
//! later instruction uses the page or line before the instruction that missed does, the miss is its own.
//!
//! Cores of equal widths, queues and latencies, which execute one program in several machines, are the *lanes* of
//! one pass: each time is an array with an element for each lane, and words are decoded once. What accesses cost
//! differs by lane.

use octavo_config::{MachineConfig, PipelineConfig};
use octavo_types::{Compiled, Instructions};

use super::calendar::{InOrder, Lanes, Slots, any_less, each, max, plus};
use super::memory_side::{Context, MemorySide};
use super::stack::{Part, Stack, Stacks};
use super::{Cost, Costs};
use crate::counters::Counters;
use crate::front::{
    Header, LineAccess, Lines, MAX_DISTANCE, Reference, Word, decode, each_distance,
};

/// Entries whose times are kept: more than any distance.
const RING: usize = (MAX_DISTANCE + 1) as usize;

/// The costs of a lane that is not in use.
static NO_COSTS: Costs =
    Costs { costs: Vec::new(), transfers: Vec::new(), prefetches: Vec::new(), has_handlers: false };

/// The properties of the cores of a machine.
#[derive(Clone, Debug)]
pub struct CoreSetup {
    machine: MachineConfig,
    pipeline: PipelineConfig,
    lines: Lines,
}

impl CoreSetup {
    /// The cores of a machine.
    pub fn new(machine: &MachineConfig, pipeline: &PipelineConfig, lines: Lines) -> Self {
        CoreSetup { machine: machine.clone(), pipeline: pipeline.clone(), lines }
    }

    /// The number of cores.
    pub fn count(&self) -> usize {
        self.machine.core.count as usize
    }

    /// Whether the cores of both can be lanes of a [`Pipeline`].
    pub fn is_like(&self, other: &CoreSetup) -> bool {
        let key = |of: &CoreSetup| (of.machine.cache.l1d.latency_cycles, of.count());
        self.pipeline == other.pipeline && key(self) == key(other)
    }

    /// The counters of a core that has executed nothing.
    pub fn counts(&self) -> CoreCounts {
        CoreCounts {
            rows: self.machine.dram.map(|_| [0; 2]),
            late_prefetches: (!self.machine.prefetchers().is_empty()).then_some([0; 2]),
            ..CoreCounts::default()
        }
    }
}

/// The counts of a core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CoreCounts {
    instructions: u64,
    taken: u64,
    mispredicted: u64,
    traps: u64,
    stack: Stack,
    /// Lines found in an open row, and lines for which another row had to be closed, if there is a memory.
    rows: Option<[u64; 2]>,
    /// For each level prefetches that were used before they had come, if there are prefetchers.
    late_prefetches: Option<[u64; 2]>,
}

impl CoreCounts {
    /// Adds the counters of the core.
    pub fn report(&self, counters: &mut Counters) {
        counters.add("core", "instructions", self.instructions);
        counters.add("core", "cycles", self.stack.total());
        counters.add("core", "branches_taken", self.taken);
        counters.add("core", "branches_mispredicted", self.mispredicted);
        counters.add("core", "traps", self.traps);
        self.stack.report(counters);
        if let Some([hits, conflicts]) = self.rows {
            counters.add("memory", "row_hits", hits);
            counters.add("memory", "row_conflicts", conflicts);
        }
        if let Some([l1d, l2]) = self.late_prefetches {
            counters.add("prefetch.l1d", "late", l1d);
            counters.add("prefetch.l2", "late", l2);
        }
    }
}

/// Cores of up to `N` machines, which execute one program.
pub struct Pipeline<const N: usize> {
    config: PipelineConfig,
    l1d_cycles: u64,
    /// Entries so far.
    entries: u64,
    /// Entries that continue the instruction before them.
    continuations: u64,
    taken: u64,
    mispredicted: u64,
    traps: Lanes<N>,
    /// By entry, in rings.
    times: Box<[Times<N>; RING]>,
    registers: u64,
    loads: u64,
    stores: u64,
    /// When each register written and each load committed, and each store entered the cache, in rings.
    register_ends: Box<[Lanes<N>; RING]>,
    load_ends: Box<[Lanes<N>; RING]>,
    store_ends: Box<[Lanes<N>; RING]>,
    fetch: InOrder<N>,
    dispatch: InOrder<N>,
    commit: InOrder<N>,
    drain: InOrder<N>,
    issue: Slots<N>,
    load_ports: Slots<N>,
    store_ports: Slots<N>,
    /// Of the lanes in use.
    memory: Vec<MemorySide>,
    /// When the last walk and the last line under way end in each lane.
    walks_end: Lanes<N>,
    lines_end: Lanes<N>,
    stacks: Stacks<N>,
    /// Room for the references of an entry.
    references: Vec<Referenced<N>>,
}

#[derive(Clone, Copy)]
struct Times<const N: usize> {
    dispatched: Lanes<N>,
    complete: Lanes<N>,
    committed: Lanes<N>,
}

/// The waits of an instruction, in the order in which they happened.
struct Waits<const N: usize> {
    branches: Lanes<N>,
    fetches: Lanes<N>,
    fetch_lookups: Lanes<N>,
    fetch_walks: Lanes<N>,
    stores: Lanes<N>,
    handlers: Lanes<N>,
    slowest: ReferenceWaits<N>,
}

impl<const N: usize> Waits<N> {
    #[inline(always)]
    fn new() -> Self {
        let none = [0; N];
        Waits {
            branches: none,
            fetches: none,
            fetch_lookups: none,
            fetch_walks: none,
            stores: none,
            handlers: none,
            slowest: ReferenceWaits::new(),
        }
    }
}

/// The waits of a reference.
#[derive(Clone, Copy)]
struct ReferenceWaits<const N: usize> {
    lookups: Lanes<N>,
    walks: Lanes<N>,
    data: Lanes<N>,
    /// The level that served the data, as a part of the stack.
    served: [Part; N],
}

impl<const N: usize> ReferenceWaits<N> {
    #[inline(always)]
    fn new() -> Self {
        ReferenceWaits { lookups: [0; N], walks: [0; N], data: [0; N], served: [Part::Base; N] }
    }

    /// Replaces the waits by others in the lanes where `new` is no earlier than `old`, and `old` by `new`.
    #[inline(always)]
    fn replace(&mut self, old: &mut Lanes<N>, new: &Lanes<N>, others: &Self) {
        let is_later: [bool; N] = std::array::from_fn(|lane| new[lane] >= old[lane]);
        let select = |a: &Lanes<N>, b: &Lanes<N>| {
            each(|lane| if is_later[lane] { b[lane] } else { a[lane] })
        };
        self.lookups = select(&self.lookups, &others.lookups);
        self.walks = select(&self.walks, &others.walks);
        self.data = select(&self.data, &others.data);
        let served = |lane| (if is_later[lane] { others.served } else { self.served })[lane];
        self.served = std::array::from_fn(served);
        *old = max(*old, *new);
    }
}

/// A reference of an entry. Fetches without a cost in any lane are left out.
#[derive(Clone, Copy)]
struct Referenced<const N: usize> {
    reference: Reference,
    access: LineAccess,
    /// The lanes in which it has a cost, a bit each.
    costly: u32,
    /// The places of the costs in these lanes.
    places: [u32; N],
}

impl<const N: usize> Referenced<N> {
    /// Its cost in a lane.
    #[inline(always)]
    fn cost(&self, lane: usize, costs: &[&Costs; N]) -> Option<Cost> {
        match self.costly >> lane & 1 {
            0 => None,
            _ => Some(costs[lane].costs[self.places[lane] as usize]),
        }
    }

    /// Calls a function for each lane in which it has a cost.
    #[inline(always)]
    fn each_cost(&self, costs: &[&Costs; N], mut of: impl FnMut(usize, Cost)) {
        let mut lanes = self.costly;
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            of(lane, costs[lane].costs[self.places[lane] as usize]);
            lanes &= lanes - 1;
        }
    }
}

/// The entry to be executed, without its references.
struct Entry<const N: usize> {
    header: Header,
    /// When all its producers are complete.
    operands: Lanes<N>,
    /// When the store is complete from which its loads take their value.
    forwarded: Option<Lanes<N>>,
}

/// The costs and the time at which an entry is executed.
struct Now<'a, const N: usize> {
    costs: &'a [&'a Costs; N],
    now: Lanes<N>,
}

impl<'a, const N: usize> Now<'a, N> {
    /// The counts of a lane.
    #[inline(always)]
    fn of(&self, lane: usize) -> Context<'a> {
        Context { costs: self.costs[lane], now: self.now[lane] }
    }
}

/// A part of a batch to be executed.
struct Execution<'a, const N: usize> {
    core: &'a mut Pipeline<N>,
    words: &'a [u32],
    accesses: &'a [LineAccess],
    first: usize,
    costs: &'a [&'a Costs; N],
}

impl<const N: usize> Compiled for Execution<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.core.execute_part(self.words, self.accesses, self.first, self.costs);
    }
}

impl<const N: usize> Pipeline<N> {
    /// Cores of machines with [equal](CoreSetup::is_like) ones, at most `N`, that have executed nothing.
    pub fn new(setups: &[&CoreSetup]) -> Self {
        assert!((1..=N).contains(&setups.len()), "a lane for each machine");
        let config = &setups[0].pipeline;
        let times = Times { dispatched: [0; N], complete: [0; N], committed: [0; N] };
        let memory_side =
            |of: &&CoreSetup| MemorySide::new(&of.machine, config.outstanding, of.lines);
        Pipeline {
            l1d_cycles: u64::from(setups[0].machine.cache.l1d.latency_cycles),
            entries: 0,
            continuations: 0,
            taken: 0,
            mispredicted: 0,
            traps: [0; N],
            times: Box::new([times; RING]),
            registers: 0,
            loads: 0,
            stores: 0,
            register_ends: Box::new([[0; N]; RING]),
            load_ends: Box::new([[0; N]; RING]),
            store_ends: Box::new([[0; N]; RING]),
            fetch: InOrder::new(config.width),
            dispatch: InOrder::new(config.width),
            commit: InOrder::new(config.commit_width),
            drain: InOrder::new(config.store_ports),
            issue: Slots::new(config.issue_width),
            load_ports: Slots::new(config.load_ports),
            store_ports: Slots::new(config.store_ports),
            memory: setups.iter().map(memory_side).collect(),
            walks_end: [0; N],
            lines_end: [0; N],
            stacks: Stacks::new(),
            references: Vec::new(),
            config: config.clone(),
        }
    }

    /// Executes a part of a batch: its words, all accesses of the batch, the number of the part's first access,
    /// and what the part's accesses cost in each lane in use.
    pub fn execute(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
        instructions: Instructions,
    ) {
        assert_eq!(costs.len(), self.memory.len(), "costs of each lane");
        let costs = &std::array::from_fn(|lane| costs.get(lane).copied().unwrap_or(&NO_COSTS));
        // One lane gains nothing from other instructions.
        if N == 1 {
            return self.execute_part(words, accesses, first, costs);
        }
        instructions.run(Execution { core: self, words, accesses, first, costs });
    }

    #[inline(always)]
    fn execute_part(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs; N],
    ) {
        let mut references = std::mem::take(&mut self.references);
        let mut fresh = 0;
        let access_of =
            |lane: usize, cost: usize| costs[lane].costs.get(cost).map_or(u32::MAX, |of| of.access);
        let mut next_cost = [0; N];
        let mut next_costly: [u32; N] = std::array::from_fn(|lane| access_of(lane, 0));
        let least = |of: &[u32; N]| of.iter().fold(u32::MAX, |least, of| least.min(*of));
        let mut next_costly_in_any = least(&next_costly);
        let mut at = 0;
        while at < words.len() {
            let header = Header::of(words[at]);
            at += 1;
            let mut entry = Entry { header, operands: [0; N], forwarded: None };
            self.await_producers(header.distances(), &mut entry);
            references.clear();
            let mut is_costly = false;
            while at < words.len() {
                match decode(words[at]) {
                    Word::Header(_) => break,
                    Word::Distances(distances) => self.await_producers(distances, &mut entry),
                    Word::Forward(distance) => {
                        let complete = self.before(u64::from(distance)).complete;
                        entry.forwarded = Some(max(entry.forwarded.unwrap_or([0; N]), complete));
                    }
                    Word::Reference(reference) => {
                        let mut place = reference.place();
                        let (mut costly, mut places) = (0, [0; N]);
                        if reference.is_fresh() {
                            place = first + fresh as usize;
                            if next_costly_in_any == fresh {
                                for lane in 0..N {
                                    if next_costly[lane] == fresh {
                                        costly |= 1 << lane;
                                        places[lane] = next_cost[lane] as u32;
                                        next_cost[lane] += 1;
                                        next_costly[lane] = access_of(lane, next_cost[lane]);
                                    }
                                }
                                is_costly = true;
                                next_costly_in_any = least(&next_costly);
                            }
                            fresh += 1;
                        }
                        if (costly != 0 || !reference.is_fetch())
                            && let Some(access) = accesses.get(place)
                        {
                            references.push(Referenced {
                                reference,
                                access: *access,
                                costly,
                                places,
                            });
                        }
                    }
                }
                at += 1;
            }
            match references[..] {
                [] => self.execute_entry(&entry, &[], costs),
                [Referenced { reference, access, .. }] if !is_costly => {
                    let only = Referenced { reference, access, costly: 0, places: [0; N] };
                    self.execute_entry(&entry, &[only], costs);
                }
                // It would not be compiled for the instructions.
                _ if N == 1 => self.execute_any(&entry, &references, costs),
                _ => self.execute_entry(&entry, &references, costs),
            }
        }
        self.references = references;
    }

    /// The times of the entry this many before the one to come.
    #[inline(always)]
    fn before(&self, distance: u64) -> &Times<N> {
        &self.times[(self.entries.wrapping_sub(distance)) as usize % RING]
    }

    #[inline(always)]
    fn await_producers(&self, distances: u32, entry: &mut Entry<N>) {
        each_distance(distances, |distance| {
            entry.operands = max(entry.operands, self.before(distance).complete);
        });
    }

    /// [`Self::execute_entry`] for entries with costs or several references.
    #[inline(never)]
    fn execute_any(&mut self, entry: &Entry<N>, references: &[Referenced<N>], costs: &[&Costs; N]) {
        self.execute_entry(entry, references, costs);
    }

    /// Executes an entry. Inlined, so that it is compiled apart for the most frequent kinds of entries.
    #[inline(always)]
    fn execute_entry(
        &mut self,
        entry: &Entry<N>,
        references: &[Referenced<N>],
        costs: &[&Costs; N],
    ) {
        let header = entry.header;
        let mut waits = Waits::new();
        let now = Now { costs, now: self.fetch.cycle() };

        self.fetch_entry(header, references, &now, &mut waits);
        let written = u64::from(header.registers_written());
        let mut dispatched = self.dispatch_entry(written, references, &mut waits);
        if references.iter().any(|of| of.costly != 0) && costs.iter().any(|of| of.has_handlers) {
            self.interrupt_entry(&mut dispatched, entry, references, costs, &mut waits);
        }
        let complete = self.compute(dispatched, entry, references, &now, &mut waits);

        let since = self.commit.cycle();
        let committed = self.commit.take(complete);
        self.stacks.commit(each(|lane| committed[lane] - since[lane]), || {
            let ReferenceWaits { lookups, walks, data, served } = waits.slowest;
            let others = [
                (Part::Walks, walks),
                (Part::TlbL2, lookups),
                (Part::Handlers, waits.handlers),
                (Part::Stores, waits.stores),
                (Part::Fetches, waits.fetches),
                (Part::Walks, waits.fetch_walks),
                (Part::TlbL2, waits.fetch_lookups),
                (Part::Branches, waits.branches),
            ];
            ((data, served), others)
        });
        self.times[self.entries as usize % RING] = Times { dispatched, complete, committed };
        self.entries += 1;
        for _ in 0..written {
            self.register_ends[self.registers as usize % RING] = committed;
            self.registers += 1;
        }
        self.commit_memory(committed, references, &now);
        if references.iter().any(|of| of.costly != 0) {
            for (lane, memory) in self.memory.iter_mut().enumerate() {
                memory.forget_in_flight(now.now[lane]);
            }
        }
    }

    /// Fetches an entry: what stops fetch stops it for all that follow.
    #[inline(always)]
    fn fetch_entry(
        &mut self,
        header: Header,
        references: &[Referenced<N>],
        now: &Now<'_, N>,
        waits: &mut Waits<N>,
    ) {
        let buffered = u64::from(self.config.fetch_buffer);
        self.fetch.wait(self.before(buffered).dispatched);
        self.continuations += u64::from(header.continues());
        self.taken += u64::from(header.is_after_taken());
        if header.is_redirected() {
            self.mispredicted += 1;
            let before = self.fetch.cycle();
            let resolved = plus(self.before(1).complete, u64::from(self.config.mispredict_cycles));
            self.fetch.wait(resolved);
            let after = self.fetch.cycle();
            waits.branches = each(|lane| after[lane] - before[lane]);
        } else if header.is_after_taken() {
            self.fetch.end_cycle();
        }
        for of in references.iter().filter(|of| of.reference.is_fetch()) {
            self.fetch_line(of, now, waits);
        }
    }

    /// Lets fetch wait for a line with costs.
    #[inline(never)]
    fn fetch_line(&mut self, of: &Referenced<N>, now: &Now<'_, N>, waits: &mut Waits<N>) {
        of.each_cost(now.costs, |lane, cost| {
            let context = now.of(lane);
            self.fetch.make_room_in(lane);
            let start = self.interrupt(lane, self.fetch.cycle()[lane], cost, waits);
            let looked_up = start + u64::from(cost.lookup_cycles);
            let translated =
                self.memory[lane].translate(of.access, looked_up, Some(cost), &context);
            self.walks_end[lane] = self.memory[lane].walks_end();
            let arrived = match cost.cache_cycles {
                0 => translated,
                _ => self.memory[lane].fill(translated, cost, &context),
            };
            waits.fetch_lookups[lane] += looked_up - start;
            waits.fetch_walks[lane] += translated - looked_up;
            waits.fetches[lane] += arrived - translated;
            self.fetch.wait_in(lane, arrived);
        });
    }

    /// When the handler of a reference returns that is reached at a time: it runs when all instructions before
    /// are committed.
    #[inline(always)]
    fn interrupt(&mut self, lane: usize, at: u64, cost: Cost, waits: &mut Waits<N>) -> u64 {
        if cost.handler_cycles == 0 {
            return at;
        }
        let cycles = u64::from(self.config.front_end_cycles) + u64::from(cost.handler_cycles);
        self.traps[lane] += 1;
        waits.handlers[lane] += cycles;
        at.max(self.commit.cycle()[lane]) + cycles
    }

    /// Runs the handlers of an entry's data references, if it has any, when its operands are ready, then
    /// fetches and dispatches the entry again. Changes its dispatch to the last one.
    #[inline(never)]
    fn interrupt_entry(
        &mut self,
        dispatched: &mut Lanes<N>,
        entry: &Entry<N>,
        references: &[Referenced<N>],
        costs: &[&Costs; N],
        waits: &mut Waits<N>,
    ) {
        for (lane, dispatched) in dispatched.iter_mut().enumerate() {
            let ready = entry.operands[lane].max(*dispatched + 1);
            let mut returned = ready;
            for of in references.iter().filter(|of| !of.reference.is_fetch()) {
                if let Some(cost) = of.cost(lane, costs) {
                    returned = self.interrupt(lane, returned, cost, waits);
                }
            }
            if returned > ready {
                let front_end = u64::from(self.config.front_end_cycles);
                let fetched = self.fetch.take_in(lane, returned) + front_end;
                *dispatched = self.dispatch.take_in(lane, fetched);
            }
        }
    }

    /// Dispatches an entry when all queues have room.
    #[inline(always)]
    fn dispatch_entry(
        &mut self,
        written: u64,
        references: &[Referenced<N>],
        waits: &mut Waits<N>,
    ) -> Lanes<N> {
        let fetched = plus(self.fetch.take([0; N]), u64::from(self.config.front_end_cycles));
        let mut earliest =
            max(fetched, self.before(u64::from(self.config.reorder_buffer)).committed);
        // Registers are freed in the order in which they were taken: the last one waits longest.
        // An instruction that writes more than there are waits for all before it.
        let room = u64::from(self.config.rename_registers).max(written);
        let freed = (self.registers + written).wrapping_sub(room + 1);
        if written > 0 {
            earliest = max(earliest, self.register_ends[freed as usize % RING]);
        }
        let (mut loads, mut stores) = (self.loads, self.stores);
        let mut stored = [0; N];
        for Referenced { reference, .. } in references {
            if reference.is_fetch() {
                continue;
            }
            if reference.is_store() {
                let before = stores.wrapping_sub(u64::from(self.config.store_queue));
                stored = max(stored, self.store_ends[before as usize % RING]);
                stores += 1;
            } else {
                let before = loads.wrapping_sub(u64::from(self.config.load_queue));
                earliest = max(earliest, self.load_ends[before as usize % RING]);
                loads += 1;
            }
        }
        let without = max(earliest, self.dispatch.cycle());
        waits.stores = each(|lane| stored[lane].saturating_sub(without[lane]));
        self.dispatch.take(max(earliest, stored))
    }

    /// Executes the references and the computation of an entry that was dispatched at a cycle. Returns when it
    /// is complete.
    #[inline(always)]
    fn compute(
        &mut self,
        dispatched: Lanes<N>,
        entry: &Entry<N>,
        references: &[Referenced<N>],
        now: &Now<'_, N>,
        waits: &mut Waits<N>,
    ) -> Lanes<N> {
        let ready = max(entry.operands, plus(dispatched, 1));
        let computes = self.cycles_to_compute(entry.header);
        if references.iter().all(|of| of.reference.is_fetch()) {
            let start = self.issue.take(&ready, &dispatched);
            return plus(start, computes);
        }
        let mut complete = ready;
        let (mut loaded, mut of_loads) = (ready, ReferenceWaits::new());
        for of in references {
            let reference = of.reference;
            if reference.is_fetch() {
                continue;
            }
            let ports =
                if reference.is_store() { &mut self.store_ports } else { &mut self.load_ports };
            // A store of a loaded value waits for it.
            let earliest = if reference.is_store() { loaded } else { ready };
            let start = self.issue.take_with(ports, &earliest, &dispatched);
            let mut lookups = [0; N];
            of.each_cost(now.costs, |lane, cost| {
                lookups[lane] = u64::from(cost.lookup_cycles);
            });
            let looked_up = each(|lane| start[lane] + lookups[lane]);
            let translated = self.translate(of, looked_up, now);
            let walks = each(|lane| translated[lane] - looked_up[lane]);
            let mut own = ReferenceWaits { lookups, walks, ..ReferenceWaits::new() };
            let end = if reference.is_store() {
                // It adds its waits to those of the load that it waited for.
                own.lookups = each(|lane| own.lookups[lane] + of_loads.lookups[lane]);
                own.walks = each(|lane| own.walks[lane] + of_loads.walks[lane]);
                (own.data, own.served) = (of_loads.data, of_loads.served);
                plus(translated, 1)
            } else {
                let end = self.load(of, translated, entry.forwarded.as_ref(), &mut own, now);
                of_loads.replace(&mut loaded, &end, &own);
                end
            };
            waits.slowest.replace(&mut complete, &end, &own);
        }
        // One cycle of arithmetic is hidden behind a reference.
        plus(complete, computes - 1)
    }

    /// Cycles of an instruction's arithmetic.
    #[inline(always)]
    fn cycles_to_compute(&self, header: Header) -> u64 {
        header.arithmetic().map_or(1, |of| u64::from(self.config.latencies.of(of)))
    }

    /// When a page is translated whose later TLB levels have been looked up at a time.
    #[inline(always)]
    fn translate(&mut self, of: &Referenced<N>, at: Lanes<N>, now: &Now<'_, N>) -> Lanes<N> {
        if of.costly == 0 && !any_less(&at, &self.walks_end) {
            return at;
        }
        self.translate_each(of, &at, now)
    }

    /// [`Self::translate`] lane by lane, where costs or walks under way differ.
    #[inline(never)]
    fn translate_each(&mut self, of: &Referenced<N>, at: &Lanes<N>, now: &Now<'_, N>) -> Lanes<N> {
        let mut translated = *at;
        for (lane, memory) in self.memory.iter_mut().enumerate() {
            let cost = of.cost(lane, now.costs);
            if cost.is_some() || at[lane] < self.walks_end[lane] {
                translated[lane] = memory.translate(of.access, at[lane], cost, &now.of(lane));
                self.walks_end[lane] = memory.walks_end();
            }
        }
        translated
    }

    /// When a load has its data, from its translation on. Sets how long it waits for its line, and what for.
    #[inline(always)]
    fn load(
        &mut self,
        of: &Referenced<N>,
        at: Lanes<N>,
        forwarded: Option<&Lanes<N>>,
        own: &mut ReferenceWaits<N>,
        now: &Now<'_, N>,
    ) -> Lanes<N> {
        let mut end: Lanes<N> = match forwarded {
            Some(stored) => plus(max(*stored, at), u64::from(self.config.forward_cycles)),
            None => plus(at, self.l1d_cycles),
        };
        let may_hit_in_flight = forwarded.is_none() && any_less(&at, &self.lines_end);
        if of.costly == 0 && !may_hit_in_flight {
            return end;
        }
        self.load_each(of, &at, forwarded.is_some(), &mut end, own, now);
        end
    }

    /// [`Self::load`] lane by lane, where costs or lines under way differ. Changes the time when it has its
    /// data.
    #[inline(never)]
    fn load_each(
        &mut self,
        of: &Referenced<N>,
        at: &Lanes<N>,
        is_forwarded: bool,
        end: &mut Lanes<N>,
        own: &mut ReferenceWaits<N>,
        now: &Now<'_, N>,
    ) {
        for (lane, memory) in self.memory.iter_mut().enumerate() {
            let context = now.of(lane);
            let (line, part) = match of.cost(lane, now.costs).filter(Cost::concerns_lines) {
                Some(cost) => memory.miss(of.access, at[lane], cost, &context),
                None if is_forwarded || at[lane] >= self.lines_end[lane] => continue,
                None => memory.hit(of.access, at[lane], &context),
            };
            self.lines_end[lane] = memory.lines_end();
            (own.data[lane], own.served[lane]) = (line - at[lane], part);
            end[lane] = line + self.l1d_cycles;
        }
    }

    /// Frees the load queue, and sends the stores of a committed entry to the data cache.
    #[inline(always)]
    fn commit_memory(
        &mut self,
        committed: Lanes<N>,
        references: &[Referenced<N>],
        now: &Now<'_, N>,
    ) {
        for of in references {
            if of.reference.is_fetch() {
                continue;
            }
            if !of.reference.is_store() {
                self.load_ends[self.loads as usize % RING] = committed;
                self.loads += 1;
                continue;
            }
            if of.costly != 0 || any_less(&committed, &self.lines_end) {
                self.send_store(of, &committed, now);
            }
            // Lines that are in the cache are there before the entry is committed.
            self.store_ends[self.stores as usize % RING] = self.drain.take(committed);
            self.stores += 1;
        }
    }

    /// Lets stores wait for the line of this one, where it is not in the cache when the store commits.
    #[inline(never)]
    fn send_store(&mut self, of: &Referenced<N>, committed: &Lanes<N>, now: &Now<'_, N>) {
        for (lane, memory) in self.memory.iter_mut().enumerate() {
            let (at, context) = (committed[lane], now.of(lane));
            let (arrived, _) = match of.cost(lane, now.costs).filter(Cost::concerns_lines) {
                Some(cost) => memory.miss(of.access, at, cost, &context),
                None if at >= self.lines_end[lane] => continue,
                None => memory.hit(of.access, at, &context),
            };
            self.lines_end[lane] = memory.lines_end();
            self.drain.wait_in(lane, arrived);
        }
    }

    /// The counts of the core of a lane.
    pub fn counts(&self, lane: usize) -> CoreCounts {
        CoreCounts {
            instructions: self.entries - self.continuations,
            taken: self.taken,
            mispredicted: self.mispredicted,
            traps: self.traps[lane],
            stack: self.stacks.of(lane),
            rows: self.memory[lane].rows(),
            late_prefetches: self.memory[lane].late_prefetches(),
        }
    }
}

#[cfg(test)]
mod tests;
