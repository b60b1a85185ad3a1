//! The blocks in one window, and the working sets that follow from them.

use super::wheel::Wheel;

/// Fetches and data.
pub const KINDS: usize = 2;

/// The last reference to each block, counted from 1; 0 for none.
#[derive(Default)]
pub struct LastRefs {
    /// The last reference of any kind.
    pub any: Vec<u64>,
    /// The last reference of each kind whose working sets are requested.
    pub by_kind: [Option<Vec<u64>>; KINDS],
}

impl LastRefs {
    /// Makes room for this number of blocks.
    pub fn make_room(&mut self, blocks: usize) {
        let by_kind = self.by_kind.iter_mut().flatten();
        by_kind.chain([&mut self.any]).for_each(|last| last.resize(blocks, 0));
    }

    /// Records a reference to a block at `now`.
    #[inline(always)]
    pub fn reference(&mut self, block: u32, kind: usize, now: u64) {
        self.any[block as usize] = now;
        if let Some(last) = &mut self.by_kind[kind] {
            last[block as usize] = now;
        }
    }

    /// The last reference of `kind` to a block, or of any kind if its working sets are not requested. Never later
    /// than the last reference of any kind.
    #[inline(always)]
    pub fn of_kind(&self, block: u32, kind: usize) -> u64 {
        self.by_kind[kind].as_ref().unwrap_or(&self.any)[block as usize]
    }
}

/// The window of the last T references. A chunk is a large page as long as enough of its blocks are in the window.
/// Times are references, counted from 1.
pub struct Window {
    /// T.
    pub window_refs: u64,
    threshold_blocks: u32,
    sizes: Sizes,
    any: Blocks,
    /// The blocks referenced by each kind whose working sets are requested. Whether their chunks are large
    /// depends on all references.
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
    /// The number of blocks, by chunk.
    counts: Vec<u32>,
    /// The current bytes of the working set.
    bytes: u64,
    /// The time since which the working set has `bytes`.
    since: u64,
    /// The bytes of the working set, summed over the references before `since`.
    byte_refs: u128,
}

/// A block that leaves the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// The time at which it leaves.
    pub time: u64,
    /// Its chunk.
    pub chunk: u32,
    /// Whether the number of the chunk's blocks falls below the threshold.
    pub falls_below: bool,
}

impl Window {
    /// An empty window. The sizes are in bytes; working sets of `kinds` are requested.
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

    /// Makes room for this number of blocks and chunks.
    pub fn make_room(&mut self, blocks: usize, chunks: usize) {
        for part in self.by_kind.iter_mut().flatten().chain([&mut self.any]) {
            part.wheel.make_room(blocks);
            part.counts.resize(chunks, 0);
        }
    }

    /// A lower bound on the time at which the next block leaves the window.
    pub fn next_event(&self) -> u64 {
        let events = self.by_kind.iter().flatten().map(|part| part.wheel.next_event());
        events.fold(self.any.wheel.next_event(), u64::min)
    }

    /// Whether enough of a chunk's blocks are in the window for a large page.
    #[inline(always)]
    pub fn is_large(&self, chunk: u32) -> bool {
        self.any.counts[chunk as usize] >= self.threshold_blocks
    }

    /// Adds a reference of `kind` to a block at `now`. `last` must not have this reference yet.
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

    /// Removes the blocks of each kind that leave no later than the next block of any kind, whose chunk may
    /// become small when it leaves.
    fn leave_kinds(&mut self, until: u64, last: &LastRefs, chunks: &[u32]) {
        let until = self.any.wheel.next_leaving(until, &last.any).unwrap_or(until);
        for kind in 0..KINDS {
            let Some(last) = &last.by_kind[kind] else { continue };
            while let Some(blocks) = &mut self.by_kind[kind]
                && let Some((time, block)) = blocks.wheel.pop(until, last)
            {
                let chunk = chunks[block as usize];
                let is_large = self.any.counts[chunk as usize] >= self.threshold_blocks;
                let count = blocks.counts[chunk as usize] - 1;
                blocks.change_count(chunk, count, is_large, self.sizes, time);
            }
        }
    }

    /// Changes the number of the chunk's blocks in the window to `blocks`, at `now`.
    fn change(&mut self, chunk: u32, blocks: u32, now: u64) {
        let was_large = self.is_large(chunk);
        let is_large = blocks >= self.threshold_blocks;
        let before = self.sizes.of(self.any.counts[chunk as usize], was_large);
        self.any.counts[chunk as usize] = blocks;
        self.any.change_bytes(before, self.sizes.of(blocks, is_large), now);
        if was_large != is_large {
            for part in self.by_kind.iter_mut().flatten() {
                let [before, after] = [was_large, is_large]
                    .map(|large| self.sizes.of(part.counts[chunk as usize], large));
                part.change_bytes(before, after, now);
            }
        }
    }

    /// The bytes of the working set of one kind, or of all references, summed over `refs` references.
    pub fn byte_refs(&self, kind: Option<usize>, refs: u64) -> u128 {
        let blocks = kind.map_or(Some(&self.any), |kind| self.by_kind[kind].as_ref());
        blocks.map_or(0, |blocks| blocks.byte_refs(refs))
    }
}

impl Sizes {
    /// The bytes of a chunk with `blocks` blocks in the working set.
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

    /// Changes the bytes of a chunk in the working set from `before` to `after`, at `now`.
    fn change_bytes(&mut self, before: u64, after: u64, now: u64) {
        self.byte_refs += u128::from(self.bytes) * u128::from(now - self.since);
        self.since = now;
        self.bytes = self.bytes + after - before;
    }

    fn byte_refs(&self, refs: u64) -> u128 {
        self.byte_refs + u128::from(self.bytes) * u128::from((refs + 1).saturating_sub(self.since))
    }
}
