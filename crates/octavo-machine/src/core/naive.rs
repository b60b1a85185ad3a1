//! A slow core for tests, written from `docs/core.md`: all times are in plain vectors, and all reservations in plain
//! lists that are searched from the start. Each lane of a [`CoreGroup`](super::CoreGroup) has exactly its numbers.

mod batches;
mod dram;
mod machines;
mod memory;
mod programs;
mod resources;
mod tests;
mod wrong_paths;

use std::collections::HashMap;

use octavo_config::{MachineConfig, OutstandingMisses, PipelineConfig};
use octavo_types::Arithmetic;

use self::dram::{Dram, drams};
use self::memory::{UnderWay, delayed, takes_from_store};
use self::resources::{InOrder, Places, Slots};
use self::wrong_paths::WrongPath;
use super::{Cost, Costs};
use crate::front::{Difference, LineAccess, Lines, Reference, Word, each_distance};

/// The parts of the stack: reasons why the next instruction to commit waits.
const PARTS: [&str; 10] = [
    "base",
    "branches",
    "fetches",
    "tlb_l2",
    "walks",
    "data_l2",
    "data_llc",
    "data_memory",
    "stores",
    "handlers",
];
const BASE: usize = 0;
const BRANCHES: usize = 1;
const FETCHES: usize = 2;
const TLB_L2: usize = 3;
const WALKS: usize = 4;
const STORES: usize = 8;
const HANDLERS: usize = 9;
/// Walks that verify a frame before the commit, and walks after which all is fetched again. The stack counts both as
/// walks.
const VERIFICATION: usize = 10;
const FLUSHES: usize = 11;

/// Waits of an instruction: start, end, and an index of [`PARTS`].
type Waits = Vec<(u64, u64, usize)>;

/// An entry: an instruction, or a part that continues one.
#[derive(Default)]
struct Entry {
    is_redirected: bool,
    is_after_taken: bool,
    continues: bool,
    difference: Difference,
    writes: bool,
    arithmetic: Option<Arithmetic>,
    /// The distances of the producers that are not late.
    distances: Vec<u64>,
    late: Vec<u64>,
    /// The distances of stores from which it takes values.
    forwards: Vec<u64>,
    references: Vec<(Reference, LineAccess, Option<Cost>)>,
}

impl Entry {
    /// The references to data.
    fn data(&self) -> impl Iterator<Item = &(Reference, LineAccess, Option<Cost>)> {
        self.references.iter().filter(|reference| !reference.0.is_fetch())
    }

    /// The number of stores, or of loads.
    fn count(&self, is_store: bool) -> usize {
        self.data().filter(|reference| reference.0.is_store() == is_store).count()
    }
}

struct NaiveCore {
    config: PipelineConfig,
    lines: Lines,
    l1d_cycles: u64,
    instructions: u64,
    taken: u64,
    mispredicted: u64,
    /// When each entry is complete.
    complete: Vec<u64>,
    /// The number of the last mispredicted branch.
    last_branch: usize,
    wrong_paths: Vec<WrongPath>,
    /// When each entry that was executed on wrong paths is complete there.
    complete_on_wrong_paths: HashMap<usize, u64>,
    fetch: InOrder,
    dispatch: InOrder,
    commit: InOrder,
    /// When each entry that writes a register, and each load, is committed, and when each store is in the data cache.
    registers: Vec<u64>,
    loads: Vec<u64>,
    stores: InOrder,
    issue: Slots,
    load_ports: Slots,
    store_ports: Slots,
    walkers: Places,
    outstanding: [Places; 3],
    /// The first line and the DRAM of each part of memory, local memory first.
    drams: Vec<(u64, Option<Dram>)>,
    under_way: Vec<UnderWay>,
    /// Prefetches that have not been used yet: level, physical line, start, end, part.
    prefetched: Vec<(usize, u64, u64, u64, usize)>,
    late_prefetches: [u64; 2],
    stack: [u64; 10],
    traps: u64,
    /// When the last walk ends that verifies a frame of the current entry.
    verification_end: u64,
    /// When the next entry is fetched again, if a frame of the current one is wrong; else 0.
    refetch_from: u64,
}

