//! From a chunk to words.

use super::layout::{
    self, CLASS_BYTES, Header, NULL, SYMBOLS, base, from_planes, section, sequence_bytes,
};
use super::unpack::{Unpacker, numbers_of};
use super::{ChunkSummary, CodecError};

/// How many words [`ChunkDecoder::next`] returns at least, except at the chunk's end.
const WORDS_AT_ONCE: usize = 32 * 1024;

/// Decodes chunks, each on its own, in any order.
#[derive(Default)]
pub struct ChunkDecoder {
    unpacker: Unpacker,
    records: Vec<u64>,
    gaps: Vec<u32>,
    segments: Vec<Segment>,
    /// The words of the longest execution.
    longest: usize,
    sequence: Vec<u32>,
    symbols: Vec<u8>,
    /// Eight zero bytes, the deltas class by class, eight zero bytes: so that eight bytes may be
    /// read wherever a delta begins, and deltas of class 0 lie somewhere too.
    deltas: Vec<u8>,
    /// The last address of each site.
    last: Vec<u64>,
    at: Cursor,
}

/// A segment that the chunk lists.
#[derive(Clone, Copy)]
struct Segment {
    number: u32,
    count: u32,
    first_site: u32,
}

/// How much of a chunk is decoded.
#[derive(Clone, Copy, Default)]
struct Cursor {
    execution: usize,
    symbol: usize,
    record: usize,
    record_word: usize,
    /// Executions up to the next record, or the chunk's end.
    gap: usize,
    /// For each class, where its next delta lies.
    deltas: [usize; 5],
    previous: u64,
    before_previous: u64,
}

impl ChunkDecoder {
    /// Begins a chunk, given as its two parts: decompresses and validates it.
    pub fn begin(&mut self, parts: [&[u8]; 2]) -> Result<ChunkSummary, CodecError> {
        self.clear();
        let result = self.load(parts);
        if result.is_err() {
            self.clear();
        }
        result
    }

    /// Clears `words` and fills it with the next whole items, 32 Ki words or a little more. Returns
    /// false, and no words, at the chunk's end.
    pub fn next(&mut self, words: &mut Vec<u64>) -> Result<bool, CodecError> {
        let mut filled = 0;
        // Room that stays from the call before is not cleared again.
        words.resize(WORDS_AT_ONCE + self.longest, 0);
        while filled < WORDS_AT_ONCE {
            if self.at.gap > 0 {
                filled += self.execute(&mut words[filled..]);
            } else if self.at.record < self.gaps.len() {
                filled += self.record(words, filled);
            } else {
                break;
            }
        }
        words.truncate(filled);
        Ok(filled > 0)
    }

    /// Reads the records of a chunk from its first part: clears `records` and fills it with their
    /// words. Drops a chunk that was begun before.
    pub fn skip(
        &mut self,
        records_part: &[u8],
        records: &mut Vec<u64>,
    ) -> Result<ChunkSummary, CodecError> {
        self.clear();
        records.clear();
        let (header, stored) = Header::read(records_part)?;
        self.load_records(&header, stored)?;
        records.append(&mut self.records);
        Ok(header.summary())
    }

    fn clear(&mut self) {
        self.records.clear();
        self.gaps.clear();
        self.segments.clear();
        self.longest = 0;
        self.sequence.clear();
        self.symbols.clear();
        self.deltas.clear();
        self.last.clear();
        self.at = Cursor::default();
    }

    fn load(&mut self, parts: [&[u8]; 2]) -> Result<ChunkSummary, CodecError> {
        let (header, records) = Header::read(parts[0])?;
        let sections = header.sections(parts[1])?;
        self.load_records(&header, records)?;
        self.load_gaps(&header, sections[section::GAPS])?;
        self.load_segments(&header, sections[section::NUMBERS], sections[section::COUNTS])?;
        self.load_sequence(&header, sections[section::SEQUENCE])?;
        self.load_addresses(&header, sections[section::SYMBOLS..].try_into().expect("five"))?;
        self.at.gap = self.gaps.first().map_or(self.sequence.len(), |gap| *gap as usize);
        Ok(header.summary())
    }

