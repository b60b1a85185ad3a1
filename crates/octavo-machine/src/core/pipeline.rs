//! An out-of-order core, simulated in one pass over the instructions in program order. The cycles in which an
//! instruction is fetched, dispatched, executed and committed follow from those of earlier instructions.
//! `docs/core.md` specifies the model; `core/naive.rs` implements it a second time, slowly, for comparison.
//!
//! - Fetch: `fetch_width` instructions a cycle, at most `fetch_buffer` instructions ahead of dispatch. A taken branch
//!   ends its fetch cycle. A mispredicted branch stops fetch until it is resolved, and a miss of a fetch until the line
//!   has arrived.
//! - Dispatch: in order, at the earliest `front_end_cycles` after fetch, when reorder buffer, registers, load queue and
//!   store queue have room.
//! - Execution: when all producers are complete, in a free slot of the issue width and of the load or store ports. An
//!   instruction takes one cycle, or the latency of its arithmetic. A load completes when its data arrives, a store
//!   when its address is translated.
//! - Wrong path: while a mispredicted branch waits for long, the instructions that the
//!   [wrong path](super::wrong_paths) shares with the right path begin on the wrong path. Their walks and lines are
//!   under way, or have arrived, when the right path executes them.
//! - Software handler of a miss: it interrupts the program. It begins when all earlier instructions are committed, and
//!   then the instruction is fetched again.
//! - Memory: a load pays for the look-ups of later TLB levels, then for the walk, then for the line. Walks for one page
//!   and misses of one line are merged. A walk takes one of the core's walkers, a miss takes one of the outstanding
//!   misses of each level that it misses, and a line from memory takes its bank and its channel. These resources are
//!   reserved in program order, each at the earliest time at which it is free.
//! - Predicted frame: the load continues at once and commits after the walk that verifies the prediction. After a wrong
//!   prediction the load waits for the walk as usual, and all later instructions are fetched again, as after a
//!   mispredicted branch.
//! - Commit: in order, `commit_width` a cycle. Stores then enter the data cache in order.
//!
//! The machine has simulated the accesses in program order, and supplies the cost of each walk and line. A later
//! instruction may use the page or line at an earlier time than the instruction that missed: then the later instruction
//! starts the walk or miss.
//!
//! Cores of several machines that execute one program with equal widths, queues and latencies are the *lanes* of one
//! pass: each time is an array with an element for each lane, and the words of the program are decoded once. The costs
//! of accesses differ between lanes.
//!
//! Times have 32 bits, so that a vector register holds the times of many lanes. They count cycles since the *epoch* of
//! their lane, which moves on before they overflow.

use octavo_config::{MachineConfig, PipelineConfig};
use octavo_types::{Arithmetic, Compiled, Instructions};

use super::calendar::{InOrder, IssueSlots, Slot, filled_array};
use super::lanes::Lanes;
use super::memory_side::{MemoryContext, MemorySide};
use super::stack::{Part, Stack, Stacks};
use super::wrong_paths::{OnBothPaths, OnWrongPath, WrongPaths};
use super::{Cost, Costs, Speculation};
use crate::counters::Counters;
use crate::front::{
    Difference, Entry, Header, LineAccess, Lines, MAX_DISTANCE, Reference, Simple, Word,
    each_distance, entries,
};

/// The epochs move on once any lane commits after this time: half of the cycles whose slots [`IssueSlots`] keeps in an
/// array, so that instructions that are issued later find room there, too.
const EPOCH_END: u32 = if cfg!(test) { 1 << 12 } else { IssueSlots::<[u32; 1]>::NEAR_END / 2 };
/// [`EPOCH_END`] is checked after each entry of the general path, and on the fast path once in so many entries.
const ENTRIES_PER_CHECK: u64 = 1 << 8;

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

    /// Whether the cores of both machines can be lanes of one [`Pipeline`].
    pub fn is_like(&self, other: &CoreSetup) -> bool {
        let key = |setup: &CoreSetup| (setup.machine.cache.l1d.latency_cycles, setup.count());
        self.pipeline == other.pipeline && key(self) == key(other)
    }

    /// The counts of a core that has executed nothing.
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
    /// Row hits and row conflicts; `None` without a DRAM model.
    rows: Option<[u64; 2]>,
    /// By level, the prefetched lines that were used before they had arrived; `None` without prefetchers.
    late_prefetches: Option<[u64; 2]>,
}

impl CoreCounts {
    /// The time of the last commit, in cycles.
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

/// A core of each of several machines, which execute one program. There may be more lanes than machines.
pub struct Pipeline<V> {
    config: PipelineConfig,
    l1d_cycles: u32,
    /// The epoch of each lane, in cycles since the start of the program.
    epochs: Box<[u64]>,
    /// Entries executed so far: the number of the next entry.
    entries: u64,
    /// Entries that continue the instruction of the entry before them.
    continuations: u64,
    taken: u64,
    mispredicted: u64,
    traps: Box<[u64]>,
    /// By number of the entry, when it was dispatched, complete, and committed.
    dispatched: Ring<V>,
    complete: Ring<V>,
    committed: Ring<V>,
    latencies: SimpleLatencies,
    /// Integer registers written, loads and stores so far: the numbers of the next ones.
    registers: u64,
    loads: u64,
    stores: u64,
    /// By number, when the write of a register and a load were committed, and when a store entered the cache.
    register_ends: Ring<V>,
    load_ends: Ring<V>,
    store_ends: Ring<V>,
    fetch: InOrder<V>,
    dispatch: InOrder<V>,
    commit: InOrder<V>,
    /// Stores that enter the data cache.
    drain: InOrder<V>,
    issue: IssueSlots<V>,
    /// One for each lane in use.
    memory: Vec<MemorySide>,
    /// When the last walk under way ends, and when the last line under way arrives.
    walks_end: V,
    lines_end: V,
    /// The later of both.
    under_way_end: V,
    /// When the last walk ends that verifies a predicted frame of the current entry.
    verification_end: V,
    /// The earliest fetch of the next entry, if the current entry used a wrong frame.
    refetch_from: V,
    /// Whether any lane has a time in `refetch_from`.
    needs_refetch: bool,
    wrong_paths: WrongPaths<V>,
    /// By number of the entry, when it is complete on wrong paths.
    complete_on_wrong_paths: Ring<V>,
    /// The first entry whose time is not yet in `complete_on_wrong_paths`.
    entries_on_wrong_paths: u64,
    stacks: Stacks<V>,
    /// The references of the current entry, kept to reuse the allocation.
    references: Vec<EntryReference<V>>,
}

/// The last times of one kind, by number.
struct Ring<V> {
    /// Only the first `mask + 1` elements are used, so that they stay in the caches of the host.
    times: Box<[V; MAX_TIMES]>,
    mask: u64,
}

/// The capacity of a ring: a power of two above the numbers of registers, and of entries in a reorder buffer.
const MAX_TIMES: usize = 1 << 11;

impl<V: Lanes> Ring<V> {
    /// A ring with at least `count + 1` times, all 0.
    fn new(count: u32) -> Self {
        let count = u64::from(count + 1).next_power_of_two();
        assert!(count <= MAX_TIMES as u64, "fewer times");
        Ring { times: filled_array(V::all(0)), mask: count - 1 }
    }

