//! Dependences between instructions, found once for all machines: through registers, and through memory.

use std::hint::select_unpredictable;

use octavo_types::{Segment, VirtAddr};

use super::branches::{Branches, Exit, Followed};
use super::ops::{Beginning, Difference, MAX_DISTANCE, Ops, Place};
use super::wrong_paths::WrongPaths;

/// Entries of the table of recent stores: more than any store queue holds.
const STORES: usize = 1 << 11;
/// log2 of the bytes by which stores and loads are compared.
const WORD_LOG2: u32 = 3;
/// The most words of one item that are compared.
const MAX_WORDS: u64 = 8;

/// Room for the registers of [`Dependences`](octavo_types::Dependences), and for one that nothing ever writes.
const REGISTERS: usize = 2 * u64::BITS as usize;
const NO_REGISTER: u8 = u64::BITS as u8;

/// Follows one thread of execution. After a switch to another, nothing depends on what came before.
pub struct Dataflow {
    /// The number of the entry to come. Starts at more than the farthest distance.
    entry: u64,
    /// The entry that wrote each register last, before the segment that is executed.
    writers: [u64; REGISTERS],
    /// The last store to a word among those that share a place: the word, and its entry.
    stores: Box<[(u64, u64)]>,
    /// How the instruction to come was reached.
    followed: Followed,
    branches: Branches,
    /// The exit of the segment before.
    exit: Option<Exit>,
    /// Where wrong paths differ from the right one, if cores want to know.
    wrong_paths: Option<WrongPaths>,
}

/// The dependences of a segment's instructions, found once for all executions.
#[derive(Clone, Debug)]
pub struct SegmentFlow {
    instructions: Vec<InstructionFlow>,
    /// The registers that the segment writes, and how many instructions from its end each is written last.
    writes: Vec<(u8, u64)>,
    /// A bit for each of these registers.
    written: u64,
    /// Where it begins, and its end; `None` without instructions.
    exit: Option<(u64, Exit)>,
}

/// The producers of an instruction.
#[derive(Clone, Debug)]
struct InstructionFlow {
    /// With the distances of producers in the segment and in its superblock.
    beginning: Beginning,
    /// Registers that were written before the segment, and the places of their distances.
    reads: [(u8, Place); 2],
    /// If it has more producers than have places, all of them, and all late ones.
    many: Option<Box<[Producers; 2]>>,
    /// The registers that were written before the segment and that its addresses need, and those that it writes.
    needs: u64,
    writes: u64,
}

/// Producers of an instruction.
#[derive(Clone, Default, Debug)]
struct Producers {
    /// The distances that are known.
    distances: Vec<u64>,
    /// Registers that were written before the segment.
    registers: Vec<u8>,
}

impl Producers {
    /// Instructions of a set, and the last writers of registers: `writers` has the ones in the segment, before the
    /// instruction of this number.
    fn new(producers: u64, registers: u64, number: usize, writers: &[Option<usize>]) -> Self {
        let mut distances: Vec<u64> = bits(producers).map(|bit| u64::from(bit) + 1).collect();
        let mut before = Vec::new();
        for register in bits(registers) {
            match writers[usize::from(register)] {
                Some(writer) => distances.push((number - writer) as u64),
                None => before.push(register),
            }
        }
        distances.retain(|distance| *distance <= MAX_DISTANCE);
        distances.sort_unstable();
        distances.dedup();
        Producers { distances, registers: before }
    }

    /// Without those that are in others, too.
    fn without(mut self, others: &Producers) -> Self {
        self.distances.retain(|of| !others.distances.contains(of));
        self.registers.retain(|of| !others.registers.contains(of));
        self
    }

    fn len(&self) -> usize {
        self.distances.len() + self.registers.len()
    }

    /// All distances.
    fn known(&self, dataflow: &Dataflow) -> Vec<u64> {
        let of_registers = self.registers.iter().map(|register| dataflow.distance(*register));
        self.distances
            .iter()
            .copied()
            .chain(of_registers.filter(|distance| *distance > 0))
            .collect()
    }
}

