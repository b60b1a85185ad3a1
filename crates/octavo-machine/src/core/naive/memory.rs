//! The memory side of the slow core: accesses to data, walks, lines, prefetches, and the list of those under way.

use octavo_hw::{MemoryTransfer, ServedBy};
use octavo_types::PageSize;

use super::dram::Dram;
use super::resources::{Places, first_free};
use super::{BASE, NaiveCore, TLB_L2, WALKS, Waits};
use crate::core::{Cost, Costs, InBackground, Speculation};
use crate::front::{LineAccess, Reference};

/// A walk or a line under way.
pub(super) struct UnderWay {
    /// The size of the page; 0 for a line.
    page_bytes: u64,
    /// The number of the page in units of its size, or the line.
    number: u64,
    from: u64,
    to: u64,
    part: usize,
}

/// The resource that a walk or a line under way takes.
#[derive(Clone, Copy)]
enum Resource {
    Walkers,
    FirstLevelMisses,
}

/// Whether a load takes its value from a store, if its entry names one.
pub(super) fn takes_from_store((_, _, cost): &(Reference, LineAccess, Option<Cost>)) -> bool {
    let is_plain_hit = |cost: &Cost| {
        cost.cache_cycles == 0 && cost.used_prefetch.is_none() && cost.prefetches == 0
    };
    cost.as_ref().is_none_or(is_plain_hit)
}

/// A duration with a delay of DRAM, which may be negative: at least a cycle.
pub(super) fn delayed(cycles: u32, delay: i64) -> u64 {
    (i64::from(cycles) + delay).max(1) as u64
}

fn part_of(served: ServedBy) -> usize {
    match served {
        ServedBy::L1 => BASE,
        ServedBy::L2 => 5,
        ServedBy::Llc => 6,
        ServedBy::Memory => 7,
    }
}

impl NaiveCore {
    /// When an access to data that begins at a time is complete.
    pub(super) fn access(
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

    /// When an access that begins at a time has its translation, or continues at its predicted frame.
    pub(super) fn translate(
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
    pub(super) fn transfer_line(&mut self, cost: &Cost, costs: &Costs, at: u64) -> i64 {
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
    pub(super) fn line(
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
}
