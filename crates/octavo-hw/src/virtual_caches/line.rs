//! What a virtual cache holds of a line beside its tag.

use octavo_types::FrameNumber;

/// The bits of a line: whether it may be stored to, whether it was, and the frame that it was loaded
/// from. (Section 4.2: "modification and protection bits are kept with each cache line"; the frame is
/// what section 5.3 calls keeping the translation with the line. It is here always, so that write-backs
/// can be checked; whether the hardware has it is the affair of whoever counts.)
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

    /// The same, dirty or clean.
    #[inline(always)]
    pub const fn with_dirty(self, is_dirty: bool) -> Self {
        Line(self.0 & !DIRTY | if is_dirty { DIRTY } else { 0 })
    }

    /// The same, with or without the right to be stored to.
    #[inline(always)]
    pub const fn with_rights(self, may_store: bool) -> Self {
        Line(self.0 & !MAY_STORE | may_store as u64)
    }

    /// Whether it may be stored to.
    #[inline(always)]
    pub const fn may_store(self) -> bool {
        self.0 & MAY_STORE != 0
    }

    /// Whether memory, or the level behind, does not have what was stored to it.
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
