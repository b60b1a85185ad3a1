//! The instructions of a batch with their dependences, for cores, in words of 32 bits.
//!
//! An instruction is an *entry*: distances to producers, and references. A distance says how many entries earlier a
//! producer stands; it is *late* if the references do not wait for the producer. A reference names the access of the
//! batch that serves it; it is *fresh* if the access is its own, else it repeats a line that an earlier reference has
//! accessed. Fresh references are served in their order.
//!
//! Most entries have few distances, and one reference to data at most. Such a [`Simple`] entry is three words, so that
//! a core executes it without loops over its parts. Any other is [`Compound`]: a header,
//! the number of words that follow, and these words, a [`Word`] each.

use octavo_types::Arithmetic;

use super::branches::Followed;

/// Distances have ten bits: no reorder buffer holds more instructions.
const DISTANCE_BITS: u32 = 10;
/// The farthest producer that an entry names.
pub const MAX_DISTANCE: u64 = (1 << DISTANCE_BITS) - 1;
const DISTANCE: u32 = MAX_DISTANCE as u32;

const REDIRECTED: u32 = 1 << 20;
const AFTER_TAKEN: u32 = 1 << 21;
const CONTINUES: u32 = 1 << 22;
/// It writes an integer register.
const WRITES: u32 = 1 << 23;
/// The second of two distances is late.
const HAS_LATE: u32 = 1 << 24;
/// The two bits of its [`Difference`].
const DIFFERENCE: [u32; 2] = [1 << 25, 1 << 31];
const ARITHMETIC_SHIFT: u32 = 26;
const ARITHMETIC: u32 = 0b111;
const KIND_SHIFT: u32 = 29;
const KIND: u32 = 0b11;
/// The kinds of simple entries: with a reference that loads, with one that stores, or neither.
const LOADS_DATA: u32 = 1;
const STORES_DATA: u32 = 2;
const COMPOUND: u32 = 3 << KIND_SHIFT;

/// The words of a simple entry.
const SIMPLE_WORDS: usize = 3;
/// The distance to a store from which a simple entry's load takes its value, in the second word.
const FORWARD_SHIFT: u32 = 2 * DISTANCE_BITS;
/// The number of its fetches, in the second word.
const FETCHES_SHIFT: u32 = 3 * DISTANCE_BITS;
/// The most fetches of a simple entry.
const MAX_FETCHES: u32 = 3;

const TAG_SHIFT: u32 = 30;
const LATE: u32 = 0;
const DISTANCES: u32 = 1;
const REFERENCE: u32 = 2;
const FORWARD: u32 = 3;

const PLACE: u32 = (1 << 24) - 1;
const STORES: u32 = 1 << 24;
const FRESH: u32 = 1 << 25;
const FETCHES: u32 = 1 << 26;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'w> {
    /// One as most are.
    Simple(Simple),
    /// Any.
    Compound(Compound<'w>),
}

/// An entry with four distances, three fetches, a store to take a value from, and one reference to data at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Simple {
    /// Its header.
    pub header: Header,
    second: u32,
    data: Reference,
}

/// An entry with any words.
#[derive(Clone, Copy, Debug)]
pub struct Compound<'w> {
    /// Its header.
    pub header: Header,
    words: &'w [u32],
}

/// One word of a compound entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Distances of producers, in ten bits each; 0 is none.
    Distances(u32),
    /// Distances of late producers.
    Late(u32),
    /// A reference of the entry.
    Reference(Reference),
    /// A load takes its value from the store this many entries before.
    Forward(u32),
}

/// How an entry differs between the right path and the [wrong paths](super::wrong_paths) behind mispredicted branches
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Difference {
    /// It does not: wrong paths execute it, too, if they execute what its addresses depend on.
    #[default]
    None,
    /// From that of the last branch.
    Last,
    /// From that of a branch before the last.
    Earlier,
    /// From that of the branch directly before it, which is on no wrong path of a branch before that.
    OffPath,
}

/// The beginning of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(u32);

impl Header {
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

    /// Whether it writes an integer register.
    #[inline(always)]
    pub fn writes_integer(self) -> bool {
        self.0 & WRITES != 0
    }

    /// Whether the second of its distances is late, and that of its [further ones](Simple::more_distances).
    #[inline(always)]
    pub fn has_late(self) -> bool {
        self.0 & HAS_LATE != 0
    }

