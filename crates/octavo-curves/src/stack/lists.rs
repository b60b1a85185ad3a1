//! The pages used last at up to eight page sizes: short move-to-front lists side by side, one lane
//! for each size.

use super::order::NO_ID;
use super::vectors::{Numbers, Vectors};
use crate::touches::LANES;

/// Positions in each list that are always searched.
const FIRST: usize = 8;
/// Positions that are searched only if the page is not found in the first.
const DEEPER: usize = 16;
/// Positions in each list.
pub const POSITIONS: usize = FIRST + DEEPER;

/// The lists.
#[repr(align(64))]
pub struct Lists {
    /// The page of each lane, by position.
    pages: [Numbers; POSITIONS],
    /// Touches of each lane whose page was not found up to a position, by position.
    missed: [Numbers; POSITIONS],
    /// A bit for each lane in which the last two touches were to different pages.
    apart: u32,
}

impl Lists {
    /// Empty lists in the first `used` lanes.
    pub fn new(used: usize) -> Self {
        // Unused lanes compare equal at the first position.
        let empty = std::array::from_fn(|lane| if lane < used { NO_ID } else { 0 });
        Lists { pages: [empty; POSITIONS], missed: [[0; LANES]; POSITIONS], apart: 0 }
    }

    /// Adds `times` touches in alternation between the previous page and the page of the last touch.
    #[inline(always)]
    pub fn alternate<V: Vectors>(&mut self, v: V, times: u32) {
        let apart = v.mask(self.apart);
        v.store(v.add(apart, v.load(&self.missed[0]), v.splat(times)), &mut self.missed[0]);
        let swapped = v.only_if(times % 2 == 1, apart);
        let (first, second) = (v.load(&self.pages[0]), v.load(&self.pages[1]));
        v.store(v.choose(swapped, second, first), &mut self.pages[0]);
        v.store(v.choose(swapped, first, second), &mut self.pages[1]);
    }

    /// Touches `ids`, and then adds `alternations` between them and the pages before. Returns the lanes whose
    /// page is in none of the first positions, and the pages pushed out of these positions, for
    /// [`Lists::touch_deeper`].
    #[inline(always)]
    pub fn touch<V: Vectors>(
        &mut self,
        v: V,
        ids: V::Lanes,
        alternations: u32,
    ) -> (V::Mask, V::Lanes) {
        let (first, second) = (v.load(&self.pages[0]), v.load(&self.pages[1]));
        let apart = v.differ(v.every(), ids, first);
        let missing = v.differ(apart, ids, second);
        self.apart = v.bits(apart);
        let times = v.splat(alternations.wrapping_add(1));
        v.store(v.add(apart, v.load(&self.missed[0]), times), &mut self.missed[0]);
        v.store(v.count(missing, v.load(&self.missed[1])), &mut self.missed[1]);
        let pushed = v.choose(apart, first, second);
        let swapped = v.only_if(alternations % 2 == 1, apart);
        v.store(v.choose(swapped, pushed, ids), &mut self.pages[0]);
        v.store(v.choose(swapped, ids, pushed), &mut self.pages[1]);
        self.push_down::<V, 2, FIRST>(v, ids, missing, second)
    }

    /// Continues a touch of `ids`, which in the lanes `missing` are in none of the first positions, so that
    /// `carried` was pushed out there. Returns the lanes whose page is in no position, and the pages pushed
    /// out of the last position.
    #[inline(always)]
    pub fn touch_deeper<V: Vectors>(
        &mut self,
        v: V,
        ids: V::Lanes,
        missing: V::Mask,
        carried: V::Lanes,
    ) -> (V::Mask, V::Lanes) {
        self.push_down::<V, FIRST, POSITIONS>(v, ids, missing, carried)
    }

    /// Inserts `carried` at position `FROM` in the lanes `missing`, and pushes pages down to the position of
    /// `ids`, or out at position `TO`.
    #[inline(always)]
    fn push_down<V: Vectors, const FROM: usize, const TO: usize>(
        &mut self,
        v: V,
        ids: V::Lanes,
        mut missing: V::Mask,
        mut carried: V::Lanes,
    ) -> (V::Mask, V::Lanes) {
        for (page, missed) in self.pages[FROM..TO].iter_mut().zip(&mut self.missed[FROM..TO]) {
            let held = v.load(page);
            v.store(v.choose(missing, carried, held), page);
            missing = v.differ(missing, ids, held);
            v.store(v.count(missing, v.load(missed)), missed);
            carried = held;
        }
        (missing, carried)
    }

    /// The pages of a lane.
    pub fn pages(&self, lane: usize) -> impl Iterator<Item = u32> + '_ {
        self.pages.iter().map(move |pages| pages[lane]).filter(|page| *page != NO_ID)
    }

    /// Adds the counts of each position to `totals`, and resets them.
    pub fn count(&mut self, totals: &mut [[u64; LANES]; POSITIONS]) {
        for (totals, missed) in totals.iter_mut().zip(&mut self.missed) {
            for (total, missed) in totals.iter_mut().zip(missed) {
                *total += u64::from(std::mem::take(missed));
            }
        }
    }
}