    /// The time of a number. It is 0 for numbers below 0, which wrap around.
    #[inline(always)]
    fn get(&self, number: u64) -> &V {
        &self.times[(number & self.mask) as usize % MAX_TIMES]
    }

    #[inline(always)]
    fn set(&mut self, number: u64, time: V) {
        self.times[(number & self.mask) as usize % MAX_TIMES] = time;
    }
}

/// The cycles for which an instruction waits, by cause.
struct Waits<V> {
    /// Whether a reference has a cost: without one there are no waits for fetches and handlers.
    has_costs: bool,
    /// For a mispredicted branch before the instruction.
    branches: V,
    /// For the fetch that follows a wrong frame of the instruction before; `None` if no lane has one.
    flushes: Option<V>,
    /// For lines of fetches, for look-ups in later TLB levels, and for walks of fetches.
    fetches: V,
    fetch_lookups: V,
    fetch_walks: V,
    /// For room in the store queue.
    stores: V,
    /// For software handlers.
    handlers: V,
    /// For walks that verify predicted frames.
    verification: V,
    /// Of the reference to data that is complete last.
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
            verification: none,
            slowest: ReferenceWaits::new(),
        }
    }
}

/// The cycles for which a reference to data waits.
#[derive(Clone, Copy)]
struct ReferenceWaits<V> {
    lookups: V,
    walks: V,
    data: V,
    /// The [`Part`] of the stack that `data` belongs to, as a number.
    served: V,
}

impl<V: Lanes> ReferenceWaits<V> {
    #[inline(always)]
    fn new() -> Self {
        let none = V::all(0);
        ReferenceWaits { lookups: none, walks: none, data: none, served: V::all(Part::Base as u32) }
    }

    /// Keeps the waits of the reference that ends later: in lanes where `end` is not before `latest`, replaces the
    /// waits by `waits`, and `latest` by `end`.
    #[inline(always)]
    fn replace(&mut self, latest: &mut V, end: &V, waits: &Self) {
        let select = |old_wait, new_wait| end.select_at_least(*latest, new_wait, old_wait);
        self.lookups = select(self.lookups, waits.lookups);
        self.walks = select(self.walks, waits.walks);
        self.data = select(self.data, waits.data);
        self.served = select(self.served, waits.served);
        *latest = latest.max(*end);
    }
}

/// A reference of an entry. Fetches without a cost in any lane are left out.
#[derive(Clone, Copy)]
struct EntryReference<V> {
    word: Reference,
    access: LineAccess,
    /// The lanes in which the reference has a cost, as a bit mask.
    cost_lanes: u32,
    /// The index of the cost in each of these lanes.
    cost_indices: V,
}

impl<V: Lanes> EntryReference<V> {
    /// The cost of the reference in a lane.
    #[inline(always)]
    fn cost(&self, lane: usize, costs: &[&Costs]) -> Option<Cost> {
        match self.cost_lanes >> lane & 1 {
            0 => None,
            _ => Some(costs[lane].costs[self.cost_indices.get(lane) as usize]),
        }
    }

    /// Calls `visit` for each lane in which the reference has a cost.
    #[inline(always)]
    fn each_cost(&self, costs: &[&Costs], mut visit: impl FnMut(usize, Cost)) {
        let mut lanes = self.cost_lanes;
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            visit(lane, costs[lane].costs[self.cost_indices.get(lane) as usize]);
            lanes &= lanes - 1;
        }
    }
}

/// The header of an entry, and when its producers are complete.
struct Operands<V> {
    header: Header,
    /// When the last producer that is not late is complete.
    operands: V,
    /// When the last late producer is complete.
    late: V,
    /// When the last store is complete from which a load of the entry takes its value.
    forwarded: Option<V>,
}

impl<V: Lanes> Operands<V> {
    fn new(header: Header) -> Self {
        Operands { header, operands: V::all(0), late: V::all(0), forwarded: None }
    }

    /// Adds the producers that a word names. `complete` returns when the producer at a distance is complete.
    #[inline(always)]
    fn add(&mut self, word: Word, mut complete: impl FnMut(u32) -> V) {
        match word {
            Word::Distances(distances) => {
                each_distance(distances, |distance| {
                    self.operands = self.operands.max(complete(distance));
                });
            }
            Word::Late(distances) => {
                each_distance(distances, |distance| self.late = self.late.max(complete(distance)));
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
    /// When the store is complete from which the load takes its value. Without such a store, a time that delays
    /// nothing.
    forwarded: V,
}

impl<V: Lanes> SimpleOperands<V> {
    /// `complete` returns when the producer at a distance is complete. With `has_late`, the second of two distances is
    /// late.
    #[inline(always)]
    fn new(entry: Simple, has_late: bool, complete: impl Fn(u32) -> V) -> Self {
        let [first, second] = entry.header.distances().map(&complete);
        let (mut operands, mut late) =
            if has_late { (first, second) } else { (first.max(second), V::all(0)) };
        let mut forwarded = V::all(0);
        if entry.has_more() {
            let [third, fourth] = entry.more_distances().map(&complete);
            if has_late {
                (operands, late) = (operands.max(third), late.max(fourth));
            } else {
                operands = operands.max(third.max(fourth));
            }
            // An entry that takes no value from a store has the distance 0, whose time delays nothing.
            forwarded = complete(entry.forward());
        }
        SimpleOperands { operands, late, forwarded }
    }
}

/// Whether an entry has a reference to data.
#[inline(always)]
fn has_data_reference<V>(references: &[EntryReference<V>]) -> bool {
    references.iter().any(|reference| !reference.word.is_fetch())
}

/// Excludes an entry from wrong paths in the lanes in which one of its references to data has a software handler or a
/// predicted frame.
fn exclude_interrupted<V: Lanes>(
    mut wrong: OnWrongPath<V>,
    references: &[EntryReference<V>],
    costs: &[&Costs],
) -> OnWrongPath<V> {
    for reference in references.iter().filter(|reference| !reference.word.is_fetch()) {
        reference.each_cost(costs, |lane, cost| {
            if cost.handler_cycles > 0 || cost.speculation != Speculation::None {
                wrong.exclude(lane);
            }
        });
    }
    wrong
}

/// The cycles from issue to completion of a simple entry that waits for no walk and no line.
#[derive(Clone, Copy)]
struct SimpleLatencies {
    /// First by the data reference: no load, a load, a load that takes its value from a store (two rows). Then by the
    /// code of the arithmetic.
    cycles: [[u32; 8]; 4],
}

impl SimpleLatencies {
    fn new(config: &PipelineConfig, l1d_cycles: u32) -> Self {
        let reference = |load: usize| [1, l1d_cycles, config.forward_cycles][load.min(2)];
        let cycles = |load| {
            std::array::from_fn(|code| {
                let arithmetic = Arithmetic::of_code(code as u8)
                    .map_or(1, |arithmetic| config.latencies.of(arithmetic));
                // The reference hides one cycle of the arithmetic.
                reference(load) + arithmetic - 1
            })
        };
        SimpleLatencies { cycles: std::array::from_fn(cycles) }
    }

    #[inline(always)]
    fn of(&self, entry: Simple) -> u32 {
        let load = entry.loads() + u32::from(entry.forward() != 0);
        self.cycles[load as usize % 4][entry.header.arithmetic_code()]
    }
}

/// A position in the costs of each lane, which moves along with the fresh references of a part of a batch.
struct CostCursor<'a, V> {
    costs: &'a [&'a Costs],
    /// The number of the next fresh reference.
    reference: u32,
    /// In each lane, the index of the next cost, and the number of the fresh reference that has it.
    next_cost: V,
    next_reference: V,
    /// The least number in `next_reference`.
    next_in_any_lane: u32,
}

impl<'a, V: Lanes> CostCursor<'a, V> {
    fn new(costs: &'a [&'a Costs]) -> Self {
        let next_cost = V::all(0);
        let next_reference = V::of_each(|lane| reference_with_cost(costs, lane, 0));
        let next_in_any_lane = least(&next_reference);
        CostCursor { costs, reference: 0, next_cost, next_reference, next_in_any_lane }
    }

