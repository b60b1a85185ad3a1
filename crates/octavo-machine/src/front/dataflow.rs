//! Dependences between instructions through registers and memory, found once for all machines.

use std::hint::select_unpredictable;

use octavo_types::{Segment, VirtAddr};

use super::branches::{Branches, Exit, Followed};
use super::ops::{Beginning, Difference, MAX_DISTANCE, Ops, Place};
use super::wrong_paths::WrongPaths;

/// Entries of the table of recent stores: more than any store queue holds.
const STORES: usize = 1 << 11;
/// log2 of the granularity in bytes at which stores and loads are compared.
const WORD_LOG2: u32 = 3;
/// The maximum number of words of an item that are compared.
const MAX_WORDS: u64 = 8;

/// The registers of [`Dependences`](octavo_types::Dependences), [`NO_REGISTER`], and unused ones: a power of two, so
/// that an index is masked cheaply.
const REGISTERS: usize = 2 * u64::BITS as usize;
/// A register that is never written.
const NO_REGISTER: u8 = u64::BITS as u8;

/// Finds the dependences in the instructions that a core executes. Instructions after a context switch depend on none
/// before it.
pub struct Dataflow {
    /// The number of the next entry. Starts above [`MAX_DISTANCE`], so that 0 in `writers` and `stores` means never.
    entry: u64,
    /// The entry that wrote each register last, before the segment that is executed.
    writers: [u64; REGISTERS],
    /// A direct-mapped table of the last stores to words: the word, and the entry that stored it.
    stores: Box<[(u64, u64)]>,
    /// The outcome of the branch before the next instruction.
    followed: Followed,
    branches: Branches,
    /// The exit of the segment before.
    exit: Option<Exit>,
    /// The comparison of wrong paths with the right path, for cores that execute wrong paths.
    wrong_paths: Option<WrongPaths>,
}

/// The dependences of a segment's instructions, found once for all executions.
#[derive(Clone, Debug)]
pub struct SegmentFlow {
    instructions: Vec<InstructionFlow>,
    /// The registers that the segment writes, each with the distance of its last writer from the segment's end, in
    /// instructions.
    writes: Vec<(u8, u64)>,
    /// A bit for each of these registers.
    written: u64,
    /// The address of its first instruction, and its end; `None` without instructions.
    exit: Option<(u64, Exit)>,
}

/// The producers of an instruction.
#[derive(Clone, Debug)]
struct InstructionFlow {
    /// With the distances of producers in the segment and in its superblock.
    beginning: Beginning,
    /// Registers that were written before the segment, and the places of their distances.
    reads: [(u8, Place); 2],
    /// All early and all late producers, if they are too many for the places of a [`Beginning`].
    many: Option<Box<[Producers; 2]>>,
    /// Registers that were written before the segment and that its addresses need.
    needs: u64,
    /// Registers that it writes.
    writes: u64,
}

/// Producers of an instruction.
#[derive(Clone, Default, Debug)]
struct Producers {
    /// Distances of producers in the segment and in its superblock.
    distances: Vec<u64>,
    /// Registers that were written before the segment.
    registers: Vec<u8>,
}

impl Producers {
    /// The producers of instruction `number`: bit n of `producers` is the instruction n + 1 before it, and `registers`
    /// are those it reads. `writers` has the last writer of each register so far in the segment.
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

    /// Removes the producers that `others` contains.
    fn without(mut self, others: &Producers) -> Self {
        self.distances.retain(|distance| !others.distances.contains(distance));
        self.registers.retain(|register| !others.registers.contains(register));
        self
    }

    fn len(&self) -> usize {
        self.distances.len() + self.registers.len()
    }

    /// The distances of all producers from the next entry.
    fn all_distances(&self, dataflow: &Dataflow) -> Vec<u64> {
        let of_registers = self.registers.iter().map(|register| dataflow.distance(*register));
        self.distances
            .iter()
            .copied()
            .chain(of_registers.filter(|distance| *distance > 0))
            .collect()
    }
}

impl SegmentFlow {
    /// The dependences of a segment without instructions.
    pub const EMPTY: &Self =
        &SegmentFlow { instructions: Vec::new(), writes: Vec::new(), written: 0, exit: None };

    /// The dependences of a segment.
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

    /// The registers that its first `count` instructions write.
    pub fn written_by_first(&self, count: u64) -> u64 {
        let first = &self.instructions[..count as usize];
        first.iter().fold(0, |bits, instruction| bits | instruction.writes)
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
        for (producers, places) in [(early, places), (late, late_places)] {
            let mut places = places.iter();
            for (distance, place) in producers.distances.into_iter().zip(&mut places) {
                beginning = beginning.with_distance(*place, distance);
            }
            for (read, own) in producers.registers.into_iter().zip(places).zip(&mut own) {
                *own = (read.0, *read.1);
            }
        }
        InstructionFlow { beginning, reads, many: None, needs: 0, writes: 0 }
    }
}

