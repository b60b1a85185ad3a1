//! The naive twin: the policy again with a list of the functions that have placed pages, and times of lines on one clock.
//! Conventional TLBs and the walk of the radix tree are those of the machine.

use std::collections::BTreeMap;

use octavo_config::MachineConfig;
use octavo_hw::{Served, ServedBy};
use octavo_os::frames::{Frames, OutOfMemory};
use octavo_os::page_table::{DesignCounter, NodePlace};
use octavo_os::policy::{Fault, OsConfig, Policy, PolicyConfig, PolicySettings};
use octavo_os::vmas::Pages;
use octavo_os::{Memory, Placement, ProcessId};
use octavo_trace::splitmix;
use octavo_types::{Access, FrameNumber, ItemKind, PageNumber, PageSize, PhysAddr};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::RevelatorSettings;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build::{self, HardwareFormat, Tables};
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted_last, guest_configs, machine, map,
    references, run, setup, tiny,
};
use crate::env::{Env, WalkPlan, WalkRequest, Walker};
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::tlb::Lookup;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct NaiveConfig {
    functions: u64,
}

impl PolicySettings for NaiveConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(NaivePolicy { functions: self.functions })
    }
}

struct NaivePolicy {
    functions: u64,
}

impl Policy for NaivePolicy {
    fn start(&mut self, memory: &mut Memory) {
        if self.functions > 0 {
            let frames = memory.frames.shape().frames();
            memory.place_by(Box::new(NaiveHashes {
                frames,
                functions: self.functions,
                log: Vec::new(),
            }));
        }
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}

/// The placement, with the function that has placed each page so far, from 1 on; 0 for none.
struct NaiveHashes {
    frames: u64,
    functions: u64,
    log: Vec<u64>,
}

/// The frame that a function, from 1 on, gives for a number.
fn hash(function: u64, process: ProcessId, number: u64, frames: u64) -> u64 {
    splitmix(number ^ u64::from(process.0) << 45 ^ (function - 1) << 61) % frames
}

impl NaiveHashes {
    fn placed_by(&self, function: u64) -> usize {
        self.log.iter().filter(|placed| **placed == function).count()
    }

    fn likely(&self, process: ProcessId, page: u64, min_percent: usize) -> Vec<u64> {
        let mut frames = Vec::new();
        for function in 1..=self.functions {
            if 100 * self.placed_by(function) >= min_percent * self.log.len() {
                frames.push(hash(function, process, page, self.frames));
            }
        }
        frames
    }
}

impl Placement for NaiveHashes {
    fn choose(
        &mut self,
        frames: &Frames,
        process: ProcessId,
        page: PageNumber,
    ) -> Option<FrameNumber> {
        let frame = |function| FrameNumber::new(hash(function, process, page.raw(), self.frames));
        let free = |function: &u64| frames.owner(frame(*function)).is_none();
        let function = (1..=self.functions).find(free);
        if function.is_some() || frames.free_frames() > 0 {
            self.log.push(function.unwrap_or(0));
        }
        function.map(frame)
    }

    fn node_place(&self, process: ProcessId) -> Option<NodePlace> {
        let frames = self.frames;
        Some(Box::new(move |page| FrameNumber::new(hash(8, process, page.raw() / 512, frames))))
    }

    fn assumed_frame(&self, process: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        Some(FrameNumber::new(hash(1, process, page.raw(), self.frames)))
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let names = ["hash_1_pages", "hash_2_pages", "hash_3_pages", "hash_4_pages"];
        let functions = (1..=self.functions).zip(names).chain([(0, "unhashed_pages")]);
        let counter = |(function, name)| DesignCounter {
            name,
            value: self.placed_by(function) as u64,
            is_level: false,
        };
        functions.map(counter).collect()
    }
}

struct NaiveWalker(u32);

impl Walker for NaiveWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        if let Some(hashes) = request.memory.placement::<NaiveHashes>() {
            let (node, entry) = (request.page.raw() / 512, request.page.raw() % 512);
            let frame = hash(8, request.process, node, hashes.frames);
            plan.prefetches = [Some(PhysAddr::new(4096 * frame + 8 * entry)), None];
            plan.prefetch_start_cycles = self.0;
            plan.assumes_frames = true;
        }
        plan.walk_radix(request);
    }

    fn report(&self, _: &str, _: &mut Counters) {}

    fn uses_walk_caches(&self) -> bool {
        true
    }
}

struct Naive {
    conventional: Conventional,
    settings: RevelatorSettings,
    counts: BTreeMap<&'static str, u64>,
}

