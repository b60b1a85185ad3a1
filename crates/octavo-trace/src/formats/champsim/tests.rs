use octavo_oracle::Reference;
use octavo_oracle::strategies::{RandomStream, Step};
use octavo_types::{Dependences, Item, ItemKind, Segment, VirtAddr};
use proptest::prelude::*;

use super::*;
use crate::formats::testing::{
    self, read, references_of, same_but_for_sizes, split_modifies, write,
};

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    /// Lost are sizes (except of instructions that the next one follows), and that a modify is one
    /// reference.
    #[test]
    fn written_traces_are_read_back(random in testing::stream(1..80)) {
        let expected = split_modifies(&references_of(&random));
        prop_assume!(!expected.is_empty());
        for (format, layout) in [(&FORMAT, &INPUT), (&CLOUDSUITE, &CLOUD)] {
            let (bytes, written) = write(format, &random).unwrap();
            prop_assert_eq!(bytes.len() % layout.bytes, 0);
            prop_assert!(written.losses.len() >= 5);
            let head = &bytes[..bytes.len().min(4096)];
            prop_assert_eq!((format.recognise)(head), Likeness::Maybe);
            same_but_for_sizes(&read(format, &bytes).whole(), &expected);
        }
    }

    /// A trace cut anywhere gives what its whole records say.
    #[test]
    fn cut_traces(random in testing::stream(1..20), at in any::<prop::sample::Index>()) {
        let (bytes, _) = write(&FORMAT, &random).unwrap();
        prop_assume!(!bytes.is_empty());
        let all = read(&FORMAT, &bytes).whole();
        let cut = at.index(bytes.len());
        let drained = read(&FORMAT, &bytes[..cut]);
        let rest = cut % 64;
        if rest != 0 {
            let byte = cut - rest;
            prop_assert_eq!(drained.sentence(), format!(
                "`trace`, byte {byte}: ends in the middle of a record: {rest} of 64 bytes"
            ));
        }
        let got = &drained.references;
        let bare = |all: &[Reference]| {
            all.iter().map(|reference| (reference.kind, reference.addr)).collect::<Vec<_>>()
        };
        prop_assert_eq!(bare(got), bare(&all[..got.len()]));
    }
}

fn record(
    ip: u64,
    branch: [u8; 2],
    registers: [u8; 6],
    stores: [u64; 2],
    loads: [u64; 4],
) -> Vec<u8> {
    let mut record = ip.to_le_bytes().to_vec();
    record.extend(branch);
    record.extend(registers);
    for addr in stores.into_iter().chain(loads) {
        record.extend(addr.to_le_bytes());
    }
    assert_eq!(record.len(), 64);
    record
}

#[test]
fn records_made_by_hand() {
    use ItemKind::{Fetch, Load, Store};
    let none = [0; 6];
    let trace = [
        // mov rax, [rbx], three bytes long.
        record(0x401000, [0, 0], [10, 0, 7, 0, 0, 0], [0, 0], [0, 0x5000, 0, 0]),
        // add [rcx], eax: rax was made by the one before; and it is two bytes long.
        record(0x401003, [0, 0], [25, 0, 56, 9, 0, 0], [0x6000, 0], [0x6000, 0, 0, 0]),
        // A conditional jump that falls through, six bytes long, and one that is taken.
        record(0x401005, [1, 0], [26, 0, 26, 25, 0, 0], [0, 0], [0; 4]),
        record(0x40100b, [1, 1], [26, 0, 26, 25, 0, 0], [0, 0], [0; 4]),
        // Back to the first jump, now taken, of known length.
        record(0x401005, [1, 1], [26, 0, 26, 25, 0, 0], [0, 0], [0; 4]),
        // More data of the same instruction.
        record(0x401005, [0, 1], none, [0x7000, 0x7008], [0; 4]),
        // With the flags of such a record, but an instruction of its own.
        record(0x402000, [0, 1], none, [0, 0], [u64::MAX, 0, 0, 0]),
    ]
    .concat();
    assert_eq!(recognise(&trace, &INPUT), Likeness::Maybe);
    let drained = read(&FORMAT, &trace);
    let sets: Vec<_> =
        drained.executed.iter().flat_map(|(segment, _)| segment.dependences()).copied().collect();
    let (flags, rbx, rcx, rax) = (1 << 16, 1 << 3, 1 << 1, 1);
    assert_eq!(
        sets[..4],
        [
            Dependences::new(0, rbx, rax),
            Dependences::new(1, rcx, flags),
            Dependences::new(1, 0, 0),
            // A branch, taken or not, ends a segment.
            Dependences::new(0, flags, 0),
        ]
    );
    assert!(!drained.facts.has_sizes && drained.facts.has_instructions);
    let whole = drained.whole();
    let got: Vec<_> = whole
        .iter()
        .map(|reference| (reference.kind, reference.addr.raw(), reference.size_bytes))
        .collect();
    assert_eq!(
        got,
        [
            (Fetch, 0x401000, 3),
            (Load, 0x5000, 1),
            (Fetch, 0x401003, 2),
            (Load, 0x6000, 1),
            (Store, 0x6000, 1),
            (Fetch, 0x401005, 6),
            (Fetch, 0x40100b, 4),
            (Fetch, 0x401005, 6),
            (Store, 0x7000, 1),
            (Store, 0x7008, 1),
            (Fetch, 0x402000, 4),
            (Load, u64::MAX, 1),
        ]
    );
}

