//! The integration tests of `octavo-curves`, linked once.

mod oracle;
mod sampling;
mod turns;
