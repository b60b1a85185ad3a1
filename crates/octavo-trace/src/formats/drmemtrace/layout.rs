//! Which files of a directory are traces.
//!
//! DynamoRIO makes `drmemtrace.app.pid.dir/` with `raw/` in it, and in post-processing `trace/`
//! beside that; others give a directory of files, with `v2p.textproto` there or in `aux/`.

use std::path::{Path, PathBuf};

use crate::source::TraceError;

/// How many files are merged at most. Each takes some hundred kilobytes while it is open.
const MAX_FILES: usize = 4096;
/// How many entries of a directory are looked at.
const MAX_ENTRIES: usize = 1 << 16;
/// Other files of such directories, by the beginnings of their names.
const OTHERS: [&str; 9] = [
    ".",
    "serial_schedule.bin",
    "cpu_schedule.bin",
    "modules.log",
    "funclist.log",
    "encodings.bin",
    "v2p.textproto",
    "info.textproto",
    "kallsyms",
];
const V2P: &str = "v2p.textproto";

/// The files that make up a trace.
pub(super) struct Layout {
    pub(super) files: Vec<PathBuf>,
    pub(super) v2p: Option<PathBuf>,
}

/// Whether `path` looks like a directory of traces, raw ones included.
pub(crate) fn is_directory(path: &Path) -> bool {
    let of_traces = |name: &str| name.contains("memtrace.") || name.contains(".trace");
    path.is_dir()
        && (path.join("trace").is_dir()
            || path.join("raw").is_dir()
            || is_named(path, "raw")
            || names(path).is_ok_and(|names| names.iter().any(|name| of_traces(name))))
}

/// The traces of `directory`.
pub(super) fn of_directory(directory: &Path) -> Result<Layout, TraceError> {
    let wrong = |what: String| TraceError::whole(&directory.display().to_string(), what);
    let inner = directory.join("trace");
    let place = if inner.is_dir() { inner.as_path() } else { directory };
    let mut names = names(place).map_err(|error| wrong(error.to_string()))?;
    names.retain(|name| !OTHERS.iter().any(|other| name.starts_with(other)));
    names.retain(|name| place.join(name).is_file());
    names.sort_unstable();
    if place.join("raw").is_dir() {
        // The raw directory's own companions are there too.
        names.retain(|name| name.contains(".trace") || name.contains(".memtrace"));
    }
    let is_raw = is_named(place, "raw") || names.iter().any(|name| name.contains(".raw"));
    if is_raw || (names.is_empty() && place.join("raw").is_dir()) {
        return Err(wrong(RAW.to_owned()));
    }
    if names.is_empty() {
        return Err(wrong("holds no traces".to_owned()));
    }
    if names.len() > MAX_FILES {
        return Err(wrong(format!("holds {} files; {MAX_FILES} are merged", names.len())));
    }
    let files = names.iter().map(|name| place.join(name)).collect();
    Ok(Layout { files, v2p: v2p_beside(place) })
}

/// The refusal of a tracer's raw files.
pub(super) const RAW: &str = "holds the raw files of a tracer, not its final trace: run \
                              DynamoRIO's `drraw2trace -indir` on it, or \
                              `drrun -t drmemtrace -indir`, first";

/// The virtual to physical map of the traces in `place`.
pub(super) fn v2p_beside(place: &Path) -> Option<PathBuf> {
    let here = [place.join(V2P), place.join("raw").join(V2P), place.join("aux").join(V2P)];
    let parent = place.parent().filter(|_| is_named(place, "trace"));
    let above = parent.map(|parent| {
        [parent.join(V2P), parent.join("raw").join(V2P), parent.join("aux").join(V2P)]
    });
    here.into_iter().chain(above.into_iter().flatten()).find(|path| path.is_file())
}

fn is_named(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|file| file == name)
}

fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)?.take(MAX_ENTRIES) {
        // Names that are not text are none of DynamoRIO's.
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}
