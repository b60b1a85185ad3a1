//! Memory compaction on a plain list of frames.

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveFrame {
    /// Not allocated.
    Free,
    /// Allocated, and may be moved.
    Movable,
    /// Allocated, and may not be moved.
    Fixed,
}

/// Two scanners that walk towards each other through `memory`.
#[derive(Clone, Debug)]
pub struct NaiveCompaction {
    /// All frames, by number.
    pub memory: Vec<NaiveFrame>,
    /// The moves, from and to, in order.
    pub moves: Vec<(usize, usize)>,
    /// Blocks emptied.
    pub blocks_made: u64,
    /// Frames scanned by the low scanner.
    pub scanned_for_moving: u64,
    /// Frames scanned by the high scanner.
    pub scanned_for_free: u64,
    /// The first frame that the next compaction scans: 0 if the scanners met.
    pub next: usize,
}

impl NaiveCompaction {
    /// Compacts: empties blocks of `block` frames, from the one at frame `from` on, until `wanted` blocks are free,
    /// or `max_moved` frames are moved, or `max_scanned` frames are scanned. The tiers of memory but the first begin
    /// at `tiers`; each is compacted by itself.
    pub fn of(
        memory: Vec<NaiveFrame>,
        tiers: &[usize],
        block: usize,
        from: usize,
        (wanted, max_moved, max_scanned): (u64, u64, u64),
    ) -> Self {
        let mut ends = tiers.iter().copied().chain([memory.len()]).filter(|end| *end > from);
        let mut high = ends.next().unwrap_or(0);
        let mut end = high;
        let mut done = NaiveCompaction {
            memory,
            moves: Vec::new(),
            blocks_made: 0,
            scanned_for_moving: 0,
            scanned_for_free: 0,
            next: from,
        };
        'next: loop {
            let whole = done.memory.len() / block;
            let free = (0..whole).filter(|&at| done.is_free(at * block, block)).count() as u64;
            if free >= wanted {
                return done;
            }
            let low = done.next;
            if low + block > high {
                let Some(next) = ends.next() else {
                    done.next = 0;
                    return done;
                };
                done.next = end.div_ceil(block) * block;
                (high, end) = (next, next);
                continue;
            }
            if done.scanned_for_moving + done.scanned_for_free >= max_scanned {
                return done;
            }
            if done.is_free(low, block) {
                done.scanned_for_moving += 1; // the first frame shows that the block is free
                done.next += block;
                continue;
            }
            let frames = low..low + block;
            if let Some(fixed) =
                frames.clone().find(|&frame| done.memory[frame] == NaiveFrame::Fixed)
            {
                done.scanned_for_moving += (fixed - low + 1) as u64;
                done.next += block;
                continue;
            }
            done.scanned_for_moving += block as u64;
            let movable: Vec<usize> =
                frames.filter(|&frame| done.memory[frame] == NaiveFrame::Movable).collect();
            if (done.moves.len() + movable.len()) as u64 > max_moved {
                return done;
            }
            for from in movable {
                loop {
                    if high <= low + block {
                        high = 0;
                        continue 'next;
                    }
                    high -= 1;
                    done.scanned_for_free += 1;
                    let in_free_block = done.is_free(high / block * block, block);
                    if done.memory[high] == NaiveFrame::Free && !in_free_block {
                        break;
                    }
                }
                done.memory[high] = NaiveFrame::Movable;
                done.memory[from] = NaiveFrame::Free;
                done.moves.push((from, high));
            }
            done.blocks_made += 1;
            done.next += block;
        }
    }

    /// Whether a whole block is free. A block beyond the end of memory is not whole.
    fn is_free(&self, start: usize, block: usize) -> bool {
        start + block <= self.memory.len()
            && self.memory[start..start + block].iter().all(|frame| *frame == NaiveFrame::Free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve frames in blocks of four: the low block is emptied into the highest free frames.
    #[test]
    fn compaction_of_twelve_frames_by_hand() {
        let frame = |letter| match letter {
            '.' => NaiveFrame::Free,
            'm' => NaiveFrame::Movable,
            _ => NaiveFrame::Fixed,
        };
        let compact = |text: &str, wanted| {
            let memory = text.chars().map(frame).collect();
            NaiveCompaction::of(memory, &[], 4, 0, (wanted, u64::MAX, u64::MAX))
        };
        let done = compact("m.m.fm..m..m", 1);
        assert_eq!(done.moves, [(0, 10), (2, 9)]);
        assert_eq!((done.scanned_for_moving, done.scanned_for_free, done.next), (4, 3, 4));
        // The middle block stays: its first frame is fixed, so that the scan skips the rest.
        let done = compact("m.m.fm..m..m", 3);
        assert_eq!(done.moves, [(0, 10), (2, 9)]);
        assert_eq!((done.scanned_for_moving, done.blocks_made, done.next), (5, 1, 0));
        // The high scanner finds only one free frame above the block.
        let done = compact("mmm.mm.mmmmm", 1);
        assert_eq!(done.moves, [(0, 6)]);
        assert_eq!((done.scanned_for_free, done.blocks_made, done.next), (8, 0, 0));
    }
}
