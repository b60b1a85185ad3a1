//! The example of docs/developing/designs.md: a complete design, run against the one that it extends.

use octavo_machine::{AddressSpace, Counters, Design, Env, LineAccess, Lookups};

use octavo_hw::Asid;
use octavo_machine::designs::Conventional;
use octavo_oracle::strategies::stream;
use octavo_os::page_table::Format;
use octavo_os::policy::{BaseConfig, PolicySettings};
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, PageNumber};
use proptest::prelude::*;

use crate::common::{bounds, tiny};

// The design of the page begins here.
/// A register for each side in front of the TLBs: the page that it used last.
struct LastPage {
    tlbs: Conventional,
    /// Of fetches and of data.
    registers: [Option<Register>; 2],
    lookups: Lookups,
}

#[derive(Clone, Copy)]
struct Register {
    asid: Asid,
    page: PageNumber,
    frame: FrameNumber,
    /// Whether a store has used the page, so that it is writable and dirty.
    stored_to: bool,
}

impl LastPage {
    fn new(tlbs: Conventional) -> Self {
        LastPage { tlbs, registers: [None; 2], lookups: Lookups::default() }
    }
}

impl Design for LastPage {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        let side = usize::from(access.kind() != Access::Fetch);
        let stores = access.kind() == Access::Store;
        if let Some(last) = self.registers[side]
            && (last.asid, last.page) == (asid, page)
            && (last.stored_to || !stores)
        {
            self.lookups.hits += u64::from(access.lookups());
            return Some(last.frame);
        }
        // The repeats of the reference hit the register; the TLBs see the first one alone.
        let (first, repeats) = access.split();
        self.lookups.misses += u64::from(first.lookups());
        self.lookups.hits += u64::from(repeats.lookups());
        let frame = self.tlbs.translate(env, first)?;
        self.registers[side] = Some(Register { asid, page, frame, stored_to: stores });
        Some(frame)
    }

    fn invalidate(&mut self, of: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(of, pages);
        for register in &mut self.registers {
            if register.is_some_and(|last| last.asid == of.asid && pages.contains(&last.page.raw()))
            {
                *register = None;
            }
        }
    }

    fn flush(&mut self) {
        self.tlbs.flush();
        self.registers = [None; 2];
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        self.lookups.report("tlb.last", counters);
    }
}
// The design of the page ends here.

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// Every translation is checked against the page table, and the registers take their hits from the first
    /// level.
    #[test]
    fn last_page_register_takes_hits_from_the_tlbs(stream in stream(1..150)) {
        let config = tiny();
        let policy = || BaseConfig {}.build();
        let counted = bounds::play_checked(&config, &stream, vec![
            bounds::machine(&config, Format::default(), policy(), bounds::conventional(&config)),
            bounds::machine(&config, Format::default(), policy(), LastPage::new(bounds::conventional(&config))),
        ]);
        let accesses = |machine: usize, component| counted[machine].get(component, "accesses").unwrap();
        let first = |machine| accesses(machine, "tlb.l1i") + accesses(machine, "tlb.l1d");
        let hits = counted[1].get("tlb.last", "hits").unwrap();
        prop_assert_eq!(hits + first(1), first(0));
        prop_assert_eq!(accesses(1, "tlb.last"), first(0));
        prop_assert_eq!(counted[0].get("os", "faults"), counted[1].get("os", "faults"));
    }
}

#[test]
fn page_shows_the_design_as_it_is_tested() {
    let (_, from) = include_str!("developing.rs").split_once("begins here.\n").unwrap();
    let (code, _) = from.split_once("// The design of the page ends").unwrap();
    let page = include_str!("../../../../docs/developing/designs.md");
    assert!(page.contains(&format!("```rust\n{code}```")), "docs/developing/designs.md differs");
}
