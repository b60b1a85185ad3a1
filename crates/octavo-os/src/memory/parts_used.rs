//! Accessed and dirty memory by page tables: by whole pages, and by parts of pages of intermediate sizes.

use octavo_types::PageNumber;

use super::{Memory, base_pages};

/// Bytes of all pages whose parts have accessed and dirty bits of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartsUsedBytes {
    /// Bytes mapped.
    pub mapped: u64,
    /// Bytes of accessed pages.
    pub accessed: u64,
    /// Bytes of accessed parts.
    pub accessed_parts: u64,
    /// Bytes of dirty pages.
    pub dirty: u64,
    /// Bytes of dirty parts.
    pub dirty_parts: u64,
}

impl Memory {
    /// Whether page tables keep accessed and dirty vectors of pages of intermediate sizes.
    pub fn has_vectors(&self) -> bool {
        self.format.vector_bits > 0
    }

    /// The accessed and dirty bytes of pages of intermediate sizes.
    pub fn parts_used(&self) -> PartsUsedBytes {
        let mut all = PartsUsedBytes::default();
        for process in self.live() {
            let (table, mut from) = (&self.process(process).table, 0);
            while let Some(leaf) = table.next(PageNumber::new(from), PageNumber::new(u64::MAX)) {
                from = leaf.page.raw() + base_pages(leaf.size);
                let Some(vectors) = table.vectors(leaf.page) else { continue };
                let (accessed, dirty) = table.used(leaf.page).unwrap_or_default();
                let bytes = leaf.size.bytes();
                all.mapped += bytes;
                all.accessed += if accessed { bytes } else { 0 };
                all.dirty += if dirty { bytes } else { 0 };
                let parts = |bits: u16| u64::from(bits.count_ones()) * vectors.part_bytes();
                all.accessed_parts += parts(vectors.used.accessed);
                all.dirty_parts += parts(vectors.used.dirty);
            }
        }
        all
    }
}
