//! Reference counts of frames.

use octavo_types::FrameNumber;

/// References to frames, in addition to the first one of every used frame.
pub(super) struct References {
    /// Extra references of each frame; mostly untouched memory.
    others: Vec<u32>,
    /// Number of frames with extra references.
    shared_frames: u64,
}

impl References {
    /// No extra references to `frames` frames.
    pub fn new(frames: u64) -> Self {
        let frames = usize::try_from(frames).expect("references fit into memory");
        References { others: vec![0; frames], shared_frames: 0 }
    }

    /// Adds a reference.
    #[inline]
    pub fn add(&mut self, frame: FrameNumber) {
        let others = &mut self.others[frame.raw() as usize];
        self.shared_frames += u64::from(*others == 0);
        *others += 1;
    }

    /// Drops a reference. Returns whether another one remains.
    #[inline]
    pub fn drop_reference(&mut self, frame: FrameNumber) -> bool {
        let others = &mut self.others[frame.raw() as usize];
        if *others == 0 {
            return false;
        }
        *others -= 1;
        self.shared_frames -= u64::from(*others == 0);
        true
    }

    /// The number of extra references.
    #[inline]
    pub fn extra(&self, frame: FrameNumber) -> u32 {
        self.others[frame.raw() as usize]
    }

    /// Number of frames with extra references.
    #[inline]
    pub fn shared_frames(&self) -> u64 {
        self.shared_frames
    }
}
