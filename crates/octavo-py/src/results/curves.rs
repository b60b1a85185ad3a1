//! Results of curves as Python data. Curves of thousands of numbers are bytes: 64-bit
//! little-endian.

use octavo_curves::{
    CacheCurves, ClassCounts, CoreCurves, Counts, Curves, Estimate, MAX_WAYS, MissClasses,
    SampledSize, SetCurves, SetIndex, StackCurve, StreamCurves, TwoSizesIndex, TwoSizesResult,
    TwoSizesSets, TwoSizesTlbs, WorkingSet,
};
use octavo_trace::{RunResult, StreamResult};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::{Dict, dict, process, run_result, stream_name};
use crate::columns::bytes;
use crate::engine::{Engine, SharedEngine};

type List<'py> = PyResult<Bound<'py, PyList>>;

impl Engine for Curves {
    fn process<'py>(py: Python<'py>, stream: &StreamResult<Self>) -> Dict<'py> {
        let dict = process(py, stream, stream.consumer.counts())?;
        dict.set_item("streams", list(py, stream.consumer.results(), stream_curves)?)?;
        Ok(dict)
    }
}

impl SharedEngine for Curves {
    fn result<'py>(py: Python<'py>, run: &RunResult<Counts>, curves: &Self) -> Dict<'py> {
        let dict = run_result(py, run, |py, stream| {
            let dict = process(py, stream, &stream.consumer)?;
            dict.set_item("streams", PyList::empty(py))?;
            Ok(dict)
        })?;
        dict.set_item("shared", list(py, curves.results(), stream_curves)?)?;
        Ok(dict)
    }
}

fn stream_curves<'py>(py: Python<'py>, of: &StreamCurves) -> Dict<'py> {
    Ok(dict!(py,
        stream: stream_name(of.stream),
        references: of.references,
        program_references: of.program_references,
        stack: list(py, &of.stack, stack)?,
        sets: list(py, &of.sets, sets)?,
        caches: list(py, &of.caches, caches)?,
        working_sets: list(py, &of.working_sets, working_set)?,
        two_sizes: list(py, &of.two_sizes, two_sizes)?,
        classes: list(py, &of.classes, classes)?,
        cores: list(py, &of.cores, core)?,
        sampled: of.sampled.as_ref().map(|of| list(py, of, sampled)).transpose()?,
    ))
}

fn core<'py>(py: Python<'py>, of: &CoreCurves) -> Dict<'py> {
    Ok(dict!(py,
        thread: of.thread,
        instructions: of.instructions,
        references: of.references,
        stack: list(py, &of.stack, stack)?,
        sets: list(py, &of.sets, sets)?,
        caches: list(py, &of.caches, caches)?,
        two_sizes: list(py, &of.two_sizes, two_sizes_tlbs)?,
        classes: of.classes.as_ref().map(|of| classes(py, of)).transpose()?,
    ))
}

fn sampled<'py>(py: Python<'py>, of: &SampledSize) -> Dict<'py> {
    let windows: Vec<u64> = of.working_sets.iter().map(|(window, _)| *window).collect();
    let page_refs: Vec<_> = of.working_sets.iter().map(|(_, page_refs)| *page_refs).collect();
    Ok(dict!(py,
        page_size: of.page_size.bytes(),
        pages: of.pages,
        kept_pages: of.kept_pages,
        misses: estimates(py, &of.misses)?,
        windows_refs: windows,
        page_refs: estimates(py, &page_refs)?,
    ))
}

fn estimates<'py>(py: Python<'py>, of: &[Option<Estimate>]) -> Dict<'py> {
    let column = |of_one: fn(&Estimate) -> f64| {
        let numbers: Vec<f64> =
            of.iter().map(|one| one.as_ref().map_or(f64::NAN, of_one)).collect();
        bytes(py, &numbers, f64::to_le_bytes)
    };
    Ok(dict!(py,
        values: column(|one| one.value),
        low: column(|one| one.low),
        high: column(|one| one.high),
    ))
}

fn two_sizes_tlbs<'py>(py: Python<'py>, of: &TwoSizesTlbs) -> Dict<'py> {
    Ok(dict!(py,
        counters: dict!(py,
            small_lookups: of.small_lookups,
            large_lookups: of.large_lookups,
        ),
        small_misses: words(py, &of.stack.small_misses),
        large_misses: words(py, &of.stack.large_misses),
        invalidated: words(py, &of.stack.invalidated),
        sets: list(py, &of.sets, two_sizes_sets)?,
    ))
}

