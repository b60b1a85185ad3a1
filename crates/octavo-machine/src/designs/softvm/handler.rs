//! The miss handler: instructions fetched through the simulated caches, and loads of page-table entries that
//! pass through them (sections 4.2 and 5.2).
//!
//! The handler runs at cacheable physical addresses, so that its own misses raise no exception. Each run fetches all of
//! its instructions in order and then loads. There are two routines, the first for program misses and the second for
//! misses of the first (step 2 of Figure 7); like PowerPC's exception vectors they are 256 bytes apart, or further if
//! they are longer. The lines that they load are recorded with a frame that nothing else uses.

use octavo_hw::{GlobalAddr, L1Lookup, L2Lookup, VirtualCaches};
use octavo_types::{FrameNumber, PhysAddr};

use super::DATA;
use super::address_map;
use super::events::Events;

/// Bytes of an instruction.
const INSTRUCTION_BYTES: u64 = 4;
/// Physical address of the first routine, above all frames.
const VECTOR: u64 = 1 << 42 | 0x1000;
/// Minimum distance between the routines, in bytes.
const VECTOR_BYTES: u64 = 0x100;

/// The frame recorded for lines of page tables and routines, which are never stored to.
const UNUSED_FRAME: FrameNumber = FrameNumber::new(0);

const FETCHES: usize = 0;

/// The first-level lines of a routine, each with the number of its instructions after the first in that line.
type Routine = Box<[(GlobalAddr, u32)]>;

/// The handler's routines.
pub struct Handler {
    /// For program misses.
    first: Routine,
    /// For misses of the first routine.
    second: Routine,
    /// log2 of the bytes per page-table entry.
    page_log2: u32,
}

impl Handler {
    /// Routines of `instructions` each, fetched by lines of 2^`line_log2` bytes. Each 2^`page_log2` bytes
    /// have an entry in the global page table.
    pub fn new(instructions: u32, line_log2: u32, page_log2: u32) -> Self {
        let bytes = u64::from(instructions) * INSTRUCTION_BYTES;
        let apart = bytes.next_multiple_of(VECTOR_BYTES);
        let routine = |at| lines(at, instructions, line_log2);
        Handler { first: routine(VECTOR), second: routine(VECTOR + apart), page_log2 }
    }

    /// The global address of the UPTE of an address.
    pub fn user_entry(&self, addr: GlobalAddr) -> GlobalAddr {
        address_map::user_entry(addr, self.page_log2)
    }

    fn root_entry(&self, addr: GlobalAddr) -> GlobalAddr {
        address_map::physical(address_map::root_entry(addr, self.page_log2))
    }

    /// Translates an address: loads the UPTE by its virtual address. If it misses all caches, the second
    /// routine loads the root's entry and through it the UPTE, and the first routine goes on (Figure 7).
    pub fn translate(&self, caches: &mut VirtualCaches, events: &mut Events, addr: GlobalAddr) {
        fetch(&self.first, caches, events);
        let entry = self.user_entry(addr);
        if load(caches, events, entry) == L2Lookup::Miss {
            events.data_misses += 1;
            fetch(&self.second, caches, events);
            load_physical(caches, events, self.root_entry(addr));
            events.entry_loads += 1;
            fill(caches, DATA, entry);
        }
    }

    /// Translates by loading entries at physical addresses.
    pub fn load_all(
        &self,
        caches: &mut VirtualCaches,
        events: &mut Events,
        entries: impl IntoIterator<Item = PhysAddr>,
    ) {
        fetch(&self.first, caches, events);
        for entry in entries {
            load_physical(caches, events, address_map::physical(entry));
        }
    }

    /// Translates in hardware, without instruction fetches: the root's entry is read from memory and not
    /// cached (section 3.4).
    pub fn search(&self, caches: &mut VirtualCaches, events: &mut Events, addr: GlobalAddr) {
        let entry = self.user_entry(addr);
        if load(caches, events, entry) == L2Lookup::Miss {
            events.data_misses += 1;
            events.handler_l2d_misses += 1;
            events.entry_loads += 1;
            fill(caches, DATA, entry);
        }
    }

    /// Refills a TLB: loads the UPTE. If the TLB does not map the UPTE's page (`is_mapped`), the second
    /// routine loads the root's entry first. Entries missing from all caches come from memory without further
    /// exceptions.
    pub fn refill(
        &self,
        caches: &mut VirtualCaches,
        events: &mut Events,
        addr: GlobalAddr,
        is_mapped: bool,
    ) {
        fetch(&self.first, caches, events);
        if !is_mapped {
            events.data_misses += 1;
            fetch(&self.second, caches, events);
            load_physical(caches, events, self.root_entry(addr));
        }
        load_physical(caches, events, self.user_entry(addr));
    }
}

/// A handler load, served by memory if it misses all caches.
fn load_physical(caches: &mut VirtualCaches, events: &mut Events, addr: GlobalAddr) {
    if load(caches, events, addr) == L2Lookup::Miss {
        events.handler_l2d_misses += 1;
        fill(caches, DATA, addr);
    }
}

fn lines(at: u64, instructions: u32, line_log2: u32) -> Routine {
    let mut lines: Vec<(GlobalAddr, u32)> = Vec::new();
    for number in 0..u64::from(instructions) {
        let line = (at + number * INSTRUCTION_BYTES) >> line_log2 << line_log2;
        let line = address_map::physical(PhysAddr::new(line));
        match lines.last_mut() {
            Some((before, repeats)) if *before == line => *repeats += 1,
            _ => lines.push((line, 0)),
        }
    }
    lines.into()
}

fn fetch(routine: &Routine, caches: &mut VirtualCaches, events: &mut Events) {
    for (line, repeats) in routine {
        if caches.look_up_l1(FETCHES, *line, false, *repeats) == L1Lookup::Miss {
            events.handler_l1i_misses += 1;
            if caches.look_up_l2(FETCHES, *line, false, *repeats) == L2Lookup::Miss {
                events.handler_l2i_misses += 1;
                fill(caches, FETCHES, *line);
                caches.repeat(FETCHES, *repeats);
            }
        }
    }
}

/// A handler load; a second-level miss is left to the caller.
fn load(caches: &mut VirtualCaches, events: &mut Events, addr: GlobalAddr) -> L2Lookup {
    match caches.look_up_l1(DATA, addr, false, 0) {
        L1Lookup::Hit(frame) => L2Lookup::Hit(frame),
        L1Lookup::Denied => unreachable!("it loads"),
        L1Lookup::Miss => {
            events.handler_l1d_misses += 1;
            caches.look_up_l2(DATA, addr, false, 0)
        }
    }
}

/// Fills a line that the handler missed.
fn fill(caches: &mut VirtualCaches, side: usize, addr: GlobalAddr) {
    caches.load_and_map(side, addr, (UNUSED_FRAME, false), false, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routine_of_ten_instructions_spans_three_lines() {
        let handler = Handler::new(10, 4, 12);
        let at = |addr: u64| address_map::physical(PhysAddr::new(1 << 42 | addr));
        assert_eq!(*handler.first, [(at(0x1000), 3), (at(0x1010), 3), (at(0x1020), 1)]);
        assert_eq!(handler.second[0], (at(0x1100), 3));
        assert_eq!(Handler::new(65, 6, 12).second[0].0, at(0x1200));
    }
}
