//! The example of docs/developing/policies.md: a whole policy, with its settings.

use octavo_os::Memory;
use octavo_os::frames::{Order, OutOfMemory};
use octavo_os::policy::{Fault, OsConfig, Policy, PolicySettings};
use octavo_types::{PageNumber, PageSize};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::machine::{Machine, Source, map, ops};
use super::others::{CONVENTIONAL, FIRST, FRAMES, mapped};

// The policy of the page begins here.
/// Settings of fault-around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FaultAroundConfig {
    /// Base pages that a fault maps at most, aligned to their number: a power of two up to 512.
    pub pages: u32,
}

impl Default for FaultAroundConfig {
    /// 64 KiB, as Linux's `fault_around_bytes` for files.
    fn default() -> Self {
        FaultAroundConfig { pages: 16 }
    }
}

impl PolicySettings for FaultAroundConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(FaultAround { pages: u64::from(self.pages) })
    }

    fn check(&self) -> Result<(), String> {
        match self.pages {
            pages @ 1..=512 if pages.is_power_of_two() => Ok(()),
            pages => Err(format!("pages = {pages}: give a power of two from 1 to 512")),
        }
    }
}

/// Base pages, several at a fault: those around the faulting page that its mapping has.
struct FaultAround {
    pages: u64,
}

impl FaultAround {
    fn map(memory: &mut Memory, fault: &Fault, page: PageNumber) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, page, PageSize::BASE, fault.vma.rights)
    }
}

impl Policy for FaultAround {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        Self::map(memory, fault, fault.page)?;
        let start = fault.page.raw() / self.pages * self.pages;
        let (from, to) = (start.max(fault.mapping.start), fault.mapping.end);
        let around = from..to.min(start + self.pages);
        for page in memory.untouched_in(fault.process, &around).into_iter().flatten() {
            // The fault is served: without a frame for its neighbours they wait for faults of their own.
            if Self::map(memory, fault, PageNumber::new(page)).is_err() {
                break;
            }
            memory.counters.bytes_mapped_untouched += PageSize::BASE.bytes();
        }
        Ok(())
    }
}
// The policy of the page ends here.

fn machine_of(pages: u32) -> Machine {
    Machine::new(FRAMES, Order::LINUX, &CONVENTIONAL, FaultAroundConfig { pages }.build())
}

#[test]
fn neighbours_inside_the_mapping_are_mapped_too() {
    let mut machine = machine_of(16);
    machine.event(FIRST, &map(1020, 30, Source::Anonymous));
    machine.touch(FIRST, 1021, true);
    machine.touch(FIRST, 1030, true);
    let expected: Vec<_> = (1020..1040).map(|page| (page, 1)).collect();
    assert_eq!(mapped(&machine), expected);
    let counters = &machine.os.memory().counters;
    assert_eq!((counters.faults, counters.bytes_mapped_untouched), (2, 18 * 4096));
}

#[test]
fn settings_have_their_names_and_their_check() {
    let mut config = OsConfig::new(FaultAroundConfig::default().into());
    config.set("pages", "64").unwrap();
    assert_eq!(config.policy, FaultAroundConfig { pages: 64 }.into());
    let sentence = config.set("pages", "48").unwrap_err().to_string();
    assert_eq!(sentence, "pages = 48: give a power of two from 1 to 512");
}

proptest! {
    #![proptest_config(octavo_oracle::cases(100))]

    #[test]
    fn frames_are_conserved(ops in ops(), log2 in 0u32..=9) {
        machine_of(1 << log2).play(&ops, 0)?;
    }
}

#[test]
fn page_shows_the_policy_as_it_is_tested() {
    let (_, from) = include_str!("developing.rs").split_once("begins here.\n").unwrap();
    let (code, _) = from.split_once("// The policy of the page ends").unwrap();
    let page = include_str!("../../../../../docs/developing/policies.md");
    assert!(page.contains(&format!("```rust\n{code}```")), "docs/developing/policies.md differs");
}
