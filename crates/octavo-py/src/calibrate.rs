//! The measurement of `octavo calibrate`.

use octavo_calibrate::{Plan, measure};
use octavo_trace::source::{Progress, TraceError};
use pyo3::prelude::*;

use crate::jobs::{Outcome, TraceJob, start};

/// Measures this processor, on a thread of its own.
#[pyfunction]
#[pyo3(signature = (*, quick, memory_bytes))]
pub fn start_calibration(quick: bool, memory_bytes: usize) -> TraceJob {
    let plan = if quick { Plan::quick(memory_bytes) } else { Plan::full(memory_bytes) };
    start(move |state| {
        let measured = measure(&plan, |done, total| {
            state.publish(Progress { done, total: Some(total) }, 0, 0);
            !state.stopped()
        });
        let measured =
            measured.map_err(|error| TraceError::whole("octavo calibrate", error.to_string()))?;
        Ok(Outcome::Calibrated(measured))
    })
}
