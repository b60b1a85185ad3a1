//! Snapshots: captures of a made-up `/proc`, their files, and the resulting memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use octavo_os::frames::fragmentation::Fragmentation;
use octavo_os::frames::snapshot::{FrameState, Snapshot};
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_types::FrameNumber;
use proptest::prelude::*;

/// A folder like `/proc`, removed at the end.
struct Proc(PathBuf);

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LRU: u64 = 1 << 5;
const BUDDY: u64 = 1 << 10;
const NOPAGE: u64 = 1 << 20;

/// 4096 frames: 1024 of the kernel, a hole of 512, 1024 free, 512 free in eights between files, program data,
/// and nothing at the end.
fn flags_of(frame: u64) -> u64 {
    match frame {
        0..1024 => 0,
        1024..1536 => NOPAGE,
        1536..2560 => BUDDY,
        2560..3584 if frame % 16 < 8 => BUDDY,
        2560..4096 => LRU,
        _ => NOPAGE,
    }
}

impl Proc {
    /// Files that every user may read.
    fn public() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("octavo-snapshot-{}-{number}", std::process::id());
        let proc = Proc(std::env::temp_dir().join(name));
        fs::create_dir_all(proc.0.join("sys/kernel")).unwrap();
        proc.write("buddyinfo", b"Node 0, zone Normal 0 0 0 64 0 0 0 0 0 2 0\n");
        proc.write("meminfo", b"MemTotal: 14336 kB\nMemFree: 1 kB\n");
        proc.write("sys/kernel/osrelease", b"6.1.0-test\n");
        proc
    }

    /// Also files that only root may read.
    fn whole() -> Self {
        let proc = Proc::public();
        proc.write(
            "pagetypeinfo",
            b"Pages per block: 512\nNumber of blocks type Unmovable Movable\n\
              Node 0, zone Normal 3 5\n",
        );
        let flags: Vec<u8> = (0..5000).flat_map(|frame| flags_of(frame).to_le_bytes()).collect();
        proc.write("kpageflags", &flags);
        fs::create_dir_all(proc.0.join("77")).unwrap();
        proc.write("77/comm", b"prog\xff\n");
        proc.write("77/maps", b"10000-40000 rw-p 00000000 00:00 0\n");
        // Pages 16 to 63 in frames from 3600 on, except page 40.
        let page = |page: u64| if page < 16 || page == 40 { 0 } else { 1 << 63 | (page + 3584) };
        let pagemap: Vec<u8> = (0..80).flat_map(|at| page(at).to_le_bytes()).collect();
        proc.write("77/pagemap", &pagemap);
        proc
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.0.join(name), content).unwrap();
    }

    fn capture(&self, pid: Option<u32>) -> Snapshot {
        Snapshot::capture(&self.0, pid).unwrap()
    }

    fn refused(&self, pid: Option<u32>) -> String {
        Snapshot::capture(&self.0, pid).unwrap_err().to_string()
    }
}

fn start(snapshot: Snapshot, frames: u64, seed: u64) -> Result<Frames, String> {
    let shape = MemoryShape::new(frames, Order::LARGEST).unwrap();
    let state = Fragmentation::Snapshot(Arc::new(snapshot));
    state.build(shape, seed).map_err(|error| error.to_string())
}

#[test]
fn exact_snapshot_restores_every_frame() {
    let snapshot = Proc::whole().capture(Some(77));
    assert_eq!(snapshot.header().missing, [""; 0]);
    assert_eq!(snapshot.frames(), 4096);
    let frames = start(snapshot.clone(), 4096, 1).unwrap();
    assert_eq!(frames.check(), Ok(()));
    for frame in 0..4096 {
        let expected = match flags_of(frame) {
            BUDDY => None,
            flags => Some(Owner::Background { movable: flags == LRU }),
        };
        assert_eq!(frames.owner(FrameNumber::new(frame)), expected, "frame {frame}");
    }
    let peaks = Owner::ALL.map(|owner| frames.peak_frames(owner));
    assert_eq!(peaks.iter().sum::<u64>(), 4096 - 1536);
    // Larger than any block of Linux, but 1024 frames from 1536 on are not an aligned block.
    assert_eq!(frames.buddy().largest_free_order(), Some(Order::HUGE));
    let refused = start(snapshot, 8192, 1).unwrap_err();
    assert_eq!(
        refused,
        "the snapshot is of 16MiB, and memory.bytes is 32MiB: give memory.bytes=16MiB, or no \
         snapshot (memory.fragmentation.kind=empty)"
    );
}