impl SegmentFlow {
    /// Of a segment without instructions.
    pub const EMPTY: &Self =
        &SegmentFlow { instructions: Vec::new(), writes: Vec::new(), written: 0, exit: None };

    /// Of a segment.
    pub fn new(segment: &Segment) -> Self {
        let mut writers = [None; REGISTERS];
        let count = segment.instructions() as usize;
        let instructions = (0..count).map(|number| {
            let of = segment.dependences().get(number).copied().unwrap_or_default();
            let (late, late_reads) =
                (of.producers & of.late_producers, of.registers_read() & of.late_reads);
            let early = Producers::new(
                of.producers & !late,
                of.registers_read() & !late_reads,
                number,
                &writers,
            );
            let late = Producers::new(late, late_reads, number, &writers).without(&early);
            bits(of.writes).for_each(|register| writers[usize::from(register)] = Some(number));
            let beginning = Beginning::new(segment.writes_integer(number), of.arithmetic());
            let needs = early.registers.iter().fold(0, |bits, register| bits | 1 << register);
            InstructionFlow {
                needs,
                writes: of.writes,
                ..InstructionFlow::new(beginning, early, late)
            }
        });
        let instructions = instructions.collect();
        let written = writers.iter().enumerate();
        let writes: Vec<_> = written
            .filter_map(|(register, writer)| Some((register as u8, (count - (*writer)?) as u64)))
            .collect();
        let written = writes.iter().fold(0, |bits, (register, _)| bits | 1 << register);
        SegmentFlow { instructions, writes, written, exit: Exit::of(segment) }
    }
}

impl SegmentFlow {
    /// The addresses of its first and its last instruction, if it has any.
    #[inline(always)]
    pub fn ends(&self) -> Option<(u64, u64)> {
        self.exit.map(|(start, exit)| (start, exit.pc))
    }

    /// The number of its instructions.
    pub fn instructions(&self) -> u64 {
        self.instructions.len() as u64
    }

    /// The registers that it writes.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The registers that so many of its first instructions write.
    pub fn written_by_first(&self, count: u64) -> u64 {
        let first = &self.instructions[..count as usize];
        first.iter().fold(0, |bits, of| bits | of.writes)
    }
}

impl InstructionFlow {
    fn new(beginning: Beginning, early: Producers, late: Producers) -> Self {
        let has_late = late.len() > 0;
        let [places, late_places] = &Beginning::PLACES_BESIDE_LATE;
        let places = if has_late { places } else { &Beginning::PLACES[..] };
        let mut reads = [(NO_REGISTER, Beginning::PLACES[0]); 2];
        if early.len() > places.len()
            || late.len() > late_places.len()
            || early.registers.len() + late.registers.len() > reads.len()
        {
            let many = Some(Box::new([early, late]));
            return InstructionFlow { beginning, reads, many, needs: 0, writes: 0 };
        }
        let (mut beginning, mut own) = (beginning.with_late(has_late), reads.iter_mut());
        for (of, places) in [(early, places), (late, late_places)] {
            let mut places = places.iter();
            for (distance, place) in of.distances.into_iter().zip(&mut places) {
                beginning = beginning.with_distance(*place, distance);
            }
            for (read, own) in of.registers.into_iter().zip(places).zip(&mut own) {
                *own = (read.0, *read.1);
            }
        }
        InstructionFlow { beginning, reads, many: None, needs: 0, writes: 0 }
    }
}

impl Dataflow {
    /// Follows a program from its beginning; `branches` predicts them. Says where wrong paths differ, if that is wanted.
    pub fn new(branches: Branches, with_wrong_paths: bool) -> Self {
        Dataflow {
            entry: MAX_DISTANCE + 1,
            writers: [0; REGISTERS],
            stores: vec![(u64::MAX, 0); STORES].into(),
            followed: Followed::default(),
            branches,
            exit: None,
            wrong_paths: with_wrong_paths.then(WrongPaths::new),
        }
    }

    /// Another thread or process runs from here on.
    pub fn switch(&mut self) {
        self.entry += MAX_DISTANCE + 1;
        self.exit = None;
        self.followed = Followed::default();
        if let Some(paths) = &mut self.wrong_paths {
            paths.switch();
        }
    }

