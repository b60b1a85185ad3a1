//! A textbook model of the conventional path: every reference looks its page and its line up, in sets with a time of
//! last use in each entry. The engine is compared with it: both must count the same.

use octavo_config::{CacheLevel, MachineConfig, TlbLevel};
use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::BasePages;
use octavo_os::{Memory, Os, ProcessId};
use octavo_trace::StreamConsumer;
use octavo_types::{Access, Consumer, Event, Item, ItemKind, PageNumber, Segment, VirtAddr};

/// An entry of a set; `used` is the time of its last use, 0 if it is free.
#[derive(Clone, Copy, Default)]
struct Entry {
    tag: u64,
    used: u64,
    value: u64,
    flag: bool,
}

/// Sets of entries.
struct Array {
    entries: Vec<Entry>,
    sets: u64,
    ways: usize,
    now: u64,
    hits: u64,
    misses: u64,
}

impl Array {
    fn new(entries: u64, ways: u64) -> Self {
        Array {
            entries: vec![Entry::default(); entries as usize],
            sets: entries / ways,
            ways: ways as usize,
            now: 0,
            hits: 0,
            misses: 0,
        }
    }

    fn tlb(level: &TlbLevel) -> Self {
        let array = &level.arrays[0];
        Array::new(array.entries, array.ways.of(array.entries))
    }

    fn cache(level: &CacheLevel, line_bytes: u64) -> Self {
        let lines = level.bytes / line_bytes;
        Array::new(lines, level.ways.of(lines))
    }

    fn set(&mut self, tag: u64) -> &mut [Entry] {
        let set = (tag % self.sets) as usize;
        &mut self.entries[set * self.ways..][..self.ways]
    }

    fn look_up(&mut self, tag: u64) -> Option<&mut Entry> {
        self.now += 1;
        let now = self.now;
        let set = (tag % self.sets) as usize;
        let entries = &mut self.entries[set * self.ways..][..self.ways];
        for entry in entries {
            if entry.used > 0 && entry.tag == tag {
                entry.used = now;
                self.hits += 1;
                return Some(entry);
            }
        }
        self.misses += 1;
        None
    }

    /// Inserts an entry and returns the evicted one.
    fn fill(&mut self, tag: u64, value: u64, flag: bool) -> Option<Entry> {
        self.now += 1;
        let now = self.now;
        let set = self.set(tag);
        let mut oldest = 0;
        for way in 0..set.len() {
            if set[way].used < set[oldest].used {
                oldest = way;
            }
        }
        let evicted = std::mem::replace(&mut set[oldest], Entry { tag, used: now, value, flag });
        (evicted.used > 0).then_some(evicted)
    }

    fn remove(&mut self, tag: u64) {
        for entry in self.set(tag) {
            if entry.tag == tag {
                entry.used = 0;
            }
        }
    }
}

/// A machine with 4 KiB pages and one process.
pub struct Textbook {
    os: Os,
    l1i: Array,
    l1d: Array,
    l2: Array,
    /// Walk caches by level of the page table, from 2.
    walk_caches: Vec<(u8, Array)>,
    caches: [Array; 4],
    pub walks: u64,
    pub reads: u64,
    pub memory_reads: u64,
    levels: u8,
}

const PROCESS: ProcessId = ProcessId(0);
const LLC: usize = 0;
const L2: usize = 1;
const L1D: usize = 2;
const L1I: usize = 3;
/// Cache lines have 64 bytes.
const LINE_LOG2: u8 = 6;