impl NaiveCore {
    fn new(machine: &MachineConfig, config: &PipelineConfig, lines: Lines) -> Self {
        let OutstandingMisses { l1d, l2, llc } = config.outstanding;
        NaiveCore {
            lines,
            l1d_cycles: u64::from(machine.cache.l1d.latency_cycles),
            instructions: 0,
            taken: 0,
            mispredicted: 0,
            complete: Vec::new(),
            last_branch: 0,
            wrong_paths: Vec::new(),
            complete_on_wrong_paths: HashMap::new(),
            fetch: InOrder::new(config.fetch_width()),
            dispatch: InOrder::new(config.width),
            commit: InOrder::new(config.commit_width),
            registers: Vec::new(),
            loads: Vec::new(),
            stores: InOrder::new(config.store_ports),
            issue: Slots::new(config.issue_width),
            load_ports: Slots::new(config.load_ports),
            store_ports: Slots::new(config.store_ports),
            walkers: Places::new(machine.walker.walkers),
            outstanding: [l1d, l2, llc].map(Places::new),
            drams: drams(machine),
            under_way: Vec::new(),
            prefetched: Vec::new(),
            late_prefetches: [0; 2],
            stack: [0; 10],
            traps: 0,
            verification_end: 0,
            refetch_from: 0,
            config: config.clone(),
        }
    }

    fn execute(&mut self, words: &[u32], accesses: &[LineAccess], first: usize, costs: &Costs) {
        let mut entries: Vec<Entry> = Vec::new();
        let mut fresh = 0;
        for words in crate::front::entries(words) {
            let header = words.header();
            let mut entry = Entry {
                is_redirected: header.is_redirected(),
                is_after_taken: header.is_after_taken(),
                continues: header.continues(),
                difference: header.difference(),
                writes: header.writes_integer(),
                arithmetic: header.arithmetic(),
                ..Entry::default()
            };
            words.each_word(|word| match word {
                Word::Distances(distances) => each_distance(distances, |distance| {
                    if distance > 0 {
                        entry.distances.push(u64::from(distance));
                    }
                }),
                Word::Late(distances) => each_distance(distances, |distance| {
                    if distance > 0 {
                        entry.late.push(u64::from(distance));
                    }
                }),
                Word::Forward(distance) => entry.forwards.push(u64::from(distance)),
                Word::Reference(reference) => {
                    let mut place = reference.place();
                    let mut cost = None;
                    if reference.is_fresh() {
                        place = first + fresh;
                        cost = costs.costs.iter().find(|cost| cost.access as usize == fresh);
                        fresh += 1;
                    }
                    entry.references.push((reference, accesses[place], cost.copied()));
                }
            });
            entries.push(entry);
        }
        for entry in &entries {
            self.execute_entry(entry, costs);
        }
    }