    /// Whether any of the next `fresh` fresh references has a cost.
    #[inline(always)]
    fn has_cost_within(&self, fresh: u32) -> bool {
        self.next_in_any_lane - self.reference < fresh
    }

    /// Moves behind the next fresh reference. Returns the lanes in which that has a cost, as a bit mask, and the index
    /// of the cost in each of them.
    #[inline(always)]
    fn advance(&mut self) -> (u32, V) {
        let (mut lanes, mut indices) = (0, V::all(0));
        if self.next_in_any_lane == self.reference {
            for lane in 0..V::COUNT {
                if self.next_reference.get(lane) == self.reference {
                    let index = self.next_cost.get(lane);
                    lanes |= 1 << lane;
                    indices.set(lane, index);
                    self.next_cost.set(lane, index + 1);
                    self.next_reference.set(lane, reference_with_cost(self.costs, lane, index + 1));
                }
            }
            self.next_in_any_lane = least(&self.next_reference);
        }
        self.reference += 1;
        (lanes, indices)
    }
}

/// The number of the fresh reference that has the cost at an index; the largest number if there is no such cost.
fn reference_with_cost(costs: &[&Costs], lane: usize, index: u32) -> u32 {
    let cost = costs.get(lane).and_then(|costs| costs.costs.get(index as usize));
    cost.map_or(u32::MAX, |cost| cost.access)
}

/// The least number of all lanes.
#[inline(always)]
fn least<V: Lanes>(numbers: &V) -> u32 {
    numbers.as_slice().iter().fold(u32::MAX, |least, number| least.min(*number))
}

/// The costs of the part that an entry belongs to, and a time in each lane before which neither the entry nor a later
/// one makes a request.
struct Context<'a, V> {
    costs: &'a [&'a Costs],
    now: V,
}

/// A part of a batch that is to be executed.
struct PartExecution<'a, V> {
    core: &'a mut Pipeline<V>,
    words: &'a [u32],
    accesses: &'a [LineAccess],
    first: usize,
    costs: &'a [&'a Costs],
}

impl<V: Lanes> Compiled for PartExecution<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.core.execute_part(self.words, self.accesses, self.first, self.costs);
    }
}

/// Adds a number in a lane.
#[inline(always)]
fn add_in_lane<V: Lanes>(sums: &mut V, lane: usize, number: u32) {
    sums.set(lane, sums.get(lane) + number);
}

impl<V: Lanes> Pipeline<V> {
    /// Cores that have executed nothing, of machines with [equal cores](CoreSetup::is_like): at most as many as there
    /// are lanes.
    pub fn new(setups: &[&CoreSetup]) -> Self {
        assert!((1..=V::COUNT).contains(&setups.len()), "a lane for each machine");
        let none = V::all(0);
        let config = &setups[0].pipeline;
        let memory_side =
            |setup: &&CoreSetup| MemorySide::new(&setup.machine, config.outstanding, setup.lines);
        Pipeline {
            l1d_cycles: setups[0].machine.cache.l1d.latency_cycles,
            epochs: vec![0; V::COUNT].into(),
            entries: 0,
            continuations: 0,
            taken: 0,
            mispredicted: 0,
            traps: vec![0; V::COUNT].into(),
            latencies: SimpleLatencies::new(config, setups[0].machine.cache.l1d.latency_cycles),
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
            verification_end: none,
            refetch_from: none,
            needs_refetch: false,
            wrong_paths: WrongPaths::new(config),
            complete_on_wrong_paths: Ring::new(MAX_DISTANCE as u32),
            entries_on_wrong_paths: 0,
            stacks: Stacks::new(),
            references: Vec::new(),
            config: config.clone(),
        }
    }

    /// Executes a part of a batch. `accesses` are all of the batch, `first` is the index of the part's first access,
    /// and `costs` are the costs of the part's accesses in each lane in use.
    pub fn execute(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
        instructions: Instructions,
    ) {
        assert_eq!(costs.len(), self.memory.len(), "costs of each lane");
        instructions.run(PartExecution { core: self, words, accesses, first, costs });
    }

    #[inline(always)]
    fn execute_part(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
    ) {
        let mut cursor = CostCursor::new(costs);
        // The general path alone fetches again behind a wrong frame.
        let has_flushes = self.needs_refetch || costs.iter().any(|costs| costs.has_flushes);
        for entry in entries(words) {
            match entry {
                Entry::Simple(simple)
                    if !(has_flushes
                        | self.may_begin_wrong_path(simple.header)
                        | cursor.has_cost_within(simple.fresh())) =>
                {
                    let fetched = cursor.reference + simple.fetches();
                    cursor.reference += simple.fresh();
                    let data = simple.data();
                    let place =
                        if data.is_fresh() { first + fetched as usize } else { data.place() };
                    if !self.wrong_paths.is_under_way() {
                        self.execute_simple::<false>(simple, accesses, place, costs);
                    } else if V::COUNT == 1 {
                        self.execute_simple_on_both_in_one_lane(simple, accesses, place, costs);
                    } else {
                        self.execute_simple::<true>(simple, accesses, place, costs);
                    }
                    if self.entries.is_multiple_of(ENTRIES_PER_CHECK) {
                        self.move_epochs_if_due();
                    }
                }
                // With several lanes the general path is inlined here, where the vector instructions are enabled. With
                // one lane it is a call, so that this loop stays small.
                _ if V::COUNT == 1 => {
                    self.execute_any_in_one_lane(entry, accesses, first, &mut cursor);
                }
                _ => self.execute_any(entry, accesses, first, &mut cursor),
            }
        }
    }

