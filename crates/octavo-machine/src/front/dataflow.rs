//! Dependences between instructions, found once for all machines: through registers, and through memory.

use octavo_types::{Dependences, VirtAddr};

use super::branches::{Branches, Exit, Followed};
use super::ops::{MAX_DISTANCE, Ops};

/// Entries of the table of recent stores: more than any store queue holds.
const STORES: usize = 1 << 11;
/// log2 of the bytes by which stores and loads are compared.
const WORD_LOG2: u32 = 3;
/// The most words of one item that are compared.
const MAX_WORDS: u64 = 8;

/// Follows one thread of execution. After a switch to another, nothing depends on what came before.
pub struct Dataflow {
    /// The number of the entry to come. Starts at more than the farthest distance.
    entry: u64,
    /// Room for the distances of an entry, so that it is not cleared for each.
    distances: Box<[u64; 2 * u64::BITS as usize]>,
    /// The entry that wrote each register of [`Dependences`] last.
    writers: [u64; u64::BITS as usize],
    /// The last store to a word among those that share a place: the word, and its entry.
    stores: Box<[(u64, u64)]>,
    /// How the instruction to come was reached.
    followed: Followed,
    branches: Branches,
    /// The exit of the segment before.
    exit: Option<Exit>,
}

impl Dataflow {
    /// Follows a program from its beginning; `branches` predicts them.
    pub fn new(branches: Branches) -> Self {
        Dataflow {
            entry: MAX_DISTANCE + 1,
            distances: Box::new([0; 2 * u64::BITS as usize]),
            writers: [0; u64::BITS as usize],
            stores: vec![(u64::MAX, 0); STORES].into(),
            followed: Followed::default(),
            branches,
            exit: None,
        }
    }

    /// Another thread or process runs from here on.
    pub fn switch(&mut self) {
        self.entry += MAX_DISTANCE + 1;
        self.exit = None;
        self.followed = Followed::default();
    }

    /// A segment begins at `start`, and will end with `exit`.
    #[inline(always)]
    pub fn segment(&mut self, start: u64, exit: Exit) {
        if let Some(before) = self.exit.replace(exit) {
            self.followed = self.branches.follow(&before, start);
        }
    }

    /// Adds an instruction, which writes this many registers.
    #[inline(always)]
    pub fn instruction(&mut self, of: &Dependences, written: u8, ops: &mut Ops) {
        let distances = &mut *self.distances;
        let mut count = 0;
        let mut producers = of.producers;
        while producers != 0 {
            distances[count] = u64::from(producers.trailing_zeros()) + 1;
            count += 1;
            producers &= producers - 1;
        }
        let mut reads = of.registers_read();
        while reads != 0 {
            let distance = self.entry - self.writers[reads.trailing_zeros() as usize];
            if distance <= MAX_DISTANCE && !distances[..count].contains(&distance) {
                distances[count] = distance;
                count += 1;
            }
            reads &= reads - 1;
        }
        let mut writes = of.writes;
        while writes != 0 {
            self.writers[writes.trailing_zeros() as usize] = self.entry;
            writes &= writes - 1;
        }
        let followed = std::mem::take(&mut self.followed);
        ops.entry(&distances[..count], u32::from(written), of.arithmetic(), followed);
        self.entry += 1;
    }

    /// Adds an entry for data of the instruction before, which began in the segment before.
    pub fn continuation(&mut self, ops: &mut Ops) {
        ops.continuation();
        self.entry += 1;
    }

    /// The current instruction stores an item.
    #[inline(always)]
    pub fn store(&mut self, addr: VirtAddr, bytes: u64) {
        for word in words(addr, bytes) {
            self.stores[place(word)] = (word, self.entry);
        }
    }

    /// The current instruction loads an item: it may take it from a store.
    #[inline(always)]
    pub fn load(&mut self, addr: VirtAddr, bytes: u64, ops: &mut Ops) {
        let last = words(addr, bytes)
            .map(|word| match self.stores[place(word)] {
                (stored, entry) if stored == word => entry,
                _ => 0,
            })
            .max();
        let distance = self.entry - last.unwrap_or(0);
        if (1..=MAX_DISTANCE).contains(&distance) {
            ops.forward(distance);
        }
    }
}

#[inline(always)]
fn words(addr: VirtAddr, bytes: u64) -> impl Iterator<Item = u64> {
    let first = addr.raw() >> WORD_LOG2;
    let last = addr.raw().wrapping_add(bytes - 1) >> WORD_LOG2;
    let others = last.wrapping_sub(first).min(MAX_WORDS - 1);
    (0..=others).map(move |by| first.wrapping_add(by))
}

#[inline(always)]
fn place(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % STORES
}
