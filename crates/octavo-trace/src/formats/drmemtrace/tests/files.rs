//! Single files of records.

use super::*;

#[test]
fn every_kind_of_record() {
    let drained = read(&whole(&[
        (kind::ENCODING, 3, 0xc3_c3c3),
        (10, 3, 0x40_1000),
        (kind::READ, 8, u64::MAX),
        (2, 64, 0x5000),
        (46, 64, 0x5000),
        (kind::INSTR_BUNDLE, 3, 0x01_0502),
        (kind::WRITE, 4, 1 << 57),
        (kind::INSTR_TAKEN_JUMP, 2, 0x40_100b),
        (16, 1, 0x40_2000),
        (kind::INSTR_NO_FETCH, 2, 0x40_2001),
        (kind::WRITE, 1, 0x6000),
        (kind::INSTR_NO_FETCH, 2, 0x40_2001),
        (kind::WRITE, 1, 0x6001),
        (kind::INSTR_SYSENTER, 2, 0x40_2003),
        (kind::MARKER, 25, 1),
        (kind::DATA_FLUSH, 64, 0x7000),
        (kind::INSTR_MAYBE_FETCH, 2, 0x40_3000),
        (kind::READ, 0, 0x8000),
        (kind::INSTR_MAYBE_FETCH, 2, 0x40_3000),
        (kind::READ, 9000, 0x9000),
        (kind::INSTR_UNTAKEN_JUMP, 0, 0x40_4000),
    ]));
    assert_eq!(
        drained.events,
        [(0, Event::ThreadStart { thread: 1 }), (16, Event::ThreadEnd { thread: 1 })]
    );
    assert_eq!(
        drained.facts.notes,
        [
            "2 prefetches were left out",
            "1 cache flushes were left out",
            "3 iterations of string instructions fetched nothing",
            "1 references of unknown size were taken to be of one byte",
            "1 references of more than 4096 bytes were split",
        ]
    );
    assert!(drained.facts.exact && drained.facts.has_instructions);
    assert_eq!(
        drained.whole(),
        [
            fetch(0x40_1000, 3),
            load(u64::MAX, 8),
            fetch(0x40_1003, 2),
            fetch(0x40_1005, 5),
            fetch(0x40_100a, 1),
            store(1 << 57, 4),
            fetch(0x40_100b, 2),
            fetch(0x40_2000, 1),
            store(0x6000, 1),
            store(0x6001, 1),
            fetch(0x40_2003, 2),
            fetch(0x40_3000, 2),
            load(0x8000, 1),
            load(0x9000, 4096),
            load(0xa000, 4096),
            load(0xb000, 808),
        ]
    );
}

#[test]
fn old_versions_have_no_markers() {
    let records = [
        vec![(kind::HEADER, 0, 1), (kind::THREAD, 4, 5), (kind::PID, 4, 5)],
        time(3),
        vec![(10, 2, 0x1000), (kind::THREAD, 4, 6), (kind::PID, 4, 5)],
        time(4),
        vec![(10, 2, 0x2000), (kind::THREAD, 4, 5), (10, 2, 0x1002), (kind::FOOTER, 0, 0)],
    ];
    let bytes = bytes_of(&records.concat());
    assert_eq!(recognise(&bytes), Likeness::Yes);
    let drained = read(&bytes);
    // Several threads in one file: it says where each goes on.
    assert_eq!(
        drained.events,
        [
            (0, Event::ThreadStart { thread: 1 }),
            (1, Event::ThreadStart { thread: 2 }),
            (1, Event::ThreadSwitch { thread: 2 }),
            (2, Event::ThreadSwitch { thread: 1 }),
        ]
    );
    assert_eq!(drained.facts.notes, ["the threads 1 to 2 are, by the system's numbers, 5, 6"]);
    assert_eq!(drained.whole(), [fetch(0x1000, 2), fetch(0x2000, 2), fetch(0x1002, 2)]);
}

#[test]
fn translations() {
    let drained = read(&whole(&[
        (kind::MARKER, marker::PHYSICAL_ADDRESS, 0x7000),
        (kind::MARKER, marker::VIRTUAL_ADDRESS, 0x40_1000),
        (kind::MARKER, marker::NO_PHYSICAL_ADDRESS, 0x5000),
        (10, 3, 0x40_1000),
    ]));
    let (virt, phys) = (VirtAddr::new(0x40_1000), PhysAddr::new(0x7000));
    assert_eq!(drained.events[0], (0, Event::Translation { virt, phys }));
    assert_eq!(drained.facts.notes, ["1 physical addresses were not known"]);
    let wrong = read(&whole(&[(kind::MARKER, marker::VIRTUAL_ADDRESS, 0x40_1000)]));
    assert_eq!(
        wrong.sentence(),
        "`trace`, byte 120: a virtual address comes without its physical one"
    );
}

#[test]
fn malformed_traces_are_errors() {
    let first = |records: &[Raw]| read(&bytes_of(records)).sentence();
    assert_eq!(read(b"").sentence(), "`trace` is empty");
    assert_eq!(
        first(&[(kind::THREAD, 0, 0)]),
        "`trace` does not begin as a final trace of drmemtrace"
    );
    assert_eq!(first(&[(kind::HEADER, 0, 8)]), "`trace` is of version 8; versions 1 to 7 are read");
    assert_eq!(
        first(&[(kind::HEADER, 0, 0x000c_001c_0000_0007), (7, 0, 28)]),
        "`trace` was written for a 32-bit program, whose records are not read"
    );
    let with_record = |record: Raw| read(&whole(&[record])).sentence();
    assert_eq!(with_record((10, 18, 0)), "`trace`, byte 120: an instruction has 18 bytes");
    assert_eq!(with_record((50, 0, 0)), "`trace`, byte 120: a record is of an unknown type, 50");
    assert_eq!(
        with_record((kind::INSTR_BUNDLE, 1, 1)),
        "`trace`, byte 120: a bundle follows no instruction"
    );
    assert_eq!(
        with_record((kind::INSTR_BUNDLE, 9, 1)),
        "`trace`, byte 120: a bundle has 9 instructions"
    );
    let two = [(10, 1, 0x1000), (kind::THREAD, 4, 12), (kind::PID, 4, 99), (10, 1, 0x1000)];
    assert_eq!(
        read(&whole(&two)).sentence(),
        "`trace`, byte 156: the process 99 begins after 11: the trace of one process is read"
    );
}

#[test]
fn a_cut_input_gives_the_part_before() {
    let bytes = whole(&[(10, 1, 0x1000), (kind::READ, 8, 0x2000)]);
    let head = bytes_of(&[&header(11, 11)[..], &time(1)].concat()).len();
    for length in 1..bytes.len() {
        let drained = read(&bytes[..length]);
        let expected = (length.saturating_sub(head) / 12).min(2);
        assert_eq!(drained.references.len(), expected);
        let (at, left) = (length / 12 * 12, length % 12);
        let what = match left {
            0 => "ends without a footer: it was cut off".to_owned(),
            _ => format!("ends in the middle of a record: {left} of 12 bytes"),
        };
        assert_eq!(drained.sentence(), format!("`trace`, byte {at}: {what}"));
    }
}
