//! What a page table looks like.

use super::entry::SizeEncoding;

/// What an alias holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aliases {
    /// The size alone: a walk that meets one reads the true entry too.
    #[default]
    Pointers,
    /// A copy of the true entry, which every change of the page has to write.
    Copies,
}

/// What a page table looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Four or five.
    pub levels: u8,
    /// How sizes between those of x86-64 are written.
    pub encoding: SizeEncoding,
    /// What stands in their aliases.
    pub aliases: Aliases,
    /// How many parts of a tailored page have accessed and dirty bits of their own, at most
    /// [`super::MAX_VECTOR_BITS`] and a power of two; 0 for none. Aliases that are copies have no room for them.
    pub vector_bits: u8,
    /// Whether there are perforated pages: nodes of level 2 have a shadow node beside them then.
    pub has_perforated: bool,
    /// Whether there are pages of 2 MiB with gaps.
    pub has_gapped: bool,
}

impl Default for Format {
    fn default() -> Self {
        Format {
            levels: 4,
            encoding: SizeEncoding::default(),
            aliases: Aliases::default(),
            vector_bits: 0,
            has_perforated: false,
            has_gapped: false,
        }
    }
}
