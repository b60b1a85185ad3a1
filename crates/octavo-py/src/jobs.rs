//! Long work as Python objects: conversion, survey and check of traces, and calibration.

use std::path::{Path, PathBuf};

use octavo_calibrate::Measured;
use octavo_curves::{SampleSpec, Sampled};
use octavo_trace::check::{Checker, Report};
use octavo_trace::formats::columns::column_writer;
use octavo_trace::formats::{self, NATIVE};
use octavo_trace::sink::{NativeLayout, Output, PlainSink, Sink};
use octavo_trace::source::{Facts, Place, ReadAhead, Source, TraceError};
use octavo_trace::{
    ConvertOptions, Converted, Job, JobProgress, JobState, Manifest, NativeSink, StreamSurvey,
    Survey, convert, survey,
};
use octavo_types::VirtAddr;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use serde_json::Value;

use crate::OctavoError;
use crate::columns::ColumnDrain;
use crate::only::Only;
use crate::options::read_timeout;
use crate::results::dict;
use crate::trace::{Trace, facts, failed, manifest_text};

/// The result of a job.
pub enum Outcome {
    Converted(Converted),
    Survey(Survey),
    Checked(Facts, Report),
    Calibrated(Measured),
}

/// Long work, done by background threads.
#[pyclass]
pub struct TraceJob {
    job: Option<Job<Outcome>>,
}

#[pymethods]
impl TraceJob {
    fn wait<'py>(&self, py: Python<'py>, timeout_seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        let timeout = read_timeout(timeout_seconds)?;
        let job = self.job.as_ref().ok_or_else(done)?;
        let progress: JobProgress = py.detach(|| job.wait(timeout));
        Ok(dict!(py,
            running: progress.running,
            elapsed_seconds: progress.elapsed.as_secs_f64(),
            done: progress.read.done,
            total: progress.read.total,
            instructions: progress.instructions,
            references: progress.references,
        ))
    }

    fn stop(&self) -> PyResult<()> {
        self.job.as_ref().ok_or_else(done)?.stop();
        Ok(())
    }

    fn result<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let job = self.job.take().ok_or_else(done)?;
        let result = match py.detach(|| job.finish()).map_err(|error| failed(&error))? {
            Outcome::Converted(converted) => converted_dict(py, &converted)?,
            Outcome::Survey(survey) => survey_dict(py, &survey)?,
            Outcome::Checked(facts, report) => checked_dict(py, &facts, &report)?,
            Outcome::Calibrated(measured) => {
                let text = serde_json::to_string(&measured).expect("numbers and texts are JSON");
                return Ok(PyString::new(py, &text).into_any());
            }
        };
        Ok(result.into_any())
    }
}

fn done() -> PyErr {
    OctavoError::new_err("the work is done, and its result was taken")
}

pub fn start(
    work: impl FnOnce(&JobState) -> Result<Outcome, TraceError> + Send + 'static,
) -> TraceJob {
    TraceJob { job: Some(Job::start(work)) }
}

/// Writes `trace` as the file `path`.
#[pyfunction]
#[pyo3(signature = (
    trace, path, *, format, about, overwrite=true, process=None, native_layout=false,
    keep_partial=false, sample=None
))]
#[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
pub fn start_convert(
    py: Python<'_>,
    trace: Py<Trace>,
    path: PathBuf,
    format: &str,
    about: &str,
    overwrite: bool,
    process: Option<u32>,
    native_layout: bool,
    keep_partial: bool,
    sample: Option<(f64, u64, u64)>,
) -> PyResult<TraceJob> {
    let about = parse_about(about)?;
    let trace = trace.borrow(py);
    let source = trace.take()?;
    let manifest = Manifest::converted(&source.facts(), about.clone());
    let sink = sink(&path, format, &manifest, overwrite)?;
    let sink = selected(sink, &trace.name, process, native_layout);
    Ok(start_into(sink, source, ConvertOptions { about, keep_partial }, sample))
}

/// Gives `trace` as columns, to be taken from the drain while the job runs.
#[pyfunction]
#[pyo3(signature = (
    trace, name, *, process=None, native_layout=false, keep_partial=false, sample=None
))]
pub fn start_convert_to_columns(
    py: Python<'_>,
    trace: Py<Trace>,
    name: &str,
    process: Option<u32>,
    native_layout: bool,
    keep_partial: bool,
    sample: Option<(f64, u64, u64)>,
) -> PyResult<(TraceJob, ColumnDrain)> {
    let trace = trace.borrow(py);
    let source = trace.take()?;
    let (writer, drain) = column_writer(name);
    let sink = Box::new(PlainSink::new(name, Box::new(writer)));
    let options = ConvertOptions { about: Value::Null, keep_partial };
    let sink = selected(sink, &trace.name, process, native_layout);
    let job = start_into(sink, source, options, sample);
    Ok((job, ColumnDrain::of(drain)))
}

