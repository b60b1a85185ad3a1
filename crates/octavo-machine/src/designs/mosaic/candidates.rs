//! The candidate frames of a page, in a few buckets that hashes of the page choose. A compressed frame number names one
//! of them in seven bits.

use octavo_os::ProcessId;
use octavo_trace::splitmix;
use octavo_types::{FrameNumber, PageNumber};

/// Frames of a bucket, side by side: those of its front yard, and then those of its back yard.
pub const BUCKET: u64 = 64;
/// Frames of a front yard.
pub const FRONT: u64 = 56;
/// Frames of a back yard.
pub const BACK: u64 = BUCKET - FRONT;
/// Back yards that a page may be in.
pub const CHOICES: u64 = 6;

/// The bit of a compressed frame number that is set for a back yard. The others are the place in the front yard, or the
/// choice of a back yard and the place in it.
const IN_BACK_YARD: u8 = 1 << 6;

/// The buckets of a memory. Frames behind the last whole bucket are in none.
#[derive(Clone, Copy, Debug)]
pub struct Buckets(u64);

/// A page of a process, as the number that is hashed.
#[derive(Clone, Copy, Debug)]
pub struct Key(u64);

impl Key {
    pub fn new(process: ProcessId, page: PageNumber) -> Self {
        Key(page.raw() ^ u64::from(process.0) << 45)
    }

    /// The place in a yard of `places` frames at which the search for a free frame begins.
    pub fn place(self, places: u64) -> u64 {
        self.hash(7) % places
    }

    /// One of eight hash functions of the page.
    fn hash(self, function: u64) -> u64 {
        splitmix(self.0 ^ function << 61)
    }
}

impl Buckets {
    /// The buckets of a memory of `frames` frames.
    pub fn of(frames: u64) -> Self {
        Buckets(frames / BUCKET)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first frame of the front yard of a page.
    pub fn front_yard(self, key: Key) -> FrameNumber {
        FrameNumber::new(key.hash(0) % self.0 * BUCKET)
    }

    /// The first frame of one of the back yards of a page, each of which is in a part of memory of its own.
    pub fn back_yard(self, key: Key, choice: u64) -> FrameNumber {
        let [start, end] = [choice, choice + 1].map(|part| part * self.0 / CHOICES);
        let bucket = start + key.hash(1 + choice) % (end - start).max(1);
        FrameNumber::new(bucket * BUCKET + FRONT)
    }

    /// The frame that a compressed frame number names.
    pub fn frame(self, key: Key, number: u8) -> FrameNumber {
        let place = u64::from(number & !IN_BACK_YARD);
        match number & IN_BACK_YARD {
            0 => self.front_yard(key).plus(place),
            _ => self.back_yard(key, place / BACK).plus(place % BACK),
        }
    }

    /// The compressed frame number of a frame; `None` if the page has no such candidate.
    pub fn number(self, key: Key, frame: FrameNumber) -> Option<u8> {
        let (bucket, place) = (frame.raw() / BUCKET, frame.raw() % BUCKET);
        if bucket >= self.0 {
            return None;
        }
        if place < FRONT {
            return (self.front_yard(key).raw() == bucket * BUCKET).then_some(place as u8);
        }
        let yard = FrameNumber::new(bucket * BUCKET + FRONT);
        let choice = (0..CHOICES).find(|choice| self.back_yard(key, *choice) == yard)?;
        Some(IN_BACK_YARD | (choice * BACK + place - FRONT) as u8)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_name_104_candidates() {
        for frames in [7 * BUCKET, 1000, 1 << 20] {
            let buckets = Buckets::of(frames);
            for page in 0..200 {
                let key = Key::new(ProcessId((page % 3) as u16), PageNumber::new(page));
                let front = (0..FRONT).map(|place| place as u8);
                let back = (0..CHOICES * BACK).map(|place| IN_BACK_YARD | place as u8);
                let all: BTreeSet<_> = front
                    .chain(back)
                    .map(|number| {
                        let frame = buckets.frame(key, number);
                        assert_eq!(buckets.number(key, frame), Some(number));
                        assert!(frame.raw() < frames / BUCKET * BUCKET);
                        frame
                    })
                    .collect();
                assert_eq!(all.len(), 104);
                let named = (0..frames).map(FrameNumber::new);
                let named = named.filter(|frame| buckets.number(key, *frame).is_some());
                assert_eq!(named.collect::<BTreeSet<_>>(), all);
                if frames > 1000 && page > 1 {
                    break;
                }
            }
        }
    }

    #[test]
    fn memory_of_few_buckets_has_fewer_candidates() {
        let key = Key::new(ProcessId(0), PageNumber::new(5));
        for (frames, candidates) in [(63, 0), (64, 64), (130, 56 + 16)] {
            let buckets = Buckets::of(frames);
            let all = (0..frames).filter(|of| buckets.number(key, FrameNumber::new(*of)).is_some());
            assert_eq!(all.count(), candidates, "{frames}");
        }
    }
}