const COUNTERS: [&str; 7] = [
    "predictions",
    "right",
    "candidates",
    "prefetches",
    "prefetches_memory",
    "prefetches_used",
    "cycles_late",
];

/// Cycles of translations so far.
fn clock(env: &Env) -> u64 {
    env.charged().lookups + env.charged().walks
}

impl Naive {
    fn count(&mut self, name: &'static str, by: usize) {
        *self.counts.entry(name).or_default() += by as u64;
    }

    /// The candidate frames of a page in the memory of the machine.
    fn candidates(&self, env: &Env, page: PageNumber) -> Vec<u64> {
        let percent = self.settings.min_percent as usize;
        let Some(hashes) = env.os().memory().placement::<NaiveHashes>() else { return Vec::new() };
        let own = hashes.likely(env.process(), page.raw(), percent);
        let Some((host, vm)) = env.host_memory() else { return own };
        let mut all = Vec::new();
        for frame in own {
            if let Some(hashes) = host.placement::<NaiveHashes>() {
                all.extend(hashes.likely(vm, frame, percent));
            }
        }
        all
    }
}

impl Design for Naive {
    fn translate(&mut self, _: &mut Env, _: LineAccess) -> Option<FrameNumber> {
        unreachable!("accesses are whole")
    }

    fn access(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let mut held = self.conventional.look_up_l1(env, page, access);
        let misses_first = matches!(held, Lookup::Miss);
        if misses_first {
            held = self.conventional.look_up_l2(env, page, access);
        }
        let is_data = access.kind() != Access::Fetch;
        let mut candidates = Vec::new();
        // By line: when it is asked for, and how long it takes.
        let mut lines = BTreeMap::new();
        if let Lookup::Miss = held
            && is_data
            && self.settings.data
        {
            candidates = self.candidates(env, page);
            for frame in &candidates {
                let line = 64 * frame + access.line() % 64;
                if let Some(Served { by, latency_cycles }) = env.prefetch_line(line) {
                    let asked = clock(env) + u64::from(self.settings.hash_cycles);
                    lines.insert(line, (asked, latency_cycles));
                    self.count("prefetches", 1);
                    self.count("prefetches_memory", usize::from(by == ServedBy::Memory));
                }
            }
            self.count("candidates", candidates.len());
            self.count("predictions", usize::from(!candidates.is_empty()));
        }
        let frame = match held {
            Lookup::Hit(translation) => translation.frame_of(page),
            _ => {
                let is_clean = matches!(held, Lookup::PermissionMiss { is_clean: true });
                let walked = self.walk(env, page, access, is_clean)?;
                self.conventional.fill_l2(env.asid(), page, walked, held);
                match misses_first {
                    true => self.conventional.fill_l1(env.asid(), page, walked, access),
                    false => self.conventional.replace_l1(env.asid(), page, walked, access),
                }
                walked.frame_of(page)
            }
        };
        let before = (env.l1d_misses(), env.charged().caches);
        let frame = env.access_line(access, frame)?;
        self.count("right", usize::from(candidates.contains(&frame.raw())));
        let now = clock(env);
        let line = 64 * frame.raw() + access.line() % 64;
        let prefetched = lines.get(&line);
        if let Some((asked, cycles)) = prefetched
            && env.l1d_misses() > before.0
        {
            let arrival = u64::from(*cycles) + if *asked < now { *asked } else { now };
            let left = arrival.saturating_sub(now);
            let charged = env.charged().caches - before.1;
            let late = env.wait_for_line(line, charged, left) as usize;
            self.count("prefetches_used", 1);
            self.count("cycles_late", late);
        }
        Some(frame)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
    }

    fn flush(&mut self) {
        self.conventional.flush();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        for name in COUNTERS.into_iter().filter(|_| self.settings.data) {
            counters.add("revelator", name, self.counts.get(name).copied().unwrap_or(0));
        }
    }
}

fn naive(config: &MachineConfig, functions: u64) -> Box<dyn AnyMachine> {
    let settings = *config.designs.get::<RevelatorSettings>();
    let os = OsConfig::new(PolicyConfig::from(NaiveConfig { functions }));
    let walker = |config: &MachineConfig| -> Box<dyn Walker> {
        Box::new(NaiveWalker(config.designs.get::<RevelatorSettings>().hash_cycles))
    };
    let hardware = settings.entries.then_some(HardwareFormat { table: None, walker });
    let tables = Tables { hardware, ..Tables::default() };
    let setup = setup(config);
    build::machine_with_tables(config, &setup, tables, &os, |_| {
        let conventional = Conventional::new(&config.tlb, setup.instructions)?;
        Ok(Naive { conventional, settings, counts: BTreeMap::new() })
    })
    .unwrap()
}

