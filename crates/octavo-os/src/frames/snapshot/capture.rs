//! Captures a snapshot of the running machine from its `/proc`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Snapshot;
use super::error::SnapshotError;
use super::flags::read_flags;
use super::header::{Process, SnapshotHeader, Zone};
use super::pagemap::{parse_maps, read_pagemap};
use super::proc_text::{parse_buddyinfo, parse_iomem, parse_meminfo, parse_pagetypeinfo};
use super::runs::FrameRuns;

/// The proc file system of Linux.
pub const PROC: &str = "/proc";

impl Snapshot {
    /// Captures from `proc`, usually [`PROC`]: information open to every user and, if permitted, to root
    /// only. [`SnapshotHeader::missing`] lists what could not be read. Memory changes during the capture, so
    /// that its parts may be inconsistent.
    ///
    /// # Errors
    ///
    /// If free blocks cannot be read, the process does not exist, or a file has an unknown format.
    pub fn capture(proc: &Path, pid: Option<u32>) -> Result<Self, SnapshotError> {
        let mut missing = Vec::new();
        let mut zones = parse(proc.join("buddyinfo"), parse_buddyinfo)?;
        let memory_frames = parse(proc.join("meminfo"), parse_meminfo)?;
        read_regions(proc, &mut zones, &mut missing)?;
        let found = pid.map(|pid| read_process(proc, pid, &mut missing)).transpose()?.flatten();
        let (process, mapped) = found.unzip();
        let runs = read_frames(proc, &mapped.unwrap_or_default(), &mut missing)?;
        let kernel = read(&proc.join("sys/kernel/osrelease")).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let about = SnapshotHeader {
            taken_at_seconds: now.as_secs(),
            kernel: kernel.trim().to_owned(),
            memory_frames,
            zones,
            process,
            missing,
        };
        about.check()?;
        Ok(Snapshot { about, runs })
    }
}

/// Reads the regions of each zone by kind.
fn read_regions(
    proc: &Path,
    zones: &mut [Zone],
    missing: &mut Vec<String>,
) -> Result<(), SnapshotError> {
    let path = proc.join("pagetypeinfo");
    let consequence = "movable memory is known only from /proc/kpageflags, if readable";
    match read(&path) {
        Ok(text) => {
            if let Err(detail) = parse_pagetypeinfo(&text, zones) {
                missing.push(format!("/proc/pagetypeinfo: {detail}; {consequence}"));
            }
        }
        Err(source) if may_be_missing(&source) => {
            missing.push(format!("/proc/pagetypeinfo: {}; {consequence}", reason(&source)));
        }
        Err(source) => return Err(SnapshotError::Io { path, source }),
    }
    Ok(())
}

/// Reads the state of every frame.
fn read_frames(
    proc: &Path,
    mapped: &[u64],
    missing: &mut Vec<String>,
) -> Result<Option<FrameRuns>, SnapshotError> {
    let path = proc.join("kpageflags");
    // Older kernels mark frames without memory, so that this file is optional.
    let memory = read(&proc.join("iomem")).map(|text| parse_iomem(&text)).unwrap_or_default();
    match File::open(&path).and_then(|file| read_flags(file, mapped, &memory)) {
        Ok(runs) if runs.frames() > 0 => Ok(Some(runs)),
        Ok(_) => Err(SnapshotError::Proc { path, detail: "it has no frames".to_owned() }),
        Err(source) if may_be_missing(&source) => {
            missing.push(format!(
                "/proc/kpageflags: {}; only the numbers of free blocks by order are kept",
                reason(&source)
            ));
            Ok(None)
        }
        Err(source) => Err(SnapshotError::Io { path, source }),
    }
}

/// Reads the layout of a process, and the frames that it maps.
fn read_process(
    proc: &Path,
    pid: u32,
    missing: &mut Vec<String>,
) -> Result<Option<(Process, Vec<u64>)>, SnapshotError> {
    let folder = proc.join(pid.to_string());
    if !folder.is_dir() {
        return Err(SnapshotError::NoProcess(pid));
    }
    let comm = folder.join("comm");
    let name = read(&comm).map_err(|source| SnapshotError::Io { path: comm, source })?;
    let maps = folder.join("maps");
    let resident = read(&maps).and_then(|text| {
        let mappings = parse_maps(&text).map_err(io::Error::other)?;
        read_pagemap(&mut File::open(folder.join("pagemap"))?, &mappings)
    });
    let resident = match resident {
        Ok(resident) => resident,
        Err(_) if !folder.is_dir() => return Err(SnapshotError::NoProcess(pid)),
        Err(error) if may_be_missing(&error) => {
            let reason = reason(&error);
            missing.push(format!("/proc/{pid}/pagemap: {reason}; the process is left out"));
            return Ok(None);
        }
        Err(source) => return Err(SnapshotError::Io { path: folder.join("pagemap"), source }),
    };
    if resident.hidden {
        missing.push(format!(
            "/proc/{pid}/pagemap: only root reads frame numbers (CAP_SYS_ADMIN); the process is \
             left out"
        ));
        return Ok(None);
    }
    if resident.cut {
        missing.push(format!(
            "/proc/{pid}/pagemap: the process maps more than 4 TiB of addresses; its largest \
             mappings are left out"
        ));
    }
    let process = Process {
        pid,
        name: name.trim_end().to_owned(),
        resident_frames: resident.pages,
        mappable_frames: resident.mappable.to_vec(),
    };
    Ok(Some((process, resident.frames)))
}

/// Whether an unreadable privileged file may be reported as missing.
fn may_be_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)
}

fn reason(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound {
        "this kernel has none"
    } else {
        "only root may read it"
    }
}

fn parse<T>(path: PathBuf, parser: impl Fn(&str) -> Result<T, String>) -> Result<T, SnapshotError> {
    match read(&path) {
        Ok(text) => parser(&text).map_err(|detail| SnapshotError::Proc { path, detail }),
        Err(source) => Err(SnapshotError::Io { path, source }),
    }
}

/// Reads a text of the kernel. A process name may have any bytes.
fn read(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}
