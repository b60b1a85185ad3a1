//! The slow, obvious twin: TLBs are lists, and the length of an anchor is counted in the page tables, page by page. The tests compare every counter of both, and check laws of the design.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - A page that a store finds clean is removed from the level that held it and from the second level before it is
//!   filled again.
//! - A look-up that finds an anchor that is too short does not use it.
//! - If a walk to the anchor changes the host's table, the page is resolved again.

use octavo_config::MachineConfig;
use octavo_hw::Asid;
use octavo_oracle::strategies::Step;
use octavo_os::page_table::{Format, PageTable};
use octavo_os::vmas::Pages;
use octavo_types::{AddrRange, Event, FrameNumber, ItemKind, PageNumber, Protection, VirtAddr};
use proptest::prelude::*;

use super::AnchorSettings;
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
use crate::tlb::Translation;

/// The entry of a page.
fn held(asid: Asid, page: u64, translation: &Translation) -> Held {
    let pages = translation.size.bytes() >> 12;
    Held {
        asid,
        first: page / pages * pages,
        pages,
        anchored: None,
        frame: translation.entry.frame().raw(),
        is_writable: translation.entry.is_writable(),
        is_dirty: translation.entry.is_dirty(),
    }
}

/// The unit of one core.
struct Naive {
    tlbs: Levels,
    lookup_cycles: u32,
    /// Look-ups of anchors that hit and that missed.
    lookups: [u64; 2],
    /// Anchors filled, their pages, and the entries read for them.
    fills: [u64; 3],
}

impl Naive {
    fn new(config: &MachineConfig) -> Self {
        Naive {
            tlbs: Levels::new(&config.tlb, 1),
            lookup_cycles: config.designs.get::<AnchorSettings>().lookup_cycles as u32,
            lookups: [0; 2],
            fills: [0; 3],
        }
    }

    fn look_up_second(&mut self, env: &mut Env, page: u64, stores: bool) -> Option<(Held, bool)> {
        let (asid, distance) = (env.asid(), distance(env.table()));
        let second = self.tlbs.second.as_mut()?;
        let found = second.look_up(asid, page, (stores, 1));
        env.charge_l2_lookup(second.latency_cycles, found.is_some());
        if let Some((_, serves)) = found {
            if second.is_victim && serves {
                second.drop_page(asid, page);
            }
            return found;
        }
        if distance == 1 {
            return None;
        }
        let array = second.base_page_array();
        let anchor = array.find(asid, page, distance, false);
        if anchor.is_some() {
            array.hits += 1;
            second.misses -= 1;
        }
        env.extend_l2_lookup(self.lookup_cycles, anchor.is_some());
        self.lookups[usize::from(anchor.is_none())] += 1;
        anchor.map(|anchor| (anchor, anchor.is_writable || !stores))
    }

    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        before: Option<Held>,
    ) -> Option<Held> {
        let mut walked =
            self.walk(env, page, access, before.is_some_and(|before| before.is_writable))?;
        let (asid, distance) = (env.asid(), distance(env.table()));
        let mut anchor = None;
        if self.tlbs.second.is_some() && walked.size.bytes() >> 12 < distance {
            let first = PageNumber::new(page.raw() / distance * distance);
            let is_same_entry = match env.is_guest() {
                true => first == page,
                false => env.table().leaf(page).is_some_and(|leaf| leaf.page == first),
            };
            if !is_same_entry {
                let (read, has_changed) =
                    env.noting_changes(|env| self.walk_in_background(env, first));
                if env.stopped().is_some() {
                    return None;
                }
                self.fills[2] += read.unwrap_or(0);
                if has_changed {
                    walked = self.resolve(env, page, access)?;
                }
            }
            anchor = anchor_from(env, first, distance).filter(|anchor| anchor.covers(page.raw()));
        }
        let held = held(asid, page.raw(), &walked);
        if let Some(second) = &mut self.tlbs.second {
            if before.is_some() {
                second.drop_page(asid, page.raw());
            }
            if let Some(anchor) = anchor {
                self.fills[0] += 1;
                self.fills[1] += anchor.anchored.unwrap();
                second.base_page_array().insert(anchor);
            } else if !second.is_victim {
                second.fill(page.raw(), held, 1);
            }
        }
        Some(held)
    }
}

