//! Reads and checks the options that Python passes.

use std::fmt::Display;
use std::time::Duration;

use octavo_curves::{
    AtContextSwitch, ClassesConfig, Levels, LineSize, MAX_ENTRIES, PageSample, SetIndex, Stream,
    Threads,
};
use octavo_types::PageSize;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The most levels that a TLB may have.
const MAX_LEVELS: usize = 4;
/// The most entries that a level may have.
const MAX_LEVEL_ENTRIES: u32 = 1 << 20;
/// The highest bit of a page number that an index may begin at: even with the most sets, all its
/// bits lie within a page number.
pub const MAX_INDEX_BIT: u8 = 40;
/// The longest window, in references: far more than any trace has, and sums of two still fit.
pub const MAX_WINDOW_REFS: u64 = 1 << 62;

/// One TLB level, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Level {
    pub fetch_entries: u32,
    pub data_entries: u32,
}

/// Two page sizes, as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TwoSizes {
    pub small: u64,
    pub large: u64,
    pub threshold_blocks: u32,
    pub window_refs: u64,
}

impl TwoSizes {
    /// The small size, the large one, and the threshold.
    pub fn read(&self) -> PyResult<(PageSize, PageSize, u32)> {
        let (small, large) = (read_page_size(self.small)?, read_page_size(self.large)?);
        if large <= small {
            let error = "the large one of two page sizes is not larger than the small one";
            return Err(PyValueError::new_err(error));
        }
        let blocks = self.large / self.small;
        if !(1..=blocks).contains(&u64::from(self.threshold_blocks)) {
            return Err(unknown("threshold", self.threshold_blocks, &format!("1 to {blocks}")));
        }
        Ok((small, large, self.threshold_blocks))
    }
}

/// The TLB whose misses are classified, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Classified {
    pub page_size: u64,
    pub larger: u64,
    pub sets: u32,
    pub ways: u32,
}

impl Classified {
    pub fn read(&self) -> PyResult<ClassesConfig> {
        let (page_size, larger) = (read_page_size(self.page_size)?, read_page_size(self.larger)?);
        if larger <= page_size {
            let error = "the page size to compare with is not larger than the TLB's";
            return Err(PyValueError::new_err(error));
        }
        let entries = u64::from(self.sets) * u64::from(self.ways);
        if !self.sets.is_power_of_two() || !(1..=u64::from(MAX_ENTRIES)).contains(&entries) {
            let allowed = format!("a power of two of sets, and 1 to {MAX_ENTRIES} entries");
            return Err(unknown(
                "TLB",
                format!("{} sets x {} ways", self.sets, self.ways),
                &allowed,
            ));
        }
        let sets_log2 = self.sets.ilog2() as u8;
        Ok(ClassesConfig { page_size, larger, sets_log2, ways: self.ways })
    }
}

/// A refusal: `got` is none of `allowed`.
pub fn unknown(what: &str, got: impl Display, allowed: &str) -> PyErr {
    PyValueError::new_err(format!("{what} `{got}`: give {allowed}"))
}

pub fn read_timeout(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

pub fn read_layout(layout: &str) -> PyResult<bool> {
    match layout {
        "native" => Ok(true),
        "as-traced" => Ok(false),
        other => Err(unknown("layout", other, "native or as-traced")),
    }
}

pub fn read_line_size(bytes: u64) -> PyResult<LineSize> {
    LineSize::new(bytes).ok_or_else(|| {
        let (least, most) = (LineSize::LEAST_BYTES, LineSize::MOST_BYTES);
        unknown("line size", bytes, &format!("a power of two, {least} to {most}"))
    })
}

pub fn read_stream(name: &str) -> PyResult<Stream> {
    match name {
        "fetch" => Ok(Stream::Fetch),
        "data" => Ok(Stream::Data),
        "all" => Ok(Stream::All),
        other => Err(unknown("stream", other, "fetch, data or all")),
    }
}

pub fn read_threads(name: &str) -> PyResult<Threads> {
    match name {
        "shared" => Ok(Threads::Shared),
        "private" => Ok(Threads::Private),
        other => Err(unknown("threads", other, "shared or private")),
    }
}

/// None if processes do not share a core.
pub fn read_processes(name: &str) -> PyResult<Option<AtContextSwitch>> {
    match name {
        "apart" => Ok(None),
        "asid" => Ok(Some(AtContextSwitch::Keep)),
        "flush" => Ok(Some(AtContextSwitch::Flush)),
        other => Err(unknown("processes", other, "apart, asid or flush")),
    }
}

/// `low`, `xor` or `bits:N`.
pub fn read_index(text: &str) -> PyResult<SetIndex> {
    let bits = |text: &str| text.parse().ok().filter(|from| *from <= MAX_INDEX_BIT);
    match (text, text.strip_prefix("bits:").and_then(bits)) {
        ("low", _) => Ok(SetIndex::Bits { from: 0 }),
        ("xor", _) => Ok(SetIndex::Xor),
        (_, Some(from)) => Ok(SetIndex::Bits { from }),
        _ => {
            Err(unknown("index", text, &format!("low, xor or bits:N with N up to {MAX_INDEX_BIT}")))
        }
    }
}

pub fn read_window(refs: u64) -> PyResult<u64> {
    if (1..=MAX_WINDOW_REFS).contains(&refs) {
        Ok(refs)
    } else {
        Err(unknown("window", refs, &format!("1 to {MAX_WINDOW_REFS} references")))
    }
}

/// The rate and the seed.
pub fn read_page_sample((rate, seed): (f64, u64)) -> PyResult<PageSample> {
    if (PageSample::MIN_RATE..=1.0).contains(&rate) {
        Ok(PageSample { rate, seed })
    } else {
        Err(unknown("rate", rate, &format!("{} to 1", PageSample::MIN_RATE)))
    }
}

pub fn read_page_sizes(page_sizes: Vec<u64>) -> PyResult<Vec<PageSize>> {
    if page_sizes.is_empty() {
        return Err(PyValueError::new_err("there is no page size to study"));
    }
    page_sizes.into_iter().map(read_page_size).collect()
}

fn read_page_size(bytes: u64) -> PyResult<PageSize> {
    let allowed = "a power of two from 4 KiB to 1 GiB";
    PageSize::from_bytes(bytes).ok_or_else(|| unknown("page size", bytes, allowed))
}

pub fn read_levels(entries: impl ExactSizeIterator<Item = u32>) -> PyResult<Levels> {
    if !(1..=MAX_LEVELS).contains(&entries.len()) {
        return Err(PyValueError::new_err(format!("give 1 to {MAX_LEVELS} TLB levels")));
    }
    let check = |entries: u32| {
        if (1..=MAX_LEVEL_ENTRIES).contains(&entries) {
            Ok(entries)
        } else {
            Err(unknown("entries", entries, &format!("1 to {MAX_LEVEL_ENTRIES}")))
        }
    };
    entries.map(check).collect()
}
