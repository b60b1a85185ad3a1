//! Decodes records to definitions, descriptions of processes, and events.

use octavo_types::{
    AddrRange, AddressWidth, Dependences, Event, Frame, Item, ItemKind, MapSource, PhysAddr,
    Protection, Segment, VirtAddr, WindowPlace,
};

use super::error::DecodeError;
use super::format::{self, ItemWord, kind};
use crate::relocation::Relocation;

/// The description of a process with which its stream begins.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The executable.
    pub program: String,
    /// From traced addresses to those that Linux would have given.
    pub relocation: Relocation,
    /// The range that the main stack may grow to, in traced addresses.
    pub stack: Option<AddrRange>,
}

/// Reads a record's payload word by word.
struct Payload<'w> {
    kind: u8,
    /// The width to which addresses are folded.
    width: Option<AddressWidth>,
    all: &'w [u64],
    rest: &'w [u64],
}

impl<'w> Payload<'w> {
    fn new(kind: u8, words: &'w [u64], width: Option<AddressWidth>) -> Self {
        Payload { kind, width, all: words, rest: words }
    }

    fn bad(&self) -> DecodeError {
        DecodeError::Record { kind: self.kind, words: self.all.len() }
    }

    fn word(&mut self) -> Result<u64, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.bad())?;
        self.rest = rest;
        Ok(*first)
    }

    /// The address of a reference of `size_bytes` bytes.
    fn addr(&mut self, size_bytes: u16) -> Result<VirtAddr, DecodeError> {
        let addr = VirtAddr::new(self.word()?);
        Ok(self.width.map_or(addr, |width| width.fold(addr, size_bytes)))
    }

    fn range(&mut self) -> Result<AddrRange, DecodeError> {
        let start = VirtAddr::new(self.word()?);
        let range = AddrRange::new(start, self.word()?);
        Ok(self.width.map_or(range, |width| width.fold_range(range)))
    }

    fn number(&mut self) -> Result<u32, DecodeError> {
        Ok(self.word()? as u32)
    }

    fn window_place(&mut self) -> Result<WindowPlace, DecodeError> {
        let known = |word| (word != format::UNKNOWN).then_some(word);
        Ok(WindowPlace { instructions: known(self.word()?), milliseconds: known(self.word()?) })
    }

    fn text(&mut self) -> Result<String, DecodeError> {
        let length = self.word()? as usize;
        if length > 8 * self.rest.len() {
            return Err(self.bad());
        }
        let words = length.div_ceil(8);
        let bytes: Vec<u8> =
            self.rest[..words].iter().flat_map(|word| word.to_le_bytes()).collect();
        self.rest = &self.rest[words..];
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

/// How many fetch addresses of a segment were folded, and the first of them as written.
pub type FoldedFetches = Option<(u64, VirtAddr)>;

pub fn read_definition(
    payload: &[u64],
    width: Option<AddressWidth>,
) -> Result<(u64, Segment, FoldedFetches), DecodeError> {
    let mut words = Payload::new(kind::DEFINE, payload, width);
    let mut folded: FoldedFetches = None;
    let first = words.word()?;
    let (id, count) = (first & 0xffff_ffff, (first >> 32) as usize);
    let instructions = words.word()? as usize;
    if count > payload.len() || instructions > payload.len() {
        return Err(words.bad());
    }
    let mut items = Vec::with_capacity(count);
    let mut places = Vec::new();
    for _ in 0..count {
        let word = ItemWord(words.word()?);
        let (kind, size_bytes) = (word.kind(), word.size_bytes());
        let mut addr = VirtAddr::NULL;
        if kind != ItemKind::Fetch {
            places.push(word.place());
        } else {
            let written = words.rest.first().copied().unwrap_or_default();
            addr = words.addr(size_bytes)?;
            if addr.raw() != written {
                folded.get_or_insert((0, VirtAddr::new(written))).0 += 1;
            }
        }
        let (guarded, atomic) = (word.is_guarded(), word.is_atomic());
        items.push(Item { kind, guarded, atomic, size_bytes, addr });
    }
    let mut dependences = Vec::with_capacity(instructions);
    for _ in 0..instructions {
        let (producers, mut reads, writes) = (words.word()?, words.word()?, words.word()?);
        let (mut late_producers, mut late_reads) = (0, 0);
        if reads & format::HAS_LATE != 0 {
            reads &= !format::HAS_LATE;
            (late_producers, late_reads) = (words.word()?, words.word()?);
        }
        dependences.push(Dependences { producers, reads, writes, late_producers, late_reads });
    }
    let segment = Segment::with_places(items, dependences, &places)
        .map_err(|source| DecodeError::Segment { id, source })?;
    Ok((id, segment, folded))
}

pub fn read_start(payload: &[u64], width: Option<AddressWidth>) -> Result<Start, DecodeError> {
    let mut words = Payload::new(kind::START, payload, width);
    let mut moves = Vec::new();
    for _ in 0..format::LAYOUT_RANGES {
        let (start, end, delta) = (words.word()?, words.word()?, words.word()?);
        if start < end {
            let range = AddrRange::new(VirtAddr::new(start), end - start);
            let moved = AddrRange::new(range.start().wrapping_add(delta), range.bytes());
            if [range, moved].iter().any(|range| AddressWidth::LA57.fold_range(*range) != *range)
                || moved.bytes() != range.bytes()
            {
                return Err(DecodeError::Relocation(range.start(), delta));
            }
            moves.push((range, delta));
        }
    }
    let (start, end) = (words.word()?, words.word()?);
    let stack = AddrRange::new(VirtAddr::new(start), end.saturating_sub(start));
    let stack = width.map_or(stack, |width| width.fold_range(stack));
    Ok(Start {
        program: words.text()?,
        relocation: Relocation::new(moves),
        stack: (!stack.is_empty()).then_some(stack),
    })
}

pub fn read_event(
    header: u64,
    payload: &[u64],
    width: Option<AddressWidth>,
) -> Result<Event, DecodeError> {
    let mut words = Payload::new(format::record_kind(header), payload, width);
    Ok(match words.kind {
        kind::MAP => {
            let range = words.range()?;
            let protection = Protection::from_bits(words.word()?);
            let (flags, source, offset_bytes) = (words.word()?, words.word()?, words.word()?);
            let path = words.text()?;
            let source = match source {
                0 => MapSource::Anonymous,
                1 => MapSource::File { path, offset_bytes },
                2 => MapSource::Stack,
                3 => MapSource::Heap,
                4 => MapSource::Shared,
                _ => return Err(words.bad()),
            };
            Event::Map { range, protection, source, flags }
        }
        kind::UNMAP => Event::Unmap { range: words.range()? },
        kind::REMAP => Event::Remap { from: words.range()?, to: words.range()? },
        kind::PROTECT => Event::Protect {
            range: words.range()?,
            protection: Protection::from_bits(words.word()?),
        },
        kind::ADVISE => Event::Advise { range: words.range()?, advice: words.word()? },
        kind::THREAD_START => Event::ThreadStart { thread: words.number()? },
        kind::THREAD_SWITCH => Event::ThreadSwitch { thread: words.number()? },
        kind::THREAD_END => Event::ThreadEnd { thread: words.number()? },
        kind::FORK => Event::Fork { child: words.number()? },
        kind::EXEC => Event::Exec { path: words.text()? },
        kind::SIGNAL => Event::Signal { signal: words.number()? },
        kind::MARK => Event::Mark { value: words.word()? },
        kind::TRANSLATION => {
            Event::Translation { virt: words.addr(1)?, phys: PhysAddr::new(words.word()?) }
        }
        kind::WINDOW_BEGIN => Event::WindowBegin { at: words.window_place()? },
        kind::WINDOW_END => Event::WindowEnd { at: words.window_place()? },
        kind::ALLOCATION_STACK => {
            let (number, count) = (words.number()?, words.word()? as usize);
            if count > words.rest.len() {
                return Err(words.bad());
            }
            let addresses: Vec<_> = (0..count).map(|_| words.addr(1)).collect::<Result<_, _>>()?;
            let frames = addresses.into_iter().map(|addr| {
                let function = words.text()?;
                Ok(Frame { addr, function })
            });
            Event::AllocationStack { number, frames: frames.collect::<Result<_, _>>()? }
        }
        kind::ALLOCATE => {
            let (block, stack) = (words.range()?, words.word()?);
            let freed = Some(words.addr(1)?).filter(|freed| *freed != VirtAddr::NULL);
            let inherited = stack & format::INHERITED != 0;
            Event::Allocate { block, stack: stack as u32, freed, inherited }
        }
        kind::RELEASE => Event::Release { start: words.addr(1)? },
        kind::PRESENT => {
            let (range, flags) = (words.range()?, words.word()?);
            let is_set = |bit| flags & bit != 0;
            Event::Present { range, known: is_set(format::KNOWN), first: is_set(format::FIRST) }
        }
        kind::EXIT => Event::Exit { code: words.word()? as i32 },
        _ => return Err(words.bad()),
    })
}
