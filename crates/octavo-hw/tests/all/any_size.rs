//! Any-size TLBs compared with the oracle's.

use crate::common::{naive, replacement};
use octavo_hw::{AnySizeArray, Asid, Replacement};
use octavo_oracle::NaiveAnySize;
use octavo_types::{Instructions, PageNumber, PageSize};
use proptest::collection::vec;
use proptest::prelude::*;

/// An operation on base pages of one of two address spaces.
#[derive(Clone, Debug)]
enum Step {
    LookUp(u16, u64),
    /// Looks a page up and uses its entry again.
    UseTwice(u16, u64),
    /// Inserts the page of 2^n base pages that covers this base page.
    Insert(u16, u64, u8),
    Invalidate(u16, u64, u64),
    Clear,
}

/// First base pages of the tested areas: the lowest, above 2^32, and the last of 64-bit and of 59-bit
/// addresses.
const PLACES: [u64; 4] = [0, 1 << 35, (1 << 52) - 64, (1 << 47) - 64];

fn step() -> impl Strategy<Value = Step> {
    let page =
        || (prop::sample::select(PLACES.to_vec()), 0u64..64).prop_map(|(at, page)| at + page);
    prop_oneof![
        60 => (0u16..2, page()).prop_map(|(asid, page)| Step::LookUp(asid, page)),
        10 => (0u16..2, page()).prop_map(|(asid, page)| Step::UseTwice(asid, page)),
        30 => (0u16..2, page(), prop_oneof![0u8..=4, Just(9u8), Just(18u8)])
            .prop_map(|(asid, page, shift)| Step::Insert(asid, page, shift)),
        5 => (0u16..2, page(), 0u64..20)
            .prop_map(|(asid, page, pages)| Step::Invalidate(asid, page, pages)),
        1 => Just(Step::Clear),
    ]
}

/// The number that an array holds for a base page, see [`AnySizeArray`].
fn kept(page: u64) -> u64 {
    page % (1 << 47)
}

fn check(
    instructions: Instructions,
    replacement: Replacement,
    entries: u64,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut tlb = AnySizeArray::new(entries, replacement, instructions).unwrap();
    let mut oracle = NaiveAnySize::new(entries as usize, naive(replacement));
    let asid = |raw| Asid::new(raw).unwrap();
    let number = PageNumber::new;
    for (now, step) in steps.iter().enumerate() {
        match *step {
            Step::LookUp(space, page) => {
                let found = tlb.look_up_slot(asid(space), number(page));
                let found = found.map(|(size, value, _)| (size, value));
                prop_assert_eq!(found, oracle.look_up(space, number(kept(page))));
            }
            Step::UseTwice(space, page) => {
                if let Some((.., slot)) = tlb.look_up_slot(asid(space), number(page)) {
                    tlb.touch(slot);
                }
                oracle.look_up(space, number(kept(page)));
                oracle.look_up(space, number(kept(page)));
            }
            Step::Insert(space, page, shift) => {
                let size = PageSize::from_log2(12 + shift).unwrap();
                let evicted = tlb.insert(asid(space), number(page >> shift), size, now);
                let evicted =
                    evicted.map(|(asid, page, size, then)| (asid.raw(), page, size, then));
                let page = number(kept(page) >> shift);
                prop_assert_eq!(evicted, oracle.insert(space, page, size, now));
            }
            Step::Invalidate(space, page, pages) => {
                let out = tlb.invalidate(asid(space), number(page)..number(page + pages));
                let page = kept(page);
                let expected = oracle.invalidate(space, number(page)..number(page + pages));
                prop_assert_eq!(out, expected);
            }
            Step::Clear => {
                tlb.clear();
                oracle.clear();
            }
        }
        let held = tlb.iter().map(|(asid, page, size, value)| (asid.raw(), page, size, *value));
        let (mut held, mut expected) = (held.collect::<Vec<_>>(), oracle.entries());
        if matches!(replacement, Replacement::Lru | Replacement::Fifo) {
            // These policies do not distinguish ways: any free one may be filled.
            held.sort_unstable_by_key(|entry| entry.3);
            expected.sort_unstable_by_key(|entry| entry.3);
        }
        prop_assert_eq!(held, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    #[test]
    fn any_size_arrays_match_lists(
        replacement in replacement(),
        entries in prop::sample::select(vec![1u64, 3, 8, 16, 32]),
        steps in vec(step(), 1..200),
    ) {
        for instructions in Instructions::all() {
            check(instructions, replacement, entries, &steps)?;
        }
    }
}

/// The example of Guvenilir and Patt (section III.A.1): a page of 32 KiB is one entry for its eight base
/// pages, and entries from before it grew age out.
#[test]
fn grown_page_occupies_one_entry() {
    let large = PageSize::from_bytes(32 << 10).unwrap();
    let (asid, number) = (Asid::ONLY, PageNumber::new);
    let mut tlb = AnySizeArray::new(2, Replacement::Lru, Instructions::best()).unwrap();
    tlb.insert(asid, number(8), PageSize::BASE, 'a');
    tlb.insert(asid, number(1), large, 'b');
    for page in 8..16 {
        let found = tlb.look_up_slot(asid, number(page)).map(|(size, value, _)| (size, value));
        assert_eq!(found, Some((large, 'b')), "{page}");
    }
    assert!(tlb.look_up_slot(asid, number(16)).is_none());
    let evicted = Some((asid, number(8), PageSize::BASE, 'a'));
    assert_eq!(tlb.insert(asid, number(2), large, 'c'), evicted);
    let refused = AnySizeArray::<()>::new(0, Replacement::Lru, Instructions::best());
    assert_eq!(refused.unwrap_err().to_string(), "0 sets of 0 ways: give at least 1 of each");
}
