//! The state of every frame, as runs of equal frames.

use super::error::SnapshotError;
use crate::frames::MemoryShape;

/// The state of a frame of the captured machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameState {
    /// In a free block of the allocator.
    Free,
    /// No memory: a hole in the machine's physical addresses, or offline memory.
    Absent,
    /// In use and unmovable: kernel memory, page tables, hugetlb pages.
    Fixed,
    /// In use and movable: program data and files.
    Movable,
    /// [`Movable`](FrameState::Movable), and mapped by the captured process.
    Process,
}

impl FrameState {
    /// All states; the index of a state is its number in the file.
    pub const ALL: [FrameState; 5] = [
        FrameState::Free,
        FrameState::Absent,
        FrameState::Fixed,
        FrameState::Movable,
        FrameState::Process,
    ];

    /// Its name in the results.
    pub fn name(self) -> &'static str {
        match self {
            FrameState::Free => "free",
            FrameState::Absent => "absent",
            FrameState::Fixed => "fixed",
            FrameState::Movable => "movable",
            FrameState::Process => "process",
        }
    }
}

/// The states of all frames from 0. Each run is a LEB128 number: eight times its length, plus its state. No
/// run is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FrameRuns {
    bytes: Vec<u8>,
    frames: u64,
}

const STATE_BITS: u32 = 3;

impl FrameRuns {
    /// Maximum encoded size in bytes.
    pub const MAX_BYTES: usize = 256 << 20;

    /// Decodes the runs of a file. Rejects anything but runs of known states, and more frames than a memory
    /// may have.
    pub fn read(bytes: Vec<u8>) -> Result<Self, SnapshotError> {
        let mut frames = 0u64;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (state, length) = take_run(&mut rest)
                .ok_or(SnapshotError::Runs("one of its runs is cut or of an unknown state"))?;
            if length == 0 {
                return Err(SnapshotError::Runs("one of its runs is empty"));
            }
            debug_assert!((state as usize) < FrameState::ALL.len());
            frames = frames.saturating_add(length);
        }
        if frames == 0 || frames > MemoryShape::MAX_FRAMES {
            return Err(SnapshotError::Runs("its runs are not 1 to 1073741824 frames (4 TiB)"));
        }
        Ok(FrameRuns { bytes, frames })
    }

    /// The encoded runs.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The runs, by address.
    pub fn iter(&self) -> impl Iterator<Item = (FrameState, u64)> + '_ {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || take_run(&mut rest))
    }
}

/// The first run of `rest`; `None` if malformed.
fn take_run(rest: &mut &[u8]) -> Option<(FrameState, u64)> {
    let mut number = 0u64;
    for shift in (0..63).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            let state = *FrameState::ALL.get(number as usize & ((1 << STATE_BITS) - 1))?;
            return Some((state, number >> STATE_BITS));
        }
    }
    None
}

/// Collects consecutive frames into runs.
#[derive(Debug, Default)]
pub struct RunsBuilder {
    runs: FrameRuns,
    last: Option<(FrameState, u64)>,
}

impl RunsBuilder {
    /// Appends a frame.
    pub fn push(&mut self, state: FrameState) {
        match &mut self.last {
            Some((last, length)) if *last == state => *length += 1,
            _ => {
                self.write();
                self.last = Some((state, 1));
            }
        }
    }

    /// All frames, without absent ones at the end.
    pub fn finish(mut self) -> FrameRuns {
        if self.last.is_some_and(|(state, _)| state != FrameState::Absent) {
            self.write();
        }
        self.runs
    }

    fn write(&mut self) {
        let Some((state, length)) = self.last.take() else { return };
        self.runs.frames += length;
        let mut number = length << STATE_BITS | state as u64;
        while number >= 0x80 {
            self.runs.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.runs.bytes.push(number as u8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn frame_runs_round_trip(runs in vec((0usize..5, 1u64..5000), 0..60)) {
            let mut builder = RunsBuilder::default();
            let mut states = Vec::new();
            for (state, length) in runs {
                for _ in 0..length {
                    builder.push(FrameState::ALL[state]);
                    states.push(FrameState::ALL[state]);
                }
            }
            while states.last() == Some(&FrameState::Absent) {
                states.pop();
            }
            let runs = builder.finish();
            prop_assert_eq!(runs.frames(), states.len() as u64);
            let expanded: Vec<_> = runs
                .iter()
                .flat_map(|(state, length)| std::iter::repeat_n(state, length as usize))
                .collect();
            prop_assert!(expanded == states);
            let again = FrameRuns::read(runs.bytes().to_vec());
            prop_assert_eq!(again.ok(), (!states.is_empty()).then_some(runs));
        }

        /// Any bytes are read to their end or rejected.
        #[test]
        fn arbitrary_bytes_are_read_or_rejected(bytes in vec(any::<u8>(), 0..40)) {
            if let Ok(runs) = FrameRuns::read(bytes) {
                let frames: u64 = runs.iter().map(|(_, length)| length).sum();
                prop_assert_eq!(frames, runs.frames());
                prop_assert!((1..=MemoryShape::MAX_FRAMES).contains(&frames));
            }
        }
    }

    #[test]
    fn invalid_runs_are_rejected_with_one_sentence() {
        let refused = |bytes: &[u8]| FrameRuns::read(bytes.to_vec()).unwrap_err().to_string();
        assert!(refused(&[0x80]).contains("cut"));
        assert!(refused(&[0x0f]).contains("unknown state"));
        assert!(refused(&[0x00]).contains("empty"));
        assert!(refused(&[0xff; 12]).contains("cut"));
        assert!(refused(&[]).contains("1 to 1073741824 frames"));
        assert!(refused(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]).contains("1 to 1073741824 frames"));
    }
}
