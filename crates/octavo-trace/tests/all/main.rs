//! The integration tests of `octavo-trace`, linked once.

mod check;
mod live;
mod native;
mod ring;
mod synthetic;
mod undecodable;
