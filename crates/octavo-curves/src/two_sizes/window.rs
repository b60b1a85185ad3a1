//! The blocks in one window, and the working sets that follow from them.

use super::wheel::Wheel;

/// Fetches and data.
pub const KINDS: usize = 2;

/// When each block was last referenced, counted from 1; 0 for never.
#[derive(Default)]
pub struct LastRefs {
    /// By any reference.
    pub any: Vec<u64>,
    /// By each kind of reference whose working sets are asked for.
    pub by_kind: [Option<Vec<u64>>; KINDS],
}

impl LastRefs {
    /// Makes room for so many blocks.
    pub fn make_room(&mut self, blocks: usize) {
        let by_kind = self.by_kind.iter_mut().flatten();
        by_kind.chain([&mut self.any]).for_each(|last| last.resize(blocks, 0));
    }

    /// A block is referenced at `now`.
    #[inline(always)]
    pub fn reference(&mut self, block: u32, kind: usize, now: u64) {
        self.any[block as usize] = now;
        if let Some(last) = &mut self.by_kind[kind] {
            last[block as usize] = now;
        }
    }

    /// When a block was last referenced by `kind`, or by any reference if that kind is not asked
    /// for: never later than by any.
    #[inline(always)]
    pub fn of_kind(&self, block: u32, kind: usize) -> u64 {
        self.by_kind[kind].as_ref().unwrap_or(&self.any)[block as usize]
    }
}

/// The last T references, with chunks that are large pages while enough of their blocks are
/// referenced in them. Times are references, counted from 1.
pub struct Window {
    /// T.
    pub window_refs: u64,
    threshold_blocks: u32,
    sizes: Sizes,
    any: Blocks,
    /// The blocks that references of one kind leave in it. Whether their chunks are large does not
    /// depend on the kind.
    by_kind: [Option<Blocks>; KINDS],
}

/// The bytes of a small page and of a large one.
#[derive(Clone, Copy)]
struct Sizes {
    small: u64,
    large: u64,
}

/// Some of the blocks in the window.
struct Blocks {
    wheel: Wheel,
    /// By chunk: how many there are.
    counts: Vec<u32>,
    /// The bytes of the working set, since when, and their sum over the references before.
    bytes: u64,
    since: u64,
    byte_refs: u128,
}

/// A block leaves the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// When.
    pub time: u64,
    /// Its chunk.
    pub chunk: u32,
    /// Whether too few of the chunk's blocks are left for a large page, and just enough were before.
    pub falls_below: bool,
}

impl Window {
    /// An empty window; the sizes are in bytes. Working sets are asked for of `kinds`.
    pub fn new(
        window_refs: u64,
        threshold_blocks: u32,
        (small, large): (u64, u64),
        kinds: [bool; KINDS],
    ) -> Self {
        Window {
            window_refs,
            threshold_blocks,
            sizes: Sizes { small, large },
            any: Blocks::new(window_refs),
            by_kind: kinds.map(|kind| kind.then(|| Blocks::new(window_refs))),
        }
    }

    /// Makes room for so many blocks and chunks.
    pub fn make_room(&mut self, blocks: usize, chunks: usize) {
        for of in self.by_kind.iter_mut().flatten().chain([&mut self.any]) {
            of.wheel.make_room(blocks);
            of.counts.resize(chunks, 0);
        }
    }

    /// A lower bound on the time at which the next block leaves a window.
    pub fn next_event(&self) -> u64 {
        let events = self.by_kind.iter().flatten().map(|of| of.wheel.next_event());
        events.fold(self.any.wheel.next_event(), u64::min)
    }

    /// Whether enough of a chunk's blocks are in the window for a large page.
    #[inline(always)]
    pub fn is_large(&self, chunk: u32) -> bool {
        self.any.counts[chunk as usize] >= self.threshold_blocks
    }

    /// A block is referenced at `now` by `kind`, before `last` has it.
    pub fn reference(
        &mut self,
        (block, chunk): (u32, u32),
        kind: usize,
        now: u64,
        last: &LastRefs,
    ) {
        let window_refs = self.window_refs;
        let is_out = |last: u64| last == 0 || now - last > window_refs;
        let (any, of_kind) = (last.any[block as usize], last.of_kind(block, kind));
        if is_out(any) {
            self.any.wheel.enter(block, now);
            self.change(chunk, self.any.counts[chunk as usize] + 1, now);
        }
        if is_out(of_kind) && self.by_kind[kind].is_some() {
            let is_large = self.is_large(chunk);
            if let Some(blocks) = &mut self.by_kind[kind] {
                blocks.wheel.enter(block, now);
                let count = blocks.counts[chunk as usize] + 1;
                blocks.change_count(chunk, count, is_large, self.sizes, now);
            }
        }
    }

