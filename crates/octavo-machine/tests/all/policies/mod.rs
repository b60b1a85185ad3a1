//! Page-size policies of designs: their specifications, and the invariants of all policies, on the machines of
//! `octavo-os`' tests.

mod fuzz;
mod perforated;
mod same_pages;
mod tps;
mod tps_merge;

#[allow(dead_code, unused_imports)]
#[path = "../../../../octavo-os/tests/all/machine/mod.rs"]
mod contents;
#[allow(dead_code)]
#[path = "../../../../octavo-os/tests/all/policies/machine.rs"]
pub mod system;
