//! The Python extension `octavo._core`: live runs, their progress and their results as plain data.
//! `python/octavo/_core.pyi` documents its contents.

mod analysis;
mod calibrate;
mod columns;
mod engine;
mod jobs;
mod machine;
mod only;
mod options;
mod outside;
mod record;
mod replay;
mod results;
mod run;
mod sharing;
mod sim;
mod snapshot;
mod trace;

use std::fmt::Display;

use octavo_types::PageSize;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(octavo._core, OctavoError, PyException, "A failure that a user can act on.");

/// Ends the process with a message where memory is full, also deep inside an engine.
#[global_allocator]
static ALLOCATOR: octavo_trace::AllocatorOrExit = octavo_trace::AllocatorOrExit;

/// An error as a sentence, without the system's error number, which does not help.
fn sentence(error: &impl Display) -> String {
    let text = error.to_string();
    let Some((before, rest)) = text.split_once(" (os error ") else { return text };
    let after = rest.split_once(')').map_or("", |(_, after)| after);
    format!("{before}{after}")
}

/// An [`OctavoError`] of an error's sentence.
fn raised(error: &impl Display) -> PyErr {
    OctavoError::new_err(sentence(error))
}

/// The seed for resampling the windows of a live run.
const WINDOWS_SEED: u64 = 1;

/// `64KiB` → 65536.
#[pyfunction]
fn parse_page_size(text: &str) -> PyResult<u64> {
    text.parse::<PageSize>().map(PageSize::bytes).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// The 95% interval of events per thousand instructions, from (events, instructions) of windows.
#[pyfunction]
fn interval_of_rate(windows: Vec<(u64, u64)>) -> Option<(f64, f64)> {
    octavo_trace::interval_of_rate(&windows, WINDOWS_SEED)
}

#[pymodule(name = "_core")]
fn core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    m.add("MODEL", env!("OCTAVO_MODEL"))?;
    m.add("ENGINES", env!("OCTAVO_ENGINES"))?;
    m.add("MAX_ENTRIES", octavo_curves::MAX_ENTRIES)?;
    m.add("MAX_SETS", 1u32 << octavo_curves::MAX_SETS_LOG2)?;
    m.add("MAX_CACHE_SETS", 1u32 << octavo_curves::MAX_CACHE_SETS_LOG2)?;
    m.add("MIN_LINE_BYTES", octavo_curves::LineSize::LEAST_BYTES)?;
    m.add("MAX_LINE_BYTES", octavo_curves::LineSize::MOST_BYTES)?;
    m.add("MAX_CORES", octavo_config::MAX_CORES)?;
    m.add("MAX_WAYS", octavo_curves::MAX_WAYS)?;
    m.add("MAX_INDEX_BIT", options::MAX_INDEX_BIT)?;
    m.add("MAX_WINDOW_REFS", options::MAX_WINDOW_REFS)?;
    m.add("OctavoError", m.py().get_type::<OctavoError>())?;
    m.add_function(wrap_pyfunction!(parse_page_size, m)?)?;
    m.add_function(wrap_pyfunction!(interval_of_rate, m)?)?;
    m.add_function(wrap_pyfunction!(trace::looks_like_a_trace, m)?)?;
    m.add_function(wrap_pyfunction!(trace::trace_formats, m)?)?;
    m.add_function(wrap_pyfunction!(trace::synthetic_kinds, m)?)?;
    m.add_function(wrap_pyfunction!(trace::trace_overview, m)?)?;
    m.add_function(wrap_pyfunction!(sim::designs, m)?)?;
    m.add_function(wrap_pyfunction!(sim::policies, m)?)?;
    m.add_function(wrap_pyfunction!(sim::explain_design, m)?)?;
    m.add_function(wrap_pyfunction!(sim::sim_pages, m)?)?;
    m.add_function(wrap_pyfunction!(snapshot::take_snapshot, m)?)?;
    m.add_function(wrap_pyfunction!(snapshot::read_snapshot, m)?)?;
    m.add_function(wrap_pyfunction!(calibrate::start_calibration, m)?)?;
    m.add_function(wrap_pyfunction!(machine::machine_presets, m)?)?;
    m.add_function(wrap_pyfunction!(machine::resolve_machine, m)?)?;
    m.add_function(wrap_pyfunction!(machine::available_memory, m)?)?;
    m.add_function(wrap_pyfunction!(analysis::check_machine_tlbs, m)?)?;
    m.add_function(wrap_pyfunction!(jobs::start_convert, m)?)?;
    m.add_function(wrap_pyfunction!(jobs::start_survey, m)?)?;
    m.add_function(wrap_pyfunction!(jobs::start_convert_to_columns, m)?)?;
    m.add_function(wrap_pyfunction!(jobs::start_check, m)?)?;
    m.add_function(wrap_pyfunction!(columns::open_columns, m)?)?;
    m.add_class::<columns::ColumnFeed>()?;
    m.add_class::<columns::ColumnDrain>()?;
    m.add_class::<trace::Trace>()?;
    m.add_class::<jobs::TraceJob>()?;
    m.add_class::<record::Recording>()?;
    m.add_class::<analysis::Analysis>()?;
    m.add_class::<replay::TraceRun>()?;
    m.add_function(wrap_pyfunction!(sharing::memory_counted_again, m)?)?;
    m.add_class::<sharing::TouchedPages>()?;
    m.add_class::<run::TracedProgram>()?;
    m.add_class::<run::LiveRun>()
}