impl Textbook {
    pub fn new(config: &MachineConfig) -> Self {
        let shape = MemoryShape::new(config.memory.bytes >> 12, Order::LINUX).expect("a memory");
        let format = Format { levels: config.page_table.levels, ..Format::default() };
        let mut memory = Memory::new(Frames::new(shape), &[], format);
        memory.spawn().expect("room for a page table");
        let line_bytes = config.cache.line_bytes;
        assert_eq!(line_bytes, 1 << LINE_LOG2, "lines of 64 bytes");
        let cache = |level| Array::cache(level, line_bytes);
        let mut walk_caches: Vec<(u8, Array)> = (config.walker.caches.values())
            .map(|cache| (cache.level, Array::new(cache.entries, cache.ways.of(cache.entries))))
            .collect();
        walk_caches.sort_by_key(|(level, _)| *level);
        Textbook {
            os: Os::new(memory, Box::new(BasePages)),
            l1i: Array::tlb(config.tlb.fetch()),
            l1d: Array::tlb(config.tlb.data()),
            l2: Array::tlb(config.tlb.l2.as_ref().expect("a second level")),
            walk_caches,
            caches: [
                cache(&config.cache.llc),
                cache(&config.cache.l2),
                cache(&config.cache.l1d),
                cache(&config.cache.l1i),
            ],
            walks: 0,
            reads: 0,
            memory_reads: 0,
            levels: config.page_table.levels,
        }
    }

