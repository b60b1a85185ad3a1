//! Page-size policies, one file each. Translation designs add policies of their own.

mod base;
mod config;
mod defrag;
mod eager;
mod first_touch;
mod fixed;
mod hugetlb;
mod interval;
mod mthp;
mod parse;
mod registry;
mod reserved_thp;
mod reserving;
mod settings;
mod texts;
mod thp;
mod trident;

pub use base::{BaseConfig, BasePages, place_last};
pub use config::{Capability, PolicyConfig, PolicySettings};
pub use defrag::{Defrag, Defragmenter};
pub use eager::{Eager, EagerConfig, RANGES};
pub use first_touch::{FirstTouch, FirstTouchConfig};
pub use fixed::{Fixed, FixedConfig};
pub use hugetlb::{Hugetlb, HugetlbConfig};
pub use mthp::{Mthp, MthpConfig};
pub use parse::{PolicyError, no_value, split_settings};
pub use registry::{POLICIES, Policies, PolicyEntry};
pub use reserved_thp::{ReservedThp, ReservedThpConfig};
pub use reserving::{ReservationManager, ReserveWhen, Rules};
pub use settings::{OsConfig, SettingError};
pub use texts::{AllowedValues, Texts, page_size, page_size_or_none};
pub use thp::{DefragmentingThpConfig, FaultHuge, Thp, ThpConfig};
pub use trident::{Trident, TridentConfig};

use octavo_types::PageNumber;

use crate::frames::OutOfMemory;
use crate::memory::{Memory, ProcessId};
use crate::vmas::{Pages, Vma};

/// A page fault on a base page of anonymous memory.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The process.
    pub process: ProcessId,
    /// The base page.
    pub page: PageNumber,
    /// The range of its mapping.
    pub mapping: Pages,
    /// The mapping.
    pub vma: Vma,
}

/// A policy that chooses page sizes for anonymous memory.
pub trait Policy: Send {
    /// Called when the system starts, before any process has memory.
    fn start(&mut self, _memory: &mut Memory) {}

    /// Maps at least the faulting page.
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory>;

    /// Called when anonymous memory has been mapped or has become accessible. Some of its pages may have been
    /// touched before.
    fn mapped(
        &mut self,
        _memory: &mut Memory,
        _process: ProcessId,
        _pages: &Pages,
        _vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Called before a range is unmapped or its pages are given back, and before a new mapping of unmapped
    /// pages.
    fn unmapped(&mut self, _memory: &mut Memory, _process: ProcessId, _pages: &Pages) {}

    /// Called before the pages of a range move to other addresses, with their memory.
    fn moving(&mut self, _memory: &mut Memory, _process: ProcessId, _pages: &Pages) {}

    /// Called after a fork: the child shares its parent's pages.
    fn forked(&mut self, _memory: &mut Memory, _parent: ProcessId, _child: ProcessId) {}

    /// Called before a process ends; its number may be reused.
    fn ended(&mut self, memory: &mut Memory, process: ProcessId) {
        self.unmapped(memory, process, &(0..u64::MAX));
    }

    /// Runs background work; `instructions` is the number executed so far by all programs.
    fn background(&mut self, _memory: &mut Memory, _instructions: u64) {}
}

/// Rejects a share outside 1 to 100 percent.
///
/// # Errors
/// The setting with its value, and the allowed values.
pub fn check_percent(name: &str, percent: u8) -> Result<(), String> {
    match percent {
        1..=100 => Ok(()),
        _ => Err(format!("{name} = {percent}: give a share in percent, 1 to 100")),
    }
}
