//! The integration tests of `octavo-trace`, linked once.

mod check;
mod developing;
mod live;
mod native;
mod ring;
mod synthetic;
mod undecodable;
