//! The search for a key in its set.

mod index;
mod scan;

pub use index::KeyIndex;
pub(super) use scan::{Keys, MAX_SCANNED, scan};

/// log2 of the slots of a scanned set of `ways` ways: 4, 8 or 16 slots. Slots behind the ways are never
/// filled.
pub(super) const fn stride_log2(ways: usize) -> u32 {
    match ways {
        0..=4 => 2,
        5..=8 => 3,
        _ => 4,
    }
}
