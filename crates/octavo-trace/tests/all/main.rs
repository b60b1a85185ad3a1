//! The integration tests of `octavo-trace`, linked once.

mod check;
mod developing;
mod live;
#[allow(dead_code)]
#[path = "../../src/sink/memory.rs"]
mod memory;
mod native;
mod ring;
mod synthetic;
mod undecodable;
