//! From words to a chunk.

use octavo_types::ItemKind;
use zstd::zstd_safe::CParameter;

use super::addresses::Addresses;
use super::layout::{
    self, CLASS_BYTES, HEADER_BYTES, Header, PLANES_FROM_BYTES, SECTIONS, section, sequence_bytes,
    to_planes,
};
use super::{ChunkSummary, CodecError, MAX_CHUNK_WORDS};
use crate::ring::format::ItemWord;

/// Measured on gzip, cc1, python and a search of a graph: level 6 makes chunks 3 to 14% smaller and
/// encoding 1.3 to 2.2 times as long; level 1 makes them 2 to 7% larger for little.
const ZSTD_LEVEL: i32 = 3;
/// The logarithms of the entries of zstd's tables, which the level would make 2 and 4 times as
/// large: these stay in the nearest cache. Chunks of sort, sqlite and gzip take 7 to 12% less time,
/// and are up to 0.6% larger.
const TABLE_LOG2: u32 = 15;

/// In place of a listed segment's index.
const NOT_LISTED: u32 = u32::MAX;

/// Encodes the chunks of one stream, in order.
#[derive(Default)]
pub struct ChunkEncoder {
    sorter: Sorter,
    sections: Sections,
    compressor: Compressor,
}

/// Sorts the words of chunks into sections: it knows the definitions so far.
#[derive(Default)]
pub struct Sorter {
    definitions: Vec<Definition>,
}

/// Compresses the sections of chunks.
pub struct Compressor {
    zstd: zstd::bulk::Compressor<'static>,
    /// Kept from chunk to chunk: fresh memory costs more than the work done in it.
    numbers: Vec<u8>,
    sequence: Vec<u8>,
    planes: Vec<u8>,
    stored: Vec<u8>,
}

/// The composition of one execution of a segment.
struct Definition {
    instructions: u32,
    /// References that an execution makes if every guarded item does.
    references: u32,
    /// How many address groups it has.
    addresses: u32,
    /// Where the chunk lists it.
    listed: u32,
    /// Its first site in the chunk, if that lists it.
    first_site: u32,
    /// For each address group, the references that it does not make at NULL; empty if there are
    /// none.
    guarded: Box<[u8]>,
}

/// The sections of a chunk in the making.
#[derive(Default)]
pub struct Sections {
    header: Header,
    records: Vec<u8>,
    gaps: Vec<u8>,
    numbers: Vec<u32>,
    counts: Vec<u8>,
    sequence: Vec<u32>,
    addresses: Addresses,
    executions_since_record: u32,
    /// How many words are in them.
    words: usize,
}

impl ChunkEncoder {
    /// Encodes `words`, whole items, as the next chunk: clears `parts` and fills them with the two
    /// parts of its body. After an error they are empty, and the encoder cannot be used any more.
    pub fn encode(
        &mut self,
        words: &[u64],
        parts: &mut [Vec<u8>; 2],
    ) -> Result<ChunkSummary, CodecError> {
        parts.iter_mut().for_each(Vec::clear);
        if words.len() > MAX_CHUNK_WORDS {
            return Err(CodecError::TooManyWords(words.len() as u64));
        }
        self.sections.clear();
        self.sorter.sort(words, MAX_CHUNK_WORDS, &mut self.sections)?;
        self.sorter.finish(&mut self.sections);
        Ok(self.compressor.compress(&mut self.sections, parts))
    }
}

impl Sorter {
    /// Sorts whole items from the beginning of `words` into the sections of a chunk, until it has
    /// `most` words or more. Returns how many words they have. After an error the sorter cannot be
    /// used any more.
    pub fn sort(
        &mut self,
        words: &[u64],
        most: usize,
        sections: &mut Sections,
    ) -> Result<usize, CodecError> {
        let mut rest = words;
        loop {
            rest = &rest[self.executions(rest, most, sections)..];
            let [first, tail @ ..] = rest else { break };
            if sections.words >= most {
                break;
            }
            if first & layout::RECORD == 0 {
                let definition = self.definitions.get(*first as usize);
                let definition = definition.ok_or(CodecError::Undefined(*first))?;
                let whole = sections.words + 1 + definition.addresses as usize;
                return Err(match tail.get(..definition.addresses as usize) {
                    Some(_) => CodecError::TooManyWords(whole as u64),
                    None => CodecError::TornItem,
                });
            }
            let count = layout::record_words(*first);
            let payload = tail.get(..count).ok_or(CodecError::TornItem)?;
            sections.record(&rest[..1 + count])?;
            if layout::record_kind(*first) == layout::DEFINE {
                self.define(payload)?;
            }
            rest = &tail[count..];
        }
        Ok(words.len() - rest.len())
    }

