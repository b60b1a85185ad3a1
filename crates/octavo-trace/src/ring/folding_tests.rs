//! Addresses that are not canonical, between words and consumers.

use octavo_types::{
    AddrRange, AddressPlace, AddressWidth, Consumer, Event, Item, ItemKind, MapSource, Protection,
    Segment, VirtAddr,
};

use super::{Decoder, Encoder, FoldedReferences, StreamConsumer, WordWriter};

/// Keeps addresses and ranges as they come.
struct Log {
    width: Option<AddressWidth>,
    fetches: Vec<u64>,
    data: Vec<u64>,
    ranges: Vec<AddrRange>,
}

impl Log {
    fn new(width: Option<AddressWidth>) -> Self {
        Log { width, fetches: Vec::new(), data: Vec::new(), ranges: Vec::new() }
    }
}

impl Consumer for Log {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let fetches = segment.items().iter().filter(|item| item.kind == ItemKind::Fetch);
        self.fetches.extend(fetches.map(|item| item.addr.raw()));
        self.data.extend(addresses.iter().map(|addr| addr.raw()));
    }

    fn event(&mut self, event: &Event) {
        self.ranges.extend(event.ranges());
    }
}

impl StreamConsumer for Log {
    fn width(&self) -> Option<AddressWidth> {
        self.width
    }
}

const LA48: Option<AddressWidth> = Some(AddressWidth::LA48);
const LA57: Option<AddressWidth> = Some(AddressWidth::LA57);

fn decode(words: &[u64], width: Option<AddressWidth>) -> (Log, FoldedReferences) {
    let mut log = Log::new(width);
    let mut decoder = Decoder::default();
    decoder.decode(words, &mut log).unwrap();
    (log, decoder.folded())
}

fn item(kind: ItemKind, addr: u64) -> Item {
    Item::new(kind, 8, VirtAddr::new(addr))
}

/// One fetch and one modify, executed with each address of `data`.
fn executions(fetch: u64, data: &[u64]) -> Encoder {
    let items = vec![item(ItemKind::Fetch, fetch), item(ItemKind::Modify, 0)];
    let segment = Segment::new(items, Vec::new()).unwrap();
    let mut encoder = Encoder::default();
    data.iter().for_each(|addr| encoder.segment(&segment, &[VirtAddr::new(*addr)]));
    encoder
}

#[test]
fn engines_get_folded_data_addresses() {
    let tagged = 0xb400_7f00_0000_1000;
    let words = executions(0x1000, &[0x2000, tagged, u64::MAX, 0xffff_8000_0000_0000]);
    let (log, folded) = decode(words.words(), LA57);
    assert_eq!(log.data, [0x2000, 0x7f00_0000_1000, u64::MAX - 7, 0xffff_8000_0000_0000]);
    let first = Some(VirtAddr::new(tagged));
    assert_eq!(folded, FoldedReferences { count: 4, first, bits: 57 });
}

#[test]
fn fetches_of_a_segment_are_folded_and_counted_at_each_execution() {
    let mut decoder = Decoder::default();
    let mut log = Log::new(LA57);
    let encoder = executions(u64::MAX, &[0x2000]);
    decoder.decode(encoder.words(), &mut log).unwrap();
    // Words without an address that has to be folded.
    decoder.decode(&[0, 0x3000, 0, 0x4000], &mut log).unwrap();
    assert_eq!(log.fetches, [u64::MAX - 7; 3]);
    assert_eq!(decoder.folded().count, 3);
    assert_eq!(decoder.folded().first, Some(VirtAddr::new(u64::MAX)));
}

#[test]
fn parts_of_words_decode_as_all_of_them_do() {
    let addresses: Vec<u64> = (0..100).map(|number| number << (number % 64)).collect();
    let encoder = executions(0x1000, &addresses);
    let (all, mut whole) = (decode(encoder.words(), LA57), Decoder::default());
    whole.decode(encoder.words(), &mut Log::new(None)).unwrap();
    for most in [1, 2, 3, 7, 50] {
        let (mut log, mut decoder) = (Log::new(LA57), Decoder::default());
        let mut rest = encoder.words();
        while !rest.is_empty() {
            let before = rest.len();
            rest = decoder.decode_part(rest, most, &mut log).unwrap();
            let first = before == encoder.words().len();
            assert!(first || before - rest.len() <= most + 2, "{}", before - rest.len());
        }
        assert_eq!((log.data, decoder.folded()), (all.0.data.clone(), all.1));
        assert_eq!(decoder.hash(), whole.hash());
    }
}

