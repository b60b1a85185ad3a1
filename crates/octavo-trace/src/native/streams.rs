//! A native trace in a file, read at each of its streams.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::frame::FrameKind;
use super::overview::Frames;
use super::reader::{FramePlace, NativeSource};
use crate::source::{Batch, Input, InputOptions, Source, Step, StreamSource, Streams, TraceError};

/// The frames of one stream.
#[derive(Default)]
struct Found {
    frames: Vec<FramePlace>,
    bytes: u64,
}

/// The streams of the trace in a file.
pub(super) fn of_file(path: &Path) -> Result<Streams, TraceError> {
    let Frames { index, is_whole, end: trace_end, .. } = Frames::read(path)?;
    let mut found: BTreeMap<u32, Found> = BTreeMap::new();
    let mut beginning_frames = Vec::new();
    let ends = index.entries.iter().skip(1).map(|next| next.position).chain([trace_end]);
    for (number, (entry, end)) in (0..).zip(index.entries.iter().zip(ends)) {
        let frame = FramePlace { number, position: entry.position };
        match entry.kind {
            FrameKind::Began => beginning_frames.push(frame),
            FrameKind::Chunk | FrameKind::Ended => {}
            FrameKind::Manifest => {
                beginning_frames.push(frame);
                continue;
            }
            FrameKind::Index => continue,
        }
        let of = found.entry(entry.stream).or_default();
        of.frames.push(frame);
        of.bytes += end.saturating_sub(entry.position);
    }
    let mut streams = Vec::new();
    let mut beginnings = open(path, beginning_frames, 0)?;
    while let Some(step) = beginnings.next(&mut Batch::default())? {
        let Step::Began(identity) = step else { continue };
        let Some(Found { frames, bytes }) = found.remove(&identity.stream) else { continue };
        let path = PathBuf::from(path);
        streams.push(StreamSource {
            identity,
            bytes,
            open: Box::new(move || Ok(Box::new(open(&path, frames, bytes)?))),
        });
    }
    let mut fault = None;
    if !is_whole {
        // Reading on from there gives the error that ended the index early.
        let behind = FramePlace { number: index.entries.len() as u64, position: trace_end };
        fault = open(path, Vec::new(), 0)?.fault_of(behind);
    }
    let (facts, manifest) = (beginnings.facts(), Source::manifest(&beginnings));
    Ok(Streams { streams, facts, manifest, fault })
}

fn open(path: &Path, frames: Vec<FramePlace>, bytes: u64) -> Result<NativeSource, TraceError> {
    let input = Input::open(path, InputOptions::default())?;
    Ok(NativeSource::open(input)?.only(frames, bytes))
}
