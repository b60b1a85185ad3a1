//! A naive machine: one reference at a time, every array a list. It shares only the operating system with the engine.
//! Structures of other designs are in [`extra_hardware`].

mod cycles;
mod extra_hardware;
mod gapped;
mod host_holes;
mod nested;
mod nested_holes;
mod pages;
mod perforated;
mod prefetchers;
mod stream;
mod tlb;
mod vectors;

use octavo_config::{FirstLevel, MachineConfig, Ways};
use octavo_machine::Counters;
use octavo_machine::designs::GtsmSettings;
use octavo_machine::designs::Variant;
use octavo_machine::designs::colt::Coalescing;
use octavo_oracle::{NaiveCaches, NaiveWalkCache, NaiveWalkCaches};
use octavo_os::page_table::Walk;
use octavo_os::{Os, ProcessId};
use octavo_types::{Access, AddrRange, ItemKind, PageNumber, VirtAddr};

use cycles::Cycles;
use extra_hardware::{RangeTlb, SegmentRegisters};
use gapped::Gapped;
use nested::NaiveHost;
use perforated::Perforated;
use tlb::{Page, Tlb, replacement, report, ways};
use vectors::Vectors;

const PROCESS: ProcessId = ProcessId(0);

/// The structures that a machine has in addition to, or instead of, conventional TLBs.
#[derive(Clone, Copy)]
pub enum ExtraHardware {
    Nothing,
    Coalescing(Coalescing),
    Ranges,
    Segment,
    Perforated(Variant),
    Gapped,
    /// Tailored pages with vectors of at most this many bits.
    Tailored(u8),
}

/// A machine with one process, perhaps in a guest.
pub struct NaiveMachine {
    os: Os,
    l1i: Tlb,
    /// `None` if the first level is unified.
    l1d: Option<Tlb>,
    l2: Option<Tlb>,
    walk_caches: NaiveWalkCaches<()>,
    caches: NaiveCaches,
    line_bytes: u64,
    levels: u8,
    page_mask: u64,
    walks: u64,
    walks_dirty: u64,
    /// Whether a TLB that the reference looked up held its page writable but clean, and the reference stores.
    held_clean: bool,
    reads: u64,
    faulted: u64,
    marked: u64,
    coalesces: bool,
    /// Whether a hit in the second level fills the whole page into the first.
    fills_whole_pages: bool,
    ranges: Option<RangeTlb>,
    segment: Option<SegmentRegisters>,
    perforated: Option<Perforated>,
    gapped: Option<Gapped>,
    host: Option<NaiveHost>,
    cycles: Cycles,
    vectors: Vectors,
    /// The tiers of the memory with their first lines.
    tiers: Vec<(String, u64)>,
    /// The address of the current instruction.
    site: u64,
    prefetches: bool,
}

const LLC: usize = 0;
const L2: usize = 1;
const L1D: usize = 2;
const L1I: usize = 3;

