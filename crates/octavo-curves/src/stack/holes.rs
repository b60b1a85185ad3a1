//! One LRU stack whose entries may be invalidated: fully associative TLBs of all sizes at once for
//! two page sizes.
//!
//! An invalidated entry leaves a *hole* at its depth. Every TLB that held it then has a free entry,
//! which the next fill takes without an eviction. So an insertion pushes entries down to the topmost
//! hole only, which it fills. If a page is brought up from below that hole, the TLBs that held the
//! page keep their free entry, so that the hole moves to the page's old place
//! (Thompson and Smith, "Efficient (stack) algorithms for analysis of write-back and sector
//! memories", 1989, where entries are deleted).

use super::order::{Order, SLOTS};

/// The stack. A hole is a slot of the order without a page.
pub(crate) struct HoleStack {
    order: Order,
    holes: Holes,
}

/// Which slots are holes.
struct Holes {
    words: [u64; SLOTS as usize / 64],
    /// Which of the words are not 0.
    summary: [u64; SLOTS as usize / 64 / 64],
    /// The newest hole and one more; 0 where there is none. Mostly there is none.
    after_top: u32,
}

impl HoleStack {
    /// An empty stack for TLBs of 1 to `max_entries` (at most 4,096) entries.
    pub fn new(max_entries: u32) -> Self {
        HoleStack { order: Order::new(max_entries), holes: Holes::new() }
    }

    /// Uses `id` (dense numbers; not `u32::MAX`). Gives the depth at which it was: it missed in all
    /// TLBs of fewer entries. `u32::MAX` is a miss in all.
    #[inline]
    pub fn access(&mut self, id: u32) -> u32 {
        self.order.grow(id + 1);
        if self.order.is_full() {
            self.close_gaps();
        }
        let Some(slot) = self.order.slot(id) else {
            if self.holes.after_top > 0 {
                self.fill_top();
            }
            self.order.push(id);
            return u32::MAX;
        };
        let depth = self.order.depth(slot);
        if depth == 1 {
            return 1;
        }
        if self.holes.after_top > slot {
            self.fill_top();
            self.order.disown(slot);
            self.holes.insert(slot);
            self.order.push(id);
        } else if depth == 2 {
            // The pages are adjacent, so that exchanging them saves a slot.
            self.order.exchange(slot);
        } else {
            self.order.replace(slot, id);
        }
        depth
    }

    /// Takes `id` out. Gives the depth at which it was: TLBs of at least so many entries had it; 0
    /// where none had.
    #[inline]
    pub fn invalidate(&mut self, id: u32) -> u32 {
        self.order.grow(id + 1);
        let Some(slot) = self.order.slot(id) else { return 0 };
        self.order.disown(slot);
        self.holes.insert(slot);
        self.order.depth(slot)
    }

    /// Takes all pages out, and leaves no hole.
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
        self.holes.remove_top();
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

    fn remove_top(&mut self) {
        let top = self.after_top - 1;
        let word = top as usize / 64;
        self.words[word] &= !(1 << (top % 64));
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
        // For so long that gaps are closed.
        prop::collection::vec(step, 1..5000)
    }

    /// Compares with a TLB of each of `entries` on its own.
    fn compare(max_entries: u32, entries: &[u32], steps: &[Step]) {
        let mut stack = HoleStack::new(max_entries);
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
        ) {
            let all: Vec<u32> = (1..=max_entries).collect();
            compare(max_entries, &all, &steps);
        }

        /// With so many pages and holes that they fill many words.
        #[test]
        fn deep_stacks_are_exact_too(
            (max_entries, steps) in (200u32..1200, 100u32..1500)
                .prop_flat_map(|(entries, ids)| (Just(entries), steps(ids))),
        ) {
            compare(max_entries, &[1, 5, 64, 130, 199, max_entries - 1, max_entries], &steps);
        }
    }
}
