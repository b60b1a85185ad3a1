//! The references of an entry, and their costs in each lane.

use crate::core::lanes::Lanes;
use crate::core::{Cost, Costs};
use crate::front::{LineAccess, Reference};

/// A reference of an entry. Fetches without a cost in any lane are left out.
#[derive(Clone, Copy)]
pub(super) struct EntryReference<V> {
    pub(super) word: Reference,
    pub(super) access: LineAccess,
    /// The lanes in which the reference has a cost, as a bit mask.
    pub(super) cost_lanes: u32,
    /// The index of the cost in each of these lanes.
    pub(super) cost_indices: V,
}

impl<V: Lanes> EntryReference<V> {
    /// The cost of the reference in a lane.
    #[inline(always)]
    pub(super) fn cost(&self, lane: usize, costs: &[&Costs]) -> Option<Cost> {
        match self.cost_lanes >> lane & 1 {
            0 => None,
            _ => Some(costs[lane].costs[self.cost_indices.get(lane) as usize]),
        }
    }

    /// Calls `visit` for each lane in which the reference has a cost.
    #[inline(always)]
    pub(super) fn each_cost(&self, costs: &[&Costs], mut visit: impl FnMut(usize, Cost)) {
        let mut lanes = self.cost_lanes;
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            visit(lane, costs[lane].costs[self.cost_indices.get(lane) as usize]);
            lanes &= lanes - 1;
        }
    }
}

/// Whether an entry has a reference to data.
#[inline(always)]
pub(super) fn has_data_reference<V>(references: &[EntryReference<V>]) -> bool {
    references.iter().any(|reference| !reference.word.is_fetch())
}

/// A position in the costs of each lane, which moves along with the fresh references of a part of a batch.
pub(super) struct CostCursor<'a, V> {
    pub(super) costs: &'a [&'a Costs],
    /// The number of the next fresh reference.
    pub(super) reference: u32,
    /// In each lane, the index of the next cost, and the number of the fresh reference that has it.
    next_cost: V,
    next_reference: V,
    /// The least number in `next_reference`.
    next_in_any_lane: u32,
}

impl<'a, V: Lanes> CostCursor<'a, V> {
    #[inline]
    pub(super) fn new(costs: &'a [&'a Costs]) -> Self {
        let next_cost = V::all(0);
        let next_reference = V::of_each(|lane| reference_with_cost(costs, lane, 0));
        let next_in_any_lane = least(&next_reference);
        CostCursor { costs, reference: 0, next_cost, next_reference, next_in_any_lane }
    }

    /// Whether any of the next `fresh` fresh references has a cost.
    #[inline(always)]
    pub(super) fn has_cost_within(&self, fresh: u32) -> bool {
        self.next_in_any_lane - self.reference < fresh
    }

    /// Moves behind the next fresh reference. Returns the lanes in which that has a cost, as a bit mask, and the index
    /// of the cost in each of them.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> (u32, V) {
        let (mut lanes, mut indices) = (0, V::all(0));
        if self.next_in_any_lane == self.reference {
            for lane in 0..V::COUNT {
                if self.next_reference.get(lane) == self.reference {
                    let index = self.next_cost.get(lane);
                    lanes |= 1 << lane;
                    indices.set(lane, index);
                    self.next_cost.set(lane, index + 1);
                    self.next_reference.set(lane, reference_with_cost(self.costs, lane, index + 1));
                }
            }
            self.next_in_any_lane = least(&self.next_reference);
        }
        self.reference += 1;
        (lanes, indices)
    }
}

/// The number of the fresh reference that has the cost at an index; the largest number if there is no such cost.
#[inline]
fn reference_with_cost(costs: &[&Costs], lane: usize, index: u32) -> u32 {
    let cost = costs.get(lane).and_then(|costs| costs.costs.get(index as usize));
    cost.map_or(u32::MAX, |cost| cost.access)
}

/// The least number of all lanes.
#[inline(always)]
fn least<V: Lanes>(numbers: &V) -> u32 {
    numbers.as_slice().iter().fold(u32::MAX, |least, number| least.min(*number))
}
