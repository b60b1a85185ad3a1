//! A software-refilled TLB like MIPS's: the baseline of software-managed translation (section 5.1: "64
//! entries, a random replacement policy, and 8 slots reserved for root PTEs").
//!
//! The TLB holds program pages for instructions and data, and in its reserved slots pages of the page table. The
//! handler of a miss loads the page-table entry by a virtual address; if no slot maps that address, a second routine
//! loads the root's entry first.

use super::settings::SoftTlbConfig;
use octavo_hw::{Geometry, GlobalAddr, Replacement, SetArray, VirtualCaches};
use octavo_os::{ProcessId, vmas};
use octavo_types::{FrameNumber, Instructions, PageSize};

use super::events::Events;
use super::handler::Handler;
use super::pages::PageOf;
use crate::counters::{Counters, Lookups};

/// An entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    process: u16,
    page: u64,
    /// The base frame.
    pub frame: FrameNumber,
    /// Whether stores are allowed.
    pub may_store: bool,
}

impl Entry {
    /// The entry of a page in `frame`.
    pub fn new(page: PageOf, frame: FrameNumber, may_store: bool) -> Self {
        Entry { process: page.process.0, page: page.page.raw(), frame, may_store }
    }

    fn is_of(&self, process: ProcessId, pages: &vmas::Pages) -> bool {
        self.process == process.0 && pages.contains(&self.page)
    }
}

/// The TLB.
pub struct SoftTlb {
    programs: SetArray<Entry>,
    tables: SetArray<Entry>,
    /// The page looked up last on each side, if it is still present.
    recent: [Option<(u64, Entry)>; 2],
    lookups: [Lookups; 2],
    table_lookups: Lookups,
}

impl SoftTlb {
    /// An empty TLB.
    pub fn new(config: SoftTlbConfig, instructions: Instructions) -> Self {
        let array = |entries: u64| {
            let geometry = Geometry::of_entries(entries, entries).expect("entries were checked");
            SetArray::new(geometry, Replacement::Random { seed: 0 }, instructions)
        };
        SoftTlb {
            programs: array(config.entries - config.reserved),
            tables: array(config.reserved),
            recent: [None; 2],
            lookups: [Lookups::default(); 2],
            table_lookups: Lookups::default(),
        }
    }

    /// Looks the page of an address up `times` times on a side.
    #[inline(always)]
    pub fn look_up(&mut self, side: usize, addr: GlobalAddr, times: u32) -> Option<Entry> {
        let page = addr.raw() >> PageSize::BASE.log2();
        let found = match self.recent[side] {
            Some((recent, entry)) if recent == page => Some(entry),
            _ => self.search(side, page),
        };
        let times = u64::from(times);
        match found {
            Some(_) => self.lookups[side].hits += times,
            None if times > 0 => {
                self.lookups[side].misses += 1;
                self.lookups[side].hits += times - 1;
            }
            None => {}
        }
        found
    }

    fn search(&mut self, side: usize, page: u64) -> Option<Entry> {
        let found = self.programs.look_up(0, page).copied();
        self.recent[side] = found.map(|entry| (page, entry));
        found
    }

    /// Whether it holds the page of an address; counts nothing.
    pub fn has(&self, addr: GlobalAddr) -> bool {
        self.programs.probe(0, addr.raw() >> PageSize::BASE.log2()).is_some()
    }

    /// Runs the miss handler: loads the entry of a page through the caches and fills it.
    pub fn refill(
        &mut self,
        (caches, handler, events): (&mut VirtualCaches, &Handler, &mut Events),
        side: usize,
        addr: GlobalAddr,
        entry: Entry,
    ) {
        *if side == 0 { &mut events.fetch_misses } else { &mut events.data_misses } += 1;
        let table_page = handler.user_entry(addr).raw() >> PageSize::BASE.log2();
        let is_mapped = self.tables.look_up(0, table_page).is_some();
        self.table_lookups.hits += u64::from(is_mapped);
        self.table_lookups.misses += u64::from(!is_mapped);
        if !is_mapped {
            self.tables.insert_missed(0, table_page, entry);
        }
        handler.refill(caches, events, addr, is_mapped);
        self.programs.insert(0, addr.raw() >> PageSize::BASE.log2(), entry);
        self.recent = [None; 2];
    }

    /// Drops the entries of a range of pages of a process.
    pub fn invalidate(&mut self, process: ProcessId, pages: &vmas::Pages) {
        self.programs.invalidate_if(|_, entry| entry.is_of(process, pages));
        self.recent = [None; 2];
    }

    /// Reports program look-ups by side, and handler look-ups.
    pub fn report(&self, counters: &mut Counters) {
        self.lookups[0].report("tlb.l1i", counters);
        self.lookups[1].report("tlb.l1d", counters);
        self.table_lookups.report("tlb.tables", counters);
    }

    /// Look-ups of a side.
    pub fn lookups(&self, side: usize) -> Lookups {
        self.lookups[side]
    }
}