fn distance(table: &PageTable) -> u64 {
    1 << table.anchor_log2()
}

/// The number of pages of a block of `distance` pages, from `first` on, that are contiguous and have equal permissions;
/// 0 where no page of the table begins at `first`.
fn counted_from(table: &PageTable, first: PageNumber, distance: u64) -> u64 {
    let Some(own) = table.leaf(first).filter(|own| own.page == first) else { return 0 };
    let continues = |at: &u64| {
        let page = PageNumber::new(first.raw() + at);
        let leaf = table.leaf(page);
        leaf.is_some_and(|leaf| {
            leaf.frame_of(page).raw() == own.frame.raw() + at && leaf.rights == own.rights
        })
    };
    (0..distance).take_while(continues).count() as u64
}

/// The entry of the anchor of a block, if it covers a second page.
fn anchor_from(env: &Env, first: PageNumber, distance: u64) -> Option<Held> {
    let tables: Vec<_> = env.tables(first).collect();
    let own = tables[0].0.leaf(first)?;
    let mut covered = match own.page == first {
        true => counted_from(tables[0].0, first, distance),
        // Inside a larger page, no anchor is needed.
        false => (first.raw()..first.raw() + distance)
            .take_while(|page| tables[0].0.leaf(PageNumber::new(*page)) == Some(own))
            .count() as u64,
    };
    let (mut frame, mut is_writable) = (own.frame_of(first), own.rights.write);
    if env.is_guest() {
        let (host, guest_page) = tables[1];
        let backing = host.leaf(guest_page)?;
        let host_distance = self::distance(host);
        let block = PageNumber::new(guest_page.raw() / host_distance * host_distance);
        let in_page = (backing.size.bytes() >> 12) - (guest_page.raw() - backing.page.raw());
        let in_block =
            counted_from(host, block, host_distance).saturating_sub(guest_page.raw() - block.raw());
        covered = covered.min(if host_distance > 1 { in_page.max(in_block) } else { in_page });
        (frame, is_writable) = (backing.frame_of(guest_page), is_writable && backing.rights.write);
    }
    (covered > 1).then(|| Held {
        asid: env.asid(),
        first: first.raw(),
        pages: distance,
        anchored: Some(covered),
        frame: frame.raw(),
        is_writable,
        is_dirty: false,
    })
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
                let held = match self.look_up_second(env, page.raw(), stores) {
                    Some((held, true)) if held.is_page() => held,
                    Some((anchor, true)) => {
                        // The size and the bits are those of the page, the frame is that of the anchor.
                        let page_held = held(asid, page.raw(), &self.resolve(env, page, access)?);
                        let frame = anchor.frame_of(page.raw()) - (page.raw() - page_held.first);
                        Held { frame, ..page_held }
                    }
                    Some((before, false)) if before.is_page() => {
                        self.walk_and_fill(env, page, access, Some(before))?
                    }
                    _ => self.walk_and_fill(env, page, access, None)?,
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
        let [hits, misses] = self.lookups;
        for (name, value) in [("accesses", hits + misses), ("hits", hits), ("misses", misses)] {
            counters.add("tlb.anchors", name, value);
        }
        for (name, value) in
            ["fills", "filled_pages", "background_references"].into_iter().zip(self.fills)
        {
            counters.add("tlb.anchors", name, value);
        }
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = policies().parse(policy).unwrap();
    let anchors = config.designs.get::<AnchorSettings>().format();
    let format = Format { anchors: Some(anchors), ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    build::machine_with_tables(config, &setup(config), tables, &os, |_| Ok(Naive::new(config)))
        .unwrap()
}

fn with_distance(config: &MachineConfig, distance: u64) -> MachineConfig {
    let usual = AnchorSettings::default();
    twins::with(config, AnchorSettings { distance, choose_every_instructions: 1, ..usual })
}

/// Plays actions on the design and its twin, and compares every counter. Returns those of the design.
fn compare_one(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    twins::compare(config, [machine("anchor", config, policy), naive(config, policy)], actions)
}

/// As [`compare_one`], with distances below and above a huge page.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    for distance in [4, 32, 512, 2048] {
        compare_one(&with_distance(config, distance), policy, actions)?;
    }
    Ok(())
}