    /// As [`Sorter::sort`], but only up to the first record or malformed item.
    #[inline]
    pub fn executions(&mut self, words: &[u64], most: usize, sections: &mut Sections) -> usize {
        let mut rest = words;
        while let [number, tail @ ..] = rest
            && sections.words < most
            // The number of a record is greater than that of any segment.
            && let Some(definition) = self.definitions.get_mut(*number as usize)
            && sections.words + (definition.addresses as usize) < MAX_CHUNK_WORDS
            && let Some((addresses, after)) = tail.split_at_checked(definition.addresses as usize)
        {
            sections.execute(*number as u32, definition, addresses);
            rest = after;
        }
        words.len() - rest.len()
    }

    /// Ends the chunk of these sections.
    pub fn finish(&mut self, sections: &mut Sections) {
        sections.addresses.finish();
        for number in &sections.numbers {
            self.definitions[*number as usize].listed = NOT_LISTED;
        }
    }

    /// Learns a definition; one under a number that is known replaces it.
    fn define(&mut self, payload: &[u64]) -> Result<(), CodecError> {
        let first = payload.first().copied().unwrap_or_default();
        let bad = || CodecError::Definition(first & 0xffff_ffff);
        let number = (first & 0xffff_ffff) as usize;
        let definition = Definition::read(payload).ok_or_else(bad)?;
        if number == self.definitions.len() {
            self.definitions.push(definition);
        } else {
            *self.definitions.get_mut(number).ok_or_else(bad)? = definition;
        }
        Ok(())
    }
}

impl Default for Compressor {
    fn default() -> Self {
        let mut zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("a level that zstd has");
        for parameter in [CParameter::ChainLog(TABLE_LOG2), CParameter::HashLog(TABLE_LOG2)] {
            zstd.set_parameter(parameter).expect("tables of a size that zstd has");
        }
        Compressor {
            zstd,
            numbers: Vec::new(),
            sequence: Vec::new(),
            planes: Vec::new(),
            stored: Vec::new(),
        }
    }
}

impl Compressor {
    /// Clears `parts`, and fills them with the two parts of the body of a sorted chunk.
    pub fn compress(
        &mut self,
        chunk: &mut Sections,
        [records_part, part]: &mut [Vec<u8>; 2],
    ) -> ChunkSummary {
        records_part.clear();
        part.clear();
        records_part.extend(Header::default().to_bytes());
        chunk.header.executions = chunk.sequence.len() as u32;
        let encoded = &mut chunk.addresses.encoded;
        chunk.header.addresses = encoded.symbols.len() as u32;
        chunk.header.segments = chunk.numbers.len() as u32;
        self.numbers.clear();
        put_numbers(&chunk.numbers, 4, &mut self.numbers);
        self.sequence.clear();
        let width = sequence_bytes(chunk.numbers.len());
        put_numbers(&chunk.sequence, width, &mut self.sequence);
        for (deltas, bytes) in encoded.deltas.iter_mut().zip(&CLASS_BYTES) {
            if *bytes >= PLANES_FROM_BYTES {
                to_planes(deltas, *bytes, &mut self.planes);
                std::mem::swap(deltas, &mut self.planes);
            }
        }
        let [_, one, two, four, eight] = &encoded.deltas;
        let contents: [&[u8]; SECTIONS] = [
            &chunk.records,
            &chunk.gaps,
            &self.numbers,
            &chunk.counts,
            &self.sequence,
            &encoded.symbols,
            one,
            two,
            four,
            eight,
        ];
        for (index, content) in contents.iter().enumerate() {
            let out = if index == section::RECORDS { &mut *records_part } else { &mut *part };
            chunk.header.stored_bytes[index] = compress(&mut self.zstd, content, &mut self.stored);
            out.extend_from_slice(&self.stored[..chunk.header.stored_bytes[index] as usize]);
        }
        records_part[..HEADER_BYTES].copy_from_slice(&chunk.header.to_bytes());
        chunk.header.summary()
    }
}

