//! Live runs and replays of any of the engines, behind one interface.

use std::num::NonZeroU64;

use octavo_config::AddressSpaces;
use octavo_curves::{
    AtContextSwitch, Counts, Curves, CurvesConfig, MAX_ENTRIES, MAX_SETS_LOG2, MachineTlbs, Sizes,
    Study, StudyConfig, TwoSizesConfig,
};
use octavo_machine::resolve;
use octavo_machine::{Footprint, Sim, SimConfig, StreamShape};
use octavo_trace::source::{Progress, Source};
use octavo_trace::{
    Limits, Live, LiveOptions, Replay, Replayed, RunProgress, TimeSlicedConsumer, start_workers,
};
use octavo_types::Instructions;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::{Engine, SharedEngine};
use crate::options::{
    Classified, Level, TwoSizes, read_index, read_layout, read_levels, read_line_size,
    read_page_sample, read_page_sizes, read_processes, read_stream, read_threads, read_window,
    unknown,
};
use crate::outside::{Failure, GivenDesign, raise};
use crate::sim::read_sim;
use crate::trace::{facts, failed};
use crate::{OctavoError, raised, results};

type Dict<'py> = PyResult<Bound<'py, PyDict>>;

/// An engine and its configuration.
#[pyclass(frozen)]
pub struct Analysis {
    config: Config,
    /// The demands of a simulation's machines on a stream.
    stream: Option<StreamShape>,
    /// The errors that designs in Python have raised, one for each simulation.
    failures: Vec<Failure>,
}

enum Config {
    Study(StudyConfig),
    Curves(CurvesConfig),
    /// All processes take turns on one core.
    SharedCurves(CurvesConfig),
    Sim(Arc<Sims>),
    /// As `Sim`, but all processes take turns on the cores of one machine for each design.
    SharedSim(Arc<Sims>),
}

/// Machines of several configurations, which all make the same demands on the stream.
struct Sims {
    configs: Vec<SimConfig>,
    /// The machines of the first process, which were made to check the configurations.
    made: Mutex<Option<Sim>>,
}

impl Sims {
    fn new(configs: Vec<SimConfig>, made: Option<Sim>) -> Arc<Self> {
        Arc::new(Sims { configs, made: Mutex::new(made) })
    }

