//! The instructions of a batch with their dependences, for cores, in words of 32 bits.
//!
//! An instruction is an *entry*: distances to producers, and references. A distance is the number of entries from the
//! producer to the entry; it is *late* if the references do not wait for the producer. A reference has the index of the
//! access of the batch that serves it; it is *fresh* if the access is its own, else it repeats a line that an earlier
//! reference has accessed. Fresh references are served in order.
//!
//! Most entries have few distances, and at most one reference to data. Such a [`Simple`] entry is three words, so that
//! a core executes it without loops over its parts. Every other entry is [`Compound`]: a header, the number of words
//! that follow, and these words, a [`Word`] each.

use octavo_types::Arithmetic;

use super::branches::Followed;

/// Bits of a distance: no reorder buffer holds more instructions than ten bits count.
const DISTANCE_BITS: u32 = 10;
/// The farthest producer that an entry names.
pub const MAX_DISTANCE: u64 = (1 << DISTANCE_BITS) - 1;
const DISTANCE: u32 = MAX_DISTANCE as u32;

const REDIRECTED: u32 = 1 << 20;
const AFTER_TAKEN: u32 = 1 << 21;
const CONTINUES: u32 = 1 << 22;
/// The entry writes an integer register.
const WRITES: u32 = 1 << 23;
/// The second of two distances is late.
const HAS_LATE: u32 = 1 << 24;
/// The two bits of the entry's [`Difference`].
const DIFFERENCE: [u32; 2] = [1 << 25, 1 << 31];
const ARITHMETIC_SHIFT: u32 = 26;
const ARITHMETIC: u32 = 0b111;
const KIND_SHIFT: u32 = 29;
const KIND: u32 = 0b11;
/// The kinds of simple entries: with a load, with a store, or 0 without a reference to data.
const LOADS_DATA: u32 = 1;
const STORES_DATA: u32 = 2;
const COMPOUND: u32 = 3 << KIND_SHIFT;

/// The words of a simple entry.
const SIMPLE_WORDS: usize = 3;
/// The distance to a store from which a simple entry's load takes its value, in the second word.
const FORWARD_SHIFT: u32 = 2 * DISTANCE_BITS;
/// The number of a simple entry's fetches, in the second word.
const FETCHES_SHIFT: u32 = 3 * DISTANCE_BITS;
/// The maximum number of fetches of a simple entry.
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
    /// An entry of three words.
    Simple(Simple),
    /// An entry of any number of words.
    Compound(Compound<'w>),
}

/// An entry with at most four distances, three fetches, one store that forwards its value, and one reference to data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Simple {
    /// Its header.
    pub header: Header,
    second: u32,
    data: Reference,
}

/// An entry of a header and any words.
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
    /// A load takes its value from the store this many entries before it.
    Forward(u32),
}

/// How an entry differs between the right path and the [wrong paths](super::wrong_paths) behind mispredicted branches
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Difference {
    /// It is on all paths: wrong paths execute it if they execute the instructions that its addresses depend on.
    #[default]
    None,
    /// It differs from the wrong path of the last branch.
    Last,
    /// It differs from the wrong path of a branch before the last.
    Earlier,
    /// It differs from the wrong path of the branch directly before it, and that branch is not on the wrong path of the
    /// branch before.
    OffPath,
}

