//! Traces made by hand: streams, archives, directories.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use octavo_oracle::Reference;
use octavo_types::{Event, ItemKind, PhysAddr, VirtAddr};
use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::super::testing::{self, Drained, drain};
use super::record::{kind, marker};
use super::*;
use crate::source::{Batch, InputOptions, Progress, Step};

type Raw = (u16, u16, u64);

fn bytes_of(records: &[Raw]) -> Vec<u8> {
    let record = |(kind, size, value): &Raw| {
        [&kind.to_le_bytes()[..], &size.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    records.iter().flat_map(record).collect()
}

/// What begins the file of a thread.
fn header(thread: u64, process: u64) -> Vec<Raw> {
    vec![
        (kind::HEADER, 0, 7),
        (kind::MARKER, marker::VERSION, 7),
        (kind::MARKER, marker::FILE_TYPE, 0x640),
        (kind::THREAD, 4, thread),
        (kind::PID, 4, process),
        (kind::MARKER, 10, 64),
        (kind::MARKER, 20, 10_000_000),
        (kind::MARKER, 18, 4096),
    ]
}

fn time(value: u64) -> Vec<Raw> {
    vec![(kind::MARKER, marker::TIMESTAMP, value), (kind::MARKER, 3, 0)]
}

fn end(thread: u64) -> Vec<Raw> {
    vec![(kind::THREAD_EXIT, 4, thread), (kind::FOOTER, 0, 0)]
}

fn whole(records: &[Raw]) -> Vec<u8> {
    bytes_of(&[&header(11, 11)[..], &time(1), records, &end(11)].concat())
}

fn read(bytes: &[u8]) -> Drained {
    testing::read(&FORMAT, bytes)
}

fn fetch(addr: u64, size_bytes: u16) -> Reference {
    Reference { kind: ItemKind::Fetch, addr: VirtAddr::new(addr), size_bytes }
}

fn load(addr: u64, size_bytes: u16) -> Reference {
    Reference { kind: ItemKind::Load, ..fetch(addr, size_bytes) }
}

fn store(addr: u64, size_bytes: u16) -> Reference {
    Reference { kind: ItemKind::Store, ..fetch(addr, size_bytes) }
}

/// A directory of its own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("octavo-dr-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn zipped(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn read_path(path: &Path) -> Drained {
    let opened = Input::open(path, InputOptions::default()).and_then(FORMAT.open);
    match opened {
        Ok(mut source) => drain(&mut *source),
        Err(error) => {
            let mut drained = read(b"");
            drained.error = Some(error);
            drained
        }
    }
}

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
    assert_eq!(drained.events, [(16, Event::ThreadEnd { thread: 1 })]);
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
fn what_is_wrong_is_told() {
    let first = |records: &[Raw]| read(&bytes_of(records)).sentence();
    assert_eq!(read(b"").sentence(), "`trace`: is empty");
    assert_eq!(
        first(&[(kind::THREAD, 0, 0)]),
        "`trace`: does not begin as a final trace of drmemtrace"
    );
    assert_eq!(
        first(&[(kind::HEADER, 0, 8)]),
        "`trace`: is of version 8; versions 1 to 7 are read"
    );
    assert_eq!(
        first(&[(kind::HEADER, 0, 0x000c_001c_0000_0007), (7, 0, 28)]),
        "`trace`: was written for a 32-bit program, whose records are not read"
    );
    let of = |record: Raw| read(&whole(&[record])).sentence();
    assert_eq!(of((10, 18, 0)), "`trace`, byte 120: an instruction has 18 bytes");
    assert_eq!(of((50, 0, 0)), "`trace`, byte 120: a record is of an unknown type, 50");
    assert_eq!(
        of((kind::INSTR_BUNDLE, 1, 1)),
        "`trace`, byte 120: a bundle follows no instruction"
    );
    assert_eq!(of((kind::INSTR_BUNDLE, 9, 1)), "`trace`, byte 120: a bundle has 9 instructions");
    let two = [(10, 1, 0x1000), (kind::THREAD, 4, 12), (kind::PID, 4, 99), (10, 1, 0x1000)];
    assert_eq!(
        read(&whole(&two)).sentence(),
        "`trace`, byte 156: the process 99 begins after 11: the trace of one process is read"
    );
}

#[test]
fn cut_anywhere_what_came_before_is_given() {
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

/// Two chunks, the second of which begins with what is repeated.
fn chunks() -> Vec<(&'static str, Vec<u8>)> {
    let first = [
        header(11, 11),
        time(5),
        vec![(kind::ENCODING, 2, 0), (10, 2, 0x1000), (kind::MARKER, 21, 0)],
    ];
    let second = [
        vec![(kind::MARKER, 22, 9)],
        time(5),
        vec![(kind::ENCODING, 2, 0), (10, 2, 0x1000), (kind::READ, 8, 0x3000)],
        end(11),
    ];
    vec![("chunk.0000", bytes_of(&first.concat())), ("chunk.0001", bytes_of(&second.concat()))]
}

#[test]
fn archives_of_chunks() {
    let scratch = Scratch::new("chunks");
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let zip = zipped(&chunks(), method);
        assert_eq!(recognise(&zip[..zip.len().min(4096)]), Likeness::Yes);
        let path = scratch.put("t.trace.zip", &zip);
        let drained = read_path(&path);
        assert_eq!(drained.facts.notes, [""; 0]);
        assert_eq!(drained.whole(), [fetch(0x1000, 2), fetch(0x1000, 2), load(0x3000, 8)]);
    }
    assert_eq!(
        read(&zipped(&chunks(), CompressionMethod::Stored)).sentence(),
        "`trace`: is a zip archive, which can be read from a file only"
    );
}

#[test]
fn large_archives_have_larger_records() {
    let scratch = Scratch::new("zip64");
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in chunks() {
        let options = SimpleFileOptions::default().large_file(true);
        let options = options.compression_method(CompressionMethod::Deflated);
        zip.start_file(name, options).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    // So many members that their number needs the larger record at the end.
    for number in 0..70_000 {
        let options = SimpleFileOptions::default();
        zip.start_file(number.to_string(), options).unwrap();
    }
    let path = scratch.put("t.zip", &zip.finish().unwrap().into_inner());
    assert_eq!(read_path(&path).whole().len(), 3);
}

#[test]
fn broken_archives() {
    let scratch = Scratch::new("broken");
    let sentence = |bytes: &[u8]| {
        let path = scratch.put("t.zip", bytes);
        let name = format!("`{}`", path.display());
        read_path(&path).sentence().replace(&name, "it")
    };
    let whole = zipped(&chunks(), CompressionMethod::Stored);
    let mut flipped = whole.clone();
    // A processor's number, after the member's header, name and ten records.
    flipped[40 + 9 * 12 + 4] ^= 1;
    let told = sentence(&flipped);
    assert!(told.ends_with("its member `chunk.0000` is broken: its checksum differs"), "{told}");
    let told = sentence(&whole[..whole.len() / 2]);
    let cut = "it: is a zip archive without a directory at its end: it may be cut off";
    assert_eq!(told, cut);
    // More members than its directory has.
    let mut claims = whole.clone();
    let end = claims.len() - 22;
    claims[end + 10] = 3;
    assert_eq!(sentence(&claims), "it: the entry 3 of its directory is broken");
    // A directory elsewhere, and a member.
    claims[end + 18] = 1;
    assert_eq!(sentence(&claims), "it: is a zip archive whose directory is not to be found");
    let mut moved = whole.clone();
    moved[end - 10 - 46 + 42] ^= 1;
    assert_eq!(sentence(&moved), "it: its member `chunk.0001` is not where it should be");
    moved[end - 10 - 46 + 10] = 93;
    moved[end - 10 - 46 + 42] ^= 1;
    assert_eq!(
        sentence(&moved),
        "it: its member `chunk.0001` is compressed by the method 93, which is not read"
    );
    let odd = zipped(&[("chunk.0000", vec![0; 13])], CompressionMethod::Stored);
    assert_eq!(
        sentence(&odd),
        "it: its member `chunk.0000` has 13 bytes, which are no whole records"
    );
    assert_eq!(sentence(&zipped(&[], CompressionMethod::Stored)), "it: is empty");
    let one = zipped(&chunks()[..1], CompressionMethod::Deflated);
    assert_eq!(sentence(&one), "it, byte 156: ends without a footer: it was cut off");
    // A bomb: a long run of zeros in a small member.
    let bomb = zipped(&[("chunk.0000", vec![0; 12 << 20])], CompressionMethod::Deflated);
    let path = scratch.put("t.zip", &bomb);
    let options = InputOptions { max_expanded_bytes: 1 << 20, ..InputOptions::default() };
    let opened = Input::open(&path, options).and_then(FORMAT.open);
    let told = opened.err().unwrap().to_string();
    assert!(told.ends_with("expands to more than 1048576 bytes; raise --max-expansion"));
}

/// Three threads whose times overlap.
fn threads() -> [(u64, Vec<u8>); 3] {
    let thread = |number: u64, times: &[u64]| {
        let mut records = header(number, 11);
        for &at in times {
            records.extend(time(at));
            records.push((10, 1, at << 12 | number));
            records.push((kind::WRITE, 8, at << 12));
        }
        records.extend(end(number));
        (number, bytes_of(&records))
    };
    [thread(11, &[20, 21, 50]), thread(12, &[10, 40]), thread(13, &[30, 60])]
}

#[test]
fn threads_are_merged_by_their_times() {
    let scratch = Scratch::new("merge");
    let [(_, a), (_, b), (_, c)] = threads();
    scratch.put("drmemtrace.x.1.dir/raw/x.raw", b"");
    scratch.put(
        "drmemtrace.x.1.dir/trace/a.trace.zip",
        &zipped(&[("chunk.0000", a)], CompressionMethod::Deflated),
    );
    scratch.put("drmemtrace.x.1.dir/trace/b.trace.gz", &gzipped(&b));
    scratch.put("drmemtrace.x.1.dir/trace/c.trace", &c);
    scratch.put("drmemtrace.x.1.dir/trace/serial_schedule.bin.gz", b"?");
    scratch.put("drmemtrace.x.1.dir/trace/funclist.log", b"?");
    scratch.put(
        "drmemtrace.x.1.dir/aux/v2p.textproto",
        b"# Comment\naddress_mapping_group {\n page_size: 0x200000\n address_mapping {\n  \
          virtual_address: 0x200000\n  physical_address: 4194304\n }\n address_mapping \
          { physical_address: 0 }\n information { page_count: 2 bytes_mapped: 3 }\n}\n",
    );
    let directory = scratch.0.join("drmemtrace.x.1.dir");
    assert!(is_directory(&directory));
    let drained = read_path(&directory);
    let times: Vec<_> = drained.references.iter().map(|of| of.addr.raw() >> 12).collect();
    assert_eq!(times, [10, 10, 20, 20, 21, 21, 30, 30, 40, 40, 50, 50, 60, 60]);
    let translation =
        |virt, phys| Event::Translation { virt: VirtAddr::new(virt), phys: PhysAddr::new(phys) };
    use Event::{ThreadEnd, ThreadStart, ThreadSwitch};
    assert_eq!(
        drained.events,
        [
            (0, translation(0x20_0000, 0x40_0000)),
            (0, translation(0, 0)),
            (2, ThreadStart { thread: 2 }),
            (2, ThreadSwitch { thread: 2 }),
            (6, ThreadStart { thread: 3 }),
            (6, ThreadSwitch { thread: 3 }),
            (8, ThreadSwitch { thread: 1 }),
            (10, ThreadEnd { thread: 1 }),
            (10, ThreadSwitch { thread: 2 }),
            (12, ThreadEnd { thread: 2 }),
            (12, ThreadSwitch { thread: 3 }),
            (14, ThreadEnd { thread: 3 }),
        ]
    );
    assert_eq!(
        drained.facts.notes,
        [
            "the threads 1 to 3 are, by the system's numbers, 12, 11, 13",
            "v2p.textproto tells where 2 pages of 2097152 bytes lay; of each, the place of its \
             first address is given",
        ]
    );
    assert_eq!(drained.error, None);
}

#[test]
fn progress_goes_over_all_files() {
    let scratch = Scratch::new("progress");
    let mut total = 0;
    for (number, bytes) in threads() {
        total += bytes.len() as u64;
        scratch.put(&format!("memtrace.{number}.trace"), &bytes);
    }
    let mut source =
        Input::open(&scratch.0, InputOptions::default()).and_then(FORMAT.open).unwrap();
    assert_eq!(source.progress(), Progress { done: 0, total: Some(total) });
    let mut batch = Batch::default();
    while !matches!(source.next(&mut batch), Ok(Some(Step::Ended(..)))) {}
    assert_eq!(source.progress(), Progress { done: total, total: Some(total) });
}

#[test]
fn other_directories_are_refused() {
    let scratch = Scratch::new("refused");
    let sentence = |name: &str| {
        let path = scratch.0.join(name);
        let name = format!("`{}`", path.display());
        read_path(&path).sentence().replace(&name, "it")
    };
    scratch.put("drmemtrace.x.1.dir/raw/drmemtrace.x.1.raw.gz", b"?");
    let raw = sentence("drmemtrace.x.1.dir");
    assert!(raw.starts_with("it: holds the raw files of a tracer"), "{raw}");
    assert_eq!(sentence("drmemtrace.x.1.dir/raw"), raw);
    scratch.put("drmemtrace.x.1.dir/README", b"?");
    assert_eq!(sentence("drmemtrace.x.1.dir"), raw);
    assert_eq!(sentence("drmemtrace.x.1.dir/raw/drmemtrace.x.1.raw.gz"), raw);
    scratch.put("empty/modules.log", b"");
    assert_eq!(sentence("empty"), "it: holds no traces");
    scratch.put("lz4/t.trace.lz4", &[0x04, 0x22, 0x4d, 0x18]);
    assert!(sentence("lz4").ends_with("is compressed by lz4, which is not read: expand it first"));
    assert!(!is_directory(&scratch.0.join("empty")) && is_directory(&scratch.0.join("lz4")));
    scratch.put("map/t.trace", &whole(&[]));
    scratch.put("map/v2p.textproto", b"address_mapping {\n physical_address: x\n}");
    assert!(
        sentence("map")
            .ends_with("v2p.textproto`, line 2: `x` is not what a virtual to physical map has")
    );
    scratch.put("map/v2p.textproto", b"address_mapping {\n physical_address: 1\n");
    assert!(sentence("map").ends_with("v2p.textproto`, line 2: the map is cut off"));
}

/// The references of any stream as records.
fn records_of(references: &[Reference]) -> Vec<Raw> {
    let record = |of: &Reference| {
        let addr = of.addr.raw();
        match of.kind {
            ItemKind::Fetch => vec![(kind::INSTR, of.size_bytes, addr)],
            ItemKind::Load => vec![(kind::READ, of.size_bytes, addr)],
            ItemKind::Store => vec![(kind::WRITE, of.size_bytes, addr)],
            ItemKind::Modify => {
                vec![(kind::READ, of.size_bytes, addr), (kind::WRITE, of.size_bytes, addr)]
            }
        }
    };
    references.iter().flat_map(record).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a program does is read as it was.
    #[test]
    fn any_stream_is_read(stream in testing::stream(0..100)) {
        let references = testing::references_of(&stream);
        let got = read(&whole(&records_of(&references))).whole();
        prop_assert_eq!(got, testing::split_modifies(&references));
    }

    /// Damaged traces, and damaged archives of them, are read or refused.
    #[test]
    fn damage_is_survived(
        stream in testing::stream(1..20), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let mut bytes = whole(&records_of(&testing::references_of(&stream)));
        let mut zip = zipped(&[("chunk.0000", bytes.clone())], CompressionMethod::Deflated);
        let place = at.index(zip.len());
        zip[place] ^= 1 << bit;
        let scratch = Scratch::new(&format!("damage-{bit}"));
        read_path(&scratch.put("t.zip", &zip));
        let place = at.index(bytes.len());
        bytes[place] ^= 1 << bit;
        read(&bytes);
    }

    /// Records of any kind are read or refused.
    #[test]
    fn any_records(records in prop::collection::vec((0u16..52, 0u16..20, 0u64..9), 0..200)) {
        read(&whole(&records));
    }
}