    fn take_made(&self) -> Option<Sim> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Analysis {
    #[staticmethod]
    #[pyo3(signature = (
        *, page_sizes, levels, layout, machine = None, allocation_wrappers = Vec::new()
    ))]
    fn study(
        page_sizes: Vec<u64>,
        levels: Vec<Level>,
        layout: &str,
        machine: Option<&str>,
        allocation_wrappers: Vec<String>,
    ) -> PyResult<Self> {
        let machine = machine.map(read_modelled).transpose()?;
        let config = Config::Study(StudyConfig {
            sizes: Sizes::new(read_page_sizes(page_sizes)?),
            fetch_levels: read_levels(levels.iter().map(|level| level.fetch_entries))?,
            data_levels: read_levels(levels.iter().map(|level| level.data_entries))?,
            core_cache_bytes: machine.as_ref().map(|(_, core_cache_bytes)| *core_cache_bytes),
            machine: machine.map(|(tlbs, _)| tlbs),
            native_layout: read_layout(layout)?,
            allocation_wrappers,
        });
        Ok(Analysis { config, stream: None, failures: Vec::new() })
    }

    #[staticmethod]
    #[pyo3(signature = (
        *, page_sizes, streams, layout, max_entries, set_indexes, max_sets, line_sizes, windows_refs,
        two_sizes, classified, threads, processes, flush_every_instructions, sample
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn curves(
        mut page_sizes: Vec<u64>,
        streams: Vec<String>,
        layout: &str,
        max_entries: u32,
        set_indexes: Vec<String>,
        max_sets: u32,
        line_sizes: Vec<u64>,
        windows_refs: Vec<u64>,
        two_sizes: Vec<TwoSizes>,
        classified: Option<Classified>,
        threads: &str,
        processes: &str,
        flush_every_instructions: Option<NonZeroU64>,
        sample: Option<(f64, u64)>,
    ) -> PyResult<Self> {
        if max_entries > MAX_ENTRIES {
            return Err(unknown("entries", max_entries, &format!("0 to {MAX_ENTRIES}")));
        }
        let most_sets = 1u32 << MAX_SETS_LOG2;
        if !max_sets.is_power_of_two() || max_sets > most_sets {
            return Err(unknown("sets", max_sets, &format!("a power of two, 1 to {most_sets}")));
        }
        let max_sets_log2 = max_sets.ilog2() as u8;
        let read = |texts: Vec<String>| texts.iter().map(|text| read_index(text)).collect();
        let set_indexes: PyResult<Vec<_>> = read(set_indexes);
        let windows_refs: Vec<u64> =
            windows_refs.into_iter().map(read_window).collect::<PyResult<_>>()?;
        page_sizes.extend(two_sizes.iter().flat_map(|pair| [pair.small, pair.large]));
        page_sizes.extend(classified.iter().flat_map(|tlb| [tlb.page_size, tlb.larger]));
        let classes = classified.map(|tlb| tlb.read()).transpose()?;
        let pairs = two_sizes.iter().map(|pair| {
            let (small, large, threshold_blocks) = pair.read()?;
            Ok(TwoSizesConfig {
                small,
                large,
                threshold_blocks,
                window_refs: read_window(pair.window_refs)?,
                max_entries,
                max_sets_log2,
                windows_refs: windows_refs.clone(),
            })
        });
        let at_context_switch = read_processes(processes)?;
        let config = CurvesConfig {
            two_sizes: pairs.collect::<PyResult<_>>()?,
            sizes: Sizes::new(read_page_sizes(page_sizes)?),
            streams: streams.iter().map(|name| read_stream(name)).collect::<PyResult<_>>()?,
            native_layout: read_layout(layout)?,
            max_entries,
            set_indexes: set_indexes?,
            max_sets_log2,
            line_sizes: line_sizes.into_iter().map(read_line_size).collect::<PyResult<_>>()?,
            windows_refs,
            classes,
            threads: read_threads(threads)?,
            at_context_switch: at_context_switch.unwrap_or(AtContextSwitch::Keep),
            flush_every_instructions,
            sample: sample.map(read_page_sample).transpose()?,
            instructions: Instructions::best(),
        };
        let config = match at_context_switch {
            Some(_) => Config::SharedCurves(config),
            None => Config::Curves(config),
        };
        Ok(Analysis { config, stream: None, failures: Vec::new() })
    }

    #[staticmethod]
    #[pyo3(signature = (
        *, machine, settings, designs, layout, warm_up_instructions, fast_forward, interval_instructions, checked,
        timing, processes
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn sim(
        py: Python<'_>,
        machine: &str,
        settings: Vec<String>,
        designs: Vec<GivenDesign>,
        layout: &str,
        warm_up_instructions: u64,
        fast_forward: bool,
        interval_instructions: Option<NonZeroU64>,
        checked: bool,
        timing: &str,
        processes: &str,
    ) -> PyResult<Self> {
        let interval = interval_instructions.map(NonZeroU64::get);
        let sets_address_spaces = settings.iter().any(|setting| {
            setting.split('=').next().is_some_and(|key| key.trim() == "core.address_spaces")
        });
        let machine = (machine, settings);
        let warm_up = (warm_up_instructions, fast_forward);
        let failure = Failure::default();
        let failures = vec![Arc::clone(&failure)];
        let read = py.detach(|| {
            read_sim(machine, (designs, &failure), layout, warm_up, interval, checked, timing)
        });
        // An error of the user's own design, raised while it was built, is the better one to
        // report.
        raise(py, &failure)?;
        let (mut config, made) = read?;
        let stream = Some(made.stream().clone());
        let at_context_switch = read_processes(processes)?;
        if let Some(at_context_switch) = at_context_switch {
            let decided = match at_context_switch {
                AtContextSwitch::Keep => AddressSpaces::Tagged,
                AtContextSwitch::Flush => AddressSpaces::Flushed,
            };
            let given = std::mem::replace(&mut config.machine.core.address_spaces, decided);
            if sets_address_spaces && given != decided {
                return Err(OctavoError::new_err(format!(
                    "--processes {processes} and --set core.address_spaces contradict each other: leave one out"
                )));
            }
            // The machines may have been made with other address spaces.
            let made = (given == decided).then_some(made);
            let config = Config::SharedSim(Sims::new(vec![config], made));
            return Ok(Analysis { config, stream, failures });
        }
        let config = Config::Sim(Sims::new(vec![config], Some(made)));
        Ok(Analysis { config, stream, failures })
    }

    /// Simulations whose machines one stream drives, in order.
    #[staticmethod]
    fn together(py: Python<'_>, analyses: Vec<Py<Analysis>>) -> PyResult<Self> {
        let (mut all, mut shared) = (Vec::new(), 0);
        for analysis in &analyses {
            let config = &analysis.bind(py).get().config;
            let sims = config.sims().ok_or_else(|| OctavoError::new_err("not a simulation"))?;
            all.extend_from_slice(&sims.configs);
            shared += usize::from(matches!(config, Config::SharedSim(_)));
        }
        if ![0, analyses.len()].contains(&shared) {
            return Err(OctavoError::new_err("processes share the machines of some alone"));
        }
        let streams = analyses.iter().map(|one| one.bind(py).get().stream.clone());
        let streams: Vec<_> = streams.collect();
        let Some(first) = streams.first().filter(|first| streams.iter().all(|one| one == *first))
        else {
            return Err(OctavoError::new_err("the machines want different streams"));
        };
        let made = analyses.iter().map(|one| one.bind(py).get().config.sims()?.take_made());
        let sims = Sims::new(all, made.collect::<Option<_>>().map(Sim::together));
        let config = if shared > 0 { Config::SharedSim(sims) } else { Config::Sim(sims) };
        let failures = analyses.iter().flat_map(|one| one.bind(py).get().failures.clone());
        Ok(Analysis { config, stream: first.clone(), failures: failures.collect() })
    }

    /// Raises the error that a design in Python has raised, if any has.
    pub fn raise_failure(&self, py: Python<'_>) -> PyResult<()> {
        self.failures.iter().try_for_each(|failure| raise(py, failure))
    }

    /// The machine of a simulation, as JSON, and its hash.
    #[getter]
    fn machine(&self) -> Option<(String, String)> {
        let config = self.config.sims()?.configs.first()?;
        Some((config.machine.to_json(), config.machine.hash()))
    }

    /// The demands of a simulation's machines on a stream, as a text.
    #[getter]
    fn stream(&self) -> Option<String> {
        self.stream.as_ref().map(|stream| format!("{stream:?}"))
    }

    /// An upper bound of the memory that the machines of a simulation start with, in bytes.
    #[getter]
    fn footprint_bytes(&self) -> Option<u64> {
        let bytes = |config| Footprint::of(config).expect(MADE).bytes();
        Some(self.config.sims()?.configs.iter().map(bytes).sum())
    }
}