#[test]
fn a_cloudsuite_record_made_by_hand() {
    let mut trace = vec![0; 96];
    trace[..8].copy_from_slice(&0x1000u64.to_le_bytes());
    trace[13] = 10;
    trace[14] = 6;
    trace[24..32].copy_from_slice(&0x20u64.to_le_bytes());
    trace[48..56].copy_from_slice(&0x28u64.to_le_bytes());
    trace[56..64].copy_from_slice(&0x10u64.to_le_bytes());
    trace[80..88].copy_from_slice(&0x18u64.to_le_bytes());
    trace[88] = 7;
    let drained = read(&CLOUDSUITE, &trace);
    let addresses: Vec<_> =
        drained.references.iter().map(|reference| reference.addr.raw()).collect();
    assert_eq!(addresses, [0x1000, 0x10, 0x18, 0x20, 0x28]);
    let Dependences { reads, writes, .. } = drained.executed[0].0.dependences()[0];
    assert_eq!((reads, writes), (1 << 4, 1));
}

/// One execution of a segment of these items.
fn one(items: &[(ItemKind, u16, u64)], dependences: Vec<Dependences>) -> RandomStream {
    let is_fetch = |kind| kind == ItemKind::Fetch;
    let addresses = items.iter().filter(|item| !is_fetch(item.0)).map(|item| VirtAddr::new(item.2));
    let addresses = addresses.collect();
    let items = items.iter().map(|&(kind, size_bytes, addr)| {
        Item::new(kind, size_bytes, VirtAddr::new(if is_fetch(kind) { addr } else { 0 }))
    });
    let segment = Segment::new(items.collect(), dependences).unwrap();
    RandomStream { segments: vec![segment], steps: vec![Step::Segment(0, addresses)] }
}

/// Fetches of these sizes, one after the other, from 0x1000.
fn straight(sizes: &[u16], dependences: Vec<Dependences>) -> RandomStream {
    let items: Vec<_> = sizes
        .iter()
        .scan(0x1000, |at, &size| {
            let item = (ItemKind::Fetch, size, *at);
            *at += u64::from(size);
            Some(item)
        })
        .collect();
    one(&items, dependences)
}

#[test]
fn registers_survive() {
    let dependences = vec![
        Dependences::new(0, 1 << 4 | 1 << 63, 1 << 15),
        Dependences::new(1, 1 << 16, 1 << 17 | 1 << 18),
        Dependences::new(1, 1 << 19, 0),
    ];
    let stream = straight(&[3, 4, 2], dependences.clone());
    for format in [&FORMAT, &CLOUDSUITE] {
        let (bytes, _) = write(format, &stream).unwrap();
        assert_eq!(read(format, &bytes).executed[0].0.dependences(), dependences);
    }
}

/// The value of the first instruction is in no register after the superblock, and that of the
/// third in none that the fourth has not written since.
#[test]
fn values_that_no_register_keeps_get_a_stand_in() {
    let rax = 1;
    let entry = |producers, writes| Dependences::new(producers, 0, writes);
    let dependences =
        vec![entry(0, 0), entry(0b1, 0), entry(0b11, rax), entry(0, rax), entry(0b10, 0)];
    let (bytes, _) = write(&FORMAT, &straight(&[4; 5], dependences)).unwrap();
    let registers: Vec<_> = bytes.chunks(64).map(|record| record[10..16].to_vec()).collect();
    let [xmm16, xmm17] = [107, 108];
    assert_eq!(
        registers,
        [
            [xmm16, xmm17, 0, 0, 0, 0],
            [xmm16, 0, xmm16, 0, 0, 0],
            [10, xmm16, xmm16, xmm17, 0, 0],
            [10, 0, 0, 0, 0, 0],
            [0, 0, xmm16, 0, 0, 0],
        ]
    );
    let drained = read(&FORMAT, &bytes);
    let producers: Vec<_> =
        drained.executed[0].0.dependences().iter().map(|entry| entry.producers).collect();
    assert_eq!(producers, [0, 0b1, 0b11, 0, 0b10]);
}

/// A producer is named even where the records held back were handed on in between.
#[test]
fn dependences_across_buffers() {
    let dependences: Vec<_> =
        (0..10_000).map(|number| Dependences::new(u64::from(number > 63) << 63, 0, 0)).collect();
    let (bytes, _) = write(&FORMAT, &straight(&[4; 10_000], dependences)).unwrap();
    let registers_of = |number: usize| &bytes[number * 64 + 10..number * 64 + 16];
    // As many values are under way as there are stand-ins, and all others are lost.
    let named = (64..10_000).filter(|&number| {
        let read = registers_of(number)[2];
        assert!(read == 0 || registers_of(number - 64)[0] == read, "{number}");
        read != 0
    });
    assert!(named.count() > 2_000);
}