#[test]
fn summary_has_the_snapshots_numbers() {
    let summary = Proc::whole().capture(Some(77)).summary();
    assert!(summary.exact);
    assert_eq!((summary.kernel.as_str(), summary.memory_bytes), ("6.1.0-test", 14 << 20));
    assert_eq!((summary.simulated_bytes, summary.free_bytes), (16 << 20, 6 << 20));
    assert_eq!((summary.largest_block_bytes, summary.movable_share), (4 << 20, Some(5.0 / 8.0)));
    let kib = |name| summary.states.as_ref().unwrap()[name] >> 10;
    let states = ["free", "absent", "fixed", "movable", "process"].map(kib);
    assert_eq!(states, [6144, 2048, 4096, 4096 - 47 * 4, 47 * 4]);
    let usable: Vec<u64> =
        summary.coverage.iter().map(|size| size.usable_bytes.unwrap() >> 10).collect();
    let up_to_32_kib = [6144; 4];
    let up_to_2_mib = [4096; 6];
    assert_eq!(usable[..4], up_to_32_kib);
    assert_eq!(usable[4..10], up_to_2_mib);
    assert_eq!(usable[10..], [0; 9]);
    assert_eq!(summary.coverage[9].share, Some(4.0 / 6.0));
    assert_eq!(summary.coverage[9].free_blocks, Some(2));
    assert_eq!(summary.coverage[11].free_blocks, None, "above the largest order");
    let process = summary.process.as_ref().unwrap();
    assert_eq!((process.name.as_str(), process.resident_frames), ("prog\u{fffd}", 47));
    // Pages 16-39 and 41-63; frames are 3584 = 7 × 512 further, with equal alignment.
    assert_eq!(process.mappable_frames[..6], [47, 46, 44, 40, 32, 0]);
}

#[test]
fn unprivileged_capture_keeps_free_blocks() {
    let snapshot = Proc::public().capture(None);
    assert!(snapshot.runs().is_none());
    assert_eq!(
        snapshot.header().missing,
        [
            "/proc/pagetypeinfo: this kernel has none; movable memory is known only from \
             /proc/kpageflags, if readable",
            "/proc/kpageflags: this kernel has none; only the numbers of free blocks by order are \
         kept",
        ]
    );
    let summary = snapshot.summary();
    assert_eq!((summary.exact, summary.simulated_bytes), (false, 14 << 20));
    assert_eq!((summary.free_bytes, summary.movable_share), (6 << 20, None));
    assert_eq!(summary.coverage[3].share, Some(1.0));
    assert_eq!(summary.coverage[4].share, Some(4.0 / 6.0));
    assert_eq!(summary.coverage[11].share, None, "not known above the largest order");
    let frames = start(snapshot.clone(), 3584, 1).unwrap();
    let blocks = |frames: &Frames, order| frames.buddy().free_blocks(Order::new(order).unwrap());
    assert_eq!((blocks(&frames, 3), blocks(&frames, 9)), (64, 2));
    let twice = start(snapshot, 7168, 1).unwrap();
    assert_eq!((blocks(&twice, 3), blocks(&twice, 9)), (128, 4));
}

/// A nearly free machine leaves little choice of places: blocks without room are split, and no size is
/// rejected.
#[test]
fn idle_snapshot_scales_to_any_memory_size() {
    let proc = Proc::public();
    proc.write("buddyinfo", b"Node 0, zone Normal 9 9 9 9 9 9 9 9 9 8 511\n");
    proc.write("meminfo", b"MemTotal: 2150400 kB\n");
    let snapshot = proc.capture(None);
    let share_free = snapshot.order_mix();
    let free: u64 =
        Order::all().map(|order| share_free.free_blocks[order.index()] * order.frames()).sum();
    for frames in [537_600u64, 400_000, 99_999, 1234, 1] {
        let built = start(snapshot.clone(), frames, 3).unwrap();
        assert_eq!(built.check(), Ok(()));
        let wanted = free as f64 / 537_600.0 * frames as f64;
        // Rounding of eleven orders, at most half a block each.
        assert!((built.free_frames() as f64 - wanted).abs() < 1024.0, "{frames}");
    }
    // Two thirds of a 4 MiB block, rounded to one: all free memory.
    proc.write("buddyinfo", b"Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 511\n");
    assert_eq!(start(proc.capture(None), 700, 3).unwrap().free_frames(), 700);
}

#[test]
fn errors_are_single_sentences() {
    assert_eq!(Proc::whole().refused(Some(78)), "there is no process 78");
    let proc = Proc::public();
    proc.write("buddyinfo", b"Node 0, zone Normal x\n");
    assert!(
        proc.refused(None).ends_with(
            "buddyinfo` is not what Linux writes there: the line `Node 0, zone Normal x`"
        )
    );
    proc.write("buddyinfo", b"Node 0, zone Normal 9999999\n");
    assert_eq!(proc.refused(None), "its header is damaged: more free memory than memory");
    let nowhere = Snapshot::capture(Path::new("/nowhere"), None).unwrap_err().to_string();
    assert!(nowhere.starts_with("cannot read `/nowhere/buddyinfo`: No such file"), "{nowhere}");
    let hidden = Proc::whole();
    hidden.write("77/pagemap", &[1u64 << 63; 80].map(u64::to_le_bytes).concat());
    let snapshot = hidden.capture(Some(77));
    assert!(snapshot.header().process.is_none());
    assert!(snapshot.header().missing[0].contains("only root reads frame numbers (CAP_SYS_ADMIN)"));
}

