//! Results as dictionaries, in the shapes of `_core.pyi`.

use octavo_curves::{Curve, Footprint, RegionResult, Stream, Study};
use octavo_trace::{ExitReason, Region, RunExit, RunProgress, RunResult, StreamResult};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Builds a dictionary from `key: value` pairs.
macro_rules! dict {
    ($py:expr, $($key:ident: $value:expr),+ $(,)?) => {{
        let dict = PyDict::new($py);
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
        counting: progress.counting,
    ))
}

/// A `Result`.
pub fn result<'py>(py: Python<'py>, result: RunResult<Study>) -> Dict<'py> {
    let processes = PyList::empty(py);
    for stream in &result.streams {
        processes.append(process(py, stream)?)?;
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
    };
    Ok(dict!(py,
        code: exit.code,
        signal: exit.signal,
        reason: reason,
        diagnostics: exit.diagnostics.as_str(),
    ))
}

fn process<'py>(py: Python<'py>, stream: &StreamResult<Study>) -> Dict<'py> {
    let study = &stream.consumer;
    let counts = study.counts();
    let events = PyDict::new(py);
    for (name, count) in &counts.events {
        events.set_item(name, count)?;
    }
    let regions = PyList::empty(py);
    for (known, result) in study.regions() {
        regions.append(region(py, &known, &result)?)?;
    }
    let total = study.total();
    Ok(dict!(py,
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
        threads: counts.threads,
        thread_switches: counts.thread_switches,
        events: events,
        curves: curves(py, &total)?,
        footprints: footprints(py, &total.footprints)?,
        regions: regions,
        stream_hash: format!("{:032x}", stream.hash),
    ))
}

fn region<'py>(py: Python<'py>, region: &Region, result: &RegionResult) -> Dict<'py> {
    Ok(dict!(py,
        name: region.name.as_str(),
        kind: region.kind.name(),
        path: region.path.as_deref(),
        start: region.start.raw(),
        bytes: region.peak_bytes,
        mappings: region.mappings,
        fetch_references: result.fetch_references,
        data_references: result.data_references,
        curves: curves(py, result)?,
        footprints: footprints(py, &result.footprints)?,
    ))
}

fn curves<'py>(py: Python<'py>, result: &RegionResult) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (stream, curves) in [("fetch", &result.fetch_curves), ("data", &result.data_curves)] {
        for Curve { page_size, level, entries, accesses, misses } in curves {
            list.append(dict!(py,
                stream: stream,
                page_size: page_size.bytes(),
                level: level,
                entries: entries,
                accesses: accesses,
                misses: misses,
            ))?;
        }
    }
    Ok(list)
}

fn footprints<'py>(py: Python<'py>, footprints: &[Footprint]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for Footprint { stream, page_size, touched_bytes, peak_resident_bytes } in footprints {
        let stream = match stream {
            Stream::Fetch => "fetch",
            Stream::Data => "data",
            Stream::All => "all",
        };
        list.append(dict!(py,
            stream: stream,
            page_size: page_size.bytes(),
            touched_bytes: touched_bytes,
            peak_resident_bytes: peak_resident_bytes,
        ))?;
    }
    Ok(list)
}
