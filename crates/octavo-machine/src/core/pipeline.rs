//! An out-of-order core, in one pass over the instructions in program order: each gets the cycles of its fetch,
//! dispatch, execution and commit from those of the instructions before it.
//!
//! - Fetch: `fetch_width` instructions a cycle, none in the cycle of a taken branch behind it, none before a
//!   mispredicted branch is resolved, and at most `fetch_buffer` instructions ahead of dispatch. Misses of
//!   fetches stop it.
//! - Dispatch: in order, `front_end_cycles` later, when reorder buffer, registers, load queue and store
//!   queue have room.
//! - Execution: when all producers are complete, in a free slot of the issue width and of the load or store
//!   ports. An instruction takes a cycle; a load completes when its data comes, a store when its address is
//!   translated.
//! - Behind a mispredicted branch that waits long, instructions that the [wrong path](super::wrong_paths) shares with the
//!   right one begin there: what they ask for from memory is under way, or has come, when the right path executes them.
//! - Software that serves a miss interrupts the program: it begins when all instructions before are committed,
//!   and the instruction is fetched again behind it.
//! - A load pays the look-ups of later TLB levels, then the walk, then the line. Walks of one page and misses
//!   of one line are merged. A walk takes one of the core's walkers, a miss one of the outstanding misses of
//!   each level that it misses, a line from memory its bank and channel. All are given in program order, to the
//!   earliest time that is free.
//! - A load whose frame is predicted goes on at once. It commits after the walk that verifies the prediction; if that
//!   was wrong, it waits for the walk as usual, and all behind it is fetched again, as behind a mispredicted branch.
//! - Commit: in order, `commit_width` a cycle. Stores then enter the data cache in order.
//!
//! The machine has played the accesses in program order and gives the cost of each walk and line. If a
//! later instruction uses the page or line before the instruction that missed does, the miss is its own.
//!
//! Cores of equal widths, queues and latencies, which execute one program in several machines, are the *lanes* of
//! one pass: each time is an array with an element for each lane, and words are decoded once. What accesses cost
//! differs by lane.
//!
//! Times have 32 bits, so that a vector register holds those of many lanes: they count from an *epoch* of their lane,
//! which moves on before they overflow.

use octavo_config::{MachineConfig, PipelineConfig};
use octavo_types::{Arithmetic, Compiled, Instructions};

use super::calendar::{InOrder, IssueSlots, Slot, boxed};
use super::lanes::Lanes;
use super::memory_side::{Context, MemorySide};
use super::stack::{Part, Stack, Stacks};
use super::wrong_paths::{OnBothPaths, OnWrongPath, WrongPaths};
use super::{Cost, Costs, Speculation};
use crate::counters::Counters;
use crate::front::{
    Difference, Entry, Header, LineAccess, Lines, MAX_DISTANCE, Reference, Simple, Word,
    each_distance, entries,
};

/// The epoch of a lane moves on when it commits after this time: while the slots of most cycles are in their array.
const EPOCH_ENDS: u32 = if cfg!(test) { 1 << 12 } else { IssueSlots::<[u32; 1]>::FAST / 2 };
/// It is asked after an entry with costs, and after so many entries.
const ENTRIES_BETWEEN: u64 = 1 << 8;

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
            rows: self.machine.drams().iter().any(|(_, dram)| dram.is_some()).then_some([0; 2]),
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
    /// Cycles so far.
    pub fn cycles(&self) -> u64 {
        self.stack.total()
    }

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

/// Cores of up to as many machines as there are lanes, which execute one program.
pub struct Pipeline<V> {
    config: PipelineConfig,
    l1d_cycles: u32,
    /// From which time on the times of each lane count.
    epochs: Box<[u64]>,
    /// Entries so far.
    entries: u64,
    /// Entries that continue the instruction before them.
    continuations: u64,
    taken: u64,
    mispredicted: u64,
    traps: Box<[u64]>,
    /// When each entry was dispatched, complete, and committed.
    dispatched: Ring<V>,
    complete: Ring<V>,
    committed: Ring<V>,
    latencies: Latencies,
    registers: u64,
    loads: u64,
    stores: u64,
    /// When each register written and each load committed, and each store entered the cache.
    register_ends: Ring<V>,
    load_ends: Ring<V>,
    store_ends: Ring<V>,
    fetch: InOrder<V>,
    dispatch: InOrder<V>,
    commit: InOrder<V>,
    drain: InOrder<V>,
    issue: IssueSlots<V>,
    /// Of the lanes in use.
    memory: Vec<MemorySide>,
    /// When the last walk and the last line under way end in each lane.
    walks_end: V,
    lines_end: V,
    /// When the last of both ends.
    under_way_end: V,
    /// When the walks end that verify predictions of the entry under way.
    verified: V,
    /// From when on the next entry is fetched again, where the last one was at a wrong frame.
    refetch: V,
    is_flushed: bool,
    wrong_paths: WrongPaths<V>,
    /// When each entry is complete on wrong paths, up to the last entry while one was under way.
    complete_on_wrong_paths: Ring<V>,
    entries_on_wrong_paths: u64,
    stacks: Stacks<V>,
    /// Room for the references of an entry.
    references: Vec<Referenced<V>>,
}

/// The last times of a kind, by number, as many as there is room for.
struct Ring<V> {
    /// Few are in use, so that they stay in the caches of the computer.
    times: Box<[V; MOST_TIMES]>,
    mask: u64,
}

/// The most times of a ring: a power of two above the numbers of registers, and of entries in a reorder buffer.
const MOST_TIMES: usize = 1 << 11;

impl<V: Lanes> Ring<V> {
    /// Room for so many times and one more.
    fn new(count: u32) -> Self {
        let count = u64::from(count + 1).next_power_of_two();
        assert!(count <= MOST_TIMES as u64, "fewer times");
        Ring { times: boxed(V::all(0)), mask: count - 1 }
    }

    /// The time of a number; 0 if the number is less than 0.
    #[inline(always)]
    fn get(&self, number: u64) -> &V {
        &self.times[(number & self.mask) as usize % MOST_TIMES]
    }

    #[inline(always)]
    fn set(&mut self, number: u64, time: V) {
        self.times[(number & self.mask) as usize % MOST_TIMES] = time;
    }
}

/// The waits of an instruction, in the order in which they happened.
struct Waits<V> {
    /// Whether a reference has a cost: without one there are no waits for fetches and handlers.
    has_costs: bool,
    branches: V,
    /// For a walk that has found a wrong prediction, and for fetching again, if there is one.
    flushes: Option<V>,
    fetches: V,
    fetch_lookups: V,
    fetch_walks: V,
    stores: V,
    handlers: V,
    /// For walks that verify predictions.
    verified: V,
    slowest: ReferenceWaits<V>,
}

