//! A slow oracle for the front: the [`Difference`] of each entry by the definitions of docs/core.md ("Wrong paths"), from
//! a list of all executed segments.

use octavo_config::BranchPrediction;
use octavo_types::{Dependences, Item, ItemKind, Segment, VirtAddr};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::branches::{Branches, Exit};
use super::dataflow::{Dataflow, SegmentFlow, bits};
use super::{Difference, Ops, entries};

/// The number of recent segments in which a wrong path is searched.
const REMEMBERED_SEGMENTS: usize = 1024;
/// The maximum number of segments of a wrong path.
const WRONG_PATH_SEGMENTS: usize = 16;
/// The window of a branch in entries, from the first entry behind it. Joins are in segments that begin in the window, and
/// entries outside it do not differ from the branch's wrong path.
const FOLLOWED_ENTRIES: usize = 1023;

const INSTRUCTION_BYTES: u64 = 4;

/// Segments, and the order in which they are executed.
#[derive(Clone, Debug)]
struct Program {
    segments: Vec<Segment>,
    executions: Vec<Execution>,
}

/// An execution of a segment.
#[derive(Clone, Copy, Debug)]
struct Execution {
    /// The number of the segment.
    segment: usize,
    /// Whether a context switch precedes it.
    switches: bool,
    /// Whether it begins with data of an instruction in the segment before.
    continues: bool,
}

/// The entries and segments of one thread between two switches.
#[derive(Default)]
struct Thread<'p> {
    executed: Vec<Executed<'p>>,
    /// All entries: the number of the execution, and the number of the instruction in its segment; `None` for a
    /// continuation.
    entries: Vec<(usize, Option<usize>)>,
    /// The mispredicted branches.
    branches: Vec<Branch>,
}

/// An executed segment.
struct Executed<'p> {
    segment: &'p Segment,
    /// The number of its first entry.
    begin: usize,
    /// The number of the entry of its first instruction.
    first_instruction: usize,
}

/// A mispredicted branch.
struct Branch {
    /// The number of the first entry behind it.
    entry: usize,
    /// The number of the execution directly behind it.
    behind: usize,
    /// Its predicted target, if known.
    predicted: Option<u64>,
}

/// Where a wrong path and the right one join.
#[derive(Clone, Copy, Debug)]
struct Join {
    /// The number of the execution on the right path.
    right: usize,
    /// The index of the segment on the wrong path.
    wrong: usize,
    /// The number of the entry at which they join.
    entry: usize,
    /// Instructions before the join, on both paths together, without a continuation at the beginning of its segment.
    instructions: usize,
    /// The registers that the right path writes before the join.
    right_writes: u64,
    /// The registers that the wrong path writes before the join.
    wrong_writes: u64,
}

/// The dependences of instruction `number` of a segment.
fn dependences(segment: &Segment, number: usize) -> Dependences {
    segment.dependences().get(number).copied().unwrap_or_default()
}

/// The registers that the first instructions of a segment write.
fn writes(segment: &Segment, first_instructions: usize) -> u64 {
    (0..first_instructions).fold(0, |written, number| written | dependences(segment, number).writes)
}

fn length(segment: &Segment) -> usize {
    segment.instructions() as usize
}

fn start_and_exit(segment: &Segment) -> (u64, Exit) {
    Exit::of(segment).expect("it has instructions")
}

impl Branch {
    fn is_followed_at(&self, entry: usize) -> bool {
        entry - self.entry < FOLLOWED_ENTRIES
    }
}

impl<'p> Thread<'p> {
    /// The threads of a program.
    fn all(program: &'p Program) -> Vec<Self> {
        let mut predictor = Branches::new(BranchPrediction::Tage);
        let mut threads = vec![Thread::default()];
        for execution in &program.executions {
            if execution.switches {
                threads.push(Thread::default());
            }
            let thread = threads.last_mut().expect("the first thread exists");
            let segment = &program.segments[execution.segment];
            let (number, begin) = (thread.executed.len(), thread.entries.len());
            let (start, _) = start_and_exit(segment);
            if let Some(before) = thread.executed.last() {
                let (_, exit) = start_and_exit(before.segment);
                if predictor.follow(&exit, start).is_mispredicted {
                    let predicted = predictor.wrong_path();
                    thread.branches.push(Branch { entry: begin, behind: number, predicted });
                }
            }
            if execution.continues {
                thread.entries.push((number, None));
            }
            let first_instruction = thread.entries.len();
            thread.entries.extend((0..length(segment)).map(|place| (number, Some(place))));
            thread.executed.push(Executed { segment, begin, first_instruction });
        }
        threads
    }

