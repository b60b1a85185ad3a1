//! Small machines with hosts.

use octavo_config::{
    Fill, FirstLevel, FragmentationConfig, HostConfig, MachineConfig, MemoryConfig,
    PageTableConfig, TlbsHold, WalkCache, WalkStart, Ways,
};
use octavo_hw::Replacement;
use octavo_machine::designs::GtsmSettings;
use octavo_machine::designs::colt::{Coalescing, RunEntry};
use octavo_machine::designs::perforated::hole_filter;
use octavo_machine::designs::registry::policies;
use octavo_machine::designs::{
    Conventional, DirectSegment, Gtsm, Perforated, Physical, Rmm, Sizes, Softvm, Variant,
};
use octavo_machine::{AnyMachine, ConfigError, Design, Env, Machine};
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_os::page_table::{Format, HoleFilter};
use octavo_os::policy::{Policy, PolicyConfig};
use octavo_os::{Memory, Os};
use octavo_types::{Instructions, PageSize};
use proptest::prelude::*;

use super::policies::{HOST_POLICIES, HostPolicy, POLICIES_WITH_GAPS, POLICIES_WITH_HOLES};
use crate::common::naive::{ExtraHardware, NaiveMachine};
use crate::common::{cache, eager_prefetchers, level, tiny, with_prefetchers, with_tiers};

/// The configuration of a case.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub machine: u32,
    pub host: u32,
    pub policy: HostPolicy,
    pub tlbs_hold: TlbsHold,
    pub is_fragmented: bool,
    /// Whether fragmented memory is movable.
    pub movable: bool,
    /// Whether guest memory is fragmented by unmovable frames.
    pub is_guest_fragmented: bool,
    /// Whether host memory has faulty frames, in place of its other fragmentation.
    pub has_faults: bool,
}

pub fn kind() -> impl Strategy<Value = Kind> {
    let policy = prop::sample::select(&HOST_POLICIES[..]);
    let holds = prop::sample::select(vec![TlbsHold::Final, TlbsHold::Halves]);
    (0u32..6, 0u32..4, policy, holds, any::<bool>()).prop_map(
        |(machine, host, policy, tlbs_hold, is_fragmented)| {
            // Host halves need a nested TLB.
            let tlbs_hold = if host == 0 { TlbsHold::Final } else { tlbs_hold };
            Kind {
                machine,
                host,
                policy,
                tlbs_hold,
                is_fragmented,
                movable: true,
                is_guest_fragmented: false,
                has_faults: false,
            }
        },
    )
}

/// Kinds for perforated pages, with or nearly with room for them in the second level.
pub fn kind_with_holes() -> impl Strategy<Value = Kind> {
    let policy = prop::sample::select(&POLICIES_WITH_HOLES[..]);
    (kind(), policy, any::<bool>(), any::<bool>()).prop_map(|(kind, policy, movable, guest)| {
        // Victim levels are filled by walks here.
        let machine = if kind.machine == 2 { 0 } else { kind.machine };
        Kind { machine, policy, movable, is_guest_fragmented: guest, ..kind }
    })
}

/// Kinds for gapped pages.
pub fn kind_with_gaps() -> impl Strategy<Value = Kind> {
    let policy = prop::sample::select(&POLICIES_WITH_GAPS[..]);
    (kind(), policy, any::<bool>(), any::<bool>()).prop_map(|(kind, policy, guest, has_faults)| {
        let machine = if kind.machine == 2 { 0 } else { kind.machine };
        Kind { machine, policy, is_guest_fragmented: guest, has_faults, ..kind }
    })
}

fn holes(portion: f64, movable: bool) -> FragmentationConfig {
    FragmentationConfig::Holes {
        portion,
        fraction: 0.1,
        layout: HoleLayout::Dispersed,
        holes: if movable { HoleKind::Movable } else { HoleKind::Immovable },
        seed: 3,
    }
}