    /// The segment of a number begins.
    #[inline(always)]
    pub fn begin(&mut self, flows: &[SegmentFlow], number: usize) {
        let Some((start, exit)) = flows[number].exit else { return };
        if let Some(before) = self.exit.replace(exit) {
            self.followed = self.branches.follow(&before, start);
        }
        let Some(paths) = &mut self.wrong_paths else { return };
        if self.followed.is_mispredicted {
            paths.segment_behind(self.branches.wrong_path(), flows, number, self.entry);
        } else {
            paths.segment(flows, number, self.entry);
        }
    }

    /// Adds the instruction of a number in its segment.
    #[inline(always)]
    pub fn instruction(&mut self, of: &SegmentFlow, number: usize, ops: &mut Ops) {
        let InstructionFlow { beginning, reads, many, needs, .. } = &of.instructions[number];
        let mut beginning = beginning.after(std::mem::take(&mut self.followed));
        if let Some(paths) = &self.wrong_paths {
            beginning = beginning.differing(paths.difference(self.entry, *needs));
        }
        if let Some(many) = many {
            let [early, late] = many.each_ref().map(|of| of.known(self));
            ops.begin_with(beginning, &early, &late);
        } else {
            for (register, place) in reads {
                beginning = beginning.with_distance(*place, self.distance(*register));
            }
            ops.begin(beginning);
        }
        self.entry += 1;
    }

    /// How many entries ago a register was written; 0 if that is too long ago.
    #[inline(always)]
    fn distance(&self, register: u8) -> u64 {
        let distance = self.entry - self.writers[usize::from(register) % REGISTERS];
        select_unpredictable(distance <= MAX_DISTANCE, distance, 0)
    }

    /// The segment ends, all of whose instructions have been added.
    #[inline(always)]
    pub fn end(&mut self, of: &SegmentFlow) {
        for (register, from_end) in &of.writes {
            self.writers[usize::from(*register) % REGISTERS] = self.entry - from_end;
        }
        if let Some(paths) = &mut self.wrong_paths {
            paths.write(of.written);
        }
    }

    /// Adds an entry for data of the instruction before, which began in the segment before.
    pub fn continuation(&mut self, ops: &mut Ops) {
        let (paths, entry) = (self.wrong_paths.as_mut(), self.entry);
        ops.continuation(paths.map_or(Difference::None, |of| of.continuation(entry)));
        self.entry += 1;
    }

    /// The current instruction stores an item.
    #[inline(always)]
    pub fn store(&mut self, addr: VirtAddr, bytes: u64) {
        let (first, others) = words(addr, bytes);
        self.stores[place(first)] = (first, self.entry);
        for word in others {
            self.stores[place(word)] = (word, self.entry);
        }
    }

    /// The current instruction loads an item: it may take it from a store.
    #[inline(always)]
    pub fn load(&mut self, addr: VirtAddr, bytes: u64, ops: &mut Ops) {
        let stored_last = |word: u64| {
            let (stored, entry) = self.stores[place(word)];
            select_unpredictable(stored == word, entry, 0)
        };
        let (first, others) = words(addr, bytes);
        let last = others.map(stored_last).fold(stored_last(first), u64::max);
        let distance = self.entry - last;
        ops.forward(select_unpredictable(distance <= MAX_DISTANCE, distance, 0));
    }
}

/// The bits that are set.
pub fn bits(mut of: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = of.trailing_zeros();
        of &= of.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as u8)
    })
}

/// The first word of an item, and its others.
#[inline(always)]
fn words(addr: VirtAddr, bytes: u64) -> (u64, impl Iterator<Item = u64>) {
    let first = addr.raw() >> WORD_LOG2;
    let last = addr.raw().wrapping_add(bytes - 1) >> WORD_LOG2;
    let others = last.wrapping_sub(first).min(MAX_WORDS - 1);
    (first, (1..others + 1).map(move |by| first.wrapping_add(by)))
}

