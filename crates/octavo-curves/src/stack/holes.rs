//! One LRU stack whose entries may be invalidated: fully associative TLBs of all sizes at once for
//! two page sizes. It holds the pages behind an order of the last uses that is kept elsewhere.
//!
//! An invalidated entry leaves a *hole* at its depth. Every TLB that held the entry then has a free entry,
//! which the next fill uses without an eviction. So an insertion pushes entries down only to the topmost
//! hole, which it fills. If a page is moved up from below that hole, the TLBs that held the page keep their
//! free entry, so that the hole moves to the page's old depth (Thompson and Smith, "Efficient (stack)
//! algorithms for analysis of write-back and sector memories", 1989, on deleted entries).

use super::order::{Order, SLOTS};

/// The stack. A hole is a slot of the order without a page.
pub(crate) struct HoleStack {
    order: Order,
    holes: Holes,
}

/// A bitmap of the slots that are holes.
struct Holes {
    words: [u64; SLOTS as usize / 64],
    /// A bitmap of the words that are not 0.
    summary: [u64; SLOTS as usize / 64 / 64],
    /// The slot of the newest hole plus one; 0 without holes, which is the usual case.
    after_top: u32,
}

impl HoleStack {
    /// An empty stack for TLBs of 1 to `max_entries` (at most 4,096) entries.
    pub fn new(max_entries: u32) -> Self {
        HoleStack { order: Order::new(max_entries), holes: Holes::new() }
    }

    /// Removes `id` (dense numbers; not `u32::MAX`) because it is used, and from now on is in the order that comes before
    /// this stack. Returns its old depth, or `u32::MAX` if it was absent. It must come back by [`HoleStack::push`] before
    /// it is looked for again.
    #[inline]
    pub fn remove(&mut self, id: u32) -> u32 {
        self.order.grow(id + 1);
        let slot = self.order.slot(id);
        let depth = slot.map_or(u32::MAX, |slot| self.order.depth(slot));
        match slot {
            // Another page comes before the stack: those below the removed one keep their depths.
            Some(slot) if self.holes.after_top <= slot => self.order.free(slot),
            _ => {
                if self.holes.after_top > 0 {
                    self.fill_top();
                }
                if let Some(slot) = slot {
                    self.order.disown(slot);
                    self.holes.insert(slot);
                }
            }
        }
        depth
    }

    /// Adds `id`, which leaves the order that comes before this stack.
    #[inline]
    pub fn push(&mut self, id: u32) {
        self.order.grow(id + 1);
        if self.order.is_full() {
            self.close_gaps();
        }
        let dropped = self.order.push(id);
        if let Some(dropped) = dropped
            && self.holes.after_top > 0
        {
            self.holes.remove(dropped);
        }
    }

    /// Invalidates `id`. Returns its old depth: TLBs of at least this many entries held it. 0 if no TLB did.
    #[inline]
    pub fn invalidate(&mut self, id: u32) -> u32 {
        self.order.grow(id + 1);
        let Some(slot) = self.order.slot(id) else { return 0 };
        self.order.disown(slot);
        self.holes.insert(slot);
        self.order.depth(slot)
    }

    /// Removes all pages, and leaves no hole.
    pub fn clear(&mut self) {
        self.order.clear();
        self.holes = Holes::new();
    }

    #[cold]
    #[inline(never)]
    fn close_gaps(&mut self) {
        self.order.close_gaps();
        self.holes = Holes::new();
        self.order.disowned().for_each(|slot| self.holes.insert(slot));
    }

    /// Pushes the pages above the topmost hole down into it.
    fn fill_top(&mut self) {
        let top = self.holes.after_top - 1;
        self.order.free(top);
        self.holes.remove(top);
    }
}

impl Holes {
    fn new() -> Self {
        Holes {
            words: [0; SLOTS as usize / 64],
            summary: [0; SLOTS as usize / 64 / 64],
            after_top: 0,
        }
    }

    fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        self.words[word] |= 1 << (slot % 64);
        self.summary[word / 64] |= 1 << (word % 64);
        self.after_top = self.after_top.max(slot + 1);
    }

    /// Removes a slot, which need not be a hole.
    fn remove(&mut self, slot: u32) {
        let word = slot as usize / 64;
        self.words[word] &= !(1 << (slot % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
        let newest = self.summary.iter().rposition(|summary| *summary != 0);
        self.after_top = newest.map_or(0, |part| {
            let word = part * 64 + self.summary[part].ilog2() as usize;
            word as u32 * 64 + self.words[word].ilog2() + 1
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use octavo_oracle::NaiveTlb;
    use octavo_types::PageNumber;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Access(u32),
        Invalidate(u32),
    }

    fn steps(ids: u32) -> impl Strategy<Value = Vec<Step>> {
        let near = ids.min(8);
        let step = prop_oneof![
            4 => (0..ids).prop_map(Step::Access),
            4 => (0..near).prop_map(Step::Access),
            1 => (0..ids).prop_map(Step::Invalidate),
            1 => (0..near).prop_map(Step::Invalidate),
        ];
        // Enough steps to close gaps.
        prop::collection::vec(step, 1..5000)
    }

    /// A stack with the last pages before it, the last one first.
    struct Behind {
        recent: VecDeque<u32>,
        most_recent: usize,
        stack: HoleStack,
    }

    impl Behind {
        /// Uses a page, and returns its old depth.
        fn access(&mut self, id: u32) -> u32 {
            let at = self.recent.iter().position(|other| *other == id);
            let depth = match at {
                Some(at) => at as u32 + 1,
                None => self.stack.remove(id).saturating_add(self.recent.len() as u32),
            };
            at.map(|at| self.recent.remove(at));
            self.recent.push_front(id);
            if self.recent.len() > self.most_recent {
                self.recent.pop_back().into_iter().for_each(|id| self.stack.push(id));
            }
            depth
        }

        /// Invalidates a page, and returns its old depth, or 0.
        fn invalidate(&mut self, id: u32) -> u32 {
            if let Some(at) = self.recent.iter().position(|other| *other == id) {
                self.recent.drain(at..).rev().for_each(|id| self.stack.push(id));
            }
            let depth = self.stack.invalidate(id);
            if depth == 0 { 0 } else { depth + self.recent.len() as u32 }
        }
    }

    /// Compares with a naive TLB of each number of entries.
    fn compare(max_entries: u32, most_recent: usize, entries: &[u32], steps: &[Step]) {
        let stack = HoleStack::new(max_entries);
        let mut stack = Behind { recent: VecDeque::new(), most_recent, stack };
        let mut tlbs: Vec<(u32, NaiveTlb)> =
            entries.iter().map(|entries| (*entries, NaiveTlb::new(*entries as usize))).collect();
        for step in steps {
            match *step {
                Step::Access(id) => {
                    let depth = stack.access(id);
                    for (entries, tlb) in &mut tlbs {
                        let hit = tlb.access(PageNumber::new(id.into()));
                        assert_eq!(hit, depth <= *entries, "{entries} entries");
                    }
                }
                Step::Invalidate(id) => {
                    let depth = stack.invalidate(id);
                    for (entries, tlb) in &mut tlbs {
                        let had = tlb.invalidate(PageNumber::new(id.into()));
                        assert_eq!(had, depth != 0 && depth <= *entries, "{entries} entries");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(64))]

        #[test]
        fn every_depth_equals_a_tlb_of_that_size(
            (max_entries, steps) in (1u32..40, 1u32..60)
                .prop_flat_map(|(entries, ids)| (Just(entries), steps(ids))),
            most_recent in 0usize..10,
        ) {
            let all: Vec<u32> = (1..=max_entries).collect();
            compare(max_entries, most_recent, &all, &steps);
        }

        /// Enough pages and holes to fill many words.
        #[test]
        fn deep_stacks_with_holes_are_exact(
            (max_entries, steps) in (200u32..1200, 100u32..1500)
                .prop_flat_map(|(entries, ids)| (Just(entries), steps(ids))),
            most_recent in 0usize..40,
        ) {
            let entries = [1, 5, 64, 130, 199, max_entries - 1, max_entries];
            compare(max_entries, most_recent, &entries, &steps);
        }
    }
}
