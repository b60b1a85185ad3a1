//! The common part of all readers of single-stream formats: turns the references that they read
//! into segments, batches, and a stream that begins and ends.

use octavo_types::Event;

use crate::learn::{Learner, Reference, START};
use crate::ring::WordWriter;
use crate::source::{Batch, Facts, Place, Progress, Source, Step, TraceError};
use crate::stream::{StreamEnd, StreamIdentity};

/// The part of a reader that is its format's own.
pub(crate) trait Reader: Send {
    /// Reads some of the trace, as much as comes at once but no more than some hundred kilobytes,
    /// into `out`; false at the trace's end. Words put out before an error are passed on.
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError>;

    /// The facts on the trace.
    fn facts(&self) -> Facts;

    /// How much of the trace was read.
    fn progress(&self) -> Progress;

    /// How much of the trace was read, as a place.
    fn place(&self) -> Place;
}

/// Turns references into words.
pub(crate) struct Learning {
    learner: Learner,
    out: WordWriter,
    /// Where each execution in `out` began, if places are wanted.
    places: Vec<Place>,
    pub(crate) wants_places: bool,
    /// Where the segment that is being read began.
    began_at: Place,
}

impl Learning {
    fn new() -> Self {
        Learning {
            learner: Learner::new(),
            out: WordWriter::default(),
            places: Vec::new(),
            wants_places: false,
            began_at: Place::Whole,
        }
    }

    /// Takes the reference that stands at `place`. Where places are wanted, every reference is an
    /// execution of its own.
    #[inline]
    pub(crate) fn reference(&mut self, reference: Reference, place: Place) {
        if self.wants_places {
            self.finish(place);
        }
        self.learner.take(reference, &mut self.out);
    }

    /// Ends the segment that is being read; the next one will begin at `place`.
    #[inline]
    pub(crate) fn finish(&mut self, next: Place) {
        if self.wants_places && self.learner.here != START {
            self.places.push(self.began_at);
        }
        self.learner.finish(&mut self.out);
        self.began_at = next;
    }

    /// Takes an event, after all references so far.
    pub(crate) fn event(&mut self, event: &Event, place: Place) {
        self.finish(place);
        self.out.event(event);
    }
}

/// A reader as a source.
pub(crate) struct ReaderSource<R: Reader> {
    pub(crate) reader: R,
    learning: Learning,
    stage: Stage,
}

enum Stage {
    Begin,
    Read,
    /// The trace has ended, or an error was found; words that were read are still to be returned.
    Last(Option<TraceError>),
    End,
}

impl<R: Reader> ReaderSource<R> {
    pub(crate) fn new(reader: R) -> Self {
        ReaderSource { reader, learning: Learning::new(), stage: Stage::Begin }
    }
}

impl<R: Reader> Source for ReaderSource<R> {
    fn facts(&self) -> Facts {
        self.reader.facts()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        batch.clear();
        self.learning.wants_places = batch.wants_places;
        loop {
            match &mut self.stage {
                Stage::Begin => {
                    self.stage = Stage::Read;
                    return Ok(Some(Step::Began(StreamIdentity::only())));
                }
                Stage::Read => {
                    let more = self.reader.read_some(&mut self.learning);
                    if !matches!(more, Ok(true)) {
                        self.learning.finish(Place::Whole);
                        self.stage = Stage::Last(more.err());
                    }
                }
                Stage::Last(error) if self.learning.out.words().is_empty() => {
                    let error = error.take();
                    self.stage = Stage::End;
                    return error.map_or(Ok(Some(Step::Ended(0, StreamEnd::PLAIN))), Err);
                }
                Stage::Last(_) => {}
                Stage::End => return Ok(None),
            }
            if !self.learning.out.words().is_empty() {
                std::mem::swap(&mut batch.words, self.learning.out.words_mut());
                std::mem::swap(&mut batch.places, &mut self.learning.places);
                return Ok(Some(Step::Batch(0)));
            }
        }
    }

    fn progress(&self) -> Progress {
        self.reader.progress()
    }

    fn place(&self) -> Place {
        self.reader.place()
    }
}