#[inline(always)]
fn place(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % STORES
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use octavo_config::BranchPrediction;
    use octavo_types::{Dependences, Item, ItemKind};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::front::{Word, each_distance, entries};

    /// Registers of few or of any numbers; the bits of `reads` that say what an instruction computes are set, too.
    fn dependences() -> impl Strategy<Value = Dependences> {
        octavo_oracle::strategies::dependences(|| {
            prop_oneof![Just(0), (0u32..64).prop_map(|bit| 1 << bit), 0u64..8, any::<u64>()]
        })
    }

    /// A segment of instructions with these dependences.
    fn segment(of: Vec<Dependences>) -> Segment {
        let item = |_: &Dependences| Item {
            kind: ItemKind::Fetch,
            addr: VirtAddr::new(0x1000),
            size_bytes: 1,
            guarded: false,
            atomic: false,
        };
        Segment::new(of.iter().map(item).collect(), of).expect("every item is sound")
    }

    /// The segments that follow each other, whether another thread runs before each, and whether each begins with data
    /// of an instruction in the segment before.
    type Execution = (prop::sample::Index, bool, bool);

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Beside all producers of each instruction, by the number of the entry that wrote each register last: those
        /// that are not late, and the others.
        #[test]
        fn producers_are_those_that_wrote_last(
            segments in vec(vec(dependences(), 1..12), 1..5),
            executions in vec(any::<Execution>(), 1..200),
        ) {
            let segments: Vec<Segment> = segments.into_iter().map(segment).collect();
            let flows: Vec<SegmentFlow> = segments.iter().map(SegmentFlow::new).collect();
            let mut fast = Dataflow::new(Branches::new(BranchPrediction::Perfect), false);
            let (mut ops, mut expected) = (Ops::default(), Vec::new());
            let mut writers: BTreeMap<u32, usize> = BTreeMap::new();
            for (index, switches, continues) in executions {
                let number = index.index(segments.len());
                if switches {
                    fast.switch();
                    writers.clear();
                }
                fast.begin(&flows, number);
                if continues {
                    fast.continuation(&mut ops);
                    expected.push((BTreeSet::from([1]), BTreeSet::new(), false, None));
                }
                for (place, of) in (0..segments[number].instructions() as usize)
                    .map(|place| (place, segments[number].dependences().get(place).copied().unwrap_or_default()))
                {
                    fast.instruction(&flows[number], place, &mut ops);
                    let entry = expected.len();
                    let has = |bits: u64, bit: u32| bits >> bit & 1 == 1;
                    let distances_of = |producers: u64, registers: u64| -> BTreeSet<usize> {
                        (0..64).filter(|bit| has(producers, *bit)).map(|bit| bit as usize + 1)
                            .chain((0..64)
                                .filter(|register| has(registers, *register))
                                .filter_map(|register| Some(entry - writers.get(&register)?))
                                .filter(|distance| *distance <= MAX_DISTANCE as usize))
                            .collect()
                    };
                    let early = distances_of(
                        of.producers & !of.late_producers,
                        of.registers_read() & !of.late_reads,
                    );
                    let all = distances_of(of.producers, of.registers_read());
                    let late: BTreeSet<usize> = all.difference(&early).copied().collect();
                    writers.extend((0..64).filter(|register| has(of.writes, *register)).map(|register| (register, entry)));
                    expected.push((early, late, segments[number].writes_integer(place), of.arithmetic()));
                }
                fast.end(&flows[number]);
            }
            let found: Vec<_> = entries(ops.words())
                .map(|entry| {
                    let (mut early, mut late) = (BTreeSet::new(), BTreeSet::new());
                    entry.each_word(|word| {
                        let (into, of) = match word {
                            Word::Distances(of) => (&mut early, of),
                            Word::Late(of) => (&mut late, of),
                            other => panic!("{other:?} is of no instruction"),
                        };
                        each_distance(of, |distance| {
                            into.extend((distance > 0).then_some(distance as usize));
                        });
                    });
                    let late = late.difference(&early).copied().collect();
                    (early, late, entry.header().writes_integer(), entry.header().arithmetic())
                })
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
