//! The slow, obvious twin: the table as a list of instructions, runs measured page by page, free memory searched frame
//! by frame, and offsets of mappings as a list. The twin adds up the cycles of all walks; the comparison subtracts the
//! hidden ones. The tests compare all other counters exactly.

use std::ops::Range;

use octavo_config::{MachineConfig, WalkStart};
use octavo_hw::Asid;
use octavo_os::frames::{Order, OutOfMemory, Owner};
use octavo_os::page_table::{Format, PageTable};
use octavo_os::policy::{Fault, OsConfig, Policy, PolicyConfig, PolicySettings};
use octavo_os::vmas::{Advice, Pages, Vma};
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, Instructions, MapSource, PageNumber, PageSize,
    Protection, VirtAddr,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{CaConfig, SpotSettings};
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build::{self, Tables};
use crate::designs::twins::{
    Action, GUEST, actions, all_events, configs, counted, counted_last, differences, guest_configs,
    load, machine, map, run_loads, setup, tiny, with,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::tlb::{Lookup, Translation};

/// An entry of the table.
struct Known {
    asid: Asid,
    site: u64,
    offset: i64,
    confidence: i32,
    /// When it was made or looked up last.
    time: u64,
}

struct Naive {
    conventional: Conventional,
    settings: SpotSettings,
    /// The entries of all sets.
    known: Vec<Known>,
    time: u64,
    counts: [u64; 9],
}

const HITS: usize = 0;
const MISSES: usize = 1;
const RIGHT: usize = 2;
const WRONG: usize = 3;
const HIDDEN: usize = 4;
const FILLS: usize = 5;
const WITHOUT_ROOM: usize = 6;
const SHORT_RUNS: usize = 7;
const FAULTED: usize = 8;

/// The frame of a base page and its permissions.
fn mapped(table: &PageTable, page: u64) -> Option<(u64, Protection)> {
    let leaf = table.leaf(PageNumber::new(page))?;
    Some((leaf.frame.raw() + page - leaf.page.raw(), leaf.rights))
}

/// The number of pages of the contiguous run around a page, counted up to `enough` pages to either side.
fn run_pages(table: &PageTable, page: u64, enough: u64) -> u64 {
    let (frame, rights) = mapped(table, page).unwrap();
    let continues = |other: u64| {
        let expected = frame as i64 + other as i64 - page as i64;
        mapped(table, other).is_some_and(|found| found == (expected as u64, rights))
    };
    let before =
        (0..page).rev().take(enough as usize).take_while(|other| continues(*other)).count();
    let after = (page + 1..).take(enough as usize).take_while(|other| continues(*other)).count();
    (before + 1 + after) as u64
}

/// The number of walks that have faulted, by the counters.
fn faults(env: &Env) -> u64 {
    let mut counters = Counters::default();
    env.report(&mut counters);
    ["walker", "walker.host"]
        .map(|component| counters.get(component, "faulted").unwrap_or(0))
        .iter()
        .sum()
}

impl Naive {
    fn walk_and_learn(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let (asid, site) = (env.asid(), env.site());
        self.time += 1;
        let time = self.time;
        let entry = self.known.iter_mut().find(|known| (known.asid, known.site) == (asid, site));
        self.counts[if entry.is_some() { HITS } else { MISSES }] += 1;
        let mut predicted = None;
        if let Some(entry) = entry {
            entry.time = time;
            if entry.confidence >= 2 {
                predicted = Some(page.raw() as i64 - entry.offset);
            }
        }
        let before = (faults(env), env.charged().walks);
        let walked = self.walk(env, page, access, false)?;
        let (has_faulted, cycles) = (faults(env) > before.0, env.charged().walks - before.1);
        let frame = env.translation(env.process(), page).unwrap().frame_of(page).raw() as i64;
        if let Some(predicted) = predicted {
            let is_right = !has_faulted && predicted == frame;
            self.counts[if is_right { RIGHT } else { WRONG }] += 1;
            self.counts[FAULTED] += u64::from(has_faulted);
            self.counts[HIDDEN] += if is_right { cycles } else { 0 };
        }
        let most = self.settings.run_pages + 1;
        let is_long =
            env.tables(page).all(|(table, page)| run_pages(table, page.raw(), most) >= most);
        self.counts[SHORT_RUNS] += u64::from(!is_long);
        let offset = page.raw() as i64 - frame;
        match self.known.iter().position(|known| (known.asid, known.site) == (asid, site)) {
            Some(at) if self.known[at].offset == offset => {
                self.known[at].confidence = (self.known[at].confidence + 1).min(3);
            }
            Some(at) if self.known[at].confidence > 0 => self.known[at].confidence -= 1,
            Some(at) if is_long => {
                self.known[at].offset = offset;
                self.known[at].confidence = 1;
            }
            None if is_long => {
                let sets = self.settings.sets;
                let in_set = |known: &Known| known.site % sets == site % sets;
                if self.known.iter().filter(|known| in_set(known)).count() as u64
                    == self.settings.ways
                {
                    let idle =
                        self.known.iter().filter(|known| in_set(known) && known.confidence == 0);
                    let mut idle: Vec<u64> = idle.map(|known| known.time).collect();
                    idle.sort_unstable();
                    let Some(oldest) = idle.first().copied() else {
                        self.counts[WITHOUT_ROOM] += 1;
                        return Some(walked);
                    };
                    self.known.retain(|known| known.time != oldest);
                }
                self.known.push(Known { asid, site, offset, confidence: 1, time });
                self.counts[FILLS] += 1;
            }
            _ => (),
        }
        Some(walked)
    }
}

impl Design for Naive {
    const FOLLOWS_INSTRUCTIONS: bool = true;

    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let mut held = self.conventional.look_up_l1(env, page, access);
        let is_in_first = !matches!(held, Lookup::Miss);
        if !is_in_first {
            held = self.conventional.look_up_l2(env, page, access);
        }
        if let Lookup::Hit(translation) = held {
            return Some(translation.frame_of(page));
        }
        let is_data = access.kind() != Access::Fetch;
        let walked = match held {
            Lookup::Miss if is_data => self.walk_and_learn(env, page, access)?,
            _ => self.walk(
                env,
                page,
                access,
                matches!(held, Lookup::PermissionMiss { is_clean: true }),
            )?,
        };
        self.conventional.fill_l2(env.asid(), page, walked, held);
        match is_in_first {
            false => self.conventional.fill_l1(env.asid(), page, walked, access),
            true => self.conventional.replace_l1(env.asid(), page, walked, access),
        }
        Some(walked.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
    }

    fn flush(&mut self) {
        self.conventional.flush();
        self.known.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        let counts = &self.counts;
        for (counter, value) in [
            ("accesses", counts[HITS] + counts[MISSES]),
            ("hits", counts[HITS]),
            ("misses", counts[MISSES]),
            ("predictions", counts[RIGHT] + counts[WRONG]),
            ("right", counts[RIGHT]),
            ("wrong", counts[WRONG]),
            ("cycles_hidden", counts[HIDDEN]),
            ("faulted", counts[FAULTED]),
            (
                "cycles_flushes",
                (counts[WRONG] - counts[FAULTED]) * u64::from(self.settings.flush_cycles),
            ),
            ("fills", counts[FILLS]),
            ("without_room", counts[WITHOUT_ROOM]),
            ("short_runs", counts[SHORT_RUNS]),
        ] {
            counters.add("spot", counter, value);
        }
    }
}

/// CA paging without any order of offsets or of free memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct NaiveCaConfig {
    huge: bool,
    offsets: usize,
}

