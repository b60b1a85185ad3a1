//! The restrictive segment: its frames, and the places of its tags and its filter in memory.

use octavo_os::frames::{Frames, Order, Owner};
use octavo_os::page_table::{DesignCounter, Leaf};
use octavo_os::{Placement, ProcessId};
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

/// Frames of a set, whose tags fill a line.
pub const WAYS: u64 = 16;
/// Bytes of a tag.
const TAG_BYTES: u64 = 4;
/// Bytes of the tags of a set.
const SET_BYTES: u64 = WAYS * TAG_BYTES;

/// The restrictive segment of a memory.
pub struct Segment {
    first: FrameNumber,
    sets: u64,
    /// Frames of the tags, and then of the filter.
    tables: [Vec<FrameNumber>; 2],
    pages_placed: u64,
    full_sets: u64,
}

impl Segment {
    /// A segment of so many percent of local memory, at its end. `None` if that is less than a set, or if too few frames
    /// are free for tags and filter.
    pub fn new(percent: u64, frames: &mut Frames) -> Option<Self> {
        let local = frames.buddy().tiers().next().expect("a memory has local memory");
        let sets = local.end * percent / 100 / WAYS;
        let counts = [sets * SET_BYTES, sets].map(|bytes| bytes.div_ceil(PageSize::BASE.bytes()));
        if sets == 0 || frames.free_frames() < counts.iter().sum() {
            return None;
        }
        let tables = counts.map(|count| {
            let frame = |_| frames.allocate(Order::BASE, Owner::DesignTable);
            (0..count).map(frame).collect::<Result<_, _>>().expect("as many frames are free")
        });
        let first = FrameNumber::new(local.end - sets * WAYS);
        frames.set_aside(first.raw()..local.end);
        Some(Segment { first, sets, tables, pages_placed: 0, full_sets: 0 })
    }

    fn set(&self, page: PageNumber) -> u64 {
        page.raw() % self.sets
    }

    /// The frames of the set of a page.
    fn frames(&self, page: PageNumber) -> impl Iterator<Item = FrameNumber> + use<> {
        let start = self.first.plus(self.set(page) * WAYS);
        (0..WAYS).map(move |way| start.plus(way))
    }

    /// Whether a frame of the set of a page has data.
    pub fn has_data(&self, page: PageNumber, frames: &Frames) -> bool {
        self.frames(page).any(|frame| frames.owner(frame) == Some(Owner::Data))
    }

    /// The place in its set of a page; `None` if it is elsewhere.
    pub fn way(&self, page: PageNumber, leaf: &Leaf) -> Option<u64> {
        let mut frames = self.frames(page);
        let way = frames.position(|frame| leaf.size == PageSize::BASE && leaf.frame == frame)?;
        Some(way as u64)
    }

    /// The address of the tag of a frame of the set of a page.
    pub fn tag(&self, page: PageNumber, way: u64) -> PhysAddr {
        self.place(0, self.set(page) * SET_BYTES + way * TAG_BYTES)
    }

    /// The address of the filter of the set of a page.
    pub fn filter(&self, page: PageNumber) -> PhysAddr {
        self.place(1, self.set(page))
    }

    fn place(&self, table: usize, at: u64) -> PhysAddr {
        let frame = self.tables[table][(at / PageSize::BASE.bytes()) as usize];
        PhysAddr::new(frame.start().raw() + at % PageSize::BASE.bytes())
    }
}

impl Placement for Segment {
    fn choose(&mut self, frames: &Frames, _: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        let free = self.frames(page).find(|frame| frames.is_placeable(*frame));
        self.pages_placed += u64::from(free.is_some());
        self.full_sets += u64::from(free.is_none() && frames.free_frames() > 0);
        free
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let counts = [("segment_pages", self.pages_placed), ("full_sets", self.full_sets)];
        counts.map(|(name, value)| DesignCounter { name, value, is_level: false }).into()
    }
}