    /// The segments of the wrong path of a branch: those that the program executed when it last reached the predicted
    /// target.
    fn wrong_path(&self, branch: &Branch) -> Vec<&'p Segment> {
        let known = &self.executed[..=branch.behind];
        let recent = &known[known.len().saturating_sub(REMEMBERED_SEGMENTS)..];
        let begins_there =
            |executed: &Executed<'_>| Some(start_and_exit(executed.segment).0) == branch.predicted;
        let Some(from) = recent.iter().rposition(begins_there) else { return Vec::new() };
        recent[from..].iter().take(WRONG_PATH_SEGMENTS).map(|executed| executed.segment).collect()
    }

    /// All joins of a branch's paths in executions up to `last`.
    fn joins(&self, branch: &Branch, last: usize) -> Vec<Join> {
        let wrong_path = self.wrong_path(branch);
        let mut joins = Vec::new();
        let mut right_written = 0;
        for right in branch.behind..=last {
            let of = &self.executed[right];
            if !branch.is_followed_at(of.begin) {
                break;
            }
            let (mut wrong_instructions, mut wrong_written) = (0, 0);
            for (wrong, segment) in wrong_path.iter().enumerate() {
                if start_and_exit(segment).1.pc == start_and_exit(of.segment).1.pc {
                    let common = length(segment).min(length(of.segment));
                    let right_first = length(of.segment) - common;
                    let wrong_first = length(segment) - common;
                    joins.push(Join {
                        right,
                        wrong,
                        entry: of.first_instruction + right_first,
                        instructions: of.begin - branch.entry
                            + right_first
                            + wrong_instructions
                            + wrong_first,
                        right_writes: right_written | writes(of.segment, right_first),
                        wrong_writes: wrong_written | writes(segment, wrong_first),
                    });
                }
                wrong_instructions += length(segment);
                wrong_written |= writes(segment, length(segment));
            }
            right_written |= writes(of.segment, length(of.segment));
        }
        joins
    }

    /// The best join of a branch's paths in executions up to `last`.
    fn best_join(&self, branch: &Branch, last: usize) -> Option<Join> {
        self.joins(branch, last).into_iter().min_by_key(|join| {
            let registers = (join.right_writes | join.wrong_writes).count_ones();
            (registers, join.instructions, join.right, join.wrong)
        })
    }

    /// The differences of all entries.
    fn differences(&self) -> Vec<Difference> {
        // The best joins of all branches before the last, and of the last branch in each execution.
        let joins_at_end: Vec<_> =
            self.branches.windows(2).map(|of| self.best_join(&of[0], of[1].behind - 1)).collect();
        let last_branch =
            |execution: usize| self.branches.iter().rposition(|branch| branch.behind <= execution);
        let joins_in: Vec<_> = (0..self.executed.len())
            .map(|execution| self.best_join(&self.branches[last_branch(execution)?], execution))
            .collect();
        let difference = |entry: usize| {
            let (execution, place) = self.entries[entry];
            let Some(last) = last_branch(execution) else { return Difference::None };
            if !self.branches[last].is_followed_at(entry) {
                return Difference::None;
            }
            let join = match joins_in[execution] {
                Some(join) if entry >= join.entry => join,
                _ if entry == self.branches[last].entry
                    && self.is_off_path(last, &joins_at_end) =>
                {
                    return Difference::OffPath;
                }
                _ => return Difference::Last,
            };
            // The joins of the last branch and of earlier branches in whose window the entry lies, the latest first.
            let earlier = (0..last)
                .rev()
                .filter(|number| self.branches[*number].is_followed_at(entry))
                .filter_map(|number| Some((Difference::Earlier, joins_at_end[number]?)));
            let branches: Vec<_> =
                std::iter::once((Difference::Last, join)).chain(earlier).collect();
            let of_register = |register: u8| {
                let differs = |join: &Join| {
                    let begin = self.executed[join.right].begin;
                    join.wrong_writes >> register & 1 == 1
                        && self.written_last(register, entry).is_none_or(|last| last < begin)
                };
                branches.iter().find(|(_, join)| differs(join)).map(|(difference, _)| *difference)
            };
            let found: Vec<_> =
                bits(self.needs(execution, place)).filter_map(of_register).collect();
            [Difference::Earlier, Difference::Last]
                .into_iter()
                .find(|of| found.contains(of))
                .unwrap_or_default()
        };
        (0..self.entries.len()).map(difference).collect()
    }

    /// The registers that the addresses of an entry need.
    fn needs(&self, execution: usize, place: Option<usize>) -> u64 {
        let Some(place) = place else { return 0 };
        let of = dependences(self.executed[execution].segment, place);
        of.registers_read() & !of.late_reads
    }

    /// The last entry before this one that writes a register.
    fn written_last(&self, register: u8, before: usize) -> Option<usize> {
        self.entries[..before].iter().rposition(|(execution, place)| {
            place.is_some_and(|place| {
                dependences(self.executed[*execution].segment, place).writes >> register & 1 == 1
            })
        })
    }

    /// Whether a branch is off the wrong path of the branch before it.
    fn is_off_path(&self, branch: usize, joins_at_end: &[Option<Join>]) -> bool {
        branch.checked_sub(1).is_some_and(|before| {
            self.branches[before].is_followed_at(self.branches[branch].entry)
                && joins_at_end[before].is_none()
        })
    }
}