impl Dataflow {
    /// The dataflow at the start of a program. With `with_wrong_paths`, entries have their [`Difference`] from wrong paths.
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

    /// A context switch: another thread or process runs next.
    pub fn switch(&mut self) {
        self.entry += MAX_DISTANCE + 1;
        self.exit = None;
        self.followed = Followed::default();
        if let Some(paths) = &mut self.wrong_paths {
            paths.switch();
        }
    }

    /// Begins an execution of segment `number`, with the prediction of the branch that led to it.
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

    /// Adds instruction `number` of a segment.
    #[inline(always)]
    pub fn instruction(&mut self, segment: &SegmentFlow, number: usize, ops: &mut Ops) {
        let InstructionFlow { beginning, reads, many, needs, .. } = &segment.instructions[number];
        let mut beginning = beginning.after(std::mem::take(&mut self.followed));
        if let Some(paths) = &self.wrong_paths {
            beginning = beginning.differing(paths.difference(self.entry, *needs));
        }
        if let Some(many) = many {
            let [early, late] = many.each_ref().map(|producers| producers.all_distances(self));
            ops.begin_with(beginning, &early, &late);
        } else {
            for (register, place) in reads {
                beginning = beginning.with_distance(*place, self.distance(*register));
            }
            ops.begin(beginning);
        }
        self.entry += 1;
    }

    /// The number of entries since a register was written; 0 if more than [`MAX_DISTANCE`].
    #[inline(always)]
    fn distance(&self, register: u8) -> u64 {
        let distance = self.entry - self.writers[usize::from(register) % REGISTERS];
        select_unpredictable(distance <= MAX_DISTANCE, distance, 0)
    }

    /// Ends the execution of a segment, after all its instructions: records the registers that it writes.
    #[inline(always)]
    pub fn end(&mut self, segment: &SegmentFlow) {
        for (register, from_end) in &segment.writes {
            self.writers[usize::from(*register) % REGISTERS] = self.entry - from_end;
        }
        if let Some(paths) = &mut self.wrong_paths {
            paths.write(segment.written);
        }
    }

    /// Adds an entry for data of an instruction that began in the segment before.
    pub fn continuation(&mut self, ops: &mut Ops) {
        let (paths, entry) = (self.wrong_paths.as_mut(), self.entry);
        ops.continuation(paths.map_or(Difference::None, |paths| paths.continuation(entry)));
        self.entry += 1;
    }

    /// Records a store of the last instruction.
    #[inline(always)]
    pub fn store(&mut self, addr: VirtAddr, bytes: u64) {
        let (first, others) = words(addr, bytes);
        self.stores[place(first)] = (first, self.entry);
        for word in others {
            self.stores[place(word)] = (word, self.entry);
        }
    }

    /// Adds the dependence of a load of the last instruction on the last store to the same words.
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

/// The numbers of the bits that are set.
pub fn bits(mut set: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as u8)
    })
}

/// The first word of an item, and its other words.
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

    /// Dependences through few registers, so that they are frequent, or through any; the bits of `reads` that encode the
    /// arithmetic are arbitrary as well.
    fn dependences() -> impl Strategy<Value = Dependences> {
        octavo_oracle::strategies::dependences(|| {
            prop_oneof![Just(0), (0u32..64).prop_map(|bit| 1 << bit), 0u64..8, any::<u64>()]
        })
    }

    /// A segment of instructions with these dependences.
    fn segment(dependences: Vec<Dependences>) -> Segment {
        let item = |_: &Dependences| Item::new(ItemKind::Fetch, 1, VirtAddr::new(0x1000));
        Segment::new(dependences.iter().map(item).collect(), dependences)
            .expect("every item is valid")
    }

    /// An executed segment, whether a context switch precedes it, and whether it begins with data of an instruction in the
    /// segment before.
    type Execution = (prop::sample::Index, bool, bool);

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Compares early and late producers with a map from each register to the entry that wrote it last.
        #[test]
        fn producers_are_the_last_writers(
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
                        let (into, distances) = match word {
                            Word::Distances(distances) => (&mut early, distances),
                            Word::Late(distances) => (&mut late, distances),
                            other => panic!("{other:?} of an instruction without references"),
                        };
                        each_distance(distances, |distance| {
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
