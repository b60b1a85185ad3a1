//! Columns of references, passed between Python (for Parquet) and trace sources and sinks.

use std::sync::{Mutex, PoisonError};

use octavo_trace::formats::columns::{self, ColumnBatch, column_channel};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::OctavoError;
use crate::trace::Trace;

/// Where Python puts batches of rows.
#[pyclass]
pub struct ColumnFeed {
    /// None once closed. Held locked while rows are pushed, which keeps their order.
    feed: Mutex<Option<columns::ColumnFeed>>,
}

#[pymethods]
impl ColumnFeed {
    /// Sends rows, each column as little-endian bytes; blocks while the reader is behind. Returns
    /// false if the reader has closed.
    #[pyo3(signature = (kinds, addresses, sizes, threads))]
    fn push(
        &self,
        py: Python<'_>,
        kinds: PyBackedBytes,
        addresses: PyBackedBytes,
        sizes: Option<PyBackedBytes>,
        threads: Option<PyBackedBytes>,
    ) -> PyResult<bool> {
        let batch = ColumnBatch {
            kinds: kinds.to_vec(),
            addresses: words(&addresses, u64::from_le_bytes)?,
            sizes: sizes.map(|bytes| words(&bytes, u16::from_le_bytes)).transpose()?,
            threads: threads.map(|bytes| words(&bytes, u32::from_le_bytes)).transpose()?,
        };
        py.detach(|| {
            let feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(feed.as_ref().is_some_and(|feed| feed.send(batch).is_ok()))
        })
    }

    /// Ends the columns: all rows were sent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.take().map(columns::ColumnFeed::finish));
    }

    /// Ends the columns with the error `what`.
    fn fail(&self, py: Python<'_>, what: &str) {
        py.detach(|| self.take().map(|feed| feed.fail(what)));
    }
}

impl ColumnFeed {
    fn take(&self) -> Option<columns::ColumnFeed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn words<T, const N: usize>(bytes: &[u8], word: fn([u8; N]) -> T) -> PyResult<Vec<T>> {
    let (whole, rest) = bytes.as_chunks::<N>();
    if rest.is_empty() {
        Ok(whole.iter().map(|bytes| word(*bytes)).collect())
    } else {
        Err(PyValueError::new_err("a column ends in the middle of a number"))
    }
}

/// A trace of columns named `name`, and the feed that takes its rows.
#[pyfunction]
pub fn open_columns(name: &str) -> (Trace, ColumnFeed) {
    let (feed, source) = column_channel(name);
    (Trace::of(Box::new(source), name), ColumnFeed { feed: Mutex::new(Some(feed)) })
}

/// Where Python takes batches of rows.
#[pyclass]
pub struct ColumnDrain {
    /// None once closed.
    drain: Mutex<Option<columns::ColumnDrain>>,
}

type Columns<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl ColumnDrain {
    /// The next rows as kinds, addresses, sizes and threads in little-endian bytes; none at the
    /// end. Waits for them.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Columns<'py>>> {
        let receive = || {
            let drain = self.drain.lock().unwrap_or_else(PoisonError::into_inner);
            drain.as_ref().map_or(Ok(None), columns::ColumnDrain::receive)
        };
        let batch = py.detach(receive).map_err(OctavoError::new_err)?;
        Ok(batch.map(|batch| {
            let sizes = batch.sizes.unwrap_or_default();
            let threads = batch.threads.unwrap_or_default();
            (
                PyBytes::new(py, &batch.kinds),
                bytes(py, &batch.addresses, u64::to_le_bytes),
                bytes(py, &sizes, u16::to_le_bytes),
                bytes(py, &threads, u32::to_le_bytes),
            )
        }))
    }

    /// Stops reading; the writer gets an error from its next write.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.drain.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl ColumnDrain {
    pub fn of(drain: columns::ColumnDrain) -> Self {
        ColumnDrain { drain: Mutex::new(Some(drain)) }
    }
}

/// Numbers as bytes.
pub fn bytes<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    words: &[T],
    word: fn(T) -> [u8; N],
) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = words.iter().flat_map(|value| word(*value)).collect();
    PyBytes::new(py, &bytes)
}