    /// [`Self::execute_simple`] for one lane, while a wrong path is under way.
    #[inline(never)]
    fn execute_simple_on_both_in_one_lane(
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
    fn execute_any_in_one_lane(
        &mut self,
        entry: Entry<'_>,
        accesses: &[LineAccess],
        first: usize,
        cursor: &mut CostCursor<'_, V>,
    ) {
        self.execute_any(entry, accesses, first, cursor);
    }

    /// The general path: executes an entry of any kind.
    #[inline(always)]
    fn execute_any(
        &mut self,
        entry: Entry<'_>,
        accesses: &[LineAccess],
        first: usize,
        cursor: &mut CostCursor<'_, V>,
    ) {
        let mut references = std::mem::take(&mut self.references);
        references.clear();
        let header = entry.header();
        if self.may_begin_wrong_path(header) {
            self.begin_wrong_path(header);
        }
        let is_on_wrong_path =
            self.wrong_paths.is_under_way() && header.difference() != Difference::Earlier;
        let [mut operands, mut wrong] = [Operands::new(header), Operands::new(header)];
        entry.each_word(|word| {
            operands.add(word, |distance| self.producer_complete(distance));
            if is_on_wrong_path {
                wrong.add(word, |distance| self.producer_complete_on_wrong_paths(distance));
            }
            if let Word::Reference(word) = word {
                let mut place = word.place();
                let (mut cost_lanes, mut cost_indices) = (0, V::all(0));
                if word.is_fresh() {
                    place = first + cursor.reference as usize;
                    (cost_lanes, cost_indices) = cursor.advance();
                }
                if cost_lanes != 0 || !word.is_fetch() {
                    references.push(EntryReference {
                        word,
                        access: accesses[place],
                        cost_lanes,
                        cost_indices,
                    });
                }
            }
        });
        let wrong = is_on_wrong_path.then_some(&wrong);
        self.execute_entry(&operands, wrong, &references, cursor.costs);
        self.references = references;
        self.move_epochs_if_due();
    }

    /// The fast path: executes a simple entry whose references have no cost in any lane. `place` is the index of the
    /// access that serves its reference to data. It has the result of [`Self::execute_entry`], but no loops over parts
    /// of the entry and few branches that depend on times: the host predicts the kind of the next entry better than its
    /// times. A wrong path may be under way only with `ON_BOTH`.
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
        // Without references, an entry needs its late producers as early as the others.
        let has_late = (loads || stores) && header.has_late();
        let SimpleOperands { operands, late, forwarded } =
            SimpleOperands::new(entry, has_late, |distance| self.producer_complete(distance));
        let mut context = Context { costs, now: self.fetch.cycle() };
        if ON_BOTH {
            context.now = self.wrong_paths.earliest_request(context.now);
        }

        let branches = self.delay_fetch(header);
        let fetched = self.fetch.take_next().plus(V::all(self.config.front_end_cycles));
        let writes = header.writes_integer();
        let mut room = self.room_in_buffers(writes);
        let mut earliest = fetched.max(room);
        let mut store_wait = V::all(0);
        if loads {
            let number = self.loads.wrapping_sub(u64::from(self.config.load_queue));
            let load_room = *self.load_ends.get(number);
            (room, earliest) = (room.max(load_room), earliest.max(load_room));
        } else if stores {
            let number = self.stores.wrapping_sub(u64::from(self.config.store_queue));
            let store_room = *self.store_ends.get(number);
            store_wait = store_room.saturating_minus(earliest.max(self.dispatch.cycle()));
            (room, earliest) = (room.max(store_room), earliest.max(store_room));
        }
        let dispatched = self.dispatch.take(earliest);

        let arithmetic = self.arithmetic_cycles(header);
        let mut both = None;
        if ON_BOTH && header.difference() != Difference::Earlier {
            let there = SimpleOperands::new(entry, has_late, |distance| {
                self.producer_complete_on_wrong_paths(distance)
            });
            let wrong = self.wrong_paths.dispatch(header.difference(), room, there.operands);
            let stored = (entry.forward() != 0).then_some(there.forwarded);
            let mut paths = OnBothPaths::new(wrong, there.late, stored);
            // As if the entry waited for no walk and no line; computed again below if it may wait.
            paths.complete =
                paths.complete.max(there.forwarded).plus(V::all(self.latencies.of(entry)));
            both = Some(paths);
        }
        let ready = operands.max(dispatched.plus(V::all(1)));
        let slot = Slot::new(entry.loads(), entry.stores());
        let start = self.issue.take(slot, ready, dispatched);
        let mut complete = start.max(forwarded).plus(V::all(self.latencies.of(entry)));
        let mut slowest = None;
        let begin =
            both.as_ref().map_or(start, |paths| paths.wrong.select(paths.wrong.ready, start));
        if (loads || stores) && begin.is_less_in_any(self.under_way_end) {
            let word = entry.data();
            let reference = EntryReference {
                word,
                access: accesses[place],
                cost_lanes: 0,
                cost_indices: V::all(0),
            };
            let forwarded = (entry.forward() != 0).then_some(forwarded);
            let mut waits = ReferenceWaits::new();
            let (mut end, mut own) = (ready, ReferenceWaits::new());
            let reference_end = match &mut both {
                None => self.execute_reference(
                    &reference,
                    start,
                    forwarded.as_ref(),
                    &mut own,
                    &context,
                ),
                Some(both) => {
                    both.complete = both.wrong.ready;
                    let end = self.execute_reference_on_both(
                        &reference, start, forwarded, both, &mut own, &context,
                    );
                    both.complete = both.complete.plus(V::all(arithmetic - 1));
                    end
                }
            };
            waits.replace(&mut end, &reference_end, &own);
            complete = end.plus(V::all(arithmetic - 1));
            slowest = Some(waits);
        }
        if has_late {
            complete = complete.max(late.plus(V::all(arithmetic)));
        }
        if ON_BOTH {
            let complete_there = both.map_or(complete, |mut paths| {
                if has_late {
                    paths.complete = paths.complete.max(paths.late.plus(V::all(arithmetic)));
                }
                paths.wrong.select(paths.complete, complete)
            });
            self.record_complete_on_wrong_paths(complete_there);
        }

        let last_commit = self.commit.cycle();
        let committed = self.commit.take(complete);
        let elapsed = committed.minus(last_commit);
        if let Some(slowest) = slowest {
            let waits = Waits { branches, stores: store_wait, slowest, ..Waits::new(false) };
            self.count_cycles(elapsed, &waits);
        } else {
            let mut remaining = elapsed.saturating_minus(V::all(1));
            if stores {
                self.stacks.attribute(&mut remaining, Part::Stores, store_wait);
            }
            if header.is_redirected() {
                self.stacks.attribute(&mut remaining, Part::Branches, branches);
            }
            self.stacks.add_to_base(remaining, elapsed);
        }
        self.end_entry(writes, dispatched, complete, committed);

        if loads {
            self.load_ends.set(self.loads, committed);
            self.loads += 1;
        } else if stores {
            if committed.is_less_in_any(self.lines_end) {
                let word = entry.data();
                let reference = EntryReference {
                    word,
                    access: accesses[place],
                    cost_lanes: 0,
                    cost_indices: V::all(0),
                };
                self.request_line_at_commit(&reference, &committed, &context);
            }
            self.store_ends.set(self.stores, self.drain.take(committed));
            self.stores += 1;
        }
    }

