//! The slow, obvious twin: TLBs are lists, and the range of an entry is found in the page tables, page by page. The tests compare every counter of both, and check laws of the design.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - An array is searched for 4 KiB pages first, then for larger ones.
//! - A page that a store finds clean is removed, with its block, from the level that held it and from the second level
//!   before it is filled again.

use octavo_config::{MachineConfig, PageSizes, TlbsHold};
use octavo_oracle::strategies::Step;
use octavo_os::page_table::{Format, PageTable};
use octavo_os::vmas::Pages;
use octavo_types::{
    AddrRange, Event, FrameNumber, ItemKind, PageNumber, PageSize, Protection, VirtAddr,
};
use proptest::prelude::*;

use super::ContiguousPteSettings;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::build::{self, Tables};
use crate::designs::registry::policies;
use crate::designs::tlb_twin::{Held, Levels};
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences,
    guest_configs, machine, map, references, run, setup, tiny,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;

/// The unit of one core.
struct Naive {
    tlbs: Levels,
    block: u64,
    /// Whether TLBs hold guest halves of splintered translations.
    holds_halves: bool,
}

impl Naive {
    fn new(config: &MachineConfig, block: u64) -> Self {
        let hosts = config.host.iter();
        Naive {
            tlbs: Levels::new(&config.tlb, block),
            block,
            holds_halves: hosts.map(|host| host.tlbs_hold).any(|hold| hold == TlbsHold::Halves),
        }
    }

    /// The page or block of a table that holds a mapped base page: its first page, and the frames of all its pages.
    fn covered(&self, table: &PageTable, page: PageNumber) -> (u64, Vec<FrameNumber>) {
        let leaf = table.leaf(page).unwrap();
        let pages = match table.is_folded(page) {
            true => {
                assert_eq!(leaf.size, PageSize::BASE);
                self.block
            }
            false => leaf.size.bytes() >> 12,
        };
        let first = page.raw() / pages * pages;
        let frames: Vec<_> = (first..first + pages)
            .map(PageNumber::new)
            .map(|other| {
                let part = table.leaf(other).unwrap();
                assert_eq!((part.size, part.rights), (leaf.size, leaf.rights));
                part.frame_of(other)
            })
            .collect();
        assert!(frames[0].raw().is_multiple_of(pages), "a block is aligned in memory");
        assert!(frames.windows(2).all(|two| two[0].plus(1) == two[1]), "a block is contiguous");
        (first, frames)
    }

