//! The memory side of a core: page walkers, outstanding misses of each cache level, DRAM, and the walks, lines and
//! prefetches under way. Times are in cycles since the start of the program.

use octavo_config::{MachineConfig, OutstandingMisses};
use octavo_hw::{MemoryTransfer, PrefetchLevel, ServedBy};
use octavo_types::{PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::calendar::Servers;
use super::dram::Dram;
use super::stack::Part;
use super::{Cost, Costs, InBackground, PrefetchCost};
use crate::front::{LineAccess, Lines};

/// A map of walks, lines or prefetches under way with more entries than this is cleared of completed ones.
const MANY_IN_FLIGHT: usize = 1 << 10;

/// A walk, a line or a prefetch under way.
#[derive(Clone, Copy)]
struct InFlight {
    start: u64,
    end: u64,
    /// The part of the stack for waits until `end`.
    part: Part,
}

/// The context of a request.
pub struct MemoryContext<'a> {
    /// The costs of the part of the batch that the request belongs to.
    pub costs: &'a Costs,
    /// A time before which no later request is made. Records of requests that end by then can be dropped.
    pub now: u64,
}

/// The memory side of one core.
pub struct MemorySide {
    lines: Lines,
    walkers: Servers,
    /// Room for outstanding misses of the first, second and last level.
    outstanding: [Servers; 3],
    /// The DRAM of local memory.
    dram: Option<Dram>,
    /// The first line and the DRAM of each memory tier, in ascending order.
    tiers: Box<[(u64, Option<Dram>)]>,
    /// By line of an access.
    in_flight_lines: FxHashMap<u64, InFlight>,
    /// When the last line under way arrives.
    lines_end: u64,
    /// By number of the page in units of its size, and binary logarithm of the size in bytes.
    in_flight_pages: FxHashMap<(u64, u8), InFlight>,
    /// The sizes of pages under way: bit `n` stands for 2^`n` bytes.
    page_sizes: u64,
    /// When the last walk under way ends.
    walks_end: u64,
    /// Prefetches that have not been used yet, by level and physical line.
    in_flight_prefetches: FxHashMap<(PrefetchLevel, u64), InFlight>,
    /// By level, the prefetched lines that were used before they had arrived; `None` without prefetchers.
    late_prefetches: Option<[u64; 2]>,
}

/// A miss or a prefetch on its way to later levels.
struct Request<'a> {
    /// The first level in which it is an outstanding miss, as an index.
    level: PrefetchLevel,
    served: ServedBy,
    /// The time of the request with memory idle.
    cycles: u32,
    /// The transfer of its line, if memory serves it.
    own: &'a [MemoryTransfer],
    /// Transfers that the request does not wait for.
    others: &'a [MemoryTransfer],
    /// The line prefetched into the second level that the request is the first to use.
    uses_l2: Option<u64>,
}

impl MemorySide {
    /// A memory side with nothing under way.
    pub fn new(machine: &MachineConfig, outstanding: OutstandingMisses, lines: Lines) -> Self {
        let mut drams = machine.drams().into_iter().map(|(first_line, dram)| {
            (first_line, dram.map(|dram| Dram::new(&dram, machine.cache.line_bytes)))
        });
        MemorySide {
            lines,
            walkers: Servers::new(machine.walker.walkers),
            outstanding: [outstanding.l1d, outstanding.l2, outstanding.llc].map(Servers::new),
            dram: drams.next().and_then(|(_, local)| local),
            tiers: drams.collect(),
            in_flight_lines: FxHashMap::default(),
            lines_end: 0,
            in_flight_pages: FxHashMap::default(),
            page_sizes: 0,
            walks_end: 0,
            in_flight_prefetches: FxHashMap::default(),
            late_prefetches: (!machine.prefetchers().is_empty()).then_some([0; 2]),
        }
    }

    /// By level, the prefetched lines that were used before they had arrived; `None` without prefetchers.
    pub fn late_prefetches(&self) -> Option<[u64; 2]> {
        self.late_prefetches
    }

    /// When the last line under way arrives.
    #[inline(always)]
    pub fn lines_end(&self) -> u64 {
        self.lines_end
    }

    /// When the last walk under way ends.
    #[inline(always)]
    pub fn walks_end(&self) -> u64 {
        self.walks_end
    }

