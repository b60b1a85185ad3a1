//! A machine with the conventional design as anybody would write it down: every reference by itself,
//! every array a list. Only the operating system is the same.

use octavo_config::{Fill, FirstLevel, MachineConfig, PageSizes, TlbLevel, Ways};
use octavo_machine::Counters;
use octavo_oracle::{NaiveArray, NaiveCaches, NaiveReplacement, NaiveWalkCache, NaiveWalkCaches};
use octavo_os::{Access, Os, ProcessId};
use octavo_types::{
    AddrRange, Consumer, Event, Item, ItemKind, PageNumber, PageSize, Segment, VirtAddr,
};

const PROCESS: ProcessId = ProcessId(0);

/// What a TLB holds of a page: its first frame, whether stores are allowed, whether it is dirty.
type Value = (u64, bool, bool);
/// A size's logarithm, and a number of a page of it.
type Key = (u8, u64);

struct Array {
    name: String,
    sizes: Vec<PageSize>,
    sets: u64,
    entries: NaiveArray<Key, Value>,
    hits: u64,
}

/// A level.
struct Tlb {
    name: &'static str,
    arrays: Vec<Array>,
    hits: u64,
    misses: u64,
    /// Whether it is filled by what the first level evicts.
    victims: bool,
}

impl Tlb {
    fn new(name: &'static str, level: &TlbLevel) -> Self {
        let arrays = level.arrays.iter().map(|(name, config)| {
            let PageSizes::List(sizes) = &config.page_sizes else { panic!("of given sizes") };
            let mut sizes = sizes.clone();
            sizes.sort();
            let ways = ways(config.ways, config.entries);
            let sets = config.entries / ways;
            let policy = replacement(config.replacement);
            let entries = NaiveArray::new(sets as usize, ways as usize, policy);
            Array { name: name.clone(), sizes, sets, entries, hits: 0 }
        });
        let arrays = arrays.collect();
        Tlb { name, arrays, hits: 0, misses: 0, victims: level.fill == Fill::Victim }
    }

    fn look_up(&mut self, page: u64) -> Option<(PageSize, Value)> {
        for array in &mut self.arrays {
            for size in array.sizes.clone() {
                let number = page >> size.base_shift();
                let set = (number % array.sets) as usize;
                if let Some(value) = array.entries.look_up(set, &(size.log2(), number)) {
                    array.hits += 1;
                    self.hits += 1;
                    return Some((size, *value));
                }
            }
        }
        self.misses += 1;
        None
    }

    /// Puts in the part of a page that the largest fitting array can hold.
    /// Returns what gave way.
    fn fill(
        &mut self,
        page: u64,
        size: PageSize,
        (frame, write, dirty): Value,
    ) -> Option<(Key, Value)> {
        let best = self.arrays.iter_mut().flat_map(|array| {
            let sizes = array.sizes.iter().filter(|of| **of <= size);
            sizes.max().copied().map(|part| (part, array))
        });
        let (part, array) = best.max_by(|a, b| a.0.cmp(&b.0).then(std::cmp::Ordering::Greater))?;
        let number = page >> part.base_shift();
        let inside = (number << part.base_shift()) & ((1 << size.base_shift()) - 1);
        let set = (number % array.sets) as usize;
        array.entries.insert(set, (part.log2(), number), (frame + inside, write, dirty))
    }

    fn forget(&mut self, start: u64, end: u64) {
        for array in &mut self.arrays {
            array.entries.invalidate_if(|(log2, number), _| {
                let shift = log2 - 12;
                number << shift < end && start < (number + 1) << shift
            });
        }
    }
}

fn ways(of: Ways, entries: u64) -> u64 {
    match of {
        Ways::Full => entries,
        Ways::Of(ways) => ways,
    }
}

fn replacement(of: octavo_hw::Replacement) -> NaiveReplacement {
    match of {
        octavo_hw::Replacement::Lru => NaiveReplacement::Lru,
        octavo_hw::Replacement::TreePlru => NaiveReplacement::TreePlru,
        octavo_hw::Replacement::Fifo => NaiveReplacement::Fifo,
        octavo_hw::Replacement::Srrip => NaiveReplacement::Srrip,
        other => panic!("{other:?} is not compared"),
    }
}

/// The machine.
pub struct NaiveMachine {
    os: Os,
    l1i: Tlb,
    /// None where the other one is for both.
    l1d: Option<Tlb>,
    l2: Option<Tlb>,
    walk_caches: NaiveWalkCaches<()>,
    caches: NaiveCaches,
    line_bytes: u64,
    levels: u8,
    page_mask: u64,
    walks: u64,
    reads: u64,
    faulted: u64,
    marked: u64,
}

