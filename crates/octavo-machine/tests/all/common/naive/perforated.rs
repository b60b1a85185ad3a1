//! Perforated pages after Figures 4 and 5 of Park et al. (ISCA 2020).

use octavo_machine::Counters;
use octavo_machine::designs::Variant;
use octavo_os::Os;
use octavo_os::frames::{Frames, Owner};
use octavo_types::{ItemKind, PageNumber, PageSize, VirtAddr};

use super::tlb::{Page, Tlb};
use super::{NaiveMachine, PROCESS};

/// The address space by which walk caches tag shadow nodes.
pub const SHADOW: u16 = 1;
/// log2 of the bytes of 32 base pages, which one bitmap word describes.
const WORD_LOG2: u8 = 17;

/// The counters of a machine with perforated pages.
pub struct Perforated {
    variant: Variant,
    pub bitmap_hits: u64,
    pub bitmap_misses: u64,
    hits: u64,
    filtered: u64,
    /// Bitmap lines read; in a guest, those of the guest's bitmap only.
    pub fetches: u64,
    pub hole_walks: u64,
    flushes: u64,
}

impl Perforated {
    pub fn new(variant: Variant) -> Self {
        Perforated {
            variant,
            bitmap_hits: 0,
            bitmap_misses: 0,
            hits: 0,
            filtered: 0,
            fetches: 0,
            hole_walks: 0,
            flushes: 0,
        }
    }

    pub fn report(&self, l2: &Tlb, counters: &mut Counters) {
        counters.add("tlb.l2.perforated", "hits", self.hits);
        counters.add("tlb.l2.perforated", "filtered", self.filtered);
        counters.add("walker", "hole_walks", self.hole_walks);
        counters.add("tlb.flushes", "made", self.flushes);
        let entries = l2.arrays.iter().flat_map(|array| array.entries.entries());
        let mut kinds = [0; 3];
        for (_, (log2, _), page) in entries {
            match (log2, page.filter) {
                (_, Some(_)) => kinds[0] += 1,
                (WORD_LOG2, _) => kinds[1] += 1,
                (12, _) => kinds[2] += 1,
                _ => {}
            }
        }
        let names = ["entries_perforated", "entries_bitmap", "entries_4k"];
        for (name, entries) in names.into_iter().zip(kinds) {
            counters.level("tlb.l2.content", name, entries);
        }
    }
}

/// The line with the bits of the 2 MiB around a frame: the bitmap has one bit per frame of memory, in order,
/// before [`end_of_bitmaps`].
pub fn line_of_holes(os: &Os, frame: u64) -> u64 {
    let frames = &os.memory().frames;
    let all = frames.shape().frames();
    ((end_of_bitmaps(frames) - all.div_ceil(8 * 4096)) << 12) + frame / 512 * 64
}

/// The end of local memory, if bitmaps of both kinds fit into it and no frame is faulty; else of all memory.
pub fn end_of_bitmaps(frames: &Frames) -> u64 {
    let all = frames.shape().frames();
    let both = all.div_ceil(8 * 4096) + all.div_ceil(1024 * 512);
    let local = frames.buddy().tiers().next().unwrap().end;
    if both <= local && frames.used_frames(Owner::Faulty) == 0 { local } else { all }
}

impl NaiveMachine {
    pub fn translate_perforated(&mut self, kind: ItemKind, page: u64) -> Page {
        let stores = kind == ItemKind::Store;
        let in_l1 = self.l1(kind).look_up(page);
        if let Some(found) = in_l1.filter(|found| self.permits(found, stores)) {
            return found;
        }
        let mut no_bits = false;
        let in_l2 = if in_l1.is_none() { self.look_up_l2(page) } else { None };
        let served = in_l2.and_then(|entry| {
            if entry.filter.is_none() {
                return Some(entry).filter(|entry| self.permits(entry, stores));
            }
            self.perforated().hits += 1;
            let is_hole = match self.known(page, &entry) {
                Some(is_hole) => is_hole,
                None if self.host.is_some() => {
                    no_bits = true;
                    return None;
                }
                None => self.fetch(page, &entry),
            };
            if is_hole {
                return self.walk_hole(kind, page, false);
            }
            Some(entry.part_of_region(page)).filter(|part| self.permits(part, stores))
        });
        let found = match served {
            Some(found) => found,
            None if self.host.is_some() => self.walk_perforated_nested(kind, page, no_bits),
            None => self.walk_perforated(kind, page),
        };
        self.l1(kind).invalidate(page, page + 1);
        self.l1(kind).fill(page, found);
        found
    }

