//! Makes the seeds in fuzz/corpus again: `cargo run --example seeds` in fuzz/. They are small, made
//! by hand or by our own writers, and a few of each format: fuzzers find the rest. Finds worth
//! keeping lie beside (native/undefined: a segment executes that was never defined).

use std::fs;
use std::path::{Path, PathBuf};

use octavo_os::frames::snapshot::Snapshot;
use octavo_trace::native::Manifest;
use octavo_trace::sink::{Output, Sink};
use octavo_trace::source::{Batch, Step};
use octavo_trace::{Encoder, NativeSink, StreamEnd, StreamIdentity, synthetic};
use octavo_types::{
    AddrRange, Consumer, Event, Item, ItemKind, MapSource, PhysAddr, Protection, Segment, VirtAddr,
};

const LACKEY: &[(&str, &str)] = &[
    ("plain", "I  04016b80,3\n S 1ffeffe7e8,8\nI  04016b83,5\n L 04222c88,8\n M 0421c7cc,4\n"),
    ("messages", "==12== Lackey\n==12== \nI  0023C790,2\n\n L BE80199C,4\n==12== Counted 2\n"),
    ("cut", "I  04016b80,3\nSB 04016b80\n L 1ffe"),
];
const DIN: &[(&str, &str)] = &[
    ("plain", "2 430d70\n0 7fff5a8487f0\n1 0x10\n2 430d74\n"),
    ("others", "3 1000\n4 0\n2 ffffffffffffffff anything\n\n0 0\n"),
];
const XDIN: &[(&str, &str)] = &[
    ("plain", "i 430d70 4\nr 7fff5a8487f0 8\nw 10 1\nm 20 40\n"),
    ("others", "c 0 0\nv 1000 40\ni ffffffffffffffff 1000\n"),
];
const PINATRACE: &[(&str, &str)] = &[
    ("plain", "0x7f7e4c7ed093: W 0x7ffe8f4c9c58\n0x7f7e4c7ed4b8: R 0x7f7e4c809e68\n#eof\n"),
    ("null", "0x400000: R (nil)\n(nil): W 0x1\n"),
];
const CSV: &[(&str, &str)] = &[
    (
        "plain",
        "kind,address,size\nfetch,0x400000,4\nload,0x7fff0000,8\nstore,4096,1\nmodify,1,64\n",
    ),
    ("threads", "thread,Address,kind,instructions\n1,10,R,1\n2,20,W,3\n1,30,R,3\n"),
    ("quoted", "\"kind\",\"address\",\"a \"\"note\"\"\"\r\n\"L\",\"0x10\",\"x, y\"\r\nS,0x20,\r\n"),
];
const PERF: &[(&str, &str)] = &[
    (
        "script",
        "prog  4242  1234.567890:  1 cpu/mem-loads/P: 7f2a4c001000 55d0c0ffee00 main (/bin/prog)\n",
    ),
    (
        "fields",
        "     7f2a4c001000     55d0c0ffee00        1234000 2M\n     7ffe00001000     55d0c0ffee04        1235000 4K\n",
    ),
    (
        "mem",
        "# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL\n 4242  4242 0x55d0c0ffee00 0x7f2a4c001000 7 0x68100142 /bin/prog:main\n",
    ),
];
const SYNTHETIC: &[(&str, &str)] = &[
    ("gups", "synth:gups?table=64MiB&updates=1e9&seed=7"),
    ("zipf", "synth:zipf?bytes=1GiB&theta=0.8&placement=together&element=100&references=10k"),
    ("strided", "synth:strided?bytes=10_000&stride=1KiB&stores=0.3&code=20KiB&code-order=zipf"),
    ("chase", "synth:pointer-chase?bytes=700MiB&instructions=7&access=16&base=0x10000000"),
    ("columns", "synth:columns?bytes=1MiB&row=4KiB&references=100"),
    ("toml", "kind = 'uniform'\nbytes = '4MiB'\nreferences = 1e6\nelement = 64\n"),
    (
        "phases",
        "kind = 'phases'\nrepeat = 3\n[[phase]]\nkind = 'sequential'\nreferences = 5\n\
         [[phase]]\nkind = 'mix'\nreferences = 70\n[[phase.part]]\nkind = 'gups'\nweight = 2\n\
         [[phase.part]]\nkind = 'rows'\nbytes = 65536\nrow = 256\n",
    ),
];

