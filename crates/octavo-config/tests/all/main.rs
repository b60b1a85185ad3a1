//! The integration tests of `octavo-config`, linked once.

mod errors;
mod host;
mod presets;
mod properties;
mod softvm;
mod start;
