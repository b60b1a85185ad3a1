//! gem5's packet traces, as its `MemTraceProbe`, its older `CommMonitor` and its script
//! `encode_packet_trace.py` write them.
//!
//! `0x356d6567` ("gem5") as 32 bits, then Protocol Buffers messages, each after its length as a
//! varint: a `PacketHeader`, then `Packet`s (`src/proto/packet.proto`, `protoio.cc`). Commands are
//! the numbers of `MemCmd` in `src/mem/packet.hh`; those up to 29 have been the same since gem5
//! 20.1, those above since 22.1, and plain reads (1) and writes (4) for longer than the format is
//! old. A request that fetches instructions has the flag 0x100 (`src/mem/request.hh`).
//!
//! Requests are references, however a cache below a processor may have widened them; responses,
//! prefetches, evictions and the rest are not. Packets are seen behind address translation.

use std::io::Read;
use std::ops::Range;

use octavo_types::ItemKind;
use prost::Message;

use super::pieces::pieces;
use super::reader::{Learning, Reader, ReaderSource};
use super::{Format, Likeness};
use crate::learn::Reference;
use crate::source::{Facts, Input, Place, Progress, TraceError};

/// The format's entry in the list.
pub static FORMAT: Format = Format {
    name: "gem5",
    about: "gem5's packet traces (MemTraceProbe): requests by their physical addresses",
    suffixes: &["ptrc", "trc", "gem5"],
    recognise: |head| if head.starts_with(&MAGIC) { Likeness::Yes } else { Likeness::No },
    open: |input| {
        let reader = Gem5Reader {
            input,
            buffer: vec![0; BUFFER_BYTES],
            filled: 0..0,
            at: 0,
            stage: Stage::Magic,
            counts: Counts::default(),
        };
        Ok(Box::new(ReaderSource::new(reader)))
    },
    create: None,
};

const MAGIC: [u8; 4] = *b"gem5";
/// The longest message. A packet has some 40 bytes; a header names every requestor of a system.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// How much is read at once: room for a message and its length.
const BUFFER_BYTES: usize = MAX_MESSAGE_BYTES + 16;
/// How long a varint of 32 bits is at most.
const MAX_VARINT_BYTES: usize = 5;
/// The largest request: beyond a page only devices go.
const MAX_REQUEST_BYTES: u32 = 1 << 16;
/// How many packets are taken at once.
const PACKETS_AT_ONCE: usize = 8192;
/// The flag of a request that fetches instructions.
const INST_FETCH: u32 = 0x100;

/// The part of the header that identifies the format.
#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(bytes = "vec", optional, tag = "1")]
    object: Option<Vec<u8>>,
    #[prost(uint64, optional, tag = "3")]
    ticks_per_second: Option<u64>,
}

/// One packet. All but the flags must be there.
#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "1")]
    tick: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    command: Option<u32>,
    #[prost(uint64, optional, tag = "3")]
    addr: Option<u64>,
    #[prost(uint32, optional, tag = "4")]
    size: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    flags: Option<u32>,
}

/// The meaning of a command: a program's reference, or a request of a cache.
enum Request {
    Reference(ItemKind),
    /// A cache's own: of whole lines, and only where it missed.
    OfCache(ItemKind),
    Other,
}

impl Request {
    fn of(command: u32) -> Self {
        use ItemKind::{Load, Modify, Store};
        match command {
            // ReadReq, LoadLockedReq, LockedRMWReadReq.
            1 | 26 | 30 => Request::Reference(Load),
            // WriteReq, WriteLineReq, StoreCondReq, LockedRMWWriteReq.
            4 | 16 | 27 | 32 => Request::Reference(Store),
            // SwapReq.
            34 => Request::Reference(Modify),
            // ReadExReq, ReadCleanReq, ReadSharedReq.
            22 | 24 | 25 => Request::OfCache(Load),
            _ => Request::Other,
        }
    }
}

/// A trace on its way in.
struct Gem5Reader {
    input: Input,
    buffer: Vec<u8>,
    /// The part of the buffer that is not yet consumed.
    filled: Range<usize>,
    /// Where in the trace `filled` begins.
    at: u64,
    stage: Stage,
    counts: Counts,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Magic,
    Header,
    Packets,
}

#[derive(Default)]
struct Counts {
    fetches: u64,
    of_caches: u64,
    others: u64,
    sizeless: u64,
}

impl Gem5Reader {
    /// Reads more; false at the end of the trace.
    fn fill(&mut self) -> Result<bool, TraceError> {
        self.buffer.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        match self.input.read(&mut self.buffer[self.filled.end..]) {
            Ok(read) => {
                self.filled.end += read;
                Ok(read > 0)
            }
            Err(error) => Err(self.wrong(error.to_string())),
        }
    }

