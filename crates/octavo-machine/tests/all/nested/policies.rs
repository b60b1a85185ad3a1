//! Policies of the host for the memory of its virtual machine.

use octavo_machine::designs::registry::policies;
use octavo_os::frames::{CompactionLimits, Compactor, Order, OutOfMemory};
use octavo_os::policy::{BasePages, Fault, Policy};
use octavo_os::{Memory, ProcessId};
use octavo_types::PageSize;

/// Makes any region that is not fully used a perforated page, and scans at every tick.
const PERFORATED: &str = "perforated:max_filter_bits=8:min_parts=0:scan_every_instructions=1";

const GAPS_ALONE: &str = "gtsm:whole_blocks=false";
const GAPS_LATER: &str = "gtsm:whole_blocks=false:scan_every_instructions=1";

/// The policy of the host in a case.
#[derive(Clone, Copy, Debug)]
pub enum HostPolicy {
    Base,
    /// Base pages, promoted to huge pages in the background.
    Promotes,
    /// Base pages, moved in the background.
    Compacts,
    Eager,
    /// Base pages of a virtual machine that is copied periodically.
    Snapshots,
    /// Huge pages of a virtual machine that is copied periodically.
    HugeSnapshots,
    /// Huge pages.
    Huge,
    /// Perforated pages.
    Perforated,
    /// Perforated pages whose untouched base pages are holes.
    Reserving,
    /// Base pages, made into perforated pages in the background.
    Perforates,
    /// Perforated pages of a virtual machine that is copied periodically.
    PerforatedSnapshots,
    /// Huge pages, and gapped pages where no block is free.
    Gaps,
    /// Gapped pages only.
    GapsAlone,
    /// Base pages, made into gapped pages in the background.
    MakesGaps,
    /// Gapped pages in a memory that is compacted repeatedly.
    CompactsGaps,
    /// Gapped pages of a virtual machine that is copied periodically.
    GappedSnapshots,
}

pub const POLICIES_WITH_GAPS: [HostPolicy; 9] = [
    HostPolicy::Base,
    HostPolicy::Promotes,
    HostPolicy::Compacts,
    HostPolicy::HugeSnapshots,
    HostPolicy::Gaps,
    HostPolicy::GapsAlone,
    HostPolicy::MakesGaps,
    HostPolicy::CompactsGaps,
    HostPolicy::GappedSnapshots,
];

pub const POLICIES_WITH_HOLES: [HostPolicy; 7] = [
    HostPolicy::Base,
    HostPolicy::Huge,
    HostPolicy::Snapshots,
    HostPolicy::Perforated,
    HostPolicy::Reserving,
    HostPolicy::Perforates,
    HostPolicy::PerforatedSnapshots,
];

pub const HOST_POLICIES: [HostPolicy; 6] = [
    HostPolicy::Base,
    HostPolicy::Promotes,
    HostPolicy::Compacts,
    HostPolicy::Eager,
    HostPolicy::Snapshots,
    HostPolicy::HugeSnapshots,
];

/// A policy, with copies of the virtual machine that are made and ended in the background.
struct Snapshots(Box<dyn Policy>);

impl Policy for Snapshots {
    fn start(&mut self, memory: &mut Memory) {
        self.0.start(memory);
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        self.0.fault(memory, fault)
    }

    fn background(&mut self, memory: &mut Memory, _: u64) {
        if memory.live().count() > 1 {
            memory.end(ProcessId(1));
        } else {
            memory.fork(ProcessId(0)).expect("there is memory");
        }
    }
}

/// A policy, in a memory that is compacted repeatedly.
struct Compacts(Box<dyn Policy>, Compactor);

impl Policy for Compacts {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        self.0.fault(memory, fault)
    }

    fn background(&mut self, memory: &mut Memory, _: u64) {
        memory
            .compact_for(&mut self.1, Order::of(PageSize::HUGE), CompactionLimits::ALL, |_| false);
    }
}

/// Base pages, with the background work of a policy.
struct BackgroundPolicy(Box<dyn Policy>);

impl Policy for BackgroundPolicy {
    fn start(&mut self, memory: &mut Memory) {
        self.0.start(memory);
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        BasePages.fault(memory, fault)
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        self.0.background(memory, instructions);
    }
}

impl HostPolicy {
    pub fn build(self) -> Box<dyn Policy> {
        let named = |name| policies().parse(name).unwrap().policy.build();
        match self {
            HostPolicy::Base => named("base"),
            HostPolicy::Promotes => {
                Box::new(BackgroundPolicy(named("thp:scan_every_instructions=1")))
            }
            HostPolicy::Compacts => Box::new(Compacts(named("base"), Compactor::default())),
            HostPolicy::Eager => named("eager"),
            HostPolicy::Snapshots => Box::new(Snapshots(named("base"))),
            HostPolicy::HugeSnapshots => Box::new(Snapshots(named("thp"))),
            HostPolicy::Huge => named("thp"),
            HostPolicy::Perforated => named(PERFORATED),
            HostPolicy::Reserving => named("perforated:unused_are_holes=true"),
            HostPolicy::Perforates => Box::new(BackgroundPolicy(named(PERFORATED))),
            HostPolicy::PerforatedSnapshots => Box::new(Snapshots(named(PERFORATED))),
            HostPolicy::Gaps => named("gtsm"),
            HostPolicy::GapsAlone => named(GAPS_ALONE),
            HostPolicy::MakesGaps => Box::new(BackgroundPolicy(named(GAPS_LATER))),
            HostPolicy::CompactsGaps => Box::new(Compacts(named(GAPS_ALONE), Compactor::default())),
            HostPolicy::GappedSnapshots => Box::new(Snapshots(named(GAPS_ALONE))),
        }
    }
}
