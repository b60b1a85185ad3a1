//! A study of a trace, with the methods of a live run.

use std::sync::Arc;
use std::time::Duration;

use octavo_curves::{Study, StudyConfig};
use octavo_trace::{Limits, Replay};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::run::{Level, study_config};
use crate::trace::{Trace, facts, failed};
use crate::{OctavoError, results};

/// A study of a trace, done by background threads.
#[pyclass]
pub struct TraceRun {
    trace: Py<Trace>,
    config: StudyConfig,
    limits: Arc<Limits>,
    replay: Option<Replay<Study>>,
}

#[pymethods]
impl TraceRun {
    #[new]
    #[pyo3(signature = (
        trace, *, page_sizes, levels, layout, skip_instructions, max_instructions, between_marks
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        trace: Py<Trace>,
        page_sizes: Vec<u64>,
        levels: Vec<Level>,
        layout: &str,
        skip_instructions: u64,
        max_instructions: Option<u64>,
        between_marks: bool,
    ) -> PyResult<Self> {
        Ok(TraceRun {
            trace,
            config: study_config(page_sizes, &levels, layout)?,
            limits: Limits::new(skip_instructions, max_instructions, between_marks),
            replay: None,
        })
    }

    fn start(&mut self, py: Python<'_>) -> PyResult<u32> {
        let source = self.trace.borrow(py).take()?;
        let config = self.config.clone();
        let observer = move |_: &_| Study::new(&config);
        self.replay = Some(Replay::start(source, self.limits.clone(), observer));
        Ok(0)
    }

    fn wait<'py>(&self, py: Python<'py>, timeout_seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        let timeout = Duration::try_from_secs_f64(timeout_seconds)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let replay = self.replay()?;
        let (run, read) = py.detach(|| replay.wait(timeout));
        let dict = results::progress(py, &run)?;
        dict.set_item("done", read.done)?;
        dict.set_item("total", read.total)?;
        Ok(dict)
    }

    fn signal(&self, _number: i32) -> PyResult<()> {
        self.stop()
    }

    fn note_interrupted(&self) -> PyResult<()> {
        self.stop()
    }

    fn stop(&self) -> PyResult<()> {
        self.replay()?.stop();
        Ok(())
    }

    fn result<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let replay = self.replay.take().ok_or_else(not_running)?;
        let replayed = py.detach(|| replay.finish()).map_err(|error| failed(&error))?;
        let dict = results::result(py, replayed.run)?;
        dict.set_item("facts", facts(py, &replayed.facts)?)?;
        Ok(dict)
    }
}

impl TraceRun {
    fn replay(&self) -> PyResult<&Replay<Study>> {
        self.replay.as_ref().ok_or_else(not_running)
    }
}

fn not_running() -> PyErr {
    OctavoError::new_err("the trace is not being read, or its result was taken")
}
