//! The learner against the plain list of references, and its special cases.

use octavo_types::Segment;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::formats::testing::Log;
use crate::ring::Decoder;

impl Log {
    /// All references in order, without their registers.
    fn references(&self) -> Vec<Reference> {
        let references_of = |(segment, addresses): &(Segment, Vec<VirtAddr>)| {
            let mut addresses = addresses.clone().into_iter();
            let reference = |item: &Item| {
                let addr = match item.kind {
                    ItemKind::Fetch => item.addr,
                    _ => addresses.next().expect("one each"),
                };
                Reference::new(item.kind, addr, item.size_bytes)
            };
            segment.items().iter().map(reference).collect::<Vec<_>>()
        };
        self.executed.iter().flat_map(references_of).collect()
    }

    fn instructions(&self) -> Vec<u32> {
        self.executed.iter().map(|(segment, _)| segment.instructions()).collect()
    }
}

fn learn(references: &[Reference]) -> (Log, Learner) {
    let (mut learner, mut out) = (Learner::new(), WordWriter::default());
    for &reference in references {
        learner.take(reference, &mut out);
        assert!(learner.nodes.len() + learner.items <= MAX_KEPT + 2 * 64 * 256);
    }
    learner.finish(&mut out);
    let mut log = Log::default();
    Decoder::default().decode(out.words(), &mut log).expect("words are sound");
    (log, learner)
}

fn fetch(addr: u64, size_bytes: u16) -> Reference {
    Reference::new(ItemKind::Fetch, VirtAddr::new(addr), size_bytes)
}

fn load(addr: u64) -> Reference {
    Reference::new(ItemKind::Load, VirtAddr::new(addr), 8)
}

fn with_registers(reference: Reference, reads: u64, writes: u64) -> Reference {
    Reference { registers: Registers { reads, writes }, ..reference }
}

#[test]
fn a_segment_goes_on_as_long_as_fetches_follow() {
    let round = [fetch(0x1000, 2), load(0x10), fetch(0x1002, 4), fetch(0x2000, 1)];
    let (log, learner) = learn(&round.repeat(50));
    assert_eq!(log.instructions(), [2, 1].repeat(50));
    assert_eq!(log.references(), round.repeat(50));
    assert_eq!((learner.segments, learner.nodes.len()), (2, 5));
}

#[test]
fn a_segment_has_at_most_64_instructions() {
    let round: Vec<Reference> = (0..150).map(|at| fetch(0x1000 + 4 * at, 4)).collect();
    let (log, _) = learn(&round);
    assert_eq!(log.instructions(), [64, 64, 22]);
}

#[test]
fn data_may_come_without_instructions() {
    let references = [load(0x10), load(0x20), fetch(0, 4), load(0x30), fetch(0x100, 4)];
    let (log, _) = learn(&references);
    assert_eq!(log.instructions(), [0, 1, 1]);
    assert_eq!(log.references(), references);
    assert_eq!(log.executed[0].1, [0x10, 0x20].map(VirtAddr::new));
}

#[test]
fn more_than_255_data_items_begin_another_segment() {
    let mut references = vec![fetch(0x1000, 4)];
    references.extend((0..600).map(load));
    references.push(fetch(0x1004, 4));
    let (log, _) = learn(&references);
    let items: Vec<usize> = log.executed.iter().map(|(one, _)| one.items().len()).collect();
    // The instruction that follows begins a segment: there is none for it to follow in the last.
    assert_eq!(items, [256, 255, 90, 1]);
    assert_eq!(log.references(), references);
}

#[test]
fn children_that_left_the_guesses_are_found_again() {
    let ends = [1u16, 2, 3, 4, 5];
    let round = ends.map(|size| [fetch(0x1000, 4), fetch(0x1004, size)]).concat();
    let (log, learner) = learn(&round.repeat(10));
    assert_eq!((learner.nodes.len(), learner.segments), (7, 5));
    assert_eq!(log.references(), round.repeat(10));
}

#[test]
fn learner_resets_at_its_memory_bound() {
    let references: Vec<Reference> = (0..2000).map(|at| fetch(0x1000 + 16 * at, 4)).collect();
    let (log, learner) = learn(&references.repeat(2));
    assert!(learner.nodes.len() + learner.items <= MAX_KEPT + 1);
    assert_eq!(log.references(), references.repeat(2));
}

#[test]
fn registers_become_dependences() {
    let references = [
        with_registers(fetch(0x1000, 4), 0b0001, 0b0010),
        with_registers(fetch(0x1004, 4), 0b0010, 0b0110),
        with_registers(fetch(0x1008, 4), 0b0111, 1 << 63),
    ];
    let (log, _) = learn(&references);
    let entry = Dependences::new;
    assert_eq!(
        log.executed[0].0.dependences(),
        [
            // The next instruction overwrites its value in register 1.
            entry(0, 0b0001, 0),
            entry(0b1, 0, 0b0110),
            entry(0b1, 0b0001, 1 << 63),
        ]
    );
    assert_eq!(dependences_of(&[Registers::default(); 3]), []);
}

/// The farthest producer in the longest segment.
#[test]
fn the_first_instruction_may_make_what_the_last_one_uses() {
    let mut registers = vec![Registers::default(); 64];
    registers[0].writes = 1;
    registers[63].reads = 1;
    assert_eq!(dependences_of(&registers)[63].producers, 1 << 62);
}

/// The same bytes with other registers are another instruction.
#[test]
fn nodes_differ_by_registers() {
    let references = [
        with_registers(fetch(0x1000, 4), 1, 2),
        with_registers(fetch(0x1000, 4), 1, 4),
        with_registers(fetch(0x1000, 4), 1, 2),
    ];
    let (log, learner) = learn(&references);
    let writes = |(segment, _): &(Segment, _)| segment.dependences()[0].writes;
    assert_eq!(log.executed.iter().map(writes).collect::<Vec<_>>(), [2, 4, 2]);
    assert_eq!(learner.segments, 2);
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    /// The learnt segments execute the same references, whatever these are.
    #[test]
    fn references_come_out_as_they_went_in(references in vec(prop_oneof![
        4 => (0u64..12, 1u16..4).prop_map(|(at, size)| fetch(0x1000 + at, size)),
        1 => (any::<u64>(), 1u16..=4096).prop_map(|(at, size)| fetch(at, size)),
        3 => (any::<u64>(), prop::sample::select(
            [ItemKind::Load, ItemKind::Store, ItemKind::Modify].as_slice(),
        ), 1u16..3).prop_map(|(at, kind, size)| Reference::new(kind, VirtAddr::new(at), size)),
    ], 0..1500)) {
        let (log, _) = learn(&references);
        prop_assert_eq!(log.references(), &references[..]);
        for (segment, _) in &log.executed {
            prop_assert!(segment.instructions() <= 64);
            let fetches = segment.items().iter().filter(|item| item.kind == ItemKind::Fetch);
            let fetches: Vec<&Item> = fetches.collect();
            for pair in fetches.windows(2) {
                let next = pair[0].addr.wrapping_add(u64::from(pair[0].size_bytes));
                prop_assert_eq!(next, pair[1].addr);
            }
        }
    }
}
