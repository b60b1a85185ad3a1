//! Iceberg hashing as a policy: base pages on demand, each in one of its candidate frames.
//!
//! - A page takes a free frame of its front yard. If that is full, it takes a frame of the emptiest of its six back yards;
//!   of several equally empty ones, the first.
//! - The search of a yard begins at a hashed place. If it always began at the first frame, the pages of a nearly empty
//!   memory would have the first frames of their buckets, which share few sets of the caches.
//! - If all candidates are taken, a *conflict*, the page takes any frame.

use std::cmp::Reverse;

use octavo_os::frames::{Frames, Order, OutOfMemory};
use octavo_os::page_table::DesignCounter;
use octavo_os::policy::{Capability, Fault, Policy, PolicySettings};
use octavo_os::{Memory, Placement, ProcessId};
use octavo_types::{FrameNumber, PageNumber, PageSize};
use serde::{Deserialize, Serialize};

use super::candidates::{BACK, Buckets, CHOICES, FRONT, Key};

/// Frames of pages are among candidates.
pub const HASHED_FRAMES: Capability = Capability("frames that iceberg hashing has chosen");

/// Iceberg hashing has no settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct IcebergConfig {}

impl PolicySettings for IcebergConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Iceberg)
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[HASHED_FRAMES]
    }
}

/// Demand paging with base pages in candidate frames.
struct Iceberg;

impl Policy for Iceberg {
    fn start(&mut self, memory: &mut Memory) {
        let buckets = Buckets::of(memory.frames.shape().frames());
        memory.place_by(Box::new(Yards { buckets, in_front: 0, in_back: 0, conflicts: 0 }));
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}

/// Front and back yards of a memory.
struct Yards {
    buckets: Buckets,
    in_front: u64,
    in_back: u64,
    conflicts: u64,
}

impl Yards {
    /// The free frame for a page.
    fn find(&mut self, frames: &Frames, key: Key) -> Option<FrameNumber> {
        if self.buckets.is_empty() {
            return None;
        }
        let free = move |start: FrameNumber, count: u64| {
            let first = key.place(count);
            let places = (first..count).chain(0..first);
            let all = places.map(move |place| start.plus(place));
            all.filter(move |frame| frames.is_free(*frame, Order::BASE))
        };
        if let Some(frame) = free(self.buckets.front_yard(key), FRONT).next() {
            self.in_front += 1;
            return Some(frame);
        }
        let yards = (0..CHOICES).map(|choice| (self.buckets.back_yard(key, choice), choice));
        let (yard, _) = yards
            .max_by_key(|(yard, choice)| (free(*yard, BACK).count(), Reverse(*choice)))
            .expect("some choices");
        let frame = free(yard, BACK).next()?;
        self.in_back += 1;
        Some(frame)
    }
}

impl Placement for Yards {
    fn choose(
        &mut self,
        frames: &Frames,
        process: ProcessId,
        page: PageNumber,
    ) -> Option<FrameNumber> {
        let found = self.find(frames, Key::new(process, page));
        self.conflicts += u64::from(found.is_none() && frames.free_frames() > 0);
        found
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let counts = [
            ("front_yard_pages", self.in_front),
            ("back_yard_pages", self.in_back),
            ("conflicts", self.conflicts),
        ];
        counts.map(|(name, value)| DesignCounter { name, value, is_level: false }).into()
    }
}

#[cfg(test)]
mod tests {
    use octavo_os::Os;
    use octavo_os::frames::MemoryShape;
    use octavo_os::page_table::Format;
    use octavo_types::{AddrRange, Event, MapSource, Protection, VirtAddr};

    use super::*;

    const FRAMES: u64 = 1 << 14;
    const FIRST: u64 = 0x10_0000;

    /// A memory in which a process has stored to so many pages.
    fn populated(pages: u64) -> (Os, ProcessId) {
        let frames = Frames::new(MemoryShape::new(FRAMES, Order::LINUX).unwrap());
        let mut os = Os::new(Memory::new(frames, &[], Format::default()), IcebergConfig {}.build());
        let process = os.spawn().unwrap();
        let range = AddrRange::new(VirtAddr::new(FIRST << 12), pages << 12);
        let (protection, source) = (Protection::from_bits(3), MapSource::Anonymous);
        os.event(process, &Event::Map { range, protection, source, flags: 2 }).unwrap();
        for page in FIRST..FIRST + pages {
            os.fault(process, PageNumber::new(page), octavo_types::Access::Store).unwrap();
        }
        (os, process)
    }

    fn counters(os: &Os) -> [u64; 3] {
        let counters = os.memory().design_counters();
        let value = |name| counters.iter().find(|of| of.name == name).unwrap().value;
        ["front_yard_pages", "back_yard_pages", "conflicts"].map(value)
    }

    #[test]
    fn memory_is_95_percent_full_before_pages_conflict() {
        // Page tables are a part of it.
        let pages = FRAMES * 95 / 100 - 40;
        let (os, process) = populated(pages);
        let used = FRAMES - os.memory().frames.free_frames();
        assert!(used * 100 >= FRAMES * 94, "{used} frames");
        let [front, back, conflicts] = counters(&os);
        assert_eq!((front + back, conflicts), (pages, 0));
        assert!(back * 20 > front, "{front} {back}");
        let buckets = Buckets::of(FRAMES);
        for page in (FIRST..FIRST + pages).map(PageNumber::new) {
            let frame = os.memory().process(process).table.leaf(page).unwrap().frame;
            let key = Key::new(process, page);
            let number = buckets.number(key, frame).expect("a candidate");
            assert_eq!(buckets.frame(key, number), frame);
        }
        assert_eq!(os.memory().check(), Ok(()));
    }

    #[test]
    fn pages_without_a_free_candidate_take_any_frame() {
        let pages = FRAMES - 50;
        let (os, _) = populated(pages);
        let [front, back, conflicts] = counters(&os);
        assert_eq!(front + back + conflicts, pages);
        assert!(conflicts > 0);
        assert_eq!(os.memory().check(), Ok(()));
    }
}
