//! Traces written by hand.

use std::collections::VecDeque;

use octavo_trace::check::{Checker, Report};
use octavo_trace::source::{Batch, Facts, Place, Progress, Source, Step, TraceError};
use octavo_trace::{Began, Ended, StreamEnd, StreamIdentity, WordWriter};
use octavo_types::{AddrRange, Event, Item, ItemKind, MapSource, Protection, Segment, VirtAddr};

/// A source in memory, with a place for each execution.
#[derive(Default)]
pub struct Script {
    pub steps: VecDeque<(Step, Vec<u64>, Vec<Place>)>,
}

impl Source for Script {
    fn facts(&self) -> Facts {
        unreachable!("the checker asks for no facts")
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        batch.clear();
        let Some((step, words, places)) = self.steps.pop_front() else { return Ok(None) };
        (batch.words, batch.places) = (words, places);
        Ok(Some(step))
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn place(&self) -> Place {
        Place::Line(99)
    }
}

/// Writes one stream; each execution is at the next line, the first at line 1.
pub struct Writer {
    script: Script,
    pub out: WordWriter,
    places: Vec<Place>,
    line: u64,
    segments: u32,
}

pub const RX: Protection = Protection { read: true, write: false, execute: true };
pub const RW: Protection = Protection { read: true, write: true, execute: false };
pub const NONE: Protection = Protection { read: false, write: false, execute: false };
pub const CODE: u64 = 0x40_0000;
pub const DATA: u64 = 0x60_0000;

pub fn range(start: u64, bytes: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(start), bytes)
}

pub fn map(start: u64, bytes: u64, protection: Protection) -> Event {
    Event::Map { range: range(start, bytes), protection, source: MapSource::Anonymous, flags: 0x22 }
}

impl Writer {
    /// A stream without mappings.
    pub fn bare(began: Began) -> Self {
        let mut script = Script::default();
        let identity = StreamIdentity { began, ..StreamIdentity::only() };
        script.steps.push_back((Step::Began(identity), Vec::new(), Vec::new()));
        let out = WordWriter::default();
        Writer { script, out, places: Vec::new(), line: 0, segments: 0 }
    }

    /// A stream with a page of code and one of data.
    pub fn new() -> Self {
        let mut writer = Self::bare(Began::Start);
        writer.event(&map(CODE, 4096, RX));
        writer.event(&map(DATA, 4096, RW));
        writer
    }

    pub fn event(&mut self, event: &Event) -> &mut Self {
        self.out.event(event);
        self
    }

    /// An instruction at `fetch` that makes one reference.
    pub fn at(&mut self, fetch: u64, kind: ItemKind, addr: u64, size_bytes: u16) -> &mut Self {
        let item = |kind, size_bytes, addr| Item::new(kind, size_bytes, VirtAddr::new(addr));
        let items = vec![item(ItemKind::Fetch, 4, fetch), item(kind, size_bytes, 0)];
        self.out.define(self.segments, &Segment::new(items, vec![]).unwrap());
        self.out.execute(self.segments, &[addr]);
        self.segments += 1;
        self.line += 1;
        self.places.push(Place::Line(self.line));
        self
    }

    pub fn load(&mut self, addr: u64) -> &mut Self {
        self.at(CODE, ItemKind::Load, addr, 8)
    }

    pub fn store(&mut self, addr: u64) -> &mut Self {
        self.at(CODE, ItemKind::Store, addr, 8)
    }

    pub fn batch(&mut self) -> &mut Self {
        let words = std::mem::take(self.out.words_mut());
        let places = std::mem::take(&mut self.places);
        self.script.steps.push_back((Step::Batch(0), words, places));
        self
    }

    pub fn ended(&mut self, ended: Ended) -> Script {
        self.batch();
        let end = StreamEnd { ended, ..StreamEnd::PLAIN };
        self.script.steps.push_back((Step::Ended(0, end), Vec::new(), Vec::new()));
        std::mem::take(&mut self.script)
    }

    pub fn report(&mut self) -> Report {
        Checker::new().check(&mut self.ended(Ended::Exit), |_| true)
    }

    /// The findings as they are shown.
    pub fn findings(&mut self) -> Vec<String> {
        let report = self.report();
        assert_eq!(report.error, None);
        report.findings.iter().map(|finding| format!("{} {finding}", finding.kind.name())).collect()
    }
}