    fn execute_entry(&mut self, entry: &Entry, costs: &Costs) {
        let number = self.complete.len();
        let mut waits = Waits::new();
        self.instructions += u64::from(!entry.continues);
        self.taken += u64::from(entry.is_after_taken);
        self.mispredicted += u64::from(entry.is_redirected);

        // 1. Fetch.
        let mut from = 0;
        if entry.is_after_taken && !entry.is_redirected {
            from = self.fetch.times[number - 1] + 1;
        }
        if let Some(before) = number.checked_sub(self.config.fetch_buffer as usize) {
            from = from.max(self.dispatch.times[before]);
        }
        self.follow_wrong_paths(number, entry, from);
        if entry.is_redirected {
            let redirected = self.complete[number - 1] + u64::from(self.config.mispredict_cycles);
            waits.push((from.max(self.fetch.times[number - 1]), redirected, BRANCHES));
            from = from.max(redirected);
        }
        if self.refetch_from > 0 {
            waits.push((from.max(self.fetch.times[number - 1]), self.refetch_from, FLUSHES));
            from = from.max(self.refetch_from);
        }
        (self.refetch_from, self.verification_end) = (0, 0);
        let mut fetched = self.fetch.first(from);
        for (_, access, cost) in entry.references.iter().filter(|reference| reference.0.is_fetch())
        {
            let Some(cost) = cost else { continue };
            fetched = self.run_handler(fetched, cost, &mut waits);
            fetched = self.translate(fetched, *access, Some(cost), costs, &mut waits);
            // Fetch waits for one miss at a time, which takes no place and is not under way for other accesses.
            let delay = self.transfer_line(cost, costs, fetched);
            if cost.cache_cycles > 0 {
                let arrived = fetched + delayed(cost.cache_cycles, delay);
                waits.push((fetched, arrived, FETCHES));
                fetched = arrived;
            }
        }

        // 2. Dispatch.
        let (room, store_room) = self.room(number, entry);
        let from = room.max(fetched + u64::from(self.config.front_end_cycles));
        let with_stores = from.max(store_room);
        if entry.count(true) > 0 {
            let in_order = self.dispatch.times.last().copied().unwrap_or(0);
            waits.push((from.max(in_order), with_stores, STORES));
        }
        let mut dispatched = self.dispatch.first(with_stores);
        let complete = |distances: &[u64]| self.latest(number, distances, false);
        let (operands, late) = (complete(&entry.distances), complete(&entry.late));
        let handled = entry.data().filter_map(|reference| reference.2);
        let handled: Vec<Cost> = handled.filter(|cost| cost.handler_cycles > 0).collect();
        if !handled.is_empty() {
            // The handlers run when the operands are complete; then the entry is fetched and dispatched again.
            let mut at = operands.max(dispatched + 1);
            for cost in &handled {
                at = self.run_handler(at, cost, &mut waits);
            }
            fetched = at;
            dispatched = fetched + u64::from(self.config.front_end_cycles);
        }
        self.fetch.take(fetched);
        let dispatched = self.dispatch.take(dispatched);

        // 3. Execution.
        let mut on_wrong_paths =
            self.execute_on_wrong_paths(number, entry, costs).unwrap_or_default().into_iter();
        let ready = operands.max(dispatched + 1);
        let forwarded = self.forwarded(number, entry, false);
        let arithmetic = self.arithmetic_cycles(entry);
        let mut complete = ready;
        let (mut loaded, mut load_waits, mut slowest) = (ready, Waits::new(), Waits::new());
        if entry.count(false) + entry.count(true) == 0 {
            let at = (ready.max(late)..).find(|at| self.issue.is_free(*at)).expect("a free slot");
            self.issue.take(at);
            complete = at + arithmetic;
        }
        for reference in entry.data() {
            let is_store = reference.0.is_store();
            let ports = if is_store { &mut self.store_ports } else { &mut self.load_ports };
            let is_free = |at: &u64| self.issue.is_free(*at) && ports.is_free(*at);
            let from = if is_store { loaded } else { ready };
            let at = (from..).find(is_free).expect("a free slot");
            self.issue.take(at);
            ports.take(at);
            let mut own = if is_store { load_waits.clone() } else { Waits::new() };
            let end = match on_wrong_paths.next() {
                None => self.access(at, reference, forwarded, costs, &mut own),
                Some((complete_there, waits)) => {
                    own.extend(waits.into_iter().map(|(from, to, part)| (from.max(at), to, part)));
                    let own_end = match forwarded.filter(|_| takes_from_store(reference)) {
                        _ if is_store => at + 1,
                        Some(stored) => stored.max(at) + u64::from(self.config.forward_cycles),
                        None => at + self.l1d_cycles,
                    };
                    own_end.max(complete_there)
                }
            };
            if !is_store && end >= loaded {
                (loaded, load_waits) = (end, own.clone());
            }
            if end >= complete {
                (complete, slowest) = (end, own);
            }
        }
        if entry.count(false) + entry.count(true) > 0 {
            // The arithmetic begins when the references and the late producers are complete.
            complete = complete.max(late + 1) + arithmetic - 1;
        }
        waits.extend(slowest);
        self.complete.push(complete);

        // 4. Commit.
        let before = self.commit.times.last().copied().unwrap_or(0);
        waits.push((complete, self.verification_end, VERIFICATION));
        let committed = self.commit.take(complete.max(self.verification_end));
        self.registers.extend(entry.writes.then_some(committed));
        self.loads.extend((0..entry.count(false)).map(|_| committed));
        for (reference, access, cost) in &entry.references {
            if reference.is_store() {
                let cost = cost.as_ref().filter(|_| !self.config.store_prefetch);
                let at = self.line(committed, *access, cost, costs, &mut Waits::new());
                self.stores.take(at);
            }
        }
        if committed > before {
            // The cycle of the commit belongs to the base.
            let mut remaining = committed - before - 1;
            // The waits of a store include those of a load before it: the walks and look-ups of both are taken after
            // the load's data.
            let last_first = |wait: &(u64, u64, usize)| match wait.2 {
                VERIFICATION => 0,
                HANDLERS => 4,
                STORES => 5,
                FLUSHES => 9,
                part if part > WALKS => 1,
                part if wait.0 >= dispatched => [0, 0, 0, 3, 2][part],
                part => [0, 10, 6, 8, 7][part],
            };
            waits.sort_by_key(last_first);
            for (from, to, part) in waits {
                let attributed = to.saturating_sub(from).min(remaining);
                self.stack[if part >= VERIFICATION { WALKS } else { part }] += attributed;
                remaining -= attributed;
            }
            self.stack[BASE] += remaining + 1;
        }
    }

