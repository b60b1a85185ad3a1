//! A register for each side in front of the TLBs, which keeps the page used last. A hit takes the place of a
//! look-up of the first level; a store hits where the register was filled by a store.

use octavo_config::MachineConfig;
use octavo_hw::Asid;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, PageNumber};

use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use super::{Conventional, build};
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;

/// The design that remembers the last page.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[TranslationHardware::new("last_page", make)],
    &[NamedDesign { name: "last_page", hardware: "last_page", policy: "base", about: "the page used last", figure: "translation" }],
);

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    build::machine(config, setup, os, || {
        Ok(LastPage::new(Conventional::new(&config.tlb, setup.instructions)?))
    })
}

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

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
        for register in &mut self.registers {
            if register
                .is_some_and(|last| last.asid == space.asid && pages.contains(&last.page.raw()))
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
// The file of the page ends here.

use proptest::prelude::*;

use crate::designs::registry::policies;
use crate::designs::twins::{actions, configs, counted, machine, setup, tiny};

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// Every translation is checked against the page table, and the registers take their hits from the first
    /// level.
    #[test]
    fn last_page_register_takes_hits_from_the_tlbs(config in configs(&[]), actions in actions()) {
        let config = MachineConfig { memory: tiny(&[]).memory, ..config };
        let os = policies().parse(FAMILY.designs[0].policy).unwrap();
        let last_page = FAMILY.hardware[0].make(&config, &setup(&config), &os).unwrap();
        let machines = vec![machine("conventional", &config, "base"), last_page];
        let counted = counted(&config, machines, &actions);
        let accesses =
            |machine: usize, component| counted[machine].get(component, "accesses").unwrap();
        let first = |machine| accesses(machine, "tlb.l1i") + accesses(machine, "tlb.l1d");
        let hits = counted[1].get("tlb.last", "hits").unwrap();
        prop_assert_eq!(hits + first(1), first(0));
        prop_assert_eq!(accesses(1, "tlb.last"), first(0));
        prop_assert_eq!(counted[0].get("os", "faults"), counted[1].get("os", "faults"));
    }
}

#[test]
fn page_shows_the_file_as_it_is_tested() {
    let (file, _) = include_str!("last_page.rs").split_once("// The file of the page").unwrap();
    let page = include_str!("../../../../docs/developing/designs.md");
    assert!(page.contains(&format!("```rust\n{file}```")), "docs/developing/designs.md differs");
}
