//! The tracer itself, on a program whose trace is known beforehand. Needs `make setup workloads`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_trace::{
    Ended, ExitReason, Limits, Live, LiveOptions, Observer, StreamConsumer, StreamProgress, Tracer,
};
use octavo_types::{Consumer, DataItem, Event, ItemKind, Segment, VirtAddr};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Counts executions of each segment.
#[derive(Default)]
struct Log {
    executions: Vec<(Segment, u64)>,
}

impl Consumer for Log {
    fn segment(&mut self, segment: &Segment, _: &[VirtAddr]) {
        match self.executions.iter_mut().find(|(known, _)| known == segment) {
            Some((_, count)) => *count += 1,
            None => self.executions.push((segment.clone(), 1)),
        }
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for Log {}

impl Observer for Log {
    fn progress(&self) -> StreamProgress {
        StreamProgress::default()
    }
}

/// General registers in the sets, in VEX's order.
const GENERAL: u64 = 0xffff;
const RAX: u64 = 1;
const RCX: u64 = 1 << 1;
const RSP: u64 = 1 << 4;
const RBX: u64 = 1 << 3;
const RSI: u64 = 1 << 6;
const RDI: u64 = 1 << 7;

/// Executions of each segment of the workload.
fn executions() -> Vec<(Segment, u64)> {
    let options = LiveOptions {
        argv: vec![root().join("build/workloads/dependences").into()],
        valgrind: "valgrind".into(),
        tool_dir: root().join("build/tracer"),
        tracer: Tracer::Octavo,
        follow_children: true,
        limits: Limits::new(0, None, false),
        windows: None,
        allocation_frames: 0,
    };
    let live = Live::start(options, |_| Log::default()).expect("make setup workloads has been run");
    while live.wait(Duration::from_secs(1)).running {}
    let mut result = live.finish().expect("make setup workloads has been run");

    assert_eq!(result.exit.reason, ExitReason::Exited, "{}", result.exit.diagnostics);
    let stream = result.streams.remove(0);
    assert_eq!((stream.ended, stream.exit_code), (Ended::Exit, Some(0)));
    stream.consumer.executions
}

#[test]
fn addresses_at_constant_distances_are_one_group() {
    let executions = executions();
    let groups = |segment: &Segment| -> Vec<Vec<u16>> {
        let offsets = |items: &[DataItem]| items.iter().map(|item| item.offset).collect();
        segment.groups().map(offsets).collect()
    };
    let (segment, _) = executions.iter().find(|(segment, _)| segment.data().len() == 8).unwrap();
    assert_eq!(groups(segment), [vec![8, 0, 8], vec![0], vec![0, 100], vec![0, 8]]);
}

#[test]
fn dependences_are_those_of_the_instructions() {
    let executions = executions();
    use ItemKind::{Fetch, Load, Store};
    let turn = [Fetch, Load, Fetch, Fetch, Store, Fetch, Fetch, Fetch];
    let is_turn = |segment: &Segment| segment.items().iter().map(|item| item.kind).eq(turn);
    let turns: Vec<_> = executions.iter().filter(|(s, _)| is_turn(s)).collect();
    // The first of the thousand turns belongs to the segment that leads into the loop.
    assert_eq!(turns.iter().map(|(_, count)| count).sum::<u64>(), 999);

    // VEX puts two turns into a superblock: in the first, registers come from before it.
    let general = |index: usize, segment: &Segment| {
        let entry = segment.dependences()[index];
        (entry.producers, entry.reads & GENERAL, entry.writes & GENERAL)
    };
    let (first, _) = turns.iter().find(|(s, _)| general(0, s).0 == 0).unwrap();
    assert_eq!(general(0, first), (0, RDI, RAX), "the load");
    assert_eq!(general(1, first), (1, RBX, RBX), "the sum needs the load before it");
    assert_eq!(general(2, first), (1, RSI, 0), "the store needs the sum before it");
    assert_eq!(general(3, first), (0, RDI, RDI), "the step");
    assert_eq!(general(4, first), (0, RCX, RCX), "the count");
    let (second, _) = turns.iter().find(|(s, _)| general(0, s).0 != 0).unwrap();
    assert_eq!(general(0, second), (1 << 2, 0, RAX), "the load needs the step three before it");
    assert_eq!(general(1, second).0, 1 | 1 << 5, "the sum needs the load and the sum before");
    let late = |index: usize, segment: &Segment| {
        let entry = segment.dependences()[index];
        (entry.late_producers, entry.late_reads)
    };
    assert_eq!(late(2, first), (1, 0), "the store's address needs no sum");
    assert!([0, 1, 3, 4].iter().all(|index| late(*index, first) == (0, 0)));
}

#[test]
fn values_that_addresses_do_not_need_are_late() {
    let executions = executions();
    use ItemKind::{Fetch, Load, Store};
    let kinds =
        [Fetch, Load, Fetch, Store, Fetch, Store, Fetch, Store, Fetch, Load, Fetch, Fetch, Store];
    let is_it = |segment: &Segment| segment.items().iter().map(|item| item.kind).take(13).eq(kinds);
    let (segment, _) = executions.iter().find(|(segment, _)| is_it(segment)).unwrap();
    let late_of = |index: usize| {
        let entry = segment.dependences()[index];
        (entry.producers, entry.reads & GENERAL, entry.late_producers, entry.late_reads)
    };
    assert_eq!(late_of(0), (0, RDI | RBX, 0, RBX), "the addition to a sum");
    assert_eq!(late_of(1), (1, RSI, 1, 0), "its store");
    assert_eq!(late_of(2), (1 << 1, RSP, 1 << 1, 0), "its push");
    assert_eq!(late_of(3), (0, RSP | RDI, 0, RDI), "a push behind a push");
    let makes_vector: Vec<usize> =
        (0..7).filter(|index| segment.dependences()[*index].makes_vector()).collect();
    assert_eq!(makes_vector, [4, 5]);
    let integers: Vec<usize> = (0..7).filter(|index| segment.writes_integer(*index)).collect();
    assert_eq!(integers, [0], "pushes and vectors take no integer register");
}
