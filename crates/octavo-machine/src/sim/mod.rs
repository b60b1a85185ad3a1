//! The consumer of a stream that has machines of several designs side by side.

mod process;
mod schedule;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_config::MachineConfig;
use octavo_os::frames::fragmentation::Fragmentation;
use octavo_trace::{
    Began, Counts, Observer, Start, StreamEnd, StreamIdentity, StreamProgress, TurnConsumer,
    WordConsumer,
};
use octavo_types::{
    AddrRange, AddressWidth, Consumer, Event, Instructions, MapSource, Protection, Segment,
    VirtAddr,
};

use crate::config::{self, ConfigError};
use crate::designs::{DesignSpec, Setup};
use crate::front::{Batch, ControlEvent, Filter, Front, Image, ImageId};
use crate::machine::{AnyMachine, Outcome};
use process::{Placement, Process};
use schedule::Schedule;
use workers::Workers;

/// Accesses of a batch, about.
const BATCH_ACCESSES: usize = 1 << 14;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The machine, the same for all designs.
    pub machine: MachineConfig,
    /// What its memory is like at the start: [`octavo_config::MemoryConfig::start`].
    pub start: Arc<Fragmentation>,
    /// The same of the host's memory, if the machine has a host.
    pub host_start: Option<Arc<Fragmentation>>,
    /// The designs.
    pub designs: Vec<DesignSpec>,
    /// Whether addresses are moved to where Linux would have put them.
    pub native_layout: bool,
    /// Instructions that are simulated and not counted.
    pub warm_up_instructions: u64,
    /// Instructions between two intervals, if there are any.
    pub interval_instructions: Option<u64>,
    /// Whether each translation is compared with what the page table says.
    pub is_checked: bool,
    /// What kernels are compiled for.
    pub instructions: Instructions,
}

/// Machines of several designs, playing one process image, or several that take turns.
pub struct Sim {
    config: SimConfig,
    front: Front,
    placement: Placement,
    running: Process,
    /// The stream that has its turn, if there are several.
    stream: Option<u32>,
    waiting: BTreeMap<u32, Process>,
    /// How many there have been.
    begun: u32,
    machines: Workers,
    /// What they had, once all is over.
    outcomes: Vec<Outcome>,
    /// What those had that are no more.
    exited: Counts,
    schedule: Schedule,
    /// Whether anything was told of mappings.
    is_mapped: bool,
    empty_batch: Batch,
}

impl Sim {
    /// Machines that have seen nothing.
    pub fn new(config: &SimConfig) -> Result<Self, ConfigError> {
        let SimConfig { machine, designs, .. } = config;
        let setup = Setup {
            instructions: config.instructions,
            is_checked: config.is_checked,
            start: Arc::clone(&config.start),
            host_start: config.host_start.clone(),
        };
        let configs = designs.iter().map(|spec| spec.machine(machine));
        let configs = configs.collect::<Result<Vec<_>, _>>()?;
        let make =
            |(spec, machine): (&DesignSpec, _)| spec.hardware().make(machine, &setup, spec.os());
        let machines = designs.iter().zip(&configs).map(make).collect::<Result<Vec<_>, _>>()?;
        let of_machines = configs.iter().chain([machine]).map(config::filter);
        let of_designs = machines.iter().map(|machine| machine.filter());
        let filter = of_machines.chain(of_designs).fold(Filter::BySide, Filter::min);
        let mut sim = Sim {
            front: config::front(machine, filter),
            placement: Placement::new(machine.core.count as usize),
            running: Process::new(ImageId(0), machine.page_table.levels, false),
            stream: None,
            waiting: BTreeMap::new(),
            begun: 0,
            machines: Workers::new(machines),
            outcomes: Vec::new(),
            exited: Counts::default(),
            schedule: Schedule::new(config.warm_up_instructions, config.interval_instructions),
            is_mapped: false,
            empty_batch: Batch::default(),
            config: config.clone(),
        };
        sim.running = sim.begin(None);
        sim.run();
        if sim.schedule.is_due() {
            // Without a warm-up what comes before the first instruction counts, too.
            sim.mark();
        }
        Ok(sim)
    }

    /// A process image begins, empty or a copy of another.
    fn begin(&mut self, copy_of: Option<ImageId>) -> Process {
        let id = ImageId(self.begun);
        self.begun += 1;
        self.front.mark(ControlEvent::Spawn { image: id, copy_of });
        Process::new(id, self.config.machine.page_table.levels, copy_of.is_some())
    }

    /// The process that has its turn runs, where its thread is placed.
    fn run(&mut self) {
        let core = self.placement.core_of(&mut self.running);
        self.front.run(core, self.running.id);
    }

