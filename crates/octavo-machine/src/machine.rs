//! A machine: a design with an operating system, memory and caches of its own, which plays a stream.

use octavo_os::ProcessId;
use octavo_os::page_table::Leaf;
use octavo_os::vmas::pages_of;
use octavo_types::{Compiled, Event, FrameNumber, Instructions, PageNumber};
use rustc_hash::FxHashMap;

use crate::core::{CoreCounts, CoreSetup, Cost, Costs, Speculation, UsedPrefetch};
use crate::counters::Counters;
use crate::design::Design;
use crate::env::{Charged, Env};
use crate::front::{Batch, ControlEvent, Filter, ImageId, LineAccess, Part};

/// Each interval keeps about 50 KB of counters, so that this limit bounds a machine at half a gigabyte.
const MAX_INTERVALS: usize = 10_000;

/// The result of one machine at the end of the stream.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counters since the end of the warm-up; levels, such as memory in use, as of the end.
    pub counters: Counters,
    /// Counters of each interval.
    pub intervals: Vec<Counters>,
    /// The reason why the machine stopped early, such as exhausted memory.
    pub stopped: Option<String>,
}

/// A machine of any design, behind few virtual calls per batch.
pub trait AnyMachine: Send {
    /// Plays a batch, if the machine has no cores that execute instructions. A stopped machine ignores it.
    fn play(&mut self, batch: &Batch);

    /// Has the cores execute nothing, and no time pass, from the start to the end of the warm-up.
    fn fast_forward(&mut self);

    /// The setup of the cores, if they execute instructions out of order.
    fn core_setup(&self) -> Option<&CoreSetup>;

    /// The core that executes instructions now, if any does.
    fn executing_core(&self) -> Option<usize>;

    /// Whether playing depends on the times of the cores.
    fn follows_time(&self) -> bool;