#[test]
fn a_new_definition_ends_the_count_of_the_old_one() {
    let mut words = WordWriter::default();
    for fetch in [u64::MAX, 0x1000] {
        let items = vec![item(ItemKind::Fetch, fetch)];
        words.define(0, &Segment::new(items, Vec::new()).unwrap());
        words.execute(0, &[]);
        words.execute(0, &[]);
    }
    assert_eq!(decode(words.words(), LA57).1.count, 2);
}

#[test]
fn recorders_and_checkers_get_addresses_as_written() {
    let words = executions(u64::MAX, &[0xb400_7f00_0000_1000]);
    let (log, folded) = decode(words.words(), None);
    assert_eq!((log.fetches, log.data), (vec![u64::MAX], vec![0xb400_7f00_0000_1000]));
    assert_eq!(folded, FoldedReferences::default());
}

#[test]
fn five_level_addresses_are_folded_for_four_levels_only() {
    let addr = 0x00ab_8000_0000_0000;
    let words = executions(0x1000, &[addr]);
    assert_eq!(decode(words.words(), LA57).0.data, [addr]);
    assert_eq!(decode(words.words(), LA57).1, FoldedReferences::default());
    let (log, folded) = decode(words.words(), LA48);
    assert_eq!(log.data, [0xffff_8000_0000_0000]);
    assert_eq!((folded.count, folded.bits), (2, 48));
}

#[test]
fn an_address_group_is_folded_as_a_whole() {
    let items = vec![item(ItemKind::Modify, 0), item(ItemKind::Load, 0)];
    let places = [(true, 4000), (false, 0)].map(|(leads, offset)| AddressPlace { leads, offset });
    let segment = Segment::with_places(items, Vec::new(), &places).unwrap();
    let mut encoder = Encoder::default();
    for start in [0x2000, 0xb400_0000_0000_2000, u64::MAX - 4006] {
        encoder.segment(&segment, &[start + 4000, start].map(VirtAddr::new));
    }
    let (log, folded) = decode(encoder.words(), LA57);
    let end = u64::MAX - 4007;
    assert_eq!(log.data, [0x2000 + 4000, 0x2000, 0x2000 + 4000, 0x2000, end + 4000, end]);
    assert_eq!(folded.count, 2 * 3);
}

#[test]
fn a_skipped_guarded_item_is_not_folded() {
    let guarded = Item { guarded: true, ..item(ItemKind::Load, 0) };
    let mut encoder = Encoder::default();
    let segment = Segment::new(vec![guarded, guarded], Vec::new()).unwrap();
    encoder.segment(&segment, &[VirtAddr::NULL, VirtAddr::new(1 << 63)]);
    let (log, folded) = decode(encoder.words(), LA57);
    assert_eq!((log.data, folded.count), (vec![0, 0], 1));
}

#[test]
fn ranges_of_events_are_cut_to_one_half() {
    let range = AddrRange::new(VirtAddr::new(0x1000), u64::MAX);
    let mut words = WordWriter::default();
    let (protection, source) = (Protection::from_bits(3), MapSource::Anonymous);
    words.event(&Event::Map { range, protection, source, flags: 0 });
    words.event(&Event::Unmap { range: AddrRange::new(VirtAddr::new(1 << 63), 1 << 20) });
    let (log, _) = decode(words.words(), LA57);
    let expected = [(0x1000, (1 << 56) - 0x1000), (0, 1 << 20)];
    assert_eq!(log.ranges, expected.map(|(at, bytes)| AddrRange::new(VirtAddr::new(at), bytes)));
}

/// A description of a process that moves its first range by `delta` bytes.
fn start(from: u64, to: u64, delta: u64) -> Vec<u64> {
    let payload = [from, to, delta, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let header =
        super::format::RECORD | u64::from(super::format::kind::START) << 48 | payload.len() as u64;
    [&[header][..], &payload].concat()
}

#[test]
fn a_relocation_out_of_the_address_space_is_refused() {
    let refused = |from, to, delta| {
        let mut log = Log::new(LA57);
        let decoded = Decoder::default().decode(&start(from, to, delta), &mut log);
        decoded.err().map(|error| error.to_string())
    };
    assert_eq!(refused(0x1000, 0x9000, 0x10_0000), None);
    assert_eq!(refused(0x2000, 0x9000, 0x1000u64.wrapping_neg()), None);
    let expected =
        "addresses from 0x1000 on are moved by 0xffffffffffffe000 bytes, out of the address space";
    assert_eq!(refused(0x1000, 0x9000, 0x2000u64.wrapping_neg()).as_deref(), Some(expected));
    for (from, to, delta) in [(0x1000, 1 << 57, 0), (0x1000, 0x9000, 1 << 56), (0, u64::MAX, 0)] {
        assert!(refused(from, to, delta).is_some(), "{from:#x} {to:#x} {delta:#x}");
    }
}