    /// Moves the epochs on if a lane has come to [`EPOCH_END`].
    #[inline(always)]
    fn move_epochs_if_due(&mut self) {
        if V::all(EPOCH_END).is_less_in_any(self.commit.cycle()) {
            self.move_epochs();
        }
    }

    #[cold]
    #[inline(never)]
    fn move_epochs(&mut self) {
        // An event this long before the fetch of an instruction cannot delay the instruction.
        let delay = self.config.mispredict_cycles.max(self.config.forward_cycles) + 1;
        let fetched = self.wrong_paths.earliest_request(self.fetch.cycle());
        let by = V::of_each(|lane| {
            let unneeded = fetched.get(lane).saturating_sub(delay);
            unneeded - unneeded % IssueSlots::<V>::EPOCH_STEP
        });
        let shift = |times: &mut V| *times = times.saturating_minus(by);
        for (epoch, by) in self.epochs.iter_mut().zip(by.as_slice()) {
            *epoch += u64::from(*by);
        }
        let of_entries = [&mut self.dispatched, &mut self.complete, &mut self.committed];
        let others = [
            &mut self.complete_on_wrong_paths,
            &mut self.register_ends,
            &mut self.load_ends,
            &mut self.store_ends,
        ];
        for ring in of_entries.into_iter().chain(others) {
            ring.times.iter_mut().for_each(shift);
        }
        for stage in [&mut self.fetch, &mut self.dispatch, &mut self.commit, &mut self.drain] {
            stage.move_epoch(by);
        }
        self.issue.move_epoch(by);
        self.wrong_paths.move_epoch(by);
        let ends = [
            &mut self.walks_end,
            &mut self.lines_end,
            &mut self.under_way_end,
            &mut self.refetch_from,
        ];
        ends.into_iter().for_each(shift);
        self.stacks.move_epoch();
    }

    /// A time of a lane, in cycles since the start of the program.
    #[inline(always)]
    fn absolute(&self, lane: usize, time: u32) -> u64 {
        self.epochs[lane] + u64::from(time)
    }

    /// A time since the start of the program, in cycles since the epoch of a lane; 0 if it is before the epoch.
    #[inline(always)]
    fn since_epoch(&self, lane: usize, time: u64) -> u32 {
        time.saturating_sub(self.epochs[lane]) as u32
    }

