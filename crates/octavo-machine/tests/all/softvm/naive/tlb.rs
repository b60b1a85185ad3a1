//! A software-refilled TLB, and the physical caches behind it.

use octavo_machine::designs::softvm::SoftTlbConfig;
use octavo_oracle::{NaiveArray, NaiveFound, NaiveReplacement};
use octavo_os::Invalidation;
use octavo_types::Access;

use super::handler::PHYSICAL;
use super::{Naive, Page, Piece};

/// An entry: page, frame, store permission.
type Entry = (Page, u64, bool);

pub struct Tlb {
    programs: NaiveArray<u64, Entry>,
    tables: NaiveArray<u64, ()>,
}

impl Tlb {
    pub fn new(config: SoftTlbConfig) -> Self {
        let ways = [config.entries - config.reserved, config.reserved].map(|ways| ways as usize);
        Tlb {
            programs: NaiveArray::new(1, ways[0], NaiveReplacement::random(0)),
            tables: NaiveArray::new(1, ways[1], NaiveReplacement::random(0)),
        }
    }

    pub fn invalidate(&mut self, stale: &Invalidation) {
        self.programs.invalidate_if(|_, ((process, page), ..)| {
            *process == stale.process && stale.pages.contains(page)
        });
    }
}

impl Naive {
    fn tlb(&mut self) -> &mut Tlb {
        self.tlb.as_mut().expect("the design has one")
    }

    /// Looks the page of an address up; `counts` is whether the look-up is counted.
    pub fn look_up(&mut self, side: usize, global: u64, counts: bool) -> Option<(u64, bool)> {
        let found = self.tlb().programs.look_up(0, &(global >> 12)).copied();
        let component = ["tlb.l1i", "tlb.l1d"][side];
        let counter = if found.is_some() { "hits" } else { "misses" };
        self.count(component, counter, u64::from(counts));
        found.map(|(_, frame, may_store)| (frame, may_store))
    }

    /// Whether the TLB holds the page of an address; does not count as a use.
    pub fn has(&mut self, global: u64) -> bool {
        self.tlb().programs.probe(0, &(global >> 12)).is_some()
    }

    /// Runs the TLB's miss handler.
    pub fn refill(&mut self, component: &'static str, side: usize, global: u64, entry: Entry) {
        self.count(component, if side == 0 { "fetch_misses" } else { "data_misses" }, 1);
        let user_entry = self.user_entry(global);
        let is_mapped = self.tlb().tables.look_up(0, &(user_entry >> 12)).is_some();
        self.count("tlb.tables", if is_mapped { "hits" } else { "misses" }, 1);
        self.fetch_routine(component, 0);
        if !is_mapped {
            self.tlb().tables.insert(0, user_entry >> 12, ());
            self.count(component, "data_misses", 1);
            self.fetch_routine(component, 1);
            self.load_physical(component, self.root_entry(global));
        }
        self.load_physical(component, user_entry);
        self.tlb().programs.insert(0, global >> 12, entry);
    }

    /// Counts the cache outcome of an access that missed the TLB.
    pub fn count_table1_row(&mut self, side: usize, missed: [bool; 2]) {
        let row = match missed {
            [_, true] => "memory_tlb_miss",
            [true, _] => "l2_hit_tlb_miss",
            _ => "l1_hit_tlb_miss",
        };
        self.count(["softvm.table1.i", "softvm.table1.d"][side], row, 1);
    }

    /// Accesses the physical caches.
    pub fn access_physical(&mut self, kind: Access, addr: u64, piece: Piece) {
        let side = usize::from(kind != Access::Fetch);
        let stores = kind == Access::Store;
        let page = (self.process, addr >> 12);
        self.load_register(self.place(self.process, addr).0);
        let global = self.global(self.process, addr);
        let held = self.look_up(side, global, piece.is_first);
        let frame = match held {
            Some((frame, may_store)) if may_store || !stores => frame,
            _ => {
                let (frame, may_store) = self.resolve(kind, addr);
                self.refill("softvm", side, global, (page, frame, may_store));
                self.count_lines_written();
                frame
            }
        };
        let line = PHYSICAL | frame << 12 | (addr % 4096);
        let mut missed = [false; 2];
        if piece.is_first || line.is_multiple_of(self.lines[0]) || !self.holds(side, 0, line) {
            let (found, _) = self.sides[side].access(line, stores.then_some(1), (frame, true));
            missed = [found != NaiveFound::L1, found == NaiveFound::Memory];
            self.count_lines_written();
        }
        if held.is_none() {
            self.count_table1_row(side, missed);
        }
    }

    fn count_lines_written(&mut self) {
        let written = self.sides[1].written.len();
        self.count("softvm.write_back", "lines", (written - self.handled_write_backs) as u64);
        self.handled_write_backs = written;
    }
}
