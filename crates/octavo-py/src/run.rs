//! A live run as a Python object.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use octavo_curves::{Levels, Sizes, Study, StudyConfig};
use octavo_trace::{Limits, Live, LiveOptions, Tracer};
use octavo_types::PageSize;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{OctavoError, results};

/// The most levels that a TLB may have.
const MAX_LEVELS: usize = 4;
/// The most entries that a level may have.
const MAX_ENTRIES: u32 = 1 << 20;

/// One TLB level, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Level {
    fetch_entries: u32,
    data_entries: u32,
}

/// A program under the tracer, consumed by background threads as it runs.
#[pyclass]
pub struct LiveRun {
    options: LiveOptions,
    config: StudyConfig,
    live: Option<Live<Study>>,
}

#[pymethods]
impl LiveRun {
    #[new]
    #[pyo3(signature = (
        argv, *, valgrind, tool_dir, tracer, page_sizes, levels, layout, follow_children,
        skip_instructions, max_instructions, between_marks, session_dir, scratch_dir
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        argv: Vec<OsString>,
        valgrind: PathBuf,
        tool_dir: PathBuf,
        tracer: &str,
        page_sizes: Vec<u64>,
        levels: Vec<Level>,
        layout: &str,
        follow_children: bool,
        skip_instructions: u64,
        max_instructions: Option<u64>,
        between_marks: bool,
        session_dir: PathBuf,
        scratch_dir: PathBuf,
    ) -> PyResult<Self> {
        let region = (skip_instructions, max_instructions, between_marks);
        Ok(LiveRun {
            options: live_options(
                argv,
                valgrind,
                tool_dir,
                tracer,
                follow_children,
                region,
                session_dir,
                scratch_dir,
            )?,
            config: study_config(page_sizes, &levels, layout)?,
            live: None,
        })
    }

    fn start(&mut self) -> PyResult<u32> {
        if self.live.is_some() {
            return Err(OctavoError::new_err("the run has started already"));
        }
        let config = self.config.clone();
        let live = Live::start(self.options.clone(), move |_| Study::new(&config))
            .map_err(|error| OctavoError::new_err(error.to_string()))?;
        let pid = live.pid();
        self.live = Some(live);
        Ok(pid)
    }

    fn wait<'py>(&self, py: Python<'py>, timeout_seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        let timeout = Duration::try_from_secs_f64(timeout_seconds)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let live = self.live()?;
        results::progress(py, &py.detach(|| live.wait(timeout)))
    }

    fn signal(&self, number: i32) -> PyResult<()> {
        self.live()?.interrupt(number);
        Ok(())
    }

    fn note_interrupted(&self) -> PyResult<()> {
        self.live()?.note_interrupted();
        Ok(())
    }

    fn stop(&self) -> PyResult<()> {
        self.live()?.stop();
        Ok(())
    }

    fn result<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let live = self.live.take().ok_or_else(not_running)?;
        let result = py.detach(|| live.finish());
        let result = result.map_err(|error| OctavoError::new_err(error.to_string()))?;
        results::result(py, result)
    }
}

impl LiveRun {
    fn live(&self) -> PyResult<&Live<Study>> {
        self.live.as_ref().ok_or_else(not_running)
    }
}

/// How to run a program; `region` is what to skip, how much to count, and whether only between
/// marks.
#[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
pub fn live_options(
    argv: Vec<OsString>,
    valgrind: PathBuf,
    tool_dir: PathBuf,
    tracer: &str,
    follow_children: bool,
    region: (u64, Option<u64>, bool),
    session_dir: PathBuf,
    scratch_dir: PathBuf,
) -> PyResult<LiveOptions> {
    if argv.is_empty() {
        return Err(PyValueError::new_err("there is no program to run"));
    }
    let tracer = match tracer {
        "octavo" => Tracer::Octavo,
        "lackey" => Tracer::Lackey,
        other => return Err(unknown("tracer", other, "octavo or lackey")),
    };
    let (skip_instructions, max_instructions, between_marks) = region;
    let limits = Limits::new(skip_instructions, max_instructions, between_marks);
    Ok(LiveOptions {
        argv,
        valgrind,
        tool_dir,
        tracer,
        follow_children,
        session_dir,
        scratch_dir,
        limits,
    })
}

/// What to study.
pub fn study_config(page_sizes: Vec<u64>, levels: &[Level], layout: &str) -> PyResult<StudyConfig> {
    let native_layout = match layout {
        "native" => true,
        "as-traced" => false,
        other => return Err(unknown("layout", other, "native or as-traced")),
    };
    Ok(StudyConfig {
        sizes: Sizes::new(read_page_sizes(page_sizes)?),
        fetch_levels: read_levels(levels.iter().map(|level| level.fetch_entries))?,
        data_levels: read_levels(levels.iter().map(|level| level.data_entries))?,
        native_layout,
    })
}

fn not_running() -> PyErr {
    OctavoError::new_err("the run has not started, or its result was taken")
}

fn unknown(what: &str, got: &str, allowed: &str) -> PyErr {
    PyValueError::new_err(format!("{what} `{got}`: give {allowed}"))
}

fn read_page_sizes(page_sizes: Vec<u64>) -> PyResult<Vec<PageSize>> {
    if page_sizes.is_empty() {
        return Err(PyValueError::new_err("there is no page size to study"));
    }
    let size = |bytes| {
        PageSize::from_bytes(bytes).ok_or_else(|| {
            unknown("page size", &bytes.to_string(), "a power of two from 4 KiB to 1 GiB")
        })
    };
    page_sizes.into_iter().map(size).collect()
}

fn read_levels(entries: impl ExactSizeIterator<Item = u32>) -> PyResult<Levels> {
    if !(1..=MAX_LEVELS).contains(&entries.len()) {
        return Err(PyValueError::new_err(format!("give 1 to {MAX_LEVELS} TLB levels")));
    }
    let check = |entries: u32| {
        if (1..=MAX_ENTRIES).contains(&entries) {
            Ok(entries)
        } else {
            Err(unknown("entries", &entries.to_string(), &format!("1 to {MAX_ENTRIES}")))
        }
    };
    entries.map(check).collect()
}
