//! The times at which blocks leave a window, exactly, at a cost that does not depend on the window.
//!
//! Of a block's references only the time of the last one is stored. A block in the window is in one
//! bucket of a wheel, each of which stands for a stretch of time: that in which the block may leave,
//! or an earlier one. When a bucket's time comes, blocks that were referenced since are moved to the
//! bucket in which they would leave now; the others leave.

/// A power of two, and more than twice the buckets in a window.
const BUCKETS: usize = 256;
/// No block.
const NONE: u32 = u32::MAX;

/// The wheel of one window. Times are references, counted from 1.
pub struct Wheel {
    window_refs: u64,
    /// How long a bucket is, as a logarithm: a window has 64 to 128 of them, or as many as it has
    /// references.
    width_log2: u32,
    /// By bucket, modulo their number: the first of its blocks.
    heads: Box<[u32; BUCKETS]>,
    /// By block: the next one in its bucket.
    next: Vec<u32>,
    /// The last bucket whose time has come.
    bucket: u64,
    /// The blocks of the buckets up to that one that have not left yet, and when they will if they
    /// are not referenced; the first to leave is last.
    due: Vec<(u64, u32)>,
}

impl Wheel {
    /// No block is in the window.
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

    /// A block that is not in the window is referenced at `now`.
    pub fn enter(&mut self, block: u32, now: u64) {
        self.put(block, now.saturating_add(self.window_refs));
    }

    fn put(&mut self, block: u32, leaves: u64) {
        let head = &mut self.heads[(leaves >> self.width_log2) as usize % BUCKETS];
        self.next[block as usize] = std::mem::replace(head, block);
    }

    /// No block leaves before this time.
    pub fn next_event(&self) -> u64 {
        match self.due.last() {
            Some((leaves, _)) => *leaves,
            None => (self.bucket + 1) << self.width_log2,
        }
    }

    /// When the next block leaves, if that is up to `until`. See [`Wheel::pop`].
    pub fn next_leaving(&mut self, until: u64, last: &[u64]) -> Option<u64> {
        let (leaves, block) = self.pop(until, last)?;
        self.due.push((leaves, block));
        Some(leaves)
    }

    /// Removes the next block that leaves up to `until`, and returns when it leaves. `last` has the
    /// last reference of each block.
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

    /// The time of the next bucket has come, or that of all up to bucket `until`.
    fn open(&mut self, until: u64, last: &[u64]) {
        if until - self.bucket < BUCKETS as u64 {
            self.bucket += 1;
            self.empty(self.bucket as usize % BUCKETS, last);
        } else {
            self.bucket = until;
            (0..BUCKETS).for_each(|bucket| self.empty(bucket, last));
        }
        // At the same time two blocks leave in any order.
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
