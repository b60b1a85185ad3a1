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

mod both_paths;
mod counts;
mod dispatch;
mod epochs;
mod fetch;
mod general;
mod handlers;
mod memory;
mod references;
mod ring;
mod setup;
mod simple;
mod stores;
#[cfg(test)]
mod tests;
mod waits;

use octavo_config::PipelineConfig;
use octavo_types::{Compiled, Instructions};

pub use self::counts::CoreCounts;
use self::epochs::ENTRIES_PER_CHECK;
use self::memory::Context;
use self::references::{CostCursor, EntryReference};
use self::ring::Ring;
pub use self::setup::CoreSetup;
use self::simple::SimpleLatencies;
use super::Costs;
use super::calendar::{InOrder, IssueSlots};
use super::lanes::Lanes;
use super::memory_side::MemorySide;
use super::stack::Stacks;
use super::wrong_paths::WrongPaths;
use crate::front::{Entry, Header, LineAccess, MAX_DISTANCE, entries};

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

    /// The cycles of an entry's arithmetic.
    #[inline(always)]
    fn arithmetic_cycles(&self, header: Header) -> u32 {
        header.arithmetic().map_or(1, |arithmetic| self.config.latencies.of(arithmetic))
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
