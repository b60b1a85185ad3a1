//! A trace that is read through an engine, with the methods of a live run.

use std::sync::Arc;

use octavo_trace::Limits;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::analysis::{Analysis, Replaying};
use crate::options::read_timeout;
use crate::trace::Trace;
use crate::{OctavoError, results};

/// An analysis of a trace, done by background threads.
#[pyclass]
pub struct TraceRun {
    trace: Py<Trace>,
    analysis: Py<Analysis>,
    limits: Arc<Limits>,
    replay: Option<Box<dyn Replaying>>,
}

#[pymethods]
impl TraceRun {
    #[new]
    #[pyo3(signature = (trace, *, analysis, skip_instructions, max_instructions, between_marks))]
    fn new(
        trace: Py<Trace>,
        analysis: Py<Analysis>,
        skip_instructions: u64,
        max_instructions: Option<u64>,
        between_marks: bool,
    ) -> Self {
        let limits = Limits::new(skip_instructions, max_instructions, between_marks);
        TraceRun { trace, analysis, limits, replay: None }
    }

    fn start(&mut self, py: Python<'_>) -> PyResult<u32> {
        self.analysis.get().start_workers()?;
        let source = self.trace.borrow(py).take()?;
        let (analysis, limits) = (self.analysis.get(), self.limits.clone());
        self.replay = Some(py.detach(|| analysis.replay(source, limits)));
        Ok(0)
    }

    fn wait<'py>(&self, py: Python<'py>, timeout_seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        let timeout = read_timeout(timeout_seconds)?;
        let replay = self.replay()?;
        let (run, read) = py.detach(|| replay.wait(timeout));
        // The other designs need not finish first.
        self.analysis.get().raise_failure(py).inspect_err(|_| replay.stop())?;
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

    fn result<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        self.replay.take().ok_or_else(not_running)?.result(py)
    }
}

impl TraceRun {
    fn replay(&self) -> PyResult<&dyn Replaying> {
        self.replay.as_deref().ok_or_else(not_running)
    }
}

fn not_running() -> PyErr {
    OctavoError::new_err("the trace is not being read, or its result was taken")
}
