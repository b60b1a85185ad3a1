//! A slow core for tests, written from `docs/core.md`: all times are in plain vectors, and all reservations in plain
//! lists that are searched from the start. Each lane of a [`CoreGroup`] has exactly its numbers.

use std::collections::HashMap;

use octavo_config::{
    ArithmeticLatencies, DramConfig, MachineConfig, MemoryTier, OutstandingMisses, PipelineConfig,
    StreamPrefetcher,
};
use octavo_hw::{MemoryTransfer, ServedBy};
use octavo_types::{Access, Arithmetic, Instructions, PageNumber, PageSize};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{
    CoreGroup, CoreSetup, Cost, Costs, InBackground, PrefetchCost, Speculation, UsedPrefetch,
};
use crate::counters::Counters;
use crate::front::{
    Beginning, Difference, Followed, LineAccess, Lines, Ops, Reference, Word, each_distance,
};

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

fn part_of(served: ServedBy) -> usize {
    match served {
        ServedBy::L1 => BASE,
        ServedBy::L2 => 5,
        ServedBy::Llc => 6,
        ServedBy::Memory => 7,
    }
}

/// Ascending times, at most `width` of them equal.
struct InOrder {
    width: u32,
    times: Vec<u64>,
}

impl InOrder {
    fn new(width: u32) -> Self {
        InOrder { width, times: Vec::new() }
    }

    /// The first cycle from `from` on that the next time may have.
    fn first(&self, from: u64) -> u64 {
        let mut at = from.max(self.times.last().copied().unwrap_or(0));
        while self.times.iter().rev().take_while(|time| **time == at).count() >= self.width as usize
        {
            at += 1;
        }
        at
    }

    fn take(&mut self, from: u64) -> u64 {
        let at = self.first(from);
        self.times.push(at);
        at
    }
}

/// `width` slots in each cycle, taken in any order of cycles.
struct Slots {
    width: u32,
    /// The number of slots taken, by cycle.
    taken: Vec<u32>,
}

impl Slots {
    fn new(width: u32) -> Self {
        Slots { width, taken: Vec::new() }
    }

    fn is_free(&self, at: u64) -> bool {
        self.taken.get(at as usize).is_none_or(|taken| *taken < self.width)
    }

    fn take(&mut self, at: u64) {
        let at = at as usize;
        self.taken.resize(self.taken.len().max(at + 1), 0);
        self.taken[at] += 1;
    }
}

/// Numbered places: walkers, outstanding misses, a bank or a channel. Each is taken for intervals: start, end.
struct Places {
    taken: Vec<Vec<(u64, u64)>>,
}

impl Places {
    fn new(count: u32) -> Self {
        Places { taken: vec![Vec::new(); count as usize] }
    }

    /// The first place that is free for `cycles` from a time on.
    fn free(&self, from: u64, cycles: u64) -> Option<usize> {
        let is_free = |interval: &&(u64, u64)| interval.1 <= from || from + cycles <= interval.0;
        self.taken.iter().position(|times| times.iter().filter(is_free).count() == times.len())
    }

    /// Takes the first place that is free for `cycles`, from a time until another.
    fn take(&mut self, from: u64, cycles: u64, to: u64) {
        let place = self.free(from, cycles).expect("a free place");
        self.taken[place].extend((from < to).then_some((from, to)));
    }
}

/// The first time from `from` on at which all have a place that is free for `cycles`: `from`, or the end of an
/// interval.
fn first_free(all: &[&Places], from: u64, cycles: u64) -> u64 {
    let taken = all.iter().flat_map(|places| places.taken.iter().flatten());
    let mut times: Vec<u64> =
        taken.map(|interval| interval.1).filter(|end| *end > from).chain([from]).collect();
    times.sort_unstable();
    let is_free = |at: &u64| all.iter().all(|places| places.free(*at, cycles).is_some());
    times.into_iter().find(is_free).expect("all places are free after the last interval")
}

struct Dram {
    config: DramConfig,
    line_bytes: u64,
    /// The last row opened in each bank of each channel, and when its line was requested.
    open: Vec<Option<(u64, u64)>>,
    banks: Vec<Places>,
    channels: Vec<Places>,
    /// By channel, the lines that wait to be written.
    unwritten: Vec<Vec<u64>>,
    /// By channel, the batches of writes: start, end.
    written: Vec<Vec<(u64, u64)>>,
    row_hits: u64,
    row_conflicts: u64,
}

impl Dram {
    fn new(config: DramConfig, line_bytes: u64) -> Self {
        let banks = (config.channels * config.banks) as usize;
        Dram {
            config,
            line_bytes,
            open: vec![None; banks],
            banks: (0..banks).map(|_| Places::new(1)).collect(),
            channels: (0..config.channels).map(|_| Places::new(1)).collect(),
            unwritten: vec![Vec::new(); config.channels as usize],
            written: vec![Vec::new(); config.channels as usize],
            row_hits: 0,
            row_conflicts: 0,
        }
    }

    /// Reads a line that is requested at a time. Returns how many cycles later it arrives than from a closed row of an
    /// idle bank; negative if it arrives earlier.
    fn read(&mut self, line: u64, from: u64) -> i64 {
        let (channel, bank, opens) = self.open(line, from);
        let transfer = u64::from(self.config.transfer_cycles);
        let mut begin = self.refreshed(channel, from);
        while let Some(batch) =
            self.written[channel].iter().find(|batch| (batch.0..batch.1).contains(&begin))
        {
            begin = batch.1;
        }
        let begin = first_free(&[&self.banks[bank]], begin, opens + transfer);
        self.banks[bank].take(begin, opens + transfer, begin + opens + transfer);
        let begin = first_free(&[&self.channels[channel]], begin + opens, transfer);
        self.channels[channel].take(begin, transfer, begin + transfer);
        begin as i64 - (from + u64::from(self.config.activate_cycles)) as i64
    }

    /// Writes a line back: the last line of a batch writes the batch.
    fn write(&mut self, line: u64, from: u64) {
        let config = self.config;
        let channel = (line % u64::from(config.channels)) as usize;
        self.unwritten[channel].push(line);
        if self.unwritten[channel].len() < config.write_batch as usize {
            return;
        }
        let batch = std::mem::take(&mut self.unwritten[channel]);
        let mut banks = vec![0; self.banks.len()];
        for line in &batch {
            let (_, bank, opens) = self.open(*line, from);
            banks[bank] += opens + u64::from(config.transfer_cycles);
        }
        let transfers = batch.len() as u64 * u64::from(config.transfer_cycles);
        let slowest = banks.into_iter().max().expect("a bank");
        let cycles = slowest.max(u64::from(config.turn_cycles) + transfers);
        let begin = first_free(&[&self.channels[channel]], self.refreshed(channel, from), cycles);
        self.channels[channel].take(begin, cycles, begin + cycles);
        self.written[channel].push((begin, begin + cycles));
    }