    /// The row hits and the row conflicts of all parts of the memory; `None` without a DRAM model.
    pub fn rows(&self) -> Option<[u64; 2]> {
        let all = self.tiers.iter().filter_map(|(_, dram)| dram.as_ref()).chain(&self.dram);
        all.map(|dram| [dram.row_hits, dram.row_conflicts])
            .reduce(|[hits, conflicts], counts| [hits + counts[0], conflicts + counts[1]])
    }

    /// When an access has its translation, after its look-ups in later TLB levels. Sends its walks in the background.
    #[inline(always)]
    pub fn translate(
        &mut self,
        access: LineAccess,
        at: u64,
        cost: Option<Cost>,
        context: &MemoryContext<'_>,
    ) -> u64 {
        if let Some(cost) = cost.filter(|cost| cost.walk_cycles > 0) {
            return self.walk(access, at, cost, context);
        }
        let translated = self.wait_for_page(access, at, context);
        if let Some(cost) = cost.filter(|cost| cost.background > 0) {
            self.walk_in_background(cost, None, translated, context);
        }
        translated
    }

    /// When a walk under way for the page of an access has ended; `at` if there is none.
    #[inline(always)]
    fn wait_for_page(&mut self, access: LineAccess, at: u64, context: &MemoryContext<'_>) -> u64 {
        if at >= self.walks_end {
            return at;
        }
        let page = self.lines.page(access.line()).raw();
        let mut sizes = self.page_sizes;
        while sizes != 0 {
            let log2 = sizes.trailing_zeros() as u8;
            let key = (page >> (log2 - PageSize::BASE.log2()), log2);
            if let Some(walk) = self.in_flight_pages.get_mut(&key)
                && at < walk.end
            {
                return join(walk, &mut self.walkers, at, context.now);
            }
            sizes &= sizes - 1;
        }
        at
    }

    /// Walks for an access, and sends its walks in the background. Returns when its walk has ended.
    #[inline(never)]
    pub fn walk(
        &mut self,
        access: LineAccess,
        at: u64,
        cost: Cost,
        context: &MemoryContext<'_>,
    ) -> u64 {
        let transfers = context.costs.other_transfers(&cost);
        let walk = self.take_walker(at, cost.walk_cycles, transfers, context);
        if let Some(size) = cost.page_size {
            self.begin_page(self.lines.page(access.line()), size, walk);
        }
        if cost.background > 0 {
            self.walk_in_background(cost, Some(walk), walk.end, context);
        }
        walk.end
    }

    /// Sends the walks in the background of an access that is translated at a time. `walk` is the access's own walk.
    #[inline(never)]
    fn walk_in_background(
        &mut self,
        cost: Cost,
        mut walk: Option<InFlight>,
        at: u64,
        context: &MemoryContext<'_>,
    ) {
        for background in context.costs.background(&cost) {
            match *background {
                InBackground::Walk { cycles, first_transfer, transfers } => {
                    let from_first = &context.costs.transfers[first_transfer as usize..];
                    let transfers = &from_first[..transfers as usize];
                    walk = Some(self.take_walker(at, cycles, transfers, context));
                }
                InBackground::Page { first, size } => {
                    walk.into_iter().for_each(|walk| self.begin_page(first, size, walk));
                }
            }
        }
    }

    /// Occupies the first walker that is free from a time on, and transfers the lines of the walk.
    fn take_walker(
        &mut self,
        at: u64,
        cycles: u32,
        transfers: &[MemoryTransfer],
        context: &MemoryContext<'_>,
    ) -> InFlight {
        let cycles = u64::from(cycles);
        let (start, walker) = self.walkers.find(at, cycles);
        let delay = self.transfer(transfers, start, context);
        let end = start + cycles.saturating_add_signed(delay).max(1);
        self.walkers.occupy(walker, start, end, context.now);
        InFlight { start, end, part: Part::Walks }
    }

    /// Records a page that arrives with a walk.
    fn begin_page(&mut self, page: PageNumber, size: PageSize, walk: InFlight) {
        let log2 = size.log2();
        let number = page.raw() >> (log2 - PageSize::BASE.log2());
        self.in_flight_pages.insert((number, log2), walk);
        self.page_sizes |= 1 << log2;
        self.walks_end = self.walks_end.max(walk.end);
    }