    /// Plays the accesses of a part of a batch, and replaces `costs` by their costs; `all` has the accesses of the
    /// whole batch. Returns `false`, without costs, if the machine had stopped before.
    fn play_part(&mut self, part: &Part<'_>, all: &[LineAccess], costs: &mut Costs) -> bool;

    /// Handles the event of the part played last.
    fn end_part(&mut self, part: &Part<'_>);

    /// Sets the counts of a core, which has executed a part that was played.
    fn executed(&mut self, core: usize, counts: CoreCounts);

    /// Removes the cores that execute instructions, so that cycles are added up. Called before the first interval ends.
    fn drop_cores(&mut self);

    /// Counters since the end of the warm-up (zero before that), and levels as of now.
    fn counters(&self) -> Counters;

    /// Counters of each completed interval.
    fn intervals(&self) -> &[Counters];

    /// The page-table entry of the running process that maps a base page. In a guest its frame is
    /// guest-physical.
    fn leaf(&self, page: PageNumber) -> Option<Leaf>;

    /// Checks that no frame is lost and that every page table agrees with the allocated frames.
    fn check(&self) -> Result<(), String>;

    /// The reason why the machine stopped early, such as exhausted memory.
    fn stopped(&self) -> Option<String>;

    /// [`Design::FILTER`] of its design.
    fn filter(&self) -> Filter;

    /// [`Design::FOLLOWS_INSTRUCTIONS`] of its design.
    fn follows_instructions(&self) -> bool;

    /// Collects the result.
    fn outcome(&self) -> Outcome {
        let intervals = self.intervals().to_vec();
        Outcome { counters: self.counters(), intervals, stopped: self.stopped() }
    }
}

/// A machine of design `D`.
pub struct Machine<D> {
    env: Env,
    /// The memory-management units, by core.
    mmus: Vec<D>,
    /// The cores, if they execute instructions out of order.
    core_setup: Option<CoreSetup>,
    /// The counts of each of these cores.
    cores: Vec<CoreCounts>,
    /// Costs of the accesses in the current part of a batch, for the core.
    costs: Costs,
    /// For each core the cycles of handlers that its pipeline has been charged.
    handled: Vec<u64>,
    /// Live processes.
    processes: FxHashMap<ImageId, ProcessId>,
    /// Whether the warm-up is under way and cores do not execute it.
    is_fast_forwarding: bool,
    instructions: Instructions,
    /// All counters as of the end of the warm-up, once it has ended.
    at_warm_up_end: Option<Counters>,
    interval: Counters,
    intervals: Vec<Counters>,
}

impl<D: Design> Machine<D> {
    /// A machine with one core for each of `mmus`.
    pub fn new(env: Env, mmus: Vec<D>, instructions: Instructions) -> Self {
        Machine {
            env: env.with_composite(D::COMPOSITE),
            handled: vec![0; mmus.len()],
            mmus,
            core_setup: None,
            cores: Vec::new(),
            costs: Costs::default(),
            is_fast_forwarding: false,
            processes: FxHashMap::default(),
            instructions,
            at_warm_up_end: None,
            interval: Counters::default(),
            intervals: Vec::new(),
        }
    }

    /// A machine whose cores execute instructions out of order.
    pub(crate) fn with_cores(self, setup: CoreSetup) -> Self {
        let cores = vec![setup.counts(); self.mmus.len()];
        Machine { core_setup: Some(setup), cores, env: self.env.logging_transfers(), ..self }
    }

    fn collect_counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.env.report(&mut counters);
        self.mmus.iter().for_each(|mmu| mmu.report(&mut counters));
        self.cores.iter().for_each(|core| core.report(&mut counters));
        counters
    }

    fn handle(&mut self, event: &ControlEvent) {
        match event {
            ControlEvent::Memory(event) => {
                let process = self.env.process();
                match event {
                    Event::Present { range, .. } => self.env.present(event, &pages_of(*range)),
                    _ => self.env.with_os(|os| os.event(process, event)),
                };
            }
            ControlEvent::Switch { core, image } => {
                if self.env.switch_to(*core, self.processes[image]) {
                    self.mmus[*core].flush();
                }
            }
            ControlEvent::Spawn { image, copy_of } => {
                let parent = copy_of.map(|parent| self.processes[&parent]);
                let process = self.env.with_os(|os| match parent {
                    Some(parent) => os.fork(parent),
                    None => os.spawn(),
                });
                if let Some(process) = process {
                    self.processes.insert(*image, process);
                }
            }
            ControlEvent::Exit(image) => {
                if let Some(process) = self.processes.remove(image) {
                    self.env.exit(process);
                }
            }
            ControlEvent::Tick(instructions) => self.env.background(*instructions),
            ControlEvent::WarmUpEnd => {
                self.end_fast_forward();
                self.interval = self.collect_counters();
                self.at_warm_up_end = Some(self.interval.clone());
            }
            ControlEvent::IntervalEnd if self.intervals.len() == MAX_INTERVALS => {
                self.env.stop(format!(
                    "there are more than {MAX_INTERVALS} intervals: choose a longer one"
                ));
            }
            ControlEvent::IntervalEnd => {
                let counters = self.collect_counters();
                self.intervals.push(counters.since(&self.interval));
                self.interval = counters;
            }
        }
        self.notify_cores(None);
    }

    /// Lets cores begin to execute. They are not charged handlers, transfers or predictions of the warm-up.
    fn end_fast_forward(&mut self) {
        if std::mem::take(&mut self.is_fast_forwarding) {
            self.discard_transfers();
            self.env.take_speculation();
            for (mmu, handled) in self.mmus.iter().zip(&mut self.handled) {
                *handled = mmu.charged(&self.env).handlers;
            }
        }
    }

    fn discard_transfers(&mut self) {
        self.env.take_transfers(&mut self.costs.transfers);
        self.env.take_background(&mut self.costs);
        self.costs.clear();
    }

    /// Delivers the pending invalidations to every core but `except`, which has applied them already.
    fn notify_cores(&mut self, except: Option<usize>) {
        for invalidation in self.env.pending_invalidations() {
            let space = self.env.address_space(invalidation.process);
            for (core, mmu) in self.mmus.iter_mut().enumerate() {
                if Some(core) != except {
                    mmu.invalidate(space, &invalidation.pages);
                }
            }
        }
        self.mmus.iter_mut().for_each(|mmu| mmu.apply_invalidations(&self.env));
        self.env.clear_invalidations();
    }
}

/// The accesses between two control events. `FOR_CORES` notes their costs, and gives prefetchers their instructions.
struct AccessRun<'a, D, const FOR_CORES: bool> {
    machine: &'a mut Machine<D>,
    accesses: &'a [LineAccess],
    /// The instruction of each access, if prefetchers or designs follow instructions.
    sites: &'a [u64],
}

