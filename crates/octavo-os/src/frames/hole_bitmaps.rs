//! The bitmap of holes (paper 004, Section IV-B): reserved physical memory with one bit for each base
//! frame of the machine, so that where the bits of a page are follows from where the page lies. The 512
//! bits of a 2 MiB region are one line of 64 bytes. It takes 0.003% of memory.
//!
//! A bit is the frame's, not that of a page that is mapped there: where several address spaces map one
//! region as a perforated page, a bit is set as long as one of them has a hole there. (Those that have
//! none map the frame by an entry of their own.) So holes are counted here.

use octavo_types::{FrameNumber, PhysAddr};
use rustc_hash::FxHashMap;

use super::memory::Frames;
use super::order::Order;
use super::tables::FRAMES_OF_FRAME;

/// Bits of a region: those of its base frames.
const REGION: u64 = Order::HUGE.frames();

/// The bits, and where they lie.
#[derive(Clone, Debug, Default)]
pub struct HoleBitmaps {
    /// Where the bit of frame 0 is; none where no memory is reserved.
    start: Option<FrameNumber>,
    /// By region, how many perforated pages have a hole at each frame. Those without any are not there.
    holes: FxHashMap<u64, Box<[u16; REGION as usize]>>,
}

impl HoleBitmaps {
    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        self.start.is_some()
    }

    /// Where the line is that holds the bits of the region of a frame.
    ///
    /// # Panics
    /// Where no memory is reserved.
    pub fn line_of(&self, frame: FrameNumber) -> PhysAddr {
        let start = self.start.expect("memory is reserved for bitmaps").start().raw();
        PhysAddr::new(start + frame.raw() / REGION * (REGION / 8))
    }

    /// Whether the bit of a frame is set.
    pub fn is_hole(&self, frame: FrameNumber) -> bool {
        self.count(frame) > 0
    }

    /// How many perforated pages have a hole at a frame.
    pub fn count(&self, frame: FrameNumber) -> u16 {
        let of = self.holes.get(&(frame.raw() / REGION));
        of.map_or(0, |holes| holes[(frame.raw() % REGION) as usize])
    }

    /// The 32 bits around that of a frame, the first frame's in the lowest bit.
    pub fn word(&self, frame: FrameNumber) -> u32 {
        let Some(holes) = self.holes.get(&(frame.raw() / REGION)) else { return 0 };
        let first = (frame.raw() % REGION) as usize & !31;
        let bit = |at: usize| u32::from(holes[first + at] > 0) << at;
        (0..32).map(bit).sum()
    }

    /// A perforated page has a hole at a frame from now on.
    pub(crate) fn add(&mut self, frame: FrameNumber) {
        let holes = self.holes.entry(frame.raw() / REGION);
        let count = &mut holes.or_insert_with(|| Box::new([0; REGION as usize]))
            [(frame.raw() % REGION) as usize];
        *count += 1;
    }

    /// A perforated page has no hole at a frame any more.
    ///
    /// # Panics
    /// Where it had none.
    pub(crate) fn remove(&mut self, frame: FrameNumber) {
        let region = frame.raw() / REGION;
        let holes = self.holes.get_mut(&region).expect("a region with holes");
        let count = &mut holes[(frame.raw() % REGION) as usize];
        *count = count.checked_sub(1).expect("a hole");
        if *count == 0 && holes.iter().all(|count| *count == 0) {
            self.holes.remove(&region);
        }
    }

    /// All holes, each as often as it is counted.
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

impl Frames {
    /// Takes the frames that hold the bitmap of holes: the last of memory, whoever has them, as it is
    /// there from the start. Done once.
    pub fn reserve_hole_bitmaps(&mut self) {
        if self.holes.are_there() {
            return;
        }
        let frames = self.shape().frames().div_ceil(FRAMES_OF_FRAME);
        self.holes.start = Some(self.reserve_last(frames));
    }

    /// The bitmap of holes.
    pub fn hole_bitmaps(&self) -> &HoleBitmaps {
        &self.holes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Holder, MemoryShape};

    fn frame(raw: u64) -> FrameNumber {
        FrameNumber::new(raw)
    }

    #[test]
    fn bitmaps_take_one_bit_a_frame_of_the_end_of_memory() {
        // 12 GiB and a frame.
        let shape = MemoryShape::new(3 << 20 | 1, Order::LINUX).unwrap();
        let mut frames = Frames::new(shape);
        frames.reserve_hole_bitmaps();
        frames.reserve_hole_bitmaps();
        let taken = frames.used_frames(Holder::HoleBitmap);
        assert_eq!(taken, 97);
        assert!(taken as f64 / (shape.frames() as f64) < 0.000_031, "0.003%");
        let bitmaps = frames.hole_bitmaps();
        assert_eq!(bitmaps.line_of(frame(511)).raw(), (shape.frames() - 97) << 12);
        assert_eq!(bitmaps.line_of(frame(512)).raw(), ((shape.frames() - 97) << 12) + 64);
        assert_eq!(bitmaps.line_of(frame(3 << 20)).frame(), frame(shape.frames() - 1));
        assert_eq!(frames.check(), Ok(()));
    }

    #[test]
    fn a_bit_is_set_as_long_as_anybody_has_a_hole_there() {
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