    /// The context of an entry for the memory side of a lane.
    #[inline(always)]
    fn memory_context<'a>(&self, context: &Context<'a, V>, lane: usize) -> MemoryContext<'a> {
        MemoryContext {
            costs: context.costs[lane],
            now: self.absolute(lane, context.now.get(lane)),
        }
    }

    /// The number of the entry `distance` entries before the next one.
    #[inline(always)]
    fn entry_before(&self, distance: u32) -> u64 {
        self.entries.wrapping_sub(u64::from(distance))
    }

    /// When the producer at a distance is complete. A producer beyond the reorder buffer is committed before the next
    /// entry is dispatched, so that it delays nothing. The distance 0 stands for no producer, and gives the time of one
    /// beyond the reorder buffer.
    #[inline(always)]
    fn producer_complete(&self, distance: u32) -> V {
        *self.complete.get(self.entry_before(distance))
    }

    /// When the producer at a distance is complete on wrong paths, while one is under way.
    #[inline(always)]
    fn producer_complete_on_wrong_paths(&self, distance: u32) -> V {
        *self.complete_on_wrong_paths.get(self.entry_before(distance))
    }

    /// Records when the current entry is complete on wrong paths: in lanes where no wrong path executes it, when it is
    /// complete on the right path.
    #[inline(always)]
    fn record_complete_on_wrong_paths(&mut self, complete: V) {
        self.complete_on_wrong_paths.set(self.entries, complete);
        self.entries_on_wrong_paths = self.entries + 1;
    }

    /// Whether a wrong path may begin with an entry.
    #[inline(always)]
    fn may_begin_wrong_path(&self, header: Header) -> bool {
        self.config.wrong_paths & header.is_redirected()
    }

    /// Handles a mispredicted branch directly before the next entry: its wrong path begins if it waits for long, and
    /// wrong paths under way find the misprediction.
    fn begin_wrong_path(&mut self, header: Header) {
        self.fetch.wait(*self.dispatched.get(self.entry_before(self.config.fetch_buffer)));
        let complete = [self.producer_complete(1), self.producer_complete_on_wrong_paths(1)];
        let (fetched, dispatched) = (self.fetch.next_cycle(), self.dispatch.cycle());
        self.wrong_paths.redirect(header.difference(), fetched, dispatched, complete);
        if self.wrong_paths.is_under_way() {
            // Producers that were executed while no wrong path was under way.
            let known = self.entries_on_wrong_paths.max(self.entries.saturating_sub(MAX_DISTANCE));
            for entry in known..self.entries {
                self.complete_on_wrong_paths.set(entry, *self.complete.get(entry));
            }
        }
    }

    /// Executes an entry. `wrong` has its operands on wrong paths, if those may execute it.
    #[inline(always)]
    fn execute_entry(
        &mut self,
        entry: &Operands<V>,
        wrong: Option<&Operands<V>>,
        references: &[EntryReference<V>],
        costs: &[&Costs],
    ) {
        let header = entry.header;
        let has_costs = references.iter().any(|reference| reference.cost_lanes != 0);
        let mut waits = Waits::new(has_costs);
        let context = Context { costs, now: self.wrong_paths.earliest_request(self.fetch.cycle()) };

        self.fetch_entry(header, references, &context, &mut waits);
        let writes = header.writes_integer();
        let (room, store_room) = self.room_for(writes, references);
        let wrong = wrong.map(|operands| {
            let (difference, room) = (header.difference(), room.max(store_room));
            let late = if has_data_reference(references) { V::all(0) } else { operands.late };
            let wrong = self.wrong_paths.dispatch(difference, room, operands.operands.max(late));
            (operands, exclude_interrupted(wrong, references, costs))
        });
        let mut dispatched = self.dispatch_entry(room, store_room, &mut waits);
        if has_costs && costs.iter().any(|costs| costs.has_handlers) {
            self.run_handlers(&mut dispatched, entry, references, costs, &mut waits);
        }
        let complete =
            self.execute_dispatched(dispatched, entry, wrong, references, &context, &mut waits);

        let last_commit = self.commit.cycle();
        let mut verified = complete;
        if has_costs {
            verified = verified.max(std::mem::replace(&mut self.verification_end, V::all(0)));
            waits.verification = verified.minus(complete);
        }
        let committed = self.commit.take(verified);
        self.count_cycles(committed.minus(last_commit), &waits);
        self.end_entry(writes, dispatched, complete, committed);
        self.commit_references(committed, references, &context);
        if has_costs {
            for (lane, memory) in self.memory.iter_mut().enumerate() {
                memory.drop_completed(self.epochs[lane] + u64::from(context.now.get(lane)));
            }
        }
    }

    /// Adds the `elapsed` cycles between the last commit and that of an entry to the stacks, by the entry's waits, the
    /// last wait first.
    #[inline(always)]
    fn count_cycles(&mut self, elapsed: V, waits: &Waits<V>) {
        let Some(mut cycles) = self.stacks.cycles_without_commit(elapsed) else {
            return self.stacks.add_to_base(V::all(0), elapsed);
        };
        let remaining = &mut cycles;
        let ReferenceWaits { lookups, walks, data, served } = &waits.slowest;
        if waits.has_costs {
            self.stacks.attribute(remaining, Part::Walks, waits.verification);
        }
        self.stacks.attribute_to_data(remaining, data, served);
        self.stacks.attribute(remaining, Part::Walks, *walks);
        self.stacks.attribute(remaining, Part::TlbL2, *lookups);
        self.stacks.attribute(remaining, Part::Handlers, waits.handlers);
        self.stacks.attribute(remaining, Part::Stores, waits.stores);
        if waits.has_costs {
            self.stacks.attribute(remaining, Part::Fetches, waits.fetches);
            self.stacks.attribute(remaining, Part::Walks, waits.fetch_walks);
            self.stacks.attribute(remaining, Part::TlbL2, waits.fetch_lookups);
        }
        if let Some(flushes) = waits.flushes {
            self.stacks.attribute(remaining, Part::Walks, flushes);
        }
        self.stacks.attribute(remaining, Part::Branches, waits.branches);
        self.stacks.add_to_base(cycles, elapsed);
    }

    /// Delays fetch for an entry: for branches, wrong frames, and costs of the entry's own fetches. Later entries are
    /// fetched behind it.
    #[inline(always)]
    fn fetch_entry(
        &mut self,
        header: Header,
        references: &[EntryReference<V>],
        context: &Context<'_, V>,
        waits: &mut Waits<V>,
    ) {
        waits.branches = self.delay_fetch(header);
        if std::mem::take(&mut self.needs_refetch) {
            let before = self.fetch.cycle();
            self.fetch.wait(std::mem::replace(&mut self.refetch_from, V::all(0)));
            waits.flushes = Some(self.fetch.cycle().minus(before));
        }
        for reference in references.iter().filter(|reference| reference.word.is_fetch()) {
            self.fetch_line(reference, context, waits);
        }
    }

    /// Delays fetch until the fetch buffer has room and the branch before an entry is resolved, and counts the branch.
    /// Returns the wait for the branch.
    #[inline(always)]
    fn delay_fetch(&mut self, header: Header) -> V {
        let mut branches = V::all(0);
        self.fetch.wait(*self.dispatched.get(self.entry_before(self.config.fetch_buffer)));
        if header.continues() {
            self.continuations += 1;
        }
        self.taken += u64::from(header.is_after_taken());
        if header.is_redirected() {
            self.mispredicted += 1;
            let before = self.fetch.cycle();
            let resolved = self.producer_complete(1).plus(V::all(self.config.mispredict_cycles));
            self.fetch.wait(resolved);
            branches = self.fetch.cycle().minus(before);
        }
        self.fetch.end_cycle_if(header.is_after_taken() && !header.is_redirected());
        branches
    }

    /// Delays fetch by the costs of a fetch.
    #[inline(never)]
    fn fetch_line(
        &mut self,
        reference: &EntryReference<V>,
        context: &Context<'_, V>,
        waits: &mut Waits<V>,
    ) {
        reference.each_cost(context.costs, |lane, cost| {
            self.fetch.make_room_in(lane);
            let start = self.run_handler(lane, self.fetch.cycle().get(lane), cost, waits);
            let looked_up = start + cost.lookup_cycles;
            let translated =
                self.translate_in(lane, reference.access, looked_up, Some(cost), context);
            let arrived = match cost.cache_cycles {
                0 => translated,
                _ => {
                    let (memory_context, at) =
                        (self.memory_context(context, lane), self.absolute(lane, translated));
                    let filled = self.memory[lane].fill(at, cost, &memory_context);
                    self.since_epoch(lane, filled)
                }
            };
            add_in_lane(&mut waits.fetch_lookups, lane, looked_up - start);
            add_in_lane(&mut waits.fetch_walks, lane, translated - looked_up);
            add_in_lane(&mut waits.fetches, lane, arrived - translated);
            self.fetch.wait_in(lane, arrived);
        });
    }

    /// Runs the software handler of a reference that is reached at a time, if it has one: when all earlier instructions
    /// are committed. Returns when the handler ends.
    #[inline(always)]
    fn run_handler(&mut self, lane: usize, at: u32, cost: Cost, waits: &mut Waits<V>) -> u32 {
        if cost.handler_cycles == 0 {
            return at;
        }
        let cycles = self.config.front_end_cycles + cost.handler_cycles;
        self.traps[lane] += 1;
        add_in_lane(&mut waits.handlers, lane, cycles);
        at.max(self.commit.cycle().get(lane)) + cycles
    }

    /// Runs the software handlers of an entry's references to data, one after another, when its operands are ready. In
    /// lanes with a handler the entry is then fetched and dispatched again, and `dispatched` is changed to that time.
    #[inline(never)]
    fn run_handlers(
        &mut self,
        dispatched: &mut V,
        entry: &Operands<V>,
        references: &[EntryReference<V>],
        costs: &[&Costs],
        waits: &mut Waits<V>,
    ) {
        for (lane, dispatched) in dispatched.as_mut_slice().iter_mut().enumerate().take(costs.len())
        {
            let ready = entry.operands.get(lane).max(*dispatched + 1);
            let mut returned = ready;
            for reference in references.iter().filter(|reference| !reference.word.is_fetch()) {
                if let Some(cost) = reference.cost(lane, costs) {
                    returned = self.run_handler(lane, returned, cost, waits);
                }
            }
            if returned > ready {
                let fetched = self.fetch.take_in(lane, returned) + self.config.front_end_cycles;
                *dispatched = self.dispatch.take_in(lane, fetched);
            }
        }
    }

    /// Dispatches an entry when it is fetched, the store queue has room (`store_room`), and all else has (`room`).
    #[inline(always)]
    fn dispatch_entry(&mut self, room: V, store_room: V, waits: &mut Waits<V>) -> V {
        let fetched = self.fetch.take_next().plus(V::all(self.config.front_end_cycles));
        let earliest = fetched.max(room);
        waits.stores = store_room.saturating_minus(earliest.max(self.dispatch.cycle()));
        self.dispatch.take(earliest.max(store_room))
    }

    /// When there is room for the next entry: in the reorder buffer, registers and load queue, and in the store queue.
    #[inline(always)]
    fn room_for(&self, writes: bool, references: &[EntryReference<V>]) -> (V, V) {
        let (mut room, mut store_room) = (self.room_in_buffers(writes), V::all(0));
        let (mut loads, mut stores) = (self.loads, self.stores);
        for EntryReference { word, .. } in references {
            if word.is_fetch() {
                continue;
            }
            if word.is_store() {
                let number = stores.wrapping_sub(u64::from(self.config.store_queue));
                store_room = store_room.max(*self.store_ends.get(number));
                stores += 1;
            } else {
                let number = loads.wrapping_sub(u64::from(self.config.load_queue));
                room = room.max(*self.load_ends.get(number));
                loads += 1;
            }
        }
        (room, store_room)
    }

    /// When the reorder buffer has room for the next entry, and the registers for the one that it `writes`.
    #[inline(always)]
    fn room_in_buffers(&self, writes: bool) -> V {
        let committed = *self.committed.get(self.entry_before(self.config.reorder_buffer));
        if !writes {
            return committed;
        }
        let freed = self.registers.wrapping_sub(u64::from(self.config.rename_registers));
        committed.max(*self.register_ends.get(freed))
    }

    /// Records the times of the current entry, and moves to the next one.
    #[inline(always)]
    fn end_entry(&mut self, writes: bool, dispatched: V, complete: V, committed: V) {
        self.dispatched.set(self.entries, dispatched);
        self.complete.set(self.entries, complete);
        self.committed.set(self.entries, committed);
        self.entries += 1;
        // If the entry writes no register, the next one that does overwrites this time.
        self.register_ends.set(self.registers, committed);
        self.registers += u64::from(writes);
    }

    /// Executes the references and the arithmetic of a dispatched entry. `wrong` has its operands and its dispatch on
    /// wrong paths. Returns when the entry is complete.
    #[inline(always)]
    fn execute_dispatched(
        &mut self,
        dispatched: V,
        entry: &Operands<V>,
        wrong: Option<(&Operands<V>, OnWrongPath<V>)>,
        references: &[EntryReference<V>],
        context: &Context<'_, V>,
        waits: &mut Waits<V>,
    ) -> V {
        let ready = entry.operands.max(dispatched.plus(V::all(1)));
        let arithmetic = self.arithmetic_cycles(entry.header);
        let has_data = has_data_reference(references);
        // Without references, an entry begins when its late producers are complete, too.
        let begin = if has_data { ready } else { ready.max(entry.late) };
        let mut complete = begin;
        let (mut loaded, mut load_waits) = (ready, ReferenceWaits::new());
        let mut on_both = wrong
            .map(|(operands, wrong)| OnBothPaths::new(wrong, operands.late, operands.forwarded));
        if !has_data {
            complete = self.issue.take(Slot::new(0, 0), begin, dispatched);
        }
        for reference in references {
            let word = reference.word;
            if word.is_fetch() {
                continue;
            }
            let stores = u32::from(word.is_store());
            let slot = Slot::new(1 - stores, stores);
            // A store waits for the loads before it in its instruction.
            let earliest = if word.is_store() { loaded } else { ready };
            let start = self.issue.take(slot, earliest, dispatched);
            let mut lookups = V::all(0);
            reference.each_cost(context.costs, |lane, cost| {
                lookups.set(lane, cost.lookup_cycles);
            });
            let mut own = ReferenceWaits { lookups, ..ReferenceWaits::new() };
            let end = match &mut on_both {
                None => {
                    let looked_up = start.plus(lookups);
                    self.execute_reference(
                        reference,
                        looked_up,
                        entry.forwarded.as_ref(),
                        &mut own,
                        context,
                    )
                }
                Some(both) => self.execute_reference_on_both(
                    reference,
                    start,
                    entry.forwarded,
                    both,
                    &mut own,
                    context,
                ),
            };
            if word.is_store() {
                // The waits of the slowest load come before the store's own.
                own.lookups = own.lookups.plus(load_waits.lookups);
                own.walks = own.walks.plus(load_waits.walks);
                (own.data, own.served) = (load_waits.data, load_waits.served);
            } else {
                load_waits.replace(&mut loaded, &end, &own);
            }
            waits.slowest.replace(&mut complete, &end, &own);
        }
        if has_data {
            // The references hide one cycle of the arithmetic.
            complete = complete.max(entry.late.plus(V::all(1))).plus(V::all(arithmetic - 1));
        } else {
            complete = complete.plus(V::all(arithmetic));
        }
        if self.wrong_paths.is_under_way() {
            let complete_there = on_both.map_or(complete, |both| {
                both.wrong.select(both.complete(has_data, arithmetic), complete)
            });
            self.record_complete_on_wrong_paths(complete_there);
        }
        complete
    }

    /// Executes a reference of an entry that wrong paths may execute, too; `start` is its issue on the right path. In
    /// lanes where a wrong path executes it, its look-ups, walk and line begin there, and the right path waits only for
    /// the part of them after `start`. Returns when it is complete on the right path.
    #[inline(always)]
    fn execute_reference_on_both(
        &mut self,
        reference: &EntryReference<V>,
        start: V,
        forwarded: Option<V>,
        both: &mut OnBothPaths<V>,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) -> V {
        let is_store = reference.word.is_store();
        let wrong = both.wrong;
        let began = wrong.select(if is_store { both.loaded } else { wrong.ready }, start);
        let stored = forwarded.zip(both.forwarded).map(|(right, there)| wrong.select(there, right));
        let looked_up = began.plus(own.lookups);
        let end = self.execute_reference(reference, looked_up, stored.as_ref(), own, context);
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
        // When the reference is complete if its translation and its line have arrived by `start`.
        let mut without_waits = hit;
        if let Some(stored) = forwarded.filter(|_| !is_store) {
            without_waits = stored.max(start).plus(V::all(self.config.forward_cycles));
            reference.each_cost(context.costs, |lane, cost| {
                if cost.concerns_lines() {
                    without_waits.set(lane, hit.get(lane));
                }
            });
        }
        wrong.select(end.max(without_waits), end)
    }

    /// The cycles of an entry's arithmetic.
    #[inline(always)]
    fn arithmetic_cycles(&self, header: Header) -> u32 {
        header.arithmetic().map_or(1, |arithmetic| self.config.latencies.of(arithmetic))
    }

    /// Executes a reference to data after its look-ups in later TLB levels, and sets its waits for walk and line.
    /// Returns when a load has its data, or a cycle after a store has its translation.
    #[inline(always)]
    fn execute_reference(
        &mut self,
        reference: &EntryReference<V>,
        looked_up: V,
        forwarded: Option<&V>,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) -> V {
        let translated = self.translate(reference, looked_up, context);
        own.walks = translated.minus(looked_up);
        match reference.word.is_store() {
            true => {
                if self.config.store_prefetch {
                    self.prefetch_for_store(reference, &translated, context);
                }
                translated.plus(V::all(1))
            }
            false => self.load(reference, translated, forwarded, own, context),
        }
    }

    /// When the page of a reference is translated whose later TLB levels have been looked up at a time.
    #[inline(always)]
    fn translate(&mut self, reference: &EntryReference<V>, at: V, context: &Context<'_, V>) -> V {
        if reference.cost_lanes == 0 && !at.is_less_in_any(self.walks_end) {
            return at;
        }
        self.translate_by_lane(reference, &at, context)
    }

    /// [`Self::translate`] lane by lane, for a reference that has a cost or may wait for a walk under way.
    #[inline(never)]
    fn translate_by_lane(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        context: &Context<'_, V>,
    ) -> V {
        let mut translated = *at;
        for lane in 0..self.memory.len() {
            let cost = reference.cost(lane, context.costs);
            let at = at.get(lane);
            if cost.is_some() || at < self.walks_end.get(lane) {
                translated.set(lane, self.translate_in(lane, reference.access, at, cost, context));
            }
        }
        translated
    }

    /// When an access in a lane continues, at its translation or at its predicted frame. Records when the walk of a
    /// prediction ends, and from when on the next entry is fetched again after a wrong one.
    fn translate_in(
        &mut self,
        lane: usize,
        access: LineAccess,
        at: u32,
        cost: Option<Cost>,
        context: &Context<'_, V>,
    ) -> u32 {
        let (memory_context, from) = (self.memory_context(context, lane), self.absolute(lane, at));
        let memory = &mut self.memory[lane];
        let (translated, walks_end) =
            (memory.translate(access, from, cost, &memory_context), memory.walks_end());
        self.walks_end.set(lane, self.since_epoch(lane, walks_end));
        self.update_under_way_end(lane);
        let translated = self.since_epoch(lane, translated);
        let walk = cost.filter(|cost| cost.walk_cycles > 0);
        match walk.map_or(Speculation::None, |cost| cost.speculation) {
            Speculation::None => translated,
            Speculation::Right => {
                self.verification_end.set(lane, self.verification_end.get(lane).max(translated));
                at
            }
            Speculation::Wrong => {
                let refetch = translated + self.config.mispredict_cycles;
                self.refetch_from.set(lane, self.refetch_from.get(lane).max(refetch));
                self.needs_refetch = true;
                translated
            }
        }
    }

    fn update_under_way_end(&mut self, lane: usize) {
        self.under_way_end.set(lane, self.walks_end.get(lane).max(self.lines_end.get(lane)));
    }

    /// When a load that is translated at a time has its data. Sets its wait for the line.
    #[inline(always)]
    fn load(
        &mut self,
        reference: &EntryReference<V>,
        at: V,
        forwarded: Option<&V>,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) -> V {
        let mut end: V = match forwarded {
            Some(stored) => stored.max(at).plus(V::all(self.config.forward_cycles)),
            None => at.plus(V::all(self.l1d_cycles)),
        };
        let may_hit_in_flight = forwarded.is_none() && at.is_less_in_any(self.lines_end);
        if reference.cost_lanes == 0 && !may_hit_in_flight {
            return end;
        }
        self.load_by_lane(reference, &at, forwarded.is_some(), &mut end, own, context);
        end
    }

    /// [`Self::load`] lane by lane, for a load that has a cost or may wait for a line under way. Changes `end` in lanes
    /// in which the load waits for its line.
    #[inline(never)]
    fn load_by_lane(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        is_forwarded: bool,
        end: &mut V,
        own: &mut ReferenceWaits<V>,
        context: &Context<'_, V>,
    ) {
        for lane in 0..self.memory.len() {
            let cost = reference.cost(lane, context.costs).filter(Cost::concerns_lines);
            let at = at.get(lane);
            if cost.is_none() && (is_forwarded || at >= self.lines_end.get(lane)) {
                continue;
            }
            let (line, part) = self.line_in(lane, reference.access, at, cost, context);
            own.data.set(lane, line - at);
            own.served.set(lane, part as u32);
            end.set(lane, line + self.l1d_cycles);
        }
    }

    /// Frees the load queue entries of a committed entry, and lets its stores enter the data cache.
    #[inline(always)]
    fn commit_references(
        &mut self,
        committed: V,
        references: &[EntryReference<V>],
        context: &Context<'_, V>,
    ) {
        for reference in references {
            if reference.word.is_fetch() {
                continue;
            }
            if !reference.word.is_store() {
                self.load_ends.set(self.loads, committed);
                self.loads += 1;
                continue;
            }
            let requests_line = reference.cost_lanes != 0 && !self.config.store_prefetch;
            if requests_line || committed.is_less_in_any(self.lines_end) {
                self.request_line_at_commit(reference, &committed, context);
            }
            // In lanes where the line is in the cache, nothing has delayed `drain`.
            let entered = self.drain.take(committed);
            self.store_ends.set(self.stores, entered);
            self.stores += 1;
        }
    }

    /// With `store_prefetch`: requests the line of a store that is translated at a time.
    #[inline(always)]
    fn prefetch_for_store(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        context: &Context<'_, V>,
    ) {
        if reference.cost_lanes != 0 || at.is_less_in_any(self.lines_end) {
            self.request_line(reference, at, true, context, |_, _, _| ());
        }
    }

    /// Delays this store and later ones until its line has arrived, in lanes where the line is not in the cache at
    /// commit.
    #[inline(always)]
    fn request_line_at_commit(
        &mut self,
        reference: &EntryReference<V>,
        committed: &V,
        context: &Context<'_, V>,
    ) {
        let is_first = !self.config.store_prefetch;
        self.request_line(reference, committed, is_first, context, |core, lane, arrived| {
            core.drain.wait_in(lane, arrived);
        });
    }

    /// Requests the line of a store at a time, and calls `arrives` for each lane in which the line may not be in the
    /// cache then, with the time when it is. Only the first request of a store (`is_first`) pays for the costs of its
    /// line.
    #[inline(never)]
    fn request_line(
        &mut self,
        reference: &EntryReference<V>,
        at: &V,
        is_first: bool,
        context: &Context<'_, V>,
        mut arrives: impl FnMut(&mut Self, usize, u32),
    ) {
        for lane in 0..self.memory.len() {
            let (at, cost) = (at.get(lane), reference.cost(lane, context.costs));
            let cost = cost.filter(|cost| is_first && cost.concerns_lines());
            if cost.is_some() || at < self.lines_end.get(lane) {
                let (arrived, _) = self.line_in(lane, reference.access, at, cost, context);
                arrives(self, lane, arrived);
            }
        }
    }

    /// When the line of an access is in the first-level cache of a lane, and the part of the stack for the wait.
    /// Without a cost the access hits, but its line may be under way.
    #[inline(always)]
    fn line_in(
        &mut self,
        lane: usize,
        access: LineAccess,
        at: u32,
        cost: Option<Cost>,
        context: &Context<'_, V>,
    ) -> (u32, Part) {
        let (memory_context, at) = (self.memory_context(context, lane), self.absolute(lane, at));
        let memory = &mut self.memory[lane];
        let (line, part) = match cost {
            Some(cost) => memory.miss(access, at, cost, &memory_context),
            None => memory.hit(access, at, &memory_context),
        };
        let lines_end = memory.lines_end();
        self.lines_end.set(lane, self.since_epoch(lane, lines_end));
        self.update_under_way_end(lane);
        (self.since_epoch(lane, line), part)
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