impl Config {
    /// The machines of simulations; `None` for another engine.
    fn sims(&self) -> Option<&Sims> {
        match self {
            Config::Sim(sims) | Config::SharedSim(sims) => Some(sims),
            _ => None,
        }
    }
}

impl Analysis {
    /// Starts the threads that the engine works on.
    pub fn start_workers(&self) -> PyResult<()> {
        match &self.config {
            Config::Study(_) => Ok(()),
            _ => start_workers().map_err(OctavoError::new_err),
        }
    }

    /// Runs a program through the engine.
    pub fn run(&self, options: LiveOptions) -> PyResult<Box<dyn Running>> {
        match &self.config {
            Config::Study(config) => run(options, config, Study::new),
            Config::Curves(config) => run(options, config, Curves::new),
            Config::Sim(sims) => run(options, sims, new_sim),
            Config::SharedCurves(_) | Config::SharedSim(_) => {
                let error = "processes of a live program take turns by chance: record it first";
                Err(raised(&error))
            }
        }
    }

    /// Reads a trace through the engine.
    pub fn replay(&self, source: Box<dyn Source>, limits: Arc<Limits>) -> Box<dyn Replaying> {
        match &self.config {
            Config::Study(config) => replay(source, limits, config, Study::new),
            Config::Curves(config) => replay(source, limits, config, Curves::new),
            Config::Sim(sims) => replay(source, limits, sims, new_sim),
            Config::SharedSim(sims) => replay_together(source, limits, new_sim(sims)),
            Config::SharedCurves(config) => replay_together(source, limits, Curves::new(config)),
        }
    }
}

/// Raises an error if the TLBs of a machine cannot be modelled.
#[pyfunction]
pub fn check_machine_tlbs(machine: &str) -> PyResult<()> {
    read_modelled(machine).map(drop)
}

/// The parts of a machine that a study models, of a preset or a file that ends with `.toml`: its TLBs, and the bytes of
/// the caches that a core has for itself.
fn read_modelled(name: &str) -> PyResult<(MachineTlbs, u64)> {
    let failed = |error: String| raised(&error);
    let resolved = resolve::<&str>(name, &[]).map_err(|error| failed(error.to_string()))?;
    let config = resolved.config();
    let tlbs = MachineTlbs::of(&config.tlb).map_err(|error| failed(error.to_string()))?;
    Ok((tlbs, config.cache.l2.bytes))
}

