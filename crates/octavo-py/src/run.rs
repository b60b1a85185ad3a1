//! A live run as a Python object.

use std::ffi::OsString;
use std::path::PathBuf;

use octavo_trace::{Limits, LiveOptions, PeriodicWindows, Tracer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::analysis::{Analysis, Running};
use crate::options::{read_timeout, unknown};
use crate::{OctavoError, results};

/// A program, and the options of its run under the tracer.
#[pyclass(frozen)]
pub struct TracedProgram(pub LiveOptions);

#[pymethods]
impl TracedProgram {
    #[new]
    #[pyo3(signature = (
        argv, *, valgrind, tool_dir, tracer, follow_children, skip_instructions, max_instructions,
        between_marks, windows=None, allocations=0
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        argv: Vec<OsString>,
        valgrind: PathBuf,
        tool_dir: PathBuf,
        tracer: &str,
        follow_children: bool,
        skip_instructions: u64,
        max_instructions: Option<u64>,
        between_marks: bool,
        windows: Option<Windows>,
        allocations: u32,
    ) -> PyResult<Self> {
        if argv.is_empty() {
            return Err(PyValueError::new_err("there is no program to run"));
        }
        let tracer = match tracer {
            "octavo" => Tracer::Octavo,
            "lackey" => Tracer::Lackey,
            other => return Err(unknown("tracer", other, "octavo or lackey")),
        };
        let limits = Limits::new(skip_instructions, max_instructions, between_marks);
        if let Some(windows) = &windows {
            limits.set_window_warm(windows.warm);
        }
        let windows = windows.map(|windows| windows.read()).transpose()?;
        Ok(TracedProgram(LiveOptions {
            argv,
            valgrind,
            tool_dir,
            tracer,
            follow_children,
            limits,
            windows,
            allocation_frames: allocations,
        }))
    }
}

/// A program under the tracer, consumed by background threads as it runs.
#[pyclass]
pub struct LiveRun {
    options: LiveOptions,
    analysis: Py<Analysis>,
    running: Option<Box<dyn Running>>,
}

#[pymethods]
impl LiveRun {
    #[new]
    #[pyo3(signature = (program, *, analysis))]
    fn new(program: &Bound<'_, TracedProgram>, analysis: Py<Analysis>) -> Self {
        LiveRun { options: program.get().0.clone(), analysis, running: None }
    }

    fn start(&mut self) -> PyResult<u32> {
        if self.running.is_some() {
            return Err(OctavoError::new_err("the run has started already"));
        }
        self.analysis.get().start_workers()?;
        let running = self.analysis.get().run(self.options.clone())?;
        let pid = running.pid();
        self.running = Some(running);
        Ok(pid)
    }

    fn wait<'py>(&self, py: Python<'py>, timeout_seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        let timeout = read_timeout(timeout_seconds)?;
        let running = self.running()?;
        let progress = py.detach(|| running.wait(timeout));
        // The other designs need not finish first.
        self.analysis.get().raise_failure(py).inspect_err(|_| running.stop())?;
        results::progress(py, &progress)
    }

    fn signal(&self, number: i32) -> PyResult<()> {
        self.running()?.interrupt(number);
        Ok(())
    }

    fn note_interrupted(&self) -> PyResult<()> {
        self.running()?.note_interrupted();
        Ok(())
    }

    fn set_counting(&self, py: Python<'_>, counting: bool) {
        match &self.running {
            Some(running) => py.detach(|| running.set_open(counting)),
            None => self.options.limits.set_open(counting),
        }
    }

    fn end_softly(&self) {
        self.options.limits.end_softly();
    }

    fn end_region(&self, py: Python<'_>, number: i32) -> PyResult<()> {
        let running = self.running()?;
        py.detach(|| running.end_region(number));
        Ok(())
    }

    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.running()?.snapshot(py)
    }

    fn stop(&self) -> PyResult<()> {
        self.running()?.stop();
        Ok(())
    }

    fn result<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.running.take().ok_or_else(not_running)?.result(py)
    }
}

impl LiveRun {
    fn running(&self) -> PyResult<&dyn Running> {
        self.running.as_deref().ok_or_else(not_running)
    }
}

/// Periodic windows, as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Windows {
    /// `instructions` or `seconds`.
    unit: String,
    traced: f64,
    gap: f64,
    warm: u64,
}

impl Windows {
    fn read(&self) -> PyResult<PeriodicWindows> {
        match self.unit.as_str() {
            "instructions" => {
                let [traced, gap] = [self.traced, self.gap].map(|number| number as u64);
                Ok(PeriodicWindows::Instructions { traced, gap })
            }
            "seconds" => {
                let (traced, gap) = (read_timeout(self.traced)?, read_timeout(self.gap)?);
                Ok(PeriodicWindows::Time { traced, gap })
            }
            other => Err(unknown("unit", other, "instructions or seconds")),
        }
    }
}

fn not_running() -> PyErr {
    OctavoError::new_err("the run has not started, or its result was taken")
}