    /// How it differs from what wrong paths execute.
    #[inline(always)]
    pub fn difference(self) -> Difference {
        match DIFFERENCE.map(|bit| self.0 & bit != 0) {
            [false, false] => Difference::None,
            [true, false] => Difference::Last,
            [false, true] => Difference::Earlier,
            [true, true] => Difference::OffPath,
        }
    }

    /// The kind of its computation, if that takes more than a cycle.
    #[inline(always)]
    pub fn arithmetic(self) -> Option<Arithmetic> {
        Arithmetic::of_code((self.0 >> ARITHMETIC_SHIFT & ARITHMETIC) as u8)
    }

    /// The number of that kind, below 8; 0 is none.
    #[inline(always)]
    pub fn arithmetic_code(self) -> usize {
        (self.0 >> ARITHMETIC_SHIFT & ARITHMETIC) as usize
    }

    /// The distances of its first producers; 0 is none.
    #[inline(always)]
    pub fn distances(self) -> [u32; 2] {
        [self.0 & DISTANCE, self.0 >> DISTANCE_BITS & DISTANCE]
    }

    /// Two distances as words.
    fn words_of(self, [first, second]: [u32; 2]) -> [Word; 2] {
        if self.has_late() {
            [Word::Distances(first), Word::Late(second)]
        } else {
            [Word::Distances(first | second << DISTANCE_BITS), Word::Late(0)]
        }
    }
}

impl Simple {
    /// Whether it has more distances than its header, or takes a value from a store.
    #[inline(always)]
    pub fn has_more(self) -> bool {
        self.second & ((1 << FETCHES_SHIFT) - 1) != 0
    }

    /// The distances of producers that its header does not have; 0 is none.
    #[inline(always)]
    pub fn more_distances(self) -> [u32; 2] {
        [self.second & DISTANCE, self.second >> DISTANCE_BITS & DISTANCE]
    }

    /// The distance of the store from which its load takes its value; 0 is none.
    #[inline(always)]
    pub fn forward(self) -> u32 {
        self.second >> FORWARD_SHIFT & DISTANCE
    }

    /// How many fetches it has, all fresh.
    #[inline(always)]
    pub fn fetches(self) -> u32 {
        self.second >> FETCHES_SHIFT
    }

    /// How many references are fresh.
    #[inline(always)]
    pub fn fresh(self) -> u32 {
        self.fetches() + u32::from(self.data.is_fresh())
    }

    /// 1 if it loads data, else 0.
    #[inline(always)]
    pub fn loads(self) -> u32 {
        self.header.0 >> KIND_SHIFT & LOADS_DATA
    }

    /// 1 if it stores data, else 0.
    #[inline(always)]
    pub fn stores(self) -> u32 {
        (self.header.0 >> KIND_SHIFT & STORES_DATA) >> 1
    }

    /// Its reference to data, if it has any.
    #[inline(always)]
    pub fn data(self) -> Reference {
        self.data
    }
}

impl<'w> Compound<'w> {
    /// Its parts.
    #[inline(always)]
    pub fn words(self) -> impl Iterator<Item = Word> + 'w {
        let first = self.header.words_of(self.header.distances());
        first.into_iter().chain(self.words.iter().copied().map(decode))
    }
}

impl<'w> Entry<'w> {
    /// Its header.
    pub fn header(self) -> Header {
        match self {
            Entry::Simple(of) => of.header,
            Entry::Compound(of) => of.header,
        }
    }

    /// Calls a function for each of its parts.
    #[inline(always)]
    pub fn each_word(self, mut of_word: impl FnMut(Word)) {
        match self {
            Entry::Simple(of) => {
                for distances in [of.header.distances(), of.more_distances()] {
                    of.header.words_of(distances).into_iter().for_each(&mut of_word);
                }
                if of.forward() != 0 {
                    of_word(Word::Forward(of.forward()));
                }
                for _ in 0..of.fetches() {
                    of_word(Word::Reference(Reference(FRESH | FETCHES)));
                }
                if of.loads() + of.stores() > 0 {
                    of_word(Word::Reference(of.data));
                }
            }
            Entry::Compound(of) => of.words().for_each(of_word),
        }
    }
}

/// The entries of words.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'w>(&'w [u32]);