impl PolicySettings for NaiveCaConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(NaiveCa { config: *self, offsets: Vec::new(), rover: 0 })
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        if self.huge { vec![PageSize::HUGE] } else { Vec::new() }
    }
}

struct NaiveCa {
    config: NaiveCaConfig,
    /// Process, page, and the distance from frame to page; the oldest first.
    offsets: Vec<(ProcessId, u64, i64)>,
    rover: u64,
}

impl NaiveCa {
    fn of_mapping(&self, fault: &Fault) -> Vec<(ProcessId, u64, i64)> {
        let is_of = |placed: &&(ProcessId, u64, i64)| {
            placed.0 == fault.process && fault.mapping.contains(&placed.1)
        };
        self.offsets.iter().filter(is_of).copied().collect()
    }

    /// The target of a page, if its mapping has an offset.
    fn target(&self, fault: &Fault, page: u64) -> Option<i64> {
        let all = self.of_mapping(fault);
        let below = all.iter().filter(|placed| placed.1 <= page).max_by_key(|placed| placed.1);
        let nearest = below.or_else(|| all.iter().min_by_key(|placed| placed.1));
        nearest.map(|placed| page as i64 - placed.2)
    }

    /// All runs of free largest blocks, each with its frames, in the order of next fit.
    fn runs(&self, memory: &Memory) -> Vec<Range<u64>> {
        let (order, frames) = (memory.frames.shape().largest(), memory.frames.shape().frames());
        let block = order.frames();
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut gap = true;
        let all = (self.rover..frames).step_by(block as usize).chain([u64::MAX]);
        for at in all.chain((0..self.rover).step_by(block as usize)) {
            let is_free = at != u64::MAX && memory.frames.is_free(FrameNumber::new(at), order);
            match runs.last_mut() {
                Some(run) if is_free && !gap => run.end = at + block,
                _ if is_free => runs.push(at..at + block),
                _ => (),
            }
            gap = !is_free;
        }
        runs
    }