/// The first word of an entry.
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

    /// Whether it continues the instruction before it, such as a repeated string operation.
    #[inline(always)]
    pub fn continues(self) -> bool {
        self.0 & CONTINUES != 0
    }

    /// Whether it writes an integer register.
    #[inline(always)]
    pub fn writes_integer(self) -> bool {
        self.0 & WRITES != 0
    }

    /// Whether its second distance is late, and the second of its [further ones](Simple::more_distances).
    #[inline(always)]
    pub fn has_late(self) -> bool {
        self.0 & HAS_LATE != 0
    }

    /// Its difference from wrong paths.
    #[inline(always)]
    pub fn difference(self) -> Difference {
        match DIFFERENCE.map(|bit| self.0 & bit != 0) {
            [false, false] => Difference::None,
            [true, false] => Difference::Last,
            [false, true] => Difference::Earlier,
            [true, true] => Difference::OffPath,
        }
    }

    /// The kind of its computation, if it takes more than a cycle.
    #[inline(always)]
    pub fn arithmetic(self) -> Option<Arithmetic> {
        Arithmetic::of_code((self.0 >> ARITHMETIC_SHIFT & ARITHMETIC) as u8)
    }

    /// The code of that kind, below 8; 0 is none.
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

    /// The number of its fetches, all fresh.
    #[inline(always)]
    pub fn fetches(self) -> u32 {
        self.second >> FETCHES_SHIFT
    }

    /// The number of its fresh references.
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

    /// Its reference to data; unspecified if it has none.
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

    /// Whether it fetches the instruction. Only fresh fetches are recorded.
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
    /// The places for distances of an entry without late ones.
    pub const PLACES: [Place; 4] = {
        let (first, second) = (DISTANCE_BITS as u8, u32::BITS as u8);
        [Place(0), Place(first), Place(second), Place(second + first)]
    };
    /// The places for early and for late distances of an entry [with late ones](Beginning::with_late).
    pub const PLACES_BESIDE_LATE: [[Place; 2]; 2] = {
        let [first, second, third, fourth] = Self::PLACES;
        [[first, third], [second, fourth]]
    };

    /// An entry without producers. `computes` is the kind of a computation of more than one cycle.
    pub fn new(writes_integer: bool, computes: Option<Arithmetic>) -> Self {
        let arithmetic = u32::from(Arithmetic::code(computes)) << ARITHMETIC_SHIFT;
        Beginning(u64::from((u32::from(writes_integer) * WRITES) | arithmetic))
    }

    /// With space for late distances, if `has_late`.
    pub fn with_late(self, has_late: bool) -> Self {
        Beginning(self.0 | u64::from(u32::from(has_late) * HAS_LATE))
    }

    /// With the distance of a producer, from 0 (none) to [`MAX_DISTANCE`], at an unused place.
    #[inline(always)]
    pub fn with_distance(self, place: Place, distance: u64) -> Self {
        Beginning(self.0 | distance << (place.0 % 64))
    }

    /// With the outcome of the branch before the entry.
    #[inline(always)]
    pub fn after(self, followed: Followed) -> Self {
        let Followed { is_mispredicted, is_taken } = followed;
        let flags =
            if is_mispredicted { REDIRECTED } else { 0 } | if is_taken { AFTER_TAKEN } else { 0 };
        Beginning(self.0 | u64::from(flags))
    }

    /// With the entry's difference from wrong paths.
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

    /// Begins an entry with any number of early and late distances, each from 1 to [`MAX_DISTANCE`]. `with` has no
    /// distances yet.
    pub fn begin_with(&mut self, with: Beginning, distances: &[u64], late: &[u64]) {
        let [places, late_places] = &Beginning::PLACES_BESIDE_LATE;
        let has_late = !late.is_empty();
        let places = if has_late { places } else { &Beginning::PLACES[..] };
        let own = places.iter().zip(distances).chain(late_places.iter().zip(late));
        let with = with.with_late(has_late);
        self.begin(own.fold(with, |with, (place, distance)| with.with_distance(*place, *distance)));
        let others = [(DISTANCES, distances, places.len()), (LATE, late, late_places.len())];
        for (tag, distances, had) in others {
            for more in distances.get(had..).unwrap_or_default().chunks(3) {
                let packed = more
                    .iter()
                    .rev()
                    .fold(0, |bits, distance| bits << DISTANCE_BITS | *distance as u32);
                self.push(tag << TAG_SHIFT | packed);
            }
        }
    }

    /// Begins an entry that continues the instruction before it.
    pub fn continuation(&mut self, difference: Difference) {
        self.begin(Beginning(u64::from(CONTINUES | 1)).differing(difference));
    }

    /// Adds a fetch to the entry if it is fresh. Branch predictors cannot predict whether it is, so that the usual
    /// case does not branch on it.
    #[inline(always)]
    pub fn fetch(&mut self, is_fresh: bool) {
        let (header, second) = (self.words[self.last], &mut self.words[self.last + 1]);
        if header >> KIND_SHIFT & KIND == 0 && *second >> FETCHES_SHIFT < MAX_FETCHES {
            *second += u32::from(is_fresh) << FETCHES_SHIFT;
        } else if is_fresh {
            self.push(REFERENCE << TAG_SHIFT | FRESH | FETCHES);
        }
    }

    /// Adds a reference to data, which the access at index `place` of the batch serves.
    #[inline(always)]
    pub fn data(&mut self, place: usize, is_fresh: bool, is_store: bool) {
        let [fresh, stores] = [u32::from(is_fresh) * FRESH, u32::from(is_store) * STORES];
        let reference = fresh | stores | place as u32 & PLACE;
        let [header, _, data] = &mut self.words[self.last..][..SIMPLE_WORDS] else {
            unreachable!("the slice has three words")
        };
        if *header >> KIND_SHIFT & KIND == 0 {
            *header |= (LOADS_DATA + u32::from(is_store)) << KIND_SHIFT;
            *data = reference;
        } else {
            self.push(REFERENCE << TAG_SHIFT | reference);
        }
    }

    /// Records that the entry's load takes its value from the store at `distance`, or from none if it is 0.
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
            // The header keeps the first two words of distances.
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