    fn load_records(&mut self, header: &Header, stored: &[u8]) -> Result<(), CodecError> {
        let bytes = 8 * header.record_words as usize;
        let content = self.unpacker.unpack(section::RECORDS, stored, bytes)?;
        let words = content.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        self.records.extend(words);
        let (mut rest, mut count) = (&self.records[..], 0);
        while let [first, tail @ ..] = rest {
            let whole = tail.split_at_checked(layout::record_words(*first));
            let Some((_, after)) = whole.filter(|_| first & layout::RECORD != 0) else {
                return Err(header.records_error());
            };
            rest = after;
            count += 1;
        }
        if count == header.records { Ok(()) } else { Err(header.records_error()) }
    }

    fn load_gaps(&mut self, header: &Header, stored: &[u8]) -> Result<(), CodecError> {
        let gaps = self.unpacker.numbers(section::GAPS, stored, header.records as usize)?;
        self.gaps.extend(gaps);
        let sum: u64 = self.gaps.iter().map(|gap| u64::from(*gap)).sum();
        if sum <= u64::from(header.executions) { Ok(()) } else { Err(CodecError::Gaps) }
    }

    fn load_segments(
        &mut self,
        header: &Header,
        numbers: &[u8],
        counts: &[u8],
    ) -> Result<(), CodecError> {
        let listed = header.segments as usize;
        let numbers = self.unpacker.numbers(section::NUMBERS, numbers, listed)?;
        self.segments.extend(numbers.map(|number| Segment { number, count: 0, first_site: 0 }));
        let counts = self.unpacker.numbers(section::COUNTS, counts, listed)?;
        let mut sites = 0u64;
        for (segment, count) in self.segments.iter_mut().zip(counts) {
            (segment.count, segment.first_site) = (count, sites as u32);
            sites += u64::from(count);
            self.longest = self.longest.max(1 + count as usize);
            if sites > u64::from(header.addresses) {
                return Err(CodecError::Addresses { expected: sites, got: header.addresses });
            }
        }
        self.last.resize(sites as usize, 0);
        Ok(())
    }

    fn load_sequence(&mut self, header: &Header, stored: &[u8]) -> Result<(), CodecError> {
        let width = sequence_bytes(self.segments.len());
        let bytes = width * header.executions as usize;
        let content = self.unpacker.unpack(section::SEQUENCE, stored, bytes)?;
        match width {
            1 => self.sequence.extend(content.iter().map(|index| u32::from(*index))),
            2 => {
                let indices = content.as_chunks::<2>().0;
                self.sequence.extend(indices.iter().map(|i| u32::from(u16::from_le_bytes(*i))));
            }
            _ => self.sequence.extend(numbers_of(content)),
        }
        let mut addresses = 0u64;
        for (execution, index) in self.sequence.iter().enumerate() {
            let segment = self.segments.get(*index as usize);
            addresses += u64::from(segment.ok_or(CodecError::Sequence(execution))?.count);
        }
        if addresses != u64::from(header.addresses) {
            return Err(CodecError::Addresses { expected: addresses, got: header.addresses });
        }
        Ok(())
    }

    fn load_addresses(&mut self, header: &Header, stored: [&[u8]; 5]) -> Result<(), CodecError> {
        let content =
            self.unpacker.unpack(section::SYMBOLS, stored[0], header.addresses as usize)?;
        self.symbols.extend_from_slice(content);
        let largest = self.symbols.iter().copied().max().unwrap_or_default();
        if largest >= SYMBOLS {
            return Err(CodecError::Symbol(largest));
        }
        self.deltas.extend([0; 8]);
        for class in 1..CLASS_BYTES.len() {
            let count = count_class(&self.symbols, class as u8);
            let (begin, bytes) = (self.deltas.len(), count * CLASS_BYTES[class]);
            self.at.deltas[class] = begin;
            let content =
                self.unpacker.unpack(section::DELTAS + class - 1, stored[class], bytes)?;
            self.deltas.resize(begin + bytes, 0);
            let values = &mut self.deltas[begin..];
            match CLASS_BYTES[class] {
                4 => from_planes::<4>(content, values),
                8 => from_planes::<8>(content, values),
                _ => values.copy_from_slice(content),
            }
        }
        self.deltas.extend([0; 8]);
        Ok(())
    }

