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

use octavo_config::{MachineConfig, PipelineConfig};

use super::calendar::{InOrder, Slots};
use super::memory_side::{Context, MemorySide};
use super::stack::{Part, Stack};
use super::{Cost, Costs};
use crate::counters::Counters;
use crate::front::{
    Header, LineAccess, Lines, MAX_DISTANCE, Reference, Word, decode, each_distance,
};

/// Entries whose times are kept: more than any distance.
const RING: usize = (MAX_DISTANCE + 1) as usize;

/// A core.
pub struct Pipeline {
    config: PipelineConfig,
    l1d_cycles: u64,
    /// Entries so far.
    entries: u64,
    /// Entries that continue the instruction before them.
    continuations: u64,
    taken: u64,
    mispredicted: u64,
    traps: u64,
    /// By entry, in rings.
    times: Box<[Times; RING]>,
    registers: u64,
    loads: u64,
    stores: u64,
    /// When each register written and each load committed, and each store entered the cache, in rings.
    register_ends: Box<[u64; RING]>,
    load_ends: Box<[u64; RING]>,
    store_ends: Box<[u64; RING]>,
    fetch: InOrder,
    dispatch: InOrder,
    commit: InOrder,
    drain: InOrder,
    issue: Slots,
    load_ports: Slots,
    store_ports: Slots,
    memory: MemorySide,
    stack: Stack,
    /// Room for the references of an entry.
    references: Vec<Referenced>,
}

#[derive(Clone, Copy, Default)]
struct Times {
    dispatched: u64,
    complete: u64,
    committed: u64,
}

/// The waits of an instruction, in the order in which they happened.
#[derive(Default)]
struct Waits {
    branches: u64,
    fetches: u64,
    fetch_lookups: u64,
    fetch_walks: u64,
    stores: u64,
    handlers: u64,
    slowest: ReferenceWaits,
}

/// The waits of a reference.
#[derive(Clone, Copy, Default)]
struct ReferenceWaits {
    lookups: u64,
    walks: u64,
    data: u64,
    /// The level that served the data, as a part of the stack.
    served: Part,
}

/// A reference of an entry. Fetches without a cost are left out.
#[derive(Clone, Copy)]
struct Referenced {
    reference: Reference,
    access: LineAccess,
    /// The place of its cost, if it has one.
    cost: Option<u32>,
}

/// The entry to be executed, without its references.
struct Entry {
    header: Header,
    /// When all its producers are complete.
    operands: u64,
    /// When the store is complete from which its loads take their value.
    forwarded: Option<u64>,
}

impl Pipeline {
    /// A core that has executed nothing.
    pub fn new(machine: &MachineConfig, config: &PipelineConfig, lines: Lines) -> Self {
        Pipeline {
            l1d_cycles: u64::from(machine.cache.l1d.latency_cycles),
            entries: 0,
            continuations: 0,
            taken: 0,
            mispredicted: 0,
            traps: 0,
            times: Box::new([Times::default(); RING]),
            registers: 0,
            loads: 0,
            stores: 0,
            register_ends: Box::new([0; RING]),
            load_ends: Box::new([0; RING]),
            store_ends: Box::new([0; RING]),
            fetch: InOrder::new(config.width),
            dispatch: InOrder::new(config.width),
            commit: InOrder::new(config.commit_width),
            drain: InOrder::new(config.store_ports),
            issue: Slots::new(config.issue_width),
            load_ports: Slots::new(config.load_ports),
            store_ports: Slots::new(config.store_ports),
            memory: MemorySide::new(machine, config.outstanding, lines),
            stack: Stack::default(),
            references: Vec::new(),
            config: config.clone(),
        }
    }

