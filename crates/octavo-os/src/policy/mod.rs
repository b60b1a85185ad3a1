//! Which page sizes an operating system chooses, a file a policy.

mod base;
mod defrag;
mod eager;
mod first_touch;
mod fixed;
mod gtsm;
mod hugetlb;
mod mthp;
mod parse;
mod perforated;
mod registry;
mod reserved_thp;
mod reserving;
mod setting;
mod settings;
mod thp;
mod tps;

pub use base::BasePages;
pub use defrag::{Defrag, Defragmenter};
pub use eager::{Eager, EagerConfig};
pub use first_touch::{FirstTouch, FirstTouchConfig};
pub use fixed::{Fixed, FixedConfig};
pub use gtsm::{Gtsm, GtsmConfig};
pub use hugetlb::{Hugetlb, HugetlbConfig};
pub use mthp::{Mthp, MthpConfig, MthpEnabled};
pub use parse::PolicyError;
pub use perforated::{Perforated, PerforatedConfig};
pub use registry::{POLICIES, PolicyConfig, PolicyEntry, by_name};
pub use reserved_thp::{ReservedThp, ReservedThpConfig};
pub use setting::Setting;
pub use settings::{OsConfig, SettingError};
pub use thp::{FaultHuge, Thp, ThpConfig};
pub use tps::{ReserveWhen, Span, Tps, TpsConfig};

use octavo_types::PageNumber;

use crate::frames::OutOfMemory;
use crate::memory::{Memory, ProcessId};
use crate::vmas::{Pages, Vma};

/// A base page of anonymous memory that has been touched and is not there.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Whose.
    pub process: ProcessId,
    /// Which.
    pub page: PageNumber,
    /// All pages of the mapping that holds it.
    pub mapping: Pages,
    /// The mapping.
    pub vma: Vma,
}

/// Chooses page sizes for anonymous memory.
pub trait Policy: Send {
    /// The system starts: no process has any memory yet.
    fn start(&mut self, _memory: &mut Memory) {}

    /// Maps at least the page that was touched.
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory>;

    /// A program has mapped anonymous memory, or may use what it had mapped without any rights.
    /// Some of the pages may have been touched before.
    fn mapped(
        &mut self,
        _memory: &mut Memory,
        _process: ProcessId,
        _pages: &Pages,
        _vma: &Vma,
    ) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// A range is about to be mapped no longer, or its pages given back. Where nothing was mapped
    /// before a mapping comes there, this is told, too.
    fn unmapped(&mut self, _memory: &mut Memory, _process: ProcessId, _pages: &Pages) {}

    /// The pages of a range are about to move to other addresses, with their memory.
    fn moving(&mut self, _memory: &mut Memory, _process: ProcessId, _pages: &Pages) {}

    /// A process has been forked: the child shares its parent's pages.
    fn forked(&mut self, _memory: &mut Memory, _parent: ProcessId, _child: ProcessId) {}

    /// A process is about to end; a later one may get its number.
    fn ended(&mut self, memory: &mut Memory, process: ProcessId) {
        self.unmapped(memory, process, &(0..u64::MAX));
    }

    /// Does what an operating system does beside the programs, after so many instructions of
    /// theirs in all.
    fn background(&mut self, _memory: &mut Memory, _instructions: u64) {}
}
