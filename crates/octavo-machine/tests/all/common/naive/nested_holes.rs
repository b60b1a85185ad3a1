//! Perforated pages in a naive machine's guest: composition of its page table with the host's.

use octavo_types::{FrameNumber, ItemKind, PageNumber, PageSize, VirtAddr};

use super::perforated::{SHADOW, line_of_holes};
use super::tlb::Page;
use super::{NaiveMachine, PROCESS};

impl NaiveMachine {
    /// Walks from the root of the guest's table until the page permits the access. With `no_bits`, the look-up of the
    /// bitmap in the second level has already missed.
    pub fn walk_perforated_nested(&mut self, kind: ItemKind, page: u64, mut no_bits: bool) -> Page {
        loop {
            let entry = self.walk_page_and_range_tables(kind, page);
            self.cycles.walked();
            if entry.filter.is_none() {
                if let Some(l2) = &mut self.l2 {
                    l2.take(page);
                    l2.fill(page, entry);
                }
                return entry;
            }
            let has_room = self.l2.as_ref().is_some_and(|l2| l2.holds_perforated());
            let is_kept = has_room && (!entry.half || self.host().halves);
            if is_kept {
                self.l2.as_mut().unwrap().fill(page, entry);
            }
            let known = if no_bits { None } else { self.known(page, &entry) };
            no_bits = false;
            let invepts = self.invepts();
            let is_hole = known.unwrap_or_else(|| self.fetch_both(page, &entry));
            if self.invepts() > invepts {
                continue;
            }
            if is_hole {
                match self.walk_hole_nested(kind, page, true) {
                    Some(found) => return found,
                    None => continue,
                }
            }
            let Some(found) = self.use_both(kind, page) else { continue };
            if let Some(l2) = &mut self.l2 {
                if !is_kept {
                    l2.fill(page, found);
                } else if found.dirty && !entry.dirty {
                    l2.fill(page, Page { dirty: true, ..entry });
                }
            }
            return found;
        }
    }

    /// Walks the guest's table, handling page faults, and the host's. Returns a page that permits the access or a
    /// composite page.
    pub fn walk_page_and_range_tables(&mut self, kind: ItemKind, page: u64) -> Page {
        let stores = kind == ItemKind::Store;
        loop {
            let (walk, line) = self.read_walk(page);
            let perforated = Page::of_perforated(self.own_table(), page);
            if let Some(own) = perforated.filter(|own| own.may_be_hole(page)) {
                // The frame of a hole may belong to another owner: the host is inspected without page faults.
                let frame = own.frame_of(page);
                let in_tlb = self.in_nested_tlb(frame, stores);
                let host_page = in_tlb.or_else(|| self.walk_host(frame, stores, false));
                return match host_page.filter(|found| found.size >= PageSize::HUGE) {
                    Some(host_page) => own.through(host_page, page),
                    None => Page { half: true, ..own },
                };
            }
            if walk.leaf.is_none_or(|leaf| stores && !leaf.rights.write) {
                self.fault(kind, page);
                continue;
            }
            self.mark(page, stores, line);
            let perforated = Page::of_perforated(self.own_table(), page);
            let own = perforated.unwrap_or_else(|| self.own_page(page));
            let frame = own.frame_of(page);
            let host_page = if own.size >= PageSize::HUGE {
                let in_tlb = self.in_nested_tlb(frame, stores);
                in_tlb.or_else(|| self.walk_host(frame, stores, true)).unwrap()
            } else {
                self.host_page(frame, stores)
            };
            if own.size > host_page.size {
                self.host().splintered += 1;
                if self.host().halves {
                    return Page { half: true, ..own };
                }
            }
            return own.through(host_page, page);
        }
    }

