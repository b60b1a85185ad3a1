//! The words of a synthetic trace in the making.

use octavo_types::Segment;

use crate::ring::WordWriter;
use crate::source::{BATCH_WORDS, Place};

/// The batch in the making, and the progress of the whole trace.
#[derive(Default)]
pub(super) struct Emitter {
    pub(super) out: WordWriter,
    pub(super) places: Vec<Place>,
    pub(super) wants_places: bool,
    /// How many data references have been made.
    pub(super) references: u64,
    segments: u32,
}

impl Emitter {
    pub(super) fn is_full(&self) -> bool {
        self.out.words().len() >= BATCH_WORDS
    }

    pub(super) fn define(&mut self, segment: &Segment) -> u32 {
        let number = self.segments;
        self.out.define(number, segment);
        self.segments += 1;
        number
    }

    /// Writes one execution, which makes `references` references.
    #[inline]
    pub(super) fn execute(
        &mut self,
        segment: u32,
        references: u64,
        addresses: impl Iterator<Item = u64>,
    ) {
        if self.wants_places {
            self.places.push(Place::Reference(self.references));
        }
        let words = self.out.words_mut();
        words.push(u64::from(segment));
        words.extend(addresses);
        self.references += references;
    }
}
