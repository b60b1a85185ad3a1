//! Accessed and dirty vectors of tailored pages; each entry records the bits it knows.

use octavo_machine::Counters;
use octavo_types::{ItemKind, PageNumber};

use super::{L1D, NaiveMachine, PROCESS};

/// The vector length, and counters.
#[derive(Default)]
pub struct Vectors {
    bits: u64,
    stores: u64,
    marked: u64,
    reads: u64,
}

impl Vectors {
    pub fn new(bits: u8) -> Self {
        Vectors { bits: u64::from(bits), ..Vectors::default() }
    }

    pub fn report(&self, counters: &mut Counters) {
        if self.bits > 0 {
            counters.add("walker.vectors", "stores", self.stores);
            counters.add("walker.vectors", "marked", self.marked);
            counters.add("walker.vectors", "references", self.reads);
        }
    }
}

impl NaiveMachine {
    /// Stores the vector bits of a part of a page after a hit or fill of the first level, unless the entry knows that
    /// they are set.
    pub fn mark_part(&mut self, kind: ItemKind, page: u64, has_walked: bool) {
        if self.vectors.bits == 0 {
            return;
        }
        let stores = kind == ItemKind::Store;
        let (own, bits) = (self.own_page(page).whole_size, self.vectors.bits);
        let entry = self.l1(kind).entry(page);
        let bytes = entry.as_ref().map_or(own, |entry| entry.whole_size).bytes();
        let level_bytes = if bytes < 2 << 20 {
            4096
        } else if bytes < 1 << 30 {
            2 << 20
        } else {
            1 << 30
        };
        if bytes == level_bytes {
            return;
        }
        let parts = bits.min(bytes / level_bytes);
        let part = (page * 4096 % bytes) / (bytes / parts);
        let needed = if stores { 0x1_0001u32 } else { 1 } << part;
        if let Some(entry) = entry {
            if entry.known & needed == needed {
                return;
            }
            entry.known |= needed;
        }
        if !has_walked {
            // Off the critical path, and not counted as a walk of the program.
            let (walks, reads, cycles) = (self.walks, self.reads, self.cycles.all);
            self.read_walk(page);
            self.vectors.reads += self.reads - reads;
            (self.walks, self.reads, self.cycles.all) = (walks, reads, cycles);
        }
        let table = &mut self.os.memory_mut().process_mut(PROCESS).table;
        let Some((at, has_changed)) = table.mark_part(PageNumber::new(page), stores) else {
            return;
        };
        self.vectors.stores += 1;
        self.vectors.marked += u64::from(has_changed);
        self.caches.access(L1D, at.raw() / self.line_bytes, true);
    }
}