    /// Reads the bitmap lines of guest and host, and returns whether either has a hole at the page.
    fn fetch_both(&mut self, page: u64, entry: &Page) -> bool {
        let own = Page::of_perforated(self.own_table(), page);
        if let Some(own) = own {
            let at = self.place_in_bitmap(line_of_holes(&self.os, own.frame));
            self.perforated().fetches += 1;
            self.access_for_walk(at / self.line_bytes, false);
        }
        let frame = own.unwrap_or_else(|| self.own_page(page)).frame_of(page);
        if self.holes_of_host(frame).is_some() {
            self.read_line_of_host(frame);
        }
        let mut holes = self.holes_of_host(frame).unwrap_or(vec![false; 512]);
        for (at, is_hole) in holes.iter_mut().enumerate() {
            let own_frame = own.map(|own| FrameNumber::new(own.frame + at as u64));
            let bitmaps = self.os.memory().frames.hole_bitmaps();
            *is_hole |= own_frame.is_some_and(|frame| bitmaps.is_hole(frame));
        }
        let table = self.host().table();
        if table.page_with_holes(PageNumber::new(frame)).is_some()
            || table.leaf(PageNumber::new(frame)).is_some()
        {
            self.fill_bits(page, entry, &holes);
        }
        holes[(page % 512) as usize]
    }

    /// Uses a base page that is not a hole, after a walk; `None` after a page fault or a change of the host.
    fn use_both(&mut self, kind: ItemKind, page: u64) -> Option<Page> {
        let stores = kind == ItemKind::Store;
        let number = PageNumber::new(page);
        let invepts = self.invepts();
        let table = &self.os.memory().process(PROCESS).table;
        if table.page_with_holes(number).is_some_and(|perforated| perforated.is_hole) {
            return None;
        }
        let walk = table.walk(number);
        if walk.leaf.is_none_or(|leaf| stores && !leaf.rights.write) {
            self.fault(kind, page);
            return None;
        }
        let at = self.known_place(walk.steps().last().unwrap().at.raw());
        self.mark(page, stores, at / self.line_bytes);
        let own = self.own_page(page);
        let frame = own.frame_of(page);
        let is_in_region = self.is_in_region(frame);
        let host_page = match is_in_region {
            true => self.use_in_host(frame, stores),
            false => Some(self.host_page(frame, stores)),
        };
        if self.invepts() > invepts {
            return None;
        }
        let host_page = host_page?;
        let own = Page { size: PageSize::BASE, first: page, frame, ..own };
        if !is_in_region && host_page.size < PageSize::HUGE {
            self.host().splintered += 1;
            if self.host().halves {
                return Some(Page { half: true, ..own });
            }
        }
        Some(own.through(host_page, page))
    }

    /// Walks to a hole of the guest, the host, or both; `None` after a page fault.
    pub fn walk_hole_nested(
        &mut self,
        kind: ItemKind,
        page: u64,
        continues_walk: bool,
    ) -> Option<Page> {
        let stores = kind == ItemKind::Store;
        let (number, addr) = (PageNumber::new(page), VirtAddr::new(page << 12));
        self.perforated().hole_walks += 1;
        if !continues_walk {
            self.read_walk(page);
        }
        let walk = self.os.memory().process(PROCESS).table.walk(number);
        let mut entry = walk.steps().last().unwrap().at;
        let own = Page::of_perforated(self.own_table(), page);
        if own.is_some_and(|own| own.may_be_hole(page)) {
            let perforated = self.own_table().page_with_holes(number).unwrap();
            let is_known = self.walk_caches.at(SHADOW, addr, 2).is_some();
            if !is_known {
                self.walk_caches.fill(SHADOW, addr, 2, ());
            }
            for step in &perforated.hole_steps[usize::from(is_known)..] {
                let at = self.place_of_entry(step.at.raw());
                self.access_for_walk(at / self.line_bytes, false);
                self.reads += 1;
            }
            if perforated.is_hole {
                entry = perforated.hole_steps[1].at;
            }
        }
        if walk.leaf.is_none_or(|leaf| stores && !leaf.rights.write) {
            self.fault(kind, page);
            return None;
        }
        let at = self.known_place(entry.raw());
        self.mark(page, stores, at / self.line_bytes);
        let own = self.own_page(page);
        let frame = own.frame_of(page);
        let own = Page { size: PageSize::BASE, first: page, frame, ..own };
        let found = own.through(self.host_page(frame, stores), page);
        if let Some(l2) = &mut self.l2 {
            l2.fill(page, found);
        }
        Some(found)
    }
}
