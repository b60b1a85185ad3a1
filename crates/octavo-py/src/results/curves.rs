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

fn stream_curves<'py>(py: Python<'py>, curves: &StreamCurves) -> Dict<'py> {
    Ok(dict!(py,
        stream: stream_name(curves.stream),
        references: curves.references,
        program_references: curves.program_references,
        stack: list(py, &curves.stack, stack)?,
        sets: list(py, &curves.sets, sets)?,
        caches: list(py, &curves.caches, caches)?,
        working_sets: list(py, &curves.working_sets, working_set)?,
        two_sizes: list(py, &curves.two_sizes, two_sizes)?,
        classes: list(py, &curves.classes, classes)?,
        cores: list(py, &curves.cores, core)?,
        sampled: curves.sampled.as_ref().map(|sizes| list(py, sizes, sampled)).transpose()?,
    ))
}

fn core<'py>(py: Python<'py>, curves: &CoreCurves) -> Dict<'py> {
    Ok(dict!(py,
        thread: curves.thread,
        instructions: curves.instructions,
        references: curves.references,
        stack: list(py, &curves.stack, stack)?,
        sets: list(py, &curves.sets, sets)?,
        caches: list(py, &curves.caches, caches)?,
        two_sizes: list(py, &curves.two_sizes, two_sizes_tlbs)?,
        classes: curves.classes.as_ref().map(|found| classes(py, found)).transpose()?,
    ))
}

fn sampled<'py>(py: Python<'py>, size: &SampledSize) -> Dict<'py> {
    let windows: Vec<u64> = size.working_sets.iter().map(|(window, _)| *window).collect();
    let page_refs: Vec<_> = size.working_sets.iter().map(|(_, page_refs)| *page_refs).collect();
    Ok(dict!(py,
        page_size: size.page_size.bytes(),
        pages: size.pages,
        kept_pages: size.kept_pages,
        misses: estimates(py, &size.misses)?,
        windows_refs: windows,
        page_refs: estimates(py, &page_refs)?,
    ))
}

fn estimates<'py>(py: Python<'py>, estimates: &[Option<Estimate>]) -> Dict<'py> {
    let column = |value: fn(&Estimate) -> f64| {
        let numbers: Vec<f64> =
            estimates.iter().map(|one| one.as_ref().map_or(f64::NAN, value)).collect();
        bytes(py, &numbers, f64::to_le_bytes)
    };
    Ok(dict!(py,
        values: column(|one| one.value),
        low: column(|one| one.low),
        high: column(|one| one.high),
    ))
}

fn two_sizes_tlbs<'py>(py: Python<'py>, tlbs: &TwoSizesTlbs) -> Dict<'py> {
    Ok(dict!(py,
        counters: dict!(py,
            small_lookups: tlbs.small_lookups,
            large_lookups: tlbs.large_lookups,
        ),
        small_misses: words(py, &tlbs.stack.small_misses),
        large_misses: words(py, &tlbs.stack.large_misses),
        invalidated: words(py, &tlbs.stack.invalidated),
        sets: list(py, &tlbs.sets, two_sizes_sets)?,
    ))
}

fn classes<'py>(py: Python<'py>, classes: &MissClasses) -> Dict<'py> {
    Ok(dict!(py,
        page_size: classes.config.page_size.bytes(),
        larger: classes.config.larger.bytes(),
        sets: 1u64 << classes.config.sets_log2,
        ways: classes.config.ways,
        regions: list(py, &classes.regions, |py, (region, counts)| {
            Ok(dict!(py,
                name: region.name.as_str(),
                kind: region.kind.name(),
                path: region.path.as_deref(),
                counts: class_counts(py, counts)?,
            ))
        })?,
        functions: list(py, &classes.functions, |py, function| {
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

fn class_counts<'py>(py: Python<'py>, counts: &ClassCounts) -> Dict<'py> {
    Ok(dict!(py,
        compulsory: counts.compulsory,
        capacity: counts.capacity,
        conflict: counts.conflict,
        page_size: counts.page_size,
    ))
}

fn stack<'py>(py: Python<'py>, curve: &StackCurve) -> Dict<'py> {
    Ok(dict!(py,
        page_size: curve.page_size.bytes(),
        pages: curve.pages,
        misses: words(py, &curve.misses),
    ))
}

fn sets<'py>(py: Python<'py>, curves: &SetCurves) -> Dict<'py> {
    let index = match curves.index {
        SetIndex::Bits { from: 0 } => "low".to_owned(),
        SetIndex::Bits { from } => format!("bits:{from}"),
        SetIndex::Xor => "xor".to_owned(),
    };
    Ok(dict!(py,
        page_size: curves.page_size.bytes(),
        index: index,
        misses: table(py, &curves.misses),
    ))
}

fn caches<'py>(py: Python<'py>, curves: &CacheCurves) -> Dict<'py> {
    Ok(dict!(py,
        line_bytes: curves.line.bytes(),
        lookups: curves.lookups,
        misses: table(py, &curves.misses),
    ))
}

fn working_set<'py>(py: Python<'py>, result: &WorkingSet) -> Dict<'py> {
    Ok(dict!(py,
        page_size: result.page_size.bytes(),
        window_refs: result.window_refs,
        page_refs: result.page_refs,
    ))
}

fn two_sizes<'py>(py: Python<'py>, result: &TwoSizesResult) -> Dict<'py> {
    Ok(dict!(py,
        small: result.config.small.bytes(),
        large: result.config.large.bytes(),
        window_refs: result.config.window_refs,
        threshold_blocks: result.config.threshold_blocks,
        counters: dict!(py,
            small_lookups: result.small_lookups,
            large_lookups: result.large_lookups,
            promotions: result.promotions,
            demotions: result.demotions,
            blocks_copied: result.blocks_copied,
            blocks_zeroed: result.blocks_zeroed,
        ),
        small_misses: words(py, &result.stack.small_misses),
        large_misses: words(py, &result.stack.large_misses),
        invalidated: words(py, &result.stack.invalidated),
        sets: list(py, &result.sets, two_sizes_sets)?,
        windows_refs: result.config.windows_refs.clone(),
        working_set_byte_refs: result.working_set_byte_refs.clone(),
    ))
}

fn two_sizes_sets<'py>(py: Python<'py>, curves: &TwoSizesSets) -> Dict<'py> {
    let index = match curves.index {
        TwoSizesIndex::Small => "small",
        TwoSizesIndex::Large => "large",
        TwoSizesIndex::Exact => "exact",
        TwoSizesIndex::SplitSmall => "split-small",
        TwoSizesIndex::SplitLarge => "split-large",
    };
    Ok(dict!(py,
        index: index,
        small_misses: table(py, &curves.small_misses),
        large_misses: table(py, &curves.large_misses),
        invalidated: table(py, &curves.invalidated),
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
