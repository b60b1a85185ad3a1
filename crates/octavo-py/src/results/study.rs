//! Results of a study of misses and memory as Python data.

use octavo_curves::{
    AllocationSite, Allocations, CodePlace, Curve, Footprint, MachineCurve, PageFaults,
    RegionResult, Stream, Study, ThreadCounts,
};
use octavo_trace::{NamedThread, Region, StreamResult};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{Dict, dict, process, stream_name};
use crate::engine::Engine;
use crate::sharing::TouchedPages;

impl Engine for Study {
    fn process<'py>(py: Python<'py>, stream: &StreamResult<Self>) -> Dict<'py> {
        let study = &stream.consumer;
        let regions = PyList::empty(py);
        for (known, result) in study.regions() {
            regions.append(region(py, &known, &result)?)?;
        }
        let total = study.total();
        let dict = process(py, stream, study.counts())?;
        dict.set_item("curves", curves(py, &total)?)?;
        dict.set_item("machine_curves", machine_curves(py, &total)?)?;
        dict.set_item("footprints", footprints(py, &total.footprints)?)?;
        dict.set_item("regions", regions)?;
        dict.set_item("knows_memory", study.knows_memory())?;
        dict.set_item("missed_lines", study.missed_lines())?;
        dict.set_item("by_thread", by_thread(py, stream)?)?;
        if let Some(found) = study.allocations() {
            dict.set_item("allocations", allocations(py, &found)?)?;
        }
        if !stream.windows.windows().is_empty() {
            dict.set_item("window_counts", window_counts(py, study)?)?;
        }
        Ok(dict)
    }
}

/// The `ThreadCounts` of each thread that executed instructions.
fn by_thread<'py>(py: Python<'py>, stream: &StreamResult<Study>) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let (threads, further) = stream.consumer.threads(stream.identity.initial_threads());
    let numbered = threads.iter().zip(1..).map(|(counts, number)| (Some(number), counts));
    for (number, counts) in numbered.chain([(None, &further)]) {
        let ThreadCounts { threads, instructions, missed_lines, fetch_walks, data_walks } = counts;
        if *instructions == 0 {
            continue;
        }
        let named = number.and_then(|number: usize| stream.threads.get(number - 1));
        let walks = PyList::empty(py);
        for (stream, counts) in [("fetch", fetch_walks), ("data", data_walks)] {
            for (page_size, walked) in counts {
                walks.append(dict!(py,
                    stream: stream,
                    page_size: page_size.bytes(),
                    walks: walked,
                ))?;
            }
        }
        list.append(dict!(py,
            number: number,
            threads: threads,
            name: named.map(|NamedThread { name, .. }| name.as_str()),
            kernel_seconds: named.map(|thread| thread.kernel_time.as_secs_f64()),
            instructions: instructions,
            missed_lines: missed_lines,
            walks: walks,
        ))?;
    }
    Ok(list)
}

/// Describes each number of a window's counts: the misses of a level.
fn window_counts<'py>(py: Python<'py>, study: &Study) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for stream in [Stream::Fetch, Stream::Data] {
        for page_size in study.page_sizes() {
            let level = 1;
            list.append(dict!(py,
                stream: stream_name(stream),
                page_size: page_size.bytes(),
                level: level,
                modelled: false,
            ))?;
        }
    }
    for (stream, curve) in study.machine_curves() {
        list.append(dict!(py,
            stream: stream_name(stream),
            page_size: curve.page_size.bytes(),
            level: curve.level,
            modelled: true,
        ))?;
    }
    Ok(list)
}

/// Misses of data by allocation site and line.
fn allocations<'py>(py: Python<'py>, found: &Allocations) -> Dict<'py> {
    let (columns, sites, stacks, misses) =
        (PyList::empty(py), PyList::empty(py), PyList::empty(py), PyList::empty(py));
    for column in &found.columns {
        columns.append((column.page_size.bytes(), column.modelled))?;
    }
    for AllocationSite { place, address, blocks, most_bytes } in &found.sites {
        sites.append(dict!(py,
            place: code_place(py, place)?,
            address: address.raw(),
            blocks: blocks,
            most_bytes: most_bytes,
        ))?;
    }
    for stack in &found.stacks {
        let frames = PyList::empty(py);
        for frame in &stack.frames {
            frames.append(code_place(py, frame)?)?;
        }
        stacks.append(dict!(py, site: stack.site, frames: frames))?;
    }
    for entry in &found.misses {
        misses.append(dict!(py,
            stack: entry.stack,
            region: entry.region,
            place: code_place(py, &entry.place)?,
            counts: &entry.counts,
        ))?;
    }
    Ok(dict!(py,
        columns: columns,
        sites: sites,
        stacks: stacks,
        misses: misses,
        dropped_blocks: found.dropped_blocks,
    ))
}

fn code_place<'py>(py: Python<'py>, place: &CodePlace) -> Dict<'py> {
    Ok(dict!(py,
        function: place.function.as_deref(),
        path: place.path.as_deref(),
        source: place.source.as_deref(),
        line: place.line,
    ))
}

fn region<'py>(py: Python<'py>, region: &Region, result: &RegionResult) -> Dict<'py> {
    Ok(dict!(py,
        name: region.name.as_str(),
        kind: region.kind.name(),
        path: region.path.as_deref(),
        start: region.start.raw(),
        bytes: region.peak_bytes(),
        mappings: region.mappings,
        asked_huge_bytes: region.asked_huge_bytes(),
        asked_small_bytes: region.asked_small_bytes(),
        hugetlb_bytes: region.hugetlb_bytes(),
        malloc_bytes: region.malloc_bytes(),
        fetch_references: result.fetch_references,
        data_references: result.data_references,
        curves: curves(py, result)?,
        machine_curves: machine_curves(py, result)?,
        footprints: footprints(py, &result.footprints)?,
        page_faults: page_faults(py, result.page_faults)?,
        huge_growth_bytes: result.huge_growth_bytes,
        touched: Bound::new(py, TouchedPages(result.touched.clone()))?,
    ))
}

fn page_faults<'py>(py: Python<'py>, faults: PageFaults) -> Dict<'py> {
    let PageFaults { base, huge, huge_again, left } = faults;
    Ok(dict!(py, base: base, huge: huge, huge_again: huge_again, left: left))
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

fn machine_curves<'py>(py: Python<'py>, result: &RegionResult) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (stream, curves) in [("fetch", &result.fetch_machine), ("data", &result.data_machine)] {
        for MachineCurve { page_size, level, entries, ways, accesses, misses } in curves {
            list.append(dict!(py,
                stream: stream,
                page_size: page_size.bytes(),
                level: level,
                entries: entries,
                ways: ways,
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
        list.append(dict!(py,
            stream: stream_name(*stream),
            page_size: page_size.bytes(),
            touched_bytes: touched_bytes,
            peak_resident_bytes: peak_resident_bytes,
        ))?;
    }
    Ok(list)
}
