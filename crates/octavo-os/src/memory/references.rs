//! How many page tables and objects hold each frame.

use octavo_types::FrameNumber;

/// References to frames, beside the first one that every frame in use has.
pub(super) struct References {
    /// For each frame; most of it is never touched, and takes no memory.
    others: Vec<u32>,
    /// How many frames have others.
    shared_frames: u64,
}

impl References {
    /// No frame of `frames` has others.
    pub fn new(frames: u64) -> Self {
        let frames = usize::try_from(frames).expect("references fit into memory");
        References { others: vec![0; frames], shared_frames: 0 }
    }

    /// One more.
    #[inline]
    pub fn add(&mut self, frame: FrameNumber) {
        let others = &mut self.others[frame.raw() as usize];
        self.shared_frames += u64::from(*others == 0);
        *others += 1;
    }

    /// One less. Returns whether there is another one, so that the frame stays.
    #[inline]
    pub fn give_up(&mut self, frame: FrameNumber) -> bool {
        let others = &mut self.others[frame.raw() as usize];
        if *others == 0 {
            return false;
        }
        *others -= 1;
        self.shared_frames -= u64::from(*others == 0);
        true
    }

    /// How many there are beside the first.
    #[inline]
    pub fn others(&self, frame: FrameNumber) -> u32 {
        self.others[frame.raw() as usize]
    }

    /// Frames that have others.
    #[inline]
    pub fn shared_frames(&self) -> u64 {
        self.shared_frames
    }
}
