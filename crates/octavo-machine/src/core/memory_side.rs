//! The memory side of a core: its page walkers, the misses that each cache level has room for, DRAM, and the
//! walks and lines under way.

use octavo_config::{MachineConfig, OutstandingMisses};
use octavo_hw::{MemoryTransfer, ServedBy};
use octavo_types::PageSize;
use rustc_hash::FxHashMap;

use super::calendar::Servers;
use super::dram::Dram;
use super::stack::Part;
use super::{Cost, Costs};
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
    /// What the accesses of the part cost.
    pub costs: &'a Costs,
    /// The time before which nothing is asked any more.
    pub now: u64,
}

/// What a core waits for outside itself.
pub struct MemorySide {
    lines: Lines,
    walkers: Servers,
    /// Outstanding misses of the first, second and last level.
    outstanding: [Servers; 3],
    dram: Option<Dram>,
    in_flight_lines: FxHashMap<u64, InFlight>,
    /// When the last line under way comes.
    lines_end: u64,
    /// By first base page and size.
    in_flight_pages: FxHashMap<(u64, u8), InFlight>,
    /// The sizes of pages under way, a bit each.
    page_sizes: u64,
    walks_end: u64,
}

impl MemorySide {
    /// Nothing under way, and an idle memory.
    pub fn new(machine: &MachineConfig, outstanding: OutstandingMisses, lines: Lines) -> Self {
        MemorySide {
            lines,
            walkers: Servers::new(machine.walker.walkers),
            outstanding: [outstanding.l1d, outstanding.l2, outstanding.llc].map(Servers::new),
            dram: machine.dram.as_ref().map(|dram| Dram::new(dram, machine.cache.line_bytes)),
            in_flight_lines: FxHashMap::default(),
            lines_end: 0,
            in_flight_pages: FxHashMap::default(),
            page_sizes: 0,
            walks_end: 0,
        }
    }

    /// Lines found in an open row, and lines for which another row had to be closed, if there is a memory.
    pub fn rows(&self) -> Option<[u64; 2]> {
        self.dram.as_ref().map(|dram| [dram.row_hits, dram.row_conflicts])
    }

    /// When a page is translated whose later TLB levels have been looked up at a time.
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
        let cycles = u64::from(cost.walk_cycles);
        let (start, walker) = self.walkers.find(at, cycles);
        let late = self.transfer(context.costs.other_transfers(&cost), start, context);
        let end = start + cycles.saturating_add_signed(late).max(1);
        self.walkers.occupy(walker, start, end, context.now);
        if let Some(size) = cost.page_size {
            let log2 = size.log2();
            let page = self.lines.page(access.line()).raw() >> (log2 - PageSize::BASE.log2());
            self.in_flight_pages.insert((page, log2), InFlight { start, end, part: Part::Walks });
            self.page_sizes |= 1 << log2;
            self.walks_end = self.walks_end.max(end);
        }
        end
    }

    /// Transfers lines between the last cache and memory. Returns how much later those read come, one after
    /// another, than from an idle memory.
    fn transfer(&mut self, transfers: &[MemoryTransfer], at: u64, context: &Context<'_>) -> i64 {
        let Some(dram) = &mut self.dram else { return 0 };
        let mut late = 0;
        for transfer in transfers {
            match transfer.is_write() {
                true => dram.write(transfer.line(), at, context.now),
                false => late += dram.read(transfer.line(), at, context.now),
            }
        }
        late
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

    /// When a line comes that misses the first-level cache.
    #[inline(never)]
    pub fn miss(&mut self, access: LineAccess, at: u64, cost: Cost, context: &Context<'_>) -> u64 {
        let (start, end) = self.send(at, cost, context);
        let part = part_of(cost.served);
        self.in_flight_lines.insert(access.line(), InFlight { start, end, part });
        self.lines_end = self.lines_end.max(end);
        end
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

    /// Sends a miss when each level that it misses has room. Returns when it is sent, and when the line comes.
    fn send(&mut self, at: u64, cost: Cost, context: &Context<'_>) -> (u64, u64) {
        let cycles = u64::from(cost.cache_cycles);
        let levels = match cost.served {
            ServedBy::L1 | ServedBy::L2 => 1,
            ServedBy::Llc => 2,
            ServedBy::Memory => 3,
        };
        let mut servers = [0; 3];
        let mut start = at;
        loop {
            let before = start;
            for (servers, level) in servers.iter_mut().zip(&self.outstanding).take(levels) {
                (start, *servers) = level.find(start, cycles);
            }
            if start == before {
                break;
            }
        }
        let late = self.transfer_line(&cost, start, context);
        let end = start + cycles.saturating_add_signed(late).max(1);
        for (level, server) in self.outstanding.iter_mut().zip(servers).take(levels) {
            level.occupy(server, start, end, context.now);
        }
        (start, end)
    }

    /// Drops lines and walks that are complete.
    #[inline(always)]
    pub fn forget_in_flight(&mut self, now: u64) {
        if self.in_flight_lines.len() > MANY_IN_FLIGHT {
            self.in_flight_lines.retain(|_, line| line.end > now);
        }
        if self.in_flight_pages.len() > MANY_IN_FLIGHT {
            self.in_flight_pages.retain(|_, walk| walk.end > now);
        }
    }
}

/// The part of the stack for waits on data from a level.
pub fn part_of(served: ServedBy) -> Part {
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