    /// Opens the row of a line. Returns the channel, the bank, and the cycles until the row is open.
    fn open(&mut self, line: u64, from: u64) -> (usize, usize, u64) {
        let config = self.config;
        let (channels, banks) = (u64::from(config.channels), u64::from(config.banks));
        let channel = line % channels;
        let row = line / channels / (config.row_bytes / self.line_bytes);
        let bank = (channel * banks + (row ^ (row / banks)) % banks) as usize;
        let before = self.open[bank].replace((row, from));
        // A refresh that begins after the row was opened closes it.
        let every = u64::from(config.refresh_every_cycles);
        let closes =
            |begin: u64, opened_at: u64| opened_at + every < begin && begin <= from + every;
        let begins = || self.refreshes(channel as usize).take_while(|begin| *begin <= from + every);
        let stays = |opened_at: u64| !begins().any(|begin| closes(begin, opened_at));
        let opens = match before.filter(|(_, at)| stays(*at)).map(|(open, _)| open) {
            None => config.activate_cycles,
            Some(open) if open == row => {
                self.row_hits += 1;
                0
            }
            Some(_) => {
                self.row_conflicts += 1;
                config.precharge_cycles + config.activate_cycles
            }
        };
        (channel as usize, bank, u64::from(opens))
    }

    /// The times at which refreshes of a channel begin, plus a period: the first of them may have begun before time 0.
    fn refreshes(&self, channel: usize) -> impl Iterator<Item = u64> + use<> {
        let every = u64::from(self.config.refresh_every_cycles);
        let first = channel as u64 * every / u64::from(self.config.channels);
        let is_refreshed = self.config.refresh_cycles > 0;
        (0..).take_while(move |_| is_refreshed).map(move |number| first + number * every)
    }

    /// The first time from `from` on at which a channel is not being refreshed.
    fn refreshed(&self, channel: usize, from: u64) -> u64 {
        let refresh = u64::from(self.config.refresh_cycles);
        let every = u64::from(self.config.refresh_every_cycles);
        let is_closed = |at: u64| {
            let mut begins = self.refreshes(channel).take_while(|begin| *begin <= at);
            begins.any(|begin| at < begin + refresh)
        };
        (from + every..).find(|at| !is_closed(*at)).expect("refreshes end") - every
    }
}

/// A walk or a line under way.
struct UnderWay {
    /// The size of the page; 0 for a line.
    page_bytes: u64,
    /// The number of the page in units of its size, or the line.
    number: u64,
    from: u64,
    to: u64,
    part: usize,
}

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

/// How many wrong paths may be under way at a time.
const MAX_WRONG_PATHS: usize = 8;

/// A wrong path under way.
struct WrongPath {
    /// The number of its branch, and when the branch is complete on the right path.
    branch: usize,
    until: u64,
    /// The slots in which entries are dispatched in order, and the earliest next one.
    slots: InOrder,
    slots_from: u64,
    /// When the last entry was dispatched in order.
    dispatched: u64,
    /// Whether an entry was dispatched in order behind the last mispredicted branch.
    is_behind_branch: bool,
    /// When the last mispredicted branch on the path is found; `None` if that is the path's own branch.
    found: Option<u64>,
}

impl WrongPath {
    /// When the path comes to a mispredicted branch behind the last entry.
    fn reaches_branch(&self) -> u64 {
        let next = if self.is_behind_branch { 0 } else { self.slots.first(self.slots_from) };
        self.dispatched.max(next)
    }
}

/// When a reference is complete on wrong paths, and its waits there.
type OnWrongPath = (u64, Waits);

/// Whether a load takes its value from a store, if its entry names one.
fn takes_from_store((_, _, cost): &(Reference, LineAccess, Option<Cost>)) -> bool {
    let is_plain_hit = |cost: &Cost| {
        cost.cache_cycles == 0 && cost.used_prefetch.is_none() && cost.prefetches == 0
    };
    cost.as_ref().is_none_or(is_plain_hit)
}

/// A duration with a delay of DRAM, which may be negative: at least a cycle.
fn delayed(cycles: u32, delay: i64) -> u64 {
    (i64::from(cycles) + delay).max(1) as u64
}

