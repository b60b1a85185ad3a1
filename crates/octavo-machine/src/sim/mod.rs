//! The stream consumer that drives machines of several designs side by side.

mod group;
mod process;
mod schedule;
mod workers;

use std::collections::BTreeMap;

use octavo_config::MachineConfig;
use octavo_os::vmas::{pages_of, range_of};
use octavo_trace::{
    Began, Counts, Observer, Start, StreamEnd, StreamIdentity, StreamProgress, TimeSlicedConsumer,
    WordConsumer,
};
use octavo_types::{
    AddrRange, AddressRoom, AddressWidth, Event, Instructions, MapSource, Protection, Segment,
    VirtAddr,
};

use crate::config::{self, ConfigError, FrontShape};
use crate::designs::{DesignSpec, Setup};
use crate::front::{Batch, ControlEvent, Filter, Front, Image, ImageId};
use crate::machine::{AnyMachine, Outcome};
use process::{Placement, Process};
use schedule::Schedule;
use workers::{Machines, Workers};

/// Approximate number of accesses per batch. The short streams of tests have several.
const BATCH_ACCESSES: usize = if cfg!(test) { 1 << 6 } else { 1 << 14 };

/// Approximate number of accesses per batch for designs with code outside of the simulator, which may need milliseconds
/// for an access: an interrupted simulation first plays the batches that wait. The first batches are shorter.
const BATCH_ACCESSES_OUTSIDE: usize = 1 << 8;
const FIRST_BATCH_ACCESSES_OUTSIDE: usize = 1 << 4;

/// How the cycles of a simulation are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Timing {
    /// All latencies are added up.
    Additive,
    /// Cores execute the instructions, as configured by [`octavo_config::CoreConfig::pipeline`].
    OutOfOrder,
    /// Out of order if the machine has such cores and the stream has register dependences, else additive.
    #[default]
    ByStream,
}

/// A stream with register dependences has some within this number of instructions. No interval is shorter.
const DEPENDENT_INSTRUCTIONS: u64 = 1000;

/// The configuration of a simulation.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The machine that all designs share.
    pub machine: MachineConfig,
    /// The initial state of its memory, and how it is built.
    pub setup: Setup,
    /// The designs.
    pub designs: Vec<DesignSpec>,
    /// Whether addresses are moved to where Linux would have put them.
    pub native_layout: bool,
    /// Instructions that are simulated before counting starts.
    pub warm_up_instructions: u64,
    /// Whether cores do not execute the warm-up: caches, TLBs and memory change as usual, and no time passes.
    pub is_fast_forwarded: bool,
    /// Length of an interval in instructions, if intervals are reported.
    pub interval_instructions: Option<u64>,
    /// How cycles are computed.
    pub timing: Timing,
}

impl SimConfig {
    /// A simulation without a warm-up and intervals, where addresses are not moved and translations are not checked.
    ///
    /// # Errors
    ///
    /// As [`Setup::new`].
    pub fn new(
        machine: MachineConfig,
        designs: Vec<DesignSpec>,
        instructions: Instructions,
    ) -> Result<Self, String> {
        Ok(SimConfig {
            setup: Setup::new(&machine, instructions)?,
            machine,
            designs,
            native_layout: false,
            warm_up_instructions: 0,
            is_fast_forwarded: false,
            interval_instructions: None,
            timing: Timing::default(),
        })
    }

    /// The machine, without a pipeline where latencies are added up.
    fn timed_machine(&self) -> MachineConfig {
        let mut machine = self.machine.clone();
        if self.timing == Timing::Additive {
            machine.core.pipeline = None;
        }
        machine
    }
}

/// The demands of machines on a stream; see [`Sim::stream`].
#[derive(Clone, PartialEq, Debug)]
pub struct StreamShape {
    front: FrontShape,
    /// A filter weaker than a machine's own does not change its counts, but moves the instructions by which walks
    /// overlap.
    filter: Filter,
    /// Whether prefetchers or designs need the instructions of accesses.
    notes_sites: bool,
    timing: Timing,
    native_layout: bool,
    warm_up_instructions: u64,
    interval_instructions: Option<u64>,
}

/// Machines of several designs that play one process, or several time-sliced processes.
pub struct Sim {
    config: SimConfig,
    front: Front,
    shape: StreamShape,
    placement: Placement,
    running: Process,
    /// The stream of the running process, where the input has several streams.
    stream: Option<u32>,
    waiting: BTreeMap<u32, Process>,
    /// Number of processes begun so far.
    begun: u32,
    machines: Workers,
    /// Results of the machines, once the stream has ended.
    outcomes: Vec<Outcome>,
    /// Totals of processes that have exited.
    exited: Counts,
    schedule: Schedule,
    /// Whether any stream has recorded a mapping.
    is_mapped: bool,
    /// Whether any instruction had register dependences.
    has_dependences: bool,
    /// Whether dependences are looked for.
    seeks_dependences: bool,
    empty_batch: Batch,
    /// Approximate number of accesses of the next batch.
    batch_accesses: usize,
    /// Approximate number of accesses of the longest batch.
    most_batch_accesses: usize,
}