    /// Transfers lines between the last cache and memory. Returns the sum of the delays of its reads against an idle
    /// memory; open rows may make it negative.
    fn transfer(
        &mut self,
        transfers: &[MemoryTransfer],
        at: u64,
        context: &MemoryContext<'_>,
    ) -> i64 {
        if self.dram.is_none() && self.tiers.is_empty() {
            return 0;
        }
        let mut delay = 0;
        for transfer in transfers {
            let Some(dram) = self.dram_of(transfer.line()) else { continue };
            match transfer.is_write() {
                true => dram.write(transfer.line(), at, context.now),
                false => delay += dram.read(transfer.line(), at, context.now),
            }
        }
        delay
    }

    /// The DRAM of the part of memory that a line lies in.
    #[inline]
    fn dram_of(&mut self, line: u64) -> Option<&mut Dram> {
        let tier = self.tiers.iter_mut().rev().find(|(first_line, _)| *first_line <= line);
        tier.map_or(&mut self.dram, |(_, dram)| dram).as_mut()
    }

    /// When the line of an access that hits the first-level cache in program order is there, and the part of the stack
    /// for the wait: the line may be under way.
    #[inline(always)]
    pub fn hit(&mut self, access: LineAccess, at: u64, context: &MemoryContext<'_>) -> (u64, Part) {
        if at < self.lines_end
            && let Some(line) = self.in_flight_lines.get_mut(&access.line())
            && at < line.end
        {
            let end = join(line, &mut self.outstanding[0], at, context.now);
            return (end, line.part);
        }
        (at, Part::Base)
    }

    /// When the line of an access is in the first-level cache that misses there, is the first use of a prefetched line,
    /// or causes prefetches, and the part of the stack for the wait. Sends these prefetches.
    #[inline(never)]
    pub fn miss(
        &mut self,
        access: LineAccess,
        at: u64,
        cost: Cost,
        context: &MemoryContext<'_>,
    ) -> (u64, Part) {
        let (mut start, mut end, mut part) = (at, at, Part::Base);
        let used = |level| cost.used_prefetch.filter(|used| used.level == level);
        if cost.cache_cycles > 0 {
            let own = context.costs.own_transfer(&cost);
            let others = match cost.walk_cycles {
                0 => context.costs.other_transfers(&cost),
                // The walk has sent them.
                _ => &[],
            };
            let request = Request {
                level: 0,
                served: cost.served,
                cycles: cost.cache_cycles,
                own: own.as_slice(),
                others,
                uses_l2: used(1).map(|used| used.line),
            };
            (start, end, part) = self.send(at, &request, context);
            self.in_flight_lines.insert(access.line(), InFlight { start, end, part });
            self.lines_end = self.lines_end.max(end);
        } else if let Some(used) = used(0) {
            (end, part) = self.use_l1_prefetch(access, at, used.line, context);
        }
        for prefetch in context.costs.prefetches(&cost) {
            self.prefetch(start, prefetch, context);
        }
        (end, part)
    }

    /// Sends a prefetch at a time.
    fn prefetch(&mut self, at: u64, prefetch: &PrefetchCost, context: &MemoryContext<'_>) {
        let transfers = context.costs.prefetch_transfers(prefetch);
        let own = usize::from(prefetch.served == ServedBy::Memory);
        let (own, others) = transfers.split_at(own);
        let request = Request {
            level: prefetch.level,
            served: prefetch.served,
            cycles: prefetch.cycles,
            own,
            others,
            uses_l2: prefetch.uses_l2.then_some(prefetch.line),
        };
        let (start, end, part) = self.send(at, &request, context);
        let key = (prefetch.level, prefetch.line);
        self.in_flight_prefetches.insert(key, InFlight { start, end, part });
    }

    /// When a line prefetched into the first level is there for its first use at a time, and the part of the stack for
    /// the wait. From then on the line is under way as after a miss.
    fn use_l1_prefetch(
        &mut self,
        access: LineAccess,
        at: u64,
        line: u64,
        context: &MemoryContext<'_>,
    ) -> (u64, Part) {
        let Some(prefetch) = self.use_prefetch((0, line), at, at, context) else {
            self.in_flight_lines.remove(&access.line());
            return (at, Part::Base);
        };
        self.in_flight_lines.insert(access.line(), prefetch);
        self.lines_end = self.lines_end.max(prefetch.end);
        if prefetch.end > at { (prefetch.end, prefetch.part) } else { (at, Part::Base) }
    }

