//! Set-associative TLBs of all sets and ways with one index: the entries behind the last uses.

use crate::lanes::{LEVELS, Machine};
use crate::sets::{Counts, Lists};

/// The TLBs.
pub struct Indexed {
    /// The entries whose uses have left the order of the last ones.
    behind: Lists,
    /// The positions of invalidated entries.
    invalidated: Counts,
}

impl Indexed {
    /// Empty TLBs.
    pub fn new() -> Self {
        Indexed { behind: Lists::new(), invalidated: Counts::default() }
    }

    /// Removes the entry of a page, of which there was none among the last uses until now, with 2^`level` sets. Returns
    /// its position behind them; 16 if it is absent. Then a hole may be filled all the same: see [`Lists::remove`].
    #[inline(always)]
    pub fn remove<M: Machine>(&mut self, machine: M, level: usize, bits: u16, id: u32) -> u32 {
        self.behind.remove(machine, level, bits.into(), id) as u32
    }

    /// Adds a page whose use has left the order of the last ones, at the levels in a mask.
    #[inline(always)]
    pub fn leave<M: Machine>(&mut self, machine: M, levels: u32, bits: u16, id: u32) {
        for level in 0..LEVELS {
            if levels >> level & 1 == 1 {
                self.behind.push(machine, level, bits.into(), id);
            }
        }
    }

    /// Invalidates the entries of a page that is not among the last uses. Its index bits are among 2^`bits_log2` values,
    /// from `first` on. `before` returns the last uses that are in the set of some bits at a level.
    pub fn invalidate(
        &mut self,
        id: u32,
        first: u16,
        bits_log2: u8,
        before: impl Fn(usize, u16) -> u32,
    ) {
        for level in 0..LEVELS {
            let values = 1 << level.min(usize::from(bits_log2));
            let first = first & !(values - 1);
            for bits in (0..values).map(|bits| first + bits) {
                if let Some(at) = self.behind.invalidate(level, bits.into(), id) {
                    let before = before(level, bits).count_ones() as usize;
                    self.invalidated.add(level, before + at, 1);
                }
            }
        }
    }

    /// Removes all entries without counting invalidations.
    pub fn clear(&mut self) {
        self.behind.clear();
    }

    /// The positions of invalidated entries.
    pub fn invalidated(&self) -> &Counts {
        &self.invalidated
    }
}