impl NaiveMachine {
    /// A machine with an empty process.
    pub fn new(config: &MachineConfig, mut os: Os, extra: ExtraHardware) -> Self {
        os.memory_mut().spawn().unwrap();
        let mut caches = NaiveCaches::default();
        let line_bytes = config.cache.line_bytes;
        for (cache, next) in [
            (config.cache.llc, None),
            (config.cache.l2, Some(LLC)),
            (config.cache.l1d, Some(L2)),
            (config.cache.l1i, Some(L2)),
        ] {
            let ways = ways(cache.ways, cache.bytes / line_bytes);
            let sets = cache.bytes / line_bytes / ways;
            caches.add(sets as usize, ways as usize, replacement(cache.replacement), next);
        }
        let prefetches = prefetchers::add(config, &mut caches);
        let walk_caches = config.walker.caches.values().map(|cache| {
            let (ways, entries) =
                match (extra, config.designs.get::<GtsmSettings>().walk_cache_entries) {
                    (ExtraHardware::Gapped, more @ 1..) if cache.level < 4 => (more, more),
                    _ => (ways(cache.ways, cache.entries), cache.entries),
                };
            let sets = (entries / ways) as usize;
            NaiveWalkCache::new(cache.level, sets, ways as usize, replacement(cache.replacement))
        });
        let coalescing = match extra {
            ExtraHardware::Coalescing(coalescing) => coalescing,
            _ => Coalescing::default(),
        };
        let without_ranges = Coalescing { long_runs: None, ..coalescing };
        let (l1i, l1d) = match &config.tlb.first {
            FirstLevel::Split { l1i, l1d } => (
                Tlb::new("tlb.l1i", l1i, without_ranges),
                Some(Tlb::new("tlb.l1d", l1d, coalescing)),
            ),
            FirstLevel::Unified { l1 } => (Tlb::new("tlb.l1", l1, coalescing), None),
        };
        NaiveMachine {
            os,
            l1i,
            l1d,
            l2: config.tlb.l2.as_ref().map(|l2| Tlb::new("tlb.l2", l2, without_ranges)),
            walk_caches: NaiveWalkCaches(walk_caches.collect()),
            caches,
            line_bytes,
            levels: config.page_table.levels,
            page_mask: (1 << (9 * config.page_table.levels)) - 1,
            walks: 0,
            walks_dirty: 0,
            held_clean: false,
            reads: 0,
            faulted: 0,
            marked: 0,
            coalesces: matches!(extra, ExtraHardware::Coalescing(_)),
            ranges: matches!(extra, ExtraHardware::Ranges).then(RangeTlb::default),
            segment: matches!(extra, ExtraHardware::Segment).then(SegmentRegisters::default),
            perforated: match extra {
                ExtraHardware::Perforated(variant) => Some(Perforated::new(variant)),
                _ => None,
            },
            gapped: matches!(extra, ExtraHardware::Gapped)
                .then(|| Gapped::new(config.designs.get())),
            host: None,
            tiers: cycles::tiers(config)
                .into_iter()
                .map(|(name, first, _)| (name, first))
                .collect(),
            cycles: Cycles::new(config),
            vectors: match extra {
                ExtraHardware::Tailored(bits) => Vectors::new(bits),
                _ => Vectors::default(),
            },
            site: 0,
            prefetches,
            fills_whole_pages: matches!(extra, ExtraHardware::Tailored(_)),
        }
    }

    /// Places the machine in a guest of a host with this operating system.
    pub fn in_guest(self, config: &MachineConfig, os: Os) -> Self {
        let mut host = config.host.clone().unwrap();
        if self.gapped.is_some() && config.designs.get::<GtsmSettings>().walk_cache_entries > 0 {
            for cache in host.walk_caches.values_mut().filter(|cache| cache.level < 4) {
                (cache.entries, cache.ways) =
                    (config.designs.get::<GtsmSettings>().walk_cache_entries, Ways::Full);
            }
        }
        let host = NaiveHost::new(&host, os, config.memory.bytes);
        NaiveMachine { host: Some(host), ..self }
    }

    fn report_memory(&self, counters: &mut Counters) {
        let NaiveCaches { lines_read, lines_written, .. } = &self.caches;
        for (name, lines) in [("reads", lines_read), ("writes", lines_written)] {
            counters.add("memory", name, lines.len() as u64);
            for line in lines.iter().filter(|_| !self.tiers.is_empty()) {
                let tier = self.tiers.iter().rfind(|(_, first)| first <= line);
                let tier = tier.map_or("local", |(name, _)| name);
                counters.add(&format!("memory.tier.{tier}"), name, 1);
            }
        }
    }

