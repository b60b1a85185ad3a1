//! For any processor: loops without branches, which compilers vectorise.

use super::{Bits, LEVELS, Lanes, MAX_WAYS, Machine, NONE, Order, PAGES, TOP, in_common};

/// Any processor.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Bit *n* in lane *n*.
const LANE_BITS: [u32; MAX_WAYS] = {
    let mut all = [0; MAX_WAYS];
    let mut lane = 0;
    while lane < MAX_WAYS {
        all[lane] = 1 << lane;
        lane += 1;
    }
    all
};

/// Bits of a count, which is at most 32.
const COUNT_BITS: usize = 6;

/// By the number of low bits that two indexes have in common: a count of 1 for each level, except level 0, at
/// which they share a set.
static SHARED: [u64; MAX_WAYS] = {
    let mut all = [0; MAX_WAYS];
    let mut common_bits = 1;
    while common_bits < LEVELS {
        all[common_bits] = all[common_bits - 1] << COUNT_BITS | 1;
        common_bits += 1;
    }
    all
};

/// The entry of [`SHARED`] for two indexes.
#[inline(always)]
fn shared(a: u16, b: u16) -> u64 {
    SHARED[in_common(a, b) as usize % MAX_WAYS]
}

impl Machine for Portable {
    /// The lanes that share a set, by level.
    type Compared = [u32; LEVELS];

    #[inline(always)]
    fn equal(self, lanes: &Lanes, id: u32) -> u32 {
        // In 16-bit words, which vectors combine in fewer steps.
        let mut found = 0u16;
        for lane in 0..MAX_WAYS {
            found |= if lanes.0[lane] == id { 1 << lane } else { 0 };
        }
        u32::from(found)
    }

    #[inline(always)]
    fn push(self, lanes: &mut Lanes, id: u32, moving: u32) {
        let old = lanes.0;
        lanes.0[0] = if moving & 1 != 0 { id } else { old[0] };
        for lane in 1..MAX_WAYS {
            let moves = moving & LANE_BITS[lane] != 0;
            lanes.0[lane] = if moves { old[lane - 1] } else { old[lane] };
        }
    }

    #[inline(always)]
    fn last(self, lanes: &Lanes) -> u32 {
        lanes.0[MAX_WAYS - 1]
    }

    #[inline(always)]
    fn pull(self, lanes: &mut Lanes, moving: u32) {
        let old = lanes.0;
        for lane in 0..MAX_WAYS - 1 {
            let moves = moving & LANE_BITS[lane] != 0;
            lanes.0[lane] = if moves { old[lane + 1] } else { old[lane] };
        }
        let last = MAX_WAYS - 1;
        lanes.0[last] = if moving & LANE_BITS[last] != 0 { NONE } else { old[last] };
    }

    #[inline(always)]
    fn push_bits(self, bits: &mut Bits, value: u16, moving: u32) {
        let mut moved = [value; PAGES];
        moved[1..].copy_from_slice(&bits.0[..PAGES - 1]);
        let halves = bits.0.chunks_exact_mut(MAX_WAYS).zip(moved.chunks_exact(MAX_WAYS));
        for (half, (bits, moved)) in halves.enumerate() {
            let moving = (moving >> (half * MAX_WAYS)) as u16;
            for ((bits, moved), lane) in bits.iter_mut().zip(moved).zip(LANE_BITS) {
                *bits = if moving & lane as u16 != 0 { *moved } else { *bits };
            }
        }
    }

    #[inline(always)]
    fn exchange(self, lanes: &mut Lanes, exchanged: bool) {
        let [a, b, ..] = lanes.0;
        (lanes.0[0], lanes.0[1]) = if exchanged { (b, a) } else { (a, b) };
    }

    #[inline(always)]
    fn exchange_bits(self, bits: &mut Bits, exchanged: bool) {
        let [a, b, ..] = bits.0;
        (bits.0[0], bits.0[1]) = if exchanged { (b, a) } else { (a, b) };
    }

    #[inline(always)]
    fn equal_bits(self, bits: &Bits, value: u16) -> u32 {
        let mut found = [0u16; 2];
        for (found, half) in found.iter_mut().zip(bits.0.chunks_exact(MAX_WAYS)) {
            for (bits, lane) in half.iter().zip(LANE_BITS) {
                *found |= if *bits == value { lane as u16 } else { 0 };
            }
        }
        u32::from(found[0]) | u32::from(found[1]) << MAX_WAYS
    }

    #[inline(always)]
    fn compare(self, bits: &Bits, value: u16, lanes: usize) -> [u32; LEVELS] {
        // First the lanes by the number of bits that they have in common with the value.
        let mut all = [0; LEVELS];
        for (lane, bits) in bits.0.iter().take(lanes).enumerate() {
            all[in_common(*bits, value) as usize % LEVELS] |= 1 << lane;
        }
        for level in (1..LEVELS).rev() {
            all[level - 1] |= all[level];
        }
        all
    }

    #[inline(always)]
    fn sharing_at(self, compared: &[u32; LEVELS], level: usize) -> u32 {
        compared[level]
    }

    #[inline(always)]
    fn sharing(self, order: Order, value: u16) -> [u32; LEVELS] {
        let top = (0..order.pages.min(TOP)).map(|place| (order.top >> (16 * place)) as u16);
        let others = order.bits.0[..order.pages.saturating_sub(TOP)].iter().copied();
        let sums: u64 = top.chain(others).map(|bits| shared(bits, value)).sum();
        std::array::from_fn(|level| match level {
            0 => order.pages as u32,
            _ => (sums >> (COUNT_BITS * (level - 1))) as u32 % (1 << COUNT_BITS),
        })
    }
}
