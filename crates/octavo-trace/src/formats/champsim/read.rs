//! Reads records as references.

use std::io::{ErrorKind, Read};

use octavo_types::{ItemKind, VirtAddr};

use super::registers::set_of;
use super::{BRANCH_TAKEN, CONTINUED, IS_BRANCH, Layout, ip_of};
use crate::formats::lengths::{self, Fetch, Lengths};
use crate::formats::reader::{Learning, Reader, ReaderSource};
use crate::learn::{Reference, Registers};
use crate::source::{ASSUMED_BYTES, Facts, Input, Place, Progress, Source, TraceError};

/// How many records are read at once.
const BUFFER_RECORDS: usize = 4096;

/// Reads `input`.
pub(super) fn source(input: Input, layout: &'static Layout) -> impl Source {
    let reader = ChampsimReader {
        input,
        buffer: vec![0; BUFFER_RECORDS * layout.bytes],
        filled: 0,
        state: State { layout, byte: 0, lengths: Lengths::new(), last: None },
    };
    ReaderSource::new(reader)
}

struct ChampsimReader {
    input: Input,
    buffer: Vec<u8>,
    /// How much of a record the buffer begins with.
    filled: usize,
    state: State,
}

struct State {
    layout: &'static Layout,
    /// Where the next record begins.
    byte: u64,
    lengths: Lengths,
    /// The address of the last instruction.
    last: Option<u64>,
}

impl ChampsimReader {
    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::at(self.input.name(), self.place(), what)
    }

    fn records(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let bytes = self.state.layout.bytes;
        let read = match self.input.read(&mut self.buffer[self.filled..]) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(self.wrong(error.to_string())),
        };
        if read == 0 {
            return match (self.filled, self.state.byte) {
                (0, 0) => Err(TraceError::whole(self.input.name(), "is empty")),
                (0, _) => Ok(false),
                (rest, _) => {
                    let what = format!("ends in the middle of a record: {rest} of {bytes} bytes");
                    Err(self.wrong(what))
                }
            };
        }
        let filled = self.filled + read;
        let rest = filled % bytes;
        for record in self.buffer[..filled - rest].chunks_exact(bytes) {
            if let Err(what) = self.state.record(record, out) {
                return Err(self.wrong(what));
            }
            self.state.byte += bytes as u64;
        }
        self.buffer.copy_within(filled - rest..filled, 0);
        self.filled = rest;
        Ok(true)
    }
}

impl State {
    #[inline]
    fn record(&mut self, record: &[u8], out: &mut Learning) -> Result<(), String> {
        let place = Place::Byte(self.byte);
        let ip = ip_of(record);
        let branch = [record[IS_BRANCH], record[BRANCH_TAKEN]];
        if branch.iter().any(|flag| *flag > 1) {
            let [is_branch, taken] = branch;
            return Err(format!(
                "no record of {}: is_branch is {is_branch} and branch_taken {taken}, where both \
                 are 0 or 1",
                self.layout.name
            ));
        }
        // A foreign record with these flags, of another instruction, is taken as it stands.
        if branch != CONTINUED || self.last != Some(ip) {
            let registers = Registers {
                reads: set_of(Layout::registers(record, self.layout.source_registers)),
                writes: set_of(Layout::registers(record, self.layout.destination_registers)),
            };
            let fetch =
                Fetch { addr: ip, registers, is_branch: branch[0] == 1, jumps: branch == [1, 1] };
            self.lengths.fetch(fetch, place, out);
            self.last = Some(ip);
        }
        for (kind, slots) in
            [(ItemKind::Load, self.layout.loads), (ItemKind::Store, self.layout.stores)]
        {
            for addr in Layout::addresses(record, slots).filter(|addr| *addr != 0) {
                let reference = Reference::new(kind, VirtAddr::new(addr), ASSUMED_BYTES);
                self.lengths.data(reference, place, out);
            }
        }
        Ok(())
    }
}

impl Reader for ChampsimReader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let more = self.records(out);
        if !matches!(more, Ok(true)) {
            self.state.lengths.finish(out);
        }
        more
    }

    fn facts(&self) -> Facts {
        Facts {
            has_sizes: false,
            notes: vec![lengths::NOTE.to_owned()],
            ..Facts::of(self.state.layout.name)
        }
    }

    fn progress(&self) -> Progress {
        self.input.progress()
    }

    fn place(&self) -> Place {
        Place::Byte(self.state.byte)
    }
}