/// A small host.
fn host(kind: Kind) -> HostConfig {
    let sizes = [PageSize::BASE, PageSize::HUGE];
    let walk_cache = |level, entries| WalkCache {
        level,
        entries,
        ways: Ways::Full,
        replacement: Replacement::Lru,
    };
    let walk_caches = match kind.host {
        0 | 1 => vec![],
        _ => vec![("pde", walk_cache(2, 2)), ("pdpte", walk_cache(3, 2))],
    };
    let tlb = match kind.host {
        0 => None,
        1 => Some(level(2, &[("4k", 4, 2, &sizes[..1]), ("2m", 2, 2, &sizes[1..])])),
        2 => Some(level(1, &[("main", 6, 3, &sizes)])),
        // Huge pages are filled in parts.
        _ => Some(level(3, &[("4k", 8, 8, &sizes[..1])])),
    };
    let fragmentation = match kind.is_fragmented {
        _ if kind.has_faults => {
            let (portion, layout) = (0.02, HoleLayout::Dispersed);
            FragmentationConfig::Faults { portion, layout, seed: 3 }
        }
        false => FragmentationConfig::Empty,
        true => holes(0.999, kind.movable),
    };
    let mut memory = MemoryConfig {
        tiers: Default::default(),
        bytes: 512 << 20,
        largest_block: PageSize::from_bytes(4 << 20).unwrap(),
        fragmentation,
    };
    if kind.host == 3 {
        with_tiers(&mut memory, 30, 600);
    }
    HostConfig {
        policy: HostConfig::OF_DESIGN.to_owned(),
        tlbs_hold: kind.tlbs_hold,
        memory,
        page_table: PageTableConfig { levels: if kind.host == 3 { 5 } else { 4 } },
        tlb,
        walk_caches: walk_caches
            .into_iter()
            .map(|(name, cache)| (name.to_owned(), cache))
            .collect(),
    }
}

pub fn machine(kind: Kind) -> MachineConfig {
    let mut machine = tiny();
    // GTSM keeps the configured size of walk caches.
    let gtsm = *machine.designs.get::<GtsmSettings>();
    machine.designs.set(GtsmSettings { walk_cache_entries: 0, ..gtsm });
    machine.memory.bytes = 256 << 20;
    if kind.is_guest_fragmented {
        machine.memory.fragmentation = holes(1.0, false);
    }
    match kind.machine {
        0 => {}
        1 => {
            let FirstLevel::Split { l1d, .. } = machine.tlb.first else { unreachable!() };
            machine.tlb.first = FirstLevel::Unified { l1: l1d };
        }
        2 => machine.tlb.l2.as_mut().unwrap().fill = Fill::Victim,
        3 => {
            machine.tlb.l2 = None;
            machine.cache.l1d = cache(16, 4, 3);
        }
        4 => machine = with_prefetchers(machine, eager_prefetchers()),
        _ => {
            machine.page_table.levels = 5;
            machine.walker.caches.clear();
            machine.walker.start = WalkStart::WithLookup;
        }
    }
    machine.host = Some(host(kind));
    machine
}

fn os(memory: &MemoryConfig, format: Format, policy: Box<dyn Policy>) -> Os {
    let start = memory.start().unwrap();
    let mut frames = start.build(memory.shape().unwrap(), memory.seed()).unwrap();
    frames.set_tiers(memory.placed_tiers().map(|tier| tier.first_frame).collect());
    Os::new(Memory::new(frames, &Sizes::X86.list(), format), policy)
}

