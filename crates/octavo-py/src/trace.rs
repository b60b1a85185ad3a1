//! Traces as Python objects: opened, summarised, listed.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use octavo_trace::formats::{self, OpenOptions};
use octavo_trace::source::{Facts, InputOptions, Source, TraceError};
use octavo_trace::{Content, ListingOptions, Manifest, NativeSource, Overview, TimeSlicing, list};
use octavo_types::ItemKind;
use pyo3::exceptions::{PyBrokenPipeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::results::dict;
use crate::{OctavoError, raised};

/// A trace that was opened, to be read once.
#[pyclass]
pub struct Trace {
    /// Behind a lock only because Python may share it; a source belongs to one thread at a time.
    source: Mutex<Option<Box<dyn Source>>>,
    /// Its name, in messages.
    pub name: String,
}

pub fn failed(error: &TraceError) -> PyErr {
    if error.is_reader_gone {
        return PyBrokenPipeError::new_err(error.to_string());
    }
    raised(error)
}

#[pymethods]
impl Trace {
    #[staticmethod]
    #[pyo3(signature = (name, *, format=None, max_expanded_bytes=None))]
    fn open(
        py: Python<'_>,
        name: PathBuf,
        format: Option<String>,
        max_expanded_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let mut input = InputOptions::default();
        if let Some(bytes) = max_expanded_bytes {
            input.max_expanded_bytes = bytes;
        }
        let options = OpenOptions { format, input };
        let source = py.detach(|| formats::open(&name, &options)).map_err(|e| failed(&e))?;
        Ok(Trace::of(source, &name.display().to_string()))
    }

    /// The processes of some traces, taking turns of `quantum_instructions`; the first turn of each
    /// trace's first process has `first_quantum_instructions`.
    #[staticmethod]
    fn take_turns(
        py: Python<'_>,
        traces: Vec<Py<Trace>>,
        quantum_instructions: NonZeroU64,
        first_quantum_instructions: NonZeroU64,
    ) -> PyResult<Self> {
        let mut sources = Vec::new();
        let mut names = Vec::new();
        for trace in &traces {
            let trace = trace.borrow(py);
            sources.push(trace.take()?);
            names.push(trace.name.clone());
        }
        if sources.is_empty() {
            return Err(PyValueError::new_err("there is no trace"));
        }
        let (quantum, first) = (quantum_instructions.get(), first_quantum_instructions.get());
        let slicing = py.detach(|| TimeSlicing::new(sources, quantum, first));
        Ok(Trace::of(Box::new(slicing.map_err(|error| failed(&error))?), &names.join(", ")))
    }

    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        facts(py, &source.as_ref().ok_or_else(used)?.facts())
    }

    fn manifest(&self) -> PyResult<Option<String>> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(source.as_ref().ok_or_else(used)?.manifest().as_ref().map(manifest_text))
    }

    #[pyo3(signature = (*, entries, from_instruction=0, stream=None, events_only=false))]
    fn list<'py>(
        &self,
        py: Python<'py>,
        entries: usize,
        from_instruction: u64,
        stream: Option<u32>,
        events_only: bool,
    ) -> PyResult<(Bound<'py, PyList>, Option<String>)> {
        let mut source = self.take()?;
        let options = ListingOptions { entries, from_instruction, stream, events_only };
        let (entries, fault) = py.detach(|| list(&mut *source, options));
        let listing = PyList::empty(py);
        for entry in entries {
            let line = match entry.content {
                Content::Reference { kind, addr, size_bytes, atomic } => dict!(py,
                    stream: entry.stream,
                    instruction: entry.instruction,
                    kind: kind_name(kind),
                    address: addr.raw(),
                    size: size_bytes,
                    atomic: atomic,
                ),
                Content::Event(event) => dict!(py,
                    stream: entry.stream,
                    instruction: entry.instruction,
                    kind: "event",
                    event: event.to_string(),
                ),
            };
            listing.append(line)?;
        }
        Ok((listing, fault.map(|fault| fault.to_string())))
    }
}

impl Trace {
    /// Takes the source, which can be read once.
    pub fn take(&self) -> PyResult<Box<dyn Source>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(used)
    }

    pub fn of(source: Box<dyn Source>, name: &str) -> Self {
        Trace { source: Mutex::new(Some(source)), name: name.to_owned() }
    }
}

fn used() -> PyErr {
    OctavoError::new_err("the trace was read already")
}

fn kind_name(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Fetch => "fetch",
        ItemKind::Load => "load",
        ItemKind::Store => "store",
        ItemKind::Modify => "modify",
    }
}

/// `Facts` as plain data.
pub fn facts<'py>(py: Python<'py>, facts: &Facts) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py,
        format: facts.format,
        exact: facts.exact,
        samples: facts.samples,
        has_instructions: facts.has_instructions,
        has_sizes: facts.has_sizes,
        physical: facts.physical,
        notes: facts.notes.clone(),
        sample: facts.sample.as_ref().map(ToString::to_string),
    ))
}

/// Whether a file begins as a trace does.
#[pyfunction]
pub fn looks_like_a_trace(path: PathBuf) -> bool {
    formats::looks_like_a_trace(&path)
}

/// A manifest as JSON.
pub fn manifest_text(manifest: &Manifest) -> String {
    String::from_utf8(manifest.to_json()).expect("JSON is UTF-8")
}

/// Summarises a native trace without decoding it; None for other files.
#[pyfunction]
pub fn trace_overview(py: Python<'_>, path: PathBuf) -> PyResult<Option<Bound<'_, PyDict>>> {
    let mut head = [0; 8];
    let read = std::fs::File::open(&path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
    if read.is_err() || !NativeSource::recognises(&head) {
        return Ok(None);
    }
    let overview = py.detach(|| Overview::read(&path)).map_err(|error| failed(&error))?;
    let streams = PyList::empty(py);
    for stream in &overview.streams {
        streams.append(dict!(py,
            stream: stream.stream,
            chunks: stream.chunks,
            instructions: stream.totals.instructions,
            references: stream.totals.references,
        ))?;
    }
    Ok(Some(dict!(py,
        bytes: overview.bytes,
        whole_bytes: overview.whole_bytes,
        is_whole: overview.is_whole,
        streams: streams,
        manifest: overview.manifest.as_ref().map(manifest_text),
    )))
}

/// Every kind of synthetic trace: its name and what it is.
#[pyfunction]
pub fn synthetic_kinds() -> Vec<(&'static str, &'static str)> {
    octavo_trace::synthetic::KINDS.iter().map(|kind| (kind.name, kind.about)).collect()
}

/// Every format: name, description, whether it can be written, and its suffixes.
#[pyfunction]
pub fn trace_formats(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    list.append(dict!(py,
        name: formats::NATIVE,
        about: "Octavo's own: every event that the tracer records",
        writes: true,
        suffixes: vec!["oct"],
    ))?;
    list.append(dict!(py,
        name: formats::SYNTHETIC,
        about: "the description of a synthetic trace, in TOML",
        writes: false,
        suffixes: vec!["toml"],
    ))?;
    for format in formats::FORMATS {
        list.append(dict!(py,
            name: format.name,
            about: format.about,
            writes: format.create.is_some(),
            suffixes: format.suffixes.to_vec(),
        ))?;
    }
    Ok(list)
}
