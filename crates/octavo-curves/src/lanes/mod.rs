//! Vectors of sixteen ids, as many as a set has ways (a cache line: one vector of AVX-512, two of
//! AVX2), and of the index bits of 32 pages, which take the same room.

mod portable;
mod run;
#[cfg(target_arch = "x86_64")]
mod x86;

use portable::Portable;
pub(crate) use run::{Work, run};
#[cfg(target_arch = "x86_64")]
use x86::{Avx2, Avx512};

/// The ids in a vector: as many as a set has ways at most.
pub const MAX_WAYS: usize = 16;
/// The numbers of sets: 2^0 to 2^10. A *level* is the log2 of one.
pub(crate) const LEVELS: usize = 11;

/// Sixteen ids, most recently used first.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub [u32; MAX_WAYS]);

/// The id of an empty lane.
pub(crate) const NONE: u32 = u32::MAX;

impl Lanes {
    /// Lanes that are all empty.
    pub const EMPTY: Lanes = Lanes([NONE; MAX_WAYS]);
}

/// Number of pages kept in an order common to all sets. The index bits of all of them are one vector of
/// AVX-512.
pub(crate) const PAGES: usize = 2 * MAX_WAYS;

/// Number of these pages, the most recently used, whose look-ups are counted separately.
pub(crate) const TOP: usize = 4;

/// The index bits of pages, most recently used first. Values behind the last page are meaningless.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Bits(pub [u16; PAGES]);

/// The most recently used pages, in order, of which the [`TOP`] first are kept separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    /// The index bits of the [`TOP`] first pages, the first page lowest.
    pub top: u64,
    /// The index bits of the other pages.
    pub bits: &'a Bits,
    /// Number of pages, including the top.
    pub pages: usize,
}

/// An implementation of the operations. A set of lanes is a bit mask: bit *n* is lane *n*.
pub(crate) trait Machine: Copy {
    /// See [`Machine::compare`].
    type Compared;

    /// The lanes that hold `id`.
    fn equal(self, lanes: &Lanes, id: u32) -> u32;

    /// Gives each lane in `moving` the id of the lane before it; lane 0 gets `id` if it is in `moving`.
    fn push(self, lanes: &mut Lanes, id: u32, moving: u32);

    /// As [`Machine::push`], for lanes that a loop keeps in a register.
    #[inline(always)]
    fn pushed(self, mut lanes: Lanes, id: u32, moving: u32) -> Lanes {
        self.push(&mut lanes, id, moving);
        lanes
    }

    /// The id in the last lane.
    fn last(self, lanes: &Lanes) -> u32;

    /// Gives each lane in `moving` the id of the lane behind it; the last lane becomes empty.
    fn pull(self, lanes: &mut Lanes, moving: u32);

    /// As [`Machine::push`], for index bits.
    fn push_bits(self, bits: &mut Bits, value: u16, moving: u32);

    /// Exchanges the first two lanes if `exchanged`.
    fn exchange(self, lanes: &mut Lanes, exchanged: bool);

    /// As [`Machine::exchange`], for index bits.
    fn exchange_bits(self, bits: &mut Bits, exchanged: bool);

    /// The lanes that hold the index bits `value`.
    fn equal_bits(self, bits: &Bits, value: u16) -> u32;

    /// How the first `lanes` index bits, or all of them, compare with `value`.
    fn compare(self, bits: &Bits, value: u16, lanes: usize) -> Self::Compared;

    /// The compared lanes that share a set at a level. Other lanes are meaningless.
    fn sharing_at(self, compared: &Self::Compared, level: usize) -> u32;

    /// Number of pages of `order` in the set of a page with index bits `value`, at each level (log2 of the number
    /// of sets).
    fn sharing(self, order: Order, value: u16) -> [u32; LEVELS];

    /// Writes the indexes at which `a` and `b` differ to `indexes`, in ascending order, and returns their number.
    /// All three are as long.
    #[inline(always)]
    fn differing(self, a: &[u32], b: &[u32], indexes: &mut [u32]) -> usize {
        differing_from(0, 0, a, b, indexes)
    }
}

/// As [`Machine::differing`] from index `from` on, with `found` indexes so far.
#[inline(always)]
fn differing_from(
    from: usize,
    mut found: usize,
    a: &[u32],
    b: &[u32],
    indexes: &mut [u32],
) -> usize {
    // Every index is written, without a branch; the next one overwrites it if the two are the same.
    for (at, (a, b)) in (from as u32..).zip(a[from..].iter().zip(&b[from..])) {
        indexes[found] = at;
        found += usize::from(a != b);
    }
    found
}

/// The number of low index bits, at most 10, that two pages have in common.
#[inline(always)]
pub(crate) fn in_common(a: u16, b: u16) -> u32 {
    (u32::from(a ^ b) | 1 << (LEVELS - 1)).trailing_zeros()
}

/// The first of some lanes; 16 if there are none.
#[inline(always)]
pub(crate) fn first(lanes: u32) -> usize {
    (lanes | 1 << MAX_WAYS).trailing_zeros() as usize
}

/// The lanes up to and including the first of some lanes; all if there are none.
#[inline(always)]
pub(crate) fn up_to_first(lanes: u32) -> u32 {
    lanes ^ lanes.wrapping_sub(1)
}

