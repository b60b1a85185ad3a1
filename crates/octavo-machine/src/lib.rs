//! Machines: each a translation design with its own operating system, memory and caches, all fed by
//! one stream.
//!
//! A [`Front`] makes [`Batch`]es of the stream, once for all. A [`Machine`] plays them: its
//! [`Design`] says how each reference is translated, and reaches page walks, the operating system
//! and the data caches through an [`Env`]. [`Sim`] is the consumer that has them all.

mod config;
mod counters;
mod design;
pub mod designs;
mod env;
mod footprint;
mod front;
mod machine;
mod sim;
mod tlb;

pub use config::ConfigError;
pub use counters::{Counters, Lookups};
pub use design::Design;
pub use env::Env;
pub use footprint::{Footprint, TooLarge};
pub use front::{
    Batch, ControlEvent, FetchSets, Filter, Front, Image, ImageId, Kind, LineAccess, Lines,
};
pub use machine::{AnyMachine, Machine, Outcome};
pub use sim::{Sim, SimConfig, everything};
pub use tlb::{Coalescing, L1Tlb, LongRuns, Lookup, Ranges, Tlb, TlbEntry, Translation};
