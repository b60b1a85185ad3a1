//! The host of a naive machine: guest-physical pages are translated by lists and by walks of the host's page table; any
//! change of the table flushes all entries. For perforated pages see [`host_holes`](super::host_holes).

use octavo_config::{HostConfig, TlbsHold};
use octavo_machine::Counters;
use octavo_machine::designs::colt::Coalescing;
use octavo_oracle::{NaiveWalkCache, NaiveWalkCaches};
use octavo_os::page_table::PageTable;
use octavo_os::{Os, ProcessId};
use octavo_types::{Access, AddrRange, Event, MapSource, PageNumber, Protection, VirtAddr};

use super::host_holes::HostHoles;
use super::tlb::{Page, Tlb, replacement, ways};
use super::{NaiveMachine, PROCESS};

const VM: ProcessId = ProcessId(0);

/// The host.
pub struct NaiveHost {
    pub os: Os,
    pub tlb: Option<Tlb>,
    pub walk_caches: NaiveWalkCaches<()>,
    pub levels: u8,
    pub halves: bool,
    pub walks: u64,
    walks_dirty: u64,
    pub reads: u64,
    pub faulted: u64,
    pub marked: u64,
    invepts: u64,
    pub splintered: u64,
    was_torn: bool,
    /// Accesses through a guest half that walked the host's table.
    lone_walks: u64,
    lone_walks_dirty: u64,
    pub holes: HostHoles,
}

impl NaiveHost {
    /// A host whose virtual machine has `guest_bytes` of memory.
    pub fn new(config: &HostConfig, mut os: Os, guest_bytes: u64) -> Self {
        os.spawn().unwrap();
        let memory = Event::Map {
            range: AddrRange::new(VirtAddr::NULL, guest_bytes),
            protection: Protection::from_bits(7),
            source: MapSource::Anonymous,
            flags: 0,
        };
        os.event(VM, &memory).unwrap();
        os.take_invalidations();
        let walk_caches = config.walk_caches.values().map(|cache| {
            let ways = ways(cache.ways, cache.entries);
            let sets = (cache.entries / ways) as usize;
            NaiveWalkCache::new(cache.level, sets, ways as usize, replacement(cache.replacement))
        });
        let tlb = config.tlb.as_ref();
        NaiveHost {
            os,
            tlb: tlb.map(|tlb| Tlb::new("tlb.nested", tlb, Coalescing::default())),
            walk_caches: NaiveWalkCaches(walk_caches.collect()),
            levels: config.page_table.levels,
            halves: config.tlbs_hold == TlbsHold::Halves,
            walks: 0,
            walks_dirty: 0,
            reads: 0,
            faulted: 0,
            marked: 0,
            invepts: 0,
            splintered: 0,
            was_torn: false,
            lone_walks: 0,
            lone_walks_dirty: 0,
            holes: HostHoles::default(),
        }
    }

    pub fn table(&self) -> &PageTable {
        &self.os.memory().process(VM).table
    }

    /// The page of the host's table that holds a guest-physical page.
    fn page(&self, page: u64) -> Page {
        Page::of(self.table(), page)
    }

    /// Reports the counters of the host, and its part of the walker's.
    pub fn report(&self, machine: &NaiveMachine, counters: &mut Counters) {
        counters.add("walker", "walks", self.lone_walks);
        counters.add("walker", "walks_dirty", self.lone_walks_dirty);
        counters.add("walker", "references", self.reads);
        counters.add("walker", "marked", self.marked);
        counters.add("walker", "splintered", self.splintered);
        counters.add("walker.guest", "references", machine.reads);
        counters.add("walker.guest", "marked", machine.marked);
        counters.add("walker.host", "walks", self.walks);
        counters.add("walker.host", "walks_dirty", self.walks_dirty);
        counters.add("walker.host", "faulted", self.faulted);
        counters.add("walker.host", "references", self.reads);
        counters.add("walker.host", "marked", self.marked);
        self.holes.report(machine, counters);
        counters.add("host.os", "invepts", self.invepts);
        let os_counters = self.os.memory().counters;
        counters.add("host.os", "faults", os_counters.faults);
        counters.add("host.os", "copy_on_write_faults", os_counters.copy_on_write_faults);
        counters.add("host.os", "promotions", os_counters.promotions);
        counters.add("host.os", "frames_compacted", os_counters.frames_compacted);
        counters.add("host.os", "splits", os_counters.splits);
        if machine.gapped.is_some() {
            counters.add("host.os", "gapped", os_counters.gapped);
        }
        if let Some(tlb) = &self.tlb {
            tlb.report(counters);
        }
        super::report_walk_caches("walker.host.cache", &self.walk_caches, counters);
    }
}

