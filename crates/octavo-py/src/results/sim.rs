//! What machines have counted.

use octavo_machine::{Counters, Sim};
use octavo_trace::StreamResult;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::{dict, process};
use crate::analysis::Engine;

type Dict<'py> = PyResult<Bound<'py, PyDict>>;

impl Engine for Sim {
    fn process<'py>(py: Python<'py>, stream: &StreamResult<Self>) -> Dict<'py> {
        let sim = &stream.consumer;
        let told = process(py, stream, &sim.counts())?;
        let machines = PyList::empty(py);
        for (design, played) in sim.designs().iter().zip(sim.played()) {
            let intervals = PyList::empty(py);
            for interval in &played.intervals {
                intervals.append(counters(py, interval)?)?;
            }
            machines.append(dict!(py,
                design: design.name(),
                counters: counters(py, &played.counters)?,
                intervals: intervals,
                stopped: played.stopped.as_deref(),
                bound: design.hardware().is_bound,
            ))?;
        }
        told.set_item("machines", machines)?;
        told.set_item("mapped", sim.is_mapped())?;
        Ok(told)
    }
}

/// A list of (component, counter, value).
fn counters<'py>(py: Python<'py>, counters: &Counters) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, counters.iter().collect::<Vec<_>>())
}