twins::equals_twin!(compare);

/// Counters of the design alone.
const OWN: [&str; 3] = ["anchors_written", "anchor_distance_changes", "anchor_distance"];

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// A process whose distance has not been chosen yet has no anchors either.
    #[test]
    fn design_with_distance_1_is_the_conventional_one(
        config in configs(&[]), guests in guest_configs(), actions in actions(), distance in 0u64..2,
    ) {
        for config in [config, guests[0].clone()] {
            let config = with_distance(&config, distance);
            for policy in ["base", "thp"] {
                let machines = ["conventional", "anchor"].map(|hardware| machine(hardware, &config, policy));
                let counters = counted(&config, machines.into(), &actions);
                prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
                let mut own = differences(&counters[1], &counters[0]);
                own.retain(|(component, name, ..)| *component != "tlb.anchors" && !OWN.contains(name));
                prop_assert_eq!(own, Vec::new());
                prop_assert_eq!(counters[1].get("tlb.anchors", "accesses"), Some(0));
                prop_assert_eq!(counters[1].get("os", "anchors_written"), Some(0));
            }
        }
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
            let config = tiny(&[settings, &[spaces, "core.count=2"]].concat());
            let mut actions = all_events();
            let range = AddrRange::new(VirtAddr::new(0x10_0800_0000 + (17 << 12)), 1 << 12);
            actions.push((0, Action::Change(Event::Unmap { range })));
            let counters = compare_one(&with_distance(&config, 16), "base", &actions).unwrap();
            for (component, name) in [
                ("tlb.anchors", "hits"),
                ("tlb.anchors", "misses"),
                ("tlb.anchors", "fills"),
                ("tlb.anchors", "background_references"),
                ("os", "anchors_written"),
                ("os", "copy_on_write_faults"),
            ] {
                assert!(counters.get(component, name) > Some(0), "{spaces}: {component}/{name}");
            }
        }
    }
}

/// The first address of the tests below, at a multiple of every distance.
const FIRST: u64 = 0x1000_0000;

fn loads(first_page: u64, pages: u64) -> Vec<Step> {
    references(ItemKind::Load, (first_page..first_page + pages).map(|page| FIRST + (page << 12)))
        .collect()
}

/// The counters of loads of these pages, after `before` in the same process. Eager paging makes mappings contiguous.
fn after(hardware: &str, settings: &[&str], before: Vec<Step>, pages: Pages) -> Counters {
    let large = ["tlb.l2.main.entries=96", "tlb.l2.main.ways=12"];
    let config = tiny(&[&large, settings].concat());
    let loads = loads(pages.start, pages.end - pages.start);
    // The page of the code is in the TLBs.
    let elsewhere = 0x20_0000_0000;
    let begin = [
        vec![map(elsewhere, 1)],
        references(ItemKind::Load, [elsewhere].into_iter()).collect(),
        before,
    ]
    .concat();
    counted_last(&config, || machine(hardware, &config, "eager"), &[run(begin), run(loads)])
}

/// Second-level misses of the loads of [`after`].
fn misses(hardware: &str, settings: &[&str], before: Vec<Step>, pages: Pages) -> u64 {
    after(hardware, settings, before, pages).get("tlb.l2", "misses").unwrap()
}

const IN_GUEST: [&str; 2] = ["host.policy=eager", "host.memory.bytes=4GiB"];

#[test]
fn contiguous_aligned_pages_miss_once_a_distance() {
    for host in [&[][..], &IN_GUEST] {
        for (distance, expected) in [(1, 64), (2, 32), (16, 4), (64, 1), (1024, 1)] {
            let distance = format!("anchor.distance={distance}");
            let settings = [host, &[&distance[..]]].concat();
            assert_eq!(
                misses("anchor", &settings, vec![map(FIRST, 64)], 0..64),
                expected,
                "{settings:?}"
            );
        }
        assert_eq!(misses("conventional", host, vec![map(FIRST, 64)], 0..64), 64);
    }
}