const LLC: usize = 0;
const L2: usize = 1;
const L1D: usize = 2;
const L1I: usize = 3;

impl NaiveMachine {
    /// One with an empty process.
    pub fn new(config: &MachineConfig, mut os: Os) -> Self {
        os.memory_mut().spawn().unwrap();
        let mut caches = NaiveCaches::default();
        let line_bytes = config.cache.line_bytes;
        for (of, behind) in [
            (config.cache.llc, None),
            (config.cache.l2, Some(LLC)),
            (config.cache.l1d, Some(L2)),
            (config.cache.l1i, Some(L2)),
        ] {
            let ways = ways(of.ways, of.bytes / line_bytes);
            let sets = of.bytes / line_bytes / ways;
            caches.add(sets as usize, ways as usize, replacement(of.replacement), behind);
        }
        let walk_caches = config.walker.caches.values().map(|of| {
            let ways = ways(of.ways, of.entries);
            let sets = (of.entries / ways) as usize;
            NaiveWalkCache::new(of.level, sets, ways as usize, replacement(of.replacement))
        });
        let (l1i, l1d) = match &config.tlb.first {
            FirstLevel::Split { l1i, l1d } => {
                (Tlb::new("tlb.l1i", l1i), Some(Tlb::new("tlb.l1d", l1d)))
            }
            FirstLevel::Unified { l1 } => (Tlb::new("tlb.l1", l1), None),
        };
        NaiveMachine {
            os,
            l1i,
            l1d,
            l2: config.tlb.l2.as_ref().map(|l2| Tlb::new("tlb.l2", l2)),
            walk_caches: NaiveWalkCaches(walk_caches.collect()),
            caches,
            line_bytes,
            levels: config.page_table.levels,
            page_mask: (1 << (9 * config.page_table.levels)) - 1,
            walks: 0,
            reads: 0,
            faulted: 0,
            marked: 0,
        }
    }

