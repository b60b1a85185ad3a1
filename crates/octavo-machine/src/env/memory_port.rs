//! The machine's memory as a design reaches it: frames reserved for its tables, read and written through the
//! caches.

use octavo_types::{FrameNumber, PhysAddr};

use super::Env;
use super::walk::line_of;

impl Env {
    /// The frames reserved for tables of the design ([`crate::designs::registry`]); in a guest, frames of the
    /// host's memory.
    pub fn reserved_frames(&self) -> &[FrameNumber] {
        let os = self.host.as_ref().map_or(&self.os, |host| &host.os);
        os.memory().frames.of_design()
    }

    /// Reads the line at an address of the machine's memory, from the cache level from which walks read.
    /// Returns the latency in cycles, which the caller charges.
    pub fn read_memory(&mut self, at: PhysAddr) -> u32 {
        self.caches.read_pte(line_of(at, self.lines)).latency_cycles
    }

    /// Writes to the line at an address of the machine's memory, at the same cache level. Returns the latency
    /// in cycles.
    pub fn write_memory(&mut self, at: PhysAddr) -> u32 {
        self.caches.write_pte(line_of(at, self.lines)).latency_cycles
    }
}