const MACHINES: &[(&str, &str)] = &[
    ("extends", "extends = 'skylake'\n[tlb.l2.main]\nentries = 3072\n[tlb.l1d]\n1g = 'none'\n"),
    ("settings", "extends = 'zen4'\n\n--set\ntlb.l2.entries=6144\ncore.count=8\ntlb.l1i=none\n"),
    (
        "fragmented",
        "extends = \"r3000\"\nmemory.bytes = 4096\n[memory.fragmentation]\nkind = 'holes'\n\
         portion = 0.5\nfraction = 1\nlayout = 'dispersed'\nholes = 'movable'\n",
    ),
];

struct Seeds(PathBuf);

impl Seeds {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) {
        fs::write(self.path(target, name), bytes).expect("a seed is written");
    }

    fn path(&self, target: &str, name: &str) -> PathBuf {
        let folder = self.0.join(target);
        fs::create_dir_all(&folder).expect("a folder is made");
        folder.join(name)
    }

    fn texts(&self, target: &str, texts: &[(&str, &str)]) {
        texts.iter().for_each(|(name, text)| self.put(target, name, text.as_bytes()));
    }
}

/// Fields, each of so many bytes, one after another.
fn packed(fields: &[(u64, usize)]) -> Vec<u8> {
    fields.iter().flat_map(|(value, bytes)| value.to_le_bytes()[..*bytes].to_vec()).collect()
}

/// A record of ChampSim: `stores` and `loads` are all its slots.
fn champsim(ip: u64, taken: u64, registers: &[u64], stores: &[u64], loads: &[u64]) -> Vec<u8> {
    let mut fields = vec![(ip, 8), (u64::from(taken > 0), 1), (taken, 1)];
    fields.extend(registers.iter().map(|register| (*register, 1)));
    fields.extend(stores.iter().chain(loads).map(|addr| (*addr, 8)));
    packed(&fields)
}

fn champsim_seeds(seeds: &Seeds) {
    let plain = [
        champsim(0x400000, 0, &[6, 0, 6, 7, 0, 0], &[0x7fff0000, 0], &[0x7fff0008, 0, 0, 0]),
        champsim(0x400004, 1, &[26, 0, 26, 25, 0, 0], &[0, 0], &[0, 0, 0, 0]),
        champsim(0x400000, 0, &[6, 0, 6, 7, 0, 0], &[0x7fff1000, 0], &[0x7fff1008, 1, 2, 3]),
    ];
    seeds.put("champsim", "plain", &plain.concat());
    seeds.put("champsim", "cut", &plain.concat()[..100]);
    // Six bytes of padding stand after its eight registers.
    let registers = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0];
    let cloud = champsim(0x400000, 1, &registers, &[0x10, 0x20, 0, 0], &[0x30, 0, 0, 0]);
    let cloud = [cloud, packed(&[(0x0201, 8)])].concat();
    assert_eq!((plain[0].len(), cloud.len()), (64, 96));
    seeds.put("champsim_cloudsuite", "plain", &[cloud.clone(), cloud.clone()].concat());
    seeds.put("champsim_cloudsuite", "cut", &cloud[..95]);
}

/// Snapshots of a machine with 64 frames: readable by all users, and with the state of each frame.
fn snapshot_seeds(seeds: &Seeds) {
    let proc = std::env::temp_dir().join(format!("octavo-seeds-{}", std::process::id()));
    fs::create_dir_all(&proc).expect("a folder is made");
    let put = |name, bytes: &[u8]| fs::write(proc.join(name), bytes).expect("a file is written");
    put("buddyinfo", b"Node 0, zone DMA 4 2 1 1\n");
    put("meminfo", b"MemTotal: 256 kB\n");
    let take = || Snapshot::take(&proc, None).expect("a snapshot is taken").to_bytes();
    seeds.put("snapshot", "orders", &take());
    let flags = |frame: u64| if frame % 8 < 3 { 1 << 10 } else { (frame / 16) << 5 };
    put("kpageflags", &(0..64).flat_map(|frame| flags(frame).to_le_bytes()).collect::<Vec<_>>());
    seeds.put("snapshot", "frames", &take());
    fs::remove_dir_all(&proc).expect("the folder is removed");
}