/// [`read_sim`] has made the machines of each configuration.
const MADE: &str = "it was made once already";

fn new_sim(sims: &Arc<Sims>) -> Sim {
    sims.take_made().unwrap_or_else(|| Sim::of_several(&sims.configs).expect(MADE))
}

fn run<C: Engine, O: Clone + Send + 'static>(
    options: LiveOptions,
    config: &O,
    new: fn(&O) -> C,
) -> PyResult<Box<dyn Running>> {
    let config = config.clone();
    let live = Live::start(options, move |_| new(&config));
    Ok(Box::new(live.map_err(|error| raised(&error))?))
}

fn replay<C: Engine, O: Clone + Send + 'static>(
    source: Box<dyn Source>,
    limits: Arc<Limits>,
    config: &O,
    new: fn(&O) -> C,
) -> Box<dyn Replaying> {
    let config = config.clone();
    Box::new(Reading {
        replay: Replay::start(source, limits, move |_| new(&config)),
        result: |py, replayed| results::result(py, &replayed.run),
    })
}

fn replay_together<C: SharedEngine + TimeSlicedConsumer<Process = Counts>>(
    source: Box<dyn Source>,
    limits: Arc<Limits>,
    engine: C,
) -> Box<dyn Replaying> {
    Box::new(Reading {
        replay: Replay::start_together(source, limits, engine),
        result: |py, replayed| C::result(py, &replayed.run, &replayed.shared),
    })
}

/// A live run of some engine.
pub trait Running: Send + Sync {
    /// See [`Live::pid`].
    fn pid(&self) -> u32;
    /// See [`Live::wait`].
    fn wait(&self, timeout: Duration) -> RunProgress;
    /// See [`Live::interrupt`].
    fn interrupt(&self, signal: i32);
    /// See [`Live::note_interrupted`].
    fn note_interrupted(&self);
    /// See [`Live::set_open`].
    fn set_open(&self, open: bool);
    /// See [`Live::end_region`].
    fn end_region(&self, signal: i32);
    /// See [`Live::snapshot`].
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>>;
    /// See [`Live::stop`].
    fn stop(&self);
    /// The result, once nothing runs.
    fn result<'py>(self: Box<Self>, py: Python<'py>) -> Dict<'py>;
}

impl<C: Engine> Running for Live<C> {
    fn pid(&self) -> u32 {
        Live::pid(self)
    }

    fn wait(&self, timeout: Duration) -> RunProgress {
        Live::wait(self, timeout)
    }

    fn interrupt(&self, signal: i32) {
        Live::interrupt(self, signal);
    }

    fn note_interrupted(&self) {
        Live::note_interrupted(self);
    }

    fn set_open(&self, open: bool) {
        Live::set_open(self, open);
    }

    fn end_region(&self, signal: i32) {
        Live::end_region(self, signal);
    }

    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let snapshot = py.detach(|| Live::snapshot(self));
        snapshot.map(|snapshot| results::result(py, &snapshot)).transpose()
    }

    fn stop(&self) {
        Live::stop(self);
    }

    fn result<'py>(self: Box<Self>, py: Python<'py>) -> Dict<'py> {
        let result = py.detach(|| self.finish());
        let result = result.map_err(|error| raised(&error))?;
        results::result(py, &result)
    }
}

/// A trace that is read through some engine.
pub trait Replaying: Send + Sync {
    /// See [`Replay::wait`].
    fn wait(&self, timeout: Duration) -> (RunProgress, Progress);
    /// See [`Replay::stop`].
    fn stop(&self);
    /// The result, once nothing runs, and what is known of the trace.
    fn result<'py>(
        self: Box<Self>,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)>;
}

/// A trace that is being read, and the function that makes its result for Python.
struct Reading<C, S> {
    replay: Replay<C, S>,
    result: for<'py> fn(Python<'py>, &Replayed<C, S>) -> Dict<'py>,
}

impl<C: Send + 'static, S: Send + 'static> Replaying for Reading<C, S> {
    fn wait(&self, timeout: Duration) -> (RunProgress, Progress) {
        self.replay.wait(timeout)
    }

    fn stop(&self) {
        self.replay.stop();
    }

    fn result<'py>(
        self: Box<Self>,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let Reading { replay, result } = *self;
        let replayed = py.detach(|| replay.finish()).map_err(|error| failed(&error))?;
        Ok((result(py, &replayed)?, facts(py, &replayed.facts)?))
    }
}