impl<D: Design, const FOR_CORES: bool> Compiled for AccessRun<'_, D, FOR_CORES> {
    type Output = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        let AccessRun { machine, accesses, sites } = self;
        let core = machine.env.core();
        // Work of software between two parts interrupts the next access.
        let mut charged = machine.mmus[core].charged(&machine.env);
        if D::INTERRUPTS {
            charged.handlers = machine.handled[core];
        }
        let prefetches = FOR_CORES && machine.env.prefetches();
        for (number, access) in accesses.iter().enumerate() {
            if D::FOLLOWS_INSTRUCTIONS || prefetches {
                machine.env.set_site(sites.get(number).copied().unwrap_or(0));
            }
            let frame = machine.mmus[core].access(&mut machine.env, *access)?;
            if FOR_CORES {
                let now = machine.mmus[core].charged(&machine.env);
                let has_walked = machine.env.has_walked_in_background();
                if now != charged || has_walked || prefetches && machine.env.has_prefetched() {
                    machine.note_cost(number, *access, frame, now.since(charged));
                    charged = now;
                }
            }
            if machine.env.observes_accesses() {
                machine.env.record_store(*access, frame);
                if machine.env.is_checked() {
                    machine.mmus[core].check(&machine.env, *access, frame);
                }
            }
            if !machine.env.pending_invalidations().is_empty() {
                machine.notify_cores(machine.env.current_core());
            }
        }
        if D::INTERRUPTS {
            machine.handled[core] = charged.handlers;
        }
        Some(())
    }
}

impl<D: Design> Machine<D> {
    /// Plays the accesses of a part of a batch, and notes their costs if cores execute its instructions. `None` when
    /// memory has run out.
    fn play_accesses(&mut self, part: &Part<'_>, all: &[LineAccess]) -> Option<()> {
        let accesses = &all[part.accesses.clone()];
        let (instructions, sites) = (self.instructions, part.sites);
        self.costs.clear();
        let executes = self.executes();
        let played = if executes || self.env.prefetches() {
            instructions.run(AccessRun::<_, true> { machine: self, accesses, sites })
        } else {
            instructions.run(AccessRun::<_, false> { machine: self, accesses, sites })
        };
        if !executes {
            self.discard_transfers();
        }
        played
    }

    /// Whether cores execute instructions now.
    fn executes(&self) -> bool {
        self.core_setup.is_some() && !self.is_fast_forwarding
    }