    /// Removes the prefetch of a line, for its first use at a time: by a request that has the line at `end` unless it
    /// has to wait for the prefetch.
    fn use_prefetch(
        &mut self,
        key: (PrefetchLevel, u64),
        at: u64,
        end: u64,
        context: &MemoryContext<'_>,
    ) -> Option<InFlight> {
        let mut prefetch = self.in_flight_prefetches.remove(&key)?;
        if at < prefetch.end {
            join(&mut prefetch, &mut self.outstanding[key.0], at, context.now);
        }
        if prefetch.end > end {
            self.late_prefetches.iter_mut().for_each(|late| late[key.0] += 1);
        }
        Some(prefetch)
    }

    /// Transfers the line of an access, and its write-backs unless its walk has sent them. Returns the delay of the
    /// line against an idle memory.
    fn transfer_line(&mut self, cost: &Cost, at: u64, context: &MemoryContext<'_>) -> i64 {
        let delay = self.transfer(context.costs.own_transfer(cost).as_slice(), at, context);
        if cost.walk_cycles == 0 {
            self.transfer(context.costs.other_transfers(cost), at, context);
        }
        delay
    }

    /// When the line of a fetch that misses at a time has arrived. It is not an outstanding miss of any level.
    pub fn fill(&mut self, at: u64, cost: Cost, context: &MemoryContext<'_>) -> u64 {
        let delay = self.transfer_line(&cost, at, context);
        at + u64::from(cost.cache_cycles).saturating_add_signed(delay).max(1)
    }

    /// Sends a request when each level that it misses has room. Returns when it is sent, when the line arrives, and the
    /// part of the stack for waits for it.
    fn send(
        &mut self,
        at: u64,
        request: &Request<'_>,
        context: &MemoryContext<'_>,
    ) -> (u64, u64, Part) {
        let cycles = u64::from(request.cycles);
        let levels = match request.served {
            ServedBy::L1 | ServedBy::L2 => 1,
            ServedBy::Llc => 2,
            ServedBy::Memory => 3,
        };
        let mut servers = [0; 3];
        let mut start = at;
        loop {
            let before = start;
            let all = servers.iter_mut().zip(&self.outstanding);
            for (server, level) in all.take(levels).skip(request.level) {
                (start, *server) = level.find(start, cycles);
            }
            if start == before {
                break;
            }
        }
        let delay = self.transfer(request.own, start, context);
        self.transfer(request.others, start, context);
        let mut end = start + cycles.saturating_add_signed(delay).max(1);
        let mut part = part_of(request.served);
        if let Some(line) = request.uses_l2
            && let Some(prefetch) = self.use_prefetch((1, line), start, end, context)
            && prefetch.end > end
        {
            (end, part) = (prefetch.end, prefetch.part);
        }
        let all = self.outstanding.iter_mut().zip(servers);
        for (level, server) in all.take(levels).skip(request.level) {
            level.occupy(server, start, end, context.now);
        }
        (start, end, part)
    }

    /// Drops lines, walks and prefetches that have arrived by `now`, from maps with many.
    #[inline(always)]
    pub fn drop_completed(&mut self, now: u64) {
        if self.in_flight_lines.len() > MANY_IN_FLIGHT {
            self.in_flight_lines.retain(|_, line| line.end > now);
        }
        if self.in_flight_pages.len() > MANY_IN_FLIGHT {
            self.in_flight_pages.retain(|_, walk| walk.end > now);
        }
        if self.in_flight_prefetches.len() > MANY_IN_FLIGHT {
            self.in_flight_prefetches.retain(|_, prefetch| prefetch.end > now);
        }
    }
}

/// The part of the stack for waits for data from a level.
fn part_of(served: ServedBy) -> Part {
    match served {
        ServedBy::L1 | ServedBy::L2 => Part::DataL2,
        ServedBy::Llc => Part::DataLlc,
        ServedBy::Memory => Part::DataMemory,
    }
}

/// Waits for a walk or line under way that is used at a time. A use before its start moves the start forward, if a
/// server is free earlier. Returns the end.
#[inline(always)]
fn join(in_flight: &mut InFlight, servers: &mut Servers, at: u64, now: u64) -> u64 {
    if at < in_flight.start {
        let cycles = in_flight.end - in_flight.start;
        let (start, server) = servers.find(at, cycles);
        if start < in_flight.start {
            servers.occupy(server, start, start + cycles, now);
            *in_flight = InFlight { start, end: start + cycles, ..*in_flight };
        }
    }
    in_flight.end
}