fn parse_about(about: &str) -> PyResult<Value> {
    serde_json::from_str(about).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A sink of one process only, or in the native layout.
fn selected(
    mut sink: Box<dyn Sink>,
    trace: &str,
    process: Option<u32>,
    native_layout: bool,
) -> Box<dyn Sink> {
    if native_layout {
        sink = Box::new(NativeLayout::new(sink, trace));
    }
    match process {
        Some(process) => Box::new(Only::new(sink, trace, process)),
        None => sink,
    }
}

fn start_into(
    sink: Box<dyn Sink>,
    source: Box<dyn Source>,
    options: ConvertOptions,
    sample: Option<(f64, u64, u64)>,
) -> TraceJob {
    start(move |state| {
        let ahead = Box::new(ReadAhead::new(source, false));
        let mut source: Box<dyn Source> = match sample {
            Some((fraction, window_instructions, seed)) => {
                Box::new(Sampled::new(ahead, SampleSpec { fraction, window_instructions, seed }))
            }
            None => ahead,
        };
        let converted = convert(&mut *source, sink, options, state)?;
        Ok(Outcome::Converted(converted))
    })
}

fn sink(
    path: &Path,
    format: &str,
    manifest: &Manifest,
    overwrite: bool,
) -> PyResult<Box<dyn Sink>> {
    let output = |path: &Path| -> PyResult<Output> {
        if path == Path::new("-") {
            return Ok(Output::stdout());
        }
        let output = Output::create(path).map_err(|error| failed(&error))?;
        Ok(if overwrite { output } else { output.without_overwriting() })
    };
    if format == NATIVE {
        let sink = NativeSink::create(output(path)?, manifest).map_err(|error| failed(&error))?;
        return Ok(Box::new(sink));
    }
    let create = formats::format_named(format).and_then(|format| format.create);
    let create = create.ok_or_else(|| {
        PyValueError::new_err(format!("format `{format}` is none that can be written"))
    })?;
    let output = output(path)?;
    let name = output.name().to_owned();
    Ok(Box::new(PlainSink::new(&name, create(output))))
}

/// Reads all of `trace` and counts its contents; with `records_only`, the executions of a native
/// trace are not decoded, and its own counts of them are believed.
#[pyfunction]
#[pyo3(signature = (trace, *, records_only=false))]
pub fn start_survey(py: Python<'_>, trace: Py<Trace>, records_only: bool) -> PyResult<TraceJob> {
    let mut source = trace.borrow(py).take()?;
    if records_only {
        source.skip_instructions(u64::MAX);
    }
    Ok(start(move |state| {
        let mut source = ReadAhead::new(source, false);
        Ok(Outcome::Survey(survey(&mut source, state)))
    }))
}

/// Checks whether `trace` can be what it says it is.
#[pyfunction]
pub fn start_check(py: Python<'_>, trace: Py<Trace>) -> PyResult<TraceJob> {
    let source = trace.borrow(py).take()?;
    Ok(start(move |state| {
        let mut source = ReadAhead::new(source, true);
        let report = Checker::new().check(&mut source, |progress| {
            state.publish(progress, 0, 0);
            !state.stopped()
        });
        Ok(Outcome::Checked(source.facts(), report))
    }))
}

fn checked_dict<'py>(
    py: Python<'py>,
    trace_facts: &Facts,
    report: &Report,
) -> PyResult<Bound<'py, PyDict>> {
    let findings = PyList::empty(py);
    for finding in &report.findings {
        findings.append(dict!(py,
            kind: finding.kind.name(),
            stream: finding.stream,
            instruction: finding.instruction,
            address: finding.addr.map(VirtAddr::raw),
            place: (finding.place != Place::Whole).then(|| finding.place.to_string()),
            text: finding.to_string(),
        ))?;
    }
    let counts = PyDict::new(py);
    for (kind, count) in &report.counts {
        counts.set_item(kind.name(), count)?;
    }
    Ok(dict!(py,
        facts: facts(py, trace_facts)?,
        findings: findings,
        counts: counts,
        streams: report.streams,
        streams_mapped: report.streams_mapped,
        instructions: report.instructions,
        references: report.references,
        fault: report.error.as_ref().map(ToString::to_string),
    ))
}

fn converted_dict<'py>(py: Python<'py>, converted: &Converted) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py,
        facts: facts(py, &converted.facts)?,
        bytes: converted.written.bytes,
        references: converted.written.references,
        instructions: converted.written.instructions,
        losses: converted.written.losses.clone(),
        fault: converted.fault.as_ref().map(ToString::to_string),
    ))
}

fn survey_dict<'py>(py: Python<'py>, survey: &Survey) -> PyResult<Bound<'py, PyDict>> {
    let streams = PyList::empty(py);
    for StreamSurvey { identity, end, counts, segments, hash } in &survey.streams {
        let events = PyDict::new(py);
        for (name, count) in &counts.events {
            events.set_item(name, count)?;
        }
        let mappings: Vec<String> = counts.mappings.iter().map(ToString::to_string).collect();
        streams.append(dict!(py,
            stream: identity.stream,
            parent_stream: identity.parent,
            pid: identity.pid,
            program: identity.program.as_str(),
            began_by: identity.began.name(),
            ended_by: end.as_ref().map(|end| end.ended.name()),
            exit_code: end.as_ref().and_then(|end| end.exit_code),
            instructions: counts.instructions,
            references: counts.references,
            threads: counts.threads,
            segments: segments,
            events: events,
            mappings: mappings,
            stream_hash: format!("{hash:032x}"),
        ))?;
    }
    Ok(dict!(py,
        facts: facts(py, &survey.facts)?,
        manifest: survey.manifest.as_ref().map(manifest_text),
        streams: streams,
        fault: survey.fault.as_ref().map(ToString::to_string),
        stopped: survey.stopped,
    ))
}
