//! Gap-Tolerant Sequential Mapping: translation, and reads of chunk bitmaps. In a guest only host pages have gaps.

use octavo_machine::Counters;
use octavo_machine::designs::GtsmSettings;
use octavo_oracle::{NaiveArray, NaiveReplacement};
use octavo_types::{ItemKind, PageSize};

use super::NaiveMachine;
use super::perforated::end_of_bitmaps;
use super::tlb::{Page, report};

/// The state and counters of a GTSM machine.
pub struct Gapped {
    /// Cached chunk bitmaps, by 2 MiB page.
    bitmaps: NaiveArray<u64, u64>,
    bitmap_hits: u64,
    bitmap_misses: u64,
    /// Without a host; with a host, see `HostHoles`.
    bitmap_reads: u64,
    hits: u64,
}

impl Gapped {
    pub fn new(config: &GtsmSettings) -> Self {
        let bitmaps = NaiveArray::new(1, config.bitmap_entries as usize, NaiveReplacement::Lru);
        Gapped { bitmaps, bitmap_hits: 0, bitmap_misses: 0, bitmap_reads: 0, hits: 0 }
    }

    pub fn report(&self, has_l2: bool, counters: &mut Counters) {
        report("walker.cache.bitmap", self.bitmap_hits, self.bitmap_misses, counters);
        counters.add("walker", "bitmap_references", self.bitmap_reads);
        if has_l2 {
            counters.add("tlb.l2.gapped", "hits", self.hits);
        }
    }

    pub fn invalidate(&mut self, start: u64, end: u64) {
        self.bitmaps.invalidate_if(|number, _| number * 512 < end && start < (number + 1) * 512);
    }
}

impl NaiveMachine {
    pub fn translate_gapped(&mut self, kind: ItemKind, page: u64) -> Page {
        let stores = kind == ItemKind::Store;
        let in_l1 = self.l1(kind).look_up(page);
        if let Some(found) = in_l1.filter(|found| self.permits(found, stores)) {
            return found;
        }
        let in_l2 = if in_l1.is_none() { self.look_up_l2(page) } else { None };
        let served = in_l2.map(|entry| match entry.has_gaps {
            true => {
                self.gapped.as_mut().unwrap().hits += 1;
                self.base_page_of_gapped(&entry, page)
            }
            false => entry,
        });
        let found = match served.filter(|found| self.permits(found, stores)) {
            Some(found) => found,
            None => self.walk_gapped(kind, page),
        };
        self.l1(kind).invalidate(page, page + 1);
        self.l1(kind).fill(page, found);
        found
    }

    fn walk_gapped(&mut self, kind: ItemKind, page: u64) -> Page {
        let entry = match self.host {
            Some(_) => {
                let entry = self.walk_page_and_range_tables(kind, page);
                self.cycles.walked();
                entry
            }
            None => {
                let found = self.walk(kind, page);
                Page::of_gapped(self.own_table(), page).unwrap_or(found)
            }
        };
        let found = match entry.has_gaps {
            true => self.base_page_of_gapped(&entry, page),
            false => entry,
        };
        if let Some(l2) = &mut self.l2 {
            l2.invalidate(page, page + 1);
            l2.fill(page, if l2.holds_perforated() { entry } else { found });
        }
        found
    }

    fn base_page_of_gapped(&mut self, whole: &Page, page: u64) -> Page {
        let gapped = self.gapped.as_mut().unwrap();
        let number = page / 512;
        let known = gapped.bitmaps.look_up(0, &number).copied();
        let bits = match known {
            Some(bits) => {
                gapped.bitmap_hits += 1;
                bits
            }
            None => {
                gapped.bitmap_misses += 1;
                let bits = self.read_bits_of_chunk(whole.frame);
                self.gapped.as_mut().unwrap().bitmaps.insert(0, number, bits);
                bits
            }
        };
        whole.part_of_chunk(page, bits)
    }

    /// Reads the bitmap of a chunk of machine memory; with a host, of host memory.
    pub fn read_bits_of_chunk(&mut self, chunk: u64) -> u64 {
        let os = self.host.as_ref().map_or(&self.os, |host| &host.os);
        let frames = &os.memory().frames;
        let bitmap = frames.chunk_bitmaps().of(octavo_types::FrameNumber::new(chunk));
        let bits = bitmap.unwrap().bits();
        // Eight bytes per 4 MiB chunk, in the last frames.
        let bitmaps = frames.shape().frames().div_ceil(1024 * 512);
        let start = (end_of_bitmaps(frames) - bitmaps) << 12;
        let at = start + chunk / 1024 * 8;
        self.access_for_walk(at / self.line_bytes, false);
        match &mut self.host {
            Some(host) => host.holes.bitmap_reads += 1,
            None => self.gapped.as_mut().unwrap().bitmap_reads += 1,
        }
        bits
    }
}

impl Page {
    /// A base page of a gapped page: its block is found by a count of the set bits.
    pub fn part_of_chunk(&self, page: u64, bits: u64) -> Page {
        let mut left = page % 512 / 16;
        let mut block = 0;
        loop {
            if bits >> block & 1 != 0 {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            block += 1;
        }
        let frame = self.frame + block * 16 + page % 16;
        Page { size: PageSize::BASE, first: page, frame, has_gaps: false, ..*self }
    }
}