    pub fn perforated(&mut self) -> &mut Perforated {
        self.perforated.as_mut().unwrap()
    }

    /// Looks a hole up in the filter, then in the bitmap words of the second level, then in memory.
    fn is_hole(&mut self, page: u64, entry: &Page) -> bool {
        self.known(page, entry).unwrap_or_else(|| self.fetch(page, entry))
    }

    /// Looks a hole up in the filter, then in the bitmap words of the second level; `None` if neither decides.
    pub fn known(&mut self, page: u64, entry: &Page) -> Option<bool> {
        if self.perforated().variant == Variant::Filtered && !entry.may_be_hole(page) {
            self.perforated().filtered += 1;
            return Some(false);
        }
        if let Some(l2) = &mut self.l2 {
            self.cycles.tlb_access(true);
            let array = l2.arrays.iter_mut().find(|array| array.sizes.contains(&PageSize::BASE));
            let array = array.unwrap();
            let (set, key) = ((page / 32 % array.sets) as usize, (WORD_LOG2, page / 32));
            if let Some(word) = array.entries.look_up(set, &key).copied() {
                self.perforated().bitmap_hits += 1;
                return Some(word.bits >> (page % 32) & 1 != 0);
            }
            self.perforated().bitmap_misses += 1;
        }
        None
    }

    /// Reads the bitmap in memory, and fills its bits into the second level.
    fn fetch(&mut self, page: u64, entry: &Page) -> bool {
        self.perforated().fetches += 1;
        let number = PageNumber::new(page);
        let region =
            self.os.memory().process(PROCESS).table.page_with_holes(number).unwrap().region;
        let frames = &self.os.memory().frames;
        let line = line_of_holes(&self.os, region.frame.raw()) / self.line_bytes;
        let holes: Vec<bool> =
            (0..512).map(|at| frames.hole_bitmaps().is_hole(region.frame.plus(at))).collect();
        self.access_for_walk(line, false);
        self.fill_bits(page, entry, &holes);
        holes[(page % 512) as usize]
    }

    /// Fills hole bits of a perforated page into the second level.
    pub fn fill_bits(&mut self, page: u64, entry: &Page, holes: &[bool]) {
        let words = match self.perforated().variant {
            Variant::AllAtOnce => 0..16,
            _ => page % 512 / 32..page % 512 / 32 + 1,
        };
        for word in words {
            let bits = (0..32).map(|at| u32::from(holes[(word * 32 + at) as usize]) << at).sum();
            let first = page / 512 * 16 + word;
            let size = PageSize::from_log2(WORD_LOG2).unwrap();
            let new = Page { size, first, count: 1, filter: None, bits, ..*entry };
            if let Some(l2) = &mut self.l2 {
                let mut arrays = l2.arrays.iter_mut();
                let array = arrays.find(|array| array.sizes.contains(&PageSize::BASE)).unwrap();
                let set = (first % array.sets) as usize;
                array.entries.insert(set, (WORD_LOG2, first), new);
            }
        }
    }

