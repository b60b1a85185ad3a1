//! The slow, obvious twin of the line of page-table entries that a walk reads last.

use octavo_os::page_table::{Leaf, PageTable};
use octavo_types::{FrameNumber, PageNumber, PageSize};

use crate::env::Env;
use crate::tlb::{TlbEntry, Translation};

/// The translation of `other` by the last lines, of `in_line` entries, that a walk to `walked` reads.
pub fn shown(env: &Env, in_line: u64, walked: u64, other: u64) -> Option<Translation> {
    let own: Vec<_> = env.tables(PageNumber::new(walked)).collect();
    let other_tables: Vec<_> = env.tables(PageNumber::new(other)).collect();
    if own.len() != other_tables.len() {
        return None;
    }
    let (mut size, mut frame) = (PageSize::LARGEST, FrameNumber::default());
    let (mut is_writable, mut is_dirty) = (true, true);
    for (own, (table, other)) in own.iter().zip(other_tables) {
        let (leaf, dirty) = shown_in(table, in_line, own.1, other)?;
        frame = leaf.frame_of(other);
        size = size.min(leaf.size);
        is_writable &= leaf.rights.write;
        is_dirty &= dirty;
    }
    // The frame of the first base page of the page or part.
    let frame = FrameNumber::new(frame.raw() - other % (size.bytes() / 4096));
    Some(Translation { size, entry: TlbEntry::new(frame, size, is_writable, is_dirty) })
}

/// The page that holds `other`, and whether it is dirty, if the line of the entry of `own` shows it, accessed and of the
/// same size.
fn shown_in(
    table: &PageTable,
    in_line: u64,
    own: PageNumber,
    other: PageNumber,
) -> Option<(Leaf, bool)> {
    let (own_leaf, other_leaf) = (table.leaf(own)?, table.leaf(other)?);
    let (is_accessed, is_dirty) = table.used(other)?;
    let line = |page: PageNumber| page.raw() * 4096 / own_leaf.size.bytes() / in_line;
    let is_shown = own_leaf.size == other_leaf.size && line(own) == line(other) && is_accessed;
    is_shown.then_some((other_leaf, is_dirty))
}