impl Sim {
    /// Creates the machines in their initial state.
    pub fn new(config: &SimConfig) -> Result<Self, ConfigError> {
        Sim::of_several(std::slice::from_ref(config))
    }

    /// Creates the machines of several configurations, which one stream drives: those of the first
    /// configuration, then those of the second, and so on. Each machine counts what it counts alone.
    ///
    /// # Panics
    ///
    /// If configurations differ in [`Sim::stream`], or there is none.
    pub fn of_several(configs: &[SimConfig]) -> Result<Self, ConfigError> {
        let made = configs.iter().map(|config| {
            let (machines, filter) = make(config)?;
            let machine = config.timed_machine();
            let shape = StreamShape {
                front: config::shape(&machine),
                filter,
                notes_sites: notes_sites(&config.machine, &machines),
                timing: config.timing,
                native_layout: config.native_layout,
                warm_up_instructions: config.warm_up_instructions,
                interval_instructions: config.interval_instructions,
            };
            Ok((SimConfig { machine, ..config.clone() }, machines, shape))
        });
        made.collect::<Result<_, ConfigError>>().map(Self::of)
    }

    /// Simulates the machines of several simulations that have played nothing, as [`Sim::of_several`] does.
    ///
    /// # Panics
    ///
    /// As [`Sim::of_several`].
    pub fn together(sims: Vec<Sim>) -> Self {
        let parts = sims.into_iter().map(|mut sim| (sim.config, sim.machines.take(), sim.shape));
        Self::of(parts.collect())
    }

    fn of(parts: Vec<(SimConfig, Machines, StreamShape)>) -> Self {
        let mut parts = parts.into_iter();
        let (mut config, mut machines, stream) = parts.next().expect("a configuration");
        for (other, more, wanted) in parts {
            assert!(stream == wanted, "the machines want different streams");
            config.designs.extend(other.designs);
            machines.extend(more);
        }
        let machine = &config.machine;
        let (batch_accesses, most_batch_accesses) =
            match config.designs.iter().any(DesignSpec::is_outside) {
                true => (FIRST_BATCH_ACCESSES_OUTSIDE, BATCH_ACCESSES_OUTSIDE),
                false => (BATCH_ACCESSES, BATCH_ACCESSES),
            };
        let mut sim = Sim {
            front: config::front(machine, stream.filter, stream.notes_sites),
            shape: stream,
            placement: Placement::new(machine.core.count as usize),
            running: Process::new(ImageId(0), Image::new(machine.page_table.levels), false),
            stream: None,
            waiting: BTreeMap::new(),
            begun: 0,
            machines: Workers::new(machines, config.setup.instructions),
            outcomes: Vec::new(),
            exited: Counts::default(),
            schedule: Schedule::new(config.warm_up_instructions, config.interval_instructions),
            is_mapped: false,
            has_dependences: false,
            seeks_dependences: true,
            empty_batch: Batch::default(),
            batch_accesses,
            most_batch_accesses,
            config: config.clone(),
        };
        sim.running = sim.begin(None);
        sim.switch_to_running();
        if sim.schedule.is_due() {
            // Without a warm-up, events before the first instruction count, too.
            sim.push_due_events();
        }
        sim
    }

    /// Begins a process, empty or as a copy of another.
    fn begin(&mut self, copy_of: Option<ImageId>) -> Process {
        let id = ImageId(self.begun);
        self.begun += 1;
        self.front.push_event(ControlEvent::Spawn { image: id, copy_of });
        Process::new(id, self.empty_image(), copy_of.is_some())
    }

    fn empty_image(&self) -> Image {
        let machine = &self.config.machine;
        let marks_instructions = machine.core.pipeline.is_some() || self.shape.notes_sites;
        Image::new(machine.page_table.levels).marking_instructions(marks_instructions)
    }

    /// Switches to the running process on the core of its current thread.
    fn switch_to_running(&mut self) {
        let core = self.placement.core_of(&mut self.running);
        self.front.switch(core, self.running.id);
    }

    /// Reference counts of all streams, without the warm-up.
    pub fn counts(&self) -> Counts {
        self.schedule.counted(&self.total())
    }