    /// When there is room for an entry: in the reorder buffer, registers and load queue, and in the store queue.
    fn room(&self, number: usize, entry: &Entry) -> (u64, u64) {
        let config = &self.config;
        let mut room = 0;
        if let Some(before) = number.checked_sub(config.reorder_buffer as usize) {
            room = self.commit.times[before];
        }
        // An entry that needs `own` of `room` places waits until enough earlier ones are free: for all of them if it
        // needs more than there are.
        let must_be_free = |ends: &[u64], own: usize, room: u32| {
            let count = if own > 0 { (ends.len() + own).saturating_sub(room as usize) } else { 0 };
            ends.iter().take(count).copied().max().unwrap_or(0)
        };
        let (loads, stores) = (entry.count(false), entry.count(true));
        room = room
            .max(must_be_free(&self.registers, usize::from(entry.writes), config.rename_registers))
            .max(must_be_free(&self.loads, loads, config.load_queue));
        (room, must_be_free(&self.stores.times, stores, config.store_queue))
    }

    /// When the last of the producers at some distances is complete, on the right path or on wrong paths.
    fn latest(&self, number: usize, distances: &[u64], is_on_wrong: bool) -> u64 {
        let producers =
            distances.iter().filter_map(|distance| number.checked_sub(*distance as usize));
        let complete = |producer: usize| match is_on_wrong {
            true => self.complete_on_wrong_path(producer),
            false => self.complete[producer],
        };
        producers.map(complete).max().unwrap_or(0)
    }

    /// When the last store is complete from which an entry takes values, if it takes any.
    fn forwarded(&self, number: usize, entry: &Entry, is_on_wrong: bool) -> Option<u64> {
        (!entry.forwards.is_empty()).then(|| self.latest(number, &entry.forwards, is_on_wrong))
    }

    /// The cycles of an entry's arithmetic.
    fn arithmetic_cycles(&self, entry: &Entry) -> u64 {
        let cycles = self.config.latencies;
        u64::from(match entry.arithmetic {
            None => 1,
            Some(Arithmetic::Multiply) => cycles.multiply,
            Some(Arithmetic::Divide) => cycles.divide,
            Some(Arithmetic::Float) => cycles.float,
            Some(Arithmetic::FloatDivide) => cycles.float_divide,
        })
    }

    /// Runs the software handler of an access that is reached at a time, if it has one. Returns when the handler ends.
    fn run_handler(&mut self, at: u64, cost: &Cost, waits: &mut Waits) -> u64 {
        if cost.handler_cycles == 0 {
            return at;
        }
        self.traps += 1;
        let committed = self.commit.times.last().copied().unwrap_or(0);
        let begins = at.max(committed);
        let ends = begins + u64::from(self.config.front_end_cycles + cost.handler_cycles);
        waits.push((begins, ends, HANDLERS));
        ends
    }

    fn report(&self) -> Vec<(&'static str, &'static str, u64)> {
        let rows = |count: fn(&Dram) -> u64| {
            self.drams.iter().filter_map(|(_, dram)| dram.as_ref()).map(count).sum()
        };
        let mut counters = vec![
            ("core", "instructions", self.instructions),
            ("core", "cycles", self.commit.times.last().copied().unwrap_or(0)),
            ("core", "branches_taken", self.taken),
            ("core", "branches_mispredicted", self.mispredicted),
            ("core", "traps", self.traps),
            ("memory", "row_hits", rows(|dram| dram.row_hits)),
            ("memory", "row_conflicts", rows(|dram| dram.row_conflicts)),
            ("prefetch.l1d", "late", self.late_prefetches[0]),
            ("prefetch.l2", "late", self.late_prefetches[1]),
        ];
        counters.extend(
            PARTS.iter().zip(self.stack).map(|(part, cycles)| ("core.stack", *part, cycles)),
        );
        counters
    }
}
