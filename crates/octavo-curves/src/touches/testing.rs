//! Kernels fed from random streams, for their tests.

use octavo_oracle::strategies::{RandomStream, Step};
use octavo_oracle::{NaiveReferences, Stream as NaiveStream};
use octavo_trace::{Decoder, Encoder, Relocation, WordConsumer};
use octavo_types::{ItemKind, PageNumber};

use super::{Kernel, Rows, Run, Runs, Splitter, Touches};
use crate::sizes::Sizes;
use octavo_trace::Stream;

/// Feeds a kernel the touches of a stream, in batches of `batch_steps` steps. Returns the number of references.
pub fn feed(
    kernel: &mut dyn Kernel,
    random: &RandomStream,
    stream: Stream,
    sizes: &Sizes,
    batch_steps: usize,
) -> u64 {
    let mut process = |batch: &Touches, rows: &Rows| kernel.process(batch, rows);
    feed_batches(Splitter::new(stream), &mut process, random, sizes, batch_steps)
}

/// As [`feed`], with the touches of the whole program, in which fetches and data are distinguished.
pub fn feed_program(
    kernel: &mut dyn Kernel,
    random: &RandomStream,
    sizes: &Sizes,
    batch_steps: usize,
) -> u64 {
    let mut process = |batch: &Touches, rows: &Rows| kernel.process(batch, rows);
    feed_batches(Splitter::new(Stream::All).with_kinds(), &mut process, random, sizes, batch_steps)
}

/// As [`feed`], with the runs of a stream. Times, and the number returned, are references of the program.
pub fn feed_runs(
    kernel: &mut dyn FnMut(&[Run], &Rows),
    random: &RandomStream,
    (stream, longest_gap_refs): (Stream, u64),
    sizes: &Sizes,
    batch_steps: usize,
) -> u64 {
    let mut runs = Runs::new(stream, longest_gap_refs);
    let mut process = |batch: &Touches, rows: &Rows| kernel(runs.of_batch(batch), rows);
    feed_batches(Splitter::new(Stream::All).with_kinds(), &mut process, random, sizes, batch_steps)
}

/// Feeds batches. As in a run, rows of later touches do not exist yet.
fn feed_batches(
    mut splitter: Splitter,
    process: &mut dyn FnMut(&Touches, &Rows),
    random: &RandomStream,
    sizes: &Sizes,
    batch_steps: usize,
) -> u64 {
    let mut rows = Rows::new(sizes.clone(), Relocation::default());
    let mut batch = Touches::default();
    for (number, step) in random.steps.iter().enumerate() {
        if let Step::Segment(index, addresses) = step {
            splitter.segment(&random.segments[*index], addresses, &mut rows);
        }
        if number % batch_steps == 0 || number + 1 == random.steps.len() {
            batch = splitter.take(batch);
            process(&batch, &rows);
        }
    }
    splitter.refs()
}

/// Plays a stream encoded as in the ring.
pub fn through_ring(random: &RandomStream, consumer: &mut impl WordConsumer) {
    let mut encoder = Encoder::default();
    random.play(&mut encoder);
    Decoder::default().decode(encoder.words(), consumer).expect("sound words");
}

/// Each reference of the program: whether it is a fetch, and its base pages.
pub fn program_pages(random: &RandomStream) -> Vec<(bool, Vec<PageNumber>)> {
    let mut references = NaiveReferences::default();
    random.play(&mut references);
    let pages = references.references.into_iter().flat_map(|reference| {
        let is_fetch = reference.kind == ItemKind::Fetch;
        let one = NaiveReferences { references: vec![reference] };
        one.base_pages(NaiveStream::All).into_iter().map(move |pages| (is_fetch, pages))
    });
    pages.collect()
}

/// The base pages of each reference of the program; none if it does not belong to the stream.
pub fn pages_in_program_time(random: &RandomStream, stream: Stream) -> Vec<Vec<PageNumber>> {
    let in_stream = |(is_fetch, pages)| match stream {
        Stream::All => pages,
        _ if (stream == Stream::Fetch) == is_fetch => pages,
        _ => Vec::new(),
    };
    program_pages(random).into_iter().map(in_stream).collect()
}

/// A stream as the oracle calls it.
pub fn naive(stream: Stream) -> NaiveStream {
    match stream {
        Stream::Fetch => NaiveStream::Fetch,
        Stream::Data => NaiveStream::Data,
        Stream::All => NaiveStream::All,
    }
}
