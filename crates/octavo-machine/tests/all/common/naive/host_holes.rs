//! Perforated and gapped pages of a naive machine's host.

use octavo_machine::Counters;
use octavo_os::ProcessId;
use octavo_types::{PageNumber, PageSize, VirtAddr};

use super::NaiveMachine;
use super::perforated::{SHADOW, line_of_holes};
use super::tlb::{Page, report};

const VM: ProcessId = ProcessId(0);

/// The host's structures for holes, of its own pages and the guest's.
#[derive(Default)]
pub struct HostHoles {
    walks: u64,
    pub bitmap_reads: u64,
    /// The host page in which the guest's bitmap was read last, by guest-physical page.
    register: Option<Page>,
    register_hits: u64,
    register_misses: u64,
}

impl HostHoles {
    pub fn invalidate(&mut self) {
        self.register = None;
    }

    pub fn report(&self, machine: &NaiveMachine, counters: &mut Counters) {
        if machine.perforated.is_none() && machine.gapped.is_none() {
            return;
        }
        let own = machine.perforated.as_ref().map_or(0, |own| own.fetches);
        counters.add("walker", "bitmap_references", self.bitmap_reads);
        counters.add("walker.guest", "bitmap_references", own);
        counters.add("walker.host", "bitmap_references", self.bitmap_reads);
        if machine.perforated.is_none() {
            return;
        }
        counters.add("walker.host", "hole_walks", self.walks);
        let (hits, misses) = (self.register_hits, self.register_misses);
        report("walker.bitmap_register", hits, misses, counters);
    }
}

impl NaiveMachine {
    /// Translates a guest-physical page by the nested TLB or a walk.
    pub fn host_page(&mut self, page: u64, stores: bool) -> Page {
        let in_tlb = self.in_nested_tlb(page, stores);
        let mut was_walked = in_tlb.is_none();
        let mut found = in_tlb.or_else(|| self.walk_host(page, stores, true)).unwrap();
        loop {
            if found.has_gaps {
                let bits = self.read_bits_of_chunk(found.frame);
                let part = found.part_of_chunk(page, bits);
                if let Some(tlb) = &mut self.host().tlb {
                    tlb.fill(page, part);
                }
                return part;
            }
            if found.filter.is_none() {
                return found;
            }
            if !found.may_be_hole(page) {
                let part = found.part_of_region(page);
                if let Some(tlb) = self.host().tlb.as_mut().filter(|tlb| !tlb.holds_perforated()) {
                    tlb.fill(page, part);
                }
                return part;
            }
            let part = match self.bit_of_host(page) {
                true => self.walk_hole_of_host(page, stores, was_walked),
                false if was_walked => self.use_in_host(page, stores),
                false => Some(found.part_of_region(page)),
            };
            if let Some(part) = part {
                if let Some(tlb) = &mut self.host().tlb {
                    tlb.fill(page, part);
                }
                return part;
            }
            found = self.walk_host(page, stores, true).unwrap();
            was_walked = true;
        }
    }

    /// Reads the line of the host's bitmap for a page in a perforated host page.
    fn bit_of_host(&mut self, page: u64) -> bool {
        self.read_line_of_host(page);
        self.holes_of_host(page).unwrap()[(page % 512) as usize]
    }

    pub fn read_line_of_host(&mut self, page: u64) {
        let region = Page::of_perforated(self.host().table(), page).unwrap();
        let at = line_of_holes(&self.host().os, region.frame);
        self.host().holes.bitmap_reads += 1;
        self.access_for_walk(at / self.line_bytes, false);
    }

    /// All hole bits of the perforated host page around a guest-physical page.
    pub fn holes_of_host(&self, page: u64) -> Option<Vec<bool>> {
        let host = self.host.as_ref().unwrap();
        let region = Page::of_perforated(host.table(), page)?;
        let frames = (region.frame..region.frame + 512).map(octavo_types::FrameNumber::new);
        let bitmaps = host.os.memory().frames.hole_bitmaps();
        Some(frames.map(|frame| bitmaps.is_hole(frame)).collect())
    }

    /// Walks through the shadow entry of the host's table.
    fn walk_hole_of_host(&mut self, page: u64, stores: bool, continues_walk: bool) -> Option<Page> {
        let (number, addr) = (PageNumber::new(page), VirtAddr::new(page << 12));
        let host = self.host();
        host.holes.walks += 1;
        let walk = host.table().walk(number);
        let perforated = host.table().page_with_holes(number).unwrap();
        let mut places = Vec::new();
        if host.walk_caches.at(SHADOW, addr, 2).is_none() {
            if !continues_walk {
                let known = host.walk_caches.deepest_from(0, addr, 3);
                let known = known.map_or(host.levels + 1, |(level, ())| level);
                for step in walk.steps().iter().filter(|step| (3..known).contains(&step.level)) {
                    places.push(step.at);
                    host.walk_caches.fill(0, addr, step.level, ());
                }
            }
            places.push(perforated.hole_steps[0].at);
            host.walk_caches.fill(SHADOW, addr, 2, ());
        }
        places.push(perforated.hole_steps[1].at);
        host.walks += u64::from(!continues_walk);
        host.reads += places.len() as u64;
        for place in places {
            self.access_for_walk(place.raw() / self.line_bytes, false);
        }
        self.use_in_host(page, stores)
    }

    /// Uses a page whose entry has been read; `None` after a page fault.
    pub fn use_in_host(&mut self, page: u64, stores: bool) -> Option<Page> {
        let number = PageNumber::new(page);
        let host = self.host();
        if host.table().leaf(number).is_none_or(|leaf| stores && !leaf.rights.write) {
            host.faulted += 1;
            self.host_fault(page, stores);
            return None;
        }
        let hole = host.table().page_with_holes(number).filter(|perforated| perforated.is_hole);
        let walk = host.table().walk(number);
        let at =
            hole.map_or(walk.steps().last().unwrap().at, |perforated| perforated.hole_steps[1].at);
        self.mark_in_host(page, stores, at.raw() / self.line_bytes);
        Some(Page::of(self.host().table(), page))
    }

    /// Whether the host maps a guest-physical page by 2 MiB or more: a whole page, or a perforated page without a hole
    /// there.
    pub fn is_in_region(&self, page: u64) -> bool {
        let table = self.host.as_ref().unwrap().table();
        match table.page_with_holes(PageNumber::new(page)) {
            Some(perforated) => !perforated.is_hole,
            None => {
                table.leaf(PageNumber::new(page)).is_some_and(|leaf| leaf.size >= PageSize::HUGE)
            }
        }
    }

    /// Translates a physical address of the guest's bitmap.
    pub fn place_in_bitmap(&mut self, addr: u64) -> u64 {
        let page = addr >> 12;
        let known = self.host().holes.register.filter(|found| found.covers(page));
        let found = match known {
            Some(found) => {
                self.host().holes.register_hits += 1;
                found
            }
            None => {
                self.host().holes.register_misses += 1;
                let found = self.host_page(page, false);
                self.host().holes.register = Some(found);
                found
            }
        };
        found.frame_of(page) << 12 | addr & 4095
    }

    /// The machine address of an entry that has been read; without a look-up.
    pub fn known_place(&self, addr: u64) -> u64 {
        let table = &self.host.as_ref().unwrap().os.memory().process(VM).table;
        Page::of(table, addr >> 12).frame_of(addr >> 12) << 12 | addr & 4095
    }
}
