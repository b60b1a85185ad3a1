//! Demand paging with base pages.

use octavo_types::{PageNumber, PageSize, Protection};
use serde::{Deserialize, Serialize};

use super::{Fault, Policy, PolicySettings};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::memory::{Memory, ProcessId};

/// Demand paging has no settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BaseConfig {}

impl PolicySettings for BaseConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(BasePages)
    }
}

/// Demand paging with 4 KiB pages only.
#[derive(Clone, Copy, Debug, Default)]
pub struct BasePages;

impl Policy for BasePages {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}

/// Maps a base page in the last free frame outside free blocks of 2 MiB, so that a policy that selects
/// regions from the start of memory finds them intact.
///
/// # Errors
/// If there is no frame for it.
pub fn place_last(
    memory: &mut Memory,
    process: ProcessId,
    page: PageNumber,
    rights: Protection,
) -> Result<(), OutOfMemory> {
    let buddy = memory.frames.buddy();
    let last = buddy.tiers().find_map(|tier| {
        let last = buddy.last_in_smaller(Order::HUGE, tier.end)?;
        tier.contains(&last.raw()).then_some(last)
    });
    match last.filter(|at| memory.frames.allocate_at(*at, Order::BASE, Owner::Data)) {
        Some(frame) => memory.place_at(process, page, frame, rights),
        None => memory.place_new(process, page, PageSize::BASE, rights),
    }
}