    fn place(&mut self, memory: &Memory, fault: &Fault, (start, from): (u64, u64)) -> bool {
        let all = self.of_mapping(fault);
        let next = all.iter().map(|placed| placed.1).filter(|page| *page > from).min();
        let pages = next.unwrap_or(fault.mapping.end) - start;
        let block = memory.frames.shape().largest().frames();
        let wanted = pages.div_ceil(block) * block;
        let runs = self.runs(memory);
        let length = |run: &Range<u64>| run.end - run.start;
        let longest = runs.iter().map(length).max();
        let fits = runs.iter().find(|run| length(run) >= wanted);
        let Some(run) = fits.or_else(|| runs.iter().find(|run| Some(length(run)) == longest))
        else {
            // The next search begins at the start of memory.
            self.rover = 0;
            return false;
        };
        self.rover = run.end.min(run.start + wanted);
        self.offsets.retain(|placed| (placed.0, placed.1) != (fault.process, from));
        let others = self.of_mapping(fault);
        if others.len() == self.config.offsets {
            self.offsets.retain(|placed| *placed != others[0]);
        }
        self.offsets.push((fault.process, from, start as i64 - run.start as i64));
        true
    }

    /// Takes the target of a page if it is free.
    fn take(
        &self,
        memory: &mut Memory,
        fault: &Fault,
        page: u64,
        order: Order,
    ) -> Option<FrameNumber> {
        let frame = FrameNumber::new(u64::try_from(self.target(fault, page)?).ok()?);
        memory.frames.allocate_at(frame, order, Owner::Data).then_some(frame)
    }

    fn map_huge(&mut self, memory: &mut Memory, fault: &Fault, first: u64) -> bool {
        for attempt in 0..2 {
            let is_placed = match attempt {
                0 if self.of_mapping(fault).is_empty() => {
                    self.place(memory, fault, (fault.mapping.start / 512 * 512, first))
                }
                0 => true,
                _ => self.place(memory, fault, (first, first)),
            };
            if is_placed && let Some(frame) = self.take(memory, fault, first, Order::HUGE) {
                let pages = first..first + 512;
                if memory
                    .map_run(fault.process, &pages, frame, PageSize::HUGE, fault.vma.rights)
                    .is_ok()
                {
                    memory.counters.bytes_mapped_untouched += 511 * 4096;
                    return true;
                }
            }
        }
        let page = PageNumber::new(first);
        memory.place_new(fault.process, page, PageSize::HUGE, fault.vma.rights).is_ok()
    }
}

