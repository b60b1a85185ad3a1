//! Accessed and dirty vectors: bits of the parts of a page of an intermediate size (Guvenilir and Patt, ISCA
//! 2020, section III.C.1): "the remaining bits in the alias PTEs are thus unused and could be collected into a bit vector".
//!
//! - A page of *n* entries has *n* parts, limited by [`Format::vector_bits`](super::Format::vector_bits). The paper
//!   also limits them: two vectors of at most 16 bits. Both lie in frame bits of the first alias that its size does not
//!   use: one store writes both, and they share the line of the true entry.
//! - A bit of the true entry enables them ("a bit in the PTE can specify whether to enable or disable this").
//!   Its accessed and dirty bits describe the whole page, as without vectors.
//! - A page merged from others in the same frames, or with changed permissions, keeps the bits of its parts;
//!   so do the pages that it is split into. A moved or copied page has the bits of the whole in all of its
//!   parts.

use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use super::change::Place;
use super::entry::level_of;
use super::{Aliases, INDEX_BITS, Leaf, PageTable, Used, aliases_of, leaf};

/// Maximum bits of a vector.
pub const MAX_VECTOR_BITS: u8 = 16;

/// The accessed and dirty parts of a page: bit *n* is that of part *n*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartsUsed {
    /// Accessed parts.
    pub accessed: u16,
    /// Dirty parts.
    pub dirty: u16,
}

impl PartsUsed {
    /// The bits of the whole page in all of `parts` parts.
    pub fn of_whole(parts: u32, (accessed, dirty): Used) -> Self {
        let all = ((1u32 << parts) - 1) as u16;
        PartsUsed { accessed: if accessed { all } else { 0 }, dirty: if dirty { all } else { 0 } }
    }

    /// The bits of one part.
    pub fn of(self, part: u32) -> Used {
        (self.accessed >> part & 1 != 0, self.dirty >> part & 1 != 0)
    }

    /// Adds the bits of one part.
    pub fn with(self, part: u32, (accessed, dirty): Used) -> Self {
        PartsUsed {
            accessed: self.accessed | u16::from(accessed) << part,
            dirty: self.dirty | u16::from(dirty) << part,
        }
    }

    /// The bits in the format of an entry, low ones first.
    pub(super) fn bits(self) -> u32 {
        u32::from(self.dirty) << 16 | u32::from(self.accessed)
    }

    pub(super) fn of_bits(bits: u32) -> Self {
        PartsUsed { accessed: bits as u16, dirty: (bits >> 16) as u16 }
    }
}

/// The vectors of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vectors {
    /// The page.
    pub leaf: Leaf,
    /// Their physical address.
    pub at: PhysAddr,
    /// Number of parts of the page.
    pub parts: u32,
    /// Their accessed and dirty bits.
    pub used: PartsUsed,
}

impl Vectors {
    /// Bytes of a part.
    pub fn part_bytes(&self) -> u64 {
        self.leaf.size.bytes() / u64::from(self.parts)
    }

    /// The part that holds a base page.
    fn part_of(&self, page: u64) -> u32 {
        let pages = self.part_bytes() / PageSize::BASE.bytes();
        ((page - self.leaf.page.raw()) / pages) as u32
    }

    /// The *or* of the known accessed and dirty bits of some base pages of the page.
    pub(super) fn used_between(&self, from: u64, end: u64) -> Used {
        let parts = self.part_of(from)..=self.part_of(end - 1);
        parts.map(|part| self.used.of(part)).fold((false, false), either)
    }
}

/// The number of parts of a page with vectors of `vector_bits` bits; `None` for pages without an alias.
pub const fn parts_of(size: PageSize, vector_bits: u8) -> Option<u32> {
    let entries = 1 << (size.base_shift() % INDEX_BITS);
    if vector_bits == 0 || entries == 1 {
        return None;
    }
    Some(if entries < vector_bits as u32 { entries } else { vector_bits as u32 })
}

impl PageTable {
    /// The number of parts of a page in this table.
    pub(super) fn parts(&self, size: PageSize) -> Option<u32> {
        match self.format.aliases {
            Aliases::Pointers => parts_of(size, self.format.vector_bits),
            Aliases::Copies => None,
        }
    }