    /// Takes the whole messages in the buffer, and returns whether there were any.
    fn take(&mut self, out: &mut Learning) -> Result<bool, String> {
        let mut any = false;
        for _ in 0..PACKETS_AT_ONCE {
            let bytes = &self.buffer[self.filled.clone()];
            let used = if self.stage == Stage::Magic {
                let Some(magic) = bytes.first_chunk() else { break };
                if *magic != MAGIC {
                    return Err("is not a packet trace of gem5".to_owned());
                }
                self.stage = Stage::Header;
                magic.len()
            } else {
                let Some((prefix, length)) = length_of(bytes)? else { break };
                let used = prefix + length;
                let Some(message) = bytes.get(prefix..used) else { break };
                if self.stage == Stage::Header {
                    header(message)?;
                    self.stage = Stage::Packets;
                } else {
                    self.counts.packet(message, Place::Byte(self.at), out)?;
                }
                used
            };
            self.filled.start += used;
            self.at += used as u64;
            any = true;
        }
        Ok(any)
    }

    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::at(self.input.name(), Place::Byte(self.at), what)
    }

    fn end(&self) -> Result<bool, TraceError> {
        let left = self.filled.len();
        if self.at == 0 && left == 0 {
            return Err(TraceError::whole(self.input.name(), "is empty"));
        }
        if left > 0 {
            return Err(self.wrong(format!("ends in the middle of a message, after {left} bytes")));
        }
        if self.stage != Stage::Packets {
            return Err(self.wrong("ends before its header"));
        }
        Ok(false)
    }
}

/// How many bytes the length of a message has, and the length; `None` if more bytes have to be
/// read.
fn length_of(bytes: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let mut length = 0u64;
    for (index, byte) in bytes.iter().take(MAX_VARINT_BYTES).enumerate() {
        length |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            if length > MAX_MESSAGE_BYTES as u64 {
                return Err(format!("a message has {length} bytes"));
            }
            return Ok(Some((index + 1, length as usize)));
        }
    }
    if bytes.len() < MAX_VARINT_BYTES { Ok(None) } else { Err("a length has no end".to_owned()) }
}

fn header(message: &[u8]) -> Result<(), String> {
    let header =
        Header::decode(message).map_err(|error| format!("the header is broken: {error}"))?;
    match (header.object, header.ticks_per_second) {
        (Some(_), Some(_)) => Ok(()),
        _ => Err("begins without the header of a packet trace".to_owned()),
    }
}

impl Counts {
    fn packet(&mut self, message: &[u8], place: Place, out: &mut Learning) -> Result<(), String> {
        let packet =
            Packet::decode(message).map_err(|error| format!("a packet is broken: {error}"))?;
        let Packet { tick: Some(_), command: Some(command), addr: Some(addr), size, flags } =
            packet
        else {
            return Err("a packet has no tick, command or address".to_owned());
        };
        let size = size.ok_or("a packet has no size")?;
        let kind = match Request::of(command) {
            Request::Reference(kind) => kind,
            Request::OfCache(kind) => {
                self.of_caches += 1;
                kind
            }
            Request::Other => {
                self.others += 1;
                return Ok(());
            }
        };
        if size > MAX_REQUEST_BYTES {
            return Err(format!("a packet is for {size} bytes, more than {MAX_REQUEST_BYTES}"));
        }
        let is_fetch = flags.unwrap_or(0) & INST_FETCH != 0 && kind == ItemKind::Load;
        let kind = if is_fetch { ItemKind::Fetch } else { kind };
        self.fetches += u64::from(is_fetch);
        self.sizeless += u64::from(size == 0);
        for (addr, size_bytes) in pieces(addr, size.max(1)) {
            out.reference(Reference::new(kind, addr, size_bytes), place);
        }
        Ok(())
    }
}

impl Reader for Gem5Reader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        if self.take(out).map_err(|what| self.wrong(what))? || self.fill()? {
            return Ok(true);
        }
        self.end()
    }

    fn facts(&self) -> Facts {
        let Counts { fetches, of_caches, others, sizeless } = self.counts;
        let mut notes = vec!["the addresses are physical".to_owned()];
        if fetches > 0 {
            let what = "a fetch is as wide as the simulated processor makes it, and no instruction";
            notes.push(what.to_owned());
        }
        for (count, what) in [
            (of_caches, "requests came from caches: the trace was taken below one"),
            (others, "packets were left out: responses, prefetches, evictions and the like"),
            (sizeless, "requests without a size were taken to be for one byte"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        Facts {
            exact: of_caches == 0,
            has_instructions: fetches > 0,
            physical: true,
            notes,
            ..Facts::of(FORMAT.name)
        }
    }

    fn progress(&self) -> Progress {
        self.input.progress()
    }

    fn place(&self) -> Place {
        Place::Byte(self.at)
    }
}

#[cfg(test)]
mod tests;
