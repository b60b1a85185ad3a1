//! Synthetic traces: loops over tables whose behaviour is known beforehand, made as they are read.
//!
//! One is named by a URI, `synth:gups?table=64MiB&updates=1e9&seed=7`, or described in TOML, where
//! phases and mixes of them can be written too:
//!
//! ```toml
//! kind = "phases"
//! repeat = 10
//!
//! [[phase]]
//! kind = "sequential"
//! bytes = "1GiB"
//! references = "10M"
//!
//! [[phase]]
//! kind = "mix"
//! references = "20M"
//!
//! [[phase.part]]
//! kind = "zipf"
//! theta = 0.8
//! weight = 3
//!
//! [[phase.part]]
//! kind = "pointer-chase"
//! ```
//!
//! Each loop has its own code and, unless `base` says otherwise, its own table. The code is an
//! unrolled loop: `instructions` instructions of four bytes for each access, of which the first
//! makes the access. With `code` of more than a page there is a copy of the loop on each, and after
//! each round another copy runs. No reference is kept: a trace of 10^12 references takes no more
//! memory than one of ten.
//!
//! The same description gives the same words on every machine: random numbers are those of
//! xoshiro256++ and SplitMix64, numbers are read exactly, and the one law that needs logarithms
//! takes them from a library of fixed arithmetic.

mod code;
mod emit;
mod error;
mod layout;
mod parameters;
mod permutation;
mod plan;
mod read;
mod run;
mod unused;
mod walk;
mod zipf;

pub use error::SpecError;

use crate::source::Source;
use layout::Layout;
use plan::Plan;

/// How the URI of a synthetic trace begins.
pub const SCHEME: &str = "synth:";

/// A kind of synthetic trace.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// One line on it.
    pub about: &'static str,
}

const fn named(name: &'static str, about: &'static str) -> Named {
    Named { name, about }
}

/// Every kind.
pub static KINDS: &[Named] = &[
    named("uniform", "any element of the table, each as likely as the others"),
    named("zipf", "some elements far more often than others, by Zipf's law"),
    named("strided", "through the table by a fixed stride, again and again"),
    named("sequential", "through the table, access by access, again and again"),
    named("pointer-chase", "every element once a round, in a random order that stays the same"),
    named("gups", "updates of random slots: each a load and a store of the same bytes"),
    named("rows", "a matrix stored by rows, along its rows"),
    named("columns", "a matrix stored by rows, down its columns"),
    named("phases", "others one after another, `repeat` times (TOML: [[phase]])"),
    named("mix", "others interleaved, each with its `weight` (TOML: [[part]])"),
];

/// Reads a URI.
pub fn parse(text: &str) -> Result<Spec, SpecError> {
    Spec::new(read::uri(text)?)
}

/// A synthetic trace with all its parameters settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    plan: Plan,
    layout: Layout,
    references: u64,
}

impl Spec {
    /// Reads a description in TOML.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        Spec::new(read::toml(text)?)
    }

    fn new(plan: Plan) -> Result<Self, SpecError> {
        let layout = Layout::of(&plan.loops())?;
        let references = plan.references().expect("the whole has a length");
        Ok(Spec { plan, layout, references })
    }

    /// How many data references it makes.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// How many bytes its tables have together.
    pub fn data_bytes(&self) -> u64 {
        self.layout.data_bytes
    }

    /// The canonical description, with every parameter: a URI, or TOML for phases and mixes. It
    /// reads back as this same trace.
    pub fn resolved(&self) -> String {
        self.plan.text()
    }

    /// The trace, from its beginning.
    pub fn source(&self) -> Box<dyn Source> {
        let resolved = self.resolved();
        Box::new(run::SyntheticSource::new(&self.plan, &self.layout, resolved, self.references))
    }
}
