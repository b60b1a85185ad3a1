//! How page tables are organised that the handler reads ("the operating system is free to implement
//! whatever virtual-to-physical mapping it chooses", section 4).
//!
//! - *Two-tier*, the paper's example: the global linear table, and root tables for its pages (section 4.2).
//!   What it loads is [`super::handler`]'s affair.
//! - *Hierarchical*: the operating system's own tables, top-down by physical addresses, an entry of each level
//!   ("a top-down hierarchical page table (as in the x86) would provide easy support for superpages", section
//!   4.3): a page of 2 MiB ends the walk one level earlier.
//! - *Inverted*: [an entry for each frame](inverted), found by a hash.
//! - *Guarded*: [a tree](guarded) whose entries skip what is the same for all pages behind them; it may end at any
//!   level, too.

mod guarded;
mod inverted;

use octavo_config::TableKind;
use octavo_hw::GlobalAddr;
use octavo_types::{FrameNumber, PhysAddr};

use super::pages::PageOf;
use crate::env::Env;
use guarded::Guarded;
use inverted::Inverted;

/// The tables.
pub enum Tables {
    /// As the paper's example.
    TwoTier,
    /// The operating system's own.
    Hierarchical,
    /// One entry a frame.
    Inverted(Inverted),
    /// A tree with guards.
    Guarded(Guarded),
}

impl Tables {
    /// Empty ones, for so many frames.
    pub fn new(kind: TableKind, frames: u64) -> Self {
        match kind {
            TableKind::TwoTier => Tables::TwoTier,
            TableKind::Hierarchical => Tables::Hierarchical,
            TableKind::Inverted => Tables::Inverted(Inverted::new(frames)),
            TableKind::Guarded => Tables::Guarded(Guarded::default()),
        }
    }

    /// What a handler loads by physical addresses, in order, to translate an address whose page is `page`
    /// and lies in `frame`; none where it does as the paper's.
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