/// Packed records of twelve bytes: a type, a size, an address.
fn drmemtrace_seeds(seeds: &Seeds) {
    let records = |records: &[(u64, u64, u64)]| {
        let all =
            records.iter().map(|(kind, size, addr)| packed(&[(*kind, 2), (*size, 2), (*addr, 8)]));
        all.collect::<Vec<_>>().concat()
    };
    let head = [(25, 0, 7), (28, 12, 7), (28, 9, 0x40), (22, 0, 4243), (24, 0, 4242), (28, 2, 13)];
    let body = [(10, 3, 0x400000), (0, 8, 0x7fff0000), (12, 2, 0x400003), (1, 4, 0x7fff0008)];
    let tail = [(28, 2, 14), (28, 3, 1), (23, 0, 4243), (26, 0, 0)];
    seeds.put("drmemtrace", "plain", &records(&[&head[..], &body, &tail].concat()));
    let encoded = [
        (47, 3, 0xc3_8948),
        (10, 3, 0x400000),
        (28, 35, 1),
        (28, 15, 0x1000),
        (28, 17, 0x2000),
        (17, 3, 0x030405),
    ];
    seeds.put("drmemtrace", "others", &records(&[&head[..], &encoded, &tail].concat()));
    seeds.put("drmemtrace", "cut", &records(&[&head[..], &body].concat())[..100]);
}

/// The magic number, and then each message after its length.
fn gem5_seeds(seeds: &Seeds) {
    let mut trace = b"gem5".to_vec();
    // Object id "s", version 0, 10^12 ticks a second.
    trace.extend(b"\x0c\x0a\x01s\x10\x00\x18\x80\xa0\x94\xa5\x8d\x1d");
    // Tick 100, command 1 (a read) and 4 (a write), address 0x1000, size 64, flags, id, pc.
    trace.extend(b"\x09\x08\x64\x10\x01\x18\x80\x20\x20\x40");
    trace.extend(b"\x10\x08\x65\x10\x04\x18\x88\x20\x20\x08\x28\x00\x30\x01\x38\x90\x20");
    seeds.put("gem5", "plain", &trace);
    seeds.put("gem5", "cut", &trace[..trace.len() - 3]);
}

fn item(kind: ItemKind, guarded: bool, size_bytes: u16, addr: u64) -> Item {
    Item { kind, guarded, atomic: kind == ItemKind::Modify, size_bytes, addr: VirtAddr::new(addr) }
}

