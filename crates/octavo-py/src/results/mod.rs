//! Results as dictionaries, in the shapes of `_core.pyi`.

mod curves;
mod sim;
mod study;

use octavo_curves::{Counts, Stream};
use octavo_trace::{ExitReason, RunExit, RunProgress, RunResult, StreamResult, WindowLog};
use octavo_types::VirtAddr;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::engine::Engine;

/// Builds a dictionary from `key: value` pairs.
macro_rules! dict {
    ($py:expr, $($key:ident: $value:expr),+ $(,)?) => {{
        let dict = pyo3::types::PyDict::new($py);
        $(dict.set_item(stringify!($key), $value)?;)+
        dict
    }};
}

pub(crate) use dict;

type Dict<'py> = PyResult<Bound<'py, PyDict>>;

/// A `Progress`.
pub fn progress<'py>(py: Python<'py>, progress: &RunProgress) -> Dict<'py> {
    Ok(dict!(py,
        running: progress.running,
        elapsed_seconds: progress.elapsed.as_secs_f64(),
        references: progress.total.references,
        instructions: progress.total.instructions,
        resident_bytes: progress.total.resident_bytes,
        streams_live: progress.streams_live,
        streams_total: progress.streams_total,
        processes_total: progress.processes_total,
        programs: &progress.programs,
        counting: progress.counting,
        over: progress.over,
    ))
}

/// A `Result`.
pub fn result<'py, C: Engine>(py: Python<'py>, result: &RunResult<C>) -> Dict<'py> {
    run_result(py, result, C::process)
}

fn run_result<'py, C>(
    py: Python<'py>,
    result: &RunResult<C>,
    to_dict: impl Fn(Python<'py>, &StreamResult<C>) -> Dict<'py>,
) -> Dict<'py> {
    let processes = PyList::empty(py);
    for stream in &result.streams {
        processes.append(to_dict(py, stream)?)?;
    }
    Ok(dict!(py,
        exit: exit(py, &result.exit)?,
        elapsed_seconds: result.elapsed.as_secs_f64(),
        processes: processes,
        untraced_processes: result.untraced,
    ))
}

/// An `Exit`.
pub fn exit<'py>(py: Python<'py>, exit: &RunExit) -> Dict<'py> {
    let reason = match exit.reason {
        ExitReason::Exited => "exited",
        ExitReason::Signalled => "signalled",
        ExitReason::Interrupted => "interrupted",
        ExitReason::Limit => "limit",
        ExitReason::TracerFailed => "tracer-failed",
        ExitReason::TraceBroken => "trace-broken",
        ExitReason::Running => "running",
    };
    Ok(dict!(py,
        code: exit.code,
        signal: exit.signal,
        reason: reason,
        diagnostics: exit.diagnostics.as_str(),
    ))
}

/// The fields that every process image has: its identity and its stream counts.
fn process<'py, C>(py: Python<'py>, stream: &StreamResult<C>, counts: &Counts) -> Dict<'py> {
    let events = PyDict::new(py);
    for (name, count) in &counts.events {
        events.set_item(name, count)?;
    }
    let dict = dict!(py,
        stream: stream.identity.stream,
        parent_stream: stream.identity.parent,
        pid: stream.identity.pid,
        program: stream.identity.program.as_str(),
        began_by: stream.identity.began.name(),
        ended_by: stream.ended.name(),
        exit_code: stream.exit_code,
        instructions: counts.instructions,
        fetches: counts.instructions,
        loads: counts.loads,
        stores: counts.stores,
        modifies: counts.modifies,
        references: counts.references(),
        segments: stream.segments,
        threads: counts.threads + stream.identity.initial_threads(),
        thread_switches: counts.thread_switches,
        events: events,
        stream_hash: format!("{:032x}", stream.hash),
        folded_references: stream.folded.count,
        first_folded_address: stream.folded.first.map(VirtAddr::raw),
        address_bits: stream.folded.bits,
        kernel_seconds: stream.kernel_time.map(|time| time.as_secs_f64()),
    );
    if let Some(last) = stream.windows.last() {
        dict.set_item("windows", windows(py, &stream.windows)?)?;
        dict.set_item("windows_total", stream.windows.total())?;
        dict.set_item("executed_instructions", last.instructions)?;
    }
    Ok(dict)
}

/// The `TracedWindow`s of a stream.
fn windows<'py>(py: Python<'py>, log: &WindowLog) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for window in log.windows() {
        list.append(dict!(py,
            begin_instructions: window.begin.instructions,
            begin_milliseconds: window.begin.milliseconds,
            end_instructions: window.end.and_then(|at| at.instructions),
            end_milliseconds: window.end.and_then(|at| at.milliseconds),
            instructions: window.instructions,
            references: window.references,
            counts: &window.counts,
        ))?;
    }
    Ok(list)
}

pub(crate) fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Fetch => "fetch",
        Stream::Data => "data",
        Stream::All => "all",
    }
}
