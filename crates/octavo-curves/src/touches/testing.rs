//! Kernels fed from random streams, for their tests.

use octavo_oracle::strategies::{RandomStream, Step};
use octavo_oracle::{NaiveReferences, Stream as NaiveStream};
use octavo_trace::Relocation;
use octavo_types::PageNumber;

use super::{Kernel, Rows, Splitter, Touches};
use crate::sizes::Sizes;
use octavo_trace::Stream;

/// Hands a kernel the touches of a stream, in batches of so many steps, and tells how many
/// references there were. Rows are as they are during a run: those of later touches do not exist
/// yet.
pub fn feed(
    kernel: &mut dyn Kernel,
    random: &RandomStream,
    stream: Stream,
    sizes: &Sizes,
    batch_steps: usize,
) -> u64 {
    let mut rows = Rows::new(sizes.clone(), Relocation::default());
    let mut splitter = Splitter::new(stream);
    let mut batch = Touches::default();
    for (number, step) in random.steps.iter().enumerate() {
        if let Step::Segment(index, addresses) = step {
            splitter.segment(&random.segments[*index], addresses, &mut rows);
        }
        if number % batch_steps == 0 || number + 1 == random.steps.len() {
            batch = splitter.take(batch);
            kernel.take(&batch, &rows);
        }
    }
    splitter.refs()
}

/// The base pages of each reference of a stream.
pub fn base_pages(random: &RandomStream, stream: Stream) -> Vec<Vec<PageNumber>> {
    let mut references = NaiveReferences::default();
    random.play(&mut references);
    references.base_pages(naive(stream))
}

/// A stream as the oracle calls it.
pub fn naive(stream: Stream) -> NaiveStream {
    match stream {
        Stream::Fetch => NaiveStream::Fetch,
        Stream::Data => NaiveStream::Data,
        Stream::All => NaiveStream::All,
    }
}
