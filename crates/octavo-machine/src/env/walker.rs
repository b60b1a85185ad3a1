//! Page walkers: which entries a walk reads, by what the walker of a core has cached.

use octavo_hw::{Asid, WalkCaches};
use octavo_os::page_table::{HardwareTable, PageTable, Walk};
use octavo_types::{AddrRange, PageNumber, PhysAddr};

use super::walk::page_start;
use crate::counters::Counters;

/// The reads of a walk, in groups of probes. The probes of a group are issued together, and groups one after
/// another, so that a walk takes the sum over its groups of the slowest probe.
#[derive(Default)]
pub struct WalkPlan {
    probes: Vec<Probe>,
    group: u32,
    /// The entry that holds the accessed and dirty bits of the page; `None` if the walk finds none.
    pub entry: Option<PhysAddr>,
    /// Reads that the walk does not wait for.
    pub background: Vec<PhysAddr>,
    /// Cycles before the first probe: hashing, and look-ups of the walker's own caches.
    pub start_cycles: u32,
}

/// A read of a page-table entry.
#[derive(Clone, Copy)]
struct Probe {
    at: PhysAddr,
    group: u32,
}

impl WalkPlan {
    /// Adds a probe to the last group.
    pub fn probe(&mut self, at: PhysAddr) {
        self.probes.push(Probe { at, group: self.group });
    }

    /// Begins a new group, which waits for the ones before.
    pub fn wait(&mut self) {
        self.group += 1;
    }

    fn clear(&mut self) {
        self.probes.clear();
        self.background.clear();
        (self.group, self.entry, self.start_cycles) = (0, None, 0);
    }

    /// As [`Planned::execute`].
    fn execute(&self, mut read: impl FnMut(PhysAddr, bool) -> Option<u32>) -> Option<u32> {
        let (mut total, mut slowest, mut group) = (self.start_cycles, 0, 0);
        for probe in &self.probes {
            let latency_cycles = read(probe.at, self.entry == Some(probe.at))?;
            if probe.group == group {
                slowest = slowest.max(latency_cycles);
            } else {
                total += slowest;
                (slowest, group) = (latency_cycles, probe.group);
            }
        }
        for at in &self.background {
            read(*at, false)?;
        }
        Some(total + slowest)
    }
}

/// The walker of a core for page tables in a format of the design.
pub trait Walker: Send {
    /// Plans the walk of a base page, and updates the walker's caches.
    fn plan(&mut self, table: &dyn HardwareTable, of: Asid, page: PageNumber, plan: &mut WalkPlan);

    /// Drops what is cached about a range.
    fn invalidate(&mut self, of: Asid, range: AddrRange);

    /// Drops everything that is cached.
    fn clear(&mut self);

    /// Adds the counters of its caches to `counters`, under components that begin with `component`.
    fn report(&self, component: &str, counters: &mut Counters);
}

/// The page walker of a core: that of radix trees with its walk caches, or one of the design.
pub(super) struct PageWalker {
    pub caches: WalkCaches<()>,
    own: Option<Box<dyn Walker>>,
    /// Memory for the next plan of the design's walker.
    unused: WalkPlan,
}

/// The reads of a walk.
pub(super) enum Planned {
    /// The steps of a radix tree's walk from this one on, each a group of its own.
    Steps(usize),
    /// The plan of the design's walker.
    Own(WalkPlan),
}

impl Planned {
    /// Executes the reads. `read` is given an address and whether the entry there holds the page's accessed and
    /// dirty bits, and returns the latency in cycles, or `None` when memory has run out. Returns the latency of
    /// the walk.
    #[inline(always)]
    pub fn execute(
        &self,
        walk: &Walk,
        mut read: impl FnMut(PhysAddr, bool) -> Option<u32>,
    ) -> Option<u32> {
        let first = match self {
            Planned::Steps(first) => *first,
            Planned::Own(plan) => return plan.execute(read),
        };
        let steps = walk.steps();
        let mut latency_cycles = 0;
        for (number, step) in steps.iter().enumerate().skip(first) {
            latency_cycles += read(step.at, number + 1 == steps.len())?;
        }
        Some(latency_cycles)
    }
}

impl PageWalker {
    /// A walker of radix trees.
    pub fn new(caches: WalkCaches<()>) -> Self {
        PageWalker { caches, own: None, unused: WalkPlan::default() }
    }

    /// Replaces the walker of radix trees.
    pub fn replace(&mut self, own: Box<dyn Walker>) {
        self.own = Some(own);
    }

    /// The walker of the design, if any.
    pub fn own(&self) -> Option<&dyn Walker> {
        self.own.as_deref()
    }

    /// Plans the walk of a base page by the caches of the walker, and updates them.
    #[inline(always)]
    pub fn plan(
        &mut self,
        table: &PageTable,
        walk: &Walk,
        (of, page): (Asid, PageNumber),
    ) -> Planned {
        if self.own.is_some() {
            return self.plan_own(table, (of, page));
        }
        let addr = page_start(page);
        let from = self.caches.deepest(of, addr).map_or(u8::MAX, |(level, ())| level);
        let steps = walk.steps();
        let first = steps.iter().take_while(|step| step.level >= from).count();
        debug_assert!(first < steps.len(), "a stale walk cache");
        for (step, next) in steps.iter().zip(&steps[1..]).skip(first) {
            // An entry that points to a node of the next level, not an alias.
            if next.level < step.level {
                self.caches.fill(of, addr, step.level, ());
            }
        }
        Planned::Steps(first)
    }

    #[cold]
    fn plan_own(&mut self, table: &PageTable, (of, page): (Asid, PageNumber)) -> Planned {
        let own = self.own.as_mut().expect("a walker of the design");
        let table = table.hardware().expect("a walker and its tables come together");
        let mut plan = std::mem::take(&mut self.unused);
        plan.clear();
        own.plan(table, of, page, &mut plan);
        Planned::Own(plan)
    }

    /// Takes the memory of an executed plan back.
    #[inline(always)]
    pub fn reuse(&mut self, planned: Planned) {
        if let Planned::Own(plan) = planned {
            self.unused = plan;
        }
    }

    /// Drops what is cached about a range.
    pub fn invalidate(&mut self, of: Asid, range: AddrRange) {
        self.caches.invalidate(of, range);
        if let Some(own) = &mut self.own {
            own.invalidate(of, range);
        }
    }

    /// Drops everything that is cached.
    pub fn clear(&mut self) {
        self.caches.clear();
        if let Some(own) = &mut self.own {
            own.clear();
        }
    }
}