/// Plays actions on the design and its twin with several settings, and compares all counters. Returns those of the
/// design with its defaults. The host of a guest has the policy of the guest.
fn compare(config: &MachineConfig, actions: &[(usize, Action)]) -> Result<Counters, TestCaseError> {
    let mut config = config.clone();
    config.host.iter_mut().for_each(|host| host.policy = "design".to_owned());
    let mut one = |settings: RevelatorSettings, functions| {
        config.designs.set(settings);
        let design = machine("revelator", &config, &format!("hashed:functions={functions}"));
        twins::compare(&config, [design, naive(&config, functions)], actions)
    };
    let defaults = RevelatorSettings::default();
    one(RevelatorSettings { hash_cycles: 40, min_percent: 0, ..defaults }, 4)?;
    one(RevelatorSettings { entries: false, min_percent: 60, ..defaults }, 2)?;
    one(RevelatorSettings { data: false, ..defaults }, 1)?;
    one(defaults, 3)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn design_equals_twin(config in configs(&[]), actions in actions()) {
        compare(&config, &actions)?;
    }

    #[test]
    fn design_equals_twin_in_a_guest(configs in guest_configs(), actions in actions()) {
        compare(&configs[0], &actions)?;
    }

    #[test]
    fn design_without_functions_or_prefetches_is_the_radix_tree(
        config in configs(&[]),
        guests in guest_configs(),
        actions in actions(),
    ) {
        let off = RevelatorSettings { data: false, entries: false, ..RevelatorSettings::default() };
        let no_data = RevelatorSettings { data: false, ..RevelatorSettings::default() };
        for config in [&config, &guests[0], &guests[1]] {
            for (settings, policy, same) in
                [(no_data, "hashed:functions=0", "base"), (off, "hashed", "hashed")]
            {
                let mut config = config.clone();
                config.designs.set(settings);
                let machines = [
                    machine("revelator", &config, policy),
                    machine("conventional", &config, same),
                ];
                let [revelator, conventional] =
                    twins::counted(&config, machines.into(), &actions).try_into().unwrap();
                prop_assert_eq!(twins::differences(&conventional, &revelator), Vec::new());
                prop_assert_eq!(twins::differences(&revelator, &conventional), Vec::new());
            }
        }
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        let counters = compare(&tiny(&[settings, &["core.count=2"]].concat()), &all_events());
        let counters = counters.unwrap();
        let walkers =
            if settings.is_empty() { &["walker"][..] } else { &["walker.guest", "walker.host"] };
        for walker in walkers {
            for counter in ["prefetches", "prefetches_used"] {
                assert!(counters.get(walker, counter).unwrap() > 0, "{walker} {counter}");
            }
        }
        for counter in COUNTERS {
            assert!(counters.get("revelator", counter).unwrap() > 0, "{counter}");
        }
        assert!(counters.get("os", "copy_on_write_faults").unwrap() > 0);
    }
}

const FIRST: u64 = 0x40_0000_0000;

/// The counters of a second pass over 64 pages of 64 nodes, each in a line of its own.
fn second_pass(hardware: &str) -> Counters {
    let config = tiny(&["tlb.l2=none", "walker.caches.pde=none"]);
    let pass =
        || references(ItemKind::Load, (0..64).map(|page| FIRST + (page << 21) + (page << 6)));
    let first = run([map(FIRST, 64 << 9)].into_iter().chain(pass()).collect());
    let machine = || machine(hardware, &config, "hashed");
    counted_last(&config, machine, &[first, run(pass().collect())])
}

/// In an empty memory nearly all pages and nodes are in the frames of the first function, and their lines arrive while
/// walks are under way.
#[test]
fn data_and_entries_arrive_while_the_walk_is_under_way() {
    let get = |counters: &Counters, component, counter| counters.get(component, counter).unwrap();
    let [plain, revelator] = ["conventional", "revelator"].map(second_pass);
    assert_eq!(get(&plain, "walker", "walks"), 64);
    assert_eq!(get(&revelator, "walker", "walks"), 64);
    assert_eq!(get(&revelator, "revelator", "predictions"), 64);
    let right = get(&revelator, "revelator", "right");
    assert!(right >= 62, "{right}");
    assert!(get(&revelator, "revelator", "prefetches_used") >= right - 2);
    let cycles = |counters, counter| get(counters, "core", counter);
    assert!(2 * cycles(&revelator, "cycles_data") < cycles(&plain, "cycles_data"));
    assert!(cycles(&revelator, "cycles_walks") < cycles(&plain, "cycles_walks"));
}
