//! Engines whose results Python can have.

use octavo_trace::{Counts, Observer, RunResult, StreamResult};
use pyo3::Python;

use pyo3::types::PyDict;
use pyo3::{Bound, PyResult};

type Dict<'py> = PyResult<Bound<'py, PyDict>>;

/// An engine whose results Python can have.
pub trait Engine: Observer {
    /// Returns the results of one process image.
    fn process<'py>(py: Python<'py>, stream: &StreamResult<Self>) -> Dict<'py>
    where
        Self: Sized;
}

/// An engine on which all processes take turns, whose results Python can have.
pub trait SharedEngine: Send + 'static {
    /// Returns the results of all processes together, and the stream counts of each process image.
    fn result<'py>(py: Python<'py>, run: &RunResult<Counts>, shared: &Self) -> Dict<'py>;
}