    /// Walks to a page. Returns the entry that a TLB may hold for it.
    fn walked(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        is_clean: bool,
    ) -> Option<Held> {
        let walked = self.walk(env, page, access, is_clean)?;
        let covered: Vec<_> =
            env.tables(page).map(|(table, page)| self.covered(table, page)).collect();
        let counts: Vec<u64> = covered.iter().map(|(_, frames)| frames.len() as u64).collect();
        let is_half = self.holds_halves && counts.len() == 2 && counts[0] > counts[1];
        let pages = if is_half { counts[0] } else { *counts.iter().min().unwrap() };
        let first = page.raw() / pages * pages;
        let frame = walked.frame_of(page);
        if !is_half {
            // The page number in the last table, and its distance from the first page there.
            let (_, last_page) = env.tables(page).last().unwrap();
            let (start, frames) = covered.last().unwrap();
            assert_eq!(frame, frames[(last_page.raw() - start) as usize]);
        }
        let (is_writable, is_dirty) = (walked.entry.is_writable(), walked.entry.is_dirty());
        let frame = frame.raw() - (page.raw() - first);
        let (asid, anchored) = (env.asid(), None);
        Some(Held { asid, first, pages, anchored, frame, is_writable, is_dirty })
    }

    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        before: Option<Held>,
    ) -> Option<Held> {
        let held =
            self.walked(env, page, access, before.is_some_and(|before| before.is_writable))?;
        if let Some(second) = &mut self.tlbs.second {
            if before.is_some() {
                second.drop_page(held.asid, page.raw());
            }
            if !second.is_victim {
                second.fill(page.raw(), held, 1);
            }
        }
        Some(held)
    }
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        let (side, lookups) = (access.side(), u64::from(access.lookups()));
        let stores = access.is_store();
        let held = match self.tlbs.first[side].look_up(asid, page.raw(), (stores, lookups)) {
            Some((held, true)) => held,
            Some((before, false)) => {
                let held = self.walk_and_fill(env, page, access, Some(before))?;
                self.tlbs.first[side].drop_page(asid, page.raw());
                self.tlbs.fill_first(side, page.raw(), held, lookups);
                held
            }
            None => {
                let found = self.tlbs.second.as_mut().and_then(|second| {
                    let found = second.look_up(asid, page.raw(), (stores, 1));
                    env.charge_l2_lookup(second.latency_cycles, found.is_some());
                    if second.is_victim && found.is_some_and(|(_, serves)| serves) {
                        second.drop_page(asid, page.raw());
                    }
                    found
                });
                let held = match found {
                    Some((held, true)) => held,
                    other => {
                        self.walk_and_fill(env, page, access, other.map(|(before, _)| before))?
                    }
                };
                self.tlbs.fill_first(side, page.raw(), held, lookups);
                held
            }
        };
        Some(FrameNumber::new(held.frame_of(page.raw())))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.drop_if(|held| held.overlaps(space.asid, pages));
    }

    fn flush(&mut self) {
        self.tlbs.drop_if(|_| true);
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = policies().parse(policy).unwrap();
    let block = config.designs.get::<ContiguousPteSettings>().entries;
    let mut config = config.clone();
    if let Some(tlb) = config.host.as_mut().and_then(|host| host.tlb.as_mut()) {
        let size = PageSize::from_log2(12 + block.ilog2() as u8).unwrap();
        // The nested TLB holds pages of a block's size, too.
        tlb.arrays.values_mut().for_each(|array| {
            if let PageSizes::List(sizes) = &mut array.page_sizes
                && sizes.contains(&PageSize::BASE)
                && !sizes.contains(&size)
            {
                sizes.push(size);
            }
        });
    }
    let format = Format { block_log2: block.ilog2() as u8, ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    let made = build::machine_with_tables(&config, &setup(&config), tables, &os, |_| {
        Ok(Naive::new(&config, block))
    });
    made.unwrap()
}

fn with_entries(config: &MachineConfig, entries: u64) -> MachineConfig {
    twins::with(config, ContiguousPteSettings { entries })
}

/// Plays actions on the design and its twin, and compares every counter. Returns those of the design.
fn compare_one(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    twins::compare(
        config,
        [machine("contiguous_pte", config, policy), naive(config, policy)],
        actions,
    )
}

/// As [`compare_one`], with blocks of several sizes; a host of base pages gets runs instead.
fn compare(config: &MachineConfig, actions: &[(usize, Action)]) -> Result<(), TestCaseError> {
    for (entries, policy) in [(16, "mthp"), (4, "mthp:largest=64KiB"), (64, "thp"), (16, "base")] {
        let mut config = with_entries(config, entries);
        if let Some(host) = config.host.as_mut().filter(|host| host.policy == "base") {
            host.policy = "mthp:largest=128KiB".to_owned();
        }
        compare_one(&config, policy, actions)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn design_equals_twin(config in configs(&[]), actions in actions()) {
        compare(&config, &actions)?;
    }

    #[test]
    fn design_equals_twin_in_a_guest(configs in guest_configs(), actions in actions()) {
        for config in &configs {
            compare(config, &actions)?;
        }
    }

    #[test]
    fn design_with_blocks_of_one_entry_is_the_conventional_one(
        config in configs(&["contiguous_pte.entries=1"]),
        guests in guest_configs(),
        actions in actions(),
    ) {
        for config in [config, with_entries(&guests[0], 1)] {
            for policy in ["base", "mthp"] {
                let hardware = ["conventional", "contiguous_pte"];
                let machines = hardware.map(|hardware| machine(hardware, &config, policy));
                let counters = counted(&config, machines.into(), &actions);
                prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
                prop_assert_eq!(differences(&counters[1], &counters[0]), Vec::new());
            }
        }
    }

    /// Without runs nothing is contiguous, and the operating system does the same with and without hints.
    #[test]
    fn base_pages_have_no_hint(config in configs(&[]), actions in actions()) {
        let machines = ["conventional", "contiguous_pte"].map(|hardware| machine(hardware, &config, "base"));
        let counters = counted(&config, machines.into(), &actions);
        prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
        prop_assert_eq!(counters[1].get("os", "folds"), Some(0));
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
            let mut config = tiny(&[settings, &[spaces, "core.count=2"]].concat());
            config.host.iter_mut().for_each(|host| host.policy = "mthp".to_owned());
            let mut actions = all_events();
            // A page of a block is unmapped.
            let range = AddrRange::new(VirtAddr::new(0x10_0800_0000), 1 << 12);
            actions.push((0, Action::Change(Event::Unmap { range })));
            let counters = compare_one(&config, "mthp:largest=64KiB", &actions).unwrap();
            assert!(counters.get("os", "unfolds") > Some(0), "{spaces}");
            assert!(counters.get("os", "folded_bytes") > Some(0), "{spaces}");
            assert!(counters.get("os", "copy_on_write_faults") > Some(0));
            assert!(counters.get("walker", "walks_dirty") > Some(0));
        }
    }
}

/// The start of the pages of the tests below, and their number.
const FIRST: u64 = 0x1000_0000;
const PAGES: u64 = 64;

fn range(first: u64, pages: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(first), pages << 12)
}

