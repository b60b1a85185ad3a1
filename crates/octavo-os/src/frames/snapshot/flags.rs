//! `/proc/kpageflags`: eight bytes of flags for each frame (Linux, `pagemap.rst` and
//! `include/uapi/linux/kernel-page-flags.h`).

use std::io::{self, Read};

use super::runs::{FrameRuns, FrameState, RunsBuilder};
use crate::frames::MemoryShape;

const LRU: u64 = 1 << 5;
const SLAB: u64 = 1 << 7;
const BUDDY: u64 = 1 << 10;
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;
const HUGETLB: u64 = 1 << 17;
const HWPOISON: u64 = 1 << 19;
const NOPAGE: u64 = 1 << 20;
const OFFLINE: u64 = 1 << 23;
const PGTABLE: u64 = 1 << 26;
const RESERVED: u64 = 1 << 32;

/// Classifies frames in order.
#[derive(Debug)]
pub struct Classifier {
    /// The state of the last compound head: older kernels give its tails no flags.
    head: FrameState,
}

impl Default for Classifier {
    fn default() -> Self {
        Classifier { head: FrameState::Fixed }
    }
}

impl Classifier {
    /// Classifies the next frame. Frames on a reclaim list (LRU) hold program data or files, which Linux can
    /// move. Frames without flags belong to drivers or per-processor lists, and are unmovable.
    pub fn classify(&mut self, flags: u64) -> FrameState {
        if flags & (NOPAGE | OFFLINE) != 0 {
            return FrameState::Absent;
        }
        if flags & BUDDY != 0 {
            return FrameState::Free;
        }
        if flags & COMPOUND_TAIL != 0 {
            return self.head;
        }
        let fixed = flags & (SLAB | HUGETLB | HWPOISON | PGTABLE | RESERVED) != 0;
        let state =
            if !fixed && flags & LRU != 0 { FrameState::Movable } else { FrameState::Fixed };
        if flags & COMPOUND_HEAD != 0 {
            self.head = state;
        }
        state
    }
}

/// Reads the flags of all frames. Movable frames in `process` (sorted) are marked as the process's. `memory` is
/// the sorted ranges of frames that are memory, if known: newer kernels report no flags for other frames, nor
/// for frames of drivers.
pub fn read_flags(
    mut flags: impl Read,
    process: &[u64],
    memory: &[(u64, u64)],
) -> io::Result<FrameRuns> {
    let mut runs = RunsBuilder::default();
    let mut classifier = Classifier::default();
    let mut process = process.iter().copied().peekable();
    let knows_memory = !memory.is_empty();
    let mut memory = memory.iter().copied().peekable();
    let mut buffer = vec![0; 1 << 18];
    let mut frame = 0u64;
    loop {
        let read = read_words(&mut flags, &mut buffer)?;
        if read.is_empty() {
            return Ok(runs.finish());
        }
        for word in read {
            if frame == MemoryShape::MAX_FRAMES {
                return Ok(runs.finish());
            }
            while process.next_if(|&mapped| mapped < frame).is_some() {}
            while memory.next_if(|&(_, end)| end <= frame).is_some() {}
            let is_memory = memory.peek().is_some_and(|&(start, _)| start <= frame);
            let of_process = process.peek() == Some(&frame);
            runs.push(match classifier.classify(u64::from_le_bytes(*word)) {
                FrameState::Fixed if knows_memory && !is_memory => FrameState::Absent,
                FrameState::Movable if of_process => FrameState::Process,
                state => state,
            });
            frame += 1;
        }
    }
}

/// Fills `buffer` with whole words, up to the end of the input.
pub fn read_words<'a>(from: &mut impl Read, buffer: &'a mut [u8]) -> io::Result<&'a [[u8; 8]]> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(buffer[..filled].as_chunks().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_classify_frames() {
        let uptodate = 1 << 3;
        let anonymous = 1 << 12;
        let flags = [
            (RESERVED, FrameState::Fixed),
            (BUDDY, FrameState::Free),
            (NOPAGE, FrameState::Absent),
            (LRU | uptodate, FrameState::Movable),
            (LRU | anonymous, FrameState::Process), // of the process, below
            (SLAB | COMPOUND_HEAD, FrameState::Fixed),
            (COMPOUND_TAIL, FrameState::Fixed),
            (LRU | COMPOUND_HEAD, FrameState::Movable),
            (COMPOUND_TAIL, FrameState::Movable),
            (COMPOUND_TAIL, FrameState::Process),
            (HUGETLB | COMPOUND_HEAD | LRU, FrameState::Fixed),
            (HUGETLB | COMPOUND_TAIL, FrameState::Fixed), // mapped, and stays nevertheless
            (PGTABLE, FrameState::Fixed),
            (0, FrameState::Fixed),
            (OFFLINE, FrameState::Absent),
        ];
        let bytes: Vec<u8> = flags.iter().flat_map(|(word, _)| u64::to_le_bytes(*word)).collect();
        let states = |memory: &[(u64, u64)]| -> Vec<FrameState> {
            let runs = read_flags(&bytes[..], &[1, 4, 9, 11, 70], memory).unwrap();
            runs.iter().flat_map(|(state, length)| vec![state; length as usize]).collect()
        };
        let mut expected: Vec<FrameState> = flags.iter().map(|(_, state)| *state).collect();
        expected.pop();
        assert_eq!(states(&[]), expected, "what is absent at the end is left out");
        // Free or movable frames are memory, even outside the listed ranges.
        for hole in [0, 5, 6] {
            expected[hole] = FrameState::Absent;
        }
        expected.truncate(12);
        assert_eq!(states(&[(1, 3), (3, 4), (7, 12)]), expected);
    }
}
