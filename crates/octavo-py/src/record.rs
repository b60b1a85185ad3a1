//! A live recording, with the methods of a live run.

use std::path::PathBuf;

use octavo_trace::sink::Output;
use octavo_trace::{Live, LiveOptions, Manifest, NativeFile, Recorder};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::options::read_timeout;
use crate::results::{self, dict};
use crate::run::TracedProgram;
use crate::trace::failed;
use crate::{OctavoError, raised, sentence};

/// A program under the tracer, written to a native trace by background threads as it runs.
#[pyclass]
pub struct Recording {
    options: LiveOptions,
    path: PathBuf,
    overwrite: bool,
    manifest: Manifest,
    running: Option<(Live<Recorder>, NativeFile)>,
}

#[pymethods]
impl Recording {
    #[new]
    #[pyo3(signature = (program, *, path, overwrite, about))]
    fn new(
        program: &Bound<'_, TracedProgram>,
        path: PathBuf,
        overwrite: bool,
        about: &str,
    ) -> PyResult<Self> {
        let about =
            serde_json::from_str(about).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let options = program.get().0.clone();
        let exact = options.windows.is_none();
        let manifest = Manifest { exact, ..Manifest::recorded(about) };
        Ok(Recording { options, path, overwrite, manifest, running: None })
    }

    fn start(&mut self) -> PyResult<u32> {
        let output = Output::create_in_place(&self.path, self.overwrite);
        let output = output.map_err(|error| failed(&error))?;
        let started = self.start_into(output).inspect_err(|_| {
            // A device or a pipe is not removed.
            if self.path.is_file() {
                drop(std::fs::remove_file(&self.path));
            }
        })?;
        let pid = started.0.pid();
        self.running = Some(started);
        Ok(pid)
    }

    fn wait<'py>(&self, py: Python<'py>, timeout_seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        let timeout = read_timeout(timeout_seconds)?;
        let (live, file) = self.running()?;
        let progress = results::progress(py, &py.detach(|| live.wait(timeout)))?;
        progress.set_item("bytes", file.bytes())?;
        progress.set_item("failed", file.failed().map(|error| sentence(&error)))?;
        Ok(progress)
    }

    fn signal(&self, number: i32) -> PyResult<()> {
        self.running()?.0.interrupt(number);
        Ok(())
    }

    fn note_interrupted(&self) -> PyResult<()> {
        self.running()?.0.note_interrupted();
        Ok(())
    }

    fn set_counting(&self, py: Python<'_>, counting: bool) {
        match &self.running {
            Some((live, _)) => py.detach(|| live.set_open(counting)),
            None => self.options.limits.set_open(counting),
        }
    }

    fn end_softly(&self) {
        self.options.limits.end_softly();
    }

    fn end_region(&self, py: Python<'_>, number: i32) -> PyResult<()> {
        let (live, _) = self.running()?;
        py.detach(|| live.end_region(number));
        Ok(())
    }

    fn stop(&self) -> PyResult<()> {
        self.running()?.0.stop();
        Ok(())
    }

    /// Finishes the trace. `about` gets the result, and returns further facts for the manifest, as
    /// JSON.
    fn result<'py>(
        &mut self,
        py: Python<'py>,
        about: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (live, file) = self.running.take().ok_or_else(not_running)?;
        let result = py.detach(|| live.finish());
        let result = result.map_err(|error| raised(&error))?;
        let streams = PyList::empty(py);
        for stream in &result.streams {
            let progress = octavo_trace::Observer::progress(&stream.consumer);
            streams.append(dict!(py,
                stream: stream.identity.stream,
                program: stream.identity.program.as_str(),
                pid: stream.identity.pid,
                began_by: stream.identity.began.name(),
                ended_by: stream.ended.name(),
                exit_code: stream.exit_code,
                instructions: progress.instructions,
                references: progress.references,
            ))?;
        }
        let dict = dict!(py,
            exit: results::exit(py, &result.exit)?,
            elapsed_seconds: result.elapsed.as_secs_f64(),
            untraced_processes: result.untraced,
            streams: streams,
        );
        let text: String = about.call1((dict.clone(),))?.extract()?;
        let about =
            serde_json::from_str(&text).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let manifest = Manifest { about, ..self.manifest.clone() };
        let written = py.detach(|| {
            file.add_manifest(&manifest)?;
            file.finish()
        });
        let written = written.map_err(|error| failed(&error))?;
        dict.set_item("bytes", written.bytes)?;
        dict.set_item("references", written.references)?;
        dict.set_item("instructions", written.instructions)?;
        Ok(dict)
    }
}

impl Recording {
    fn start_into(&self, output: Output) -> PyResult<(Live<Recorder>, NativeFile)> {
        let file = NativeFile::create(output, &self.manifest).map_err(|error| failed(&error))?;
        let shared = file.clone();
        let live =
            Live::start(self.options.clone(), move |identity| Recorder::new(&shared, identity))
                .map_err(|error| raised(&error))?;
        Ok((live, file))
    }

    fn running(&self) -> PyResult<&(Live<Recorder>, NativeFile)> {
        self.running.as_ref().ok_or_else(not_running)
    }
}

fn not_running() -> PyErr {
    OctavoError::new_err("the recording has not started, or its result was taken")
}
