//! Snapshots of a machine's memory, taken and read.

use std::path::{Path, PathBuf};

use octavo_os::frames::snapshot::{PROC, Snapshot, SnapshotError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::raised;

/// A snapshot of this machine as the bytes of a file, and its summary as JSON.
#[pyfunction]
#[pyo3(signature = (*, pid=None))]
pub fn take_snapshot(py: Python<'_>, pid: Option<u32>) -> PyResult<(Bound<'_, PyBytes>, String)> {
    let taken = py.detach(|| Snapshot::capture(Path::new(PROC), pid));
    let snapshot = taken.map_err(|error| failed(&error))?;
    let (bytes, summary) = py.detach(|| (snapshot.to_bytes(), summary(&snapshot)));
    Ok((PyBytes::new(py, &bytes), summary))
}

/// The summary of a file's snapshot as JSON.
#[pyfunction]
pub fn read_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let read = py.detach(|| Snapshot::read(&path).map(|snapshot| summary(&snapshot)));
    read.map_err(|error| failed(&error))
}

fn summary(snapshot: &Snapshot) -> String {
    serde_json::to_string(&snapshot.summary()).expect("numbers and texts are JSON")
}

fn failed(error: &SnapshotError) -> PyErr {
    raised(error)
}