impl Policy for NaiveCa {
    fn start(&mut self, memory: &mut Memory) {
        memory.frames.place_tables_last();
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let page = fault.page.raw();
        let first = page / 512 * 512;
        let is_whole = (first..first + 512).all(|page| {
            fault.mapping.contains(&page)
                && mapped(&memory.process(fault.process).table, page).is_none()
        });
        if self.config.huge && is_whole && fault.vma.advice != Advice::NoHuge {
            if self.map_huge(memory, fault, first) {
                return Ok(());
            }
            memory.counters.fallbacks += 1;
        }
        if self.of_mapping(fault).is_empty() {
            let start = fault.mapping.start;
            let start = if self.config.huge { start / 512 * 512 } else { start };
            self.place(memory, fault, (start, page));
        }
        let mut taken = self.take(memory, fault, page, Order::BASE);
        if taken.is_none() && !self.config.huge && self.place(memory, fault, (page, page)) {
            taken = self.take(memory, fault, page, Order::BASE);
        }
        match taken {
            Some(frame) => memory.place_at(fault.process, fault.page, frame, fault.vma.rights),
            None => memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights),
        }
    }

    fn mapped(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        pages: &Pages,
        _: &Vma,
    ) -> Result<(), OutOfMemory> {
        if memory.leaves(process, pages).is_empty() {
            self.moving(memory, process, pages);
        }
        Ok(())
    }

    fn moving(&mut self, _: &mut Memory, process: ProcessId, pages: &Pages) {
        self.offsets.retain(|placed| placed.0 != process || !pages.contains(&placed.1));
    }

    fn ended(&mut self, memory: &mut Memory, process: ProcessId) {
        self.moving(memory, process, &(0..u64::MAX));
    }
}

