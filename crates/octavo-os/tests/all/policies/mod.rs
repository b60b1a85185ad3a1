//! Page-size policies: their specifications, and the invariants of all.

mod compaction;
mod developing;
mod eager;
mod fuzz;
mod machine;
mod others;
mod perforated;
mod reserved_thp;
mod same_pages;
mod tps;
mod tps_merge;
