//! A page table that cannot grow for lack of memory stops the machine, also if background work ran out of memory.

use std::sync::Arc;

use octavo_machine::{Counters, WalkPlan, WalkRequest, Walker};
use octavo_oracle::strategies::stream;
use octavo_os::frames::{Frames, Order, OutOfMemory};
use octavo_os::page_table::HardwareTable;
use octavo_os::policy::{BaseConfig, PolicySettings};
use octavo_types::{PageNumber, PageSize};
use proptest::prelude::*;

use crate::common::{bounds, config, play, tiny};

/// A table that holds no page and reports exhaustion from its second `map` on, as if background work had exhausted it.
#[derive(Default)]
struct EmptyTable {
    pages: u64,
}

impl HardwareTable for EmptyTable {
    fn map(&mut self, _page: PageNumber, _size: PageSize, _frames: &mut Frames) {
        self.pages += 1;
    }

    fn unmap(&mut self, _page: PageNumber, _size: PageSize, _frames: &mut Frames) {}

    fn frames(&self) -> u64 {
        0
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        let error = OutOfMemory { order: Order::BASE, free_frames: 0, largest_free: None };
        (self.pages > 1).then_some(error)
    }

    fn free(self: Box<Self>, _frames: &mut Frames) {}
}

/// A walker that finds no page.
struct LostWalker;

impl Walker for LostWalker {
    fn plan(&mut self, _: &WalkRequest<'_>, _: &mut WalkPlan) {}

    fn report(&self, _: &str, _: &mut Counters) {}
}

proptest! {
    #![proptest_config(octavo_oracle::cases(8))]

    #[test]
    fn exhausted_tables_stop_the_machine(stream in stream(1..20)) {
        let machine_config = tiny();
        let machine = bounds::machine_with_tables(
            &machine_config,
            Arc::new(|_, _| Box::new(EmptyTable::default())),
            || Box::new(LostWalker),
            BaseConfig {}.build(),
            bounds::conventional(&machine_config),
        );
        let mut sim = octavo_machine::Sim::new(&config(machine_config, &[])).unwrap().with_machines(vec![machine]);
        play(&mut sim, &stream);
        let machine = &sim.machines()[0];
        let walks = machine.counters().get("walker", "walks").unwrap();
        prop_assert_eq!(machine.stopped().is_some(), walks > 0);
    }
}
