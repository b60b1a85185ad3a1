//! A design with an operating system, memory and caches of its own, playing a stream.

use octavo_os::ProcessId;
use octavo_os::page_table::Leaf;
use octavo_types::{Compiled, Instructions, PageNumber};
use rustc_hash::FxHashMap;

use crate::counters::Counters;
use crate::design::Design;
use crate::env::Env;
use crate::front::{Batch, ControlEvent, Filter, ImageId, LineAccess};

/// An interval keeps some 50 KB of counters: together at most half a gigabyte a machine.
const MAX_INTERVALS: usize = 10_000;

/// What a machine has when all is over.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it counted since its warm-up, and what there was at the end.
    pub counters: Counters,
    /// What it counted in each interval.
    pub intervals: Vec<Counters>,
    /// Why it could not go on, if it could not.
    pub stopped: Option<String>,
}

/// A machine of any design: one call a batch.
pub trait AnyMachine: Send {
    /// Plays what comes next. After memory has run out it does nothing more.
    fn play(&mut self, batch: &Batch);

    /// What it has counted since its warm-up (nothing where that is not over), and what there is
    /// now.
    fn counters(&self) -> Counters;

    /// What it counted in each interval that is over.
    fn intervals(&self) -> &[Counters];

    /// The page of the running process that holds a base page, as its page table has it: in a guest, at
    /// a frame of the guest's.
    fn leaf(&self, page: PageNumber) -> Option<Leaf>;

    /// Whether no frame was lost, and every page table says what memory holds; else what is wrong.
    fn check(&self) -> Result<(), String>;

    /// Why it could not go on, if it could not.
    fn stopped(&self) -> Option<String>;

    /// As [`Design::FILTER`].
    fn filter(&self) -> Filter;

    /// What it counted, and why it stopped if it did.
    fn outcome(&self) -> Outcome {
        let intervals = self.intervals().to_vec();
        Outcome { counters: self.counters(), intervals, stopped: self.stopped() }
    }
}

/// A machine.
pub struct Machine<D> {
    env: Env,
    /// By core.
    mmus: Vec<D>,
    /// Those that live.
    processes: FxHashMap<ImageId, ProcessId>,
    instructions: Instructions,
    /// What the warm-up had, once it is over.
    at_warm_up_end: Option<Counters>,
    interval: Counters,
    intervals: Vec<Counters>,
}

impl<D: Design> Machine<D> {
    /// A machine whose cores have these units, one each.
    pub fn new(env: Env, mmus: Vec<D>, instructions: Instructions) -> Self {
        Machine {
            env,
            mmus,
            processes: FxHashMap::default(),
            instructions,
            at_warm_up_end: None,
            interval: Counters::default(),
            intervals: Vec::new(),
        }
    }

    fn collect_counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.env.report(&mut counters);
        self.mmus.iter().for_each(|mmu| mmu.report(&mut counters));
        counters
    }

    fn handle(&mut self, handle: &ControlEvent) {
        match handle {
            ControlEvent::Memory(event) => {
                let process = self.env.process();
                self.env.with_os(|os| os.event(process, event));
            }
            ControlEvent::Switch { core, image } => {
                if self.env.run(*core, self.processes[image]) {
                    self.mmus[*core].flush();
                }
            }
            ControlEvent::Spawn { image, copy_of } => {
                let parent = copy_of.map(|parent| self.processes[&parent]);
                let began = self.env.with_os(|os| match parent {
                    Some(parent) => os.fork(parent),
                    None => os.spawn(),
                });
                if let Some(process) = began {
                    self.processes.insert(*image, process);
                }
            }
            ControlEvent::Exit(image) => {
                if let Some(process) = self.processes.remove(image) {
                    self.env.end(process);
                }
            }
            ControlEvent::Tick(instructions) => self.env.background(*instructions),
            ControlEvent::WarmUpEnd => {
                self.interval = self.collect_counters();
                self.at_warm_up_end = Some(self.interval.clone());
            }
            ControlEvent::IntervalEnd if self.intervals.len() == MAX_INTERVALS => {
                self.env.stop(format!(
                    "there are more than {MAX_INTERVALS} intervals: choose a longer one"
                ));
            }
            ControlEvent::IntervalEnd => {
                let collect_counters = self.collect_counters();
                self.intervals.push(collect_counters.since(&self.interval));
                self.interval = collect_counters;
            }
        }
        self.notify_cores(None);
    }

    /// All cores forget what is stale, but one that has done so.
    fn notify_cores(&mut self, except: Option<usize>) {
        for invalidation in self.env.pending_invalidations() {
            let of = self.env.address_space(invalidation.process);
            for (core, mmu) in self.mmus.iter_mut().enumerate() {
                if Some(core) != except {
                    mmu.invalidate(of, &invalidation.pages);
                }
            }
        }
        self.mmus.iter_mut().for_each(|mmu| mmu.apply_invalidations(&self.env));
        self.env.clear_invalidations();
    }
}

/// The accesses between two marks.
struct AccessRun<'a, D> {
    machine: &'a mut Machine<D>,
    accesses: &'a [LineAccess],
}

impl<D: Design> Compiled for AccessRun<'_, D> {
    type Output = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        let AccessRun { machine, accesses } = self;
        let core = machine.env.core();
        for access in accesses {
            let frame = machine.mmus[core].access(&mut machine.env, *access)?;
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
        Some(())
    }
}

impl<D: Design> AnyMachine for Machine<D> {
    fn play(&mut self, batch: &Batch) {
        for (accesses, handle) in batch.parts() {
            if self.env.stopped().is_some() {
                return;
            }
            if self.instructions.run(AccessRun { machine: self, accesses }).is_none() {
                return;
            }
            if let Some(handle) = handle {
                self.handle(handle);
            }
        }
    }

    fn counters(&self) -> Counters {
        let collect_counters = self.collect_counters();
        collect_counters.since(self.at_warm_up_end.as_ref().unwrap_or(&collect_counters))
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

    fn stopped(&self) -> Option<String> {
        self.env.stopped().map(str::to_owned)
    }
}
