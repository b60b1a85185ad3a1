//! The ledger: the owner of each frame of physical memory.

use std::fmt;

use octavo_types::FrameNumber;

use super::order::Order;

/// The use of an allocated frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// Mapped data of a simulated process.
    Data,
    /// A page-table node.
    PageTable,
    /// Reserved for data that has not been touched yet.
    Reserved,
    /// A structure of a translation design besides the page table, such as a shadow node.
    Shadow,
    /// A bitmap that hardware finds by its fixed location: the hole bitmap of pages with holes, or chunk
    /// bitmaps.
    HoleBitmap,
    /// A table of a translation design, [reserved](super::Frames::reserve_for_design) at the start.
    DesignTable,
    /// [Set aside](super::Frames::set_aside) for pages whose frames a placement chooses.
    SetAside,
    /// Faulty, and never allocated.
    Faulty,
    /// Background memory: in use since before the simulation.
    Background {
        /// Whether compaction may move it.
        movable: bool,
    },
}

impl Owner {
    /// All owners.
    pub const ALL: [Owner; 10] = [
        Owner::Data,
        Owner::PageTable,
        Owner::Reserved,
        Owner::Shadow,
        Owner::Background { movable: false },
        Owner::Background { movable: true },
        Owner::HoleBitmap,
        Owner::Faulty,
        Owner::DesignTable,
        Owner::SetAside,
    ];

    /// Whether compaction may move such a frame: data, if its relocator allows, and movable background
    /// memory. Page tables stay, as in Linux; so do reserved frames, since a reservation depends on its
    /// location.
    pub const fn is_movable(self) -> bool {
        matches!(self, Owner::Data | Owner::Background { movable: true })
    }

    /// Its index in [`Owner::ALL`].
    const fn index(self) -> usize {
        match self {
            Owner::Data => 0,
            Owner::PageTable => 1,
            Owner::Reserved => 2,
            Owner::Shadow => 3,
            Owner::Background { movable: false } => 4,
            Owner::Background { movable: true } => 5,
            Owner::HoleBitmap => 6,
            Owner::Faulty => 7,
            Owner::DesignTable => 8,
            Owner::SetAside => 9,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Owner::Data => "data",
            Owner::PageTable => "page tables",
            Owner::Reserved => "reserved",
            Owner::Shadow => "shadow",
            Owner::HoleBitmap => "hole bitmaps",
            Owner::DesignTable => "design tables",
            Owner::SetAside => "set aside",
            Owner::Faulty => "faulty",
            Owner::Background { movable: false } => "foreign, not movable",
            Owner::Background { movable: true } => "foreign, movable",
        })
    }
}

/// The owner of each frame, and the order of the block in which it was allocated, in one byte; and current and peak
/// frame counts by owner.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// [`FREE`] or [`FREED`], or one more than the index in [`Owner::ALL`], with the order (at most 15) in the upper
    /// bits.
    entries: Vec<u8>,
    owned_frames: [u64; Owner::ALL.len()],
    peak_frames: [u64; Owner::ALL.len()],
}

/// A free frame without data.
const FREE: u8 = 0;
/// A free frame with data of its last owner.
const FREED: u8 = 1 << ORDER_SHIFT;
const ORDER_SHIFT: u32 = 4;
const OWNER_MASK: u8 = (1 << ORDER_SHIFT) - 1;

impl Ledger {
    /// A ledger of `frames` free frames.
    pub fn new(frames: u64) -> Self {
        let frames = usize::try_from(frames).expect("a ledger fits into memory");
        Ledger {
            entries: vec![FREE; frames],
            owned_frames: [0; Owner::ALL.len()],
            peak_frames: [0; Owner::ALL.len()],
        }
    }

    /// The owner of `frame`; `None` if it is free.
    ///
    /// # Panics
    ///
    /// If memory has no such frame.
    #[inline]
    pub fn owner(&self, frame: FrameNumber) -> Option<Owner> {
        owner_of(self.entries[frame.raw() as usize])
    }

    /// The order of the block that an allocated frame was allocated in, at most 15.
    pub fn order(&self, frame: FrameNumber) -> u8 {
        self.entries[frame.raw() as usize] >> ORDER_SHIFT
    }

    /// The current number of frames of `owner`.
    #[inline]
    pub fn owned_frames(&self, owner: Owner) -> u64 {
        self.owned_frames[owner.index()]
    }

    /// The peak number of frames of an owner.
    pub fn peak_frames(&self, owner: Owner) -> u64 {
        self.peak_frames[owner.index()]
    }

    /// Resets the peaks to the current counts.
    pub fn reset_peaks(&mut self) {
        self.peak_frames = self.owned_frames;
    }

    /// Number of allocated frames.
    pub fn allocated_frames(&self) -> u64 {
        self.owned_frames.iter().sum()
    }

