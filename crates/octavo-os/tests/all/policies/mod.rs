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
mod tps;
mod tps_merge;
