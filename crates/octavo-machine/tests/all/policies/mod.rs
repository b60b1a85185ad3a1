//! Page-size policies of designs: tests of their specifications, and of the invariants of all policies, on the test
//! machines of `octavo-os`.

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
