//! Packets made by hand.

use super::super::testing::{self, Drained};
use super::*;
use octavo_oracle::Reference as Plain;
use octavo_types::VirtAddr;
use proptest::prelude::*;

/// Magic, header and `packets` of command, address, size and flags.
fn trace(packets: &[(u32, u64, u32, u32)]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    let header = Header { object: Some(b"system.cpu".to_vec()), ticks_per_second: Some(1 << 40) };
    header.encode_length_delimited(&mut bytes).unwrap();
    for (tick, &(command, addr, size, flags)) in packets.iter().enumerate() {
        let packet = Packet {
            tick: Some(tick as u64),
            command: Some(command),
            addr: Some(addr),
            size: Some(size),
            flags: Some(flags),
        };
        packet.encode_length_delimited(&mut bytes).unwrap();
    }
    bytes
}

fn read(bytes: &[u8]) -> Drained {
    testing::read(&FORMAT, bytes)
}

fn plain(kind: ItemKind, addr: u64, size_bytes: u16) -> Plain {
    Plain { kind, addr: VirtAddr::new(addr), size_bytes }
}

#[test]
fn the_bytes_of_a_packet() {
    // By hand: tick 1, ReadReq, 0x1000, 4 bytes, an instruction fetch, pkt_id 7, pc 9.
    let packet = [8, 1, 16, 1, 24, 0x80, 0x20, 32, 4, 40, 0x80, 2, 48, 7, 56, 9];
    let header = [10, 1, b'x', 16, 0, 24, 1];
    let bytes = [&MAGIC[..], &[7], &header, &[16], &packet].concat();
    assert_eq!(&MAGIC, &0x356d_6567_u32.to_le_bytes());
    assert_eq!(recognise_head(&bytes), Likeness::Yes);
    assert_eq!(read(&bytes).whole(), [plain(ItemKind::Fetch, 0x1000, 4)]);
}

fn recognise_head(bytes: &[u8]) -> Likeness {
    (FORMAT.recognise)(bytes)
}

#[test]
fn requests_are_references() {
    use ItemKind::{Load, Modify, Store};
    let drained = read(&trace(&[
        (1, u64::MAX, 8, 0),
        (2, 0x1000, 8, 0),
        (4, 0x2000, 4, INST_FETCH),
        (34, 0x3000, 4, 0),
        (25, 0x4000, 64, 0),
        (7, 0x5000, 64, 0),
        (13, 0x6000, 64, 0),
        (1, 0x7000, 5000, 0),
        (4, 0x9000, 0, 0),
    ]));
    assert!(drained.facts.physical && !drained.facts.has_instructions && !drained.facts.exact);
    assert_eq!(
        drained.facts.notes,
        [
            "the addresses are physical",
            "1 requests came from caches: the trace was taken below one",
            "3 packets were left out: responses, prefetches, evictions and the like",
            "1 requests without a size were taken to be for one byte",
        ]
    );
    assert_eq!(
        drained.whole(),
        [
            plain(Load, u64::MAX, 8),
            plain(Store, 0x2000, 4),
            plain(Modify, 0x3000, 4),
            plain(Load, 0x4000, 64),
            plain(Load, 0x7000, 4096),
            plain(Load, 0x8000, 904),
            plain(Store, 0x9000, 1),
        ]
    );
}

#[test]
fn malformed_traces_are_errors() {
    let header = trace(&[]);
    let with = |rest: &[u8]| read(&[&header[..], rest].concat()).sentence();
    let at = header.len();
    assert_eq!(read(b"").sentence(), "`trace` is empty");
    assert_eq!(read(b"gem6").sentence(), "`trace`, byte 0: is not a packet trace of gem5");
    assert_eq!(read(b"gem5").sentence(), "`trace`, byte 4: ends before its header");
    assert_eq!(
        read(b"gem5\x02\x10\x01").sentence(),
        "`trace`, byte 4: begins without the header of a packet trace"
    );
    assert_eq!(with(&[0xff; 9]), format!("`trace`, byte {at}: a length has no end"));
    assert_eq!(
        with(&[0xff, 0xff, 0xff, 0xff, 1]),
        format!("`trace`, byte {at}: a message has 536870911 bytes")
    );
    assert_eq!(
        with(&[2, 8, 1]),
        format!("`trace`, byte {at}: a packet has no tick, command or address")
    );
    assert!(with(&[1, 8]).starts_with(&format!("`trace`, byte {at}: a packet is broken: ")));
    assert_eq!(
        with(&[9, 8]),
        format!("`trace`, byte {at}: ends in the middle of a message, after 2 bytes")
    );
    assert_eq!(
        read(&trace(&[(1, 0, 1 << 30, 0)])).sentence(),
        format!("`trace`, byte {at}: a packet is for 1073741824 bytes, more than 65536")
    );
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    #[test]
    fn any_stream_is_read(
        stream in testing::stream(0..100), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let references = testing::references_of(&stream);
        let packet = |reference: &Plain| {
            let (command, flags) = match reference.kind {
                ItemKind::Fetch => (1, INST_FETCH),
                ItemKind::Load => (1, 0),
                ItemKind::Store => (4, 0),
                ItemKind::Modify => (34, 0),
            };
            (command, reference.addr.raw(), u32::from(reference.size_bytes), flags)
        };
        let packets: Vec<_> = references.iter().map(packet).collect();
        let mut bytes = trace(&packets);
        let drained = read(&bytes);
        let any_fetch = references.iter().any(|reference| reference.kind == ItemKind::Fetch);
        prop_assert_eq!(drained.facts.has_instructions, any_fetch);
        prop_assert_eq!(drained.whole(), references);
        // Damaged, it is read or refused; cut, it is refused with all that came before.
        let place = at.index(bytes.len());
        prop_assert!(place == 0 || read(&bytes[..place]).references.len() <= packets.len());
        bytes[place] ^= 1 << bit;
        read(&bytes);
    }
}
