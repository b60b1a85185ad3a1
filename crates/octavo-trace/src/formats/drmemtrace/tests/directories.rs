//! Directories of several threads.

use super::*;

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
    let times: Vec<_> =
        drained.references.iter().map(|reference| reference.addr.raw() >> 12).collect();
    assert_eq!(times, [10, 10, 20, 20, 21, 21, 30, 30, 40, 40, 50, 50, 60, 60]);
    let translation =
        |virt, phys| Event::Translation { virt: VirtAddr::new(virt), phys: PhysAddr::new(phys) };
    use Event::{ThreadEnd, ThreadStart, ThreadSwitch};
    assert_eq!(
        drained.events,
        [
            (0, translation(0x20_0000, 0x40_0000)),
            (0, translation(0, 0)),
            (0, ThreadStart { thread: 1 }),
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
            "v2p.textproto places 2 pages of 2097152 bytes; of each, the place of its \
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
    assert!(raw.starts_with("it holds the raw files of a tracer"), "{raw}");
    assert_eq!(sentence("drmemtrace.x.1.dir/raw"), raw);
    scratch.put("drmemtrace.x.1.dir/README", b"?");
    assert_eq!(sentence("drmemtrace.x.1.dir"), raw);
    assert_eq!(sentence("drmemtrace.x.1.dir/raw/drmemtrace.x.1.raw.gz"), raw);
    scratch.put("empty/modules.log", b"");
    assert_eq!(sentence("empty"), "it holds no traces");
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
