//! Base pages on demand, each in the first free frame of those that hash functions give, or else anywhere.

use octavo_os::Memory;
use octavo_os::frames::OutOfMemory;
use octavo_os::policy::{Capability, Fault, Policy, PolicySettings};
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::hashes::{Hashes, MAX_FUNCTIONS};

/// Frames of pages and of nodes of page tables are given by hash functions.
pub const HASHED_FRAMES: Capability = Capability("frames that hash functions give");

/// Settings of the placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HashedConfig {
    /// The number of hash functions, 0 to 6.
    pub functions: u32,
}

impl Default for HashedConfig {
    /// Three functions.
    fn default() -> Self {
        HashedConfig { functions: 3 }
    }
}

impl PolicySettings for HashedConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Hashed { functions: self.functions })
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[HASHED_FRAMES]
    }

    fn check(&self) -> Result<(), String> {
        match self.functions {
            0..=MAX_FUNCTIONS => Ok(()),
            functions => Err(format!("functions = {functions}: give 0 to {MAX_FUNCTIONS}")),
        }
    }
}

/// Demand paging with base pages in hashed frames.
struct Hashed {
    functions: u32,
}

impl Policy for Hashed {
    fn start(&mut self, memory: &mut Memory) {
        if self.functions > 0 {
            memory.place_by(Box::new(Hashes::new(self.functions, &memory.frames)));
        }
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}

#[cfg(test)]
mod tests {
    use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
    use octavo_os::page_table::Format;
    use octavo_os::{Os, ProcessId};
    use octavo_types::{
        Access, AddrRange, Event, FrameNumber, MapSource, PageNumber, Protection, VirtAddr,
    };

    use super::*;

    const FRAMES: u64 = 1 << 18;
    const FIRST: u64 = 0x10_0000;

    /// An operating system whose process has stored to so many pages, where a tenth of a memory, at random, is free in
    /// so many tenths.
    fn populated(free_tenths: u64, pages: u64) -> (Os, ProcessId) {
        let mut frames = Frames::new(MemoryShape::new(FRAMES, Order::LINUX).unwrap());
        for at in 0..FRAMES {
            if octavo_trace::splitmix(!at) % 10 >= free_tenths {
                let owner = Owner::Background { movable: false };
                assert!(frames.allocate_at(FrameNumber::new(at), Order::BASE, owner));
            }
        }
        let memory = Memory::new(frames, &[], Format::default());
        let mut os = Os::new(memory, HashedConfig::default().build());
        let process = os.spawn().unwrap();
        let range = AddrRange::new(VirtAddr::new(FIRST << 12), pages << 12);
        let (protection, source) = (Protection::from_bits(3), MapSource::Anonymous);
        os.event(process, &Event::Map { range, protection, source, flags: 2 }).unwrap();
        for page in FIRST..FIRST + pages {
            os.fault(process, PageNumber::new(page), Access::Store).unwrap();
        }
        (os, process)
    }

    fn counts(os: &Os) -> Vec<u64> {
        os.memory().design_counters().iter().map(|of| of.value).collect()
    }

    /// With a share p of free frames, function i places p (1 - p)^(i - 1) of the pages. The pages take 1% of the memory.
    #[test]
    fn functions_place_their_shares_of_pages() {
        const PAGES: u64 = FRAMES / 100;
        for tenths in [8, 5, 2] {
            let (os, _) = populated(tenths, PAGES);
            let (mut left, p) = (PAGES as f64, tenths as f64 / 10.0);
            let counted = counts(&os);
            for placed in &counted[..3] {
                let expected = left * p;
                let deviation = (*placed as f64 - expected).abs();
                assert!(
                    deviation < 5.0 * (left * p * (1.0 - p)).sqrt() + 30.0,
                    "{tenths}: {counted:?}"
                );
                left -= *placed as f64;
            }
            assert_eq!(counted.iter().sum::<u64>(), PAGES);
            assert_eq!(os.memory().check(), Ok(()));
        }
    }

    #[test]
    fn filter_leaves_out_functions_that_have_placed_few_pages() {
        let candidates = |tenths, min_percent| {
            let (os, process) = populated(tenths, FRAMES / 100);
            let hashes = os.memory().placement::<Hashes>().unwrap();
            hashes.candidates(process, PageNumber::new(FIRST), min_percent).count()
        };
        // 80%, 16% and 3.2%; all but none; and 50%, 25% and 12.5%.
        assert_eq!([candidates(8, 0), candidates(8, 10), candidates(8, 30)], [3, 2, 1]);
        assert_eq!(candidates(10, 10), 1);
        assert_eq!(candidates(5, 10), 3);
    }
}
