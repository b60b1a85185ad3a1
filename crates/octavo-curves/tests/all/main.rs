//! The integration tests of `octavo-curves`, linked once.

mod allocations;
mod machine;
mod oracle;
mod page_faults;
mod sampling;
mod sharing;
mod time_slicing;

use octavo_oracle::strategies::RandomStream;
use octavo_trace::{Decoder, Encoder, WordConsumer};

/// Plays a stream encoded as in the ring.
fn play_through_ring(random: &RandomStream, consumer: &mut impl WordConsumer) {
    let mut encoder = Encoder::default();
    random.play(&mut encoder);
    Decoder::default().decode(encoder.words(), consumer).unwrap();
}
