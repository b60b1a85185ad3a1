//! The naive twin: the policy and the walker again, with a list of frames for each set. Conventional TLBs and the walk of
//! the radix tree are those of the machine.

use std::collections::BTreeMap;

use octavo_config::MachineConfig;
use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_os::page_table::DesignCounter;
use octavo_os::policy::{Fault, OsConfig, Policy, PolicyConfig, PolicySettings};
use octavo_os::{Memory, Placement, ProcessId};
use octavo_types::{FrameNumber, ItemKind, PageNumber, PageSize, PhysAddr};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::designs::build::{self, HardwareFormat, Tables};
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted_last, guest_configs, machine, map,
    references, run, setup, tiny,
};
use crate::env::{WalkPlan, WalkRequest, Walker};
use crate::machine::AnyMachine;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct NaiveConfig {
    percent: u32,
}

impl PolicySettings for NaiveConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(NaivePolicy { percent: self.percent })
    }
}

struct NaivePolicy {
    percent: u32,
}

impl Policy for NaivePolicy {
    fn start(&mut self, memory: &mut Memory) {
        let frames = memory.frames.shape().frames();
        let sets = frames * u64::from(self.percent) / 1600;
        let mut lines = Vec::new();
        // First 64 sets of tags a frame, then 4096 sets of the filter.
        for _ in 0..sets.div_ceil(64) + sets.div_ceil(4096) {
            match memory.frames.allocate(Order::BASE, Owner::DesignTable) {
                Ok(frame) => lines.push(frame.start().raw()),
                Err(_) => return,
            }
        }
        if sets == 0 {
            return;
        }
        let first = frames - 16 * sets;
        let of_set = |set| (first + 16 * set..first + 16 * set + 16).collect();
        let frames_of_sets = (0..sets).map(of_set).collect();
        memory.frames.set_aside(first..frames);
        memory.place_by(Box::new(Sets { frames_of_sets, lines, counts: BTreeMap::new() }));
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}

struct Sets {
    frames_of_sets: Vec<Vec<u64>>,
    /// The frames of tags and filter.
    lines: Vec<u64>,
    counts: BTreeMap<&'static str, u64>,
}

impl Sets {
    fn of(&self, page: PageNumber) -> (usize, &Vec<u64>) {
        let set = (page.raw() % self.frames_of_sets.len() as u64) as usize;
        (set, &self.frames_of_sets[set])
    }

    fn tag(&self, set: usize, way: usize) -> PhysAddr {
        PhysAddr::new(self.lines[set / 64] + (set % 64 * 64 + way * 4) as u64)
    }

    fn filter(&self, set: usize) -> PhysAddr {
        let of_tags = self.frames_of_sets.len().div_ceil(64);
        PhysAddr::new(self.lines[of_tags + set / 4096] + set as u64 % 4096)
    }
}

impl Placement for Sets {
    fn choose(&mut self, frames: &Frames, _: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        let all = self.of(page).1.iter().map(|frame| FrameNumber::new(*frame));
        let usable = [None, Some(Owner::SetAside)];
        let free = all.filter(|frame| usable.contains(&frames.owner(*frame))).min();
        let (name, is_counted) = match free {
            Some(_) => ("segment_pages", true),
            None => ("full_sets", frames.free_frames() > 0),
        };
        *self.counts.entry(name).or_default() += u64::from(is_counted);
        free
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let value = |name| self.counts.get(name).copied().unwrap_or(0);
        let counter = |name| DesignCounter { name, value: value(name), is_level: false };
        ["segment_pages", "full_sets"].map(counter).into()
    }
}

#[derive(Default)]
struct NaiveWalker(BTreeMap<&'static str, u64>);

impl Walker for NaiveWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        let Some(sets) = request.memory.placement::<Sets>() else {
            return plan.walk_radix(request);
        };
        let (set, frames) = sets.of(request.page);
        let leaf = request.table().leaf(request.page).map(|leaf| leaf.frame_of(request.page).raw());
        let owner = |frame: &u64| request.memory.frames.owner(FrameNumber::new(*frame));
        let data = frames.iter().filter(|frame| owner(frame) == Some(Owner::Data)).count();
        let way = leaf.and_then(|leaf| frames.iter().position(|frame| *frame == leaf));
        plan.probe(sets.filter(set));
        let found = match (data, way) {
            (0, _) => "filtered",
            (_, None) => "outside_segment",
            (_, Some(_)) => "in_segment",
        };
        *self.0.entry(found).or_default() += 1;
        if data > 0 {
            plan.wait();
            plan.probe(sets.tag(set, way.unwrap_or(0)));
        }
        if let Some(way) = way {
            plan.entry = Some(sets.tag(set, way));
            return;
        }
        plan.walk_radix(request);
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        for name in ["in_segment", "outside_segment", "filtered"] {
            let count = self.0.get(name).copied().unwrap_or(0);
            counters.add(&format!("{component}.walks"), name, count);
        }
    }

