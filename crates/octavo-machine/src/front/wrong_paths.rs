//! Which instructions the wrong path behind a mispredicted branch has in common with the right one, so that a core executes
//! them on both (Eyerman, Van den Steen, Heirman and Hur, "Simulating Wrong-Path Instructions in Decoupled
//! Functional-First Simulation", ISPASS 2023: convergence exploitation).
//!
//! A trace has the right path alone. The wrong one is taken to be what the program executed when it came to the
//! predicted address last. Both *join* where a segment of each ends at the same instruction: at the first that both
//! segments have. Of those that the right path comes to, it is the join before which both paths write the fewest registers,
//! and then the one before which they have the fewest instructions. An instruction *differs* between the paths before the
//! join, and behind it if its addresses need a register that the wrong path has written before the join. What depends on
//! it is found by cores.

use super::dataflow::{SegmentFlow, bits};
use super::ops::{Difference, MAX_DISTANCE};

/// Segments executed last, among which a wrong path is looked for.
const HISTORY: usize = 1 << 10;
/// Segments of a wrong path.
const PATH: usize = 16;
/// Entries behind a branch for which its wrong path is followed: the largest reorder buffer.
const WINDOW: u64 = MAX_DISTANCE;
/// Before a join is found.
const NO_JOIN: (u32, u64) = (u32::MAX, u64::MAX);
const REGISTERS: usize = u64::BITS as usize;

/// Follows the mispredicted branches of a thread of execution. A branch has the number of the first entry behind it.
pub struct WrongPaths {
    /// Where the segments executed last begin, and their numbers in the stream.
    starts: Box<[u64; HISTORY]>,
    numbers: Box<[u32; HISTORY]>,
    /// Segments so far.
    segments: u64,
    /// The last mispredicted branch, and whether it is on no wrong path of the branch before it, as that is not joined.
    branch: u64,
    is_off_path: bool,
    /// The segments of its wrong path.
    path: Vec<OnPath>,
    /// The registers that the right path has written behind the branch.
    written: u64,
    /// How many registers both paths write before they join, and their instructions before it, and the first entry that is
    /// on both; the largest numbers if they have not joined.
    before_join: (u32, u64),
    join: u64,
    /// The registers that its wrong path has written before the join, until the right path does.
    different: u64,
    /// The last of the branches before it whose wrong path has written each register whose bit is in `different_before`.
    registers: [u64; REGISTERS],
    different_before: u64,
}

/// A segment of a wrong path.
struct OnPath {
    number: u32,
    /// The address of its last instruction.
    end: u64,
    /// Its instructions, those of the path before it, and the registers that these write.
    instructions: u64,
    before: u64,
    written: u64,
}

impl WrongPaths {
    /// No branch so far.
    pub fn new() -> Self {
        WrongPaths {
            starts: Box::new([0; HISTORY]),
            numbers: Box::new([0; HISTORY]),
            segments: 0,
            branch: 0,
            is_off_path: false,
            path: Vec::with_capacity(PATH),
            written: 0,
            before_join: NO_JOIN,
            join: 0,
            different: 0,
            registers: [0; REGISTERS],
            different_before: 0,
        }
    }

    /// Another thread runs from here on.
    pub fn switch(&mut self) {
        self.segments = 0;
        (self.different, self.different_before) = (0, 0);
    }

    /// Whether an entry to come is followed, as there was a mispredicted branch a short time ago.
    #[inline(always)]
    pub fn follow(&self, entry: u64) -> bool {
        entry - self.branch < WINDOW
    }

    /// The segment of a number begins with an entry to come.
    #[inline(always)]
    pub fn segment(&mut self, flows: &[SegmentFlow], number: usize, entry: u64) {
        let Some((start, end)) = flows[number].ends() else { return };
        self.push(start, number);
        if self.follow(entry) && self.written.count_ones() <= self.before_join.0 {
            self.join(flows, number, end, entry);
        }
    }

    #[inline(always)]
    fn push(&mut self, start: u64, number: usize) {
        let place = self.segments as usize % HISTORY;
        (self.starts[place], self.numbers[place]) = (start, number as u32);
        self.segments += 1;
    }

    /// [`Self::segment`] behind a mispredicted branch, which was to lead to another address, if that is known.
    #[cold]
    #[inline(never)]
    pub fn segment_behind(
        &mut self,
        predicted: Option<u64>,
        flows: &[SegmentFlow],
        number: usize,
        entry: u64,
    ) {
        let Some((start, end)) = flows[number].ends() else { return };
        self.is_off_path = self.follow(entry) && entry <= self.join;
        self.push(start, number);
        for register in bits(self.different) {
            self.registers[usize::from(register)] = self.branch;
        }
        self.different_before |= std::mem::take(&mut self.different);
        self.branch = entry;
        (self.written, self.before_join, self.join) = (0, NO_JOIN, u64::MAX);
        self.path.clear();
        let oldest = self.segments.saturating_sub(HISTORY as u64);
        let last = |predicted| {
            let mut places = (oldest..self.segments).rev();
            places.find(|place| self.starts[*place as usize % HISTORY] == predicted)
        };
        if let Some(first) = predicted.and_then(last) {
            let (mut before, mut written) = (0, 0);
            for place in (first..self.segments).take(PATH) {
                let number = self.numbers[place as usize % HISTORY];
                let flow = &flows[number as usize];
                let Some((_, end)) = flow.ends() else { break };
                let instructions = flow.instructions();
                self.path.push(OnPath { number, end, instructions, before, written });
                before += instructions;
                written |= flow.written();
            }
        }
        self.join(flows, number, end, entry);
    }

    /// The right path comes to a segment with an entry to come.
    fn join(&mut self, flows: &[SegmentFlow], number: usize, end: u64, entry: u64) {
        let instructions = flows[number].instructions();
        for of in self.path.iter().filter(|of| of.end == end) {
            let shared = instructions.min(of.instructions);
            let join = entry + instructions - shared;
            let on_wrong_path = of.instructions - shared;
            let written = of.written | flows[of.number as usize].written_by_first(on_wrong_path);
            let of_right = self.written | flows[number].written_by_first(join - entry);
            let instructions = of.before + on_wrong_path + join - self.branch;
            let before_join = ((written | of_right).count_ones(), instructions);
            if before_join >= self.before_join {
                continue;
            }
            (self.before_join, self.join) = (before_join, join);
            self.different = written;
        }
        self.written |= flows[number].written();
    }

    /// Registers are written.
    #[inline(always)]
    pub fn write(&mut self, registers: u64) {
        self.different &= !registers;
        self.different_before &= !registers;
    }

    /// The segment begins with an entry to come that continues an instruction of the segment before. Returns how it differs.
    pub fn continuation(&mut self, entry: u64) -> Difference {
        if self.join != u64::MAX && self.join >= entry {
            self.join += 1;
        }
        self.difference(entry, 0)
    }

    /// How an entry to come differs whose addresses need these registers.
    #[inline(always)]
    pub fn difference(&self, entry: u64, registers: u64) -> Difference {
        if !self.follow(entry) {
            return Difference::None;
        }
        if entry < self.join {
            let is_off_path = self.is_off_path && entry == self.branch;
            return if is_off_path { Difference::OffPath } else { Difference::Last };
        }
        let is_followed = |register: u8| entry - self.registers[usize::from(register)] < WINDOW;
        if bits(registers & self.different_before & !self.different).any(is_followed) {
            Difference::Earlier
        } else if registers & self.different != 0 {
            Difference::Last
        } else {
            Difference::None
        }
    }
}
