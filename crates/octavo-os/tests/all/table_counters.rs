//! Counters of tables in a design's own format.

use std::sync::Arc;

use octavo_os::Memory;
use octavo_os::frames::{Frames, MemoryShape, Order, OutOfMemory};
use octavo_os::page_table::{DesignCounter, Format, HardwareTable};
use octavo_types::{PageNumber, PageSize};

use crate::small::{RW, page};

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

#[test]
fn events_of_ended_tables_are_kept_and_levels_end_with_them() {
    let frames = Frames::new(MemoryShape::new(64, Order::BASE).unwrap());
    let make = Arc::new(|_, _: &mut Frames| Box::<Counted>::default() as Box<dyn HardwareTable>);
    let mut memory = Memory::new(frames, &[], Format::default()).with_tables(Some(make));
    let values = |memory: &Memory| {
        memory.design_counters().iter().map(|counter| counter.value).collect::<Vec<_>>()
    };
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