impl<'w> Iterator for Entries<'w> {
    type Item = Entry<'w>;

    #[inline(always)]
    fn next(&mut self) -> Option<Entry<'w>> {
        let [header, second, rest @ ..] = self.0 else { return None };
        let header = Header(*header);
        if header.0 & COMPOUND == COMPOUND {
            let (words, rest) = rest.split_at(*second as usize);
            self.0 = rest;
            return Some(Entry::Compound(Compound { header, words }));
        }
        let [data, rest @ ..] = rest else { return None };
        self.0 = rest;
        Some(Entry::Simple(Simple { header, second: *second, data: Reference(*data) }))
    }
}

/// The entries of words.
#[inline(always)]
pub fn entries(words: &[u32]) -> Entries<'_> {
    Entries(words)
}

/// A reference of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference(u32);

impl Reference {
    /// The number of the access in the batch that serves it, unless it is fresh.
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

#[inline(always)]
fn decode(word: u32) -> Word {
    let rest = word & ((1 << TAG_SHIFT) - 1);
    match word >> TAG_SHIFT {
        LATE => Word::Late(rest),
        DISTANCES => Word::Distances(rest),
        REFERENCE => Word::Reference(Reference(rest)),
        _ => Word::Forward(rest),
    }
}

/// The beginning of an entry: all but its references.
#[derive(Clone, Copy, Debug)]
pub struct Beginning(u64);

/// A place for a distance in a [`Beginning`].
#[derive(Clone, Copy, Debug)]
pub struct Place(u8);

impl Beginning {
    /// The places for distances of which none is late.
    pub const PLACES: [Place; 4] = {
        let (first, second) = (DISTANCE_BITS as u8, u32::BITS as u8);
        [Place(0), Place(first), Place(second), Place(second + first)]
    };
    /// The places for distances that are not late, and for those that are, of an entry [with late
    /// ones](Beginning::with_late).
    pub const PLACES_BESIDE_LATE: [[Place; 2]; 2] = {
        let [first, second, third, fourth] = Self::PLACES;
        [[first, third], [second, fourth]]
    };

    /// An entry without producers that writes an integer register or does not, and computes something that takes more
    /// than a cycle, or `None`.
    pub fn new(writes_integer: bool, computes: Option<Arithmetic>) -> Self {
        let arithmetic = u32::from(Arithmetic::code(computes)) << ARITHMETIC_SHIFT;
        Beginning(u64::from((u32::from(writes_integer) * WRITES) | arithmetic))
    }

    /// With late distances, if it has any.
    pub fn with_late(self, has_late: bool) -> Self {
        Beginning(self.0 | u64::from(u32::from(has_late) * HAS_LATE))
    }

    /// With the distance of a producer, 0 for none, or at most [`MAX_DISTANCE`], at a place that has none.
    #[inline(always)]
    pub fn with_distance(self, place: Place, distance: u64) -> Self {
        Beginning(self.0 | distance << (place.0 % 64))
    }

    /// Reached in this way.
    #[inline(always)]
    pub fn after(self, followed: Followed) -> Self {
        let Followed { is_mispredicted, is_taken } = followed;
        let flags =
            if is_mispredicted { REDIRECTED } else { 0 } | if is_taken { AFTER_TAKEN } else { 0 };
        Beginning(self.0 | u64::from(flags))
    }

    /// Differing in this way.
    #[inline(always)]
    pub fn differing(self, difference: Difference) -> Self {
        let [first, second] = DIFFERENCE;
        let bits = match difference {
            Difference::None => 0,
            Difference::Last => first,
            Difference::Earlier => second,
            Difference::OffPath => first | second,
        };
        Beginning(self.0 | u64::from(bits))
    }
}

/// The entries of a batch.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    words: Vec<u32>,
    /// Where the last entry begins.
    last: usize,
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

    /// Begins an entry.
    #[inline(always)]
    pub fn begin(&mut self, with: Beginning) {
        self.last = self.words.len();
        self.words.extend_from_slice(&[with.0 as u32, (with.0 >> u32::BITS) as u32, 0]);
    }

