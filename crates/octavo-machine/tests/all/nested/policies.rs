//! Operations of the host on the memory of its virtual machine.

use octavo_os::frames::{CompactionLimits, Compactor, Order, OutOfMemory};
use octavo_os::policy::{BasePages, Fault, OsConfig, Policy};
use octavo_os::{Memory, ProcessId};
use octavo_types::PageSize;

/// Whatever region is not all held is good enough, and pages are looked after all the time.
const PERFORATED: &str = "perforated:max_filter_bits=8:min_parts=0:scan_every_instructions=1";

const GAPS_ALONE: &str = "gtsm:whole_blocks=false";
const GAPS_LATER: &str = "gtsm:whole_blocks=false:scan_every_instructions=1";

/// The host's side of a case.
#[derive(Clone, Copy, Debug)]
pub enum HostPolicy {
    Base,
    /// Base pages, of which huge ones are made behind the guest's back.
    Promotes,
    /// Base pages, which are moved behind the guest's back.
    Compacts,
    Eager,
    /// Base pages of a virtual machine that is copied every now and then.
    Snapshots,
    /// The same of huge pages.
    HugeSnapshots,
    /// Huge pages.
    Huge,
    /// Perforated pages.
    Perforated,
    /// Perforated pages whose untouched base pages are holes.
    Reserving,
    /// Base pages, of which perforated ones are made behind the guest's back.
    Perforates,
    /// Perforated pages of a virtual machine that is copied every now and then.
    PerforatedSnapshots,
    /// Huge pages, and pages with gaps where there is no block for one.
    Gaps,
    /// Pages with gaps alone.
    GapsAlone,
    /// Base pages, of which pages with gaps are made behind the guest's back.
    MakesGaps,
    /// Pages with gaps in a memory that is compacted again and again.
    CompactsGaps,
    /// Pages with gaps of a virtual machine that is copied every now and then.
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

/// Another policy; and behind the guest's back copies of the virtual machine that come and go.
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

/// Another policy, in a memory that is compacted again and again.
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

/// Base pages, and what else a policy makes of them later.
struct Later(Box<dyn Policy>);

impl Policy for Later {
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
        let named = |name| OsConfig::parse(name).unwrap().policy.build();
        match self {
            HostPolicy::Base => named("base"),
            HostPolicy::Promotes => Box::new(Later(named("thp:scan_every_instructions=1"))),
            HostPolicy::Compacts => Box::new(Compacts(named("base"), Compactor::default())),
            HostPolicy::Eager => named("eager"),
            HostPolicy::Snapshots => Box::new(Snapshots(named("base"))),
            HostPolicy::HugeSnapshots => Box::new(Snapshots(named("thp"))),
            HostPolicy::Huge => named("thp"),
            HostPolicy::Perforated => named(PERFORATED),
            HostPolicy::Reserving => named("perforated:unused_are_holes=true"),
            HostPolicy::Perforates => Box::new(Later(named(PERFORATED))),
            HostPolicy::PerforatedSnapshots => Box::new(Snapshots(named(PERFORATED))),
            HostPolicy::Gaps => named("gtsm"),
            HostPolicy::GapsAlone => named(GAPS_ALONE),
            HostPolicy::MakesGaps => Box::new(Later(named(GAPS_LATER))),
            HostPolicy::CompactsGaps => Box::new(Compacts(named(GAPS_ALONE), Compactor::default())),
            HostPolicy::GappedSnapshots => Box::new(Snapshots(named(GAPS_ALONE))),
        }
    }
}
