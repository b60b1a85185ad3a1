//! All sets and ways at once for any index, such as an XOR, whose sets at different levels are
//! unrelated: every number of sets is looked up separately.

use super::SetIndex;
use super::lists::Lists;
use super::misses::Misses;
use super::pages::Page;
use crate::lanes::{LEVELS, Machine, first, up_to_first};

/// The sets of one stream.
///
/// Most touches of a stream of instructions and data alternate between two pages. An alternation changes only
/// which of the two was used last, so that the lists are updated when a third page is used.
pub(super) struct Scattered {
    /// The set of each page at each level.
    sets: Vec<[u16; 16]>,
    lists: Lists,
    /// The two pages used last.
    last: [u32; 2],
    /// Whether the lists have these two pages in the opposite order.
    swapped: bool,
    /// Uses of the second of them, by a mask of the levels at which the two pages share a set.
    back: Box<[u64; 1 << LEVELS]>,
}

impl Scattered {
    /// Empty sets.
    pub fn new() -> Self {
        Scattered {
            sets: Vec::new(),
            lists: Lists::new(),
            last: [u32::MAX; 2],
            swapped: false,
            back: Box::new([0; 1 << LEVELS]),
        }
    }

    /// Records the page number of an id. New ids must come in order.
    pub fn know(&mut self, index: SetIndex, number: u64, id: u32) {
        if id as usize == self.sets.len() {
            let set =
                |level| if level < LEVELS { index.set(number, level as u8) as u16 } else { 0 };
            self.sets.push(std::array::from_fn(set));
        }
    }

    /// Uses the last two pages in alternation `before` times, and then pages in turn, each followed by a number of
    /// uses of the page before and this one in alternation.
    #[inline(always)]
    pub fn use_pages<M: Machine>(
        &mut self,
        machine: M,
        before: u32,
        uses: impl Iterator<Item = (Page, u32)>,
        misses: &mut Misses,
    ) {
        self.alternate(before);
        for (page, alternations) in uses {
            let (id, [last, second]) = (page.id(), self.last);
            if id == last {
                continue;
            }
            if id == second {
                self.alternate(1 + alternations);
                continue;
            }
            let (sets, lists) = (&self.sets, &mut self.lists);
            if std::mem::take(&mut self.swapped) {
                look_up(machine, lists, &sets[last as usize], last, |_, _| ());
            }
            look_up(machine, lists, &sets[id as usize], id, |level, position| {
                misses.add(level, position, 1);
            });
            self.last = [id, last];
            self.alternate(alternations);
        }
    }

    /// Uses the last two pages in alternation, `times` times in all.
    fn alternate(&mut self, times: u32) {
        if times == 0 {
            return;
        }
        let [last, second] = self.last;
        let [one, other] = self.last.map(|id| &self.sets[id as usize]);
        let shared = (0..LEVELS)
            .fold(0, |shared, level| shared | usize::from(one[level] == other[level]) << level);
        self.back[shared] += u64::from(times);
        if times % 2 == 1 {
            self.last = [second, last];
            self.swapped = !self.swapped;
        }
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.lists.clear();
        (self.last, self.swapped) = ([u32::MAX; 2], false);
    }

    /// Adds the look-ups that were counted separately to `misses`, which [`Scattered::use_pages`] has counted.
    pub fn misses(&self, misses: &Misses) -> Misses {
        let mut misses = misses.clone();
        for (shared, &times) in self.back.iter().enumerate().filter(|(_, times)| **times > 0) {
            for level in 0..LEVELS {
                misses.add(level, shared >> level & 1, times);
            }
        }
        misses
    }
}

/// Moves an id to the front of its sets, and calls `found` with each level and its position there.
#[inline(always)]
fn look_up<M: Machine>(
    machine: M,
    lists: &mut Lists,
    sets: &[u16; 16],
    id: u32,
    mut found: impl FnMut(usize, usize),
) {
    for (level, set) in sets[..LEVELS].iter().enumerate() {
        let list = lists.set(level, u32::from(*set));
        let at = machine.equal(list, id);
        machine.push(list, id, up_to_first(at));
        found(level, first(at));
    }
}
