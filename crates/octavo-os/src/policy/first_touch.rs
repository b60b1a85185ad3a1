//! One large page size, given at the first touch, as paper 001 has it (Section 2): the system
//! "allocates a large enough page when the first page fault occurs", "only if the memory object is
//! large enough and also there is enough memory space". Large enough is a mapping that holds the
//! aligned page; elsewhere there are base pages.

use octavo_types::{PageNumber, PageSize};

use super::{Fault, Policy};
use crate::frames::OutOfMemory;
use crate::memory::{Memory, around, base_pages};

/// Its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstTouchConfig {
    /// The large size.
    pub size: PageSize,
}

impl Default for FirstTouchConfig {
    /// 256 KiB, which the paper ends with for large data objects.
    fn default() -> Self {
        FirstTouchConfig { size: PageSize::from_log2(18).expect("256 KiB") }
    }
}

/// A large page wherever one fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstTouch {
    config: FirstTouchConfig,
}

impl FirstTouch {
    /// With this size.
    pub fn new(config: FirstTouchConfig) -> Self {
        FirstTouch { config }
    }
}

impl Policy for FirstTouch {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let (process, size, rights) = (fault.process, self.config.size, fault.vma.rights);
        let pages = around(fault.page, size);
        let fits = fault.mapping.start <= pages.start && pages.end <= fault.mapping.end;
        if fits && memory.is_untouched(process, &pages) {
            if memory.place_new(process, PageNumber::new(pages.start), size, rights).is_ok() {
                let untouched = (base_pages(size) - 1) * PageSize::BASE.bytes();
                memory.counters.bytes_mapped_untouched += untouched;
                return Ok(());
            }
            memory.counters.fallbacks += 1;
        }
        memory.place_new(process, fault.page, PageSize::BASE, rights)
    }
}
