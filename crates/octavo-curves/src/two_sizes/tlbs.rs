//! All TLBs for two page sizes of one stream.

#[cfg(test)]
mod tests;

use octavo_types::Instructions;

use super::alternation::{Step, Steps};
use super::indexed::Indexed;
use super::page::Page;
use super::positions::{Positions, SPLIT, common_bits};
use super::recent::{EXACT, INDEXES, LARGE, Recent, SMALL, Use};
use super::stacked::Stacked;
use super::{TwoSizesConfig, TwoSizesIndex, TwoSizesSets, TwoSizesStack};
use crate::lanes::{LEVELS, Machine, TOP, Work, run};
use crate::sets::{Counts, MAX_SETS_LOG2};

/// All TLBs of one stream.
pub struct Tlbs {
    blocks_log2: u8,
    max_sets_log2: u8,
    instructions: Instructions,
    steps: Steps,
    entries: Entries,
}

/// The entries of the TLBs: the last uses, which are common to all of them, and those behind these.
struct Entries {
    recent: Recent,
    stack: Stacked,
    /// One TLB for both sizes, by index: [`SMALL`], [`LARGE`] and [`EXACT`].
    unified: [Indexed; INDEXES],
    /// A TLB for each size.
    split: [Indexed; 2],
    /// Look-ups of small pages, and of large ones, in the unified TLBs and the one of the page's size.
    positions: [Positions; 2],
}

impl Tlbs {
    /// Empty TLBs.
    pub fn new(config: &TwoSizesConfig, instructions: Instructions) -> Self {
        let blocks_log2 = config.large.log2().saturating_sub(config.small.log2());
        Tlbs {
            blocks_log2,
            max_sets_log2: config.max_sets_log2.min(MAX_SETS_LOG2),
            instructions,
            steps: Steps::default(),
            entries: Entries {
                recent: Recent::new(),
                stack: Stacked::new(config.max_entries),
                unified: std::array::from_fn(|_| Indexed::new()),
                split: [Indexed::new(), Indexed::new()],
                positions: [Positions::new(), Positions::new()],
            },
        }
    }

    /// Looks up a page in all TLBs, when the pending steps are processed. Returns whether this must be done before the
    /// next touch.
    #[inline(always)]
    pub fn page(&mut self, page: Page) -> bool {
        self.steps.push(page)
    }

    /// Looks up the last two pages in alternation: see [`Steps::alternate`].
    #[inline(always)]
    pub fn alternate(&mut self, times: u32) {
        self.steps.alternate(times);
    }

    /// Looks up all pending steps. `numbers` are the page numbers of the blocks.
    ///
    /// Must be called when [`Tlbs::page`] says so, before entries are invalidated or removed, and at the end.
    #[inline(never)]
    pub fn process_steps(&mut self, numbers: &[u64]) {
        let Tlbs { steps, entries, blocks_log2, .. } = self;
        let blocks_log2 = *blocks_log2;
        run(self.instructions, LookUps { steps: steps.all(), entries, numbers, blocks_log2 });
        steps.clear();
    }

    /// The pending steps.
    pub fn steps(&self) -> &[Step] {
        self.steps.all()
    }

    /// Invalidates a small page, or a large one, with the number of any of its blocks. There must be no pending steps.
    pub fn invalidate(&mut self, page: Page, number: u64) {
        debug_assert!(
            self.steps.all().is_empty(),
            "steps would be processed after the invalidation"
        );
        let log2 = if page.is_large() { self.blocks_log2 } else { 0 };
        let first = number >> log2 << log2;
        let uses = self.entries.recent.take_from(page.id);
        run(self.instructions, Leave { uses, entries: &mut self.entries });
        self.entries.invalidate(Use::new(page, first, self.blocks_log2), log2);
    }

    /// Removes all entries without counting invalidations. There must be no pending steps.
    pub fn clear(&mut self) {
        debug_assert!(self.steps.all().is_empty(), "steps would be processed after the removal");
        let Entries { recent, stack, unified, split, .. } = &mut self.entries;
        recent.clear();
        stack.clear();
        unified.iter_mut().chain(split).for_each(Indexed::clear);
    }

    /// The results of fully associative TLBs.
    pub fn stack(&self) -> TwoSizesStack {
        let Entries { stack, positions, .. } = &self.entries;
        stack.result([0, 1].map(|kind: usize| positions[kind].at_top()))
    }

    /// The results of set-associative TLBs.
    pub fn sets(&self) -> Vec<TwoSizesSets> {
        use TwoSizesIndex::*;
        let Entries { unified: [small, large, exact], split, positions, .. } = &self.entries;
        [
            (Small, small, SMALL),
            (Large, large, LARGE),
            (Exact, exact, EXACT),
            (SplitSmall, &split[0], SPLIT),
            (SplitLarge, &split[1], SPLIT),
        ]
        .map(|(index, tlbs, number)| {
            let misses = |kind: usize| match (index, kind) {
                (SplitSmall, 1) | (SplitLarge, 0) => Counts::default(),
                _ => positions[kind].of_tlb(kind, number),
            };
            TwoSizesSets {
                index,
                small_misses: misses(0).missed(self.max_sets_log2),
                large_misses: misses(1).missed(self.max_sets_log2),
                invalidated: tlbs.invalidated().held(self.max_sets_log2),
            }
        })
        .into()
    }
}

