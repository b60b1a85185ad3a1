//! The memory side of a core: its page walkers, the misses that each cache level has room for, DRAM, and the
//! walks and lines under way.

use octavo_config::{MachineConfig, OutstandingMisses};
use octavo_hw::{MemoryTransfer, PrefetchLevel, ServedBy};
use octavo_types::{PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::calendar::Servers;
use super::dram::Dram;
use super::stack::Part;
use super::{Cost, Costs, InBackground, PrefetchCost};
use crate::front::{LineAccess, Lines};

/// Lines and pages under way are looked through for those that have come when there are so many.
const MANY_IN_FLIGHT: usize = 1 << 10;

/// A walk or a line under way.
#[derive(Clone, Copy)]
struct InFlight {
    start: u64,
    end: u64,
    /// The part of the stack for waits on it.
    part: Part,
}

/// The costs and the time at which an entry is executed.
pub struct Context<'a> {
    /// The costs of the accesses of the part.
    pub costs: &'a Costs,
    /// The time before which nothing is asked any more.
    pub now: u64,
}

/// The things outside a core that it waits for.
pub struct MemorySide {
    lines: Lines,
    walkers: Servers,
    /// Outstanding misses of the first, second and last level.
    outstanding: [Servers; 3],
    /// Of local memory.
    dram: Option<Dram>,
    /// Of each tier of the memory, with its first line.
    far: Box<[(u64, Option<Dram>)]>,
    in_flight_lines: FxHashMap<u64, InFlight>,
    /// When the last line under way comes.
    lines_end: u64,
    /// By first base page and size.
    in_flight_pages: FxHashMap<(u64, u8), InFlight>,
    /// The sizes of pages under way, a bit each.
    page_sizes: u64,
    walks_end: u64,
    /// Prefetches that nothing has used yet, by level and physical line.
    in_flight_prefetches: FxHashMap<(PrefetchLevel, u64), InFlight>,
    /// For each level prefetches that were used before they had come; none without prefetchers.
    late: Option<[u64; 2]>,
}

/// A miss or a prefetch, which is sent to the later levels.
struct Request<'a> {
    /// The first level whose places it takes.
    level: PrefetchLevel,
    served: ServedBy,
    /// Its time at an idle memory.
    cycles: u32,
    /// Its own line, if memory serves it.
    own: &'a [MemoryTransfer],
    /// Further transfers.
    others: &'a [MemoryTransfer],
    /// The line prefetched into the second level that it is the first to use.
    uses_l2: Option<u64>,
}

impl MemorySide {
    /// Nothing under way, and an idle memory.
    pub fn new(machine: &MachineConfig, outstanding: OutstandingMisses, lines: Lines) -> Self {
        let mut drams = machine.drams().into_iter().map(|(first_line, dram)| {
            (first_line, dram.map(|dram| Dram::new(&dram, machine.cache.line_bytes)))
        });
        MemorySide {
            lines,
            walkers: Servers::new(machine.walker.walkers),
            outstanding: [outstanding.l1d, outstanding.l2, outstanding.llc].map(Servers::new),
            dram: drams.next().and_then(|(_, local)| local),
            far: drams.collect(),
            in_flight_lines: FxHashMap::default(),
            lines_end: 0,
            in_flight_pages: FxHashMap::default(),
            page_sizes: 0,
            walks_end: 0,
            in_flight_prefetches: FxHashMap::default(),
            late: (!machine.prefetchers().is_empty()).then_some([0; 2]),
        }
    }

    /// For each level prefetches that were used before they had come, if there are prefetchers.
    pub fn late_prefetches(&self) -> Option<[u64; 2]> {
        self.late
    }

    /// When the last line under way comes.
    #[inline(always)]
    pub fn lines_end(&self) -> u64 {
        self.lines_end
    }

    /// When the last walk under way ends.
    #[inline(always)]
    pub fn walks_end(&self) -> u64 {
        self.walks_end
    }

    /// Lines found in an open row, and lines for which another row had to be closed, if there is a memory.
    pub fn rows(&self) -> Option<[u64; 2]> {
        let all = self.far.iter().filter_map(|(_, dram)| dram.as_ref()).chain(&self.dram);
        all.map(|dram| [dram.row_hits, dram.row_conflicts])
            .reduce(|[hits, conflicts], of| [hits + of[0], conflicts + of[1]])
    }

