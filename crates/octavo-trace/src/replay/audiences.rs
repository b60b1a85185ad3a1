//! The consumers of a trace's streams: an engine for each of them, or one for all.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Audience;
use crate::observer::{Observer, StreamProgress};
use crate::ring::{DecodeError, Decoder};
use crate::stream::{StreamEnd, StreamIdentity};
use crate::time_slicing::TimeSlicedConsumer;
use crate::window::{Limits, Region, Window};
use crate::window_log::WindowLog;

/// An engine for each stream.
pub struct Apart<C, F> {
    observer: F,
    limits: Arc<Limits>,
    streams: BTreeMap<u32, Window<C>>,
    /// Progress of the streams that have ended.
    over: StreamProgress,
}

impl<C, F> Apart<C, F> {
    /// `observer` makes the engine of a stream.
    pub fn new(observer: F, limits: Arc<Limits>) -> Self {
        Apart { observer, limits, streams: BTreeMap::new(), over: StreamProgress::default() }
    }
}

impl<C: Observer, F: Fn(&StreamIdentity) -> C> Audience for Apart<C, F> {
    type Process = C;
    type Shared = ();

    fn begin(&mut self, identity: &StreamIdentity) {
        let window = Window::new((self.observer)(identity), self.limits.clone());
        self.streams.insert(identity.stream, window);
    }

    fn words<'w>(
        &mut self,
        stream: u32,
        words: &'w [u64],
        most: usize,
        decoder: &mut Decoder,
    ) -> Result<&'w [u64], DecodeError> {
        let window = self.streams.get_mut(&stream).expect("it has begun");
        decoder.decode_part(words, most, window)
    }

    fn end(&mut self, identity: &StreamIdentity, end: &StreamEnd) -> (C, WindowLog) {
        let window = self.streams.remove(&identity.stream).expect("it has begun");
        let (mut consumer, windows) = window.into_parts();
        consumer.ended(identity, end);
        let progress = consumer.progress();
        self.over.references += progress.references;
        self.over.instructions += progress.instructions;
        (consumer, windows)
    }

    fn progress(&self) -> StreamProgress {
        self.streams.values().fold(self.over, |mut sum, window| {
            let progress = window.inner().progress();
            sum.references += progress.references;
            sum.instructions += progress.instructions;
            sum.resident_bytes += progress.resident_bytes;
            sum
        })
    }

    fn finish(self) {}
}

/// One engine, on which the streams take turns.
pub struct Together<C> {
    engine: C,
    region: Region,
    /// By stream, whether its own marks put it in the region of interest. For the stream whose turn
    /// it is, `region.marked` holds the current state.
    marked: BTreeMap<u32, bool>,
    running: Option<u32>,
}

impl<C> Together<C> {
    /// An audience whose streams have not run yet.
    pub fn new(engine: C, limits: Arc<Limits>) -> Self {
        let region = Region::new(limits);
        Together { engine, region, marked: BTreeMap::new(), running: None }
    }

    /// Ends the turn of the running stream, if there is one.
    fn end_turn(&mut self) {
        let before = self.running.take().and_then(|before| self.marked.get_mut(&before));
        before.into_iter().for_each(|before| *before = self.region.marked);
    }
}

impl<C: TimeSlicedConsumer> Audience for Together<C> {
    type Process = C::Process;
    type Shared = C;

    fn begin(&mut self, identity: &StreamIdentity) {
        self.marked.insert(identity.stream, self.region.is_marked_at_first());
        self.engine.begun(identity);
    }

    fn words<'w>(
        &mut self,
        stream: u32,
        words: &'w [u64],
        most: usize,
        decoder: &mut Decoder,
    ) -> Result<&'w [u64], DecodeError> {
        if self.running != Some(stream) {
            self.end_turn();
            self.region.marked = self.marked[&stream];
            self.running = Some(stream);
            self.engine.switch_to(stream);
        }
        decoder.decode_part(words, most, &mut self.region.before(&mut self.engine))
    }

    fn end(&mut self, identity: &StreamIdentity, end: &StreamEnd) -> (C::Process, WindowLog) {
        // The engine switches to the process that ends, which may have no references in its turn.
        self.end_turn();
        self.marked.remove(&identity.stream);
        (self.engine.process_ended(identity, end), WindowLog::default())
    }

    fn progress(&self) -> StreamProgress {
        self.engine.progress()
    }

    fn finish(mut self) -> C {
        self.engine.all_ended();
        self.engine
    }
}
