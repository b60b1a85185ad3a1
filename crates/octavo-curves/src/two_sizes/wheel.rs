//! The exact times at which blocks leave a window, at a cost that does not depend on the window.
//!
//! Only the time of a block's last reference is stored. Each bucket of the wheel stands for an interval of
//! time, and a block in the window is in the bucket of the time at which it may leave, or in an earlier one.
//! When the time of a bucket comes, blocks that were referenced since are moved to the bucket of the time
//! at which they would leave now; the others leave.

/// Number of buckets: a power of two, and more than twice the buckets in a window.
const BUCKETS: usize = 256;
/// No block.
const NONE: u32 = u32::MAX;

/// The wheel of one window. Times are references, counted from 1.
pub struct Wheel {
    window_refs: u64,
    /// log2 of the references in the interval of a bucket. A window has 64 to 128 buckets, or as many as it
    /// has references.
    width_log2: u32,
    /// The first block of each bucket, modulo [`BUCKETS`].
    heads: Box<[u32; BUCKETS]>,
    /// The next block in the bucket of each block.
    next: Vec<u32>,
    /// The last bucket whose time has come.
    bucket: u64,
    /// The blocks of the buckets up to `bucket` that have not left yet, with the times at which they leave
    /// unless they are referenced. The first to leave is last.
    due: Vec<(u64, u32)>,
}

impl Wheel {
    /// A window without blocks.
    pub fn new(window_refs: u64) -> Self {
        Wheel {
            window_refs,
            width_log2: window_refs.max(1).ilog2().saturating_sub(6),
            heads: Box::new([NONE; BUCKETS]),
            next: Vec::new(),
            bucket: 0,
            due: Vec::new(),
        }
    }

    /// Makes room for blocks below `blocks`.
    pub fn make_room(&mut self, blocks: usize) {
        self.next.resize(blocks, NONE);
    }

    /// Adds a block that is not in the window, and is referenced at `now`.
    pub fn enter(&mut self, block: u32, now: u64) {
        self.put(block, now.saturating_add(self.window_refs));
    }

    fn put(&mut self, block: u32, leaves: u64) {
        let head = &mut self.heads[(leaves >> self.width_log2) as usize % BUCKETS];
        self.next[block as usize] = std::mem::replace(head, block);
    }

    /// A lower bound on the time at which the next block leaves.
    pub fn next_event(&self) -> u64 {
        match self.due.last() {
            Some((leaves, _)) => *leaves,
            None => (self.bucket + 1) << self.width_log2,
        }
    }

    /// The time at which the next block leaves, if it leaves up to `until`. See [`Wheel::pop`].
    pub fn next_leaving(&mut self, until: u64, last: &[u64]) -> Option<u64> {
        let (leaves, block) = self.pop(until, last)?;
        self.due.push((leaves, block));
        Some(leaves)
    }

    /// Removes the next block that leaves up to `until`, and returns the time with it. `last` is the last
    /// reference of each block.
    #[inline]
    pub fn pop(&mut self, until: u64, last: &[u64]) -> Option<(u64, u32)> {
        loop {
            while let Some((foreseen, block)) = self.due.pop_if(|(leaves, _)| *leaves <= until) {
                let leaves = last[block as usize].saturating_add(self.window_refs);
                if leaves == foreseen {
                    return Some((leaves, block));
                } else {
                    self.put(block, leaves);
                }
            }
            if !self.due.is_empty() || self.bucket >= until >> self.width_log2 {
                return None;
            }
            self.open(until >> self.width_log2, last);
        }
    }

    /// Empties the next bucket, or all buckets if `until` is more than a turn of the wheel ahead.
    fn open(&mut self, until: u64, last: &[u64]) {
        if until - self.bucket < BUCKETS as u64 {
            self.bucket += 1;
            self.empty(self.bucket as usize % BUCKETS, last);
        } else {
            self.bucket = until;
            (0..BUCKETS).for_each(|bucket| self.empty(bucket, last));
        }
        // Blocks that leave at the same time may leave in any order.
        self.due.sort_unstable_by_key(|(leaves, _)| std::cmp::Reverse(*leaves));
    }

    fn empty(&mut self, bucket: usize, last: &[u64]) {
        let mut block = std::mem::replace(&mut self.heads[bucket], NONE);
        while block != NONE {
            let next = self.next[block as usize];
            let leaves = last[block as usize].saturating_add(self.window_refs);
            if leaves >> self.width_log2 <= self.bucket {
                self.due.push((leaves, block));
            } else {
                self.put(block, leaves);
            }
            block = next;
        }
    }
}