    /// Removes the next block that leaves up to `until`: see [`Wheel::pop`].
    #[inline]
    pub fn leave(&mut self, until: u64, last: &LastRefs, chunks: &[u32]) -> Option<Leaving> {
        if self.by_kind.iter().any(Option::is_some) {
            self.leave_kinds(until, last, chunks);
        }
        let (time, block) = self.any.wheel.pop(until, &last.any)?;
        let chunk = chunks[block as usize];
        let blocks = self.any.counts[chunk as usize];
        self.change(chunk, blocks - 1, time);
        Some(Leaving { time, chunk, falls_below: blocks == self.threshold_blocks })
    }

    /// Removes the blocks of each kind that leave no later than the next block of any kind: when that
    /// one leaves, its chunk may become small.
    fn leave_kinds(&mut self, until: u64, last: &LastRefs, chunks: &[u32]) {
        let until = self.any.wheel.next_leaving(until, &last.any).unwrap_or(until);
        for kind in 0..KINDS {
            let Some(last) = &last.by_kind[kind] else { continue };
            while let Some(of) = &mut self.by_kind[kind]
                && let Some((time, block)) = of.wheel.pop(until, last)
            {
                let chunk = chunks[block as usize];
                let is_large = self.any.counts[chunk as usize] >= self.threshold_blocks;
                let count = of.counts[chunk as usize] - 1;
                of.change_count(chunk, count, is_large, self.sizes, time);
            }
        }
    }

    /// From `now` on, `blocks` blocks of the chunk are in the window.
    fn change(&mut self, chunk: u32, blocks: u32, now: u64) {
        let was_large = self.is_large(chunk);
        let is_large = blocks >= self.threshold_blocks;
        let before = self.sizes.of(self.any.counts[chunk as usize], was_large);
        self.any.counts[chunk as usize] = blocks;
        self.any.change_bytes(before, self.sizes.of(blocks, is_large), now);
        if was_large != is_large {
            for of in self.by_kind.iter_mut().flatten() {
                let [before, after] = [was_large, is_large]
                    .map(|large| self.sizes.of(of.counts[chunk as usize], large));
                of.change_bytes(before, after, now);
            }
        }
    }

    /// The bytes of the working set, summed over `refs` references: of those of one kind, or of all.
    pub fn byte_refs(&self, kind: Option<usize>, refs: u64) -> u128 {
        let of = kind.map_or(Some(&self.any), |kind| self.by_kind[kind].as_ref());
        of.map_or(0, |of| of.byte_refs(refs))
    }
}

impl Sizes {
    /// The bytes of a chunk with so many blocks in the working set.
    fn of(self, blocks: u32, is_large: bool) -> u64 {
        match (blocks, is_large) {
            (0, _) => 0,
            (_, true) => self.large,
            (_, false) => u64::from(blocks) * self.small,
        }
    }
}

impl Blocks {
    fn new(window_refs: u64) -> Self {
        let wheel = Wheel::new(window_refs);
        Blocks { wheel, counts: Vec::new(), bytes: 0, since: 1, byte_refs: 0 }
    }

    fn change_count(&mut self, chunk: u32, count: u32, is_large: bool, sizes: Sizes, now: u64) {
        let before = std::mem::replace(&mut self.counts[chunk as usize], count);
        self.change_bytes(sizes.of(before, is_large), sizes.of(count, is_large), now);
    }

    /// A chunk has `after` bytes instead of `before` in the working set, from `now` on.
    fn change_bytes(&mut self, before: u64, after: u64, now: u64) {
        self.byte_refs += u128::from(self.bytes) * u128::from(now - self.since);
        self.since = now;
        self.bytes = self.bytes + after - before;
    }

    fn byte_refs(&self, refs: u64) -> u128 {
        self.byte_refs + u128::from(self.bytes) * u128::from((refs + 1).saturating_sub(self.since))
    }
}
