//! Page-size policies: their specifications, and the invariants of all.

mod compaction;
mod developing;
mod eager;
mod fuzz;
mod khugepaged;
mod machine;
mod others;
mod reserved_thp;
mod trident;
mod trident_naive;
