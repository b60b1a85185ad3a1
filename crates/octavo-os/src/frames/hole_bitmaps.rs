//! The hole bitmap of pages with holes (Park et al., ISCA 2020, Section IV-B): reserved physical memory with
//! one bit per base frame of the machine, so that the location of a page's bits follows from its frame. The
//! 512 bits of a 2 MiB region fill one line of 64 bytes. It takes 0.003% of memory.
//!
//! A bit belongs to a frame, not to a page mapped there: if several address spaces map a region as a
//! page with holes, a bit is set while any of them has a hole there. (Address spaces without the hole map the
//! frame by a base-page entry.) Holes are therefore counted.

use octavo_types::{FrameNumber, PhysAddr};
use rustc_hash::FxHashMap;

use super::order::Order;

/// Frames whose hole bits fit into one frame: one bit each.
pub(super) const FRAMES_OF_FRAME: u64 = 4096 * 8;
/// Bits of a region: one per base frame.
const REGION: u64 = Order::HUGE.frames();

/// The hole bitmap and its location.
#[derive(Clone, Debug, Default)]
pub struct HoleBitmaps {
    /// The first frame of the bitmap; `None` if no memory is reserved.
    pub(super) start: Option<FrameNumber>,
    /// By region: the number of pages with a hole at each frame. Regions without holes are absent.
    holes: FxHashMap<u64, Box<[u16; REGION as usize]>>,
}

impl HoleBitmaps {
    /// Whether memory is reserved for the bitmap.
    pub fn are_reserved(&self) -> bool {
        self.start.is_some()
    }

    /// The physical address of the line with the bits of the region of a frame.
    ///
    /// # Panics
    /// If no memory is reserved.
    pub fn line_of(&self, frame: FrameNumber) -> PhysAddr {
        let start = self.start.expect("memory is reserved for bitmaps").start().raw();
        PhysAddr::new(start + frame.raw() / REGION * (REGION / 8))
    }

    /// Whether the bit of a frame is set.
    pub fn is_hole(&self, frame: FrameNumber) -> bool {
        self.count(frame) > 0
    }

    /// The number of pages with a hole at a frame.
    pub fn count(&self, frame: FrameNumber) -> u16 {
        let region = self.holes.get(&(frame.raw() / REGION));
        region.map_or(0, |holes| holes[(frame.raw() % REGION) as usize])
    }

    /// The aligned 32 bits around the bit of a frame, the first frame in the lowest bit.
    pub fn word(&self, frame: FrameNumber) -> u32 {
        let Some(holes) = self.holes.get(&(frame.raw() / REGION)) else { return 0 };
        let first = (frame.raw() % REGION) as usize & !31;
        let bit = |at: usize| u32::from(holes[first + at] > 0) << at;
        (0..32).map(bit).sum()
    }

    /// Counts a hole of a page with holes at a frame.
    pub(crate) fn add(&mut self, frame: FrameNumber) {
        let holes = self.holes.entry(frame.raw() / REGION);
        let count = &mut holes.or_insert_with(|| Box::new([0; REGION as usize]))
            [(frame.raw() % REGION) as usize];
        *count += 1;
    }

    /// Counts one hole less at a frame.
    ///
    /// # Panics
    /// If no hole is counted.
    pub(crate) fn remove(&mut self, frame: FrameNumber) {
        let region = frame.raw() / REGION;
        let holes = self.holes.get_mut(&region).expect("a region with holes");
        let count = &mut holes[(frame.raw() % REGION) as usize];
        *count = count.checked_sub(1).expect("a hole");
        if *count == 0 && holes.iter().all(|count| *count == 0) {
            self.holes.remove(&region);
        }
    }

    /// All holes, with their counts.
    pub fn counted(&self) -> FxHashMap<FrameNumber, u16> {
        let mut counted = FxHashMap::default();
        for (region, holes) in &self.holes {
            let first = FrameNumber::new(region * REGION);
            let numbered = (0..REGION).map(|at| first.plus(at)).zip(holes.iter().copied());
            counted.extend(numbered.filter(|(_, count)| *count > 0));
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Frames, MemoryShape, Owner};

    fn frame(raw: u64) -> FrameNumber {
        FrameNumber::new(raw)
    }

    #[test]
    fn hole_bitmap_reserves_one_bit_per_frame_at_the_end() {
        // 12 GiB and a frame.
        let shape = MemoryShape::new(3 << 20 | 1, Order::LINUX).unwrap();
        let mut frames = Frames::new(shape);
        frames.reserve_hole_bitmaps();
        frames.reserve_hole_bitmaps();
        let taken = frames.used_frames(Owner::HoleBitmap);
        assert_eq!(taken, 97);
        assert!(taken as f64 / (shape.frames() as f64) < 0.000_031, "0.003%");
        let bitmaps = frames.hole_bitmaps();
        assert_eq!(bitmaps.line_of(frame(511)).raw(), (shape.frames() - 97) << 12);
        assert_eq!(bitmaps.line_of(frame(512)).raw(), ((shape.frames() - 97) << 12) + 64);
        assert_eq!(bitmaps.line_of(frame(3 << 20)).frame(), frame(shape.frames() - 1));
        assert_eq!(frames.check(), Ok(()));
    }

    #[test]
    fn bit_stays_set_until_the_last_hole_is_removed() {
        let mut bitmaps = HoleBitmaps::default();
        for at in [1000, 1000, 1023] {
            bitmaps.add(frame(at));
        }
        assert_eq!((bitmaps.word(frame(1001)), bitmaps.word(frame(960))), (1 << 31 | 1 << 8, 0));
        bitmaps.remove(frame(1000));
        assert!(bitmaps.is_hole(frame(1000)));
        bitmaps.remove(frame(1000));
        assert!(!bitmaps.is_hole(frame(1000)) && bitmaps.is_hole(frame(1023)));
        bitmaps.remove(frame(1023));
        assert!(!bitmaps.is_hole(frame(1023)) && bitmaps.counted().is_empty());
    }
}
