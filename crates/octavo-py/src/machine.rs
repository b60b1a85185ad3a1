//! Machines: the presets, and the resolution of a machine with its settings.

use std::path::PathBuf;

use octavo_config::preset_names;
use octavo_machine::resolve;
use octavo_types::host_memory::HostMemory;
use pyo3::prelude::*;

use crate::raised;

/// The names of the machines that ship with Octavo.
#[pyfunction]
pub fn machine_presets() -> Vec<&'static str> {
    preset_names().collect()
}

/// A machine as canonical JSON, its hash, and as TOML with comments.
#[pyfunction]
pub fn resolve_machine(
    py: Python<'_>,
    machine: &str,
    settings: Vec<String>,
) -> PyResult<(String, String, String)> {
    // Reading a file may take long.
    let resolved = py.detach(|| resolve(machine, &settings));
    let resolved = resolved.map_err(|error| raised(&error))?;
    Ok((resolved.json(), resolved.hash(), resolved.toml().to_owned()))
}

/// Bytes of memory that this process may still allocate, by the files of the kernel under `root`;
/// `None` if they do not show it.
#[pyfunction]
pub fn available_memory(root: PathBuf) -> Option<u64> {
    let host = HostMemory::new(root.join("proc"), root.join("sys/fs/cgroup"));
    host.available().map(|available| available.bytes)
}