    /// Executes a part of a batch: its words, all accesses of the batch, the number of the part's first access,
    /// and what the part's accesses cost.
    pub fn execute(&mut self, words: &[u32], accesses: &[LineAccess], first: usize, costs: &Costs) {
        let mut references = std::mem::take(&mut self.references);
        let mut fresh = 0;
        let mut next_cost = 0;
        let access_of = |cost: usize| costs.costs.get(cost).map_or(u32::MAX, |of| of.access);
        let mut next_costly = access_of(0);
        let mut at = 0;
        while at < words.len() {
            let header = Header::of(words[at]);
            at += 1;
            let mut entry = Entry { header, operands: 0, forwarded: None };
            self.await_producers(header.distances(), &mut entry);
            references.clear();
            let mut is_costly = false;
            while at < words.len() {
                match decode(words[at]) {
                    Word::Header(_) => break,
                    Word::Distances(distances) => self.await_producers(distances, &mut entry),
                    Word::Forward(distance) => {
                        let complete = self.before(u64::from(distance)).complete;
                        entry.forwarded = Some(entry.forwarded.unwrap_or(0).max(complete));
                    }
                    Word::Reference(reference) => {
                        let mut place = reference.place();
                        let mut cost = None;
                        if reference.is_fresh() {
                            place = first + fresh as usize;
                            if next_costly == fresh {
                                cost = Some(next_cost as u32);
                                is_costly = true;
                                next_cost += 1;
                                next_costly = access_of(next_cost);
                            }
                            fresh += 1;
                        }
                        if (cost.is_some() || !reference.is_fetch())
                            && let Some(access) = accesses.get(place)
                        {
                            references.push(Referenced { reference, access: *access, cost });
                        }
                    }
                }
                at += 1;
            }
            match references[..] {
                [] => self.execute_entry(&entry, &[], costs),
                [Referenced { reference, access, .. }] if !is_costly => {
                    let only = Referenced { reference, access, cost: None };
                    self.execute_entry(&entry, &[only], costs);
                }
                _ => self.execute_any(&entry, &references, costs),
            }
        }
        self.references = references;
    }

    /// The times of the entry this many before the one to come.
    #[inline(always)]
    fn before(&self, distance: u64) -> &Times {
        &self.times[(self.entries.wrapping_sub(distance)) as usize % RING]
    }

    #[inline(always)]
    fn await_producers(&self, distances: u32, entry: &mut Entry) {
        each_distance(distances, |distance| {
            entry.operands = entry.operands.max(self.before(distance).complete);
        });
    }

    /// [`Self::execute_entry`] for entries with costs or several references.
    #[inline(never)]
    fn execute_any(&mut self, entry: &Entry, references: &[Referenced], costs: &Costs) {
        self.execute_entry(entry, references, costs);
    }

    /// Executes an entry. Inlined, so that it is compiled apart for the most frequent kinds of entries.
    #[inline(always)]
    fn execute_entry(&mut self, entry: &Entry, references: &[Referenced], costs: &Costs) {
        let header = entry.header;
        let mut waits = Waits::default();
        let now = self.fetch.cycle();
        let context = Context { costs, now };

        self.fetch_entry(header, references, &context, &mut waits);
        let written = u64::from(header.registers_written());
        let mut dispatched = self.dispatch_entry(written, references, &mut waits);
        if references.iter().any(|of| of.cost.is_some()) && costs.has_handlers {
            dispatched = self.interrupt_entry(dispatched, entry, references, costs, &mut waits);
        }
        let complete = self.compute(dispatched, entry, references, &context, &mut waits);

        let since = self.commit.cycle();
        let committed = self.commit.take(complete);
        self.stack.commit(committed - since, || {
            let ReferenceWaits { lookups, walks, data, served } = waits.slowest;
            [
                (served, data),
                (Part::Walks, walks),
                (Part::TlbL2, lookups),
                (Part::Handlers, waits.handlers),
                (Part::Stores, waits.stores),
                (Part::Fetches, waits.fetches),
                (Part::Walks, waits.fetch_walks),
                (Part::TlbL2, waits.fetch_lookups),
                (Part::Branches, waits.branches),
            ]
        });
        self.times[self.entries as usize % RING] = Times { dispatched, complete, committed };
        self.entries += 1;
        for _ in 0..written {
            self.register_ends[self.registers as usize % RING] = committed;
            self.registers += 1;
        }
        self.commit_memory(committed, references, &context);
        if !references.is_empty() {
            self.memory.forget_in_flight(now);
        }
    }

    /// Fetches an entry: what stops fetch stops it for all that follow.
    #[inline(always)]
    fn fetch_entry(
        &mut self,
        header: Header,
        references: &[Referenced],
        context: &Context<'_>,
        waits: &mut Waits,
    ) {
        let buffered = u64::from(self.config.fetch_buffer);
        self.fetch.wait(self.before(buffered).dispatched);
        self.continuations += u64::from(header.continues());
        self.taken += u64::from(header.is_after_taken());
        if header.is_redirected() {
            self.mispredicted += 1;
            let before = self.fetch.cycle();
            let resolved = self.before(1).complete + u64::from(self.config.mispredict_cycles);
            self.fetch.wait(resolved);
            waits.branches = self.fetch.cycle() - before;
        } else if header.is_after_taken() {
            self.fetch.end_cycle();
        }
        for Referenced { reference, access, cost } in references {
            let Some(cost) = cost.filter(|_| reference.is_fetch()) else { continue };
            let cost = context.costs.costs[cost as usize];
            self.fetch.make_room();
            let start = self.interrupt(self.fetch.cycle(), cost, waits);
            let looked_up = start + u64::from(cost.lookup_cycles);
            let translated = self.memory.translate(*access, looked_up, Some(cost), context);
            let arrived = match cost.cache_cycles {
                0 => translated,
                _ => self.memory.fill(translated, cost, context),
            };
            waits.fetch_lookups += looked_up - start;
            waits.fetch_walks += translated - looked_up;
            waits.fetches += arrived - translated;
            self.fetch.wait(arrived);
        }
    }