/// Puts `content` as a section where `stored` begins, which grows as needed; returns its length.
fn compress(zstd: &mut zstd::bulk::Compressor, content: &[u8], stored: &mut Vec<u8>) -> u32 {
    if content.is_empty() {
        return 0;
    }
    let bound = zstd::zstd_safe::compress_bound(content.len());
    if stored.len() < bound {
        stored.resize(bound, 0);
    }
    zstd.compress_to_buffer(content, &mut stored[..])
        .expect("what zstd compresses fits into the bound that it gives") as u32
}

/// Appends the lowest `width` bytes of each number: 1, 2 or 4.
fn put_numbers(numbers: &[u32], width: usize, bytes: &mut Vec<u8>) {
    match width {
        1 => bytes.extend(numbers.iter().map(|number| *number as u8)),
        2 => bytes.extend(numbers.iter().flat_map(|number| (*number as u16).to_le_bytes())),
        _ => bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
    }
}

impl Definition {
    /// From a definition's payload; `None` if its items do not fit into it.
    fn read(payload: &[u64]) -> Option<Definition> {
        let items = payload.first()? >> 32;
        let mut words = payload.get(2..)?.iter();
        let (mut instructions, mut references, mut guarded) = (0u32, 0u32, Vec::new());
        for _ in 0..items {
            let word = ItemWord(*words.next()?);
            if word.is_fetch() {
                // The fetch's address.
                words.next()?;
                instructions += 1;
                references += 1;
                continue;
            }
            let of_item = if word.kind() == ItemKind::Modify { 2 } else { 1 };
            references += u32::from(of_item);
            if word.place().leads {
                guarded.push(if word.is_guarded() { of_item } else { 0 });
            }
        }
        let addresses = guarded.len() as u32;
        if guarded.iter().all(|references| *references == 0) {
            guarded.clear();
        }
        let (guarded, listed) = (guarded.into(), NOT_LISTED);
        Some(Definition { instructions, references, addresses, listed, first_site: 0, guarded })
    }
}

impl Sections {
    /// Empties them, for another chunk.
    pub fn clear(&mut self) {
        self.header = Header::default();
        self.records.clear();
        self.gaps.clear();
        self.numbers.clear();
        self.counts.clear();
        self.sequence.clear();
        self.addresses.clear();
        self.executions_since_record = 0;
        self.words = 0;
    }

    /// How many words are in them.
    pub fn words(&self) -> usize {
        self.words
    }

    /// How many instructions their executions make.
    pub fn instructions(&self) -> u64 {
        self.header.instructions
    }

    /// How many references their executions make.
    pub fn references(&self) -> u64 {
        self.header.references
    }

    fn record(&mut self, words: &[u64]) -> Result<(), CodecError> {
        self.words += words.len();
        if self.words > MAX_CHUNK_WORDS {
            return Err(CodecError::TooManyWords(self.words as u64));
        }
        self.header.records += 1;
        self.header.record_words += words.len() as u32;
        self.records.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.gaps.extend(self.executions_since_record.to_le_bytes());
        self.executions_since_record = 0;
        Ok(())
    }

    #[inline(always)]
    fn execute(&mut self, number: u32, definition: &mut Definition, addresses: &[u64]) {
        if definition.listed == NOT_LISTED {
            self.list(number, definition);
        }
        self.words += 1 + addresses.len();
        self.sequence.push(definition.listed);
        self.executions_since_record += 1;
        self.header.instructions += u64::from(definition.instructions);
        self.header.references += u64::from(definition.references);
        if !definition.guarded.is_empty() {
            self.skip(definition, addresses);
        }
        self.addresses.take(addresses, definition.first_site);
    }

    /// Counts the references that guarded items at NULL do not make.
    #[cold]
    fn skip(&mut self, definition: &Definition, addresses: &[u64]) {
        let items = addresses.iter().zip(&definition.guarded);
        let absent = items.filter(|(address, _)| **address == 0);
        self.header.references -= absent.map(|(_, references)| u64::from(*references)).sum::<u64>();
    }

    /// Lists a segment that executes for the first time.
    #[cold]
    fn list(&mut self, number: u32, definition: &mut Definition) {
        definition.listed = self.numbers.len() as u32;
        definition.first_site = self.addresses.add_sites(definition.addresses as usize);
        self.numbers.push(number);
        self.counts.extend(definition.addresses.to_le_bytes());
    }
}
