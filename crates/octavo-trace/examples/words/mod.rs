//! The beginning of a trace in memory, as words, so that decoding it into a consumer can be timed.
//! Examples of other crates have this module, too.

#[path = "../timing/mod.rs"]
mod timing;

use octavo_trace::formats::{OpenOptions, open};
use octavo_trace::source::{Batch, Step};
use octavo_trace::{Counts, Decoder, WordConsumer};
use timing::thread_ns;

/// The beginning of the first process image of a trace.
pub struct Words {
    batches: Vec<Vec<u64>>,
    /// Its references, instructions and other counts.
    pub counts: Counts,
}

impl Words {
    /// Reads `wanted` references of a trace, or all where there are fewer; the last batch is whole,
    /// so that there may be some more.
    pub fn read(trace: &str, wanted: u64) -> Self {
        let mut source = open(trace, &OpenOptions::default()).expect("a trace");
        let (mut batch, mut decoder) = (Batch::default(), Decoder::default());
        let mut words = Words { batches: Vec::new(), counts: Counts::default() };
        while words.counts.references() < wanted {
            match source.next(&mut batch).expect("a whole trace") {
                Some(Step::Batch(0)) => {
                    decoder.decode(&batch.words, &mut words.counts).expect("sound words");
                    words.batches.push(batch.words.clone());
                }
                Some(_) => {}
                None => break,
            }
        }
        words
    }

    /// Plays all; `least_ns` has the least time that each batch took so far.
    pub fn play(&self, consumer: &mut impl WordConsumer, least_ns: &mut Vec<u64>) {
        let mut decoder = Decoder::default();
        least_ns.resize(self.batches.len(), u64::MAX);
        let mut from = thread_ns();
        for (words, least) in self.batches.iter().zip(least_ns) {
            decoder.decode(words, consumer).expect("sound words");
            let to = thread_ns();
            *least = (to - from).min(*least);
            from = to;
        }
    }
}
