//! The lists of all sets, for every number of sets.

use crate::lanes::{LEVELS, Lanes, MAX_WAYS, Machine, NONE, first, from_first, up_to_first};

/// A list of ids for each set, at each level (log2 of the number of sets): the pages of the set, most recently used
/// first, or those of them that an order common to all sets no longer holds.
///
/// An invalidated entry leaves a hole, which is the same as a position that was never filled. A miss
/// fills the topmost hole of a set before it evicts.
pub(crate) struct Lists(Box<[Lanes; 1 << LEVELS]>);

impl Lists {
    /// Empty sets.
    pub fn new() -> Self {
        let lists: Box<[Lanes]> = vec![Lanes::EMPTY; 1 << LEVELS].into_boxed_slice();
        Lists(lists.try_into().expect("as many as were asked for"))
    }

    /// The set of a level that the low bits of `index` select.
    #[inline(always)]
    pub fn set(&mut self, level: usize, index: u32) -> &mut Lanes {
        let first = 1 << level;
        &mut self.0[(first | index as usize & (first - 1)) % (1 << LEVELS)]
    }

    /// Empties all sets.
    pub fn clear(&mut self) {
        self.0.fill(Lanes::EMPTY);
    }

    /// Adds a page that leaves the common order. The last page of the list leaves it.
    #[inline(always)]
    pub fn push<M: Machine>(&mut self, machine: M, level: usize, index: u32, id: u32) {
        machine.push(self.set(level, index), id, u32::MAX);
    }

    /// Removes an id because its page is used, which puts it into the common order, and returns its position in the
    /// list, or 16 if it is absent.
    ///
    /// Since one more page now comes before the list, the ids below this one keep their positions in the
    /// set. If there is a hole above the id, or the id is absent, that hole is filled by the ids above it:
    /// the list closes up there, and the id's own position becomes a hole.
    #[inline(always)]
    pub fn remove<M: Machine>(&mut self, machine: M, level: usize, index: u32, id: u32) -> usize {
        let list = self.set(level, index);
        let at = machine.equal(list, id);
        let ends = at | machine.equal(list, NONE);
        if at & !up_to_first(ends) != 0 {
            list.0[first(at) % MAX_WAYS] = NONE;
        }
        machine.pull(list, from_first(ends));
        first(at)
    }

    /// Turns the entry of an id, if there is one, into a hole, and returns its position in the list.
    pub fn invalidate(&mut self, level: usize, index: u32, id: u32) -> Option<usize> {
        let list = self.set(level, index);
        let at = list.0.iter().position(|other| *other == id)?;
        list.0[at] = NONE;
        Some(at)
    }
}