    /// Notes what an access has cost.
    #[inline(never)]
    fn note_cost(
        &mut self,
        number: usize,
        access: LineAccess,
        frame: FrameNumber,
        charged: Charged,
    ) {
        let first_transfer = self.costs.transfers.len();
        let transfers = self.env.take_transfers(&mut self.costs.transfers);
        let first_prefetch = self.costs.prefetches.len();
        let noted = (first_transfer, self.costs.transfers.len() - first_transfer);
        let used = self.env.take_prefetches(noted, &mut self.costs.prefetches);
        let first_background = self.costs.background.len();
        self.env.take_background(&mut self.costs);
        let line = self.env.physical_line(access, frame);
        let cycles = |count: u64| count.min(u64::from(u32::MAX / 2)) as u32;
        let speculation = self.env.take_speculation();
        let page_size = match charged.walks {
            0 => None,
            _ if D::TRANSLATES_LINES => None,
            // Other accesses to the page continue at the predicted frame, too.
            _ if speculation == Speculation::Right => None,
            _ => self.leaf(self.env.page(access)).map(|leaf| leaf.size),
        };
        self.costs.costs.push(Cost {
            access: number as u32,
            lookup_cycles: cycles(charged.lookups),
            walk_cycles: cycles(charged.walks),
            cache_cycles: cycles(charged.caches),
            served: self.mmus[self.env.core()].served_by(&self.env),
            first_transfer: first_transfer as u32,
            transfers: transfers as u32,
            page_size,
            handler_cycles: cycles(charged.handlers),
            used_prefetch: used.map(|level| UsedPrefetch { level, line }),
            first_prefetch: first_prefetch as u32,
            prefetches: (self.costs.prefetches.len() - first_prefetch) as u32,
            speculation,
            first_background: first_background as u32,
            background: (self.costs.background.len() - first_background) as u32,
        });
        self.costs.has_flushes |= speculation == Speculation::Wrong;
        self.costs.has_handlers |= charged.handlers > 0;
    }
}

impl<D: Design> AnyMachine for Machine<D> {
    fn play(&mut self, batch: &Batch) {
        debug_assert!(self.core_setup.is_none(), "its cores would execute nothing");
        for part in batch.parts() {
            if self.env.stopped().is_some() {
                return;
            }
            if self.play_accesses(&part, batch.accesses()).is_none() {
                return;
            }
            if let Some(event) = part.event {
                self.handle(event);
            }
        }
    }

    fn fast_forward(&mut self) {
        self.is_fast_forwarding = self.core_setup.is_some();
    }

    fn core_setup(&self) -> Option<&CoreSetup> {
        self.core_setup.as_ref()
    }

    fn executing_core(&self) -> Option<usize> {
        self.executes().then(|| self.env.core())
    }

    fn follows_time(&self) -> bool {
        self.env.is_filled_by_others()
    }

    fn play_part(&mut self, part: &Part<'_>, all: &[LineAccess], costs: &mut Costs) -> bool {
        if self.env.stopped().is_some() {
            costs.clear();
            return false;
        }
        // Where memory runs out, the core executes the instructions with the costs so far.
        let _ = self.play_accesses(part, all);
        std::mem::swap(&mut self.costs, costs);
        true
    }

    fn executed(&mut self, core: usize, counts: CoreCounts) {
        self.cores[core] = counts;
        let cycles = self.cores.iter().map(CoreCounts::cycles).max().unwrap_or(0);
        self.env.fill_by_others(cycles);
    }

    fn end_part(&mut self, part: &Part<'_>) {
        if self.env.stopped().is_none()
            && let Some(event) = part.event
        {
            self.handle(event);
        }
    }

    fn drop_cores(&mut self) {
        self.is_fast_forwarding = false;
        debug_assert!(self.intervals.is_empty(), "intervals have counters of cores");
        self.core_setup = None;
        self.cores.clear();
        self.env.stop_logging_transfers();
    }

    fn counters(&self) -> Counters {
        let counters = self.collect_counters();
        counters.since(self.at_warm_up_end.as_ref().unwrap_or(&counters))
    }

    fn intervals(&self) -> &[Counters] {
        &self.intervals
    }

    fn leaf(&self, page: PageNumber) -> Option<Leaf> {
        self.env.os().memory().process(self.env.process()).table.leaf(page)
    }

    fn check(&self) -> Result<(), String> {
        self.env.check_memory()
    }

    fn filter(&self) -> Filter {
        D::FILTER
    }

    fn follows_instructions(&self) -> bool {
        D::FOLLOWS_INSTRUCTIONS
    }

    fn stopped(&self) -> Option<String> {
        self.env.stopped().map(str::to_owned)
    }
}
