//! Counters of simulated machines as Python data.

use octavo_machine::{Counters, Sim};
use octavo_trace::{Counts, RunResult, StreamResult};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::{dict, process, run_result};
use crate::engine::{Engine, SharedEngine};

type Dict<'py> = PyResult<Bound<'py, PyDict>>;

impl Engine for Sim {
    fn process<'py>(py: Python<'py>, stream: &StreamResult<Self>) -> Dict<'py> {
        let sim = &stream.consumer;
        let dict = process(py, stream, &sim.counts())?;
        dict.set_item("machines", machines(py, sim)?)?;
        dict.set_item("dependences", sim.has_dependences())?;
        dict.set_item("mapped", sim.is_mapped())?;
        Ok(dict)
    }
}

impl SharedEngine for Sim {
    fn result<'py>(py: Python<'py>, run: &RunResult<Counts>, sim: &Self) -> Dict<'py> {
        let dict = run_result(py, run, |py, stream| {
            let dict = process(py, stream, &stream.consumer)?;
            dict.set_item("machines", PyList::empty(py))?;
            dict.set_item("dependences", sim.has_dependences())?;
            dict.set_item("mapped", sim.is_mapped())?;
            Ok(dict)
        })?;
        let counts = sim.counts();
        let shared = dict!(py,
            instructions: counts.instructions,
            fetches: counts.instructions,
            loads: counts.loads,
            stores: counts.stores,
            modifies: counts.modifies,
            references: counts.references(),
            machines: machines(py, sim)?,
        );
        dict.set_item("shared", shared)?;
        Ok(dict)
    }
}

/// The counters of each design's machine.
fn machines<'py>(py: Python<'py>, sim: &Sim) -> PyResult<Bound<'py, PyList>> {
    let machines = PyList::empty(py);
    for (design, outcome) in sim.designs().iter().zip(sim.outcomes()) {
        let intervals = PyList::empty(py);
        for interval in &outcome.intervals {
            intervals.append(counters(py, interval)?)?;
        }
        machines.append(dict!(py,
            design: design.name(),
            counters: counters(py, &outcome.counters)?,
            intervals: intervals,
            stopped: outcome.stopped.as_deref(),
            bound: design.hardware().is_bound,
            own_caches: design.hardware().replaces_tlbs,
        ))?;
    }
    Ok(machines)
}

/// A list of (component, counter, value).
fn counters<'py>(py: Python<'py>, counters: &Counters) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, counters.iter().collect::<Vec<_>>())
}
