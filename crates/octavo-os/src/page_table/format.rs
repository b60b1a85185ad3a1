//! The format of a page table.

use super::anchors::AnchorFormat;
use super::entry::SizeEncoding;
use super::holes::Holes;
use super::sorted::SortedFormat;

/// The content of alias entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aliases {
    /// The size only: a walk that reads an alias also reads the true entry.
    #[default]
    Pointers,
    /// A copy of the true entry, which every change of the page must write.
    Copies,
}

/// A design's filter: the eight bits in the entry of a page with these holes by which hardware can rule out a hole
/// without further reads.
pub type HoleFilter = fn(&Holes) -> u8;

/// The format of a page table.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Number of levels, 4 or 5.
    pub levels: u8,
    /// The encoding of sizes that x86-64 does not have.
    pub encoding: SizeEncoding,
    /// The content of alias entries.
    pub aliases: Aliases,
    /// Maximum number of parts of a page of an intermediate size with accessed and dirty bits of their own, a
    /// power of two up to [`super::MAX_VECTOR_BITS`]; 0 for none. Aliases that are copies have no room for them.
    pub vector_bits: u8,
    /// The filter in the entries of pages with holes, if such pages are supported: nodes of level 2 then have
    /// shadow nodes.
    pub holes: Option<HoleFilter>,
    /// Whether gapped pages are supported.
    pub has_gapped: bool,
    /// log2 of the base pages of a block whose entries may have the contiguous hint, at most 6;
    /// 0 for none.
    pub block_log2: u8,
    /// Whether nodes of levels 2 and 1, and nodes of levels 4 and 3, may be merged in blocks of 2 MiB.
    pub merges: [bool; 2],
    /// The anchors, if the format has them.
    pub anchors: Option<AnchorFormat>,
    /// The sorted nodes, if the format has them. The sorted levels can have neither merged nor shadow nodes.
    pub sorted: Option<SortedFormat>,
    /// Whether hardware asks which pages are contiguous: tables keep their [ranges](super::Ranges) from the start.
    pub keeps_ranges: bool,
}

impl Default for Format {
    fn default() -> Self {
        Format {
            levels: 4,
            encoding: SizeEncoding::default(),
            aliases: Aliases::default(),
            vector_bits: 0,
            holes: None,
            has_gapped: false,
            block_log2: 0,
            merges: [false; 2],
            anchors: None,
            sorted: None,
            keeps_ranges: false,
        }
    }
}