    /// The vectors of the page that holds a base page, if it has any.
    pub fn vectors(&self, page: PageNumber) -> Option<Vectors> {
        if self.format.vector_bits == 0 {
            return None;
        }
        let (node, first, level) = self.find(page)?;
        let node = &self.nodes[node as usize];
        let entry = node.entries[first];
        entry.has_vectors().then(|| {
            let leaf = leaf(page, entry, level);
            Vectors {
                leaf,
                at: node.entry_addr(first + 1),
                parts: self.parts(leaf.size).expect("a page with vectors"),
                used: PartsUsed::of_bits(node.entries[first + 1].vector_bits(level)),
            }
        })
    }

    /// Sets the accessed and, if `written`, the dirty bit of the part that holds a base page. Returns the
    /// address of the vectors and whether they changed; `None` for a page without vectors.
    pub fn mark_part(&mut self, page: PageNumber, written: bool) -> Option<(PhysAddr, bool)> {
        let vectors = self.vectors(page)?;
        let used = vectors.used.with(vectors.part_of(page.raw()), (true, written));
        let (node, first, level) = self.find(page)?;
        let alias = &mut self.nodes[node as usize].entries[first + 1];
        *alias = alias.with_vector_bits(level, used.bits());
        Some((vectors.at, used != vectors.used))
    }

    /// The bits of the parts of a page about to be mapped, from pages mapped at the same frames already.
    pub(super) fn parts_in_place(
        &self,
        place: Place,
        size: PageSize,
        frame: FrameNumber,
    ) -> PartsUsed {
        let Some(parts) = self.parts(size) else { return PartsUsed::default() };
        let level = level_of(size);
        let entries = aliases_of(size, level);
        let shift = (level - 1) * INDEX_BITS;
        let each = (0..entries).map(|number| {
            let part = (number * parts as usize / entries) as u32;
            let frame = frame.plus((number as u64) << shift);
            (part, self.used_of_entry(place.node, place.first + number, level, frame))
        });
        each.fold(PartsUsed::default(), |all, (part, used)| all.with(part, used))
    }

    /// The bits of a page that is a part of another page, and of its own parts.
    pub(super) fn used_of_part(
        &self,
        part: &Leaf,
        used: Used,
        vectors: Option<&Vectors>,
    ) -> (Used, PartsUsed) {
        let (start, pages) = (part.page.raw(), 1 << part.size.base_shift());
        let parts = self.parts(part.size).unwrap_or_default();
        let Some(vectors) = vectors else { return (used, PartsUsed::of_whole(parts, used)) };
        let each = (0..parts).map(|number| {
            let (from, step) =
                (start + u64::from(number) * (pages / u64::from(parts)), pages / u64::from(parts));
            (number, vectors.used_between(from, from + step))
        });
        let own = each.fold(PartsUsed::default(), |all, (number, used)| all.with(number, used));
        (vectors.used_between(start, start + pages), own)
    }

    /// The accessed and dirty bits of one entry, if it maps `frame`.
    fn used_of_entry(&self, node: u32, index: usize, level: u8, frame: FrameNumber) -> Used {
        let entries = &self.nodes[node as usize].entries;
        let entry = entries[index];
        if !entry.is_page(level) || entry.has_holes() {
            let mut used = (false, false);
            self.used_below(node, index, level, frame, &mut used);
            return used;
        }
        let count = aliases_of(entry.size(level), level);
        let first = index & !(count - 1);
        let whole = entries[first];
        let own = whole.frame(level).plus(((index - first) as u64) << ((level - 1) * INDEX_BITS));
        match self.parts(entry.size(level)).filter(|_| whole.has_vectors()) {
            _ if own != frame => (false, false),
            Some(parts) => {
                let used = PartsUsed::of_bits(entries[first + 1].vector_bits(level));
                used.of(((index - first) * parts as usize / count) as u32)
            }
            None => whole.used(),
        }
    }
}

fn either(one: Used, other: Used) -> Used {
    (one.0 | other.0, one.1 | other.1)
}