#[test]
fn run_that_begins_inside_a_block_begins_with_single_pages() {
    for host in [&[][..], &IN_GUEST] {
        let settings = [host, &["anchor.distance=32"]].concat();
        let mapped = || vec![map(FIRST + (16 << 12), 64)];
        // 16 pages before the first anchor, and the anchors of 32 and of 16 pages.
        assert_eq!(misses("anchor", &settings, mapped(), 16..80), 16 + 2);
        let counters = after("anchor", &settings, mapped(), 64..80);
        assert_eq!(counters.get("tlb.anchors", "filled_pages"), Some(16));
    }
}

/// An entry covers no more pages than the host has contiguously.
#[test]
fn host_of_base_pages_limits_an_anchor() {
    let settings = |host_distance: &'static str| {
        [&IN_GUEST[1..], &["host.policy=base", host_distance]].concat()
    };
    // The first pass makes the host map the pages, one after the other.
    let before =
        || [vec![map(FIRST, 64)], loads(0, 64), vec![Step::Event(protect(0, 64, 1))]].concat();
    let alone = misses("anchor", &settings("anchor.distance=1"), before(), 0..64);
    let with = misses("anchor", &settings("anchor.distance=16"), before(), 0..64);
    assert!(alone == 64 && with < 16, "{alone}, {with}");
}

fn protect(page: u64, pages: u64, rights: u64) -> Event {
    let range = AddrRange::new(VirtAddr::new(FIRST + (page << 12)), pages << 12);
    Event::Protect { range, protection: Protection::from_bits(rights) }
}

#[test]
fn changed_pages_leave_the_anchor_before_them() {
    let range = AddrRange::new(VirtAddr::new(FIRST + (20 << 12)), 1 << 12);
    let elsewhere = AddrRange::new(VirtAddr::new(FIRST + (200 << 12)), 1 << 12);
    let remap = Event::Remap { from: range, to: elsewhere };
    for host in [&[][..], &IN_GUEST] {
        let settings = [host, &["anchor.distance=16"]].concat();
        for change in [Event::Unmap { range }, remap.clone(), protect(20, 1, 1)] {
            // All pages are in the TLBs before the change.
            let before = [vec![map(FIRST, 64)], loads(0, 64), vec![Step::Event(change)]].concat();
            // The anchor covers four pages now; each page after them has an entry of its own.
            let counters = after("anchor", &settings, before.clone(), 16..20);
            assert_eq!(counters.get("tlb.anchors", "filled_pages"), Some(4));
            assert_eq!(misses("anchor", &settings, before.clone(), 16..20), 1);
            assert_eq!(misses("anchor", &settings, before, 21..32), 11);
        }
    }
}

/// More instructions than between two occasions at which the operating system chooses.
fn many_loads(pages: u64) -> Vec<Step> {
    let addresses = (0..1_200_000).map(|number| FIRST + ((number % pages) << 12));
    references(ItemKind::Load, addresses).collect()
}

#[test]
fn chosen_distance_fits_the_chunks() {
    let small = "tlb.l2.main.entries=24";
    let configs = [tiny(&[small]), tiny(&[&IN_GUEST[..], &[small]].concat())];
    for (config, chunk) in
        configs.iter().flat_map(|config| [4, 64].map(|chunk| (with_distance(config, 0), chunk)))
    {
        let begins =
            (0..128 / chunk).map(|number| map(FIRST + ((number * 2 * chunk) << 12), chunk));
        let steps = [begins.collect(), many_loads(chunk)].concat();
        let counters = compare_one(&config, "eager", &[(0, run(steps))]).unwrap();
        assert_eq!(counters.get("os", "anchor_distance"), Some(chunk));
        assert_eq!(counters.get("os", "anchor_distance_changes"), Some(1));
    }
}

/// The second level has 24 entries for 1024 contiguous pages: CoLT's entries of four pages do not suffice, anchors do.
#[test]
fn anchors_reach_further_than_colt() {
    let config = with_distance(&tiny(&["tlb.l2.main.entries=24"]), 0);
    let runs = [run([vec![map(FIRST, 1024)], many_loads(1024)].concat()), run(loads(0, 1024))];
    let walks = ["conventional", "colt", "anchor"].map(|hardware| {
        let make = || machine(hardware, &config, "eager:largest=1MiB");
        counted_last(&config, make, &runs).get("walker", "walks").unwrap()
    });
    let [conventional, colt, anchor] = walks;
    assert!(conventional == 1024 && conventional > colt && colt > 10 * anchor, "{walks:?}");
}
