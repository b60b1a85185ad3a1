//! Page-size policies: what each promises, and what all of them must keep.

mod compaction;
mod eager;
mod fuzz;
mod gtsm;
mod machine;
mod others;
mod perforated;
mod reserved_thp;
mod same_pages;
#[expect(dead_code, unused_imports, reason = "another test needs them")]
#[path = "../machine/mod.rs"]
mod shared;
mod tps;
mod tps_merge;