    fn uses_walk_caches(&self) -> bool {
        true
    }
}

fn naive(config: &MachineConfig, percent: u32) -> Box<dyn AnyMachine> {
    let os = OsConfig::new(PolicyConfig::from(NaiveConfig { percent }));
    let walker = |_: &MachineConfig| -> Box<dyn Walker> { Box::new(NaiveWalker::default()) };
    let hardware = Some(HardwareFormat { table: None, walker });
    let tables = Tables { hardware, ..Tables::default() };
    build::conventional(config, &setup(config), tables, &os).unwrap()
}

/// Plays actions on the design and its twin with segments of several sizes, and compares all counters. Returns those of
/// the largest. The host of a guest has the policy of the guest.
fn compare(config: &MachineConfig, actions: &[(usize, Action)]) -> Result<Counters, TestCaseError> {
    let mut config = config.clone();
    config.host.iter_mut().for_each(|host| host.policy = "design".to_owned());
    let one = |percent| {
        let design = machine("utopia", &config, &format!("restseg:percent={percent}"));
        twins::compare(&config, [design, naive(&config, percent)], actions)
    };
    one(1)?;
    one(90)
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
    fn empty_segment_is_the_radix_tree(
        config in configs(&[]),
        guests in guest_configs(),
        actions in actions(),
    ) {
        for config in [&config, &guests[0], &guests[1]] {
            let machines = [
                machine("utopia", config, "restseg:percent=0"),
                machine("conventional", config, "base"),
            ];
            let [utopia, conventional] =
                twins::counted(config, machines.into(), &actions).try_into().unwrap();
            prop_assert_eq!(twins::differences(&conventional, &utopia), Vec::new());
        }
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        let counters = compare(&tiny(&[settings, &["core.count=2"]].concat()), &all_events());
        let counters = counters.unwrap();
        let sides = if settings.is_empty() { 1 } else { 2 };
        for walker in &["walker.cache.walks", "walker.host.cache.walks"][..sides] {
            for found in ["in_segment", "filtered"] {
                assert!(counters.get(walker, found).unwrap() > 0, "{walker} {found}");
            }
        }
        assert!(counters.get("os", "copy_on_write_faults").unwrap() > 0);
    }
}

#[test]
fn frames_set_aside_are_reported_where_all_have_pages() {
    // Less than 14 sets: 224 frames.
    let config = tiny(&["memory.bytes=1MiB"]);
    let steps = |pages| {
        let loads =
            references(ItemKind::Load, (0..pages).map(|page| 0x40_0000_0000 + (page << 12)));
        [(0, run([map(0x40_0000_0000, pages)].into_iter().chain(loads).collect()))]
    };
    let aside = |pages| {
        let design = machine("utopia", &config, "restseg:percent=90");
        twins::counted(&config, vec![design], &steps(pages))[0].get("os", "set_aside_bytes")
    };
    // The page of the code has a frame, too.
    assert_eq!([100, 224].map(aside), [Some((224 - 101) << 12), Some(0)]);
}

/// Pages of one set, in 2 GiB with a segment of a quarter: 8192 sets.
#[test]
fn page_beyond_the_frames_of_a_set_is_outside() {
    const FIRST: u64 = 0x40_0000_0000;
    let config = tiny(&["tlb.l2=none"]);
    let pass = || references(ItemKind::Load, (0..17).map(|page| FIRST + (page << 25)));
    let first = run([map(FIRST, 17 << 13)].into_iter().chain(pass()).collect());
    let counters = counted_last(
        &config,
        || machine("utopia", &config, "restseg"),
        &[first, run(pass().collect())],
    );
    let walks = ["in_segment", "outside_segment", "filtered"]
        .map(|name| counters.get("walker.cache.walks", name).unwrap());
    assert_eq!(walks, [16, 1, 0]);
}
