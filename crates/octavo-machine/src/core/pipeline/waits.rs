//! The waits of an entry, and how the cycles between two commits are attributed to them.

use super::Pipeline;
use crate::core::lanes::Lanes;
use crate::core::stack::Part;

/// The cycles for which an instruction waits, by cause.
pub(super) struct Waits<V> {
    /// Whether a reference has a cost: without one there are no waits for fetches and handlers.
    pub(super) has_costs: bool,
    /// For a mispredicted branch before the instruction.
    pub(super) branches: V,
    /// For the fetch that follows a wrong frame of the instruction before; `None` if no lane has one.
    pub(super) flushes: Option<V>,
    /// For lines of fetches, for look-ups in later TLB levels, and for walks of fetches.
    pub(super) fetches: V,
    pub(super) fetch_lookups: V,
    pub(super) fetch_walks: V,
    /// For room in the store queue.
    pub(super) stores: V,
    /// For software handlers.
    pub(super) handlers: V,
    /// For walks that verify predicted frames.
    pub(super) verification: V,
    /// Of the reference to data that is complete last.
    pub(super) slowest: ReferenceWaits<V>,
}

impl<V: Lanes> Waits<V> {
    #[inline(always)]
    pub(super) fn new(has_costs: bool) -> Self {
        let none = V::all(0);
        Waits {
            has_costs,
            branches: none,
            flushes: None,
            fetches: none,
            fetch_lookups: none,
            fetch_walks: none,
            stores: none,
            handlers: none,
            verification: none,
            slowest: ReferenceWaits::new(),
        }
    }
}

/// The cycles for which a reference to data waits.
#[derive(Clone, Copy)]
pub(super) struct ReferenceWaits<V> {
    pub(super) lookups: V,
    pub(super) walks: V,
    pub(super) data: V,
    /// The [`Part`] of the stack that `data` belongs to, as a number.
    pub(super) served: V,
}

impl<V: Lanes> ReferenceWaits<V> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        let none = V::all(0);
        ReferenceWaits { lookups: none, walks: none, data: none, served: V::all(Part::Base as u32) }
    }

    /// Keeps the waits of the reference that ends later: in lanes where `end` is not before `latest`, replaces the
    /// waits by `waits`, and `latest` by `end`.
    #[inline(always)]
    pub(super) fn replace(&mut self, latest: &mut V, end: &V, waits: &Self) {
        let select = |old_wait, new_wait| end.select_at_least(*latest, new_wait, old_wait);
        self.lookups = select(self.lookups, waits.lookups);
        self.walks = select(self.walks, waits.walks);
        self.data = select(self.data, waits.data);
        self.served = select(self.served, waits.served);
        *latest = latest.max(*end);
    }
}

/// Adds a number in a lane.
#[inline(always)]
pub(super) fn add_in_lane<V: Lanes>(sums: &mut V, lane: usize, number: u32) {
    sums.set(lane, sums.get(lane) + number);
}

impl<V: Lanes> Pipeline<V> {
    /// Adds the `elapsed` cycles between the last commit and that of an entry to the stacks, by the entry's waits, the
    /// last wait first.
    #[inline(always)]
    pub(super) fn count_cycles(&mut self, elapsed: V, waits: &Waits<V>) {
        let Some(mut cycles) = self.stacks.cycles_without_commit(elapsed) else {
            return self.stacks.add_to_base(V::all(0), elapsed);
        };
        let remaining = &mut cycles;
        let ReferenceWaits { lookups, walks, data, served } = &waits.slowest;
        if waits.has_costs {
            self.stacks.attribute(remaining, Part::Walks, waits.verification);
        }
        self.stacks.attribute_to_data(remaining, data, served);
        self.stacks.attribute(remaining, Part::Walks, *walks);
        self.stacks.attribute(remaining, Part::TlbL2, *lookups);
        self.stacks.attribute(remaining, Part::Handlers, waits.handlers);
        self.stacks.attribute(remaining, Part::Stores, waits.stores);
        if waits.has_costs {
            self.stacks.attribute(remaining, Part::Fetches, waits.fetches);
            self.stacks.attribute(remaining, Part::Walks, waits.fetch_walks);
            self.stacks.attribute(remaining, Part::TlbL2, waits.fetch_lookups);
        }
        if let Some(flushes) = waits.flushes {
            self.stacks.attribute(remaining, Part::Walks, flushes);
        }
        self.stacks.attribute(remaining, Part::Branches, waits.branches);
        self.stacks.add_to_base(cycles, elapsed);
    }
}
