//! Finds the instructions that the wrong path behind a mispredicted branch shares with the right path, so that a core
//! executes them on both (Eyerman, Van den Steen, Heirman and Hur, "Simulating Wrong-Path Instructions in Decoupled
//! Functional-First Simulation", ISPASS 2023: convergence exploitation).
//!
//! A trace has the right path only. The wrong path is assumed to be the segments that the program executed when it last
//! reached the predicted address. The paths *join* in segments that end at the same instruction, at the first instruction
//! that both segments contain. Of several joins on the right path, the one before which both paths write the fewest
//! registers is used; among equals, the one with the fewest instructions before it. An instruction *differs* between the
//! paths if it lies before the join, or if its addresses need a register that the wrong path has written before the join.
//! Cores find the instructions that depend on it.

use super::dataflow::{SegmentFlow, bits};
use super::ops::{Difference, MAX_DISTANCE};

/// The number of recent segments in which a wrong path is searched.
const HISTORY: usize = 1 << 10;
/// The maximum number of segments of a wrong path.
const PATH: usize = 16;
/// The number of entries behind a branch that are compared with its wrong path: the largest reorder buffer.
const WINDOW: u64 = MAX_DISTANCE;
/// `before_join` until a join is found.
const NO_JOIN: (u32, u64) = (u32::MAX, u64::MAX);
const REGISTERS: usize = u64::BITS as usize;

/// Compares right and wrong paths in the instructions of a core. A branch is identified by the number of the first entry
/// behind it.
pub struct WrongPaths {
    /// The addresses of the first instructions of recent segments.
    starts: Box<[u64; HISTORY]>,
    /// The numbers of these segments in the stream.
    numbers: Box<[u32; HISTORY]>,
    /// The number of segments so far.
    segments: u64,
    /// The last mispredicted branch.
    branch: u64,
    /// Whether that branch lies before the join of the mispredicted branch before it, so that it is not on that branch's
    /// wrong path.
    is_off_path: bool,
    /// The segments of the last branch's wrong path.
    path: Vec<OnPath>,
    /// The registers that the right path has written behind the branch.
    written: u64,
    /// The number of registers that both paths write before the join, and of their instructions before it; [`NO_JOIN`] if
    /// they have not joined.
    before_join: (u32, u64),
    /// The first entry that is on both paths; `u64::MAX` if they have not joined.
    join: u64,
    /// Registers that the wrong path has written before the join, and the right path has not written since.
    different: u64,
    /// For each register in `different_before`, the last branch before `branch` whose wrong path has written it.
    registers: [u64; REGISTERS],
    /// Registers that wrong paths of earlier branches have written, and the right path has not written since.
    different_before: u64,
}

/// A segment of a wrong path.
struct OnPath {
    number: u32,
    /// The address of its last instruction.
    end: u64,
    /// The number of its instructions.
    instructions: u64,
    /// The number of instructions of the path before it.
    before: u64,
    /// The registers that the path writes before it.
    written: u64,
}

impl WrongPaths {
    /// The state before any branch.
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

    /// A context switch: no earlier segment is on a later wrong path.
    pub fn switch(&mut self) {
        self.segments = 0;
        (self.different, self.different_before) = (0, 0);
    }

    /// Whether an entry lies in the window behind the last mispredicted branch.
    #[inline(always)]
    fn is_in_window(&self, entry: u64) -> bool {
        entry - self.branch < WINDOW
    }

    /// Begins segment `number`, whose first entry is `entry`.
    #[inline(always)]
    pub fn segment(&mut self, flows: &[SegmentFlow], number: usize, entry: u64) {
        let Some((start, end)) = flows[number].ends() else { return };
        self.push(start, number);
        if self.is_in_window(entry) && self.written.count_ones() <= self.before_join.0 {
            self.join(flows, number, end, entry);
        }
    }

    #[inline(always)]
    fn push(&mut self, start: u64, number: usize) {
        let place = self.segments as usize % HISTORY;
        (self.starts[place], self.numbers[place]) = (start, number as u32);
        self.segments += 1;
    }

    /// As [`Self::segment`], directly behind a mispredicted branch. `predicted` is its predicted target, if known.
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
        self.is_off_path = self.is_in_window(entry) && entry <= self.join;
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

    /// Joins the paths in a segment of the right path, if the segment gives a better join than those before it.
    fn join(&mut self, flows: &[SegmentFlow], number: usize, end: u64, entry: u64) {
        let instructions = flows[number].instructions();
        for wrong in self.path.iter().filter(|segment| segment.end == end) {
            let shared = instructions.min(wrong.instructions);
            let join = entry + instructions - shared;
            let on_wrong_path = wrong.instructions - shared;
            let written =
                wrong.written | flows[wrong.number as usize].written_by_first(on_wrong_path);
            let written_by_right = self.written | flows[number].written_by_first(join - entry);
            let instructions = wrong.before + on_wrong_path + join - self.branch;
            let before_join = ((written | written_by_right).count_ones(), instructions);
            if before_join >= self.before_join {
                continue;
            }
            (self.before_join, self.join) = (before_join, join);
            self.different = written;
        }
        self.written |= flows[number].written();
    }

    /// Records that the right path writes registers.
    #[inline(always)]
    pub fn write(&mut self, registers: u64) {
        self.different &= !registers;
        self.different_before &= !registers;
    }

    /// Begins the segment with an entry that continues an instruction of the segment before. Returns its difference.
    pub fn continuation(&mut self, entry: u64) -> Difference {
        if self.join != u64::MAX && self.join >= entry {
            self.join += 1;
        }
        self.difference(entry, 0)
    }

    /// The difference of an entry whose addresses need these registers.
    #[inline(always)]
    pub fn difference(&self, entry: u64, registers: u64) -> Difference {
        if !self.is_in_window(entry) {
            return Difference::None;
        }
        if entry < self.join {
            let is_off_path = self.is_off_path && entry == self.branch;
            return if is_off_path { Difference::OffPath } else { Difference::Last };
        }
        let is_recent = |register: u8| entry - self.registers[usize::from(register)] < WINDOW;
        if bits(registers & self.different_before & !self.different).any(is_recent) {
            Difference::Earlier
        } else if registers & self.different != 0 {
            Difference::Last
        } else {
            Difference::None
        }
    }
}
