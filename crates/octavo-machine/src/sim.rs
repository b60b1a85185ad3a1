//! The consumer of a stream that has machines of several designs side by side.

use octavo_config::MachineConfig;
use octavo_os::ProcessId;
use octavo_trace::{
    Counts, Observer, Start, StreamEnd, StreamIdentity, StreamProgress, WordConsumer,
};
use octavo_types::{
    AddrRange, Consumer, Event, Instructions, MapSource, Protection, Segment, VirtAddr,
};
use rayon::prelude::*;

use crate::config::{self, ConfigError};
use crate::designs::{Known, Setup};
use crate::front::{Batch, Front, Image, Mark};
use crate::machine::Run;

/// Accesses of a batch, about.
const BATCH_ACCESSES: usize = 1 << 14;
/// How many instructions there are between two calls of the operating systems' background work.
const TICK_INSTRUCTIONS: u64 = 1 << 20;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The machine, the same for all designs.
    pub machine: MachineConfig,
    /// The designs by name, each of which [`Known::by_name`] knows.
    pub designs: Vec<String>,
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

/// Machines of several designs, playing one process image.
pub struct Sim {
    config: SimConfig,
    front: Front,
    image: Image,
    machines: Vec<Box<dyn Run>>,
    counts: Counts,
    /// What the warm-up had.
    warm_counts: Option<Counts>,
    /// Instructions at which something is to be marked, the soonest first.
    next_mark: u64,
    next_tick: u64,
    next_interval: u64,
    /// Whether anything was mapped, and any instruction executed.
    is_mapped: bool,
    has_begun: bool,
    emptied: Batch,
}

impl Sim {
    /// Machines that have seen nothing.
    ///
    /// # Panics
    /// Where a design has no such name: the caller asks [`Known::by_name`] first.
    pub fn new(config: &SimConfig) -> Result<Self, ConfigError> {
        let SimConfig { machine, designs, instructions, is_checked, .. } = config;
        let setup = Setup { instructions: *instructions, is_checked: *is_checked };
        let make =
            |name: &String| Known::by_name(name).expect("a name of a design").make(machine, &setup);
        let machines = designs.iter().map(make).collect::<Result<Vec<_>, _>>()?;
        let mut front = Front::new(config::lines(machine), config::filter(machine));
        front.mark(Mark::Begin { process: ProcessId(0), copy_of: None });
        front.run(0, ProcessId(0));
        let interval = config.interval_instructions.unwrap_or(u64::MAX);
        let mut sim = Sim {
            front,
            image: Image::new(machine.page_table.levels),
            machines,
            counts: Counts::default(),
            warm_counts: None,
            next_mark: 0,
            next_tick: TICK_INSTRUCTIONS,
            next_interval: config.warm_up_instructions.saturating_add(interval),
            is_mapped: false,
            has_begun: false,
            emptied: Batch::default(),
            config: config.clone(),
        };
        sim.plan_mark();
        Ok(sim)
    }

    /// What was counted of the stream, the warm-up left out.
    pub fn counts(&self) -> Counts {
        match &self.warm_counts {
            Some(warm) => self.counts.since(warm),
            None => self.counts.clone(),
        }
    }

    /// The designs by name.
    pub fn designs(&self) -> &[String] {
        &self.config.designs
    }

    /// The machines, in the order of their designs.
    pub fn machines(&self) -> &[Box<dyn Run>] {
        &self.machines
    }

    /// All is over: only results are asked for from now on.
    pub fn finish(&mut self) {
        if self.counts.instructions >= self.next_mark {
            self.mark();
        }
        self.hand_on();
    }

    fn hand_on(&mut self) {
        let batch = self.front.take(std::mem::take(&mut self.emptied));
        self.machines.par_iter_mut().for_each(|machine| machine.take(&batch));
        self.emptied = batch;
        self.emptied.clear();
    }

    /// The soonest of all marks to come.
    fn plan_mark(&mut self) {
        let warm = match self.warm_counts {
            None => self.config.warm_up_instructions,
            Some(_) => u64::MAX,
        };
        self.next_mark = self.next_tick.min(self.next_interval).min(warm);
    }

    #[cold]
    fn mark(&mut self) {
        let at = self.counts.instructions;
        if self.warm_counts.is_none() && at >= self.config.warm_up_instructions {
            self.warm_counts = Some(self.counts.clone());
            self.front.mark(Mark::Warm);
        }
        if at >= self.next_tick {
            self.front.mark(Mark::Tick(at));
            self.next_tick = (at / TICK_INSTRUCTIONS + 1) * TICK_INSTRUCTIONS;
        }
        if let Some(every) = self.config.interval_instructions
            && at >= self.next_interval
        {
            self.front.mark(Mark::Interval);
            let warm = self.config.warm_up_instructions;
            self.next_interval = warm + ((at - warm) / every + 1).saturating_mul(every);
        }
        self.plan_mark();
    }

    /// The first instruction. Where nothing is known of mappings, all is one: memory that may have
    /// pages of any size.
    #[cold]
    fn begin(&mut self) {
        self.has_begun = true;
        if !self.is_mapped {
            self.front.event(&self.image, &everything());
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
        self.is_mapped |= matches!(event, Event::Map { .. });
        self.counts.event(event);
        self.front.event(&self.image, event);
    }
}

impl WordConsumer for Sim {
    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        if self.counts.instructions >= self.next_mark {
            self.mark();
        }
        if !self.has_begun {
            self.begin();
        }
        let addresses = VirtAddr::slice_from_raw(&words[1..]);
        self.counts.execution(segment, addresses);
        self.front.execution(&mut self.image, words[0] as usize, segment, addresses);
        if self.front.len() >= BATCH_ACCESSES {
            self.hand_on();
        }
    }

    fn started(&mut self, start: &Start) {
        if self.config.native_layout {
            self.image.relocate(start.relocation.clone());
        }
    }
}

impl Observer for Sim {
    fn ended(&mut self, _: &StreamIdentity, _: &StreamEnd) {
        self.finish();
    }

    fn progress(&self) -> StreamProgress {
        StreamProgress {
            references: self.counts.references(),
            instructions: self.counts.instructions,
            resident_bytes: 0,
        }
    }
}
