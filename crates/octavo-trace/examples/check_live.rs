//! Runs a program under the tracer and checks its references against its mappings while it runs:
//! `check_live PROGRAM [ARGUMENTS]`. Needs `make tracer`; `OCTAVO_TOOL_DIR` names another place of
//! the tracer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_trace::check::StreamChecker;
use octavo_trace::source::Place;
use octavo_trace::{
    Began, Limits, Live, LiveOptions, Observer, Start, StreamConsumer, StreamEnd, StreamIdentity,
    StreamProgress, Tracer,
};
use octavo_types::{Consumer, Event, Segment, VirtAddr};

/// The checker of one stream. Live there are no batches: its findings wait until the end.
struct Watcher(StreamChecker);

impl Consumer for Watcher {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.0.segment(segment, addresses);
    }

    fn event(&mut self, event: &Event) {
        self.0.event(event);
    }
}

impl StreamConsumer for Watcher {
    fn started(&mut self, start: &Start) {
        self.0.started(start);
    }
}

impl Observer for Watcher {
    fn ended(&mut self, identity: &StreamIdentity, end: &StreamEnd) {
        self.0.locate_findings(&[], Place::Whole);
        self.0.end(Some(end.ended), None);
        let count: u64 = self.0.counts().values().sum();
        for finding in self.0.take() {
            println!("{}: {finding}", finding.kind.name());
        }
        let StreamIdentity { stream, program, .. } = identity;
        let instructions = self.0.instructions();
        println!("stream {stream}, {program}: {instructions} instructions, {count} findings");
    }

    fn progress(&self) -> StreamProgress {
        StreamProgress::default()
    }
}

fn main() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/tracer");
    let tool_dir = std::env::var_os("OCTAVO_TOOL_DIR").map_or(built, PathBuf::from);
    let options = LiveOptions {
        argv: std::env::args_os().skip(1).collect(),
        valgrind: "valgrind".into(),
        tool_dir,
        tracer: Tracer::Octavo,
        follow_children: true,
        limits: Limits::new(0, None, false),
        windows: None,
        allocation_frames: 0,
    };
    let checker = |identity: &StreamIdentity| {
        Watcher(StreamChecker::new(identity.stream, identity.began == Began::Fork))
    };
    let live = Live::start(options, checker).expect("the tracer");
    while live.wait(Duration::from_secs(1)).running {}
    live.finish().expect("the tracer");
}
