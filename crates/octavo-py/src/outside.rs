//! Designs whose second-level TLB is a Python object.

use std::sync::{Arc, Mutex, PoisonError};

use octavo_hw::Asid;
use octavo_machine::designs::{Called, MakeLevel, OutsideLevel};
use octavo_os::vmas::Pages;
use octavo_types::{PageNumber, PageSize};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::OctavoError;

/// A design as Python gives it: a name, or a class with its name and its policy.
#[derive(FromPyObject)]
pub enum GivenDesign {
    Named(String),
    Outside(String, String, Py<PyAny>),
}

/// The first error that Python code of a simulation has raised, and the name of its design.
pub type Failure = Arc<Mutex<Option<(String, PyErr)>>>;

/// Raises the failure as the cause of an `OctavoError`, which names the design and the user's line.
pub fn raise(py: Python<'_>, failure: &Failure) -> PyResult<()> {
    let failed = failure.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((name, error)) = failed.as_ref() else { return Ok(()) };
    let error = error.clone_ref(py);
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default().trim_end_matches('.');
    let place = place_of(py, &error)?.map(|place| format!(" ({place})")).unwrap_or_default();
    let raised = OctavoError::new_err(format!("the design {name} raised {first}{place}."));
    raised.set_cause(py, Some(error));
    Err(raised)
}

/// The innermost line of the error's traceback.
fn place_of(py: Python<'_>, error: &PyErr) -> PyResult<Option<String>> {
    let Some(outermost) = error.traceback(py) else { return Ok(None) };
    let mut innermost = outermost.into_any();
    loop {
        let inner = innermost.getattr("tb_next")?;
        if inner.is_none() {
            break;
        }
        innermost = inner;
    }
    let line: u32 = innermost.getattr("tb_lineno")?.extract()?;
    let code = innermost.getattr("tb_frame")?.getattr("f_code")?;
    let (file, function) = (code.getattr("co_filename")?, code.getattr("co_name")?);
    Ok(Some(format!("{file}, line {line}, in {function}")))
}

/// Makes an object of a class for each core.
pub fn make_level(name: &str, class: Py<PyAny>, failure: &Failure) -> MakeLevel {
    let (name, failure) = (name.to_owned(), Arc::clone(failure));
    Arc::new(move || {
        let calls = Calls { name: name.clone(), failure: Arc::clone(&failure) };
        let level = calls.call(|py| {
            let object = class.bind(py).call0()?;
            let method = |name| Ok::<_, PyErr>(object.getattr(name)?.unbind());
            Ok([method("look_up")?, method("fill")?, method("invalidate")?, method("flush")?])
        })?;
        let [look_up, fill, invalidate, flush] = level;
        Ok(Box::new(PythonLevel { calls, look_up, fill, invalidate, flush }))
    })
}

/// Calls Python code of a design, and keeps the first error.
struct Calls {
    name: String,
    failure: Failure,
}

impl Calls {
    fn call<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Called<T> {
        let called = Python::try_attach(|py| {
            call(py).map_err(|error| {
                let sentence = format!("{} raised {error}", self.name);
                let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert_with(|| (self.name.clone(), error));
                sentence
            })
        });
        called.unwrap_or_else(|| Err("Python ends".to_owned()))
    }
}

struct PythonLevel {
    calls: Calls,
    look_up: Py<PyAny>,
    fill: Py<PyAny>,
    invalidate: Py<PyAny>,
    flush: Py<PyAny>,
}

impl OutsideLevel for PythonLevel {
    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Called<Option<PageSize>> {
        self.calls.call(|py| {
            let found = self.look_up.call1(py, (asid.raw(), page.raw()))?;
            let Some(bytes) = found.extract::<Option<u64>>(py)? else { return Ok(None) };
            let size = PageSize::from_bytes(bytes);
            let error = || PyTypeError::new_err(format!("look_up returned {bytes}: no page size"));
            Ok(Some(size.ok_or_else(error)?))
        })
    }

    fn fill(&mut self, asid: Asid, page: PageNumber, size: PageSize) -> Called<()> {
        self.calls.call(|py| self.fill.call1(py, (asid.raw(), page.raw(), size.bytes())).map(drop))
    }

    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> Called<()> {
        self.calls
            .call(|py| self.invalidate.call1(py, (asid.raw(), pages.start, pages.end)).map(drop))
    }

    fn flush(&mut self) -> Called<()> {
        self.calls.call(|py| self.flush.call0(py).map(drop))
    }
}