/// The first of some lanes, and all lanes behind it; none if there are none.
#[inline(always)]
pub(crate) fn from_first(lanes: u32) -> u32 {
    lanes | lanes.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::{InstructionSet, Instructions};
    use proptest::prelude::*;

    fn check<M: Machine>(
        machine: M,
        ids: Lanes,
        bits: Bits,
        value: u16,
        pages: usize,
        moving: u32,
    ) {
        let id = u32::from(value);
        let equal = ids.0.iter().enumerate().map(|(lane, held)| u32::from(*held == id) << lane);
        assert_eq!(machine.equal(&ids, id), equal.sum::<u32>());
        assert_eq!(machine.last(&ids), ids.0[MAX_WAYS - 1]);

        let is_moving = |lane: usize| moving >> lane & 1 == 1;
        for exchanged in [false, true] {
            let (mut other_ids, mut other_bits) = (ids, bits);
            machine.exchange(&mut other_ids, exchanged);
            machine.exchange_bits(&mut other_bits, exchanged);
            if exchanged {
                other_ids.0.swap(0, 1);
                other_bits.0.swap(0, 1);
            }
            assert_eq!((other_ids.0, other_bits.0), (ids.0, bits.0));
        }
        let lanes_of = |is_in: &dyn Fn(u16) -> bool| {
            let lanes = bits.0.iter().enumerate();
            lanes.map(|(lane, held)| u32::from(is_in(*held)) << lane).sum::<u32>()
        };
        assert_eq!(machine.equal_bits(&bits, value), lanes_of(&|held| held == value));
        let compared = machine.compare(&bits, value, pages);
        for level in 0..LEVELS {
            let sharing = machine.sharing_at(&compared, level);
            let expected = lanes_of(&|held| held % (1 << level) == value % (1 << level));
            let wanted = ((1u64 << pages) - 1) as u32;
            assert_eq!(sharing & wanted, expected & wanted, "2^{level} sets");
        }

        let (mut pushed, mut pulled, mut pushed_bits) = (ids, ids, bits);
        machine.push(&mut pushed, id, moving);
        assert_eq!(machine.pushed(ids, id, moving).0, pushed.0);
        machine.pull(&mut pulled, moving);
        machine.push_bits(&mut pushed_bits, value, moving);
        for lane in 0..PAGES {
            let from = if is_moving(lane) { lane.checked_sub(1) } else { Some(lane) };
            assert_eq!(pushed_bits.0[lane], from.map_or(value, |from| bits.0[from]), "{lane}");
            if lane < MAX_WAYS {
                assert_eq!(pushed.0[lane], from.map_or(id, |from| ids.0[from]), "{lane}");
                let from = if is_moving(lane) { lane + 1 } else { lane };
                assert_eq!(pulled.0[lane], ids.0.get(from).map_or(NONE, |id| *id), "{lane}");
            }
        }

        let top =
            bits.0[TOP..2 * TOP].iter().rev().fold(0, |top, bits| top << 16 | u64::from(*bits));
        let sharing = machine.sharing(Order { top, bits: &bits, pages }, value);
        for (level, count) in sharing.into_iter().enumerate() {
            let share = |other: &&u16| **other % (1 << level) == value % (1 << level);
            let order = bits.0[TOP..2 * TOP].iter().chain(&bits.0).take(pages);
            assert_eq!(count as usize, order.filter(share).count(), "2^{level} sets");
        }
    }

    struct Differences<'a> {
        a: &'a [u32],
        b: &'a [u32],
        found: &'a mut Vec<u32>,
    }

    impl Work for Differences<'_> {
        fn on<M: Machine>(self, machine: M) {
            self.found.resize(self.a.len(), 0);
            let found = machine.differing(self.a, self.b, self.found);
            self.found.truncate(found);
        }
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(2000))]

        #[test]
        fn every_machine_finds_the_differences(
            numbers in prop::collection::vec((0u32..3, 0u32..3), 0..100),
        ) {
            let (a, b): (Vec<u32>, Vec<u32>) = numbers.into_iter().unzip();
            let differ = |at: &u32| a[*at as usize] != b[*at as usize];
            let expected: Vec<u32> = (0..a.len() as u32).filter(differ).collect();
            for instructions in Instructions::all() {
                let mut found = Vec::new();
                run(instructions, Differences { a: &a, b: &b, found: &mut found });
                prop_assert_eq!(&found, &expected);
            }
        }

        #[test]
        fn every_machine_matches_operations_on_arrays(
            ids in prop::array::uniform16(prop_oneof![0u32..4, any::<u32>()]),
            bits in prop::array::uniform32(prop_oneof![0u16..4, 0u16..1 << 10]),
            value in prop_oneof![0u16..4, 0u16..1 << 10],
            pages in 0usize..=PAGES,
            moving in prop_oneof![
                any::<u32>(),
                Just(0),
                (0u32..32).prop_map(|lane| up_to_first(1 << lane)),
            ],
        ) {
            let (ids, bits) = (Lanes(ids), Bits(bits));
            for instructions in Instructions::all() {
                match instructions.set() {
                    InstructionSet::Portable => check(Portable, ids, bits, value, pages, moving),
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx2 => {
                        // SAFETY: the processor has it.
                        let machine = unsafe { Avx2::new() };
                        check(machine, ids, bits, value, pages, moving);
                    }
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx512 => {
                        // SAFETY: the processor has it.
                        let machine = unsafe { Avx512::new() };
                        check(machine, ids, bits, value, pages, moving);
                    }
                }
            }
        }
    }

    #[test]
    fn masks_up_to_and_from_the_first_lane() {
        assert_eq!((first(0), first(0b1000), first(0b1010)), (16, 3, 1));
        assert_eq!((up_to_first(0b1010), up_to_first(0)), (0b11, u32::MAX));
        assert_eq!((from_first(0b1010), from_first(0)), (!1, 0));
    }
}