impl<V: Lanes> Waits<V> {
    #[inline(always)]
    fn new(has_costs: bool) -> Self {
        let none = V::all(0);
        Waits {
            has_costs,
            branches: none,
            flushes: None,
            fetches: none,
            fetch_lookups: none,
            fetch_walks: none,
            stores: none,
            handlers: none,
            verified: none,
            slowest: ReferenceWaits::new(),
        }
    }
}

/// The waits of a reference.
#[derive(Clone, Copy)]
struct ReferenceWaits<V> {
    lookups: V,
    walks: V,
    data: V,
    /// The level that served the data, as the number of a part of the stack.
    served: V,
}

impl<V: Lanes> ReferenceWaits<V> {
    #[inline(always)]
    fn new() -> Self {
        let none = V::all(0);
        ReferenceWaits { lookups: none, walks: none, data: none, served: V::all(Part::Base as u32) }
    }

    /// Replaces the waits by others in the lanes where `new` is no earlier than `old`, and `old` by `new`.
    #[inline(always)]
    fn replace(&mut self, old: &mut V, new: &V, others: &Self) {
        let select = |old_wait, new_wait| new.select_at_least(*old, new_wait, old_wait);
        self.lookups = select(self.lookups, others.lookups);
        self.walks = select(self.walks, others.walks);
        self.data = select(self.data, others.data);
        self.served = select(self.served, others.served);
        *old = old.max(*new);
    }
}

/// A reference of an entry. Fetches without a cost in any lane are left out.
#[derive(Clone, Copy)]
struct Referenced<V> {
    reference: Reference,
    access: LineAccess,
    /// The lanes in which it has a cost, a bit each.
    costly: u32,
    /// The places of the costs in these lanes.
    places: V,
}

impl<V: Lanes> Referenced<V> {
    /// Its cost in a lane.
    #[inline(always)]
    fn cost(&self, lane: usize, costs: &[&Costs]) -> Option<Cost> {
        match self.costly >> lane & 1 {
            0 => None,
            _ => Some(costs[lane].costs[self.places.get(lane) as usize]),
        }
    }

    /// Calls a function for each lane in which it has a cost.
    #[inline(always)]
    fn each_cost(&self, costs: &[&Costs], mut of: impl FnMut(usize, Cost)) {
        let mut lanes = self.costly;
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            of(lane, costs[lane].costs[self.places.get(lane) as usize]);
            lanes &= lanes - 1;
        }
    }
}

/// An entry without its references.
struct Operands<V> {
    header: Header,
    /// When all its producers are complete but the late ones.
    operands: V,
    /// When the late ones are.
    late: V,
    /// When the store is complete from which its loads take their value.
    forwarded: Option<V>,
}

impl<V: Lanes> Operands<V> {
    fn new(header: Header) -> Self {
        Operands { header, operands: V::all(0), late: V::all(0), forwarded: None }
    }

    /// Has one of the producers that a word names, by when they are complete.
    #[inline(always)]
    fn add(&mut self, word: Word, mut complete: impl FnMut(u32) -> V) {
        match word {
            Word::Distances(of) => {
                each_distance(of, |distance| self.operands = self.operands.max(complete(distance)));
            }
            Word::Late(of) => {
                each_distance(of, |distance| self.late = self.late.max(complete(distance)));
            }
            Word::Forward(distance) => {
                let forwarded = self.forwarded.unwrap_or(V::all(0));
                self.forwarded = Some(forwarded.max(complete(distance)));
            }
            Word::Reference(_) => {}
        }
    }
}

/// When the producers of a simple entry are complete.
struct SimpleOperands<V> {
    operands: V,
    late: V,
    /// When the store is from which its load takes its value; a time that delays nothing if there is none.
    forwarded: V,
}

impl<V: Lanes> SimpleOperands<V> {
    /// `complete` is the time of a producer at a distance; `beside` says that late ones stand beside others.
    #[inline(always)]
    fn new(entry: Simple, beside: bool, complete: impl Fn(u32) -> V) -> Self {
        let [first, second] = entry.header.distances().map(&complete);
        let (mut operands, mut late) =
            if beside { (first, second) } else { (first.max(second), V::all(0)) };
        let mut forwarded = V::all(0);
        if entry.has_more() {
            let [third, fourth] = entry.more_distances().map(&complete);
            if beside {
                (operands, late) = (operands.max(third), late.max(fourth));
            } else {
                operands = operands.max(third.max(fourth));
            }
            // The distance 0, of an entry that takes nothing from a store, gives a time that delays nothing.
            forwarded = complete(entry.forward());
        }
        SimpleOperands { operands, late, forwarded }
    }
}

/// Whether any of an entry's references is not a fetch.
#[inline(always)]
fn refer_to_data<V>(references: &[Referenced<V>]) -> bool {
    references.iter().any(|of| !of.reference.is_fetch())
}

/// An entry on the wrong path, without the lanes in which software serves one of its references or its frame is predicted.
fn without_interruptions<V: Lanes>(
    mut on: OnWrongPath<V>,
    references: &[Referenced<V>],
    costs: &[&Costs],
) -> OnWrongPath<V> {
    for of in references.iter().filter(|of| !of.reference.is_fetch()) {
        of.each_cost(costs, |lane, cost| {
            if cost.handler_cycles > 0 || cost.speculation != Speculation::None {
                on.leave(lane);
            }
        });
    }
    on
}

/// Cycles from the issue of a simple entry to its end, where nothing misses.
#[derive(Clone, Copy)]
struct Latencies {
    /// Of entries that do not load, that load, and whose load takes its value from a store; then by the code of the
    /// arithmetic.
    cycles: [[u32; 8]; 4],
}

impl Latencies {
    fn new(config: &PipelineConfig, l1d_cycles: u32) -> Self {
        let reference = |load: usize| [1, l1d_cycles, config.forward_cycles][load.min(2)];
        let cycles = |load| {
            std::array::from_fn(|code| {
                let computes =
                    Arithmetic::of_code(code as u8).map_or(1, |of| config.latencies.of(of));
                // One cycle of arithmetic is hidden behind a reference.
                reference(load) + computes - 1
            })
        };
        Latencies { cycles: std::array::from_fn(cycles) }
    }

    #[inline(always)]
    fn of(&self, entry: Simple) -> u32 {
        let load = entry.loads() + u32::from(entry.forward() != 0);
        self.cycles[load as usize % 4][entry.header.arithmetic_code()]
    }
}