    /// Begins an entry, without distances so far, with these to producers, and these to late ones, each above 0 and at
    /// most [`MAX_DISTANCE`].
    pub fn begin_with(&mut self, with: Beginning, distances: &[u64], late: &[u64]) {
        let [places, late_places] = &Beginning::PLACES_BESIDE_LATE;
        let has_late = !late.is_empty();
        let places = if has_late { places } else { &Beginning::PLACES[..] };
        let own = places.iter().zip(distances).chain(late_places.iter().zip(late));
        let with = with.with_late(has_late);
        self.begin(own.fold(with, |with, (place, of)| with.with_distance(*place, *of)));
        let others = [(DISTANCES, distances, places.len()), (LATE, late, late_places.len())];
        for (tag, of, had) in others {
            for more in of.get(had..).unwrap_or_default().chunks(3) {
                let packed =
                    more.iter().rev().fold(0, |bits, of| bits << DISTANCE_BITS | *of as u32);
                self.push(tag << TAG_SHIFT | packed);
            }
        }
    }

    /// Begins an entry that continues the instruction before it.
    pub fn continuation(&mut self, difference: Difference) {
        self.begin(Beginning(u64::from(CONTINUES | 1)).differing(difference));
    }

    /// Adds a fetch to the entry if it is fresh. A processor would not foresee whether it is, so that nothing
    /// branches on it.
    #[inline(always)]
    pub fn fetch(&mut self, is_fresh: bool) {
        let (header, second) = (self.words[self.last], &mut self.words[self.last + 1]);
        if header >> KIND_SHIFT & KIND == 0 && *second >> FETCHES_SHIFT < MAX_FETCHES {
            *second += u32::from(is_fresh) << FETCHES_SHIFT;
        } else if is_fresh {
            self.push(REFERENCE << TAG_SHIFT | FRESH | FETCHES);
        }
    }

    /// Adds a reference to data to the entry: the access at a place of the batch serves it.
    #[inline(always)]
    pub fn data(&mut self, place: usize, is_fresh: bool, is_store: bool) {
        let [fresh, stores] = [u32::from(is_fresh) * FRESH, u32::from(is_store) * STORES];
        let reference = fresh | stores | place as u32 & PLACE;
        let [header, _, data] = &mut self.words[self.last..][..SIMPLE_WORDS] else {
            unreachable!("three words are taken")
        };
        if *header >> KIND_SHIFT & KIND == 0 {
            *header |= (LOADS_DATA + u32::from(is_store)) << KIND_SHIFT;
            *data = reference;
        } else {
            self.push(REFERENCE << TAG_SHIFT | reference);
        }
    }

    /// Lets the entry's loads take their value from a store at a distance, or from none if it is 0.
    #[inline(always)]
    pub fn forward(&mut self, distance: u64) {
        let (header, second) = (self.words[self.last], &mut self.words[self.last + 1]);
        if header & COMPOUND != COMPOUND && *second >> FORWARD_SHIFT & DISTANCE == 0 {
            *second |= (distance as u32) << FORWARD_SHIFT;
        } else if distance > 0 {
            self.push(FORWARD << TAG_SHIFT | distance as u32);
        }
    }

    /// Adds a word to the last entry, which becomes a compound one.
    #[cold]
    #[inline(never)]
    fn push(&mut self, word: u32) {
        let last = self.last;
        if self.words[last] & COMPOUND != COMPOUND {
            let words: [u32; SIMPLE_WORDS] = std::array::from_fn(|word| self.words[last + word]);
            let simple = entries(&words).next();
            self.words[last] |= COMPOUND;
            self.words.truncate(last + 2);
            self.words[last + 1] = 0;
            // The header keeps the first distances.
            let mut of_header = 2;
            if let Some(simple) = simple {
                simple.each_word(|word| match (of_header, word) {
                    (0, Word::Distances(0) | Word::Late(0)) => {}
                    (0, word) => self.words.push(encode(word)),
                    _ => of_header -= 1,
                });
            }
        }
        self.words.push(word);
        self.words[last + 1] = (self.words.len() - last - 2) as u32;
    }
}

fn encode(word: Word) -> u32 {
    match word {
        Word::Distances(distances) => DISTANCES << TAG_SHIFT | distances,
        Word::Late(distances) => LATE << TAG_SHIFT | distances,
        Word::Reference(Reference(of)) => REFERENCE << TAG_SHIFT | of,
        Word::Forward(distance) => FORWARD << TAG_SHIFT | distance,
    }
}