    /// Reference counts of all streams so far.
    fn total(&self) -> Counts {
        let all = self.waiting.values().chain([&self.running]);
        all.fold(self.exited.clone(), |sum, process| sum.plus(&process.counts))
    }

    /// Whether any stream has recorded a mapping. If none has, all addresses count as mapped.
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Whether any instruction had register dependences, among the first 1000 at least.
    pub fn has_dependences(&self) -> bool {
        self.has_dependences
    }

    /// Looks for dependences. If there are none among the first instructions, drops the cores where the timing depends
    /// on the stream.
    #[cold]
    fn seek_dependences(&mut self, segment: &Segment) {
        self.has_dependences = !segment.dependences().is_empty();
        self.seeks_dependences = !self.has_dependences;
        if self.seeks_dependences && self.schedule.instructions() >= DEPENDENT_INSTRUCTIONS {
            self.seeks_dependences = false;
            self.drop_cores();
        }
    }

    /// Adds cycles up from here on, if the timing depends on the stream and the stream has no dependences.
    fn drop_cores(&mut self) {
        let is_timed = self.config.machine.core.pipeline.is_some();
        if self.config.timing != Timing::ByStream || !is_timed || self.has_dependences {
            return;
        }
        // The batch being filled is not submitted here: an additional end of a batch would end repeats.
        self.machines.drop_cores();
        self.config.machine.core.pipeline = None;
        self.front.drop_cores();
        if !self.shape.notes_sites {
            let waiting = self.waiting.values_mut();
            let all = waiting.chain([&mut self.running]);
            all.for_each(|process| process.image.stop_marking_instructions());
        }
    }

    /// Replaces the machines by these, which must be in their initial state.
    pub fn with_machines(mut self, machines: Vec<Box<dyn AnyMachine>>) -> Self {
        self.shape.notes_sites = notes_sites(&self.config.machine, &machines);
        self.front = self.front.noting_sites(self.shape.notes_sites);
        self.running.image = self.empty_image();
        Sim { machines: Workers::new(machines, self.config.setup.instructions), ..self }
    }

    /// The demands of the machines on a stream: [`Sim::of_several`] takes configurations that agree in it.
    pub fn stream(&self) -> &StreamShape {
        &self.shape
    }

    /// The designs.
    pub fn designs(&self) -> &[DesignSpec] {
        &self.config.designs
    }

    /// The machines, in the order of their designs, once [all batches are played](Sim::finish).
    pub fn machines(&self) -> &[Box<dyn AnyMachine>] {
        self.machines.machines()
    }

    /// The results of the machines, in the order of their designs, once the stream has ended.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Collects the results and drops the machines: there may be hundreds of processes with a simulation
    /// each.
    fn collect_outcomes(&mut self) {
        self.finish();
        self.outcomes = self.machines.take().iter().map(|machine| machine.outcome()).collect();
        self.running.image = self.empty_image();
        self.empty_batch = Batch::default();
        self.front = config::front(&self.config.machine, Filter::Nothing, self.shape.notes_sites);
    }

    /// Plays everything received so far and waits for it.
    pub fn finish(&mut self) {
        self.drop_cores();
        if self.schedule.is_due() {
            self.push_due_events();
        }
        self.submit_batch();
        self.machines.all();
    }

    fn submit_batch(&mut self) {
        let batch = self.front.take_batch(std::mem::take(&mut self.empty_batch));
        self.empty_batch = self.machines.play(batch);
        let longer = self.batch_accesses + self.batch_accesses / 16;
        self.batch_accesses = longer.min(self.most_batch_accesses);
    }

    #[cold]
    fn push_due_events(&mut self) {
        let total = self.total();
        self.schedule.emit_due(&total, |event| self.front.push_event(event));
    }

    /// Prepares the first instruction of a process. Where the trace records no mappings, the whole address
    /// space is mapped as anonymous memory.
    #[cold]
    fn begin_execution(&mut self) {
        self.running.has_begun = true;
        if !self.running.is_mapped {
            self.front.event(&self.running.image, &everything());
        }
    }
}

/// The machines of a configuration, and the strongest filter that keeps their counts.
fn make(config: &SimConfig) -> Result<(Vec<Box<dyn AnyMachine>>, Filter), ConfigError> {
    let given = config.timed_machine();
    let mut machines = Vec::new();
    let mut filter = Filter::BySide.min(config::filter(&given));
    for spec in &config.designs {
        let adapted = spec.machine(&given)?;
        let mut machine = spec.make(&adapted, &config.setup)?;
        if config.is_fast_forwarded && config.warm_up_instructions > 0 {
            machine.fast_forward();
        }
        filter = filter.min(config::filter(&adapted)).min(machine.filter());
        machines.push(machine);
    }
    Ok((machines, filter))
}