    /// Assigns `frames` free frames from `start` on to `owner`, as one block if their number is a power of two.
    #[inline]
    pub fn assign(&mut self, start: FrameNumber, frames: u64, owner: Owner) {
        let entries = self.entries_mut(start, frames);
        debug_assert!(entries.iter().all(|&entry| owner_of(entry).is_none()));
        let order = frames.ilog2().min(u32::from(u8::MAX >> ORDER_SHIFT)) as u8;
        entries.fill(entry_of(owner) | order << ORDER_SHIFT);
        self.add(owner, frames);
    }

    /// Frees `frames` frames from `start` on, regardless of their owners.
    ///
    /// # Panics
    ///
    /// If one of them is free.
    #[inline]
    pub fn release(&mut self, start: FrameNumber, frames: u64) {
        self.subtract(start, frames);
        self.entries_mut(start, frames).fill(FREED);
    }

    /// Whether `frames` frames from `start` on are free and clear: never held, or cleared since.
    pub fn is_clear(&self, start: FrameNumber, frames: u64) -> bool {
        let start = start.raw() as usize;
        self.entries[start..start + frames as usize].iter().all(|&entry| entry == FREE)
    }

    /// Records that `frames` free frames from `start` on have been cleared.
    pub fn mark_clear(&mut self, start: FrameNumber, frames: u64) {
        let entries = self.entries_mut(start, frames);
        debug_assert!(entries.iter().all(|&entry| owner_of(entry).is_none()));
        entries.fill(FREE);
    }

    /// Assigns `frames` allocated frames from `start` on to `owner`.
    ///
    /// # Panics
    ///
    /// If one of them is free.
    pub fn change(&mut self, start: FrameNumber, frames: u64, owner: Owner) {
        self.subtract(start, frames);
        for entry in self.entries_mut(start, frames) {
            *entry = *entry & !OWNER_MASK | entry_of(owner);
        }
        self.add(owner, frames);
    }

    /// Recounts the frames. Returns the first difference as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let mut counted = [0; Owner::ALL.len()];
        for owner in self.entries.iter().filter_map(|&entry| owner_of(entry)) {
            counted[owner.index()] += 1;
        }
        for owner in Owner::ALL {
            let (frames, recorded) = (counted[owner.index()], self.owned_frames(owner));
            if frames != recorded {
                return Err(format!("{owner}: {frames} frames, but {recorded} counted"));
            }
        }
        Ok(())
    }

    #[inline]
    fn entries_mut(&mut self, start: FrameNumber, frames: u64) -> &mut [u8] {
        let start = start.raw() as usize;
        &mut self.entries[start..start + frames as usize]
    }

    #[inline]
    fn add(&mut self, owner: Owner, frames: u64) {
        let at = owner.index();
        self.owned_frames[at] += frames;
        self.peak_frames[at] = self.peak_frames[at].max(self.owned_frames[at]);
    }

    /// Subtracts the frames from the counts of their owners.
    #[inline]
    fn subtract(&mut self, start: FrameNumber, frames: u64) {
        let start = start.raw() as usize;
        let entries = &self.entries[start..start + frames as usize];
        for run in entries.chunk_by(|left, right| left == right) {
            let owner = owner_of(run[0]).expect("an allocated frame");
            self.owned_frames[owner.index()] -= run.len() as u64;
        }
    }
}

#[inline]
fn owner_of(entry: u8) -> Option<Owner> {
    match entry & OWNER_MASK {
        0 => None,
        owner => Some(Owner::ALL[usize::from(owner) - 1]),
    }
}

#[inline]
const fn entry_of(owner: Owner) -> u8 {
    owner.index() as u8 + 1
}

/// The frames of a block.
pub fn frames_of(block: FrameNumber, order: Order) -> impl DoubleEndedIterator<Item = FrameNumber> {
    (block.raw()..block.raw() + order.frames()).map(FrameNumber::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_index_matches_its_position() {
        for (place, owner) in Owner::ALL.into_iter().enumerate() {
            assert_eq!(owner.index(), place);
            assert_eq!(owner_of(entry_of(owner)), Some(owner));
        }
    }

    #[test]
    fn freed_frames_are_clear_once_they_have_been_cleared() {
        let mut ledger = Ledger::new(4);
        let (first, second) = (FrameNumber::new(0), FrameNumber::new(1));
        assert!(ledger.is_clear(first, 4));
        ledger.assign(second, 2, Owner::Data);
        assert!(!ledger.is_clear(first, 4));
        ledger.release(second, 2);
        assert_eq!((ledger.owner(second), ledger.is_clear(first, 4)), (None, false));
        ledger.mark_clear(second, 1);
        assert_eq!((ledger.is_clear(first, 2), ledger.is_clear(first, 4)), (true, false));
        ledger.assign(first, 4, Owner::Data);
        assert_eq!(ledger.check(), Ok(()));
    }

    #[test]
    fn check_reports_a_wrong_count() {
        let mut ledger = Ledger::new(4);
        ledger.assign(FrameNumber::new(1), 2, Owner::Data);
        assert_eq!(ledger.check(), Ok(()));
        ledger.owned_frames[0] += 1;
        assert_eq!(ledger.check(), Err("data: 2 frames, but 3 counted".to_owned()));
    }
}