    /// The counters that the model has.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for level in [Some(&self.l1i), self.l1d.as_ref(), self.l2.as_ref()].into_iter().flatten() {
            level.report(&mut counters);
        }
        if let Some(ranges) = &self.ranges {
            report("tlb.range", ranges.hits, ranges.misses, &mut counters);
        }
        if let Some(perforated) = self.perforated.as_ref().filter(|_| self.l2.is_some()) {
            report(
                "tlb.l2.bitmap",
                perforated.bitmap_hits,
                perforated.bitmap_misses,
                &mut counters,
            );
        }
        if let Some(segment) = &self.segment {
            report("segment", segment.hits, segment.misses, &mut counters);
        }
        for (number, name) in
            ["cache.llc", "cache.l2", "cache.l1d", "cache.l1i"].into_iter().enumerate()
        {
            let counts = self.caches.counts(number);
            report(name, counts.hits, counts.accesses - counts.hits, &mut counters);
        }
        if self.prefetches {
            for (level, name) in [(L1D, "prefetch.l1d"), (L2, "prefetch.l2")] {
                let counts = self.caches.prefetch_counts(level);
                counters.add(name, "issued", counts.issued);
                counters.add(name, "useful", counts.useful);
                counters.add(name, "unused", counts.unused);
                counters.add(name, "dropped", counts.dropped);
            }
        }
        counters.add("walker", "walks", self.walks);
        counters.add("walker", "walks_dirty", self.walks_dirty);
        counters.add("walker", "references", self.reads);
        counters.add("walker", "faulted", self.faulted);
        counters.add("walker", "marked", self.marked);
        if let Some(ranges) = &self.ranges {
            counters.add("range_walker", "walks", ranges.walks);
            counters.add("range_walker", "references", ranges.reads);
        }
        if let (Some(perforated), Some(l2)) = (&self.perforated, &self.l2) {
            perforated.report(l2, &mut counters);
        }
        if let Some(perforated) = &self.perforated {
            counters.add("walker", "bitmap_references", perforated.fetches);
        }
        if let Some(segment) = &self.segment {
            counters.add("segment", "set", segment.set);
        }
        if let Some(gapped) = &self.gapped {
            gapped.report(self.l2.is_some(), &mut counters);
        }
        self.vectors.report(&mut counters);
        self.report_memory(&mut counters);
        report_walk_caches("walker.cache", &self.walk_caches, &mut counters);
        if let Some(host) = &self.host {
            host.report(self, &mut counters);
        }
        counters
    }

    fn reference(&mut self, kind: ItemKind, addr: VirtAddr, bytes: u16) {
        let first = addr.raw();
        let last = addr.wrapping_add(u64::from(bytes) - 1).raw();
        let mut translated = None;
        let mut line = first / self.line_bytes;
        let invepts = self.invepts();
        loop {
            let page = (line * self.line_bytes) >> 12;
            let frame = match translated {
                Some((before, frame)) if before == page => {
                    self.note_torn(invepts);
                    frame
                }
                _ => self.translate(kind, page & self.page_mask),
            };
            translated = Some((page, frame));
            let physical = (frame << 12 | ((line * self.line_bytes) & 4095)) / self.line_bytes;
            let level = if kind == ItemKind::Fetch { L1I } else { L1D };
            let stores = kind == ItemKind::Store;
            if level == L1D {
                self.caches.access_data(L1D, physical, stores, self.site);
            } else {
                self.caches.access(level, physical, stores);
            }
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
        if kind != ItemKind::Fetch
            && let Some(segment) = &mut self.segment
            && let Some(frame) = segment.look_up(page, stores)
        {
            return frame;
        }
        self.held_clean = false;
        let walks = self.walks;
        let found = match (&self.perforated, &self.gapped) {
            (Some(_), _) => self.translate_perforated(kind, page),
            (_, Some(_)) => self.translate_gapped(kind, page),
            _ => self.translate_by_pages(kind, page),
        };
        self.walks_dirty += u64::from(self.held_clean && self.walks > walks);
        self.reached(found, page, stores)
    }

    /// Whether a page that a TLB holds permits the reference.
    pub fn permits(&mut self, held: &Page, stores: bool) -> bool {
        self.held_clean |= held.is_clean_for(stores);
        held.permits(stores)
    }

    fn translate_by_pages(&mut self, kind: ItemKind, page: u64) -> Page {
        let stores = kind == ItemKind::Store;
        let in_l1 = self.l1(kind).look_up(page);
        if let Some(found) = in_l1.filter(|found| self.permits(found, stores)) {
            self.mark_part(kind, page, false);
            return found;
        }
        let in_l2 = if in_l1.is_none() { self.look_up_l2(page) } else { None };
        let in_range = self.ranges.as_mut().is_some_and(|ranges| ranges.permits(page, stores));
        if self.ranges.is_some() && in_l1.is_some() {
            // The range TLB is looked up alone.
            self.cycles.tlb_access(in_range);
        }
        if let Some(found) = in_l2.filter(|found| self.permits(found, stores)) {
            let l2 = self.l2.as_mut().unwrap();
            if l2.victims {
                l2.invalidate(page, page + 1);
            }
            let found = if self.fills_whole_pages { found.whole() } else { found };
            self.fill_l1(kind, page, found);
            self.mark_part(kind, page, false);
            return found;
        }
        let found = if in_range {
            self.cycles.needs_no_walk();
            self.os.memory_mut().process_mut(PROCESS).table.mark(PageNumber::new(page), stores);
            self.use_host_page(page, stores);
            self.page(page)
        } else {
            let found = self.walk(kind, page);
            if let Some(l2) = &mut self.l2 {
                l2.invalidate(page, page + 1);
                if !l2.victims {
                    l2.fill(page, found);
                }
            }
            found
        };
        self.l1(kind).invalidate(page, page + 1);
        self.fill_l1(kind, page, found);
        self.mark_part(kind, page, true);
        if !in_range {
            let Some((range, lines)) = self.range(page) else { return found };
            if let Some(ranges) = &mut self.ranges {
                ranges.walk(range, lines);
            }
            if kind != ItemKind::Fetch
                && let Some(segment) = &mut self.segment
            {
                segment.walked(&self.os.memory().process(PROCESS).vmas, range, page);
            }
        }
        found
    }

    fn fill_l1(&mut self, kind: ItemKind, page: u64, found: Page) {
        let evicted = self.l1(kind).fill(page, found);
        if let (Some(l2), Some(evicted)) = (&mut self.l2, evicted)
            && l2.victims
        {
            let evicted = Page { known: 0, ..evicted };
            l2.fill(evicted.first_base_page(), evicted);
        }
    }

    fn walk(&mut self, kind: ItemKind, page: u64) -> Page {
        let number = PageNumber::new(page);
        loop {
            let (walk, last_line) = self.read_walk(page);
            if walk.leaf.is_some_and(|leaf| kind != ItemKind::Store || leaf.rights.write) {
                let table = &mut self.os.memory_mut().process_mut(PROCESS).table;
                if table.mark(number, kind == ItemKind::Store) {
                    self.marked += 1;
                    self.access_for_walk(last_line, true);
                }
                let stores = kind == ItemKind::Store;
                let found = self.through_host(self.own_page(page), page, stores);
                self.cycles.walked();
                return match self.coalesces && !found.half {
                    // The nested TLB may not know the dirty bit yet.
                    true => Page { dirty: found.dirty, ..self.page_and_neighbours(page) },
                    false => found,
                };
            }
            self.fault(kind, page);
        }
    }

    /// Reads the entries of a walk. Returns the walk and the line of the last entry.
    fn read_walk(&mut self, page: u64) -> (Walk, u64) {
        let addr = VirtAddr::new(page << 12);
        self.walks += 1;
        self.cycles.start_walk();
        let known = self.walk_caches.deepest(0, addr).map_or(self.levels + 1, |(level, ())| level);
        let walk = self.os.memory().process(PROCESS).table.walk(PageNumber::new(page));
        let mut last_line = 0;
        for (place, step) in walk.steps().iter().enumerate() {
            if step.level < known {
                last_line = self.place_of_entry(step.at.raw()) / self.line_bytes;
                self.access_for_walk(last_line, false);
                self.reads += 1;
                if walk.steps().get(place + 1).is_some_and(|next| next.level < step.level) {
                    self.walk_caches.fill(0, addr, step.level, ());
                }
            }
        }
        (walk, last_line)
    }

    fn fault(&mut self, kind: ItemKind, page: u64) {
        self.faulted += 1;
        let access = match kind {
            ItemKind::Fetch => Access::Fetch,
            ItemKind::Load => Access::Load,
            _ => Access::Store,
        };
        self.os.fault(PROCESS, PageNumber::new(page), access).unwrap();
        self.apply_invalidations();
    }

    fn apply_invalidations(&mut self) {
        for stale in self.os.take_invalidations() {
            let (start, end) = (stale.pages.start, stale.pages.end.min(1 << 52));
            self.flush_perforated(start, end);
            self.invalidate(start, end);
            let range = AddrRange::new(VirtAddr::new(start << 12), (end - start) << 12);
            self.walk_caches.invalidate(0, range);
            self.walk_caches.invalidate(perforated::SHADOW, range);
        }
    }

    /// Drops translations of these pages everywhere.
    fn invalidate(&mut self, start: u64, end: u64) {
        for level in
            [Some(&mut self.l1i), self.l1d.as_mut(), self.l2.as_mut()].into_iter().flatten()
        {
            level.invalidate(start, end);
        }
        if let Some(ranges) = &mut self.ranges {
            ranges.invalidate(start, end);
        }
        if let Some(gapped) = &mut self.gapped {
            gapped.invalidate(start, end);
        }
        if let Some(segment) = &mut self.segment {
            segment.invalidate(start, end);
        }
    }
}

/// Reports look-ups of walk caches, by level.
fn report_walk_caches(component: &str, caches: &NaiveWalkCaches<()>, counters: &mut Counters) {
    for cache in &caches.0 {
        let component = format!("{component}.l{}", cache.level());
        report(&component, cache.hits, cache.accesses - cache.hits, counters);
    }
}