    /// Puts the next record behind the `filled` words; returns its length.
    fn record(&mut self, words: &mut Vec<u64>, filled: usize) -> usize {
        let record = &self.records[self.at.record_word..];
        let record = &record[..1 + layout::record_words(record[0])];
        if words.len() < filled + record.len() + self.longest {
            words.resize(filled + record.len() + self.longest, 0);
        }
        words[filled..][..record.len()].copy_from_slice(record);
        self.at.record_word += record.len();
        self.at.record += 1;
        let rest = self.sequence.len() - self.at.execution;
        self.at.gap = self.gaps.get(self.at.record).map_or(rest, |gap| *gap as usize);
        record.len()
    }

    /// Puts executions into `words` until the next record is due or too little room is left for
    /// the longest; returns how many words they are.
    fn execute(&mut self, words: &mut [u64]) -> usize {
        let Cursor { mut symbol, mut deltas, mut previous, mut before_previous, .. } = self.at;
        let (mut filled, mut executed) = (0, 0);
        for index in &self.sequence[self.at.execution..][..self.at.gap] {
            if words.len() - filled < self.longest {
                break;
            }
            executed += 1;
            let segment = self.segments[*index as usize];
            let count = segment.count as usize;
            words[filled] = u64::from(segment.number);
            let addresses = &mut words[filled + 1..][..count];
            let symbols = &self.symbols[symbol..][..count];
            let last = &mut self.last[segment.first_site as usize..][..count];
            for ((address, symbol), last) in addresses.iter_mut().zip(symbols).zip(last) {
                let step = &STEPS[usize::from(*symbol) % STEPS.len()];
                let at = deltas[usize::from(step.class)];
                let delta =
                    self.deltas[at..].first_chunk::<8>().expect("eight bytes lie behind each");
                deltas[usize::from(step.class)] = at + usize::from(step.bytes);
                let delta = (u64::from_le_bytes(*delta) << step.shift) as i64 >> step.shift;
                let base = (*last & step.site)
                    | (previous & step.previous)
                    | (before_previous & step.before_previous);
                *address = base.wrapping_add(delta as u64);
                if *symbol != NULL {
                    *last = *address;
                    (before_previous, previous) = (previous, *address);
                }
            }
            symbol += count;
            filled += 1 + count;
        }
        self.at.execution += executed;
        self.at.gap -= executed;
        self.at = Cursor { symbol, deltas, previous, before_previous, ..self.at };
        filled
    }
}

/// How the address of a symbol is made, without a branch: the base by masks, the delta from the
/// eight bytes that begin where it lies.
#[derive(Clone, Copy)]
struct Step {
    site: u64,
    previous: u64,
    before_previous: u64,
    class: u8,
    bytes: u8,
    /// How many bits to shift out of the eight bytes: those above the delta.
    shift: u8,
}

const STEPS: [Step; 32] = {
    let none = Step { site: 0, previous: 0, before_previous: 0, class: 0, bytes: 0, shift: 0 };
    let mut steps = [none; 32];
    let mut symbol = 0;
    while symbol < SYMBOLS as usize {
        let bytes = CLASS_BYTES[symbol / 4];
        let base = symbol as u8 % 4;
        steps[symbol] = Step {
            site: if base == base::SITE { u64::MAX } else { 0 },
            previous: if base == base::PREVIOUS { u64::MAX } else { 0 },
            before_previous: if base == base::BEFORE_PREVIOUS { u64::MAX } else { 0 },
            class: (symbol / 4) as u8,
            bytes: bytes as u8,
            shift: if bytes == 0 { 0 } else { 64 - 8 * bytes as u8 },
        };
        symbol += 1;
    }
    steps
};

/// How many symbols are of a class. Counts in bytes, up to their maximum, so that many symbols are
/// compared at once.
fn count_class(symbols: &[u8], class: u8) -> usize {
    let few = symbols.chunks(usize::from(u8::MAX));
    few.map(|few| usize::from(few.iter().map(|symbol| u8::from(symbol / 4 == class)).sum::<u8>()))
        .sum()
}