    /// When a page is translated whose later TLB levels have been looked up at a time. Sends its walks in the background.
    #[inline(always)]
    pub fn translate(
        &mut self,
        access: LineAccess,
        at: u64,
        cost: Option<Cost>,
        context: &Context<'_>,
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

    /// When a page is there that a walk may be under way to.
    #[inline(always)]
    fn wait_for_page(&mut self, access: LineAccess, at: u64, context: &Context<'_>) -> u64 {
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

    #[inline(never)]
    pub fn walk(&mut self, access: LineAccess, at: u64, cost: Cost, context: &Context<'_>) -> u64 {
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

    /// Sends the walks in the background of an access that is translated at a time, by a walk or by none.
    #[inline(never)]
    fn walk_in_background(
        &mut self,
        cost: Cost,
        mut walk: Option<InFlight>,
        at: u64,
        context: &Context<'_>,
    ) {
        for of in context.costs.background(&cost) {
            match *of {
                InBackground::Walk { cycles, first_transfer, transfers } => {
                    let of_walk = &context.costs.transfers[first_transfer as usize..];
                    let transfers = &of_walk[..transfers as usize];
                    walk = Some(self.take_walker(at, cycles, transfers, context));
                }
                InBackground::Page { first, size } => {
                    walk.into_iter().for_each(|walk| self.begin_page(first, size, walk));
                }
            }
        }
    }

    /// A walk by the first walker that is free from a time on.
    fn take_walker(
        &mut self,
        at: u64,
        cycles: u32,
        transfers: &[MemoryTransfer],
        context: &Context<'_>,
    ) -> InFlight {
        let cycles = u64::from(cycles);
        let (start, walker) = self.walkers.find(at, cycles);
        let late = self.transfer(transfers, start, context);
        let end = start + cycles.saturating_add_signed(late).max(1);
        self.walkers.occupy(walker, start, end, context.now);
        InFlight { start, end, part: Part::Walks }
    }

    /// A page comes with a walk.
    fn begin_page(&mut self, page: PageNumber, size: PageSize, walk: InFlight) {
        let log2 = size.log2();
        let number = page.raw() >> (log2 - PageSize::BASE.log2());
        self.in_flight_pages.insert((number, log2), walk);
        self.page_sizes |= 1 << log2;
        self.walks_end = self.walks_end.max(walk.end);
    }

    /// Transfers lines between the last cache and memory. Returns how much later those read come, one after
    /// another, than from an idle memory.
    fn transfer(&mut self, transfers: &[MemoryTransfer], at: u64, context: &Context<'_>) -> i64 {
        if self.dram.is_none() && self.far.is_empty() {
            return 0;
        }
        let mut late = 0;
        for transfer in transfers {
            let Some(dram) = self.dram_of(transfer.line()) else { continue };
            match transfer.is_write() {
                true => dram.write(transfer.line(), at, context.now),
                false => late += dram.read(transfer.line(), at, context.now),
            }
        }
        late
    }

    /// The DRAM that a line lies in.
    #[inline]
    fn dram_of(&mut self, line: u64) -> Option<&mut Dram> {
        let tier = self.far.iter_mut().rev().find(|(first_line, _)| *first_line <= line);
        tier.map_or(&mut self.dram, |(_, dram)| dram).as_mut()
    }

    /// When a line is in the first-level cache that hits there in program order, and what serves it: it may be
    /// under way.
    #[inline(always)]
    pub fn hit(&mut self, access: LineAccess, at: u64, context: &Context<'_>) -> (u64, Part) {
        if at < self.lines_end
            && let Some(line) = self.in_flight_lines.get_mut(&access.line())
            && at < line.end
        {
            let end = join(line, &mut self.outstanding[0], at, context.now);
            return (end, line.part);
        }
        (at, Part::Base)
    }

    /// When a line is there that misses the first-level cache, or was prefetched into it, and what served it. Sends the
    /// prefetches that the access causes.
    #[inline(never)]
    pub fn miss(
        &mut self,
        access: LineAccess,
        at: u64,
        cost: Cost,
        context: &Context<'_>,
    ) -> (u64, Part) {
        let (mut start, mut end, mut part) = (at, at, Part::Base);
        let used = |level| cost.used_prefetch.filter(|used| used.level == level);
        if cost.cache_cycles > 0 {
            let own = context.costs.own_transfer(&cost);
            let others = match cost.walk_cycles {
                0 => context.costs.other_transfers(&cost),
                // They go with the walk.
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

    /// Sends a prefetch.
    fn prefetch(&mut self, at: u64, prefetch: &PrefetchCost, context: &Context<'_>) {
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

    /// When a line prefetched into the first level is there for its first use at a time, and what serves it. From then
    /// on it is a line under way like others.
    fn use_l1_prefetch(
        &mut self,
        access: LineAccess,
        at: u64,
        line: u64,
        context: &Context<'_>,
    ) -> (u64, Part) {
        let Some(prefetch) = self.use_prefetch((0, line), at, at, context) else {
            self.in_flight_lines.remove(&access.line());
            return (at, Part::Base);
        };
        self.in_flight_lines.insert(access.line(), prefetch);
        self.lines_end = self.lines_end.max(prefetch.end);
        if prefetch.end > at { (prefetch.end, prefetch.part) } else { (at, Part::Base) }
    }

    /// The prefetch of a line that is used first at a time, by something that has the line at `end` if it is there.
    fn use_prefetch(
        &mut self,
        key: (PrefetchLevel, u64),
        at: u64,
        end: u64,
        context: &Context<'_>,
    ) -> Option<InFlight> {
        let mut prefetch = self.in_flight_prefetches.remove(&key)?;
        if at < prefetch.end {
            join(&mut prefetch, &mut self.outstanding[key.0], at, context.now);
        }
        if prefetch.end > end {
            self.late.iter_mut().for_each(|late| late[key.0] += 1);
        }
        Some(prefetch)
    }

    /// Transfers the line of an access, and what it wrote back. Returns how much later it comes than from an
    /// idle memory.
    fn transfer_line(&mut self, cost: &Cost, at: u64, context: &Context<'_>) -> i64 {
        let late = self.transfer(context.costs.own_transfer(cost).as_slice(), at, context);
        if cost.walk_cycles == 0 {
            self.transfer(context.costs.other_transfers(cost), at, context);
        }
        late
    }

    /// When the line of a fetch comes.
    pub fn fill(&mut self, at: u64, cost: Cost, context: &Context<'_>) -> u64 {
        let late = self.transfer_line(&cost, at, context);
        at + u64::from(cost.cache_cycles).saturating_add_signed(late)
    }

    /// Sends a request when each level that it misses has room. Returns when it is sent, when the line comes, and what
    /// serves it.
    fn send(&mut self, at: u64, request: &Request<'_>, context: &Context<'_>) -> (u64, u64, Part) {
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
            for (servers, level) in all.take(levels).skip(request.level) {
                (start, *servers) = level.find(start, cycles);
            }
            if start == before {
                break;
            }
        }
        let late = self.transfer(request.own, start, context);
        self.transfer(request.others, start, context);
        let mut end = start + cycles.saturating_add_signed(late).max(1);
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

    /// Drops lines and walks that are complete, if there are many.
    #[inline(always)]
    pub fn forget_in_flight(&mut self, now: u64) {
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

/// The part of the stack for waits on data from a level.
fn part_of(served: ServedBy) -> Part {
    match served {
        ServedBy::L1 | ServedBy::L2 => Part::DataL2,
        ServedBy::Llc => Part::DataLlc,
        ServedBy::Memory => Part::DataMemory,
    }
}

/// When what is under way has come for a use at a time. A use before its start makes it start for that use, if
/// a server is free.
#[inline(always)]
fn join(of: &mut InFlight, servers: &mut Servers, at: u64, now: u64) -> u64 {
    if at < of.start {
        let cycles = of.end - of.start;
        let (start, server) = servers.find(at, cycles);
        if start < of.start {
            servers.occupy(server, start, start + cycles, now);
            *of = InFlight { start, end: start + cycles, ..*of };
        }
    }
    of.end
}