/// The costs of a part of a batch, met in the order of its fresh references.
struct CostsAhead<'a, V> {
    costs: &'a [&'a Costs],
    /// The fresh references so far.
    fresh: u32,
    /// In each lane the next cost, and the reference that has it.
    next: V,
    next_reference: V,
    /// The first of these references.
    next_in_any: u32,
}

impl<'a, V: Lanes> CostsAhead<'a, V> {
    fn new(costs: &'a [&'a Costs]) -> Self {
        let next = V::all(0);
        let next_reference = V::of_each(|lane| reference_of(costs, lane, 0));
        let next_in_any = least(&next_reference);
        CostsAhead { costs, fresh: 0, next, next_reference, next_in_any }
    }

    /// Whether any of so many fresh references to come has a cost.
    #[inline(always)]
    fn meets(&self, fresh: u32) -> bool {
        self.next_in_any - self.fresh < fresh
    }

    /// Goes on by a fresh reference. Returns the lanes in which it has a cost, a bit each, and the places of the costs
    /// in these lanes.
    #[inline(always)]
    fn pass(&mut self) -> (u32, V) {
        let (mut costly, mut places) = (0, V::all(0));
        if self.next_in_any == self.fresh {
            for lane in 0..V::COUNT {
                if self.next_reference.get(lane) == self.fresh {
                    let place = self.next.get(lane);
                    costly |= 1 << lane;
                    places.set(lane, place);
                    self.next.set(lane, place + 1);
                    self.next_reference.set(lane, reference_of(self.costs, lane, place + 1));
                }
            }
            self.next_in_any = least(&self.next_reference);
        }
        self.fresh += 1;
        (costly, places)
    }
}

/// The fresh reference that has a cost of a lane.
fn reference_of(costs: &[&Costs], lane: usize, place: u32) -> u32 {
    let cost = costs.get(lane).and_then(|costs| costs.costs.get(place as usize));
    cost.map_or(u32::MAX, |cost| cost.access)
}

/// The least number of all lanes.
#[inline(always)]
fn least<V: Lanes>(of: &V) -> u32 {
    of.as_slice().iter().fold(u32::MAX, |least, of| least.min(*of))
}

/// The costs and the time at which an entry is executed.
struct Now<'a, V> {
    costs: &'a [&'a Costs],
    now: V,
}

/// A part of a batch to be executed.
struct Execution<'a, V> {
    core: &'a mut Pipeline<V>,
    words: &'a [u32],
    accesses: &'a [LineAccess],
    first: usize,
    costs: &'a [&'a Costs],
}

impl<V: Lanes> Compiled for Execution<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.core.execute_part(self.words, self.accesses, self.first, self.costs);
    }
}

/// Adds a number in a lane.
#[inline(always)]
fn add<V: Lanes>(to: &mut V, lane: usize, number: u32) {
    to.set(lane, to.get(lane) + number);
}