impl Entries {
    /// Looks up a page.
    ///
    /// Its position in a set is the number of the last uses before its own that share the set, of which only the most
    /// recent one of each entry counts. If the last uses have no entry of it, its position in the entries behind is added.
    #[inline(always)]
    fn look_up<M: Machine>(&mut self, machine: M, used: Use) {
        let Entries { recent, stack, unified: [small, large, exact], split, positions } = self;
        let kind = used.kind();
        let (split, counts) = (&mut split[kind], &mut positions[kind]);
        let found = recent.find(machine, used);
        // The last use of the page, if there is one, and those of other pages before it, each page once.
        let at = found.page & recent.newest();
        let before = recent.newest() & at.wrapping_sub(1);
        let before_of_kind = before & recent.of_kind(kind);
        let by_small = recent.compare(machine, SMALL, used, found);
        let by_large = recent.compare(machine, LARGE, used, found);
        let by_exact = recent.compare(machine, EXACT, used, found);
        let is_at_top = at == found.block && at & ((1 << TOP) - 1) != 0 && before == at - 1;
        if is_at_top {
            counts.add_at_top(recent.in_common_at_top(used, found));
        } else {
            if at != 0 {
                stack.hit(kind, before.count_ones());
            } else {
                stack.look_behind(used, before.count_ones());
            }
            for level in 0..LEVELS {
                let newest = machine.sharing_at(&by_small, level) & recent.newest_at(level);
                let at_block = found.page & newest;
                let before_block = newest & at_block.wrapping_sub(1);
                let by_large = machine.sharing_at(&by_large, level);
                let by_exact = machine.sharing_at(&by_exact, level);
                let before =
                    [before_block, by_large & before, by_exact & before, by_exact & before_of_kind];
                let mut positions = before.map(|uses| uses.count_ones());
                if found.block == 0 {
                    if at_block == 0 {
                        positions[SMALL] += small.remove(machine, level, used.bits[SMALL], used.id);
                    }
                    if at == 0 {
                        positions[LARGE] += large.remove(machine, level, used.bits[LARGE], used.id);
                        positions[EXACT] += exact.remove(machine, level, used.bits[EXACT], used.id);
                        positions[SPLIT] += split.remove(machine, level, used.bits[EXACT], used.id);
                    }
                }
                counts.add(level, positions);
            }
        }
        if let Some((left, levels)) = recent.push(machine, used, found, &by_small) {
            self.leave(machine, left, levels);
        }
    }

    /// Moves a use that has left the order of the last ones, at these levels, to the entries behind.
    #[inline(always)]
    fn leave<M: Machine>(&mut self, machine: M, used: Use, levels: u32) {
        let Entries { stack, unified: [small, large, exact], split, .. } = self;
        let Use { id, bits } = used;
        small.leave(machine, levels, bits[SMALL], id);
        // At level 0 a large page has one entry.
        if levels & 1 == 1 {
            stack.leave(used);
            large.leave(machine, u32::MAX, bits[LARGE], id);
            exact.leave(machine, u32::MAX, bits[EXACT], id);
            split[used.kind()].leave(machine, u32::MAX, bits[EXACT], id);
        }
    }

    /// Looks up the two pages used last in alternation, `times` times in all, beginning with `before`.
    #[inline(always)]
    fn alternate<M: Machine>(&mut self, machine: M, times: u32, last: Use, before: Use) {
        let Entries { recent, positions, .. } = self;
        recent.exchange(machine, times % 2 == 1 && last != before);
        // Two blocks of one page have one entry in each set.
        let times = if last.id == before.id { 0 } else { u64::from(times) };
        let common = common_bits(last, before);
        positions[last.kind()].alternate(before.kind(), common, times / 2);
        positions[before.kind()].alternate(last.kind(), common, times.div_ceil(2));
    }

    /// Invalidates the page of `used`, which is not among the last uses, and has 2^`blocks_log2` blocks, of which
    /// `used` has the first.
    fn invalidate(&mut self, used: Use, blocks_log2: u8) {
        let Entries { recent, stack, unified: [small, large, exact], split, .. } = self;
        let in_set = |index, level, bits| recent.in_set(index, level, bits);
        let newest = recent.newest();
        stack.invalidate(used.id, newest.count_ones());
        let Use { id, bits } = used;
        small.invalidate(id, bits[SMALL], blocks_log2, |level, bits| {
            recent.newest_at(level) & in_set(SMALL, level, bits)
        });
        large.invalidate(id, bits[LARGE], 0, |level, bits| newest & in_set(LARGE, level, bits));
        exact.invalidate(id, bits[EXACT], 0, |level, bits| newest & in_set(EXACT, level, bits));
        let of_kind = newest & recent.of_kind(used.kind());
        split[used.kind()]
            .invalidate(id, bits[EXACT], 0, |level, bits| of_kind & in_set(EXACT, level, bits));
    }
}

/// The look-ups of steps.
struct LookUps<'a> {
    steps: &'a [Step],
    entries: &'a mut Entries,
    numbers: &'a [u64],
    blocks_log2: u8,
}

impl Work for LookUps<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let mut before = Use::NONE;
        for Step { page, alternations } in self.steps {
            let number = self.numbers[page.block as usize];
            let used = Use::new(*page, number, self.blocks_log2);
            self.entries.look_up(machine, used);
            self.entries.alternate(machine, *alternations, used, before);
            before = if alternations % 2 == 1 { before } else { used };
        }
    }
}

/// The move of uses, the last one first, to the entries behind.
struct Leave<'a> {
    uses: Vec<(Use, u32)>,
    entries: &'a mut Entries,
}

impl Work for Leave<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        for (used, levels) in self.uses.into_iter().rev() {
            self.entries.leave(machine, used, levels);
        }
    }
}