    /// What it counted, as far as it counts.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        let mut lookups = |component: &str, hits, misses| {
            counters.add(component, "accesses", hits + misses);
            counters.add(component, "hits", hits);
            counters.add(component, "misses", misses);
        };
        for level in [Some(&self.l1i), self.l1d.as_ref(), self.l2.as_ref()].into_iter().flatten() {
            lookups(level.name, level.hits, level.misses);
            for array in &level.arrays {
                let misses = level.hits + level.misses - array.hits;
                lookups(&format!("{}.{}", level.name, array.name), array.hits, misses);
            }
        }
        for (number, name) in
            ["cache.llc", "cache.l2", "cache.l1d", "cache.l1i"].into_iter().enumerate()
        {
            let counts = self.caches.counts(number);
            lookups(name, counts.hits, counts.accesses - counts.hits);
        }
        counters.add("walker", "walks", self.walks);
        counters.add("walker", "references", self.reads);
        counters.add("walker", "faulted", self.faulted);
        counters.add("walker", "marked", self.marked);
        counters.add("memory", "reads", self.caches.memory_reads);
        counters.add("memory", "writes", self.caches.memory_writes);
        counters
    }

    fn reference(&mut self, kind: ItemKind, addr: VirtAddr, bytes: u16) {
        let first = addr.raw();
        let last = addr.wrapping_add(u64::from(bytes) - 1).raw();
        let mut looked_up = None;
        let mut line = first / self.line_bytes;
        loop {
            let page = (line * self.line_bytes) >> 12;
            let frame = match looked_up {
                Some((before, frame)) if before == page => frame,
                _ => self.translate(kind, page & self.page_mask),
            };
            looked_up = Some((page, frame));
            let physical = (frame << 12 | ((line * self.line_bytes) & 4095)) / self.line_bytes;
            let level = if kind == ItemKind::Fetch { L1I } else { L1D };
            self.caches.access(level, physical, kind == ItemKind::Store);
            if line == last / self.line_bytes {
                break;
            }
            line = (line + 1) & (u64::MAX / self.line_bytes);
        }
    }

    fn l1(&mut self, kind: ItemKind) -> &mut Tlb {
        match &mut self.l1d {
            Some(l1d) if kind != ItemKind::Fetch => l1d,
            _ => &mut self.l1i,
        }
    }

    fn translate(&mut self, kind: ItemKind, page: u64) -> u64 {
        let stores = kind == ItemKind::Store;
        let serves = |(_, (_, write, dirty)): &(PageSize, Value)| !stores || (*write && *dirty);
        let frame_in = |(size, (frame, ..)): (PageSize, Value)| {
            frame + (page & ((1 << size.base_shift()) - 1))
        };
        let in_l1 = self.l1(kind).look_up(page);
        if let Some(found) = in_l1.filter(serves) {
            return frame_in(found);
        }
        if in_l1.is_none()
            && let Some(l2) = &mut self.l2
            && let Some(found) = l2.look_up(page).filter(serves)
        {
            if l2.victims {
                l2.forget(page, page + 1);
            }
            self.fill_first(kind, page, found);
            return frame_in(found);
        }
        let found = self.walk(kind, page);
        if let Some(l2) = &mut self.l2 {
            l2.forget(page, page + 1);
            if !l2.victims {
                l2.fill(page, found.0, found.1);
            }
        }
        self.l1(kind).forget(page, page + 1);
        self.fill_first(kind, page, found);
        frame_in(found)
    }

    fn fill_first(&mut self, kind: ItemKind, page: u64, (size, value): (PageSize, Value)) {
        let evicted = self.l1(kind).fill(page, size, value);
        if let (Some(l2), Some(((log2, number), value))) = (&mut self.l2, evicted)
            && l2.victims
        {
            l2.fill(number << (log2 - 12), PageSize::from_log2(log2).unwrap(), value);
        }
    }

    fn walk(&mut self, kind: ItemKind, page: u64) -> (PageSize, Value) {
        let addr = VirtAddr::new(page << 12);
        let number = PageNumber::new(page);
        loop {
            self.walks += 1;
            let known =
                self.walk_caches.deepest(0, addr).map_or(self.levels + 1, |(level, ())| level);
            let walk = self.os.memory().process(PROCESS).table.walk(number);
            let mut last_line = 0;
            for (place, step) in walk.steps().iter().enumerate() {
                if step.level < known {
                    last_line = step.at.raw() / self.line_bytes;
                    self.caches.access(L1D, last_line, false);
                    self.reads += 1;
                    if walk.steps().get(place + 1).is_some_and(|next| next.level < step.level) {
                        self.walk_caches.fill(0, addr, step.level, ());
                    }
                }
            }
            if let Some(leaf) = walk.leaf.filter(|of| kind != ItemKind::Store || of.rights.write) {
                let table = &mut self.os.memory_mut().process_mut(PROCESS).table;
                if table.mark(number, kind == ItemKind::Store) {
                    self.marked += 1;
                    self.caches.access(L1D, last_line, true);
                }
                let (_, dirty) = self.os.memory().process(PROCESS).table.used(number).unwrap();
                return (leaf.size, (leaf.frame.raw(), leaf.rights.write, dirty));
            }
            self.faulted += 1;
            let access = match kind {
                ItemKind::Fetch => Access::Fetch,
                ItemKind::Load => Access::Load,
                _ => Access::Store,
            };
            self.os.fault(PROCESS, number, access).unwrap();
            self.forget_stale();
        }
    }

    fn forget_stale(&mut self) {
        for stale in self.os.take_stale() {
            let (start, end) = (stale.pages.start, stale.pages.end.min(1 << 52));
            for level in
                [Some(&mut self.l1i), self.l1d.as_mut(), self.l2.as_mut()].into_iter().flatten()
            {
                level.forget(start, end);
            }
            let range = AddrRange::new(VirtAddr::new(start << 12), (end - start) << 12);
            self.walk_caches.invalidate(0, range);
        }
    }

    /// After so many instructions in all.
    pub fn background(&mut self, instructions: u64) {
        self.os.background(instructions);
        self.forget_stale();
    }
}

impl Consumer for NaiveMachine {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let mut addresses = addresses.iter();
        for Item { kind, guarded, size_bytes, addr, .. } in segment.items() {
            if *kind == ItemKind::Fetch {
                self.reference(*kind, *addr, *size_bytes);
                continue;
            }
            let addr = *addresses.next().unwrap();
            if *guarded && addr == VirtAddr::NULL {
                continue;
            }
            if *kind != ItemKind::Store {
                self.reference(ItemKind::Load, addr, *size_bytes);
            }
            if *kind != ItemKind::Load {
                self.reference(ItemKind::Store, addr, *size_bytes);
            }
        }
    }

    fn event(&mut self, event: &Event) {
        self.os.event(PROCESS, &masked(event, self.page_mask)).unwrap();
        self.forget_stale();
    }
}

/// The event with addresses that the page table can translate.
fn masked(event: &Event, page_mask: u64) -> Event {
    let mask = page_mask << 12 | 4095;
    let cut = |range: &AddrRange| {
        let start = range.start().raw() & mask;
        AddrRange::new(VirtAddr::new(start), range.bytes().min(mask - start + 1))
    };
    let mut event = event.clone();
    match &mut event {
        Event::Map { range, .. }
        | Event::Unmap { range }
        | Event::Protect { range, .. }
        | Event::Advise { range, .. } => *range = cut(range),
        Event::Remap { from, to } => (*from, *to) = (cut(from), cut(to)),
        _ => {}
    }
    event
}
