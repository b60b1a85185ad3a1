//! The translators: handlers, the state machine of SPUR, and page tables.

use octavo_machine::designs::softvm::TableKind;
use octavo_oracle::NaiveFound;
use octavo_types::PageNumber;

use super::{Design, Naive, Page};

/// Page tables and handlers lie above all segments.
const TABLE: u64 = 1 << 62;
pub const PHYSICAL: u64 = 1 << 61;
const ROOT_TABLES: u64 = 1 << 42 | 0x1_0000;
const VECTORS: [u64; 2] = [1 << 42 | 0x1000, 1 << 42 | 0x1100];

impl Naive {
    /// The address of the 4-byte entry of a unit of protection.
    pub fn user_entry(&self, global: u64) -> u64 {
        TABLE + global / self.protection_bytes() * 4
    }

    /// The address of the root entry for the 4 KiB of entries that hold an address's entry.
    pub fn root_entry(&self, global: u64) -> u64 {
        PHYSICAL + ROOT_TABLES + global / self.protection_bytes() / 1024 * 4
    }

    /// Counts a run of the translator, if the design has one that runs at cache misses.
    pub fn run(&mut self, component: &'static str, counter: &'static str) {
        let has_translator = matches!(self.design, Design::Software | Design::Spur);
        self.count(component, counter, u64::from(has_translator));
    }

    /// Figure 7, or another table.
    pub fn translate(&mut self, component: &'static str, global: u64, page: Page) {
        match self.design {
            Design::Free | Design::MipsVirtual | Design::MipsPhysical => return,
            Design::Spur => {
                self.search(component, global);
                return;
            }
            Design::Software => self.fetch_routine(component, 0),
        }
        match self.softvm.kernel.table {
            TableKind::TwoTier => {}
            TableKind::Hierarchical => {
                let table = &self.os.memory().process(page.0).table;
                let walk = table.walk(PageNumber::new(page.1));
                for step in walk.steps() {
                    self.load_physical(component, PHYSICAL + step.at.raw());
                }
                return;
            }
            TableKind::Guarded => {
                let table = &self.os.memory().process(page.0).table;
                let size = table.leaf(PageNumber::new(page.1)).unwrap().size;
                for addr in self.guarded.loads(global >> 12, size) {
                    self.load_physical(component, PHYSICAL + addr);
                }
                return;
            }
            TableKind::Inverted => {
                self.search_chain(component, global, page);
                return;
            }
        }
        let entry = self.user_entry(global);
        let is_in_l2 = self.holds(1, 1, entry);
        if !self.holds(1, 0, entry) {
            self.count(component, "handler_l1d_misses", 1);
            if !is_in_l2 {
                self.count(component, "data_misses", 1);
                self.fetch_routine(component, 1);
                self.load_physical(component, self.root_entry(global));
                self.count(component, "entry_loads", 1);
            }
        }
        self.sides[1].access(entry, None, (0, false));
    }

    /// SPUR: searches the caches for the entry; on a miss, reads the root entry from memory and fills the entry.
    fn search(&mut self, component: &'static str, global: u64) {
        let (found, _) = self.sides[1].access(self.user_entry(global), None, (0, false));
        self.count(component, "handler_l1d_misses", u64::from(found != NaiveFound::L1));
        let is_missing = u64::from(found == NaiveFound::Memory);
        for counter in ["data_misses", "handler_l2d_misses", "entry_loads"] {
            self.count(component, counter, is_missing);
        }
    }

    pub fn load_physical(&mut self, component: &'static str, addr: u64) {
        let (found, _) = self.sides[1].access(addr, None, (0, false));
        self.count(component, "handler_l1d_misses", u64::from(found != NaiveFound::L1));
        self.count(component, "handler_l2d_misses", u64::from(found == NaiveFound::Memory));
    }

    /// Searches a chain of the inverted table: `inverted` lists all pages with their frames, newest first, and the
    /// entries of equal hash form a chain.
    fn search_chain(&mut self, component: &'static str, global: u64, page: Page) {
        let frame = self.frame(page.0, page.1);
        let hash = |page: u64| ((page % 65536) ^ (page / 65536)) % self.anchors;
        let page_hash = hash(global >> 12);
        let mut loads = vec![(1 << 43) + page_hash * 4];
        let mut found = false;
        for (held, held_frame) in &self.inverted {
            if hash(*held) == page_hash && !found {
                loads.push((1 << 44) + held_frame * 16);
                found = *held == global >> 12 && *held_frame == frame;
            }
        }
        for addr in loads {
            self.load_physical(component, PHYSICAL + addr);
        }
        if !found {
            self.inverted.retain(|(_, held_frame)| *held_frame != frame);
            self.inverted.insert(0, (global >> 12, frame));
        }
    }

    pub fn fetch_routine(&mut self, component: &'static str, routine: usize) {
        for number in 0..u64::from(self.softvm.kernel.handler_instructions) {
            let addr = PHYSICAL + VECTORS[routine] + 4 * number;
            let line = addr / self.lines[0] * self.lines[0];
            let (found, _) = self.sides[0].access(line, None, (0, false));
            self.count(component, "handler_l1i_misses", u64::from(found != NaiveFound::L1));
            self.count(component, "handler_l2i_misses", u64::from(found == NaiveFound::Memory));
        }
    }
}
