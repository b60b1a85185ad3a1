//! Who holds each frame of physical memory.

use std::fmt;

use octavo_types::FrameNumber;

use super::order::Order;

/// What a frame that is not free is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Holder {
    /// It holds data of a simulated process, and is mapped.
    Data,
    /// It holds entries of a page table.
    PageTable,
    /// It was set aside for data that nobody touched yet.
    Reserved,
    /// It holds what a translation design keeps in memory beside the page table.
    Shadow,
    /// It holds what hardware finds in memory by its place: the bitmap of the holes of perforated pages, or
    /// those of chunks.
    HoleBitmap,
    /// It is broken, and nobody gets it.
    Faulty,
    /// It belonged to others before the simulation began.
    Foreign {
        /// Whether compaction may move it.
        movable: bool,
    },
}

impl Holder {
    /// All of them.
    pub const ALL: [Holder; 8] = [
        Holder::Data,
        Holder::PageTable,
        Holder::Reserved,
        Holder::Shadow,
        Holder::Foreign { movable: false },
        Holder::Foreign { movable: true },
        Holder::HoleBitmap,
        Holder::Faulty,
    ];

    /// Whether compaction may move such a frame, if its owner lets it: data, and what is foreign
    /// and movable. Page tables stay, as they do in Linux; so does what is reserved, since a
    /// reservation is worth something only where it is.
    pub const fn is_movable(self) -> bool {
        matches!(self, Holder::Data | Holder::Foreign { movable: true })
    }

    /// Its place in [`Holder::ALL`].
    const fn index(self) -> usize {
        match self {
            Holder::Data => 0,
            Holder::PageTable => 1,
            Holder::Reserved => 2,
            Holder::Shadow => 3,
            Holder::Foreign { movable: false } => 4,
            Holder::Foreign { movable: true } => 5,
            Holder::HoleBitmap => 6,
            Holder::Faulty => 7,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Holder::Data => "data",
            Holder::PageTable => "page tables",
            Holder::Reserved => "reserved",
            Holder::Shadow => "shadow",
            Holder::HoleBitmap => "hole bitmaps",
            Holder::Faulty => "faulty",
            Holder::Foreign { movable: false } => "foreign, not movable",
            Holder::Foreign { movable: true } => "foreign, movable",
        })
    }
}

/// A byte for each frame, which says who holds it, and how many frames each holder has and had.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// [`FREE`], or one more than the holder's place in [`Holder::ALL`].
    entries: Vec<u8>,
    held_frames: [u64; Holder::ALL.len()],
    peak_frames: [u64; Holder::ALL.len()],
}

const FREE: u8 = 0;

impl Ledger {
    /// `frames` frames that nobody holds.
    pub fn new(frames: u64) -> Self {
        let frames = usize::try_from(frames).expect("a ledger fits into memory");
        Ledger {
            entries: vec![FREE; frames],
            held_frames: [0; Holder::ALL.len()],
            peak_frames: [0; Holder::ALL.len()],
        }
    }

    /// Who holds `frame`; `None` where it is free.
    ///
    /// # Panics
    ///
    /// Where memory has no such frame.
    #[inline]
    pub fn holder(&self, frame: FrameNumber) -> Option<Holder> {
        holder_of(self.entries[frame.raw() as usize])
    }

    /// How many frames `holder` has.
    #[inline]
    pub fn held_frames(&self, holder: Holder) -> u64 {
        self.held_frames[holder.index()]
    }

    /// The most frames that `holder` ever had at one time.
    pub fn peak_frames(&self, holder: Holder) -> u64 {
        self.peak_frames[holder.index()]
    }

    /// The most that each ever had is what each has now.
    pub fn restart_peaks(&mut self) {
        self.peak_frames = self.held_frames;
    }

    /// Frames that anybody holds.
    pub fn all_held_frames(&self) -> u64 {
        self.held_frames.iter().sum()
    }

    /// `holder` takes `frames` free frames from `start` on.
    #[inline]
    pub fn take(&mut self, start: FrameNumber, frames: u64, holder: Holder) {
        let entries = self.entries_mut(start, frames);
        debug_assert!(entries.iter().all(|&entry| entry == FREE));
        entries.fill(entry_of(holder));
        self.add(holder, frames);
    }

    /// `frames` frames from `start` on become free, whoever holds them.
    ///
    /// # Panics
    ///
    /// Where one of them is free.
    #[inline]
    pub fn give_back(&mut self, start: FrameNumber, frames: u64) {
        self.subtract(start, frames);
        self.entries_mut(start, frames).fill(FREE);
    }

    /// `frames` frames from `start` on pass to `holder`, whoever holds them.
    ///
    /// # Panics
    ///
    /// Where one of them is free.
    pub fn change(&mut self, start: FrameNumber, frames: u64, holder: Holder) {
        self.subtract(start, frames);
        self.entries_mut(start, frames).fill(entry_of(holder));
        self.add(holder, frames);
    }

    /// Counts the frames anew and compares: the first difference as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let mut counted = [0; Holder::ALL.len()];
        for holder in self.entries.iter().filter_map(|&entry| holder_of(entry)) {
            counted[holder.index()] += 1;
        }
        for holder in Holder::ALL {
            let (at, said) = (counted[holder.index()], self.held_frames(holder));
            if at != said {
                return Err(format!("{holder}: {at} frames, and the count says {said}"));
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
    fn add(&mut self, holder: Holder, frames: u64) {
        let at = holder.index();
        self.held_frames[at] += frames;
        self.peak_frames[at] = self.peak_frames[at].max(self.held_frames[at]);
    }

    /// Takes the frames off the counts of those who hold them.
    #[inline]
    fn subtract(&mut self, start: FrameNumber, frames: u64) {
        let start = start.raw() as usize;
        let entries = &self.entries[start..start + frames as usize];
        for run in entries.chunk_by(|left, right| left == right) {
            let holder = holder_of(run[0]).expect("only frames that somebody holds");
            self.held_frames[holder.index()] -= run.len() as u64;
        }
    }
}

#[inline]
fn holder_of(entry: u8) -> Option<Holder> {
    match entry {
        FREE => None,
        entry => Some(Holder::ALL[usize::from(entry) - 1]),
    }
}

#[inline]
const fn entry_of(holder: Holder) -> u8 {
    holder.index() as u8 + 1
}

/// The frames of a block.
pub fn frames_of(block: FrameNumber, order: Order) -> impl DoubleEndedIterator<Item = FrameNumber> {
    (block.raw()..block.raw() + order.frames()).map(FrameNumber::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_at_its_own_place() {
        for (place, holder) in Holder::ALL.into_iter().enumerate() {
            assert_eq!(holder.index(), place);
            assert_eq!(holder_of(entry_of(holder)), Some(holder));
        }
    }

    #[test]
    fn a_wrong_count_is_told() {
        let mut ledger = Ledger::new(4);
        ledger.take(FrameNumber::new(1), 2, Holder::Data);
        assert_eq!(ledger.check(), Ok(()));
        ledger.held_frames[0] += 1;
        assert_eq!(ledger.check(), Err("data: 2 frames, and the count says 3".to_owned()));
    }
}
