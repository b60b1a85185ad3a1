//! The integration tests of `octavo-machine`, linked once.

mod common;
mod conformance;
mod core_time;
mod cores;
mod degenerate;
mod designs;
mod developing_tables;
mod exhausted_tables;
mod footprint;
mod fragmentation;
mod fuzz;
mod gtsm;
mod nested;
mod oracle;
mod own_tables;
mod perforated;
mod policies;
mod presets;
mod same_pages;
mod softvm;
mod study;
mod tailored_pages;
mod translation_cost;
mod trident;
