//! Page-size policies: what each promises, and what all of them must keep.

mod eager;
mod machine;
mod others;
mod reserved_thp;
mod tps;