    /// Misses by component name of the engine.
    pub fn misses(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("tlb.l1i", self.l1i.misses),
            ("tlb.l1d", self.l1d.misses),
            ("tlb.l2", self.l2.misses),
            ("cache.l1i", self.caches[L1I].misses),
            ("cache.l1d", self.caches[L1D].misses),
            ("cache.l2", self.caches[L2].misses),
            ("cache.llc", self.caches[LLC].misses),
        ]
    }

    fn reference(&mut self, kind: ItemKind, addr: u64, bytes: u16) {
        let last = addr.wrapping_add(u64::from(bytes) - 1);
        let mut frame = self.translate(kind, addr >> 12);
        let level = if kind == ItemKind::Fetch { L1I } else { L1D };
        let mut line = addr >> LINE_LOG2;
        loop {
            let physical = frame << (12 - LINE_LOG2) | line & ((1 << (12 - LINE_LOG2)) - 1);
            self.access(level, physical, kind == ItemKind::Store);
            if line == last >> LINE_LOG2 {
                break;
            }
            line += 1;
            if line.trailing_zeros() >= u32::from(12 - LINE_LOG2) {
                frame = self.translate(kind, line >> (12 - LINE_LOG2));
            }
        }
    }

    fn access(&mut self, level: usize, line: u64, is_write: bool) {
        if let Some(entry) = self.caches[level].look_up(line) {
            entry.flag |= is_write;
            return;
        }
        match next_level(level) {
            Some(next) => self.access(next, line, false),
            None => self.memory_reads += 1,
        }
        self.fill(level, line, is_write);
    }

    fn fill(&mut self, level: usize, line: u64, is_dirty: bool) {
        let evicted = self.caches[level].fill(line, 0, is_dirty);
        let dirty = evicted.filter(|evicted| evicted.flag);
        if let (Some(dirty), Some(next)) = (dirty, next_level(level)) {
            let set = self.caches[next].set(dirty.tag);
            match set.iter_mut().find(|entry| entry.used > 0 && entry.tag == dirty.tag) {
                Some(entry) => entry.flag = true,
                None => self.fill(next, dirty.tag, true),
            }
        }
    }

    fn translate(&mut self, kind: ItemKind, page: u64) -> u64 {
        let stores = kind == ItemKind::Store;
        let l1 = if kind == ItemKind::Fetch { &mut self.l1i } else { &mut self.l1d };
        let found = l1.look_up(page).map(|entry| (entry.value, entry.flag));
        let is_hit = found.is_some();
        if let Some((frame, is_dirty)) = found
            && (is_dirty || !stores)
        {
            return frame;
        }
        if !is_hit && let Some(entry) = self.l2.look_up(page) {
            let (frame, is_dirty) = (entry.value, entry.flag);
            if is_dirty || !stores {
                l1.fill(page, frame, is_dirty);
                return frame;
            }
        }
        let (frame, is_dirty) = self.walk(kind, page);
        self.l2.remove(page);
        self.l2.fill(page, frame, is_dirty);
        let l1 = if kind == ItemKind::Fetch { &mut self.l1i } else { &mut self.l1d };
        l1.remove(page);
        l1.fill(page, frame, is_dirty);
        frame
    }

    fn walk(&mut self, kind: ItemKind, page: u64) -> (u64, bool) {
        let number = PageNumber::new(page);
        loop {
            self.walks += 1;
            let mut known = self.levels + 1;
            for (level, cache) in &mut self.walk_caches {
                if cache.look_up(page >> (9 * (*level - 1))).is_some() {
                    known = *level;
                    break;
                }
            }
            let walk = self.os.memory().process(PROCESS).table.walk(number);
            for (place, step) in walk.steps().iter().enumerate() {
                if step.level < known {
                    self.reads += 1;
                    self.access(L1D, step.at.raw() >> LINE_LOG2, false);
                    if walk.steps().len() > place + 1 {
                        let cached =
                            self.walk_caches.iter_mut().find(|(level, _)| *level == step.level);
                        if let Some((level, cache)) = cached {
                            cache.fill(page >> (9 * (*level - 1)), 0, false);
                        }
                    }
                }
            }
            if let Some(leaf) =
                walk.leaf.filter(|leaf| kind != ItemKind::Store || leaf.rights.write)
            {
                let table = &mut self.os.memory_mut().process_mut(PROCESS).table;
                if table.mark(number, kind == ItemKind::Store) {
                    let last = walk.steps()[walk.steps().len() - 1].at.raw() >> LINE_LOG2;
                    self.access(L1D, last, true);
                }
                let table = &self.os.memory().process(PROCESS).table;
                let is_dirty = table.used(number).is_some_and(|(_, dirty)| dirty);
                return (leaf.frame.raw(), is_dirty && leaf.rights.write);
            }
            let access = match kind {
                ItemKind::Fetch => Access::Fetch,
                ItemKind::Load => Access::Load,
                _ => Access::Store,
            };
            self.os.fault(PROCESS, number, access).expect("room for the page");
            self.apply_invalidations();
        }
    }

    fn apply_invalidations(&mut self) {
        for stale in self.os.take_invalidations() {
            for array in [&mut self.l1i, &mut self.l1d, &mut self.l2] {
                for entry in &mut array.entries {
                    if stale.pages.contains(&entry.tag) {
                        entry.used = 0;
                    }
                }
            }
            for (level, cache) in &mut self.walk_caches {
                let shift = 9 * (*level - 1);
                for entry in &mut cache.entries {
                    let (start, end) = (entry.tag << shift, (entry.tag + 1) << shift);
                    if start < stale.pages.end && stale.pages.start < end {
                        entry.used = 0;
                    }
                }
            }
        }
    }
}

fn next_level(level: usize) -> Option<usize> {
    match level {
        LLC => None,
        L2 => Some(LLC),
        _ => Some(L2),
    }
}

impl Consumer for Textbook {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let mut addresses = addresses.iter();
        for Item { kind, guarded, size_bytes, addr, .. } in segment.items() {
            if *kind == ItemKind::Fetch {
                self.reference(*kind, addr.raw(), *size_bytes);
                continue;
            }
            let addr = *addresses.next().expect("an address for each access");
            if *guarded && addr == VirtAddr::NULL {
                continue;
            }
            if *kind != ItemKind::Store {
                self.reference(ItemKind::Load, addr.raw(), *size_bytes);
            }
            if *kind != ItemKind::Load {
                self.reference(ItemKind::Store, addr.raw(), *size_bytes);
            }
        }
    }

    fn event(&mut self, event: &Event) {
        self.os.event(PROCESS, event).expect("room for its pages");
        self.apply_invalidations();
    }
}

impl StreamConsumer for Textbook {}
