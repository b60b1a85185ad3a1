//! The line of page-table entries that a page walk reads last, which shows other pages beside the walked one.

use octavo_os::page_table::PageTable;
use octavo_types::PageNumber;

use crate::env::{Env, guest_page};
use crate::tlb::{TlbEntry, Translation};

/// The most entries of a line that a design uses.
const MAX_ENTRIES: u64 = 8;
/// Bytes of a page-table entry.
const ENTRY_BYTES: u64 = 8;

/// The number of page-table entries that a line of `line_bytes` bytes shows.
pub fn entries(line_bytes: u64) -> u64 {
    MAX_ENTRIES.min(line_bytes / ENTRY_BYTES)
}

/// The translation of `other` by the last line, of `entries` entries, that a walk to `page` reads, if the line shows an
/// accessed page there. In a guest, the lines of both tables must show one.
pub fn seen(env: &Env, page: PageNumber, other: PageNumber, entries: u64) -> Option<Translation> {
    let mut tables = env.tables(page);
    let (table, _) = tables.next()?;
    let own = seen_in(table, page, other, entries)?;
    match tables.next() {
        None => Some(own),
        Some((table, backed_page)) => {
            let backing = seen_in(table, backed_page, guest_page(own.frame_of(other)), entries)?;
            Some(env.compose(other, own, backing))
        }
    }
}

/// As [`seen`], in one table.
fn seen_in(
    table: &PageTable,
    page: PageNumber,
    other: PageNumber,
    in_line: u64,
) -> Option<Translation> {
    let (entries, level) = table.entries_around(page, in_line as usize)?;
    let size = table.leaf(page)?.size;
    let [own, number] = [page, other].map(|page| page.raw() >> size.base_shift());
    let entry = entries[(number % in_line) as usize];
    let (is_accessed, is_dirty) = entry.used();
    let is_seen = own / in_line == number / in_line
        && entry.is_page(level)
        && entry.size(level) == size
        && is_accessed;
    let tlb_entry = || TlbEntry::new(entry.frame(level), size, entry.rights().write, is_dirty);
    is_seen.then(|| Translation { size, entry: tlb_entry() })
}
