//! The organisations of the page tables that the handler reads ("the operating system is free to implement
//! whatever virtual-to-physical mapping it chooses", section 4).
//!
//! - *Two-tier*, the paper's example: the global linear table, and root tables for its pages (section 4.2);
//!   see [`super::handler`].
//! - *Hierarchical*: the operating system's own tables, read top-down by physical addresses, one entry per
//!   level ("a top-down hierarchical page table (as in the x86) would provide easy support for superpages",
//!   section 4.3): a 2 MiB page ends the walk one level earlier.
//! - *Inverted*: [an entry per frame](inverted), found by a hash.
//! - *Guarded*: [a tree](guarded) whose entries skip the bits that all pages below them share; it may end at
//!   any level, too.

mod guarded;
mod inverted;

use crate::designs::softvm::settings::TableKind;
use octavo_hw::GlobalAddr;
use octavo_types::{FrameNumber, PhysAddr};

use super::pages::PageOf;
use crate::env::Env;
use guarded::Guarded;
use inverted::Inverted;

/// The page tables.
pub enum Tables {
    /// The paper's example.
    TwoTier,
    /// The operating system's own.
    Hierarchical,
    /// One entry per frame.
    Inverted(Inverted),
    /// A tree with guards.
    Guarded(Guarded),
}

impl Tables {
    /// Empty tables for `frames` frames.
    pub fn new(kind: TableKind, frames: u64) -> Self {
        match kind {
            TableKind::TwoTier => Tables::TwoTier,
            TableKind::Hierarchical => Tables::Hierarchical,
            TableKind::Inverted => Tables::Inverted(Inverted::new(frames)),
            TableKind::Guarded => Tables::Guarded(Guarded::default()),
        }
    }

    /// The entries that a handler loads by physical addresses, in order, to translate an address of `page` in
    /// `frame`; `None` for the two-tier table.
    pub fn loads(
        &mut self,
        env: &Env,
        addr: GlobalAddr,
        page: PageOf,
        frame: FrameNumber,
    ) -> Option<Vec<PhysAddr>> {
        match self {
            Tables::TwoTier => None,
            Tables::Hierarchical => {
                let walk = env.os().memory().process(page.process).table.walk(page.page);
                Some(walk.steps().iter().map(|step| step.at).collect())
            }
            Tables::Inverted(table) => Some(table.loads(addr, frame)),
            Tables::Guarded(table) => {
                let translation = env.translation(page.process, page.page);
                Some(table.loads(addr, translation.expect("it is mapped").size))
            }
        }
    }
}
