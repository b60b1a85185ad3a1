//! Where in its set a key is.

mod index;
mod scan;

pub(super) use index::Index;
pub(super) use scan::{Keys, MAX_SCANNED, scan};

/// Slots of a set of so many ways that is scanned: 4, 8 or 16, as a logarithm. Those behind the
/// ways are never filled.
pub(super) const fn stride_log2(ways: usize) -> u32 {
    match ways {
        0..=4 => 2,
        5..=8 => 3,
        _ => 4,
    }
}
