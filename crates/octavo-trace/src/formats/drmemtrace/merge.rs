//! The files of a trace as one stream, in the order of their timestamps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use super::super::reader::{Learning, Reader};
use super::layout::{self, Layout};
use super::part::Part;
use super::program::Program;
use super::v2p::V2p;
use crate::source::{Facts, Input, InputOptions, Place, Progress, TraceError};

/// How much memory the decompressors of all files may use together.
const MAX_DECODERS_BYTES: u64 = 2 << 30;
/// How many records are taken at once.
const RECORDS_AT_ONCE: usize = 16 * 1024;

/// All files of a trace.
pub(super) struct Merge {
    parts: Vec<Part>,
    /// The files that wait, by the time at which they go on.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    current: Option<usize>,
    /// The file that was read last.
    last: usize,
    program: Program,
    v2p: Option<V2p>,
    /// The map's note for the user, once it was read to its end.
    v2p_note: Option<String>,
}

impl Merge {
    /// A single file.
    pub(super) fn of_file(input: Input) -> Result<Self, TraceError> {
        let options = input.options();
        let v2p = input.path().and_then(Path::parent).and_then(layout::v2p_beside);
        let part = Part::of_input(input)?;
        Self::new(vec![part], [(0, 0)], v2p.as_deref(), options)
    }

    /// A directory of files.
    pub(super) fn of_directory(path: &Path, mut options: InputOptions) -> Result<Self, TraceError> {
        let Layout { files, v2p } = layout::of_directory(path)?;
        let share = MAX_DECODERS_BYTES / files.len() as u64;
        options.max_decoder_bytes = options.max_decoder_bytes.min(share);
        let mut parts: Vec<_> = files.iter().map(|path| Part::of_path(path, options)).collect();
        let mut waiting = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter_mut().enumerate() {
            waiting.push((part.first_timestamp()?, index));
        }
        Self::new(parts, waiting, v2p.as_deref(), options)
    }

    fn new(
        parts: Vec<Part>,
        waiting: impl IntoIterator<Item = (u64, usize)>,
        v2p: Option<&Path>,
        options: InputOptions,
    ) -> Result<Self, TraceError> {
        let v2p = v2p.map(|path| V2p::open(path, options)).transpose()?;
        Ok(Merge {
            parts,
            waiting: waiting.into_iter().map(Reverse).collect(),
            current: None,
            last: 0,
            program: Program::default(),
            v2p,
            v2p_note: None,
        })
    }

    /// Takes records of the file `index`, until they are enough, or another file's time has come.
    fn read_part(&mut self, index: usize, out: &mut Learning) -> Result<(), TraceError> {
        let part = &mut self.parts[index];
        if !part.fill()? {
            part.close();
            self.current = None;
            return Ok(());
        }
        for _ in 0..RECORDS_AT_ONCE {
            let Some((record, at)) = part.next_record()? else { break };
            let taken = self.program.record(record, at, &mut part.cursor, out);
            let Some(time) = taken.map_err(|what| part.wrong_at(at, what))? else { continue };
            if self.waiting.peek().is_some_and(|Reverse((next, _))| *next < time) {
                part.cursor.announced = false;
                self.waiting.push(Reverse((time, index)));
                self.current = None;
                break;
            }
        }
        Ok(())
    }
}

impl Reader for Merge {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        if let Some(v2p) = &mut self.v2p {
            if !v2p.read_some(out)? {
                self.v2p_note = Some(v2p.note());
                self.v2p = None;
            }
            return Ok(true);
        }
        if self.current.is_none() {
            self.current = self.waiting.pop().map(|Reverse((_, index))| index);
        }
        let Some(index) = self.current else { return Ok(false) };
        self.last = index;
        self.read_part(index, out)?;
        Ok(true)
    }

    fn facts(&self) -> Facts {
        let mut facts = self.program.facts();
        facts.notes.extend(self.v2p_note.clone());
        facts
    }

    fn progress(&self) -> Progress {
        let parts = self.parts.iter().map(Part::progress);
        parts.fold(Progress { done: 0, total: Some(0) }, |all, part| Progress {
            done: all.done + part.done,
            total: all.total.zip(part.total).map(|(all, part)| all + part),
        })
    }

    fn place(&self) -> Place {
        self.v2p.as_ref().map_or_else(|| self.parts[self.last].place(), V2p::place)
    }
}