impl<V: Lanes> Pipeline<V> {
    /// Cores of machines with [equal](CoreSetup::is_like) ones, at most as many as lanes, that have executed nothing.
    pub fn new(setups: &[&CoreSetup]) -> Self {
        assert!((1..=V::COUNT).contains(&setups.len()), "a lane for each machine");
        let none = V::all(0);
        let config = &setups[0].pipeline;
        let memory_side =
            |of: &&CoreSetup| MemorySide::new(&of.machine, config.outstanding, of.lines);
        Pipeline {
            l1d_cycles: setups[0].machine.cache.l1d.latency_cycles,
            epochs: vec![0; V::COUNT].into(),
            entries: 0,
            continuations: 0,
            taken: 0,
            mispredicted: 0,
            traps: vec![0; V::COUNT].into(),
            latencies: Latencies::new(config, setups[0].machine.cache.l1d.latency_cycles),
            dispatched: Ring::new(config.fetch_buffer),
            complete: Ring::new(MAX_DISTANCE as u32),
            committed: Ring::new(config.reorder_buffer),
            registers: 0,
            loads: 0,
            stores: 0,
            register_ends: Ring::new(config.rename_registers + 1),
            load_ends: Ring::new(config.load_queue),
            store_ends: Ring::new(config.store_queue),
            fetch: InOrder::new(config.fetch_width()),
            dispatch: InOrder::new(config.width),
            commit: InOrder::new(config.commit_width),
            drain: InOrder::new(config.store_ports),
            issue: IssueSlots::new(config.issue_width, config.load_ports, config.store_ports),
            memory: setups.iter().map(memory_side).collect(),
            walks_end: none,
            lines_end: none,
            under_way_end: none,
            verified: none,
            refetch: none,
            is_flushed: false,
            wrong_paths: WrongPaths::new(config),
            complete_on_wrong_paths: Ring::new(MAX_DISTANCE as u32),
            entries_on_wrong_paths: 0,
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
        instructions.run(Execution { core: self, words, accesses, first, costs });
    }

    #[inline(always)]
    fn execute_part(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
    ) {
        let mut ahead = CostsAhead::new(costs);
        let has_flushes = self.is_flushed || costs.iter().any(|of| of.has_flushes);
        for entry in entries(words) {
            match entry {
                Entry::Simple(simple)
                    if !(has_flushes
                        | self.begins_wrong_path(simple.header)
                        | ahead.meets(simple.fresh())) =>
                {
                    let fetched = ahead.fresh + simple.fetches();
                    ahead.fresh += simple.fresh();
                    let data = simple.data();
                    let place =
                        if data.is_fresh() { first + fetched as usize } else { data.place() };
                    if !self.wrong_paths.is_under_way() {
                        self.execute_simple::<false>(simple, accesses, place, costs);
                    } else if V::COUNT == 1 {
                        self.execute_one_on_both(simple, accesses, place, costs);
                    } else {
                        self.execute_simple::<true>(simple, accesses, place, costs);
                    }
                    if self.entries.is_multiple_of(ENTRIES_BETWEEN) {
                        self.end_epochs();
                    }
                }
                // Of several lanes it is compiled here, for the instructions; of one, apart, so that this loop stays small.
                _ if V::COUNT == 1 => self.execute_one(entry, accesses, first, &mut ahead),
                _ => self.execute_any(entry, accesses, first, &mut ahead),
            }
        }
    }

    /// [`Self::execute_simple`] for one lane, while a wrong path is under way.
    #[inline(never)]
    fn execute_one_on_both(
        &mut self,
        entry: Simple,
        accesses: &[LineAccess],
        place: usize,
        costs: &[&Costs],
    ) {
        self.execute_simple::<true>(entry, accesses, place, costs);
    }

    /// [`Self::execute_any`] for one lane.
    #[inline(never)]
    fn execute_one(
        &mut self,
        entry: Entry<'_>,
        accesses: &[LineAccess],
        first: usize,
        ahead: &mut CostsAhead<'_, V>,
    ) {
        self.execute_any(entry, accesses, first, ahead);
    }

    /// Executes an entry of any kind.
    #[inline(always)]
    fn execute_any(
        &mut self,
        entry: Entry<'_>,
        accesses: &[LineAccess],
        first: usize,
        ahead: &mut CostsAhead<'_, V>,
    ) {
        let mut references = std::mem::take(&mut self.references);
        references.clear();
        let header = entry.header();
        if self.begins_wrong_path(header) {
            self.begin_wrong_path(header);
        }
        let is_on_wrong_path =
            self.wrong_paths.is_under_way() && header.difference() != Difference::Earlier;
        let [mut operands, mut wrong] = [Operands::new(header), Operands::new(header)];
        entry.each_word(|word| {
            operands.add(word, |distance| self.complete_before(distance));
            if is_on_wrong_path {
                wrong.add(word, |distance| self.complete_on_wrong_paths_before(distance));
            }
            if let Word::Reference(reference) = word {
                let mut place = reference.place();
                let (mut costly, mut places) = (0, V::all(0));
                if reference.is_fresh() {
                    place = first + ahead.fresh as usize;
                    (costly, places) = ahead.pass();
                }
                if costly != 0 || !reference.is_fetch() {
                    references.push(Referenced {
                        reference,
                        access: accesses[place],
                        costly,
                        places,
                    });
                }
            }
        });
        let wrong = is_on_wrong_path.then_some(&wrong);
        self.execute_entry(&operands, wrong, &references, ahead.costs);
        self.references = references;
        self.end_epochs();
    }

    /// Executes a simple entry whose references, of which that to data is served by the access at a place, have no
    /// cost: [`Self::execute_entry`] without loops over its parts. A processor foresees what kind of entry comes better
    /// than when it comes, so that nothing branches on times. A wrong path may be under way only if `ON_BOTH`.
    #[inline(always)]
    fn execute_simple<const ON_BOTH: bool>(
        &mut self,
        entry: Simple,
        accesses: &[LineAccess],
        place: usize,
        costs: &[&Costs],
    ) {
        let header = entry.header;
        let (loads, stores) = (entry.loads() != 0, entry.stores() != 0);
        // Beside references, the second of two distances may be late.
        let beside = (loads || stores) && header.has_late();
        let SimpleOperands { operands, late, forwarded } =
            SimpleOperands::new(entry, beside, |of| self.complete_before(of));
        let mut now = Now { costs, now: self.fetch.cycle() };
        if ON_BOTH {
            now.now = self.wrong_paths.first(now.now);
        }

        let branches = self.fetch_next(header);
        let fetched = self.fetch.take_next().plus(V::all(self.config.front_end_cycles));
        let writes = header.writes_integer();
        let mut room = self.room_in_buffers(writes);
        let mut earliest = fetched.max(room);
        let mut full_stores = V::all(0);
        if loads {
            let before = self.loads.wrapping_sub(u64::from(self.config.load_queue));
            let of_loads = *self.load_ends.get(before);
            (room, earliest) = (room.max(of_loads), earliest.max(of_loads));
        } else if stores {
            let before = self.stores.wrapping_sub(u64::from(self.config.store_queue));
            let stored = *self.store_ends.get(before);
            full_stores = stored.saturating_minus(earliest.max(self.dispatch.cycle()));
            (room, earliest) = (room.max(stored), earliest.max(stored));
        }
        let dispatched = self.dispatch.take(earliest);

        let computes = self.cycles_to_compute(header);
        let mut both = None;
        if ON_BOTH && header.difference() != Difference::Earlier {
            let wrong =
                SimpleOperands::new(entry, beside, |of| self.complete_on_wrong_paths_before(of));
            let on = self.wrong_paths.dispatch(header.difference(), room, wrong.operands);
            let of_store = (entry.forward() != 0).then_some(wrong.forwarded);
            let mut of = OnBothPaths::new(on, wrong.late, of_store);
            // Where nothing is under way.
            of.complete = of.complete.max(wrong.forwarded).plus(V::all(self.latencies.of(entry)));
            both = Some(of);
        }
        let ready = operands.max(dispatched.plus(V::all(1)));
        let slot = Slot::of(entry.loads(), entry.stores());
        let start = self.issue.take(slot, ready, dispatched);
        let mut complete = start.max(forwarded).plus(V::all(self.latencies.of(entry)));
        let mut slowest = None;
        let begins = both.as_ref().map_or(start, |of| of.on.select(of.on.ready, start));
        if (loads || stores) && begins.is_less_in_any(self.under_way_end) {
            let reference = entry.data();
            let of =
                Referenced { reference, access: accesses[place], costly: 0, places: V::all(0) };
            let forwarded = (entry.forward() != 0).then_some(forwarded);
            let mut waits = ReferenceWaits::new();
            let (mut end, mut own) = (ready, ReferenceWaits::new());
            let referred = match &mut both {
                None => self.refer(&of, start, forwarded.as_ref(), &mut own, &now),
                Some(both) => {
                    both.complete = both.on.ready;
                    let end = self.refer_on_both(&of, start, forwarded, both, &mut own, &now);
                    both.complete = both.complete.plus(V::all(computes - 1));
                    end
                }
            };
            waits.replace(&mut end, &referred, &own);
            complete = end.plus(V::all(computes - 1));
            slowest = Some(waits);
        }
        if beside {
            complete = complete.max(late.plus(V::all(computes)));
        }
        if ON_BOTH {
            let of_wrong = both.map_or(complete, |mut of| {
                if beside {
                    of.complete = of.complete.max(of.late.plus(V::all(computes)));
                }
                of.on.select(of.complete, complete)
            });
            self.end_on_wrong_paths(of_wrong);
        }

        let before = self.commit.cycle();
        let committed = self.commit.take(complete);
        let since = committed.minus(before);
        if let Some(slowest) = slowest {
            let waits = Waits { branches, stores: full_stores, slowest, ..Waits::new(false) };
            self.count_cycles(since, &waits);
        } else {
            let mut left = since.saturating_minus(V::all(1));
            if stores {
                self.stacks.explain(&mut left, Part::Stores, full_stores);
            }
            if header.is_redirected() {
                self.stacks.explain(&mut left, Part::Branches, branches);
            }
            self.stacks.end(left, since);
        }
        self.end_entry(writes, dispatched, complete, committed);

        if loads {
            self.load_ends.set(self.loads, committed);
            self.loads += 1;
        } else if stores {
            if committed.is_less_in_any(self.lines_end) {
                let reference = entry.data();
                let of =
                    Referenced { reference, access: accesses[place], costly: 0, places: V::all(0) };
                self.send_store(&of, &committed, &now);
            }
            self.store_ends.set(self.stores, self.drain.take(committed));
            self.stores += 1;
        }
    }

    /// Moves the epochs of lanes on in which half of the range of times has gone by.
    #[inline(always)]
    fn end_epochs(&mut self) {
        if V::all(EPOCH_ENDS).is_less_in_any(self.commit.cycle()) {
            self.move_epochs();
        }
    }

    #[cold]
    #[inline(never)]
    fn move_epochs(&mut self) {
        // What lies so many cycles before an instruction is fetched does not delay it any more.
        let delay = self.config.mispredict_cycles.max(self.config.forward_cycles) + 1;
        let fetched = self.wrong_paths.first(self.fetch.cycle());
        let by = V::of_each(|lane| {
            let old = fetched.get(lane).saturating_sub(delay);
            old - old % IssueSlots::<V>::EPOCHS
        });
        let shift = |times: &mut V| *times = times.saturating_minus(by);
        for (epoch, by) in self.epochs.iter_mut().zip(by.as_slice()) {
            *epoch += u64::from(*by);
        }
        let of_entries = [&mut self.dispatched, &mut self.complete, &mut self.committed];
        let of_others = [
            &mut self.complete_on_wrong_paths,
            &mut self.register_ends,
            &mut self.load_ends,
            &mut self.store_ends,
        ];
        for ring in of_entries.into_iter().chain(of_others) {
            ring.times.iter_mut().for_each(shift);
        }
        for place in [&mut self.fetch, &mut self.dispatch, &mut self.commit, &mut self.drain] {
            place.move_epoch(by);
        }
        self.issue.move_epoch(by);
        self.wrong_paths.move_epoch(by);
        let ends =
            [&mut self.walks_end, &mut self.lines_end, &mut self.under_way_end, &mut self.refetch];
        ends.into_iter().for_each(shift);
        self.stacks.move_epoch();
    }

    /// A time of a lane, of all times.
    #[inline(always)]
    fn absolute(&self, lane: usize, time: u32) -> u64 {
        self.epochs[lane] + u64::from(time)
    }

    /// A time of all times, in a lane; 0 if it is before the epoch.
    #[inline(always)]
    fn in_epoch(&self, lane: usize, time: u64) -> u32 {
        time.saturating_sub(self.epochs[lane]) as u32
    }

    /// The costs of a lane and its time, for its memory side.
    #[inline(always)]
    fn context<'a>(&self, now: &Now<'a, V>, lane: usize) -> Context<'a> {
        Context { costs: now.costs[lane], now: self.absolute(lane, now.now.get(lane)) }
    }

    /// The number of the entry this many before the one to come.
    #[inline(always)]
    fn before(&self, distance: u32) -> u64 {
        self.entries.wrapping_sub(u64::from(distance))
    }

    /// When the producer at a distance is complete. One beyond the reorder buffer is committed before the entry to come
    /// is dispatched, and the distance 0, which names none, gives the time of such a one: both delay nothing.
    #[inline(always)]
    fn complete_before(&self, distance: u32) -> V {
        *self.complete.get(self.before(distance))
    }

    /// When the producer at a distance is complete on wrong paths, while one is under way.
    #[inline(always)]
    fn complete_on_wrong_paths_before(&self, distance: u32) -> V {
        *self.complete_on_wrong_paths.get(self.before(distance))
    }

    /// The entry to come is complete on wrong paths at a time, or on the right one where it is not executed there.
    #[inline(always)]
    fn end_on_wrong_paths(&mut self, complete: V) {
        self.complete_on_wrong_paths.set(self.entries, complete);
        self.entries_on_wrong_paths = self.entries + 1;
    }

    /// Whether a wrong path may begin with an entry.
    #[inline(always)]
    fn begins_wrong_path(&self, header: Header) -> bool {
        self.config.wrong_paths & header.is_redirected()
    }

    /// A wrong path begins behind the branch before an entry to come, if that waits long, and those under way find that it
    /// was mispredicted.
    fn begin_wrong_path(&mut self, header: Header) {
        self.fetch.wait(*self.dispatched.get(self.before(self.config.fetch_buffer)));
        let complete = [self.complete_before(1), self.complete_on_wrong_paths_before(1)];
        let (fetched, dispatched) = (self.fetch.next_cycle(), self.dispatch.cycle());
        self.wrong_paths.redirect(header.difference(), fetched, dispatched, complete);
        if self.wrong_paths.is_under_way() {
            let known = self.entries_on_wrong_paths.max(self.entries.saturating_sub(MAX_DISTANCE));
            for entry in known..self.entries {
                self.complete_on_wrong_paths.set(entry, *self.complete.get(entry));
            }
        }
    }

    /// Executes an entry; `wrong` has its operands on the wrong path, if it is on one.
    #[inline(always)]
    fn execute_entry(
        &mut self,
        entry: &Operands<V>,
        wrong: Option<&Operands<V>>,
        references: &[Referenced<V>],
        costs: &[&Costs],
    ) {
        let header = entry.header;
        let has_costs = references.iter().any(|of| of.costly != 0);
        let mut waits = Waits::new(has_costs);
        let now = Now { costs, now: self.wrong_paths.first(self.fetch.cycle()) };

        self.fetch_entry(header, references, &now, &mut waits);
        let writes = header.writes_integer();
        let (room, stored) = self.room_for(writes, references);
        let wrong = wrong.map(|operands| {
            let (of, room) = (header.difference(), room.max(stored));
            let late = if refer_to_data(references) { V::all(0) } else { operands.late };
            let ready = self.wrong_paths.dispatch(of, room, operands.operands.max(late));
            (operands, without_interruptions(ready, references, costs))
        });
        let mut dispatched = self.dispatch_entry(room, stored, &mut waits);
        if has_costs && costs.iter().any(|of| of.has_handlers) {
            self.interrupt_entry(&mut dispatched, entry, references, costs, &mut waits);
        }
        let complete = self.compute(dispatched, entry, wrong, references, &now, &mut waits);

        let before = self.commit.cycle();
        let mut verified = complete;
        if has_costs {
            verified = verified.max(std::mem::replace(&mut self.verified, V::all(0)));
            waits.verified = verified.minus(complete);
        }
        let committed = self.commit.take(verified);
        self.count_cycles(committed.minus(before), &waits);
        self.end_entry(writes, dispatched, complete, committed);
        self.commit_memory(committed, references, &now);
        if has_costs {
            for (lane, memory) in self.memory.iter_mut().enumerate() {
                memory.forget_in_flight(self.epochs[lane] + u64::from(now.now.get(lane)));
            }
        }
    }

    /// Adds the cycles until an entry commits, `since` the commit of the one before, to the stacks, by its waits, of
    /// which the last come first.
    #[inline(always)]
    fn count_cycles(&mut self, since: V, waits: &Waits<V>) {
        let Some(mut cycles) = self.stacks.without_commit(since) else {
            return self.stacks.end(V::all(0), since);
        };
        let left = &mut cycles;
        let ReferenceWaits { lookups, walks, data, served } = &waits.slowest;
        if waits.has_costs {
            self.stacks.explain(left, Part::Walks, waits.verified);
        }
        self.stacks.explain_by_data(left, data, served);
        self.stacks.explain(left, Part::Walks, *walks);
        self.stacks.explain(left, Part::TlbL2, *lookups);
        self.stacks.explain(left, Part::Handlers, waits.handlers);
        self.stacks.explain(left, Part::Stores, waits.stores);
        if waits.has_costs {
            self.stacks.explain(left, Part::Fetches, waits.fetches);
            self.stacks.explain(left, Part::Walks, waits.fetch_walks);
            self.stacks.explain(left, Part::TlbL2, waits.fetch_lookups);
        }
        if let Some(flushes) = waits.flushes {
            self.stacks.explain(left, Part::Walks, flushes);
        }
        self.stacks.explain(left, Part::Branches, waits.branches);
        self.stacks.end(cycles, since);
    }

    /// Fetches an entry: what stops fetch stops it for all that follow.
    #[inline(always)]
    fn fetch_entry(
        &mut self,
        header: Header,
        references: &[Referenced<V>],
        now: &Now<'_, V>,
        waits: &mut Waits<V>,
    ) {
        waits.branches = self.fetch_next(header);
        if std::mem::take(&mut self.is_flushed) {
            let before = self.fetch.cycle();
            self.fetch.wait(std::mem::replace(&mut self.refetch, V::all(0)));
            waits.flushes = Some(self.fetch.cycle().minus(before));
        }
        for of in references.iter().filter(|of| of.reference.is_fetch()) {
            self.fetch_line(of, now, waits);
        }
    }

    /// Lets fetch wait for room and for the branch before an entry. Returns how long it waits for the branch.
    #[inline(always)]
    fn fetch_next(&mut self, header: Header) -> V {
        let mut branches = V::all(0);
        self.fetch.wait(*self.dispatched.get(self.before(self.config.fetch_buffer)));
        if header.continues() {
            self.continuations += 1;
        }
        self.taken += u64::from(header.is_after_taken());
        if header.is_redirected() {
            self.mispredicted += 1;
            let before = self.fetch.cycle();
            let resolved = self.complete_before(1).plus(V::all(self.config.mispredict_cycles));
            self.fetch.wait(resolved);
            branches = self.fetch.cycle().minus(before);
        }
        self.fetch.end_cycle_if(header.is_after_taken() && !header.is_redirected());
        branches
    }

    /// Lets fetch wait for a line with costs.
    #[inline(never)]
    fn fetch_line(&mut self, of: &Referenced<V>, now: &Now<'_, V>, waits: &mut Waits<V>) {
        of.each_cost(now.costs, |lane, cost| {
            self.fetch.make_room_in(lane);
            let start = self.interrupt(lane, self.fetch.cycle().get(lane), cost, waits);
            let looked_up = start + cost.lookup_cycles;
            let translated = self.translate_in(lane, of.access, looked_up, Some(cost), now);
            let arrived = match cost.cache_cycles {
                0 => translated,
                _ => {
                    let (context, at) = (self.context(now, lane), self.absolute(lane, translated));
                    let filled = self.memory[lane].fill(at, cost, &context);
                    self.in_epoch(lane, filled)
                }
            };
            add(&mut waits.fetch_lookups, lane, looked_up - start);
            add(&mut waits.fetch_walks, lane, translated - looked_up);
            add(&mut waits.fetches, lane, arrived - translated);
            self.fetch.wait_in(lane, arrived);
        });
    }

    /// When the handler of a reference returns that is reached at a time: it runs when all instructions before
    /// are committed.
    #[inline(always)]
    fn interrupt(&mut self, lane: usize, at: u32, cost: Cost, waits: &mut Waits<V>) -> u32 {
        if cost.handler_cycles == 0 {
            return at;
        }
        let cycles = self.config.front_end_cycles + cost.handler_cycles;
        self.traps[lane] += 1;
        add(&mut waits.handlers, lane, cycles);
        at.max(self.commit.cycle().get(lane)) + cycles
    }

    /// Runs the handlers of an entry's data references, if it has any, when its operands are ready, then
    /// fetches and dispatches the entry again. Changes its dispatch to the last one.
    #[inline(never)]
    fn interrupt_entry(
        &mut self,
        dispatched: &mut V,
        entry: &Operands<V>,
        references: &[Referenced<V>],
        costs: &[&Costs],
        waits: &mut Waits<V>,
    ) {
        for (lane, dispatched) in dispatched.as_mut_slice().iter_mut().enumerate().take(costs.len())
        {
            let ready = entry.operands.get(lane).max(*dispatched + 1);
            let mut returned = ready;
            for of in references.iter().filter(|of| !of.reference.is_fetch()) {
                if let Some(cost) = of.cost(lane, costs) {
                    returned = self.interrupt(lane, returned, cost, waits);
                }
            }
            if returned > ready {
                let fetched = self.fetch.take_in(lane, returned) + self.config.front_end_cycles;
                *dispatched = self.dispatch.take_in(lane, fetched);
            }
        }
    }

    /// Dispatches an entry when there is room in all queues but the store queue, and in that.
    #[inline(always)]
    fn dispatch_entry(&mut self, room: V, stored: V, waits: &mut Waits<V>) -> V {
        let fetched = self.fetch.take_next().plus(V::all(self.config.front_end_cycles));
        let earliest = fetched.max(room);
        waits.stores = stored.saturating_minus(earliest.max(self.dispatch.cycle()));
        self.dispatch.take(earliest.max(stored))
    }

    /// When there is room for the entry to come: in all queues but the store queue, and in that.
    #[inline(always)]
    fn room_for(&self, writes: bool, references: &[Referenced<V>]) -> (V, V) {
        let (mut room, mut stored) = (self.room_in_buffers(writes), V::all(0));
        let (mut loads, mut stores) = (self.loads, self.stores);
        for Referenced { reference, .. } in references {
            if reference.is_fetch() {
                continue;
            }
            if reference.is_store() {
                let before = stores.wrapping_sub(u64::from(self.config.store_queue));
                stored = stored.max(*self.store_ends.get(before));
                stores += 1;
            } else {
                let before = loads.wrapping_sub(u64::from(self.config.load_queue));
                room = room.max(*self.load_ends.get(before));
                loads += 1;
            }
        }
        (room, stored)
    }

    /// When there is room in the reorder buffer for the entry to come, and for the register that it writes.
    #[inline(always)]
    fn room_in_buffers(&self, writes: bool) -> V {
        let committed = *self.committed.get(self.before(self.config.reorder_buffer));
        if !writes {
            return committed;
        }
        let freed = self.registers.wrapping_sub(u64::from(self.config.rename_registers));
        committed.max(*self.register_ends.get(freed))
    }

    /// Keeps the times of an entry, and goes on to the next one.
    #[inline(always)]
    fn end_entry(&mut self, writes: bool, dispatched: V, complete: V, committed: V) {
        self.dispatched.set(self.entries, dispatched);
        self.complete.set(self.entries, complete);
        self.committed.set(self.entries, committed);
        self.entries += 1;
        // The place is that of the next register that is written, if this entry writes none.
        self.register_ends.set(self.registers, committed);
        self.registers += u64::from(writes);
    }

    /// Executes the references and the computation of an entry that was dispatched at a cycle, and on the wrong path, if it
    /// is on one. Returns when it is complete.
    #[inline(always)]
    fn compute(
        &mut self,
        dispatched: V,
        entry: &Operands<V>,
        wrong: Option<(&Operands<V>, OnWrongPath<V>)>,
        references: &[Referenced<V>],
        now: &Now<'_, V>,
        waits: &mut Waits<V>,
    ) -> V {
        let ready = entry.operands.max(dispatched.plus(V::all(1)));
        let computes = self.cycles_to_compute(entry.header);
        let refers = refer_to_data(references);
        // Without references it begins when it has its late operands, too.
        let begun = if refers { ready } else { ready.max(entry.late) };
        let mut complete = begun;
        let (mut loaded, mut of_loads) = (ready, ReferenceWaits::new());
        let mut on_wrong_path = wrong.map(|(of, on)| OnBothPaths::new(on, of.late, of.forwarded));
        if !refers {
            complete = self.issue.take(Slot::of(0, 0), begun, dispatched);
        }
        for of in references {
            let reference = of.reference;
            if reference.is_fetch() {
                continue;
            }
            let stores = u32::from(reference.is_store());
            let slot = Slot::of(1 - stores, stores);
            // A store of a loaded value waits for it.
            let earliest = if reference.is_store() { loaded } else { ready };
            let start = self.issue.take(slot, earliest, dispatched);
            let mut lookups = V::all(0);
            of.each_cost(now.costs, |lane, cost| {
                lookups.set(lane, cost.lookup_cycles);
            });
            let mut own = ReferenceWaits { lookups, ..ReferenceWaits::new() };
            let end = match &mut on_wrong_path {
                None => {
                    let looked_up = start.plus(lookups);
                    self.refer(of, looked_up, entry.forwarded.as_ref(), &mut own, now)
                }
                Some(both) => self.refer_on_both(of, start, entry.forwarded, both, &mut own, now),
            };
            if reference.is_store() {
                // It adds its waits to those of the load that it waited for.
                own.lookups = own.lookups.plus(of_loads.lookups);
                own.walks = own.walks.plus(of_loads.walks);
                (own.data, own.served) = (of_loads.data, of_loads.served);
            } else {
                of_loads.replace(&mut loaded, &end, &own);
            }
            waits.slowest.replace(&mut complete, &end, &own);
        }
        if refers {
            // One cycle of arithmetic is hidden behind a reference.
            complete = complete.max(entry.late.plus(V::all(1))).plus(V::all(computes - 1));
        } else {
            complete = complete.plus(V::all(computes));
        }
        if self.wrong_paths.is_under_way() {
            let of_wrong = on_wrong_path
                .map_or(complete, |of| of.on.select(of.complete(refers, computes), complete));
            self.end_on_wrong_paths(of_wrong);
        }
        complete
    }

    /// [`Self::refer`] from an issue on, of an entry on both paths. The reference begins on the wrong path, where that has it,
    /// and then waits on the right one for what has not come yet.
    #[inline(always)]
    fn refer_on_both(
        &mut self,
        of: &Referenced<V>,
        start: V,
        forwarded: Option<V>,
        both: &mut OnBothPaths<V>,
        own: &mut ReferenceWaits<V>,
        now: &Now<'_, V>,
    ) -> V {
        let is_store = of.reference.is_store();
        let on = both.on;
        let began = on.select(if is_store { both.loaded } else { on.ready }, start);
        let of_both = forwarded.zip(both.forwarded).map(|(right, wrong)| on.select(wrong, right));
        let looked_up = began.plus(own.lookups);
        let end = self.refer(of, looked_up, of_both.as_ref(), own, now);
        both.complete = both.complete.max(end);
        if !is_store {
            both.loaded = both.loaded.max(end);
        }
        let translated = looked_up.plus(own.walks);
        let served = translated.plus(own.data);
        own.lookups = looked_up.saturating_minus(start);
        own.walks = translated.saturating_minus(start.max(looked_up));
        own.data = served.saturating_minus(start.max(translated));
        let hit = start.plus(V::all(if is_store { 1 } else { self.l1d_cycles }));
        let mut if_there = hit;
        if let Some(stored) = forwarded.filter(|_| !is_store) {
            if_there = stored.max(start).plus(V::all(self.config.forward_cycles));
            of.each_cost(now.costs, |lane, cost| {
                if cost.concerns_lines() {
                    if_there.set(lane, hit.get(lane));
                }
            });
        }
        on.select(end.max(if_there), end)
    }

    /// Cycles of an instruction's arithmetic.
    #[inline(always)]
    fn cycles_to_compute(&self, header: Header) -> u32 {
        header.arithmetic().map_or(1, |of| self.config.latencies.of(of))
    }

    /// When a load has its data, or a store its translation, whose later TLB levels have been looked up at a time.
    /// Adds its waits for walks and lines.
    #[inline(always)]
    fn refer(
        &mut self,
        of: &Referenced<V>,
        looked_up: V,
        forwarded: Option<&V>,
        own: &mut ReferenceWaits<V>,
        now: &Now<'_, V>,
    ) -> V {
        let translated = self.translate(of, looked_up, now);
        own.walks = translated.minus(looked_up);
        match of.reference.is_store() {
            true => {
                if self.config.store_prefetch {
                    self.prefetch_for_store(of, &translated, now);
                }
                translated.plus(V::all(1))
            }
            false => self.load(of, translated, forwarded, own, now),
        }
    }

    /// When a page is translated whose later TLB levels have been looked up at a time.
    #[inline(always)]
    fn translate(&mut self, of: &Referenced<V>, at: V, now: &Now<'_, V>) -> V {
        if of.costly == 0 && !at.is_less_in_any(self.walks_end) {
            return at;
        }
        self.translate_each(of, &at, now)
    }

    /// [`Self::translate`] lane by lane, where costs or walks under way differ.
    #[inline(never)]
    fn translate_each(&mut self, of: &Referenced<V>, at: &V, now: &Now<'_, V>) -> V {
        let mut translated = *at;
        for lane in 0..self.memory.len() {
            let cost = of.cost(lane, now.costs);
            let at = at.get(lane);
            if cost.is_some() || at < self.walks_end.get(lane) {
                translated.set(lane, self.translate_in(lane, of.access, at, cost, now));
            }
        }
        translated
    }

    /// When a page is translated in a lane, or an access goes on at its predicted frame.
    fn translate_in(
        &mut self,
        lane: usize,
        access: LineAccess,
        at: u32,
        cost: Option<Cost>,
        now: &Now<'_, V>,
    ) -> u32 {
        let (context, from) = (self.context(now, lane), self.absolute(lane, at));
        let memory = &mut self.memory[lane];
        let (translated, walks_end) =
            (memory.translate(access, from, cost, &context), memory.walks_end());
        self.walks_end.set(lane, self.in_epoch(lane, walks_end));
        self.note_under_way(lane);
        let translated = self.in_epoch(lane, translated);
        let walk = cost.filter(|cost| cost.walk_cycles > 0);
        match walk.map_or(Speculation::None, |cost| cost.speculation) {
            Speculation::None => translated,
            Speculation::Right => {
                self.verified.set(lane, self.verified.get(lane).max(translated));
                at
            }
            Speculation::Wrong => {
                let refetch = translated + self.config.mispredict_cycles;
                self.refetch.set(lane, self.refetch.get(lane).max(refetch));
                self.is_flushed = true;
                translated
            }
        }
    }

    fn note_under_way(&mut self, lane: usize) {
        self.under_way_end.set(lane, self.walks_end.get(lane).max(self.lines_end.get(lane)));
    }

    /// When a load has its data, from its translation on. Sets how long it waits for its line, and what for.
    #[inline(always)]
    fn load(
        &mut self,
        of: &Referenced<V>,
        at: V,
        forwarded: Option<&V>,
        own: &mut ReferenceWaits<V>,
        now: &Now<'_, V>,
    ) -> V {
        let mut end: V = match forwarded {
            Some(stored) => stored.max(at).plus(V::all(self.config.forward_cycles)),
            None => at.plus(V::all(self.l1d_cycles)),
        };
        let may_hit_in_flight = forwarded.is_none() && at.is_less_in_any(self.lines_end);
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
        of: &Referenced<V>,
        at: &V,
        is_forwarded: bool,
        end: &mut V,
        own: &mut ReferenceWaits<V>,
        now: &Now<'_, V>,
    ) {
        for lane in 0..self.memory.len() {
            let cost = of.cost(lane, now.costs).filter(Cost::concerns_lines);
            let at = at.get(lane);
            if cost.is_none() && (is_forwarded || at >= self.lines_end.get(lane)) {
                continue;
            }
            let (line, part) = self.line_in(lane, of.access, at, cost, now);
            own.data.set(lane, line - at);
            own.served.set(lane, part as u32);
            end.set(lane, line + self.l1d_cycles);
        }
    }

    /// Frees the load queue, and sends the stores of a committed entry to the data cache.
    #[inline(always)]
    fn commit_memory(&mut self, committed: V, references: &[Referenced<V>], now: &Now<'_, V>) {
        for of in references {
            if of.reference.is_fetch() {
                continue;
            }
            if !of.reference.is_store() {
                self.load_ends.set(self.loads, committed);
                self.loads += 1;
                continue;
            }
            let asks = of.costly != 0 && !self.config.store_prefetch;
            if asks || committed.is_less_in_any(self.lines_end) {
                self.send_store(of, &committed, now);
            }
            // Lines that are in the cache are there before the entry is committed.
            let entered = self.drain.take(committed);
            self.store_ends.set(self.stores, entered);
            self.stores += 1;
        }
    }

    /// Asks for the line of a store whose page is translated at a time.
    #[inline(always)]
    fn prefetch_for_store(&mut self, of: &Referenced<V>, at: &V, now: &Now<'_, V>) {
        if of.costly != 0 || at.is_less_in_any(self.lines_end) {
            self.ask_for_line(of, at, true, now, |_, _, _| ());
        }
    }

    /// Lets stores wait for the line of this one, where it is not in the cache when the store commits.
    #[inline(always)]
    fn send_store(&mut self, of: &Referenced<V>, committed: &V, now: &Now<'_, V>) {
        let is_first = !self.config.store_prefetch;
        self.ask_for_line(of, committed, is_first, now, |core, lane, arrived| {
            core.drain.wait_in(lane, arrived);
        });
    }

    /// Asks for the line of a store at a time, in the lanes where it is not in the cache then, and calls a function with
    /// each lane and the time when it has the line. The costs of the line are paid when it is asked for first.
    #[inline(never)]
    fn ask_for_line(
        &mut self,
        of: &Referenced<V>,
        at: &V,
        is_first: bool,
        now: &Now<'_, V>,
        mut arrives: impl FnMut(&mut Self, usize, u32),
    ) {
        for lane in 0..self.memory.len() {
            let (at, cost) = (at.get(lane), of.cost(lane, now.costs));
            let cost = cost.filter(|cost| is_first && cost.concerns_lines());
            if cost.is_some() || at < self.lines_end.get(lane) {
                let (arrived, _) = self.line_in(lane, of.access, at, cost, now);
                arrives(self, lane, arrived);
            }
        }
    }

    /// When a line is in the first-level cache of a lane that misses there, if it has a cost, or hits, and what
    /// serves it.
    #[inline(always)]
    fn line_in(
        &mut self,
        lane: usize,
        access: LineAccess,
        at: u32,
        cost: Option<Cost>,
        now: &Now<'_, V>,
    ) -> (u32, Part) {
        let (context, at) = (self.context(now, lane), self.absolute(lane, at));
        let memory = &mut self.memory[lane];
        let (line, part) = match cost {
            Some(cost) => memory.miss(access, at, cost, &context),
            None => memory.hit(access, at, &context),
        };
        let lines_end = memory.lines_end();
        self.lines_end.set(lane, self.in_epoch(lane, lines_end));
        self.note_under_way(lane);
        (self.in_epoch(lane, line), part)
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
