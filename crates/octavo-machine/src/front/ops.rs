//! The instructions of a batch with their dependences, for cores, in words of 32 bits.
//!
//! An instruction is an *entry*: a header, then in any number further distances and references. A distance
//! says how many entries earlier a producer stands. A reference names the access of the batch that serves it;
//! it is *fresh* if the access is its own, else it repeats a line that an earlier reference has accessed.

use octavo_types::Arithmetic;

use super::branches::Followed;

/// Distances have ten bits: no reorder buffer holds more instructions.
const DISTANCE_BITS: u32 = 10;
/// The farthest producer that an entry names.
pub const MAX_DISTANCE: u64 = (1 << DISTANCE_BITS) - 1;
const DISTANCE: u32 = MAX_DISTANCE as u32;

const TAG_SHIFT: u32 = 30;
const HEADER: u32 = 0;
const DISTANCES: u32 = 1;
const REFERENCE: u32 = 2;
const FORWARD: u32 = 3;

const REDIRECTED: u32 = 1 << 20;
const AFTER_TAKEN: u32 = 1 << 21;
const CONTINUES: u32 = 1 << 22;
const WRITES_SHIFT: u32 = 23;
/// The most registers written that an entry counts.
pub const MAX_WRITES: u32 = 7;
const ARITHMETIC_SHIFT: u32 = 26;
const ARITHMETIC: u32 = 0b111;

const PLACE: u32 = (1 << 24) - 1;
const STORES: u32 = 1 << 24;
const FRESH: u32 = 1 << 25;
const FETCHES: u32 = 1 << 26;

/// One word of the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// An entry begins.
    Header(Header),
    /// Distances of further producers, in ten bits each; 0 is none.
    Distances(u32),
    /// A reference of the entry.
    Reference(Reference),
    /// A load takes its value from the store this many entries before.
    Forward(u32),
}

/// The beginning of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(u32);

impl Header {
    /// The header that a word is.
    #[inline(always)]
    pub fn of(word: u32) -> Self {
        debug_assert!(word >> TAG_SHIFT == HEADER, "an entry begins with a header");
        Header(word)
    }

    /// Whether the entry before it was a mispredicted branch.
    #[inline(always)]
    pub fn is_redirected(self) -> bool {
        self.0 & REDIRECTED != 0
    }

    /// Whether the entry before it was a taken branch.
    #[inline(always)]
    pub fn is_after_taken(self) -> bool {
        self.0 & AFTER_TAKEN != 0
    }

    /// Whether it continues the instruction before it, as a repeated string operation does.
    #[inline(always)]
    pub fn continues(self) -> bool {
        self.0 & CONTINUES != 0
    }

    /// How many registers it writes, 7 at most.
    #[inline(always)]
    pub fn registers_written(self) -> u32 {
        self.0 >> WRITES_SHIFT & MAX_WRITES
    }

    /// The kind of its computation, if that takes more than a cycle.
    #[inline(always)]
    pub fn arithmetic(self) -> Option<Arithmetic> {
        Arithmetic::of_code((self.0 >> ARITHMETIC_SHIFT & ARITHMETIC) as u8)
    }

    /// The distances of its first producers; 0 is none.
    #[inline(always)]
    pub fn distances(self) -> [u32; 2] {
        [self.0 & DISTANCE, self.0 >> DISTANCE_BITS & DISTANCE]
    }
}

/// A reference of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference(u32);

impl Reference {
    /// The number of the access in the batch that serves it.
    #[inline(always)]
    pub fn place(self) -> usize {
        (self.0 & PLACE) as usize
    }

    /// Whether the access is its own.
    #[inline(always)]
    pub fn is_fresh(self) -> bool {
        self.0 & FRESH != 0
    }

    /// Whether it fetches the instruction. Only fresh fetches are given.
    #[inline(always)]
    pub fn is_fetch(self) -> bool {
        self.0 & FETCHES != 0
    }

    /// Whether it stores.
    #[inline(always)]
    pub fn is_store(self) -> bool {
        self.0 & STORES != 0
    }
}

/// Calls `use_distance` for each distance in a word.
#[inline(always)]
pub fn each_distance(mut distances: u32, mut use_distance: impl FnMut(u32)) {
    while distances != 0 {
        use_distance(distances & DISTANCE);
        distances >>= DISTANCE_BITS;
    }
}

/// Decodes a word.
#[inline(always)]
pub fn decode(word: u32) -> Word {
    let rest = word & ((1 << TAG_SHIFT) - 1);
    match word >> TAG_SHIFT {
        HEADER => Word::Header(Header(rest)),
        DISTANCES => Word::Distances(rest),
        REFERENCE => Word::Reference(Reference(rest)),
        _ => Word::Forward(rest),
    }
}

/// The entries of a batch.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    words: Vec<u32>,
}

impl Ops {
    /// All words.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// Begins an entry with these distances to producers, each above 0 and at most [`MAX_DISTANCE`]; it writes
    /// this many registers, and computes something that takes more than a cycle, or `None`.
    #[inline(always)]
    pub fn entry(
        &mut self,
        distances: &[u64],
        writes: u32,
        computes: Option<Arithmetic>,
        followed: Followed,
    ) {
        let (first, others) = distances.split_at(distances.len().min(2));
        let Followed { is_mispredicted, is_taken } = followed;
        let flags = if is_mispredicted { REDIRECTED } else { 0 }
            | if is_taken { AFTER_TAKEN } else { 0 }
            | writes.min(MAX_WRITES) << WRITES_SHIFT
            | u32::from(Arithmetic::code(computes)) << ARITHMETIC_SHIFT;
        self.words.push(HEADER << TAG_SHIFT | flags | packed(first));
        for more in others.chunks(3) {
            self.words.push(DISTANCES << TAG_SHIFT | packed(more));
        }
    }

    /// Begins an entry that continues the instruction before it.
    pub fn continuation(&mut self) {
        self.words.push(HEADER << TAG_SHIFT | CONTINUES | 1);
    }

    /// Adds a reference to the entry.
    #[inline(always)]
    pub fn reference(&mut self, place: usize, is_fresh: bool, is_fetch: bool, is_store: bool) {
        let flags = if is_fresh { FRESH } else { 0 }
            | if is_fetch { FETCHES } else { 0 }
            | if is_store { STORES } else { 0 };
        self.words.push(REFERENCE << TAG_SHIFT | flags | place as u32 & PLACE);
    }

    /// Lets the entry's loads take their value from a store.
    pub fn forward(&mut self, distance: u64) {
        self.words.push(FORWARD << TAG_SHIFT | distance as u32);
    }
}

#[inline(always)]
fn packed(distances: &[u64]) -> u32 {
    distances.iter().rev().fold(0, |bits, distance| bits << DISTANCE_BITS | *distance as u32)
}
