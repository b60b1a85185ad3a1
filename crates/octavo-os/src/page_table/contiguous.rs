//! The contiguous hint of page-table entries: bit 52 of arm64, the N bit of RISC-V's Svnapot. Entries have it if
//! their aligned block maps an aligned block of frames with equal permissions. A TLB may then hold the block as one
//! page.
//!
//! The operating system *folds* and *unfolds* blocks as Linux does for arm64 (`arch/arm64/mm/contpte.c`). A block is
//! foldable only if its frames were allocated together (one folio). Blocks of which an operation has changed entries
//! are folded and unfolded at its end:
//!
//! - A foldable block all of whose entries the operation has written gets the hint with them, at no cost. So does a
//!   folded block that is still foldable, since all of it has changed alike.
//! - A foldable block whose last entry the operation has written is folded: the whole block is rewritten and
//!   invalidated.
//! - A folded block is unfolded if it is no longer foldable, and entries remain that the operation has not written:
//!   the whole block is rewritten and invalidated, too. A block that is unmapped or replaced whole costs nothing.
//!
//! Hardware sets accessed and dirty bits in the entry that it reads. Bits of a block are the *or* of its entries'
//! bits, which folding and unfolding write to all of its entries.

use std::ops::Range;

use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::entry::Entry;
use super::{Leaf, PageTable, ROOT, Used, Walk, index};

/// Blocks with entries changed by the current operation, by number.
pub(super) type ChangedBlocks = FxHashMap<u64, ChangedBlock>;

/// A block with entries changed by the current operation.
pub(super) struct ChangedBlock {
    /// Whether it was folded before the operation.
    was_folded: bool,
    /// Bit *n* is set if the operation has written entry *n* of the block.
    written: u64,
}

/// A block whose entries were rewritten to add or remove their hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conversion {
    /// Its base pages.
    pub pages: Range<u64>,
    /// Whether the entries have the hint now.
    pub is_fold: bool,
}

impl Walk {
    /// The page that a TLB may hold: the whole block if the entry has the contiguous hint.
    #[inline(always)]
    pub fn cacheable(&self) -> Option<Leaf> {
        let leaf = self.leaf?;
        if self.block_log2 == 0 {
            return Some(leaf);
        }
        let first = |number: u64| number >> self.block_log2 << self.block_log2;
        let size = PageSize::from_log2(PageSize::BASE.log2() + self.block_log2);
        Some(Leaf {
            page: PageNumber::new(first(leaf.page.raw())),
            frame: FrameNumber::new(first(leaf.frame.raw())),
            size: size.expect("a size of blocks"),
            ..leaf
        })
    }
}

impl PageTable {
    /// Whether the entry of a base page has the hint.
    pub fn is_folded(&self, page: PageNumber) -> bool {
        self.walk_record(page).block_log2 > 0
    }

    /// The number of entries with the hint.
    pub fn folded_entries(&self) -> u64 {
        self.folded_entries
    }

    /// Records that the entry of a base page is about to be written or cleared.
    #[inline(always)]
    pub(super) fn note_change(&mut self, page: PageNumber, at: (u32, usize), is_written: bool) {
        if self.format.block_log2 > 0 {
            self.note_changed_block(page, at, is_written);
        }
    }

    #[inline(never)]
    fn note_changed_block(&mut self, page: PageNumber, (node, at): (u32, usize), is_written: bool) {
        let log2 = self.format.block_log2;
        let first = at >> log2 << log2;
        let entries = &mut self.nodes[node as usize].entries[first..first + (1 << log2)];
        let changed = self.changed_blocks.entry(page.raw() >> log2).or_insert_with(|| {
            let was_folded = entries[at - first].is_contiguous();
            if was_folded {
                let used = used_of(entries);
                entries.iter_mut().for_each(|entry| *entry = entry.with_used(used));
            }
            ChangedBlock { was_folded, written: 0 }
        });
        changed.written |= u64::from(is_written) << (at - first);
    }

    /// Ends an operation: folds and unfolds the blocks that it has changed. `are_together` says whether the frames of a
    /// block were allocated together. Returns the blocks rewritten only for their hints.
    pub fn update_hints(&mut self, are_together: impl Fn(FrameNumber) -> bool) -> Vec<Conversion> {
        let log2 = self.format.block_log2;
        let all = u64::MAX >> (u64::BITS - (1 << log2));
        let mut changed: Vec<_> = self.changed_blocks.drain().collect();
        changed.sort_unstable_by_key(|(number, _)| *number);
        let mut conversions = Vec::new();
        for (number, ChangedBlock { was_folded, written }) in changed {
            let pages = number << log2..(number + 1) << log2;
            let Some(node) = self.lowest_node(PageNumber::new(pages.start)) else { continue };
            let first = index(PageNumber::new(pages.start), 1);
            let entries = &mut self.nodes[node as usize].entries[first..first + (1 << log2)];
            let is_foldable = is_foldable(entries, &are_together);
            let has_last = written >> ((1 << log2) - 1) != 0;
            let folds = is_foldable && (was_folded || has_last);
            let is_kept =
                |(at, entry): (usize, &Entry)| entry.is_present() && written >> at & 1 == 0;
            let is_conversion = match folds {
                true => !was_folded && written != all,
                false => was_folded && entries.iter().enumerate().any(is_kept),
            };
            let used = used_of(entries);
            for entry in entries.iter_mut().filter(|entry| entry.is_present()) {
                self.folded_entries -= u64::from(entry.is_contiguous());
                self.folded_entries += u64::from(folds);
                *entry = entry.with_contiguous(folds);
                if is_conversion && folds {
                    *entry = entry.with_used(used);
                }
            }
            if is_conversion {
                conversions.push(Conversion { pages, is_fold: folds });
            }
        }
        conversions
    }

    /// The node of the lowest level with the entry of a base page.
    fn lowest_node(&self, page: PageNumber) -> Option<u32> {
        (1..self.format.levels).rev().try_fold(ROOT, |node, level| {
            Some(self.nodes[node as usize].children[index(page, level + 1)])
                .filter(|child| *child != ROOT)
        })
    }

    /// The accessed and dirty bits of an entry or, if it has the hint, of its block.
    pub(super) fn used_in_block(&self, node: u32, at: usize) -> Used {
        let entries = &self.nodes[node as usize].entries;
        if !entries[at].is_contiguous() {
            return entries[at].used();
        }
        let log2 = self.format.block_log2;
        let first = at >> log2 << log2;
        used_of(&entries[first..first + (1 << log2)])
    }
}

/// The *or* of the accessed and dirty bits of entries.
fn used_of(entries: &[Entry]) -> Used {
    entries
        .iter()
        .map(|entry| entry.used())
        .fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1))
}

/// Whether the entries of a block map an aligned block of frames, allocated together, with equal permissions.
fn is_foldable(entries: &[Entry], are_together: impl Fn(FrameNumber) -> bool) -> bool {
    let [own, ..] = entries else { return false };
    own.is_page(1)
        && own.frame(1).raw().is_multiple_of(entries.len() as u64)
        && entries.iter().enumerate().all(|(at, entry)| {
            entry.is_page(1)
                && entry.size(1) == PageSize::BASE
                && entry.frame(1) == own.frame(1).plus(at as u64)
                && entry.rights() == own.rights()
                && are_together(entry.frame(1))
        })
}