/// The flags and the registers in the records of branches.
fn branches(stream: &RandomStream) -> Vec<Vec<u8>> {
    let (bytes, _) = write(&FORMAT, stream).unwrap();
    bytes.chunks(64).filter(|record| record[8] != 0).map(|record| record[8..16].to_vec()).collect()
}

#[test]
fn a_jump_is_a_branch() {
    use ItemKind::Fetch;
    let at = [0x1000, 0x1002, 0x1002, 0x1004];
    let stream = one(&at.map(|addr| (Fetch, 2, addr)), vec![]);
    assert_eq!(branches(&stream), [[1, 1, 26, 0, 26, 0, 0, 0], [1, 0, 26, 0, 26, 25, 0, 0]]);
}

/// The registers by which ChampSim distinguishes branches (`inc/instruction.h`).
#[test]
fn kinds_of_branches() {
    use ItemKind::{Fetch, Load, Store};
    let (rsp, rcx, flags) = (1 << 4, 1 << 1, 1 << 16);
    let entry = |reads, writes| Dependences::new(0, reads, writes);
    let items = [
        // A conditional jump, which jumps, then falls through.
        ((Fetch, 2, 0x1000), entry(flags, 0)),
        ((Fetch, 2, 0x1000), entry(flags, 0)),
        // A call, and the return, to which flags come by way of the stack pointer's maker.
        ((Fetch, 5, 0x1002), entry(rsp | flags, rsp)),
        ((Store, 8, 0x7ff8), entry(0, 0)),
        ((Fetch, 1, 0x2000), entry(rsp | flags, rsp)),
        ((Load, 8, 0x7ff8), entry(0, 0)),
        // A jump to where a register says: known once it jumps elsewhere.
        ((Fetch, 2, 0x1007), entry(rcx, 0)),
        ((Fetch, 2, 0x3000), entry(0, 0)),
        ((Fetch, 2, 0x1007), entry(rcx, 0)),
        ((Fetch, 2, 0x4000), entry(0, 0)),
    ];
    let fetches =
        items.iter().filter(|(item, _)| item.0 == Fetch).map(|(_, entry)| *entry).collect();
    let items: Vec<_> = items.iter().map(|(item, _)| *item).collect();
    assert_eq!(
        branches(&one(&items, fetches)),
        [
            [1, 1, 26, 0, 25, 26, 0, 0],
            [1, 0, 26, 0, 25, 26, 0, 0],
            [1, 1, 6, 26, 6, 26, 0, 0],
            [1, 1, 6, 26, 6, 0, 0, 0],
            [1, 1, 26, 0, 9, 26, 0, 0],
            [1, 1, 26, 0, 26, 0, 0, 0],
            [1, 1, 26, 0, 9, 0, 0, 0],
        ]
    );
}

#[test]
fn losses_are_named() {
    use ItemKind::{Fetch, Load, Modify};
    let null = one(&[(Fetch, 2, 0x1000), (Modify, 8, 0)], vec![]);
    assert_eq!(
        write(&FORMAT, &null).unwrap_err().to_string(),
        "`memory`: the instruction at 0x1000 touches address 0, which this format cannot hold"
    );
    let headless = one(&[(Load, 8, 0x10)], vec![]);
    assert_eq!(
        write(&FORMAT, &headless).unwrap_err().to_string(),
        "`memory`: data at 0x10 comes before any instruction, which this format cannot hold"
    );
}

#[test]
fn an_instruction_of_very_much_data() {
    use ItemKind::{Fetch, Store};
    let mut stream = one(&[(Fetch, 2, 0x1000), (Store, 8, 0x10)], vec![]);
    let rest = one(&[(Store, 8, 0x20)], vec![]);
    stream.segments.extend(rest.segments);
    let step = Step::Segment(1, vec![VirtAddr::new(0x20)]);
    stream.steps.extend(vec![step; 20_000]);
    let (bytes, written) = write(&FORMAT, &stream).unwrap();
    assert!(written.losses.last().unwrap().starts_with("whether 1 instructions"));
    same_but_for_sizes(&read(&FORMAT, &bytes).whole(), &references_of(&stream));
}

#[test]
fn wrong_traces_are_named() {
    let good = record(0x401000, [0, 0], [0; 6], [0, 0], [0; 4]);
    let bad = record(0x401000, [0, 7], [0; 6], [0, 0], [0; 4]);
    let drained = read(&FORMAT, &[good.clone(), bad.clone()].concat());
    assert_eq!(drained.references.len(), 1);
    assert_eq!(
        drained.sentence(),
        "`trace`, byte 64: no record of champsim: is_branch is 0 and branch_taken 7, where both \
         are 0 or 1"
    );
    assert_eq!(recognise(&bad, &INPUT), Likeness::No);
    assert_eq!(recognise(&good[..63], &INPUT), Likeness::No);
    assert_eq!(recognise(&[0; 4096], &INPUT), Likeness::No);
    let text = "I  04016b80,3\n".repeat(300);
    assert_eq!(recognise(&text.as_bytes()[..4096], &INPUT), Likeness::No);
    assert_eq!(recognise(&text.as_bytes()[..4096], &CLOUD), Likeness::No);
}
