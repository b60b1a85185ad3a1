//! Set-associative TLBs of all sets and ways at once, with invalidations.
//!
//! A set is a list of 16 positions; the set of *w* ways holds the entries at the first *w* positions. An
//! invalidated entry leaves a hole. An access pushes the entries above the topmost hole down into it,
//! and moves no entry below: a set with that hole among its *w* ways fills it before it evicts, and
//! a set that ends above the hole evicts the entry that is pushed past its end. If the page was below
//! the hole, its old position becomes a hole: sets that held the page lose no other entry, and sets that
//! end in between have filled their hole.

use octavo_types::Instructions;

use super::MAX_SETS_LOG2;
use super::lists::Lists;
use super::misses::Misses;
use super::nested::{Nested, Step};
use super::pages::Page;
use crate::lanes::{LEVELS, MAX_WAYS, Machine, NONE, Work, first, run, up_to_first};

/// Set-associative TLBs of 1 to 2^`max_sets_log2` sets and 1 to 16 ways, with invalidation.
pub(crate) struct HoleSets {
    max_sets_log2: u8,
    sets: Representation,
    /// The positions of invalidated entries.
    invalidated: Misses,
}

/// The representation of the sets.
#[expect(clippy::large_enum_variant, reason = "there are few, and they stay where they are")]
enum Representation {
    /// As long as each id has always come with the same index bits.
    Nested(Nested),
    /// After an id has come with different index bits.
    Lists(Lists, Instructions),
}

impl HoleSets {
    /// Empty TLBs.
    pub fn new(max_sets_log2: u8, instructions: Instructions) -> Self {
        HoleSets {
            max_sets_log2: max_sets_log2.min(MAX_SETS_LOG2),
            sets: Representation::Nested(Nested::new(instructions)),
            invalidated: Misses::default(),
        }
    }

    /// Looks up an id (not `u32::MAX`), and fills it on a miss. With 2^*l* sets it belongs to the set given
    /// by the low *l* bits of `index_bits`.
    ///
    /// `refines` promises that this id always comes with the same index bits. Look-ups are far faster if
    /// that holds for all ids.
    #[inline(always)]
    pub fn access(&mut self, id: u32, index_bits: u64, refines: bool, out: &mut Misses) {
        let page = Page::new(id, index_bits as u32 % (1 << MAX_SETS_LOG2));
        match &mut self.sets {
            Representation::Nested(sets) if refines => sets.touch(page, out),
            _ => self.look_up(page, refines, out),
        }
    }

    /// Looks up ids in turn, each of which always comes with the same index bits. `ids` gives for each: the id,
    /// its index bits, its kind and the kind of the id before it (the two kinds are counted separately), and
    /// the number of look-ups that follow, of the id before and this one in alternation.
    #[inline(always)]
    pub fn look_up_alternations(
        &mut self,
        ids: impl Iterator<Item = (u32, u64, [usize; 2], u32)>,
        out: &mut [Misses; 2],
    ) {
        let steps = ids.map(|(id, index_bits, [kind, before_kind], alternations)| {
            let page = Page::new(id, index_bits as u32 % (1 << MAX_SETS_LOG2));
            Step { page, kind, before_kind, alternations }
        });
        match &mut self.sets {
            Representation::Nested(sets) => run(sets.instructions(), UseSteps { sets, steps, out }),
            Representation::Lists(..) => unreachable!("no id has come with several index bits"),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, page: Page, refines: bool, out: &mut Misses) {
        if let Representation::Nested(sets) = &mut self.sets {
            let instructions = sets.instructions();
            let sets = std::mem::replace(sets, Nested::new(Instructions::PORTABLE));
            self.sets = Representation::Lists(sets.into_lists(), instructions);
        }
        if let Representation::Lists(lists, instructions) = &mut self.sets {
            let levels = usize::from(self.max_sets_log2) + 1;
            run(*instructions, LookUp { lists, levels, page, refines, out });
        }
    }

    /// Invalidates all entries of an id. Its index bits were among the 2^`indexes_log2` values from
    /// `first_index` on, which is a multiple of their number.
    pub fn invalidate(&mut self, id: u32, first_index: u64, indexes_log2: u8) {
        let page = Page::new(id, first_index as u32 % (1 << MAX_SETS_LOG2));
        let before = |_, _| 0;
        match &mut self.sets {
            Representation::Nested(sets) => {
                sets.invalidate(page, indexes_log2, &mut self.invalidated)
            }
            Representation::Lists(lists, _) => {
                lists.invalidate(page, indexes_log2, before, &mut self.invalidated);
            }
        }
    }

    /// Removes all entries without counting invalidations, and leaves no hole.
    pub fn clear(&mut self) {
        match &mut self.sets {
            Representation::Nested(sets) => sets.clear(),
            Representation::Lists(_, instructions) => {
                self.sets = Representation::Nested(Nested::new(*instructions));
            }
        }
    }

    /// Entries invalidated with 2^*s* sets of *w* ways, at `[s][w - 1]`.
    pub fn invalidated(&self) -> Vec<[u64; MAX_WAYS]> {
        self.invalidated.held(self.max_sets_log2)
    }
}

/// The processing of steps.
struct UseSteps<'a, I> {
    sets: &'a mut Nested,
    steps: I,
    out: &'a mut [Misses; 2],
}

impl<I: Iterator<Item = Step>> Work for UseSteps<'_, I> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        self.sets.use_steps(machine, self.steps, self.out);
    }
}

/// The use of a page, if the lists hold all pages.
struct LookUp<'a> {
    lists: &'a mut Lists,
    levels: usize,
    page: Page,
    refines: bool,
    out: &'a mut Misses,
}

impl Work for LookUp<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let LookUp { lists, levels, page, refines, out } = self;
        for level in 0..levels.min(LEVELS) {
            let list = lists.set(level, page.index_bits());
            let at = machine.equal(list, page.id());
            if refines && at & 1 != 0 {
                // The most recent page of a set is also the most recent of the smaller sets in it.
                return;
            }
            let moving = up_to_first(at | machine.equal(list, NONE));
            if at & !moving != 0 {
                list.0[first(at) % MAX_WAYS] = NONE;
            }
            machine.push(list, page.id(), moving);
            out.add(level, first(at), 1);
        }
    }
}
