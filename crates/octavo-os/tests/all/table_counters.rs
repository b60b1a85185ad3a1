//! Counters of tables in a design's own format.

use std::sync::Arc;

use octavo_os::frames::{Frames, MemoryShape, Order, OutOfMemory};
use octavo_os::page_table::{DesignCounter, Format, HardwareTable};
use octavo_os::policy::BasePages;
use octavo_os::{Memory, Os};
use octavo_types::{Access, AddrRange, Event, PageNumber, PageSize, VirtAddr};

use crate::small::{RW, page, vma};

/// A table that counts its current pages, and all pages that it ever had.
#[derive(Default)]
struct Counted {
    now: u64,
    ever: u64,
}

impl HardwareTable for Counted {
    fn map(&mut self, _: PageNumber, _: PageSize, _: &mut Frames) {
        (self.now, self.ever) = (self.now + 1, self.ever + 1);
    }

    fn unmap(&mut self, _: PageNumber, _: PageSize, _: &mut Frames) {
        self.now -= 1;
    }

    fn frames(&self) -> u64 {
        0
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        None
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let counter = |name, value, is_level| DesignCounter { name, value, is_level };
        vec![counter("now", self.now, true), counter("ever", self.ever, false)]
    }

    fn free(self: Box<Self>, _: &mut Frames) {}
}

/// A memory whose page tables are [`Counted`].
fn counted_memory() -> Memory {
    let frames = Frames::new(MemoryShape::new(64, Order::BASE).unwrap());
    let make = Arc::new(|_, _: &mut Frames| Box::<Counted>::default() as Box<dyn HardwareTable>);
    Memory::new(frames, &[], Format::default()).with_tables(Some(make))
}

fn values(memory: &Memory) -> Vec<u64> {
    memory.design_counters().iter().map(|counter| counter.value).collect()
}

#[test]
fn events_of_ended_tables_are_kept_and_levels_end_with_them() {
    let mut memory = counted_memory();
    let processes = [memory.spawn().unwrap(), memory.spawn().unwrap()];
    for (process, pages) in processes.into_iter().zip([2, 3]) {
        for number in 0..pages {
            memory.place_new(process, page(number), PageSize::BASE, RW).unwrap();
        }
    }
    assert_eq!(values(&memory), [5, 5]);
    memory.end(processes[0]);
    assert_eq!(values(&memory), [3, 5]);
    memory.end(processes[1]);
    assert_eq!(values(&memory), [0, 5]);
}

#[test]
fn pages_present_at_the_start_are_in_levels_but_are_no_events() {
    let mut os = Os::new(counted_memory(), Box::new(BasePages));
    let processes = [os.spawn().unwrap(), os.spawn().unwrap()];
    for (process, pages) in processes.into_iter().zip([3, 4]) {
        vma(&mut os, process, 100, 8);
        let range = AddrRange::new(VirtAddr::new(100 << 12), pages << 12);
        os.event(process, &Event::Present { range, known: true, first: true }).unwrap();
        os.fault(process, page(107), Access::Store).unwrap();
    }
    assert_eq!(values(os.memory()), [9, 2]);
    os.end(processes[0]);
    assert_eq!(values(os.memory()), [5, 2]);
}