fn classes<'py>(py: Python<'py>, of: &MissClasses) -> Dict<'py> {
    Ok(dict!(py,
        page_size: of.config.page_size.bytes(),
        larger: of.config.larger.bytes(),
        sets: 1u64 << of.config.sets_log2,
        ways: of.config.ways,
        regions: list(py, &of.regions, |py, (region, counts)| {
            Ok(dict!(py,
                name: region.name.as_str(),
                kind: region.kind.name(),
                path: region.path.as_deref(),
                counts: class_counts(py, counts)?,
            ))
        })?,
        functions: list(py, &of.functions, |py, function| {
            Ok(dict!(py,
                name: function.name.as_deref(),
                path: function.path.as_deref(),
                source: function.source.as_ref().map(|(source, _)| source.as_str()),
                line: function.source.as_ref().map(|(_, line)| *line),
                counts: class_counts(py, &function.counts)?,
            ))
        })?,
    ))
}

fn class_counts<'py>(py: Python<'py>, of: &ClassCounts) -> Dict<'py> {
    Ok(dict!(py,
        compulsory: of.compulsory,
        capacity: of.capacity,
        conflict: of.conflict,
        page_size: of.page_size,
    ))
}

fn stack<'py>(py: Python<'py>, of: &StackCurve) -> Dict<'py> {
    Ok(dict!(py,
        page_size: of.page_size.bytes(),
        pages: of.pages,
        misses: words(py, &of.misses),
    ))
}

fn sets<'py>(py: Python<'py>, of: &SetCurves) -> Dict<'py> {
    let index = match of.index {
        SetIndex::Bits { from: 0 } => "low".to_owned(),
        SetIndex::Bits { from } => format!("bits:{from}"),
        SetIndex::Xor => "xor".to_owned(),
    };
    Ok(dict!(py,
        page_size: of.page_size.bytes(),
        index: index,
        misses: table(py, &of.misses),
    ))
}

fn caches<'py>(py: Python<'py>, of: &CacheCurves) -> Dict<'py> {
    Ok(dict!(py,
        line_bytes: of.line.bytes(),
        lookups: of.lookups,
        misses: table(py, &of.misses),
    ))
}

fn working_set<'py>(py: Python<'py>, of: &WorkingSet) -> Dict<'py> {
    Ok(dict!(py,
        page_size: of.page_size.bytes(),
        window_refs: of.window_refs,
        page_refs: of.page_refs,
    ))
}

fn two_sizes<'py>(py: Python<'py>, of: &TwoSizesResult) -> Dict<'py> {
    Ok(dict!(py,
        small: of.config.small.bytes(),
        large: of.config.large.bytes(),
        window_refs: of.config.window_refs,
        threshold_blocks: of.config.threshold_blocks,
        counters: dict!(py,
            small_lookups: of.small_lookups,
            large_lookups: of.large_lookups,
            promotions: of.promotions,
            demotions: of.demotions,
            blocks_copied: of.blocks_copied,
            blocks_zeroed: of.blocks_zeroed,
        ),
        small_misses: words(py, &of.stack.small_misses),
        large_misses: words(py, &of.stack.large_misses),
        invalidated: words(py, &of.stack.invalidated),
        sets: list(py, &of.sets, two_sizes_sets)?,
        windows_refs: of.config.windows_refs.clone(),
        working_set_byte_refs: of.working_set_byte_refs.clone(),
    ))
}

fn two_sizes_sets<'py>(py: Python<'py>, of: &TwoSizesSets) -> Dict<'py> {
    let index = match of.index {
        TwoSizesIndex::Small => "small",
        TwoSizesIndex::Large => "large",
        TwoSizesIndex::Exact => "exact",
        TwoSizesIndex::SplitSmall => "split-small",
        TwoSizesIndex::SplitLarge => "split-large",
    };
    Ok(dict!(py,
        index: index,
        small_misses: table(py, &of.small_misses),
        large_misses: table(py, &of.large_misses),
        invalidated: table(py, &of.invalidated),
    ))
}

fn list<'py, T>(
    py: Python<'py>,
    items: &[T],
    to_dict: impl Fn(Python<'py>, &T) -> Dict<'py>,
) -> List<'py> {
    let list = PyList::empty(py);
    for item in items {
        list.append(to_dict(py, item)?)?;
    }
    Ok(list)
}

fn table<'py>(py: Python<'py>, rows: &[[u64; MAX_WAYS]]) -> Bound<'py, PyBytes> {
    words(py, rows.as_flattened())
}

fn words<'py>(py: Python<'py>, words: &[u64]) -> Bound<'py, PyBytes> {
    bytes(py, words, u64::to_le_bytes)
}
