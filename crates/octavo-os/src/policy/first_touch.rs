//! One large page size, allocated at the first page fault (after Weisberg and Wiseman, IRI 2009) if the
//! mapping holds the aligned page and a block is free; base pages elsewhere.

use octavo_types::{PageNumber, PageSize};
use serde::{Deserialize, Serialize};

use super::texts::page_size;
use super::{Fault, Policy, PolicySettings};
use crate::frames::OutOfMemory;
use crate::memory::{Memory, around};

/// Settings of the first-touch policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FirstTouchConfig {
    /// The large page size.
    #[serde(with = "page_size")]
    pub size: PageSize,
}

impl Default for FirstTouchConfig {
    /// 256 KiB, the recommendation of Weisberg and Wiseman for large data segments.
    fn default() -> Self {
        FirstTouchConfig { size: PageSize::from_log2(18).expect("256 KiB") }
    }
}

impl PolicySettings for FirstTouchConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(FirstTouch::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        Some(self.size).filter(|size| *size > PageSize::BASE).into_iter().collect()
    }
}

/// A large page wherever one fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstTouch {
    config: FirstTouchConfig,
}

impl FirstTouch {
    /// A policy with this size.
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
                return Ok(());
            }
            memory.counters.fallbacks += 1;
        }
        memory.place_new(process, fault.page, PageSize::BASE, rights)
    }
}