impl NaiveMachine {
    pub fn host(&mut self) -> &mut NaiveHost {
        self.host.as_mut().unwrap()
    }

    pub fn invepts(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.invepts)
    }

    /// Records, at a later line of a reference, whether translations were flushed since the line before.
    pub fn note_torn(&mut self, invepts_before: u64) {
        let is_torn = self.invepts() > invepts_before;
        if let Some(host) = self.host.as_mut().filter(|host| host.halves) {
            host.was_torn |= is_torn;
        }
    }

    /// Whether translations were flushed between two lines of a reference: machines of the engine then look the page up
    /// again.
    pub fn was_torn(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.was_torn)
    }

    /// Looks a guest-physical page up in the nested TLB; `None` if missing or not permitted.
    pub fn in_nested_tlb(&mut self, page: u64, stores: bool) -> Option<Page> {
        let host = self.host.as_mut().unwrap();
        let found = host.tlb.as_mut()?.look_up(page);
        self.cycles.looked_up_nested(found.is_some());
        // An entry that does not permit the access is followed by a walk.
        host.walks_dirty += u64::from(found.is_some_and(|found| found.is_clean_for(stores)));
        let found = found.filter(|found| found.permits(stores))?;
        if found.filter.is_some() || found.has_gaps {
            return Some(found);
        }
        // The entry may be a part of its page, and its dirty bit older than the page table's.
        let whole = host.page(page);
        assert_eq!(whole.frame_of(page), found.frame_of(page));
        Some(Page { dirty: found.dirty, ..whole })
    }

    /// Walks the host's table, handling page faults, and fills the nested TLB. Returns a page that permits the access
    /// or a composite page; without `is_certain` (an inspection), `None` in place of a fault.
    pub fn walk_host(&mut self, page: u64, stores: bool, is_certain: bool) -> Option<Page> {
        let stores = stores && is_certain;
        let addr = VirtAddr::new(page << 12);
        let (lookup_cycles, before) = self.cycles.start_walk_of_host();
        loop {
            let line_bytes = self.line_bytes;
            let host = self.host();
            host.walks += 1;
            let deepest = host.walk_caches.deepest(0, addr);
            let known = deepest.map_or(host.levels + 1, |(level, ())| level);
            let walk = host.table().walk(PageNumber::new(page));
            let mut last_line = 0;
            for (place, step) in walk.steps().iter().enumerate() {
                if step.level < known {
                    last_line = step.at.raw() / line_bytes;
                    self.access_for_walk(last_line, false);
                    self.host().reads += 1;
                    if walk.steps().get(place + 1).is_some_and(|next| next.level < step.level) {
                        self.host().walk_caches.fill(0, addr, step.level, ());
                    }
                }
            }
            let perforated = Page::of_perforated(self.host().table(), page);
            let is_open = perforated.is_some_and(|perforated| perforated.may_be_hole(page));
            if is_open || walk.leaf.is_some_and(|leaf| !stores || leaf.rights.write) {
                if !is_open {
                    self.mark_in_host(page, stores, last_line);
                }
                let host = self.host();
                let composite = Page::of_perforated(host.table(), page);
                let composite = composite.or_else(|| Page::of_gapped(host.table(), page));
                let found = composite.unwrap_or_else(|| host.page(page));
                if let Some(tlb) = &mut host.tlb {
                    match composite {
                        Some(_) if !tlb.holds_perforated() => {}
                        Some(_) => drop(tlb.fill(page, found)),
                        None => {
                            tlb.invalidate(page, page + 1);
                            tlb.fill(page, found);
                        }
                    }
                }
                self.cycles.walked_host(lookup_cycles, before);
                return Some(found);
            }
            if !is_certain {
                self.cycles.walked_host(lookup_cycles, before);
                return None;
            }
            self.host().faulted += 1;
            self.host_fault(page, stores);
        }
    }

    /// Sets the accessed and dirty bits of a guest-physical page; its entry, in `line`, has been read.
    pub fn mark_in_host(&mut self, page: u64, stores: bool, line: u64) {
        let memory = self.host().os.memory_mut();
        if memory.process_mut(VM).table.mark(PageNumber::new(page), stores) {
            self.host().marked += 1;
            self.access_for_walk(line, true);
        }
    }

    pub fn host_fault(&mut self, page: u64, stores: bool) {
        let access = if stores { Access::Store } else { Access::Load };
        self.host().os.fault(VM, PageNumber::new(page), access).unwrap();
        self.invept();
    }

    /// The guest has had a page since before its first instruction. Therefore the host has it too, and the nodes of the
    /// guest's table that map it; their invalidations are not counted as INVEPTs.
    pub fn present_in_host(&mut self, page: u64) {
        let walk = self.os.memory().process(PROCESS).table.walk(PageNumber::new(page));
        let Some(leaf) = walk.leaf else { return };
        let invepts = self.invepts();
        for step in walk.steps() {
            let node = step.at.raw() >> 12;
            if self.host().table().leaf(PageNumber::new(node)).is_none() {
                self.add_present_host_page(node);
            }
        }
        self.add_present_host_page(leaf.frame_of(PageNumber::new(page)).raw());
        self.host().invepts = invepts;
    }

    fn add_present_host_page(&mut self, page: u64) {
        let range = AddrRange::new(VirtAddr::new(page << 12), 4096);
        let event = Event::Present { range, known: true, first: false };
        self.host().os.event(VM, &event).unwrap();
        self.invept();
    }

    /// Flushes all translations after a change of the host (INVEPT).
    fn invept(&mut self) {
        let Some(host) = &mut self.host else { return };
        let changes = host.os.take_invalidations().len() as u64;
        if changes == 0 {
            return;
        }
        host.invepts += changes;
        if let Some(tlb) = &mut host.tlb {
            tlb.invalidate(0, u64::MAX);
        }
        host.walk_caches.clear();
        host.holes.invalidate();
        self.flush_perforated(0, 1 << 52);
        self.invalidate(0, u64::MAX);
    }

    /// Runs the host's background work.
    pub fn host_background(&mut self, instructions: u64) {
        if let Some(host) = &mut self.host {
            host.os.background(instructions);
        }
        self.invept();
    }

    /// The machine address of a page-table entry at a physical address of the process, for a walker that may write.
    pub fn place_of_entry(&mut self, addr: u64) -> u64 {
        if self.host.is_none() {
            return addr;
        }
        let page = addr >> 12;
        self.host_page(page, true).frame_of(page) << 12 | addr & 4095
    }

    /// The machine frame that a TLB entry translates a page to; a guest half is translated by the host.
    pub fn reached(&mut self, found: Page, page: u64, stores: bool) -> u64 {
        let frame = found.frame_of(page);
        if !found.half {
            return frame;
        }
        let host = self.host();
        let (walks, walks_dirty) = (host.walks, host.walks_dirty);
        let reached = self.host_page(frame, stores).frame_of(frame);
        let host = self.host();
        host.lone_walks += u64::from(host.walks > walks);
        host.lone_walks_dirty += u64::from(host.walks_dirty > walks_dirty);
        reached
    }

    /// The TLB entry of a walked page of the process, composed with the host's.
    pub fn through_host(&mut self, own: Page, page: u64, stores: bool) -> Page {
        if self.host.is_none() {
            return own;
        }
        let host_page = self.host_page(own.frame_of(page), stores);
        let host = self.host();
        if own.size > host_page.size {
            host.splintered += 1;
            if host.halves {
                return Page { half: true, ..own };
            }
        }
        Page { dirty: own.dirty && host_page.dirty, ..self.page(page) }
    }

    /// Marks the host page of a page as used, after page faults if needed; reads no memory.
    pub fn use_host_page(&mut self, page: u64, stores: bool) {
        if self.host.is_none() {
            return;
        }
        let frame = self.own_page(page).frame_of(page);
        let number = PageNumber::new(frame);
        while self.host().table().leaf(number).is_none_or(|leaf| stores && !leaf.rights.write) {
            self.host_fault(frame, stores);
        }
        self.host().os.memory_mut().process_mut(VM).table.mark(number, stores);
    }
}