/// Two segments, and one of each event.
fn words() -> Vec<u64> {
    let at = VirtAddr::new;
    let range = |start, bytes| AddrRange::new(at(start), bytes);
    let protection = Protection { read: true, write: true, execute: false };
    let first = vec![
        item(ItemKind::Fetch, false, 3, 0x400000),
        item(ItemKind::Load, false, 8, 0),
        item(ItemKind::Fetch, false, 5, 0x400003),
        item(ItemKind::Store, true, 64, 0),
    ];
    let second =
        vec![item(ItemKind::Fetch, false, 2, 0x400fff), item(ItemKind::Modify, false, 4, 0)];
    let [first, second] = [first, second].map(|items| Segment::new(items, vec![]).expect("sound"));
    let source = MapSource::File { path: "/bin/a".to_owned(), offset_bytes: 4096 };
    let mut out = Encoder::default();
    for event in [
        Event::Map { range: range(0x400000, 8192), protection, source, flags: 2 },
        Event::Map { range: range(0x10000, 8192), protection, source: MapSource::Heap, flags: 0 },
        Event::Protect { range: range(0x10000, 4096), protection },
        Event::Remap { from: range(0x10000, 4096), to: range(0x20000, 8192) },
        Event::Advise { range: range(0x20000, 4096), advice: 14 },
    ] {
        out.event(&event);
    }
    out.segment(&first, &[at(0x20000), at(0)]);
    out.segment(&second, &[at(0x20ffe)]);
    out.segment(&first, &[at(0x20040), at(0x20080)]);
    for event in [
        Event::ThreadStart { thread: 2 },
        Event::ThreadSwitch { thread: 2 },
        Event::Signal { signal: 11 },
        Event::Mark { value: Event::MARK_BEGIN },
        Event::Translation { virt: at(0x20000), phys: PhysAddr::new(0x1234000) },
        Event::ThreadEnd { thread: 2 },
        Event::Fork { child: 77 },
        Event::Exec { path: "/bin/b".to_owned() },
        Event::Unmap { range: range(0x20000, 8192) },
        Event::Exit { code: 3 },
    ] {
        out.event(&event);
    }
    out.words().to_vec()
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn native(path: &Path, identity: &StreamIdentity, batches: &[Vec<u64>]) {
    let output = Output::create(path).expect("a seed is written");
    let manifest = Manifest::recorded(serde_json::Value::Null);
    let mut sink: Box<dyn Sink> = Box::new(NativeSink::create(output, &manifest).expect("a sink"));
    sink.begin(identity).expect("written");
    batches.iter().for_each(|words| sink.words(identity.stream, words).expect("written"));
    sink.end(identity.stream, &StreamEnd::PLAIN).expect("written");
    sink.finish().expect("written");
}

fn native_seeds(seeds: &Seeds) {
    native(&seeds.path("native", "events"), &StreamIdentity::only(), &[words()]);
    let spec = synthetic::parse("synth:zipf?bytes=1MiB&references=100").expect("a URI");
    let mut source = spec.source();
    let (mut batch, mut batches) = (Batch::default(), Vec::new());
    while let Some(step) = source.next(&mut batch).expect("no failure") {
        if matches!(step, Step::Batch(_)) {
            batches.push(batch.words.clone());
        }
    }
    native(&seeds.path("native", "synthetic"), &StreamIdentity::only(), &batches);
    native(&seeds.path("native", "empty"), &StreamIdentity::only(), &[]);
}

/// Streams for engines, as `octavo_oracle::hostile` reads them: behind what chooses the engine.
const STREAMS: &[(&str, &[u8])] = &[
    // A segment with one fetch of two bytes at the end of the address space, and its execution.
    ("end_of_space", &[0, 0, 6, 0, 0, 0, 1, 100, 0]),
    (
        "events",
        &[
            // A segment of a fetch, a load, a store and a load with a store.
            0, 3, 0, 0, 0, 0, 2, 4, 3, 6, 3, 7, 3, //
            // A mapping of 64 pages, and executions in it and across pages.
            222, 0, 0, 0, 64, 0, 0, 100, 0, 0, 1, 2, 8, 1, 0, 0, 2, 1, //
            180, 0, 5, 0, 1, 1, 0, 2, 2, 0, 3, 3, 0, 4, 4, 0, 5, 5, 0, 6, 6, //
            // Rights, advice, a move, the end of a mapping, another thread.
            234, 0, 0, 0, 8, 238, 0, 2, 0, 4, 4, 100, 0, 0, 1, 2, 0, 2, 0, 0, 2, 1, //
            228, 0, 4, 0, 4, 3, 4, 0, 4, 100, 0, 3, 4, 2, 3, 5, 0, 0, 2, 1, //
            222, 0, 8, 0, 8, 245, 2, 100, 0, 5, 4, 2, 6, 5, 0, 4, 2, 1, //
        ],
    ),
    // Mappings of all of the address space.
    (
        "everything",
        &[0, 1, 0, 0, 0, 0, 2, 6, 3, 222, 0, 0, 0, 255, 0, 0, 100, 0, 5, 3, 0, 226, 0, 0, 0, 255],
    ),
];

fn main() {
    let seeds = Seeds(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"));
    seeds.texts("lackey", LACKEY);
    seeds.texts("din", DIN);
    seeds.texts("xdin", XDIN);
    seeds.texts("pinatrace", PINATRACE);
    seeds.texts("csv", CSV);
    seeds.texts("perf", PERF);
    seeds.texts("synthetic", SYNTHETIC);
    seeds.texts("machine_config", MACHINES);
    let whole = octavo_machine::resolve::<&str>("r3000", &[]).expect("it ships");
    seeds.put("machine_config", "whole", whole.toml().as_bytes());
    for (name, stream) in STREAMS {
        seeds.put("engine_run", name, &[&[0], *stream].concat());
        seeds.put("engine_curves", name, &[&[0], *stream].concat());
        seeds.put("engine_sim", name, &[&[0, 1, 6, 11, 16], *stream].concat());
    }
    champsim_seeds(&seeds);
    drmemtrace_seeds(&seeds);
    snapshot_seeds(&seeds);
    gem5_seeds(&seeds);
    let words = words();
    seeds.put("ring", "events", &bytes_of(&words));
    seeds.put("ring", "cut", &bytes_of(&words[..words.len() / 2]));
    native_seeds(&seeds);
    // Outputs are compressed by their names.
    for suffix in ["txt", "gz", "xz", "bz2", "zst"] {
        let path = seeds.path("input", &format!("text.{suffix}"));
        let mut output = Output::create(&path).expect("a seed is written");
        output.put(LACKEY[0].1.repeat(20).as_bytes()).expect("a seed is written");
        output.finish().expect("a seed is written");
    }
}