/// A design and the policy of its guest.
#[derive(Clone, Copy, Debug)]
pub enum NestedDesign {
    Conventional(&'static str),
    Coalescing(&'static str, Coalescing),
    Ranges,
    Segment,
    Perforated(&'static str, Variant),
    Gapped(&'static str),
    /// Virtual caches, or physical caches behind a software-refilled TLB; these have no naive machine.
    Software,
    SoftwareTlb,
    PhysicalSoftwareTlb,
}

impl NestedDesign {
    fn policy(self) -> PolicyConfig {
        let name = match self {
            NestedDesign::Conventional(policy)
            | NestedDesign::Coalescing(policy, _)
            | NestedDesign::Perforated(policy, _)
            | NestedDesign::Gapped(policy) => policy,
            NestedDesign::Ranges | NestedDesign::Segment => "eager",
            _ => "thp",
        };
        policies().parse(name).unwrap().policy
    }

    fn extra(self) -> ExtraHardware {
        match self {
            NestedDesign::Conventional(_) => ExtraHardware::Nothing,
            NestedDesign::Coalescing(_, coalescing) => ExtraHardware::Coalescing(coalescing),
            NestedDesign::Ranges => ExtraHardware::Ranges,
            NestedDesign::Segment => ExtraHardware::Segment,
            NestedDesign::Perforated(_, variant) => ExtraHardware::Perforated(variant),
            NestedDesign::Gapped(_) => ExtraHardware::Gapped,
            _ => unreachable!("there is no naive one"),
        }
    }

    /// The operating systems of the guest and of the host.
    fn systems(self, config: &MachineConfig, policy: HostPolicy) -> (Os, Os) {
        let has_holes = matches!(self, NestedDesign::Perforated(..));
        let holes = has_holes.then_some(hole_filter as HoleFilter);
        let format = |levels| Format { levels, holes, ..Format::default() };
        let guest = os(&config.memory, format(config.page_table.levels), self.policy().build());
        let host = config.host.as_ref().unwrap();
        let has_gapped = matches!(self, NestedDesign::Gapped(_));
        let format = Format { has_gapped, ..format(host.page_table.levels) };
        (guest, os(&host.memory, format, policy.build()))
    }

    pub fn machine(
        self,
        config: &MachineConfig,
        policy: HostPolicy,
        instructions: Instructions,
    ) -> Box<dyn AnyMachine> {
        let (guest, host_os) = self.systems(config, policy);
        let host = config.host.as_ref().unwrap();
        let env = Env::new(config, guest, instructions).unwrap();
        let env = env.in_guest(config, host, host_os, instructions).unwrap();
        let env = env.checked(instructions == Instructions::PORTABLE);
        fn boxed<D: Design + 'static>(
            (env, cores): (Env, u32),
            instructions: Instructions,
            make: impl Fn() -> Result<D, ConfigError>,
        ) -> Box<dyn AnyMachine> {
            let mmus = (0..cores).map(|_| make().unwrap()).collect();
            Box::new(Machine::new(env, mmus, instructions))
        }
        let (tlb, parts, set) = (&config.tlb, (env, config.core.count), instructions);
        match self {
            NestedDesign::Conventional(_) => boxed(parts, set, || Conventional::new(tlb, set)),
            NestedDesign::Coalescing(_, first) => {
                let second = first.of_second_level();
                boxed(parts, set, || {
                    Conventional::<RunEntry>::with_settings(tlb, first, second, set)
                })
            }
            NestedDesign::Ranges => boxed(parts, set, || Rmm::new(tlb, config.designs.get(), set)),
            NestedDesign::Segment => boxed(parts, set, || DirectSegment::new(tlb, set)),
            NestedDesign::Perforated(_, variant) => {
                boxed(parts, set, || Perforated::new(tlb, variant, set))
            }
            NestedDesign::Gapped(_) => {
                boxed(parts, set, || Gtsm::new(tlb, config.designs.get(), set))
            }
            NestedDesign::Software => boxed(parts, set, || Softvm::new(config, set)),
            NestedDesign::SoftwareTlb => boxed(parts, set, || Softvm::with_tlb(config, set)),
            NestedDesign::PhysicalSoftwareTlb => boxed(parts, set, || Physical::new(config, set)),
        }
    }

    /// The naive machine of the design.
    pub fn naive(self, config: &MachineConfig, policy: HostPolicy) -> NaiveMachine {
        let (guest, host) = self.systems(config, policy);
        NaiveMachine::new(config, guest, self.extra()).in_guest(config, host)
    }
}