/// Whether prefetchers of a machine or its designs need the instructions of accesses.
fn notes_sites(machine: &MachineConfig, machines: &[Box<dyn AnyMachine>]) -> bool {
    config::notes_sites(machine) || machines.iter().any(|machine| machine.follows_instructions())
}

/// The mapping of a process whose trace records none: the whole address space, anonymous.
pub fn everything() -> Event {
    Event::Map {
        range: AddrRange::new(VirtAddr::NULL, u64::MAX),
        protection: Protection { read: true, write: true, execute: true },
        source: MapSource::Anonymous,
        flags: 0,
    }
}

impl Sim {
    /// Plays an event of the running process.
    pub fn event(&mut self, event: &Event) {
        let process = &mut self.running;
        process.counts.event(event);
        if let Event::ThreadSwitch { thread } = event
            && process.thread != *thread
        {
            process.thread = *thread;
            self.switch_to_running();
            return;
        }
        let maps = matches!(event, Event::Map { .. });
        process.is_mapped |= maps;
        self.is_mapped |= maps;
        process.present.event(event);
        if let Event::Present { range, known, first } = *event {
            // If it is not known how much of the memory is present, pages are mapped at their first touch. Where
            // counting resumes, events repeat memory that was present before.
            let new = if known { process.present.add(pages_of(range)) } else { Vec::new() };
            for pages in new {
                let event = Event::Present { range: range_of(&pages), known, first };
                self.front.event(&process.image, &event);
            }
            return;
        }
        if process.has_begun || !process.is_copy {
            self.front.event(&process.image, event);
        }
    }
}

impl WordConsumer for Sim {
    fn width(&self) -> Option<AddressWidth> {
        Some(AddressWidth::of_levels(self.config.machine.page_table.levels))
    }

    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        if self.seeks_dependences {
            self.seek_dependences(segment);
        }
        if self.schedule.is_due() {
            self.push_due_events();
        }
        if !self.running.has_begun {
            self.begin_execution();
        }
        let mut room = AddressRoom::new();
        let addresses = segment.addresses(&words[1..], &mut room);
        let process = &mut self.running;
        process.counts.execution(segment, addresses);
        self.schedule.executed(segment.instructions());
        self.front.execution(&mut process.image, words[0] as usize, segment, addresses);
        if self.front.len() >= self.batch_accesses {
            self.submit_batch();
        }
    }

    fn record(&mut self, _: &[u64], event: Option<&Event>) {
        if let Some(event) = event {
            self.event(event);
        }
    }

    fn started(&mut self, start: &Start) {
        if self.config.native_layout {
            self.running.image.relocate(start.relocation.clone());
        }
    }
}

impl Observer for Sim {
    fn ended(&mut self, _: &StreamIdentity, _: &StreamEnd) {
        self.collect_outcomes();
    }

    fn progress(&self) -> StreamProgress {
        let all = self.waiting.values().chain([&self.running]);
        let references = all.map(|process| process.counts.references()).sum::<u64>();
        StreamProgress {
            references: self.exited.references() + references,
            instructions: self.schedule.instructions(),
            resident_bytes: 0,
        }
    }
}

impl TimeSlicedConsumer for Sim {
    type Process = Counts;

    fn begun(&mut self, identity: &StreamIdentity) {
        // The process created at construction is the first to begin.
        if self.begun == 1 && self.stream.is_none() && !self.running.has_begun {
            self.stream = Some(identity.stream);
            return;
        }
        let parent = identity.parent.filter(|_| identity.began == Began::Fork);
        let parent = parent.and_then(|parent| match self.stream == Some(parent) {
            true => Some(self.running.id),
            false => self.waiting.get(&parent).map(|process| process.id),
        });
        let process = self.begin(parent);
        self.waiting.insert(identity.stream, process);
    }

    fn switch_to(&mut self, stream: u32) {
        if self.stream == Some(stream) {
            return;
        }
        let next = self.waiting.remove(&stream).expect("it has begun");
        let previous = std::mem::replace(&mut self.running, next);
        if let Some(previous_stream) = self.stream.replace(stream) {
            self.waiting.insert(previous_stream, previous);
        }
        self.switch_to_running();
    }

    fn process_ended(&mut self, identity: &StreamIdentity, _: &StreamEnd) -> Counts {
        self.switch_to(identity.stream);
        self.front.push_event(ControlEvent::Exit(self.running.id));
        self.stream = None;
        let counts = std::mem::take(&mut self.running.counts);
        self.exited = std::mem::take(&mut self.exited).plus(&counts);
        counts
    }

    fn all_ended(&mut self) {
        self.collect_outcomes();
    }
}