    /// What was counted of the stream, the warm-up left out; of all streams that took turns.
    pub fn counts(&self) -> Counts {
        self.schedule.counted(&self.total())
    }

    /// What there was of all streams so far.
    fn total(&self) -> Counts {
        let all = self.waiting.values().chain([&self.running]);
        all.fold(self.exited.clone(), |sum, process| sum.plus(&process.counts))
    }

    /// Whether any stream has told of a mapping. Else all addresses are taken to be one.
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// The same with these machines instead, which have seen nothing.
    pub fn with_machines(self, machines: Vec<Box<dyn AnyMachine>>) -> Self {
        Sim { machines: Workers::new(machines), ..self }
    }

    /// The designs.
    pub fn designs(&self) -> &[DesignSpec] {
        &self.config.designs
    }

    /// The machines, in the order of their designs, once [all is played](Sim::finish).
    pub fn machines(&self) -> &[Box<dyn AnyMachine>] {
        self.machines.machines()
    }

    /// What the machines have, in the order of their designs, once all is over.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// All is over, and the machines go: there may be hundreds of processes.
    fn revoke_store(&mut self) {
        self.finish();
        self.outcomes = self.machines.all().drain(..).map(|machine| machine.outcome()).collect();
        self.running.image = Image::new(self.config.machine.page_table.levels);
        self.empty_batch = Batch::default();
        self.front = config::front(&self.config.machine, Filter::Nothing);
    }

    /// Whatever came has been played.
    pub fn finish(&mut self) {
        if self.schedule.is_due() {
            self.mark();
        }
        self.submit_batch();
        self.machines.all();
    }

    fn submit_batch(&mut self) {
        let batch = self.front.take_batch(std::mem::take(&mut self.empty_batch));
        self.empty_batch = self.machines.play(batch);
    }

    #[cold]
    fn mark(&mut self) {
        let total = self.total();
        self.schedule.due(&total, |mark| self.front.mark(mark));
    }

    /// The first instruction of a process. Where nothing is known of mappings, all is one: memory
    /// that may have pages of any size.
    #[cold]
    fn first(&mut self) {
        self.running.has_begun = true;
        if !self.running.is_mapped {
            self.front.event(&self.running.image, &everything());
        }
    }
}

/// What is mapped where a trace tells of no mapping: all, as anonymous memory.
pub fn everything() -> Event {
    Event::Map {
        range: AddrRange::new(VirtAddr::NULL, u64::MAX),
        protection: Protection { read: true, write: true, execute: true },
        source: MapSource::Anonymous,
        flags: 0,
    }
}

impl Consumer for Sim {
    fn segment(&mut self, _: &Segment, _: &[VirtAddr]) {
        unreachable!("executions come with their numbers");
    }

    fn event(&mut self, event: &Event) {
        let process = &mut self.running;
        process.counts.event(event);
        if let Event::ThreadSwitch { thread } = event
            && process.thread != *thread
        {
            process.thread = *thread;
            self.run();
            return;
        }
        let maps = matches!(event, Event::Map { .. });
        process.is_mapped |= maps;
        self.is_mapped |= maps;
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
        if self.schedule.is_due() {
            self.mark();
        }
        if !self.running.has_begun {
            self.first();
        }
        let addresses = VirtAddr::slice_from_raw(&words[1..]);
        let process = &mut self.running;
        process.counts.execution(segment, addresses);
        self.schedule.executed(segment.instructions());
        self.front.execution(&mut process.image, words[0] as usize, segment, addresses);
        if self.front.len() >= BATCH_ACCESSES {
            self.submit_batch();
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
        self.revoke_store();
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

impl TurnConsumer for Sim {
    type Process = Counts;

    fn begun(&mut self, identity: &StreamIdentity) {
        // The one that is there from the start is the first.
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

    fn turn(&mut self, stream: u32) {
        if self.stream == Some(stream) {
            return;
        }
        let next = self.waiting.remove(&stream).expect("it has begun");
        let before = std::mem::replace(&mut self.running, next);
        if let Some(before_stream) = self.stream.replace(stream) {
            self.waiting.insert(before_stream, before);
        }
        self.run();
    }

    fn process_ended(&mut self, identity: &StreamIdentity, _: &StreamEnd) -> Counts {
        self.turn(identity.stream);
        self.front.mark(ControlEvent::Exit(self.running.id));
        self.stream = None;
        let counts = std::mem::take(&mut self.running.counts);
        self.exited = std::mem::take(&mut self.exited).plus(&counts);
        counts
    }

    fn all_ended(&mut self) {
        self.revoke_store();
    }
}
