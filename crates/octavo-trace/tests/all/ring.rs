//! Decoding inverts encoding, and random words are read or refused.

use octavo_oracle::strategies::{RandomStream, stream};
use octavo_trace::{Decoder, Encoder, StreamConsumer};
use octavo_types::{
    AddrRange, Consumer, Dependences, Event, Frame, Item, ItemKind, Segment, VirtAddr,
};
use proptest::prelude::*;

/// Keeps executions and events.
#[derive(Default, Debug, PartialEq)]
struct Log {
    segments: Vec<(Segment, Vec<VirtAddr>)>,
    events: Vec<Event>,
}

impl StreamConsumer for Log {}

impl Consumer for Log {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        // The encoder fills in dependences, so only items are compared.
        let bare = Segment::new(segment.items().to_vec(), Vec::new()).unwrap();
        self.segments.push((bare, addresses.to_vec()));
    }

    fn event(&mut self, event: &Event) {
        self.events.push(event.clone());
    }
}

fn encode(random: &RandomStream) -> Encoder {
    let mut encoder = Encoder::default();
    random.play(&mut encoder);
    encoder
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn a_stream_decodes_to_itself(random in stream(0..100)) {
        let (mut expected, mut got) = (Log::default(), Log::default());
        random.play(&mut expected);
        let encoder = encode(&random);
        let mut decoder = Decoder::default();
        decoder.decode(encoder.words(), &mut got).unwrap();
        prop_assert_eq!(got, expected);
        prop_assert!(decoder.segments() <= random.segments.len());
    }

    #[test]
    fn allocations_decode_to_themselves(
        events in prop::collection::vec(allocation_event(), 0..20),
    ) {
        let (mut encoder, mut got) = (Encoder::default(), Log::default());
        events.iter().for_each(|event| encoder.event(event));
        Decoder::default().decode(encoder.words(), &mut got).unwrap();
        prop_assert_eq!(got.events, events);
    }

    #[test]
    fn any_words_are_decoded_or_refused(words in prop::collection::vec(any_word(), 0..200)) {
        let mut decoder = Decoder::default();
        // Either is right; a panic or a wild allocation is not.
        let _ = decoder.decode(&words, &mut Log::default());
    }

    #[test]
    fn damaged_streams_are_decoded_or_refused(
        random in stream(1..40), at in any::<prop::sample::Index>(), word in any_word(),
    ) {
        let mut words = encode(&random).words().to_vec();
        if !words.is_empty() {
            let at = at.index(words.len());
            words[at] = word;
        }
        let _ = Decoder::default().decode(&words, &mut Log::default());
    }
}

fn allocation_event() -> impl Strategy<Value = Event> {
    let addr = || (1u64..1 << 47).prop_map(VirtAddr::new);
    let frame = (addr(), "[a-z:<>é ]{0,20}").prop_map(|(addr, function)| Frame { addr, function });
    let frames = prop::collection::vec(frame, 0..9);
    let block = || (addr(), 1u64..1 << 40).prop_map(|(start, bytes)| AddrRange::new(start, bytes));
    let freed = prop::option::of(addr());
    prop_oneof![
        (any::<u32>(), frames)
            .prop_map(|(number, frames)| Event::AllocationStack { number, frames }),
        (block(), any::<u32>(), freed, any::<bool>()).prop_map(
            |(block, stack, freed, inherited)| {
                Event::Allocate { block, stack, freed, inherited }
            }
        ),
        addr().prop_map(|start| Event::Release { start }),
        (block(), any::<bool>(), any::<bool>()).prop_map(|(range, known, first)| Event::Present {
            range,
            known,
            first
        }),
    ]
}

/// Words that look like headers and small numbers more often than by chance.
fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..64,
        (0u64..24, 0u64..40).prop_map(|(kind, count)| 1 << 63 | kind << 48 | count),
        (0u64..4, 0u64..4).prop_map(|(id, items)| items << 32 | id),
    ]
}

#[test]
fn dependences_decode_to_themselves() {
    #[derive(Default)]
    struct Defined(Vec<Segment>);
    impl Consumer for Defined {
        fn segment(&mut self, segment: &Segment, _: &[VirtAddr]) {
            self.0.push(segment.clone());
        }

        fn event(&mut self, _: &Event) {}
    }
    impl StreamConsumer for Defined {}

    let fetch = Item::new(ItemKind::Fetch, 4, VirtAddr::new(0x1000));
    let entry = |late_producers, late_reads| Dependences {
        producers: 0b101,
        reads: 1 << 3 | 1 << 20 | 1 << 24,
        writes: 1,
        late_producers,
        late_reads,
    };
    let dependences = vec![entry(0, 0), entry(0b100, 0), entry(0, 1 << 3), entry(0b1, 1 << 3)];
    let segment = Segment::new(vec![fetch; 4], dependences).unwrap();
    let mut encoder = Encoder::default();
    encoder.segment(&segment, &[]);
    let mut defined = Defined::default();
    Decoder::default().decode(encoder.words(), &mut defined).unwrap();
    assert_eq!(defined.0, [segment]);
}