    /// When the handler of a reference returns that is reached at a time: it runs when all instructions before
    /// are committed.
    #[inline(always)]
    fn interrupt(&mut self, at: u64, cost: Cost, waits: &mut Waits) -> u64 {
        if cost.handler_cycles == 0 {
            return at;
        }
        let cycles = u64::from(self.config.front_end_cycles) + u64::from(cost.handler_cycles);
        self.traps += 1;
        waits.handlers += cycles;
        at.max(self.commit.cycle()) + cycles
    }

    /// Runs the handlers of an entry's data references, if it has any, when its operands are ready, then
    /// fetches and dispatches the entry again. Returns its last dispatch.
    #[inline(never)]
    fn interrupt_entry(
        &mut self,
        dispatched: u64,
        entry: &Entry,
        references: &[Referenced],
        costs: &Costs,
        waits: &mut Waits,
    ) -> u64 {
        let ready = entry.operands.max(dispatched + 1);
        let mut returned = ready;
        for Referenced { reference, cost, .. } in references {
            if let Some(cost) = cost.filter(|_| !reference.is_fetch()) {
                returned = self.interrupt(returned, costs.costs[cost as usize], waits);
            }
        }
        if returned == ready {
            return dispatched;
        }
        let fetched = self.fetch.take(returned) + u64::from(self.config.front_end_cycles);
        self.dispatch.take(fetched)
    }

    /// Dispatches an entry when all queues have room.
    #[inline(always)]
    fn dispatch_entry(
        &mut self,
        written: u64,
        references: &[Referenced],
        waits: &mut Waits,
    ) -> u64 {
        let fetched = self.fetch.take(0) + u64::from(self.config.front_end_cycles);
        let mut earliest =
            fetched.max(self.before(u64::from(self.config.reorder_buffer)).committed);
        // Registers are freed in the order in which they were taken: the last one waits longest.
        // An instruction that writes more than there are waits for all before it.
        let room = u64::from(self.config.rename_registers).max(written);
        let freed = (self.registers + written).wrapping_sub(room + 1);
        if written > 0 {
            earliest = earliest.max(self.register_ends[freed as usize % RING]);
        }
        let (mut loads, mut stores) = (self.loads, self.stores);
        let mut stored = 0;
        for Referenced { reference, .. } in references {
            if reference.is_fetch() {
                continue;
            }
            if reference.is_store() {
                let before = stores.wrapping_sub(u64::from(self.config.store_queue));
                stored = stored.max(self.store_ends[before as usize % RING]);
                stores += 1;
            } else {
                let before = loads.wrapping_sub(u64::from(self.config.load_queue));
                earliest = earliest.max(self.load_ends[before as usize % RING]);
                loads += 1;
            }
        }
        waits.stores = stored.saturating_sub(earliest.max(self.dispatch.cycle()));
        self.dispatch.take(earliest.max(stored))
    }

