//! Base pages on demand, each in a free frame of its set of the restrictive segment, or else anywhere.

use octavo_os::Memory;
use octavo_os::frames::OutOfMemory;
use octavo_os::policy::{Capability, Fault, Policy, PolicySettings};
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::segment::Segment;

/// A part of memory is set-associative.
pub const RESTRICTED_FRAMES: Capability = Capability("a set-associative part of memory");

/// Settings of the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RestSegConfig {
    /// The percentage of memory in the segment, 0 to 90.
    pub percent: u32,
}

impl Default for RestSegConfig {
    /// A quarter of memory.
    fn default() -> Self {
        RestSegConfig { percent: 25 }
    }
}

impl PolicySettings for RestSegConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(RestSeg { percent: u64::from(self.percent) })
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[RESTRICTED_FRAMES]
    }

    fn check(&self) -> Result<(), String> {
        match self.percent {
            0..=90 => Ok(()),
            percent => Err(format!("percent = {percent}: give 0 to 90")),
        }
    }
}

/// Demand paging with base pages, in the segment if possible.
struct RestSeg {
    percent: u64,
}

impl Policy for RestSeg {
    fn start(&mut self, memory: &mut Memory) {
        if let Some(segment) = Segment::new(self.percent, &mut memory.frames) {
            memory.place_by(Box::new(segment));
        }
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}