    /// Walks from the root until the page permits the access.
    fn walk_perforated(&mut self, kind: ItemKind, page: u64) -> Page {
        let stores = kind == ItemKind::Store;
        let number = PageNumber::new(page);
        loop {
            let (walk, last_line) = self.read_walk(page);
            let is_usable = walk.leaf.is_some_and(|leaf| !stores || leaf.rights.write);
            let Some(mut entry) = Page::of_perforated(self.own_table(), page) else {
                if is_usable {
                    self.mark(page, stores, last_line);
                    self.cycles.walked();
                    let found = self.page(page);
                    if let Some(l2) = &mut self.l2 {
                        l2.invalidate(page, page + 1);
                        l2.fill(page, found);
                    }
                    return found;
                }
                self.fault(kind, page);
                continue;
            };
            self.cycles.walked();
            self.fill_perforated(page, entry);
            if self.is_hole(page, &entry) {
                match self.walk_hole(kind, page, true) {
                    Some(found) => return found,
                    None => continue,
                }
            }
            if stores && !entry.write {
                self.fault(kind, page);
                continue;
            }
            self.mark(page, stores, last_line);
            let now = self.os.memory().process(PROCESS).table.used(number).unwrap();
            if now.1 != entry.dirty {
                entry.dirty = true;
                self.fill_perforated(page, entry);
            }
            let found = entry.part_of_region(page);
            if let Some(l2) = self.l2.as_mut().filter(|l2| !l2.holds_perforated()) {
                l2.fill(page, found);
            }
            return found;
        }
    }

    fn fill_perforated(&mut self, page: u64, entry: Page) {
        if let Some(l2) = self.l2.as_mut().filter(|l2| l2.holds_perforated()) {
            l2.fill(page, entry);
        }
    }

    pub fn mark(&mut self, page: u64, stores: bool, line: u64) {
        let table = &mut self.os.memory_mut().process_mut(PROCESS).table;
        if table.mark(PageNumber::new(page), stores) {
            self.marked += 1;
            self.access_for_walk(line, true);
        }
    }

    /// Walks through the shadow entry; `None` after a page fault.
    fn walk_hole(&mut self, kind: ItemKind, page: u64, continues_walk: bool) -> Option<Page> {
        if self.host.is_some() {
            return self.walk_hole_nested(kind, page, continues_walk);
        }
        let addr = VirtAddr::new(page << 12);
        self.perforated().hole_walks += 1;
        let walk = self.os.memory().process(PROCESS).table.walk(PageNumber::new(page));
        let perforated =
            self.os.memory().process(PROCESS).table.page_with_holes(PageNumber::new(page)).unwrap();
        let mut lines = Vec::new();
        if !continues_walk {
            self.walks += 1;
            self.cycles.start_walk();
        }
        if self.walk_caches.at(SHADOW, addr, 2).is_none() {
            if !continues_walk {
                let known = self.walk_caches.deepest_from(0, addr, 3);
                let known = known.map_or(self.levels + 1, |(level, ())| level);
                for step in walk.steps().iter().filter(|step| (3..known).contains(&step.level)) {
                    lines.push(step.at.raw() / self.line_bytes);
                    self.walk_caches.fill(0, addr, step.level, ());
                }
            }
            lines.push(perforated.hole_steps[0].at.raw() / self.line_bytes);
            self.walk_caches.fill(SHADOW, addr, 2, ());
        }
        lines.push(perforated.hole_steps[1].at.raw() / self.line_bytes);
        for line in &lines {
            self.access_for_walk(*line, false);
            self.reads += 1;
        }
        let stores = kind == ItemKind::Store;
        let is_usable = walk.leaf.is_some_and(|leaf| !stores || leaf.rights.write);
        if !perforated.is_hole || !is_usable {
            self.fault(kind, page);
            return None;
        }
        self.mark(page, stores, *lines.last().unwrap());
        let found = self.page(page);
        if let Some(l2) = &mut self.l2 {
            l2.fill(page, found);
        }
        Some(found)
    }

    /// An invalidation that covers a whole perforated page of the second level flushes all TLBs.
    pub fn flush_perforated(&mut self, start: u64, end: u64) {
        let (Some(perforated), Some(l2)) = (&mut self.perforated, &mut self.l2) else { return };
        let entries = l2.arrays.iter().flat_map(|array| array.entries.entries());
        let is_whole = |page: &Page| {
            let first = page.first_base_page();
            page.filter.is_some() && start <= first && first + 512 <= end
        };
        if entries.into_iter().any(|(_, _, page)| is_whole(&page)) {
            perforated.flushes += 1;
            l2.invalidate(0, 1 << 52);
            self.l1i.invalidate(0, 1 << 52);
            if let Some(l1d) = &mut self.l1d {
                l1d.invalidate(0, 1 << 52);
            }
        }
    }
}