    /// Executes the references and the computation of an entry that was dispatched at a cycle. Returns when it
    /// is complete.
    #[inline(always)]
    fn compute(
        &mut self,
        dispatched: u64,
        entry: &Entry,
        references: &[Referenced],
        context: &Context<'_>,
        waits: &mut Waits,
    ) -> u64 {
        let ready = entry.operands.max(dispatched + 1);
        let computes = self.cycles_to_compute(entry.header);
        if references.iter().all(|of| of.reference.is_fetch()) {
            let start = self.issue.find(ready);
            self.issue.take(start, dispatched);
            return start + computes;
        }
        let mut complete = ready;
        let (mut loaded, mut of_loads) = (ready, ReferenceWaits::default());
        for Referenced { reference, access, cost } in references {
            if reference.is_fetch() {
                continue;
            }
            let cost = cost.map(|cost| context.costs.costs[cost as usize]);
            let ports = if reference.is_store() { &self.store_ports } else { &self.load_ports };
            // A store of a loaded value waits for it.
            let earliest = if reference.is_store() { loaded } else { ready };
            let start = slot(&self.issue, ports, earliest);
            self.issue.take(start, dispatched);
            let ports =
                if reference.is_store() { &mut self.store_ports } else { &mut self.load_ports };
            ports.take(start, dispatched);
            let looked_up = start + u64::from(cost.map_or(0, |cost| cost.lookup_cycles));
            let translated = self.memory.translate(*access, looked_up, cost, context);
            let mut own = ReferenceWaits {
                lookups: looked_up - start,
                walks: translated - looked_up,
                ..ReferenceWaits::default()
            };
            let end = if reference.is_store() {
                // It adds its waits to those of the load that it waited for.
                own.lookups += of_loads.lookups;
                own.walks += of_loads.walks;
                (own.data, own.served) = (of_loads.data, of_loads.served);
                translated + 1
            } else {
                let (end, data, served) =
                    self.load(*access, translated, cost, entry.forwarded, context);
                (own.data, own.served) = (data, served);
                if end >= loaded {
                    (loaded, of_loads) = (end, own);
                }
                end
            };
            if end >= complete {
                (complete, waits.slowest) = (end, own);
            }
        }
        // One cycle of arithmetic is hidden behind a reference.
        complete + computes - 1
    }

    /// Cycles of an instruction's arithmetic.
    #[inline(always)]
    fn cycles_to_compute(&self, header: Header) -> u64 {
        header.arithmetic().map_or(1, |of| u64::from(self.config.latencies.of(of)))
    }

    /// When a load has its data, from its translation on; how long it waits for its line, and what for.
    #[inline(always)]
    fn load(
        &mut self,
        access: LineAccess,
        at: u64,
        cost: Option<Cost>,
        forwarded: Option<u64>,
        context: &Context<'_>,
    ) -> (u64, u64, Part) {
        let (line, part) = match cost.filter(Cost::concerns_lines) {
            Some(cost) => self.memory.miss(access, at, cost, context),
            None => match forwarded {
                Some(stored) => {
                    let taken = stored.max(at) + u64::from(self.config.forward_cycles);
                    return (taken, 0, Part::Base);
                }
                None => self.memory.hit(access, at, context),
            },
        };
        (line + self.l1d_cycles, line - at, part)
    }

    /// Frees the load queue, and sends the stores of a committed entry to the data cache.
    #[inline(always)]
    fn commit_memory(&mut self, committed: u64, references: &[Referenced], context: &Context<'_>) {
        for Referenced { reference, access, cost } in references {
            if reference.is_fetch() {
                continue;
            }
            if !reference.is_store() {
                self.load_ends[self.loads as usize % RING] = committed;
                self.loads += 1;
                continue;
            }
            let cost =
                cost.map(|cost| context.costs.costs[cost as usize]).filter(Cost::concerns_lines);
            let arrived = match cost {
                Some(cost) => self.memory.miss(*access, committed, cost, context).0,
                None => self.memory.hit(*access, committed, context).0,
            };
            self.drain.wait(arrived);
            self.store_ends[self.stores as usize % RING] = self.drain.take(committed);
            self.stores += 1;
        }
    }

    /// Adds the counters of the core.
    pub fn report(&self, counters: &mut Counters) {
        counters.add("core", "instructions", self.entries - self.continuations);
        counters.add("core", "cycles", self.stack.total());
        counters.add("core", "branches_taken", self.taken);
        counters.add("core", "branches_mispredicted", self.mispredicted);
        counters.add("core", "traps", self.traps);
        self.stack.report(counters);
        if let Some([hits, conflicts]) = self.memory.rows() {
            counters.add("memory", "row_hits", hits);
            counters.add("memory", "row_conflicts", conflicts);
        }
        if let Some([l1d, l2]) = self.memory.late_prefetches() {
            counters.add("prefetch.l1d", "late", l1d);
            counters.add("prefetch.l2", "late", l2);
        }
    }
}

/// The first cycle with a free slot of both.
#[inline(always)]
fn slot(issue: &Slots, ports: &Slots, earliest: u64) -> u64 {
    let mut cycle = earliest;
    loop {
        let issued = issue.find(cycle);
        cycle = ports.find(issued);
        if cycle == issued {
            return cycle;
        }
    }
}

#[cfg(test)]
mod tests;
