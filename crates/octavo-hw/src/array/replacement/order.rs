//! An order of the ways of each set, in which any way can be moved to either end.

use super::Geometry;

/// Maximum number of packed ways.
pub(in super::super) const MAX_PACKED: usize = 16;

/// An order of all ways of each set. Free ways are last, so that the last way is always the next to fill.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// Up to 16 ways, in one word per set.
    Packed(Packed),
    /// Any number of ways.
    Linked(Linked),
}

/// Dispatches to either representation.
macro_rules! each {
    ($self:expr, $order:ident => $does:expr) => {
        match $self {
            Order::Packed($order) => $does,
            Order::Linked($order) => $does,
        }
    };
}

impl Order {
    pub fn new(geometry: Geometry) -> Self {
        if geometry.ways() <= MAX_PACKED {
            Order::Packed(Packed::new(geometry))
        } else {
            Order::Linked(Linked::new(geometry))
        }
    }

    /// Moves a way to the front.
    #[inline(always)]
    pub fn move_to_front(&mut self, set: usize, way: usize) {
        each!(self, order => order.move_to_front(set, way));
    }

    /// Moves a way to the end.
    #[inline(always)]
    pub fn move_to_end(&mut self, set: usize, way: usize) {
        each!(self, order => order.move_to_end(set, way));
    }

    /// Moves the last way to the front and returns it.
    #[inline(always)]
    pub fn rotate(&mut self, set: usize) -> usize {
        each!(self, order => order.rotate(set))
    }
}

/// A one in each group of four bits.
const ONES: u64 = 0x1111_1111_1111_1111;

/// Ways as four-bit numbers, the first lowest; bits behind the last way are 0.
#[derive(Clone, Debug)]
pub(in super::super) struct Packed {
    orders: Box<[u64]>,
    /// Bit position of the last way.
    last_shift: u32,
    /// Mask of the bits of all ways.
    mask: u64,
}

impl Packed {
    /// The initial order of a geometry of up to [`MAX_PACKED`] ways: highest first.
    pub fn new(geometry: Geometry) -> Self {
        let last_shift = 4 * (geometry.ways() as u32 - 1);
        let mask = u64::MAX >> (60 - last_shift);
        let orders = vec![0; geometry.sets()].into_boxed_slice();
        let mut order = Packed { orders, last_shift, mask };
        order.clear();
        order
    }

    /// Resets to the initial order.
    pub fn clear(&mut self) {
        // Digits 0 to 15 from the top, shifted so that 0 is the last way.
        self.orders.fill(0x0123_4567_89ab_cdef >> (60 - self.last_shift));
    }

    /// The mask of all bits up to and including those of a way.
    #[inline(always)]
    fn up_to(order: u64, way: usize) -> u64 {
        // Zero in the four bits of the way and, for way 0, behind the last way.
        let zero_at_way = order ^ (way as u64 * ONES);
        let zeros = zero_at_way.wrapping_sub(ONES) & !zero_at_way & (8 * ONES);
        // Only the lowest bit of `zeros` is reliable.
        zeros ^ zeros.wrapping_sub(1)
    }

    /// As [`Order::move_to_front`].
    #[inline(always)]
    pub fn move_to_front(&mut self, set: usize, way: usize) {
        let order = &mut self.orders[set];
        let moving = Self::up_to(*order, way);
        *order = *order & !moving | (*order << 4 | way as u64) & moving;
    }

    /// As [`Order::move_to_end`].
    #[inline(always)]
    pub fn move_to_end(&mut self, set: usize, way: usize) {
        let order = &mut self.orders[set];
        let staying = Self::up_to(*order, way) >> 4;
        *order = *order & staying | (*order >> 4) & !staying | (way as u64) << self.last_shift;
    }

    /// As [`Order::rotate`].
    #[inline(always)]
    pub fn rotate(&mut self, set: usize) -> usize {
        let order = &mut self.orders[set];
        let last = *order >> self.last_shift;
        *order = (*order << 4) & self.mask | last;
        last as usize
    }
}

/// Doubly linked rings of slots (set times ways plus way).
#[derive(Clone, Debug)]
pub(super) struct Linked {
    links: Box<[Link]>,
    first: Box<[u32]>,
    ways: usize,
}

/// The neighbours of a slot.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

impl Linked {
    /// The initial order: highest way first.
    fn new(geometry: Geometry) -> Self {
        let ways = geometry.ways();
        let links = (0..geometry.entries()).map(|slot| {
            let (set, way) = (slot / ways, slot % ways);
            let neighbour = |way: usize| (set * ways + way % ways) as u32;
            Link { before: neighbour(way + 1), behind: neighbour(way + ways - 1) }
        });
        let first = (0..geometry.sets()).map(|set| (set * ways + ways - 1) as u32);
        Linked { links: links.collect(), first: first.collect(), ways }
    }

    #[inline(always)]
    fn move_to_front(&mut self, set: usize, way: usize) {
        self.move_to_end(set, way);
        self.rotate(set);
    }

    #[inline(always)]
    fn move_to_end(&mut self, set: usize, way: usize) {
        let slot = (set * self.ways + way) as u32;
        let first = self.first[set];
        let Link { before, behind } = self.links[slot as usize];
        if slot == first {
            // The same ring, starting at the next slot.
            self.first[set] = behind;
            return;
        }
        self.links[before as usize].behind = behind;
        self.links[behind as usize].before = before;
        let last = self.links[first as usize].before;
        self.links[slot as usize] = Link { before: last, behind: first };
        self.links[last as usize].behind = slot;
        self.links[first as usize].before = slot;
    }

    #[inline(always)]
    fn rotate(&mut self, set: usize) -> usize {
        let last = self.links[self.first[set] as usize].before;
        self.first[set] = last;
        last as usize - set * self.ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn both_orders_match_a_list(ways in 1usize..=16, moved in vec((0usize..3, 0usize..16, 0..5), 0..99)) {
            let geometry = Geometry::new(3, ways as u64).unwrap();
            let (mut packed, mut linked) = (Packed::new(geometry), Linked::new(geometry));
            let mut lists = vec![(0..ways).rev().collect::<Vec<usize>>(); 3];
            for (set, way, does) in moved {
                let (way, list) = (way % ways, &mut lists[set]);
                match does {
                    0 => {
                        let last = list[ways - 1];
                        list.rotate_right(1);
                        prop_assert_eq!((packed.rotate(set), linked.rotate(set)), (last, last));
                    }
                    1 => {
                        list.retain(|other| *other != way);
                        list.push(way);
                        packed.move_to_end(set, way);
                        linked.move_to_end(set, way);
                    }
                    _ => {
                        list.retain(|other| *other != way);
                        list.insert(0, way);
                        packed.move_to_front(set, way);
                        linked.move_to_front(set, way);
                    }
                }
                prop_assert_eq!(packed.orders[set] as usize & 15, list[0]);
                prop_assert_eq!(linked.first[set] as usize, set * ways + list[0]);
            }
        }
    }
}