impl Program {
    /// The differences by the definition.
    fn differences(&self) -> Vec<Difference> {
        Thread::all(self).iter().flat_map(Thread::differences).collect()
    }

    /// The differences that the front finds.
    fn differences_of_front(&self) -> Vec<Difference> {
        let flows: Vec<SegmentFlow> = self.segments.iter().map(SegmentFlow::new).collect();
        let mut front = Dataflow::new(Branches::new(BranchPrediction::Tage), true);
        let mut ops = Ops::default();
        for Execution { segment, switches, continues } in &self.executions {
            if *switches {
                front.switch();
            }
            front.begin(&flows, *segment);
            if *continues {
                front.continuation(&mut ops);
            }
            for place in 0..length(&self.segments[*segment]) {
                front.instruction(&flows[*segment], place, &mut ops);
            }
            front.end(&flows[*segment]);
        }
        entries(ops.words()).map(|entry| entry.header().difference()).collect()
    }
}

/// The next execution or executions of a program.
#[derive(Clone, Debug)]
enum Step {
    /// The next block; the first one after the last.
    Next,
    /// Any segment.
    To(Index),
    /// Repeats the last `segments` segments, for a number of executions.
    Again { segments: usize, executions: usize },
}

/// A segment of `count` instructions: the number of its last instruction among those at successive addresses, their
/// dependences in turn, and data of the last instruction.
fn segment(last: u64, count: usize, of: &[Dependences], data: Option<ItemKind>) -> Segment {
    let fetch = |number: usize| {
        Item::new(
            ItemKind::Fetch,
            INSTRUCTION_BYTES as u16,
            VirtAddr::new(0x40_0000 + (last - number as u64) * INSTRUCTION_BYTES),
        )
    };
    let data = data.map(|kind| Item { kind, size_bytes: 8, addr: VirtAddr::NULL, ..fetch(0) });
    let items = (0..count).rev().map(fetch).chain(data).collect();
    let dependences = of.iter().copied().cycle().take(count).collect();
    Segment::new(items, dependences).expect("every item is valid")
}

