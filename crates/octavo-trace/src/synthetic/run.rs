//! The execution of a plan.

use super::code::Code;
use super::emit::Emitter;
use super::layout::Layout;
use super::plan::{Loop, Plan};
use super::walk::{AnyWalk, Walk};
use crate::source::{Batch, Facts, Place, Progress, Source, Step, TraceError};
use crate::stream::{StreamEnd, StreamIdentity};

/// A part of a plan, and its state.
enum Node {
    Loop(Box<LoopRun>),
    Phases {
        /// Each with its references in one round.
        phases: Vec<(u64, Node)>,
        at: usize,
        /// The rest of the current phase.
        left: u64,
    },
    Mix(Vec<Part>),
}

struct Part {
    weight: i64,
    /// By how many references it is behind its share, times the weight of all parts; negative if it
    /// is ahead. The part furthest behind runs next.
    behind: i64,
    node: Node,
}

impl Node {
    /// `places` are the places of the loops that are still to be created, in order.
    fn new(plan: &Plan, places: &mut impl Iterator<Item = (u64, u64)>) -> Self {
        match plan {
            Plan::Loop(one) => {
                let (table, text) = places.next().expect("every loop has a place");
                Node::Loop(Box::new(LoopRun::new(one, table, text)))
            }
            Plan::Phases { phases, .. } => {
                let members = phases.iter().map(|phase| {
                    let references = phase.references().expect("phases know their lengths");
                    (references, Node::new(phase, places))
                });
                let phases: Vec<_> = members.collect();
                Node::Phases { left: phases[0].0, phases, at: 0 }
            }
            Plan::Mix { parts, .. } => {
                let part = |(weight, plan): &(u64, Plan)| Part {
                    weight: *weight as i64,
                    behind: 0,
                    node: Node::new(plan, places),
                };
                Node::Mix(parts.iter().map(part).collect())
            }
        }
    }

    /// Makes references until there are `most`, or `out` is full, or, with `once`, a round of a
    /// loop is done. Returns how many.
    fn run(&mut self, most: u64, once: bool, out: &mut Emitter) -> u64 {
        match self {
            Node::Loop(one) => one.run(most, once, out),
            Node::Phases { phases, at, left } => {
                let mut done = 0;
                while done < most && !out.is_full() {
                    let made = phases[*at].1.run((*left).min(most - done), once, out);
                    done += made;
                    *left -= made;
                    if *left == 0 {
                        *at = if *at + 1 == phases.len() { 0 } else { *at + 1 };
                        *left = phases[*at].0;
                    }
                    if once {
                        break;
                    }
                }
                done
            }
            Node::Mix(parts) => {
                let all: i64 = parts.iter().map(|part| part.weight).sum();
                let mut done = 0;
                while done < most && !out.is_full() {
                    // If several are equally far behind, the last one: any rule would do.
                    let next = parts.iter_mut().max_by_key(|part| part.behind);
                    let next = next.expect("a mix has parts");
                    let made = next.node.run(most - done, true, out);
                    next.behind -= made as i64 * all;
                    parts.iter_mut().for_each(|part| part.behind += made as i64 * part.weight);
                    done += made;
                    if once {
                        break;
                    }
                }
                done
            }
        }
    }
}

/// A loop, its place, and its state.
struct LoopRun {
    code: Code,
    table: u64,
    walk: AnyWalk,
}

impl LoopRun {
    fn new(plan: &Loop, table: u64, text: u64) -> Self {
        LoopRun { code: Code::new(plan, text), table, walk: AnyWalk::new(plan) }
    }

    fn run(&mut self, most: u64, once: bool, out: &mut Emitter) -> u64 {
        let most = if once { most.min(self.code.body.references()) } else { most };
        let (code, table) = (&mut self.code, self.table);
        match &mut self.walk {
            AnyWalk::Strided(walk) => rounds(code, table, walk, most, out),
            AnyWalk::Columns(walk) => rounds(code, table, walk, most, out),
            AnyWalk::Uniform(walk) => rounds(code, table, walk, most, out),
            AnyWalk::Chase(walk) => rounds(code, table, walk, most, out),
            AnyWalk::Zipf(walk) => rounds(code, table, walk, most, out),
            AnyWalk::Scattered(walk) => rounds(code, table, walk, most, out),
            AnyWalk::Picked(walk) => rounds(code, table, walk, most, out),
        }
    }
}

/// Makes whole rounds as long as they fit into `most`, and then the rest; returns how many
/// references these are.
fn rounds(code: &mut Code, table: u64, walk: &mut impl Walk, most: u64, out: &mut Emitter) -> u64 {
    let (accesses, references) = (code.body.accesses as usize, code.body.references());
    let mut left = most;
    while left >= references && !out.is_full() {
        let segment = code.round(out);
        out.execute(segment, references, (0..accesses).map(|_| table + walk.next()));
        left -= references;
    }
    if left > 0 && left < references && !out.is_full() {
        let segment = code.part(left, out);
        let accesses = left.div_ceil(code.body.access_references) as usize;
        out.execute(segment, left, (0..accesses).map(|_| table + walk.next()));
        left = 0;
    }
    most - left
}

/// A synthetic trace.
pub(super) struct SyntheticSource {
    kind: &'static str,
    resolved: String,
    total: u64,
    node: Node,
    out: Emitter,
    /// Where the last batch began.
    began: u64,
    stage: Stage,
}

enum Stage {
    Begin,
    Run,
    End,
}

impl SyntheticSource {
    pub(super) fn new(plan: &Plan, layout: &Layout, resolved: String, total: u64) -> Self {
        let mut out = Emitter::default();
        layout.events().for_each(|event| out.out.event(&event));
        SyntheticSource {
            kind: plan.kind(),
            resolved,
            total,
            node: Node::new(plan, &mut layout.places.iter().copied()),
            out,
            began: 0,
            stage: Stage::Begin,
        }
    }
}

impl Source for SyntheticSource {
    fn facts(&self) -> Facts {
        let notes = vec![format!("the trace is synthetic: {}", self.resolved)];
        Facts { notes, ..Facts::of("synthetic") }
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        batch.clear();
        match self.stage {
            Stage::Begin => {
                self.stage = Stage::Run;
                let program = format!("{}{}", super::SCHEME, self.kind);
                return Ok(Some(Step::Began(StreamIdentity { program, ..StreamIdentity::only() })));
            }
            Stage::Run if self.out.references == self.total => {
                self.stage = Stage::End;
                return Ok(Some(Step::Ended(0, StreamEnd::PLAIN)));
            }
            Stage::Run => {}
            Stage::End => return Ok(None),
        }
        self.began = self.out.references;
        self.out.wants_places = batch.wants_places;
        let mut left = self.total - self.began;
        while left > 0 && !self.out.is_full() {
            left -= self.node.run(left, false, &mut self.out);
        }
        std::mem::swap(&mut batch.words, self.out.out.words_mut());
        std::mem::swap(&mut batch.places, &mut self.out.places);
        Ok(Some(Step::Batch(0)))
    }

    fn progress(&self) -> Progress {
        Progress { done: self.out.references, total: Some(self.total) }
    }

    fn place(&self) -> Place {
        Place::Reference(self.began)
    }
}