/// The parts of memory with their first lines: local memory, then the tiers, which end at the end of memory.
fn drams(machine: &MachineConfig) -> Vec<(u64, Option<Dram>)> {
    let line_bytes = machine.cache.line_bytes;
    let memory = machine.host.as_ref().map_or(&machine.memory, |host| &host.memory);
    let mut end = memory.bytes;
    let mut parts = Vec::new();
    for tier in memory.tiers.values().rev() {
        end -= tier.bytes.expect("tiers of these tests have bytes");
        parts.insert(0, (end / line_bytes, tier.dram.or(machine.dram)));
    }
    parts.insert(0, (0, machine.dram));
    let dram = |config: DramConfig| Dram::new(config, line_bytes);
    parts.into_iter().map(|(first, config)| (first, config.map(dram))).collect()
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

    /// If a mispredicted branch is directly before an entry, the wrong paths under way find it. Its own wrong path
    /// begins if the entry could be fetched, not before `from`, long before the branch is complete.
    fn follow_wrong_paths(&mut self, number: usize, entry: &Entry, from: u64) {
        if !entry.is_redirected || !self.config.wrong_paths {
            return;
        }
        let branch = number - 1;
        let before = std::mem::replace(&mut self.last_branch, branch);
        let is_off_path = entry.difference == Difference::OffPath;
        let mispredict = u64::from(self.config.mispredict_cycles);
        let front_end = u64::from(self.config.front_end_cycles);
        let complete = self.complete_on_wrong_path(branch);
        self.wrong_paths.retain(|path| !(is_off_path && path.branch == before));
        for path in &mut self.wrong_paths {
            let mut reached = path.reaches_branch();
            if path.is_behind_branch {
                path.slots_from = path.slots.times.last().expect("one was dispatched") + 1;
            }
            if is_off_path && let Some(found) = path.found {
                let off_path = found + mispredict + front_end;
                (path.slots_from, reached) = (path.slots_from.max(off_path), reached.max(off_path));
            }
            path.found = Some(complete.max(reached + 1));
            path.is_behind_branch = false;
        }
        let (begin, until) = (self.fetch.first(from), self.complete[branch]);
        if until > begin + 64 && self.wrong_paths.len() < MAX_WRONG_PATHS {
            self.wrong_paths.push(WrongPath {
                branch,
                until,
                slots: InOrder::new(self.config.fetch_width()),
                slots_from: (begin + front_end).max(self.dispatch.times[branch]),
                dispatched: 0,
                is_behind_branch: false,
                found: None,
            });
        }
    }

    /// Dispatches an entry on each wrong path under way that executes it. Returns when it is dispatched there, and when
    /// the path's branch is complete.
    fn dispatch_on_wrong_paths(&mut self, number: usize, entry: &Entry) -> Vec<(u64, u64)> {
        let (room, store_room) = self.room(number, entry);
        let room = room.max(store_room);
        let redirect =
            u64::from(self.config.mispredict_cycles) + u64::from(self.config.front_end_cycles);
        let mut dispatched = Vec::new();
        self.wrong_paths.retain_mut(|path| {
            match entry.difference {
                Difference::None => {
                    path.is_behind_branch = true;
                    let slot = path.slots.take(path.slots_from);
                    path.dispatched = path.dispatched.max(slot).max(room);
                    if path.dispatched >= path.until {
                        return false;
                    }
                    dispatched.push((path.dispatched, path.until));
                }
                Difference::Last | Difference::OffPath => {
                    let at = path.found.map(|found| room.max(found + redirect));
                    dispatched.extend(at.map(|at| (at, path.until)));
                }
                Difference::Earlier => {}
            }
            true
        });
        dispatched
    }

    /// Executes an entry on the first wrong path on which it is ready. Returns its references to data; `None` if no
    /// wrong path executes it.
    fn execute_on_wrong_paths(
        &mut self,
        number: usize,
        entry: &Entry,
        costs: &Costs,
    ) -> Option<Vec<OnWrongPath>> {
        let dispatched = self.dispatch_on_wrong_paths(number, entry);
        let operands = self.latest(number, &entry.distances, true);
        let late = self.latest(number, &entry.late, true);
        let forwarded = self.forwarded(number, entry, true);
        let is_excluded =
            |cost: Cost| cost.handler_cycles > 0 || cost.speculation != Speculation::None;
        if entry.data().any(|reference| reference.2.is_some_and(is_excluded)) {
            return None;
        }
        let has_data = entry.data().next().is_some();
        let needed = if has_data { operands } else { operands.max(late) };
        let on_each = dispatched.into_iter().map(|(at, until)| (needed.max(at + 1), until));
        let ready = on_each.filter(|(ready, until)| ready < until).map(|times| times.0).min()?;
        let (mut loaded, mut complete) = (ready, ready);
        let mut accesses = Vec::new();
        for reference in entry.data() {
            let is_store = reference.0.is_store();
            let mut waits = Waits::new();
            let from = if is_store { loaded } else { ready };
            let end = self.access(from, reference, forwarded, costs, &mut waits);
            if !is_store {
                loaded = loaded.max(end);
            }
            complete = complete.max(end);
            accesses.push((end, waits));
        }
        let arithmetic = self.arithmetic_cycles(entry);
        complete = match accesses.len() {
            0 => complete.max(late) + arithmetic,
            _ => complete.max(late + 1) + arithmetic - 1,
        };
        self.complete_on_wrong_paths.insert(number, complete);
        Some(accesses)
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

    /// When an entry is complete on wrong paths, or on the right path if no wrong path executes it.
    fn complete_on_wrong_path(&self, number: usize) -> u64 {
        *self.complete_on_wrong_paths.get(&number).unwrap_or(&self.complete[number])
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

    /// When an access to data that begins at a time is complete.
    fn access(
        &mut self,
        at: u64,
        entry_reference: &(Reference, LineAccess, Option<Cost>),
        forwarded: Option<u64>,
        costs: &Costs,
        waits: &mut Waits,
    ) -> u64 {
        let (reference, access, cost) = entry_reference;
        let translated = self.translate(at, *access, cost.as_ref(), costs, waits);
        if reference.is_store() && self.config.store_prefetch {
            self.line(translated, *access, cost.as_ref(), costs, &mut Waits::new());
        }
        match forwarded.filter(|_| takes_from_store(entry_reference)) {
            _ if reference.is_store() => translated + 1,
            Some(stored) => stored.max(translated) + u64::from(self.config.forward_cycles),
            None => self.line(translated, *access, cost.as_ref(), costs, waits) + self.l1d_cycles,
        }
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

    /// When an access that begins at a time has its translation, or continues at its predicted frame.
    fn translate(
        &mut self,
        at: u64,
        access: LineAccess,
        cost: Option<&Cost>,
        costs: &Costs,
        waits: &mut Waits,
    ) -> u64 {
        let address = access.line() << self.lines.log2();
        let page = |bytes: u64| address / bytes;
        let from = at + cost.map_or(0, |cost| u64::from(cost.lookup_cycles));
        waits.push((at, from, TLB_L2));
        if let Some(cost) = cost.filter(|cost| cost.walk_cycles > 0) {
            let (begin, end) = self.walk(from, cost.walk_cycles, costs.other_transfers(cost));
            if let Some(bytes) = cost.page_size.map(PageSize::bytes) {
                self.begin_under_way(bytes, page(bytes), begin, end, WALKS);
            }
            self.walk_in_background(end, Some((begin, end)), cost, costs);
            match cost.speculation {
                Speculation::None => (),
                Speculation::Right => {
                    self.verification_end = self.verification_end.max(end);
                    return from;
                }
                Speculation::Wrong => {
                    let refetch = end + u64::from(self.config.mispredict_cycles);
                    self.refetch_from = self.refetch_from.max(refetch);
                }
            }
            waits.push((from, end, WALKS));
            return end;
        }
        let is_to_page = |walk: &&(usize, &UnderWay)| {
            walk.1.page_bytes > 0 && walk.1.number == page(walk.1.page_bytes) && walk.1.to > from
        };
        let all = self.under_way.iter().enumerate();
        let found = all.filter(|walk| is_to_page(&walk)).min_by_key(|walk| walk.1.page_bytes);
        let mut until = from;
        if let Some((index, _)) = found {
            until = self.join(index, from, Resource::Walkers);
            waits.push((from, until, WALKS));
        }
        if let Some(cost) = cost {
            self.walk_in_background(until, None, cost, costs);
        }
        until
    }

    /// Sends a walk as soon as a walker is free. Returns its start and its end.
    fn walk(&mut self, from: u64, walk_cycles: u32, transfers: &[MemoryTransfer]) -> (u64, u64) {
        let cycles = u64::from(walk_cycles);
        let begin = first_free(&[&self.walkers], from, cycles);
        let mut delay = 0;
        for transfer in transfers {
            match self.dram(transfer.line()) {
                Some(dram) if transfer.is_write() => dram.write(transfer.line(), begin),
                Some(dram) => delay += dram.read(transfer.line(), begin),
                None => (),
            }
        }
        let end = begin + delayed(walk_cycles, delay);
        self.walkers.take(begin, cycles, end);
        (begin, end)
    }

    /// Sends the walks in the background of an access that is translated at a time. `own` is the access's own walk:
    /// start, end.
    fn walk_in_background(&mut self, at: u64, own: Option<(u64, u64)>, cost: &Cost, costs: &Costs) {
        let mut last = own;
        for number in cost.first_background..cost.first_background + cost.background {
            match costs.background[number as usize] {
                InBackground::Walk { cycles, first_transfer, transfers } => {
                    let all = first_transfer as usize..(first_transfer + transfers) as usize;
                    last = Some(self.walk(at, cycles, &costs.transfers[all]));
                }
                InBackground::Page { first, size } => {
                    if let Some((begin, end)) = last {
                        let bytes = size.bytes();
                        let number = first.raw() * PageSize::BASE.bytes() / bytes;
                        self.begin_under_way(bytes, number, begin, end, WALKS);
                    }
                }
            }
        }
    }

    /// Transfers the line of an access that misses, and its write-backs unless it has a walk: then they were
    /// transferred with the walk. Returns the delay of the line against an idle memory.
    fn transfer_line(&mut self, cost: &Cost, costs: &Costs, at: u64) -> i64 {
        if cost.cache_cycles == 0 {
            return 0;
        }
        let own = costs.own_transfer(cost);
        let delay =
            own.map_or(0, |own| self.dram(own.line()).map_or(0, |dram| dram.read(own.line(), at)));
        for write in costs.other_transfers(cost).iter().filter(|_| cost.walk_cycles == 0) {
            if let Some(dram) = self.dram(write.line()) {
                dram.write(write.line(), at);
            }
        }
        delay
    }

    /// The DRAM of a line: that of the last part of memory that begins at the line or before it.
    fn dram(&mut self, line: u64) -> Option<&mut Dram> {
        let parts = self.drams.iter_mut().filter(|(first, _)| *first <= line);
        parts.last().and_then(|(_, dram)| dram.as_mut())
    }

    /// When the line of an access that is requested at a time is in the first-level cache.
    fn line(
        &mut self,
        at: u64,
        access: LineAccess,
        cost: Option<&Cost>,
        costs: &Costs,
        waits: &mut Waits,
    ) -> u64 {
        if let Some(cost) = cost.filter(|cost| cost.cache_cycles > 0) {
            let used = cost.used_prefetch.filter(|used| used.level == 1).map(|used| used.line);
            let (begin, end, part) =
                self.send(0, at, (cost.served, cost.cache_cycles), used, |core, begin| {
                    core.transfer_line(cost, costs, begin)
                });
            self.begin_under_way(0, access.line(), begin, end, part);
            waits.push((at, end, part));
            self.prefetch(begin, cost, costs);
            return end;
        }
        if let Some(cost) = cost
            && let Some(used) = cost.used_prefetch.filter(|used| used.level == 0)
        {
            self.under_way.retain(|line| line.page_bytes > 0 || line.number != access.line());
            let mut end = at;
            if let Some((from, to, part)) = self.use_prefetch(0, used.line, at, at) {
                self.begin_under_way(0, access.line(), from, to, part);
                end = to.max(at);
                waits.push((at, end, part));
            }
            self.prefetch(at, cost, costs);
            return end;
        }
        if let Some(cost) = cost.filter(|cost| cost.prefetches > 0) {
            self.prefetch(at, cost, costs);
            return at;
        }
        let is_this = |line: &UnderWay| line.page_bytes == 0 && line.number == access.line();
        let Some(index) = self.under_way.iter().position(is_this) else { return at };
        let part = self.under_way[index].part;
        let end = self.join(index, at, Resource::FirstLevelMisses);
        waits.push((at, end, part));
        end
    }

    /// Sends a miss or a prefetch, which takes a place in each level from `level` on that it misses, at the first time
    /// at which all of them have room. `delay` transfers its lines, and returns its delay against an idle memory. If it
    /// uses a line prefetched into the second level, it has to wait for that line, too. Returns its start, its end, and
    /// the part of the stack for waits for it.
    fn send(
        &mut self,
        level: usize,
        at: u64,
        (served, cycles): (ServedBy, u32),
        used: Option<u64>,
        delay: impl FnOnce(&mut Self, u64) -> i64,
    ) -> (u64, u64, usize) {
        let misses = match served {
            ServedBy::L1 | ServedBy::L2 => 1,
            ServedBy::Llc => 2,
            ServedBy::Memory => 3,
        };
        let places: Vec<&Places> = self.outstanding[level..misses].iter().collect();
        let begin = first_free(&places, at, u64::from(cycles));
        let delay = delay(self, begin);
        let (mut end, mut part) = (begin + delayed(cycles, delay), part_of(served));
        if let Some(line) = used
            && let Some((_, to, of_prefetch)) = self.use_prefetch(1, line, begin, end)
            && to > end
        {
            (end, part) = (to, of_prefetch);
        }
        for places in &mut self.outstanding[level..misses] {
            places.take(begin, u64::from(cycles), end);
        }
        (begin, end, part)
    }

    /// Removes the prefetch of a line, for its first use at a time, by an access that has the line at `end` unless it
    /// has to wait for the prefetch. Returns the start and the end of the prefetch, and its part of the stack.
    fn use_prefetch(
        &mut self,
        level: usize,
        line: u64,
        at: u64,
        end: u64,
    ) -> Option<(u64, u64, usize)> {
        let index = self
            .prefetched
            .iter()
            .position(|prefetch| (prefetch.0, prefetch.1) == (level, line))?;
        let (.., mut from, mut to, part) = self.prefetched.remove(index);
        if at < from {
            let begin = first_free(&[&self.outstanding[level]], at, to - from);
            if begin < from {
                (from, to) = (begin, begin + to - from);
                self.outstanding[level].take(from, to - from, to);
            }
        }
        self.late_prefetches[level] += u64::from(to > end);
        Some((from, to, part))
    }

    /// Sends the prefetches of an access.
    fn prefetch(&mut self, at: u64, cost: &Cost, costs: &Costs) {
        for number in 0..cost.prefetches {
            let prefetch = costs.prefetches[(cost.first_prefetch + number) as usize];
            let transfers = (prefetch.first_transfer..prefetch.first_transfer + prefetch.transfers)
                .map(|index| costs.transfers[index as usize]);
            let used = prefetch.uses_l2.then_some(prefetch.line);
            let (from, to, part) = self.send(
                prefetch.level,
                at,
                (prefetch.served, prefetch.cycles),
                used,
                |core, begin| {
                    let mut delay = 0;
                    for transfer in transfers {
                        match core.dram(transfer.line()) {
                            Some(dram) if transfer.is_write() => dram.write(transfer.line(), begin),
                            Some(dram) => delay += dram.read(transfer.line(), begin),
                            None => (),
                        }
                    }
                    delay
                },
            );
            self.prefetched
                .retain(|before| (before.0, before.1) != (prefetch.level, prefetch.line));
            self.prefetched.push((prefetch.level, prefetch.line, from, to, part));
        }
    }

    /// Records a walk or a line that is under way.
    fn begin_under_way(&mut self, page_bytes: u64, number: u64, from: u64, to: u64, part: usize) {
        self.under_way.retain(|before| (before.page_bytes, before.number) != (page_bytes, number));
        self.under_way.push(UnderWay { page_bytes, number, from, to, part });
    }

    /// Waits for a walk or a line under way, for an access at a time. An access before its start moves the start
    /// forward, if the resource is free earlier. Returns when the access has it.
    fn join(&mut self, index: usize, at: u64, resource: Resource) -> u64 {
        let places = match resource {
            Resource::Walkers => &mut self.walkers,
            Resource::FirstLevelMisses => &mut self.outstanding[0],
        };
        let joined = &mut self.under_way[index];
        if at < joined.from {
            let cycles = joined.to - joined.from;
            let begin = first_free(&[places], at, cycles);
            if begin < joined.from {
                (joined.from, joined.to) = (begin, begin + cycles);
                places.take(begin, cycles, begin + cycles);
            }
        }
        joined.to.max(at)
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

/// The resource that a walk or a line under way takes.
#[derive(Clone, Copy)]
enum Resource {
    Walkers,
    FirstLevelMisses,
}

/// The cost of a fresh reference.
#[derive(Clone, Debug)]
struct CostDraft {
    lookup_cycles: u32,
    /// The cycles of the walk without its reads from memory, the lines of these reads, and the size of the page.
    walk: Option<(u32, Vec<u64>, Option<PageSize>)>,
    speculation: Speculation,
    handler_cycles: u32,
    served: ServedBy,
    cache_cycles: u32,
    line: u64,
    writes: Vec<u64>,
    /// The level and the line of the prefetch that the reference is the first to use.
    used: Option<(usize, u64)>,
    prefetches: Vec<PrefetchDraft>,
    background: Vec<BackgroundDraft>,
}

/// A walk in the background of an access, or a page that arrives with the walk before it.
#[derive(Clone, Debug)]
enum BackgroundDraft {
    /// The cycles of the walk without its reads from memory, and the lines of these reads.
    Walk(u32, Vec<u64>),
    Page(PageNumber, PageSize),
}

#[derive(Clone, Debug)]
struct PrefetchDraft {
    line: u64,
    level: usize,
    served: ServedBy,
    cycles: u32,
    uses_l2: bool,
    writes: Vec<u64>,
}

#[derive(Clone, Debug)]
struct ReferenceDraft {
    is_store: bool,
    /// The earlier access of the batch that serves the reference, if there are earlier ones; `None` for a fresh
    /// reference.
    repeats: Option<Index>,
    line: u64,
    cost: Option<CostDraft>,
}

#[derive(Clone, Debug)]
struct EntryDraft {
    continues: bool,
    /// Whether the branch before it is mispredicted, and whether it is taken.
    followed: (bool, bool),
    difference: Difference,
    writes: bool,
    arithmetic: Option<Arithmetic>,
    distances: Vec<u64>,
    late: Vec<u64>,
    forward: Option<u64>,
    fetch: Option<(u64, Option<CostDraft>)>,
    references: Vec<ReferenceDraft>,
    /// Whether a part of a batch, and a batch, ends with the entry.
    ends: (bool, bool),
}

/// One of few base pages in two huge pages.
fn page() -> impl Strategy<Value = u64> {
    prop::sample::select(&[0u64, 1, 2, 512, 513][..])
}

/// One of few lines in these pages.
fn line() -> impl Strategy<Value = u64> {
    (page(), 0u64..3).prop_map(|(page, line)| page << 6 | line)
}

fn background() -> impl Strategy<Value = BackgroundDraft> {
    let size = prop_oneof![Just(PageSize::BASE), Just(PageSize::HUGE)];
    prop_oneof![
        (0u32..60, vec(physical(), 0..3))
            .prop_map(|(cycles, reads)| BackgroundDraft::Walk(cycles, reads)),
        (page(), size).prop_map(|(page, size)| BackgroundDraft::Page(PageNumber::new(page), size)),
    ]
}

/// A physical line, most often in one of few rows.
fn physical() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..16, 1 => 64u64..80, 1 => 0u64..4096]
}

/// One of few physical lines, so that prefetches are used.
fn prefetched() -> impl Strategy<Value = u64> {
    0u64..6
}

fn prefetch() -> impl Strategy<Value = PrefetchDraft> {
    let served =
        prop_oneof![1 => Just(ServedBy::L2), 2 => Just(ServedBy::Llc), 3 => Just(ServedBy::Memory)];
    (prefetched(), 0usize..2, served, 0u32..50, any::<bool>(), vec(physical(), 0..3)).prop_map(
        |(line, level, served, cycles, uses_l2, writes)| {
            let is_in_l2 = level == 0 && served == ServedBy::L2;
            let level = if served == ServedBy::L2 { 0 } else { level };
            PrefetchDraft { line, level, served, cycles, uses_l2: is_in_l2 && uses_l2, writes }
        },
    )
}

fn cost() -> impl Strategy<Value = CostDraft> {
    let sizes = prop::sample::select(&[Some(PageSize::BASE), Some(PageSize::HUGE), None][..]);
    let walk = (1u32..60, vec(physical(), 0..3), sizes);
    let speculation = prop_oneof![
        2 => Just(Speculation::None),
        1 => Just(Speculation::Right),
        1 => Just(Speculation::Wrong)
    ];
    let served = prop_oneof![
        3 => Just(ServedBy::L1),
        2 => Just(ServedBy::L2),
        2 => Just(ServedBy::Llc),
        3 => Just(ServedBy::Memory)
    ];
    let lookup = prop_oneof![Just(0u32), 1u32..15];
    let handler = prop_oneof![9 => Just(0u32), 1 => 1u32..80];
    let before_line = (lookup, handler, speculation);
    let prefetches = (prop::option::weighted(0.5, prefetched()), vec(prefetch(), 0..3));
    let background = prop_oneof![3 => Just(Vec::new()), 1 => vec(background(), 1..5)];
    let line = (physical(), vec(physical(), 0..3), prefetches, background);
    // Some take so long that branches that wait for them have wrong paths.
    let cycles = prop_oneof![4 => 1u32..50, 1 => 100u32..600];
    (before_line, prop::option::weighted(0.4, walk), served, cycles, line).prop_map(
        |(
            (lookup_cycles, handler_cycles, speculation),
            walk,
            served,
            cycles,
            (line, writes, prefetches, background),
        )| {
            let cache_cycles = if served == ServedBy::L1 { 0 } else { cycles };
            let (used, prefetches) = prefetches;
            let used = match served {
                ServedBy::L1 => used.map(|line| (0, line)),
                ServedBy::L2 => used.map(|line| (1, line)),
                _ => None,
            };
            CostDraft {
                lookup_cycles,
                walk,
                speculation,
                handler_cycles,
                served,
                cache_cycles,
                line,
                writes,
                used,
                prefetches,
                background,
            }
        },
    )
}

fn entry() -> impl Strategy<Value = EntryDraft> {
    let distance = prop_oneof![6 => 1u64..6, 2 => 1u64..60, 1 => 1u64..=1023];
    let cost = || prop::option::weighted(0.4, cost());
    let reference = || {
        (any::<bool>(), prop::option::weighted(0.4, any::<Index>()), line(), cost()).prop_map(
            |(is_store, repeats, line, cost)| ReferenceDraft { is_store, repeats, line, cost },
        )
    };
    let references = prop_oneof![4 => vec(reference(), 0..=1), 1 => vec(reference(), 0..=4)];
    let fetch = prop::option::weighted(0.1, (line(), cost()));
    let flag = |weight| prop::bool::weighted(weight);
    let difference = prop_oneof![
        6 => Just(Difference::None),
        2 => Just(Difference::Last),
        1 => Just(Difference::Earlier),
        2 => Just(Difference::OffPath)
    ];
    (
        (flag(0.05), (flag(0.1), flag(0.15)), difference, any::<bool>(), 0u8..12),
        (
            prop_oneof![3 => vec(distance.clone(), 0..=2), 1 => vec(distance.clone(), 0..=5)],
            prop_oneof![2 => vec(distance.clone(), 0..=1), 1 => vec(distance.clone(), 0..=4)],
        ),
        prop::option::weighted(0.15, distance),
        (fetch, references, (flag(0.05), flag(0.02))),
    )
        .prop_map(
            |(
                (continues, followed, difference, writes, code),
                (distances, late),
                forward,
                (fetch, references, ends),
            )| {
                EntryDraft {
                    continues,
                    followed,
                    difference,
                    writes,
                    arithmetic: Arithmetic::of_code(code),
                    distances,
                    late,
                    forward,
                    fetch,
                    references,
                    ends,
                }
            },
        )
}

/// A chain of loads that take long, with a mispredicted branch behind each, so that many wrong paths are under way at a
/// time.
fn chase() -> impl Strategy<Value = Vec<EntryDraft>> {
    let link = (entry(), line(), cost(), 100u32..300, vec(entry(), 1..5));
    vec(link, 2..40).prop_map(|links| {
        let (mut entries, mut load_before) = (Vec::new(), None);
        for (head, line, cost, cache_cycles, mut behind) in links {
            let cost = CostDraft {
                served: ServedBy::Llc,
                cache_cycles,
                handler_cycles: 0,
                speculation: Speculation::None,
                used: None,
                ..cost
            };
            let number = entries.len() as u64;
            entries.push(EntryDraft {
                continues: false,
                followed: (false, false),
                difference: Difference::None,
                distances: load_before
                    .replace(number)
                    .map(|before| number - before)
                    .into_iter()
                    .collect(),
                late: Vec::new(),
                forward: None,
                fetch: None,
                references: vec![ReferenceDraft {
                    is_store: false,
                    repeats: None,
                    line,
                    cost: Some(cost),
                }],
                ..head
            });
            behind[0].continues = false;
            behind[0].followed.0 = true;
            entries.extend(behind);
        }
        entries
    })
}

fn machine() -> impl Strategy<Value = (MachineConfig, PipelineConfig)> {
    let width = || prop_oneof![1u32..4, 1u32..=64];
    let queue = || prop_oneof![2 => 1u32..4, 2 => 1u32..40, 1 => 1u32..=1023];
    // With small reorder buffers alone, few entries would be executed on wrong paths.
    let reorder_buffer = prop_oneof![queue(), 20u32..=1023];
    let cycles = || 0u32..20;
    let refresh = prop_oneof![Just((0u32, 0u32)), (1u32..100, 1u32..400)];
    let writes = (1u32..6, 0u32..60);
    let times = (cycles(), cycles(), cycles());
    let dram = ((0u32..3, 0u32..5, 6u32..14), times, writes, refresh).prop_map(
        |(
            (channels, banks, row),
            (activate_cycles, precharge_cycles, transfer_cycles),
            (write_batch, turn_cycles),
            (refresh_cycles, between),
        )| {
            DramConfig {
                channels: 1 << channels,
                banks: 1 << banks,
                row_bytes: 1 << row,
                activate_cycles,
                precharge_cycles,
                transfer_cycles,
                write_batch,
                turn_cycles,
                refresh_cycles,
                refresh_every_cycles: refresh_cycles + between,
            }
        },
    );
    // Local memory and the tiers are small, so that most lines, which are in the first frames, spread over them.
    let tier = (prop_oneof![1u64..3, 1u64..64], prop::option::of(dram.clone()));
    let tiers = vec(tier, 0..3);
    (
        [width(), width(), width(), width(), width(), width()],
        (reorder_buffer, [queue(), queue(), queue(), queue(), queue(), queue(), queue()]),
        ([cycles(), cycles(), cycles()], prop::bool::weighted(0.8), any::<bool>()),
        (1u32..8, 40u32..200, 1u32..5, (prop::option::of(dram), (0u64..3, tiers))),
        [1u32..4, 1u32..40, 1u32..8, 1u32..30],
    )
        .prop_map(|(widths, queues, cycles, (l1d, memory, walkers, dram), latencies)| {
            let (reorder_buffer, queues) = queues;
            let (cycles, wrong_paths, store_prefetch) = cycles;
            let [multiply, divide, float, float_divide] = latencies;
            let mut machine = crate::resolve("skylake", &[""; 0]).unwrap().into_config();
            machine.cache.l1d.latency_cycles = l1d;
            machine.cache.memory_latency_cycles = memory;
            machine.walker.walkers = walkers;
            let (dram, (local_frames, tiers)) = dram;
            machine.dram = dram;
            let frames = tiers.iter().map(|(frames, _)| frames).sum::<u64>();
            machine.memory.bytes = (local_frames + frames) * PageSize::BASE.bytes();
            machine.memory.tiers = (0..)
                .zip(tiers)
                .map(|(number, (frames, dram)): (u32, _)| {
                    let bytes = Some(frames * PageSize::BASE.bytes());
                    let tier = MemoryTier { bytes, share: None, added_latency_cycles: 0, dram };
                    (number.to_string(), tier)
                })
                .collect();
            // The costs contain the prefetches. With a prefetcher in its configuration, the core reports late ones.
            machine.cache.l2.prefetch.streamer = Some(StreamPrefetcher {
                streams: 1,
                confirmations: 1,
                distance: 1,
                degree: 1,
                page: PageSize::BASE,
                cross_pages: false,
            });
            let pipeline = machine.core.pipeline.clone().expect("skylake has a pipeline");
            let config = PipelineConfig {
                width: widths[0],
                fetch_width: Some(widths[5]),
                issue_width: widths[1],
                commit_width: widths[2],
                load_ports: widths[3],
                store_ports: widths[4],
                reorder_buffer,
                rename_registers: queues[0],
                load_queue: queues[1],
                store_queue: queues[2],
                fetch_buffer: queues[3],
                outstanding: OutstandingMisses { l1d: queues[4], l2: queues[5], llc: queues[6] },
                forward_cycles: cycles[0],
                front_end_cycles: cycles[1],
                mispredict_cycles: cycles[2],
                wrong_paths,
                store_prefetch,
                latencies: ArithmeticLatencies { multiply, divide, float, float_divide },
                ..pipeline
            };
            (machine, config)
        })
}

/// A batch: its accesses, and for each part its words, the index of its first access, and its costs.
#[derive(Clone, Default, Debug)]
struct Batch {
    accesses: Vec<LineAccess>,
    parts: Vec<(Vec<u32>, usize, Costs)>,
}

impl Batch {
    /// Adds an access with its cost to the last part. A read from memory takes `memory` cycles if the memory is idle.
    /// Returns the index of the access.
    fn access(&mut self, line: u64, kind: Access, cost: Option<&CostDraft>, memory: u32) -> usize {
        let place = self.accesses.len();
        self.accesses.push(LineAccess::new(line, kind, false, 0));
        let (_, first, costs) = self.parts.last_mut().expect("a part");
        if let Some(cost) = cost {
            let first_transfer = costs.transfers.len();
            let (cycles, reads, page_size) = cost.walk.clone().unwrap_or((0, Vec::new(), None));
            let reads = reads.into_iter().map(|line| MemoryTransfer::new(line, false));
            let walk_cycles = cycles + reads.len() as u32 * memory;
            costs.transfers.extend(reads);
            if walk_cycles > 0 || cost.cache_cycles > 0 {
                let writes = cost.writes.iter().map(|line| MemoryTransfer::new(*line, true));
                costs.transfers.extend(writes);
            }
            let mut cache_cycles = cost.cache_cycles;
            if cost.served == ServedBy::Memory {
                cache_cycles += memory;
                costs.transfers.push(MemoryTransfer::new(cost.line, false));
            }
            costs.has_handlers |= cost.handler_cycles > 0;
            costs.has_flushes |= cost.speculation == Speculation::Wrong;
            let transfers = costs.transfers.len() - first_transfer;
            let first_prefetch = costs.prefetches.len();
            // Fetches cause no prefetches.
            let prefetches = cost.prefetches.iter().filter(|_| kind != Access::Fetch);
            for prefetch in prefetches {
                let first_transfer = costs.transfers.len();
                let from_memory = prefetch.served == ServedBy::Memory;
                let own = from_memory.then_some(MemoryTransfer::new(prefetch.line, false));
                let writes = prefetch.writes.iter().map(|line| MemoryTransfer::new(*line, true));
                costs.transfers.extend(own.into_iter().chain(writes));
                costs.prefetches.push(PrefetchCost {
                    line: prefetch.line,
                    level: prefetch.level,
                    served: prefetch.served,
                    cycles: prefetch.cycles + if from_memory { memory } else { 0 },
                    uses_l2: prefetch.uses_l2,
                    first_transfer: first_transfer as u32,
                    transfers: (costs.transfers.len() - first_transfer) as u32,
                });
            }
            let first_background = costs.background.len();
            for background in &cost.background {
                let background = match background {
                    BackgroundDraft::Walk(cycles, reads) => {
                        let first_transfer = costs.transfers.len() as u32;
                        let reads = reads.iter().map(|line| MemoryTransfer::new(*line, false));
                        costs.transfers.extend(reads);
                        let transfers = costs.transfers.len() as u32 - first_transfer;
                        InBackground::Walk {
                            cycles: cycles + transfers * memory,
                            first_transfer,
                            transfers,
                        }
                    }
                    BackgroundDraft::Page(first, size) => {
                        InBackground::Page { first: *first, size: *size }
                    }
                };
                costs.background.push(background);
            }
            costs.costs.push(Cost {
                access: (place - *first) as u32,
                lookup_cycles: cost.lookup_cycles,
                walk_cycles,
                cache_cycles,
                served: cost.served,
                first_transfer: first_transfer as u32,
                transfers: transfers as u32,
                page_size,
                handler_cycles: cost.handler_cycles,
                used_prefetch: cost
                    .used
                    .filter(|_| kind != Access::Fetch)
                    .map(|(level, line)| UsedPrefetch { level, line }),
                first_prefetch: first_prefetch as u32,
                prefetches: (costs.prefetches.len() - first_prefetch) as u32,
                speculation: cost.speculation,
                first_background: first_background as u32,
                background: (costs.background.len() - first_background) as u32,
            });
        }
        place
    }
}

/// The batches of a program, for a machine whose memory takes `memory` cycles for a read when it is idle.
fn batches(entries: &[EntryDraft], memory: u32) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut batch = Batch::default();
    let mut ops = Ops::default();
    batch.parts.push(Default::default());
    // Whether each entry has a store.
    let mut stores: Vec<bool> = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let continues = entry.continues && number > 0;
        let (is_mispredicted, is_taken) =
            if continues || number == 0 { (false, false) } else { entry.followed };
        let difference = match entry.difference {
            Difference::OffPath if !is_mispredicted => Difference::Last,
            difference => difference,
        };
        if continues {
            ops.continuation(difference);
        } else {
            let in_program = |distances: &[u64]| -> Vec<u64> {
                distances.iter().copied().filter(|distance| *distance <= number as u64).collect()
            };
            let beginning = Beginning::new(entry.writes, entry.arithmetic).differing(difference);
            ops.begin_with(
                beginning.after(Followed { is_mispredicted, is_taken }),
                &in_program(&entry.distances),
                &in_program(&entry.late),
            );
        }
        if let Some((line, cost)) = &entry.fetch {
            batch.access(*line, Access::Fetch, cost.as_ref(), memory);
            ops.fetch(true);
        }
        let (mut has_load, mut has_store) = (false, false);
        for reference in &entry.references {
            let data: Vec<usize> = (0..batch.accesses.len())
                .filter(|place| batch.accesses[*place].kind() != Access::Fetch)
                .collect();
            let kind = if reference.is_store { Access::Store } else { Access::Load };
            match reference.repeats.filter(|_| !data.is_empty()) {
                Some(index) => ops.data(*index.get(&data), false, reference.is_store),
                None => {
                    let place = batch.access(reference.line, kind, reference.cost.as_ref(), memory);
                    ops.data(place, true, reference.is_store);
                }
            }
            has_load |= !reference.is_store;
            has_store |= reference.is_store;
        }
        if let Some(distance) = entry.forward.filter(|_| has_load) {
            let store = number.checked_sub(distance as usize).filter(|number| stores[*number]);
            store.into_iter().for_each(|_| ops.forward(distance));
        }
        stores.push(has_store);
        let (ends_part, ends_batch) = entry.ends;
        if ends_part || ends_batch || number + 1 == entries.len() {
            batch.parts.last_mut().unwrap().0 = ops.words().to_vec();
            ops.clear();
            if ends_batch || number + 1 == entries.len() {
                batches.push(std::mem::take(&mut batch));
            }
            let first = batch.accesses.len();
            batch.parts.push((Vec::new(), first, Costs::default()));
        }
    }
    batches
}

/// The costs of all references of a program.
fn costs(entries: &mut [EntryDraft]) -> Vec<&mut Option<CostDraft>> {
    let mut all = Vec::new();
    for entry in entries {
        all.extend(entry.fetch.iter_mut().map(|(_, cost)| cost));
        all.extend(entry.references.iter_mut().map(|reference| &mut reference.cost));
    }
    all
}

/// The program in which each reference has the cost of the one `distance` references later; the last ones have those of
/// the first.
fn with_costs_of_later(entries: &[EntryDraft], distance: usize) -> Vec<EntryDraft> {
    let mut entries = entries.to_vec();
    let all: Vec<_> = costs(&mut entries).into_iter().map(|cost| cost.clone()).collect();
    for (number, cost) in costs(&mut entries).into_iter().enumerate() {
        *cost = all[(number + distance) % all.len()].clone();
    }
    entries
}

/// Checks that each lane has the counters of the naive core. Lanes differ in costs and memory. Machines beyond the
/// lanes of the instruction set are left out.
fn check(
    machines: &[(MachineConfig, PipelineConfig)],
    entries: &[EntryDraft],
    instructions: Instructions,
) -> Result<(), TestCaseError> {
    let machines = &machines[..machines.len().min(CoreGroup::most_machines(instructions))];
    let (first_machine, config) = &machines[0];
    let (mut naive, mut setups, mut programs) = (Vec::new(), Vec::new(), Vec::new());
    for (lane, (machine, _)) in machines.iter().enumerate() {
        let mut machine = machine.clone();
        machine.cache.l1d.latency_cycles = first_machine.cache.l1d.latency_cycles;
        let lines = Lines::of_bytes(machine.cache.line_bytes);
        naive.push(NaiveCore::new(&machine, config, lines));
        setups.push(CoreSetup::new(&machine, config, lines));
        let entries = with_costs_of_later(entries, lane);
        programs.push(batches(&entries, machine.cache.memory_latency_cycles));
    }
    prop_assert!(setups.iter().all(|setup| setup.is_like(&setups[0])));
    let mut fast = CoreGroup::new(&setups.iter().collect::<Vec<_>>(), instructions);
    for (number, batch) in programs[0].iter().enumerate() {
        for (part, (words, first, _)) in batch.parts.iter().enumerate() {
            let costs: Vec<&Costs> =
                programs.iter().map(|batches| &batches[number].parts[part].2).collect();
            fast.execute(words, &batch.accesses, *first, &costs);
            for (naive, costs) in naive.iter_mut().zip(costs) {
                naive.execute(words, &batch.accesses, *first, costs);
            }
        }
    }
    for (lane, naive) in naive.iter().enumerate() {
        let mut counters = Counters::default();
        fast.counts(lane).report(&mut counters);
        let fast: Vec<_> = naive
            .report()
            .iter()
            .map(|(component, counter, _)| {
                (*component, *counter, counters.get(component, counter).unwrap_or(0))
            })
            .collect();
        prop_assert_eq!(fast, naive.report(), "lane {}", lane);
    }
    Ok(())
}

/// One machine or several, for one group.
fn machines() -> impl Strategy<Value = Vec<(MachineConfig, PipelineConfig)>> {
    prop_oneof![vec(machine(), 1), vec(machine(), 2..=CoreGroup::MAX_MACHINES)]
}

/// One of the host's instruction sets.
fn instructions() -> impl Strategy<Value = Instructions> {
    prop::sample::select(Instructions::all())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn times_equal_those_of_the_naive_core(
        machines in machines(),
        entries in prop_oneof![vec(entry(), 1..8), vec(entry(), 1..150)],
        instructions in instructions(),
    ) {
        check(&machines, &entries, instructions)?;
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    #[test]
    fn times_of_chases_equal_those_of_the_naive_core(
        machines in machines(),
        entries in chase(),
        instructions in instructions(),
    ) {
        check(&machines, &entries, instructions)?;
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(8))]

    /// Programs with more entries than the largest reorder buffer holds.
    #[test]
    fn times_of_long_programs_equal_those_of_the_naive_core(
        machines in machines(),
        entries in vec(entry(), 1500..3000),
        instructions in instructions(),
    ) {
        check(&machines, &entries, instructions)?;
    }
}
