//! The state of a line of a virtual cache, besides its tag.

use octavo_types::FrameNumber;

/// A line: store permission, dirty bit, and the frame it was loaded from. (Section 4.2: "modification and
/// protection bits are kept with each cache line"; with the frame, the line keeps its translation as in
/// section 5.3. The frame is always present, so that write-backs can be checked; callers decide whether the
/// hardware has it.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Line(u64);

const MAY_STORE: u64 = 1;
const DIRTY: u64 = 2;
const FRAME_SHIFT: u32 = 2;

impl Line {
    /// A clean line of a frame.
    #[inline(always)]
    pub const fn new(frame: FrameNumber, may_store: bool) -> Self {
        Line(frame.raw() << FRAME_SHIFT | may_store as u64)
    }

    /// The line with this dirty bit.
    #[inline(always)]
    pub const fn with_dirty(self, is_dirty: bool) -> Self {
        Line(self.0 & !DIRTY | if is_dirty { DIRTY } else { 0 })
    }

    /// The line with this store permission.
    #[inline(always)]
    pub const fn with_rights(self, may_store: bool) -> Self {
        Line(self.0 & !MAY_STORE | may_store as u64)
    }

    /// Whether it has store permission.
    #[inline(always)]
    pub const fn may_store(self) -> bool {
        self.0 & MAY_STORE != 0
    }

    /// Whether it holds data that the next level does not have.
    #[inline(always)]
    pub const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// The base frame that it was loaded from.
    #[inline(always)]
    pub const fn frame(self) -> FrameNumber {
        FrameNumber::new(self.0 >> FRAME_SHIFT)
    }
}