/// Programs of blocks at successive addresses, each a segment, and of other segments that end where one of the blocks
/// does.
fn programs(
    lengths: impl Strategy<Value = usize> + 'static,
    registers: fn() -> BoxedStrategy<u64>,
    steps: impl Strategy<Value = Vec<(Step, bool, bool)>>,
) -> impl Strategy<Value = Program> {
    let data = prop_oneof![
        4 => Just(None),
        1 => Just(Some(ItemKind::Load)),
        1 => Just(Some(ItemKind::Store)),
    ];
    let of_instructions = vec(octavo_oracle::strategies::dependences(registers), 1..=12);
    let part = (lengths, of_instructions, data).boxed();
    let blocks = vec(part.clone(), 2..6);
    let others = vec((any::<Index>(), part), 0..6);
    (blocks, others, steps).prop_map(|(blocks, others, steps)| {
        let ends: Vec<u64> = blocks
            .iter()
            .scan(0x1000, |end, (count, ..)| {
                *end += *count as u64;
                Some(*end)
            })
            .collect();
        let of_blocks = blocks.iter().enumerate();
        let of_others = others.iter().map(|(index, of)| (index.index(ends.len()), of));
        let (places, segments): (Vec<_>, Vec<_>) = of_blocks
            .chain(of_others)
            .map(|(block, (count, of, data))| (block, segment(ends[block], *count, of, *data)))
            .unzip();
        let mut executions = vec![Execution { segment: 0, switches: false, continues: false }];
        for (step, switches, continues) in steps {
            let last = executions[executions.len() - 1].segment;
            let to = |segment| Execution { segment, switches, continues };
            match step {
                Step::Next => executions.push(to((places[last] + 1) % ends.len())),
                Step::To(index) => executions.push(to(index.index(segments.len()))),
                Step::Again { segments, executions: count } => {
                    let from = executions.len().saturating_sub(segments);
                    for number in 0..count {
                        executions.push(executions[from + number]);
                    }
                }
            }
        }
        Program { segments, executions }
    })
}

/// Mostly few registers, sometimes any.
fn few_registers() -> BoxedStrategy<u64> {
    prop_oneof![
        4 => Just(0),
        4 => (0u32..6).prop_map(|register| 1 << register),
        1 => 0u64..64,
        1 => (0u32..64).prop_map(|register| 1 << register),
    ]
    .boxed()
}

/// Mostly no registers.
fn hardly_any_registers() -> BoxedStrategy<u64> {
    prop_oneof![6 => Just(0), 1 => (0u32..16).prop_map(|register| 1 << register)].boxed()
}

/// `count` steps, each with whether a context switch precedes it, and whether it continues an instruction.
fn steps(
    again: impl Strategy<Value = Step>,
    switches: f64,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<(Step, bool, bool)>> {
    let step = prop_oneof![
        4 => Just(Step::Next),
        4 => any::<Index>().prop_map(Step::To),
        1 => again,
    ];
    vec((step, prop::bool::weighted(switches), prop::bool::weighted(0.1)), count)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(512))]

    #[test]
    fn differences_equal_those_of_the_definition(
        program in programs(
            1usize..=12,
            few_registers,
            steps(
                (1usize..4, 1usize..12)
                    .prop_map(|(segments, executions)| Step::Again { segments, executions }),
                0.02,
                1..200,
            ),
        ),
    ) {
        prop_assert_eq!(program.differences_of_front(), program.differences());
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    #[test]
    fn differences_end_where_the_definition_says(
        program in programs(
            prop_oneof![4 => 1usize..=3, 4 => 60usize..130, 1 => 1000usize..1030],
            hardly_any_registers,
            steps(
                (1usize..4, prop_oneof![1usize..4, 1000usize..1030])
                    .prop_map(|(segments, executions)| Step::Again { segments, executions }),
                0.01,
                1..40,
            ),
        ),
    ) {
        prop_assert_eq!(program.differences_of_front(), program.differences());
    }
}

#[test]
fn wrong_path_begins_in_one_of_the_last_1024_segments() {
    let [branch, predicted, other] =
        [0x1000, 0x2000, 0x3000].map(|last| segment(last, 1, &[Dependences::default()], None));
    for between in 1015..1030 {
        // The branch leads to segment 1 first, and is then predicted to lead there.
        let order = [0, 1].into_iter().chain(vec![2; between]).chain([0, 2]);
        let to = |segment| Execution { segment, switches: false, continues: false };
        let program = Program {
            segments: vec![branch.clone(), predicted.clone(), other.clone()],
            executions: order.map(to).collect(),
        };
        // If the predicted segment is in the history, both paths join in the other segment at once.
        let is_known = between + 3 <= REMEMBERED_SEGMENTS;
        let expected = if is_known { Difference::None } else { Difference::Last };
        assert_eq!(program.differences().last(), Some(&expected), "{between} segments");
        assert_eq!(program.differences_of_front(), program.differences(), "{between} segments");
    }
}