/// Walks of a pass over [`PAGES`] pages from an address on, whose frames come in runs of 64 KiB, and the number of
/// blocks that `change` unfolded before it.
fn pass(hardware: &str, settings: &[&str], start: u64, change: &[Event]) -> [u64; 2] {
    let config = tiny(&[&["tlb.l2.main.entries=96", "tlb.l2.main.ways=12"], settings].concat());
    let loads =
        |start: u64| references(ItemKind::Load, (0..PAGES).map(move |page| start + (page << 12)));
    let mut steps = vec![map(FIRST, PAGES)];
    steps.extend(loads(FIRST));
    // The TLBs drop the pages.
    for bits in [1, 3] {
        let (range, protection) = (range(FIRST, PAGES), Protection::from_bits(bits));
        steps.push(Step::Event(Event::Protect { range, protection }));
    }
    steps.extend(change.iter().cloned().map(Step::Event));
    let make = || machine(hardware, &config, "mthp:largest=64KiB");
    let last = counted_last(&config, make, &[run(steps.clone()), run(loads(start).collect())]);
    let before = counted(&config, vec![make()], &[(0, run(steps))]).remove(0);
    [last.get("walker", "walks").unwrap(), before.get("os", "unfolds").unwrap_or(0)]
}

#[test]
fn one_walk_fills_a_block() {
    let read_only = Protection::from_bits(1);
    let protect =
        |first, pages| Event::Protect { range: range(first, pages), protection: read_only };
    for settings in [&[][..], &["host.policy=thp", "host.memory.bytes=4GiB"]] {
        let blocks = |start, change: &[Event]| pass("contiguous_pte", settings, start, change);
        assert_eq!(pass("conventional", settings, FIRST, &[]), [PAGES, 0]);
        assert_eq!(blocks(FIRST, &[]), [PAGES / 16, 0]);
        // A read-only page unfolds its own block alone.
        assert_eq!(blocks(FIRST, &[protect(FIRST + (20 << 12), 1)]), [PAGES / 16 - 1 + 16, 1]);
        assert_eq!(blocks(FIRST, &[protect(FIRST + (16 << 12), 16)]), [PAGES / 16, 0]);
        // Moved by a whole block, the pages keep their blocks; moved by one page more, they have none.
        let (from, to) = (range(FIRST, PAGES), |first| range(first, PAGES));
        let (whole, shifted) = (FIRST + (128 << 12), FIRST + (129 << 12));
        assert_eq!(blocks(whole, &[Event::Remap { from, to: to(whole) }]), [PAGES / 16, 0]);
        assert_eq!(blocks(shifted, &[Event::Remap { from, to: to(shifted) }]), [PAGES, 0]);
    }
    // A host of base pages backs each page of a block by a page of its own.
    let base_host = ["host.policy=base", "host.memory.bytes=4GiB"];
    assert_eq!(pass("contiguous_pte", &base_host, FIRST, &[]), [PAGES, 0]);
}

#[test]
fn invalid_settings_are_rejected() {
    let advice = "give a power of two from 1 to 64";
    let invalid = ["entries=0", "entries=3", "entries=128"].map(|setting| (setting, advice));
    twins::assert_rejected("contiguous_pte", &invalid);
}
