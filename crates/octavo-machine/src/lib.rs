//! Simulated machines: each combines a translation design with an operating system, memory and caches of its
//! own; all machines of a run consume one reference stream.
//!
//! A [`Front`] turns the stream into [`Batch`]es once for all machines. A [`Machine`] plays each batch: its
//! [`Design`] translates the references and reaches page walks, the operating system and the data caches
//! through an [`Env`]. [`Sim`] is the stream consumer that owns the front and the machines.

mod config;
mod core;
mod counters;
mod design;
pub mod designs;
mod env;
mod footprint;
mod front;
mod machine;
mod sim;
mod state;
mod tlb;

pub use config::{ConfigError, resolve, resolve_text};
pub use counters::{Counters, Lookups};
pub use design::{AddressSpace, Design};
pub use env::{Charged, CompositePages, Env, Prefetches, WalkPlan, WalkRequest, Walker};
pub use footprint::{Footprint, TooLarge};
pub use front::{Batch, ControlEvent, FetchSets, Filter, Front, Image, ImageId, LineAccess, Lines};
pub use machine::{AnyMachine, Machine, Outcome};
pub use sim::{Sim, SimConfig, StreamShape, Timing, everything};
pub use tlb::{Entry, EntryArray, L1Tlb, Lookup, PageArray, Ranges, Tlb, TlbEntry, Translation};
