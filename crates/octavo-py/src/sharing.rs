//! Memory that processes share.

use octavo_curves::{Image, PageSet, Part, Touched, counted_again};
use octavo_trace::Stream;
use octavo_types::PageSize;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::options::read_page_sizes;
use crate::results::{dict, stream_name};

/// The base pages that a region has touched.
#[pyclass(name = "Touched", frozen)]
pub struct TouchedPages(pub Touched);

#[pymethods]
impl TouchedPages {
    #[new]
    #[pyo3(signature = (*, fetch = vec![], data = vec![], own = vec![]))]
    fn new(fetch: Vec<u64>, data: Vec<u64>, own: Vec<u64>) -> Self {
        let set = |pages: Vec<u64>| {
            let mut set = PageSet::default();
            for page in pages {
                set.insert(page);
            }
            set
        };
        TouchedPages(Touched::new(set(fetch), set(data), &set(own)))
    }
}

/// A region: its file, if it has one, its address, and its pages.
type Given<'py> = (Option<String>, u64, Bound<'py, TouchedPages>);

/// The memory that a sum of the footprints of processes counts more than once.
#[pyfunction]
pub fn memory_counted_again<'py>(
    py: Python<'py>,
    images: Vec<(u64, Vec<Given<'py>>)>,
    page_sizes: Vec<u64>,
) -> PyResult<Bound<'py, PyList>> {
    let sizes = read_page_sizes(page_sizes)?;
    let images: Vec<Image<'_>> =
        images.iter().map(|(family, parts)| read_image(*family, parts)).collect();
    let list = PyList::empty(py);
    for stream in [Stream::Fetch, Stream::Data, Stream::All] {
        for &size in &sizes {
            list.append(dict!(py,
                stream: stream_name(stream),
                page_size: size.bytes(),
                touched_bytes: counted_again(&images, stream, size),
                peak_resident_bytes: py.None(),
            ))?;
        }
    }
    Ok(list)
}

fn read_image<'a>(family: u64, parts: &'a [Given<'_>]) -> Image<'a> {
    let part = |(file, start, touched): &'a Given<'_>| Part {
        file: file.as_deref(),
        start: start >> PageSize::BASE.log2(),
        touched: &touched.get().0,
    };
    Image { family, parts: parts.iter().map(part).collect() }
}