fn naive(config: &MachineConfig, policy: NaiveCaConfig) -> Box<dyn AnyMachine> {
    let format = Format { keeps_ranges: true, ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    let os = OsConfig::new(PolicyConfig::from(policy));
    let made = build::machine_with_tables(config, &setup(config), tables, &os, |_| {
        Ok(Naive {
            conventional: Conventional::new(&config.tlb, Instructions::PORTABLE)?,
            settings: *config.designs.get::<SpotSettings>(),
            known: Vec::new(),
            time: 0,
            counts: [0; 9],
        })
    });
    made.unwrap()
}

/// Plays actions on the design and its twin, and compares all counters. Returns those of the design.
fn compare_one(
    config: &MachineConfig,
    policy: NaiveCaConfig,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let NaiveCaConfig { huge, offsets } = policy;
    let size = if huge { "2MiB" } else { "4KiB" };
    let name = format!("ca:largest={size}:offsets={offsets}");
    let machines = [machine("spot", config, &name), naive(config, policy)];
    let [design, twin] = counted(config, machines.into(), actions).try_into().unwrap();
    let is_of_time = |component: &str, counter: &str| {
        (component, counter) == ("core", "cycles_walks")
            || (component, counter) == ("walker", "cycles_overlapped")
    };
    for (one, other) in [(&design, &twin), (&twin, &design)] {
        let mut found = differences(one, other);
        found.retain(|(component, counter, ..)| !is_of_time(component, counter));
        prop_assert_eq!(found, Vec::new());
    }
    let get = |counters: &Counters, component, counter| counters.get(component, counter).unwrap();
    let [hidden, flushes, predictions, right, wrong, accesses] =
        ["cycles_hidden", "cycles_flushes", "predictions", "right", "wrong", "accesses"]
            .map(|counter| get(&design, "spot", counter));
    let all = get(&twin, "core", "cycles_walks");
    prop_assert_eq!(get(&design, "core", "cycles_walks"), all - hidden + flushes);
    prop_assert!(get(&design, "walker", "cycles_overlapped") <= all - hidden + flushes);
    prop_assert_eq!(right + wrong, predictions);
    prop_assert!(predictions <= get(&design, "spot", "hits"));
    let l2_misses = design.get("tlb.l2", "misses");
    prop_assert!(l2_misses.is_none_or(|misses| accesses <= misses), "{accesses} of {l2_misses:?}");
    Ok(design)
}

/// As [`compare_one`], with both page sizes, and tables and mappings that overflow.
fn compare(config: &MachineConfig, actions: &[(usize, Action)]) -> Result<(), TestCaseError> {
    let usual = SpotSettings::default();
    for (huge, offsets, settings) in [
        (true, 64, usual),
        (true, 2, SpotSettings { sets: 2, ways: 1, run_pages: 3, flush_cycles: 7 }),
        (false, 64, SpotSettings { sets: 1, ways: 3, run_pages: 4, ..usual }),
        (false, 1, SpotSettings { run_pages: 0, ..usual }),
    ] {
        compare_one(&with(config, settings), NaiveCaConfig { huge, offsets }, actions)?;
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
        for mut config in configs {
            compare(&config, &actions)?;
            // Both systems have CA paging.
            config.host.as_mut().unwrap().policy = "ca".to_owned();
            compare(&config, &actions)?;
        }
    }

    /// Also where walks begin with the look-up.
    #[test]
    fn without_a_table_it_is_the_conventional_design(
        config in configs(&["spot.sets=0"]),
        actions in actions(),
        starts_early in any::<bool>(),
    ) {
        let mut config = config;
        if starts_early {
            config.walker.start = WalkStart::WithLookup;
        }
        for policy in ["base", "thp", "ca"] {
            let machines = ["conventional", "spot"].map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
            for (component, counter, value, _) in differences(&counters[1], &counters[0]) {
                prop_assert!(component == "spot" && value == 0 || counter == "ranges", "{component}/{counter}");
            }
        }
    }

    /// Predictions change the time of walks alone.
    #[test]
    fn predictions_change_no_other_count(config in configs(&[]), actions in actions()) {
        for policy in ["base", "ca"] {
            let machines = ["conventional", "spot"].map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            let found = differences(&counters[0], &counters[1]);
            prop_assert!(found.iter().all(|one| ["cycles_walks", "cycles_overlapped"].contains(&one.1)), "{found:?}");
        }
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        let config = tiny(&[settings, &["core.count=2", "memory.bytes=2GiB"]].concat());
        for huge in [true, false] {
            let policy = NaiveCaConfig { huge, offsets: 64 };
            let counters = compare_one(&config, policy, &all_events()).unwrap();
            for counter in ["right", "wrong", "faulted", "fills", "misses"] {
                assert!(
                    counters.get("spot", counter).unwrap() > 0,
                    "{counter} huge={huge} {settings:?}"
                );
            }
        }
    }
}

const FIRST: u64 = 0x40_0000_0000;

/// The counters of a machine without a second level in the last of these actions.
fn counted_by(hardware: &str, policy: &str, settings: &[&str], actions: &[Action]) -> Counters {
    let all = ["memory.bytes=2GiB", "tlb.l1d.4k.entries=2", "tlb.l2=none"];
    let config = tiny(&[settings, &all].concat());
    counted_last(&config, || machine(hardware, &config, policy), actions)
}

fn get(counters: &Counters, counter: &'static str) -> u64 {
    counters.get("spot", counter).unwrap()
}

fn pages(mapping: u64) -> impl DoubleEndedIterator<Item = u64> + Clone {
    (0..100).map(move |page| mapping + (page << 12))
}

/// One run, one instruction: all but the first two misses are predicted.
#[test]
fn one_instruction_in_one_run_is_predicted_after_two_misses() {
    for guest in [false, true] {
        let settings = if guest { &[&GUEST[..], &["host.policy=ca"]].concat() } else { &[][..] };
        let touch = pages(FIRST).map(|at| load(2, at));
        let touch = run_loads([map(FIRST, 100)].into_iter().chain(touch).collect());
        let loads = run_loads(pages(FIRST).map(|at| load(0, at)).collect());
        let actions = [touch, loads];
        let [plain, counters] = ["conventional", "spot"]
            .map(|hardware| counted_by(hardware, "ca:largest=4KiB", settings, &actions));
        let count = |counter| get(&counters, counter);
        assert_eq!(
            (count("accesses"), count("misses"), count("fills")),
            (100, 1, 1),
            "guest: {guest}"
        );
        assert_eq!(
            (count("right"), count("wrong"), count("cycles_flushes")),
            (98, 0, 0),
            "guest: {guest}"
        );
        // Hidden cycles take no time.
        let [all, left] = [&plain, &counters].map(|one| one.get("core", "cycles_walks").unwrap());
        assert_eq!(left, all - count("cycles_hidden"), "guest: {guest}");
        assert!(left * 2 < all, "guest: {guest}: {left} of {all}");
    }
}

/// Base pages of demand paging that are touched backwards have no contiguous frames.
#[test]
fn without_contiguity_nothing_is_predicted() {
    let counted = |policy| {
        let touch = pages(FIRST).rev().map(|at| load(2, at));
        let touch = run_loads([map(FIRST, 100)].into_iter().chain(touch).collect());
        counted_by(
            "spot",
            policy,
            &[],
            &[touch, run_loads(pages(FIRST).map(|at| load(0, at)).collect())],
        )
    };
    let scattered = counted("base");
    assert_eq!((get(&scattered, "predictions"), get(&scattered, "fills")), (0, 0));
    // The TLB still has the two pages that were touched last.
    assert_eq!((get(&scattered, "short_runs"), get(&scattered, "accesses")), (98, 98));
    assert_eq!(get(&counted("ca:largest=4KiB"), "right"), 96);
}

/// Two instructions in two mappings have an offset each; one instruction that alternates between them gains no
/// confidence.
#[test]
fn each_instruction_has_its_own_offset() {
    let second = FIRST + (1 << 30);
    let counted = |instructions: [usize; 2]| {
        let touch = pages(FIRST).chain(pages(second)).map(|at| load(2, at));
        let touch = [map(FIRST, 100), map(second, 100)].into_iter().chain(touch).collect();
        let in_turn = pages(FIRST).zip(pages(second));
        let in_turn = in_turn
            .flat_map(|(one, other)| [load(instructions[0], one), load(instructions[1], other)]);
        counted_by(
            "spot",
            "ca:largest=4KiB",
            &[],
            &[run_loads(touch), run_loads(in_turn.collect())],
        )
    };
    assert_eq!(get(&counted([0, 1]), "right"), 2 * 98);
    assert_eq!(get(&counted([0, 0]), "right"), 0);
}

/// A walk that begins with the look-up hides it, unless the prediction is right: the access then waits for the look-up.
#[test]
fn a_predicted_reference_waits_for_the_look_up() {
    let lookup_cycles = |start: &str| {
        let walker = format!("walker.start={start}");
        let config =
            tiny(&["memory.bytes=2GiB", "tlb.l2.main.entries=3", "tlb.l2.main.ways=3", &walker]);
        let touch = pages(FIRST).map(|at| load(2, at));
        let touch = run_loads([map(FIRST, 100)].into_iter().chain(touch).collect());
        let actions = [touch, run_loads(pages(FIRST).map(|at| load(0, at)).collect())];
        let make = || machine("spot", &config, "ca:largest=4KiB");
        let counters = counted_last(&config, make, &actions);
        assert_eq!(get(&counters, "right"), 98);
        counters.get("core", "cycles_tlb_l2").unwrap()
    };
    let all = lookup_cycles("after-lookup");
    let hidden = all - lookup_cycles("with-lookup");
    // At most the look-ups of two misses of a hundred.
    assert!(0 < hidden && hidden <= all / 100 * 2, "{hidden} of {all}");
}

/// An operating system with the policy, and a process with these mappings: first page, pages.
fn system(frames: u64, config: CaConfig, mappings: &[(u64, u64)]) -> (Os, ProcessId) {
    let shape = octavo_os::frames::MemoryShape::new(frames, Order::LINUX).unwrap();
    let memory = Memory::new(
        octavo_os::frames::Frames::new(shape),
        &[PageSize::HUGE],
        Format { keeps_ranges: true, ..Format::default() },
    );
    let mut os = Os::new(memory, config.build());
    let process = os.spawn().unwrap();
    for (first, pages) in mappings {
        let range = AddrRange::new(VirtAddr::new(first << 12), pages << 12);
        let protection = Protection::from_bits(3);
        let source = MapSource::Anonymous;
        os.event(process, &Event::Map { range, protection, source, flags: 0x22 }).unwrap();
    }
    (os, process)
}

/// Touches a page. Returns its frame, and the size of its page in base pages.
fn touch((os, process): &mut (Os, ProcessId), page: u64) -> (u64, u64) {
    os.fault(*process, PageNumber::new(page), Access::Store).unwrap();
    let leaf = os.memory().process(*process).table.leaf(PageNumber::new(page)).unwrap();
    os.memory().check().unwrap();
    (leaf.frame.raw() + page - leaf.page.raw(), leaf.size.bytes() >> 12)
}

const BASE_PAGES: CaConfig = CaConfig { largest: PageSize::BASE, offsets: 64 };

/// In empty memory each mapping has one offset, in any order of touches; each is placed after the one before.
#[test]
fn a_mapping_has_one_offset_in_empty_memory() {
    let mut system = system(1 << 15, BASE_PAGES, &[(5, 1500), (1 << 20, 100)]);
    let (far, _) = touch(&mut system, 1504);
    for (page, second) in [(900, 7), (5, 99), (901, 0), (6, 50)] {
        assert_eq!(touch(&mut system, page).0 + 1504, far + page);
        assert_eq!(touch(&mut system, (1 << 20) + second), (2 * 1024 + second, 1));
    }
    assert_eq!(far, 1499);
    assert_eq!(system.0.memory().ranges(), Some(3 + 4));
}

/// Huge pages have aligned frames, and the base pages before them the same offset.
#[test]
fn pages_of_both_sizes_have_one_offset() {
    let mut system = system(1 << 15, CaConfig::default(), &[(512 * 10 - 3, 2000)]);
    let start = 512 * 10;
    let (frame, pages) = touch(&mut system, start + 600);
    assert_eq!((pages, (frame - 600) % 512), (512, 0));
    assert_eq!(touch(&mut system, start - 2), (frame - 602, 1));
    assert_eq!(touch(&mut system, start), (frame - 600, 512));
    assert_eq!(system.0.memory().ranges(), Some(1 + 1));
}

/// A page of the largest size whose frames are taken gets a new offset for the rest of its mapping.
#[test]
fn taken_frames_place_the_rest_of_a_mapping_again() {
    let mut huge = system(1 << 15, CaConfig::default(), &[(0x10000, 512 * 6)]);
    let mut base = system(1 << 15, BASE_PAGES, &[(0x10000, 512 * 6)]);
    for (system, pages) in [(&mut huge, 512), (&mut base, 1)] {
        let (first, size) = touch(system, 0x10000);
        assert_eq!((first, size), (0, pages));
        let taken = FrameNumber::new(first + 512 + 1);
        let frames = &mut system.0.memory_mut().frames;
        assert!(frames.allocate_at(taken, Order::BASE, Owner::Background { movable: false }));
        let (second, _) = touch(system, 0x10000 + 513);
        let (third, _) = touch(system, 0x10000 + 1024);
        if pages == 512 {
            // After the three blocks that the first search was for.
            assert_eq!((second, third), (3 * 1024 + 1, 3 * 1024 + 512));
        } else {
            assert_eq!((second, third), (3 * 1024, 3 * 1024 + 511));
        }
    }
}