#[test]
fn snapshot_files_round_trip() {
    for (proc, pid) in [(Proc::whole(), Some(77)), (Proc::whole(), None), (Proc::public(), None)] {
        let snapshot = proc.capture(pid);
        let file = proc.0.join("snapshot");
        fs::write(&file, snapshot.to_bytes()).unwrap();
        assert_eq!(Snapshot::read(&file).unwrap(), snapshot);
        fs::write(&file, b"OCTMEM\r\n").unwrap();
        let refused = Snapshot::read(&file).unwrap_err().to_string();
        assert!(
            refused.ends_with("snapshot`: it has 8 bytes, and its header says 40"),
            "{refused}"
        );
    }
}

#[test]
fn damaged_files_are_rejected() {
    let bytes = Proc::whole().capture(Some(77)).to_bytes();
    for end in 0..bytes.len() {
        assert!(Snapshot::from_bytes(&bytes[..end]).is_err(), "cut at {end}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Snapshot::from_bytes(&changed).is_err(), "bit {bit}");
    }
    let refused = |bytes: &[u8]| Snapshot::from_bytes(bytes).unwrap_err().to_string();
    assert_eq!(refused(b"PK"), "it is not a snapshot of Octavo");
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(refused(&newer), "it is a snapshot of version 2, and this Octavo reads version 1");
    let mut damaged = bytes;
    damaged[40] ^= 1;
    assert_eq!(refused(&damaged), "it was damaged: its checksum is another");
}

proptest! {
    #![proptest_config(octavo_oracle::cases(2000))]

    /// Invalid content with a valid checksum: whatever decodes is consistent enough to start from.
    #[test]
    fn decoded_snapshots_are_usable(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4)) {
        let mut bytes = snapshot_bytes();
        let content = bytes.len() - 8;
        for (at, value) in changes {
            bytes[usize::from(at) % content] = value;
        }
        let checksum = twox_hash::XxHash3_64::oneshot(&bytes[..content]);
        bytes[content..].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(snapshot) = Snapshot::from_bytes(&bytes) {
            let frames = snapshot.frames();
            if frames < 1 << 20 {
                prop_assert!(snapshot.coverage().free_frames() <= frames);
                snapshot.summary();
                start(snapshot, frames, 0).unwrap().check().unwrap();
            }
        }
    }
}

fn snapshot_bytes() -> Vec<u8> {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    BYTES.get_or_init(|| Proc::whole().capture(Some(77)).to_bytes()).clone()
}

#[test]
fn frame_states_have_names() {
    let names: Vec<&str> = FrameState::ALL.iter().map(|state| state.name()).collect();
    assert_eq!(names, ["free", "absent", "fixed", "movable", "process"]);
}

/// Two regions: the first with free frames beside those of the kernel, the second with larger free blocks beside those
/// of programs.
#[test]
fn programs_get_memory_of_movable_regions_first() {
    let proc = Proc::public();
    proc.write("meminfo", b"MemTotal: 4096 kB\n");
    proc.write("buddyinfo", b"Node 0, zone Normal 256 0 0 32 0 0 0 0 0 0 0\n");
    let flags = |frame: u64| match frame {
        0..512 if frame.is_multiple_of(2) => BUDDY,
        0..512 => 0,
        _ if frame % 16 < 8 => BUDDY,
        _ => LRU,
    };
    let flags: Vec<u8> = (0..1024).flat_map(|frame| flags(frame).to_le_bytes()).collect();
    proc.write("kpageflags", &flags);
    let allocated = |others: u64| -> Vec<u64> {
        let text = format!(
            "Pages per block: 512\nNumber of blocks type Unmovable Movable\nNode 0, zone Normal {others} 1\n"
        );
        proc.write("pagetypeinfo", text.as_bytes());
        let mut frames = start(proc.capture(None), 1024, 1).unwrap();
        assert_eq!(frames.check(), Ok(()));
        let taken = std::iter::from_fn(|| frames.allocate(Order::BASE, Owner::Data).ok());
        let taken: Vec<u64> = taken.map(FrameNumber::raw).collect();
        assert_eq!(frames.check(), Ok(()));
        taken
    };
    let of_kernel: Vec<u64> = (0..512).step_by(2).collect();
    let of_programs: Vec<u64> = (512..1024).filter(|frame| frame % 16 < 8).collect();
    assert_eq!(allocated(0), [of_kernel.clone(), of_programs.clone()].concat());
    assert_eq!(allocated(1), [of_programs, of_kernel].concat());
}
