//! The order compared with a plain list.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    /// Uses of more and of fewer pages than the capacity, long enough to close gaps and to exhaust stamps.
    #[test]
    fn an_order_is_a_list(
        uses in prop::collection::vec((0u32..90, 0u32..8), 1..6000),
        capacity in 1u32..70,
        late in prop_oneof![Just(FIRST_STAMP), (0u32..3000).prop_map(|before| LATE_STAMP - before)],
    ) {
        let mut order = Order::new(capacity);
        order.start_at(late);
        let mut list: Vec<u32> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for (id, choice) in uses {
            order.grow(id + 1);
            let at = list.iter().position(|other| *other == id);
            prop_assert_eq!(order.is_new(id), seen.insert(id));
            let slot = order.slot(id);
            let depth = slot.map(|slot| order.depth(slot) as usize);
            prop_assert_eq!(depth, at.map(|at| at + 1));
            if let (Some(slot), Some(at)) = (slot, at) {
                if choice == 0 {
                    // The slot stays as a hole.
                    order.disown(slot);
                    list[at] = NO_ID;
                } else {
                    order.free(slot);
                    list.remove(at);
                }
            }
            list.insert(0, id);
            list.truncate(capacity as usize);
            order.push(id);
            let disowned: Vec<u32> =
                order.disowned().map(|slot| order.depth(slot) - 1).collect();
            let expected = list.iter().enumerate().rev().filter(|(_, id)| **id == NO_ID);
            prop_assert_eq!(disowned, expected.map(|(at, _)| at as u32).collect::<Vec<_>>());
        }
    }

}

proptest! {
    #![proptest_config(octavo_oracle::cases(8))]

    /// Thousands of pages, so that many words and groups are used.
    #[test]
    fn a_long_order_is_a_list(seed in any::<u64>(), capacity in 1000u32..=MAX_PAGES, more in 1u32..2000) {
        let (mut order, mut list, mut random) = (Order::new(capacity), Vec::new(), seed | 1);
        order.grow(capacity + more);
        for step in 0..30_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Pages in a loop, any page, or one of a few.
            let id = match random >> 62 {
                0 | 1 => step % (capacity + more),
                2 => (random >> 33) as u32 % (capacity + more),
                _ => (random >> 33) as u32 % 100,
            };
            let slot = order.slot(id);
            // Searching the list at every step would take minutes.
            if step % 16 == 0 {
                let at = list.iter().rev().position(|other| *other == id);
                let expected = at.map(|at| at as u32 + 1).filter(|depth| *depth <= capacity);
                prop_assert_eq!(slot.map(|slot| order.depth(slot)), expected);
            }
            if let Some(at) = list.iter().rposition(|other| *other == id) {
                list.remove(at);
            }
            list.push(id);
            match slot {
                Some(slot) if random >> 61 & 1 == 0 => order.replace(slot, id),
                Some(slot) => {
                    order.free(slot);
                    order.push(id);
                }
                None => {
                    order.push(id);
                }
            }
        }
    }
}
