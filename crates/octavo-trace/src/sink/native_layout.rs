//! A sink that moves addresses to the native layout on their way.

use std::collections::BTreeMap;

use octavo_types::{AddrRange, AddressWidth, DataItem, Event, Segment, VirtAddr};

use super::{Sink, Written};
use crate::native::Manifest;
use crate::relocation::Relocation;
use crate::ring::format::{self, ItemWord, kind};
use crate::ring::{Decoder, SegmentRoom, WordConsumer, read_start};
use crate::source::TraceError;
use crate::stream::{StreamEnd, StreamIdentity};

/// Passes streams on with the addresses that Linux would have given, which the engines use, too.
/// The descriptions of the streams have no relocation afterwards.
///
/// An address is looked up as the engines do, folded to 57 bits; one that does not move is passed
/// on as it was written.
pub struct NativeLayout {
    sink: Box<dyn Sink>,
    /// The name of the trace that is read, for errors.
    name: String,
    streams: BTreeMap<u32, (Decoder, Mover)>,
    room: SegmentRoom,
}

impl NativeLayout {
    /// Passes the streams of the trace `name` on to `sink`. A stream with executions, but without a
    /// relocation before them, is an error.
    pub fn new(sink: Box<dyn Sink>, name: &str) -> Self {
        NativeLayout {
            sink,
            name: name.to_owned(),
            streams: BTreeMap::new(),
            room: SegmentRoom::default(),
        }
    }
}

impl Sink for NativeLayout {
    fn begin(&mut self, identity: &StreamIdentity) -> Result<(), TraceError> {
        self.sink.begin(identity)
    }

    fn words(&mut self, stream: u32, words: &[u64]) -> Result<(), TraceError> {
        let new = || (Decoder::sharing(&self.room), Mover::default());
        let (decoder, mover) = self.streams.entry(stream).or_insert_with(new);
        mover.words.clear();
        let decoded = decoder.decode(words, mover);
        decoded.map_err(|error| TraceError::whole(&self.name, error.to_string()))?;
        if mover.is_unplaced {
            let what = "does not say where Linux would have put its memory, so that it has no \
                        native layout: only traces that Octavo recorded and that keep their \
                        addresses as traced say it";
            return Err(TraceError::whole(&self.name, what));
        }
        self.sink.words(stream, &mover.words)
    }

    fn end(&mut self, stream: u32, end: &StreamEnd) -> Result<(), TraceError> {
        self.streams.remove(&stream);
        self.sink.end(stream, end)
    }

    fn add_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceError> {
        self.sink.add_manifest(manifest)
    }

    fn finish(self: Box<Self>) -> Result<Written, TraceError> {
        self.sink.finish()
    }
}

/// Moves the words of one stream.
#[derive(Default)]
struct Mover {
    layout: Layout,
    words: Vec<u64>,
    /// Whether something was executed without a relocation.
    is_unplaced: bool,
}

impl WordConsumer for Mover {
    fn width(&self) -> Option<AddressWidth> {
        None
    }

    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.is_unplaced |= self.layout.0.is_empty();
        self.words.push(words[0]);
        for (items, word) in segment.groups().zip(&words[1..]) {
            let is_skipped = *word == 0 && items.iter().any(|item| item.guarded);
            let reach_bytes = DataItem::reach_of_group(items);
            let addr = if is_skipped { 0 } else { self.layout.addr(*word, reach_bytes) };
            self.words.push(addr);
        }
    }

    fn record(&mut self, words: &[u64], _: Option<&Event>) {
        let first = self.words.len();
        self.words.extend_from_slice(words);
        let payload = &mut self.words[first + 1..];
        match format::record_kind(words[0]) {
            kind::DEFINE => self.layout.move_fetches(payload),
            kind::MAP | kind::UNMAP | kind::PROTECT | kind::ADVISE | kind::PRESENT => {
                self.layout.move_range(payload);
            }
            kind::REMAP => {
                // The decoder ignores what comes after the two ranges.
                let ranges = payload.chunks_exact_mut(2).take(2);
                ranges.for_each(|range| self.layout.move_range(range));
            }
            kind::ALLOCATION_STACK => {
                let frames = payload[1] as usize;
                for frame in &mut payload[2..2 + frames] {
                    *frame = self.layout.addr(*frame, 1);
                }
            }
            kind::ALLOCATE => {
                self.layout.move_range(payload);
                payload[3] = if payload[3] == 0 { 0 } else { self.layout.addr(payload[3], 1) };
            }
            kind::RELEASE => payload[0] = self.layout.addr(payload[0], 1),
            kind::TRANSLATION => payload[0] = self.layout.addr(payload[0], 1),
            kind::START => {
                let start = read_start(payload, None).expect("the decoder has read it");
                self.layout = Layout(start.relocation);
                self.layout.move_start(payload);
            }
            _ => {}
        }
    }
}

/// The native layout of a process.
#[derive(Default)]
struct Layout(Relocation);

impl Layout {
    /// Moves the address of a reference of `size_bytes` bytes.
    fn addr(&self, written: u64, size_bytes: u16) -> u64 {
        let folded = AddressWidth::LA57.fold(VirtAddr::new(written), size_bytes);
        let native = self.0.address(folded);
        if native == folded { written } else { native.raw() }
    }

    /// Moves a range: its first address, and its length.
    fn move_range(&self, words: &mut [u64]) {
        let range = AddrRange::new(VirtAddr::new(words[0]), words[1]);
        let folded = AddressWidth::LA57.fold_range(range);
        let native = self.0.range(folded);
        if native != folded {
            (words[0], words[1]) = (native.start().raw(), native.bytes());
        }
    }

    /// Moves the fetches of a definition.
    fn move_fetches(&self, payload: &mut [u64]) {
        let count = payload[0] >> 32;
        let mut words = payload[2..].iter_mut();
        for _ in 0..count {
            let item = ItemWord(*words.next().expect("a decoded definition has its items"));
            if item.is_fetch() {
                let addr = words.next().expect("a fetch has an address");
                *addr = self.addr(*addr, item.size_bytes());
            }
        }
    }

    /// Takes the relocation out of the description of a process, and moves its stack.
    fn move_start(&self, payload: &mut [u64]) {
        let (moves, rest) = payload.split_at_mut(3 * format::LAYOUT_RANGES);
        moves.fill(0);
        let mut stack = [rest[0], rest[1].saturating_sub(rest[0])];
        self.move_range(&mut stack);
        (rest[0], rest[1]) = (stack[0], stack[0].saturating_add(stack[1]));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use octavo_types::{
        AddressPlace, Consumer, Frame, Item, ItemKind, MapSource, PhysAddr, Protection,
    };

    use super::*;
    use crate::ring::{Encoder, Start, StreamConsumer, WordWriter};

    /// Keeps the words that it is given.
    #[derive(Clone, Default)]
    struct Words(Arc<Mutex<Vec<u64>>>);

    impl Sink for Words {
        fn words(&mut self, _: u32, words: &[u64]) -> Result<(), TraceError> {
            self.0.lock().unwrap().extend_from_slice(words);
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<Written, TraceError> {
            Ok(Written::default())
        }
    }

    /// The addresses that an engine uses: folded, and then moved by the relocation of the stream.
    #[derive(Default)]
    struct Engine {
        relocation: Relocation,
        addresses: Vec<u64>,
        ranges: Vec<AddrRange>,
        stack: Option<AddrRange>,
    }

    impl Consumer for Engine {
        fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
            let fetches = segment.items().iter().filter(|item| item.kind == ItemKind::Fetch);
            let all = fetches.map(|item| item.addr).chain(addresses.iter().copied());
            let native = all.map(|addr| self.relocation.address(addr).raw());
            self.addresses.extend(native);
        }

        fn event(&mut self, event: &Event) {
            self.ranges.extend(event.ranges().map(|range| self.relocation.range(range)));
            let named = match event {
                Event::Translation { virt, .. } => vec![*virt],
                Event::AllocationStack { frames, .. } => {
                    frames.iter().map(|frame| frame.addr).collect()
                }
                Event::Allocate { block, freed, .. } => {
                    [block.start()].into_iter().chain(*freed).collect()
                }
                Event::Release { start } => vec![*start],
                _ => Vec::new(),
            };
            let native = named.into_iter().map(|addr| self.relocation.address(addr).raw());
            self.addresses.extend(native);
        }
    }

    impl StreamConsumer for Engine {
        fn started(&mut self, start: &Start) {
            self.relocation = start.relocation.clone();
            self.stack = start.stack.map(|stack| self.relocation.range(stack));
        }
    }

    fn decoded(words: &[u64]) -> Engine {
        let mut engine = Engine::default();
        Decoder::default().decode(words, &mut engine).unwrap();
        engine
    }

    /// The description of a process: with `moves`, its code and heap, and its stack, were not at
    /// their native addresses.
    fn start(moves: bool) -> Vec<u64> {
        let mut payload = vec![0; 15];
        if moves {
            payload[..3].copy_from_slice(&[0x10_0000, 0x80_0000, 0x5555_5540_0000]);
            payload[3..6].copy_from_slice(&[0x1f_ff00_0000, 0x20_0000_0000, 0x7fdf_ff00_0000]);
        }
        (payload[12], payload[13]) = (0x1f_ff80_0000, 0x20_0000_0000);
        let header = format::RECORD | u64::from(kind::START) << 48 | payload.len() as u64;
        [&[header][..], &payload].concat()
    }

    fn item(kind: ItemKind, guarded: bool, addr: u64) -> Item {
        Item { kind, guarded, atomic: false, size_bytes: 8, addr: VirtAddr::new(addr) }
    }

    /// Addresses in ranges that move, at their ends, outside of them, and with bits that no
    /// processor translates.
    fn executions() -> Vec<u64> {
        let mut encoder = Encoder::default();
        let items = vec![
            item(ItemKind::Fetch, false, 0x10_a000),
            item(ItemKind::Load, true, 0),
            item(ItemKind::Fetch, false, 0xb400_0000_0010_a008),
            item(ItemKind::Modify, false, 0),
        ];
        let segment = Segment::new(items, Vec::new()).unwrap();
        let pairs = [
            (0, 0x20_0000),
            (0x0f_ffff, 0x10_0000),
            (0x7f_fff8, 0x80_0000),
            (0xb400_0000_0030_0000, 0x1f_ffff_fff0),
            (0xb400_7f00_0000_1000, u64::MAX),
        ];
        for (guarded, other) in pairs {
            encoder.segment(&segment, &[VirtAddr::new(guarded), VirtAddr::new(other)]);
        }
        let items = vec![item(ItemKind::Store, false, 0), item(ItemKind::Load, false, 0)];
        let places =
            [AddressPlace { leads: true, offset: 16 }, AddressPlace { leads: false, offset: 0 }];
        let group = Segment::with_places(items, Vec::new(), &places).unwrap();
        for start in [0x20_0000, 0x7f_ff00, 0xb400_0000_0030_0000, 0x9000] {
            encoder.segment(&group, &[VirtAddr::new(start + 16), VirtAddr::new(start)]);
        }
        encoder.words().to_vec()
    }

    fn events() -> Vec<u64> {
        let mut words = WordWriter::default();
        let range = |start, bytes| AddrRange::new(VirtAddr::new(start), bytes);
        let protection = Protection::from_bits(3);
        for at in [range(0x20_0000, 0x1000), range(0x1000, 0x1000), range(0x1f_ff80_0000, 1 << 20)]
        {
            let moved = range(at.start().raw() + 0x1000, at.bytes());
            words.event(&Event::Map { range: at, protection, source: MapSource::Heap, flags: 7 });
            words.event(&Event::Remap { from: at, to: moved });
            words.event(&Event::Protect { range: moved, protection });
            words.event(&Event::Advise { range: moved, advice: 14 });
            words.event(&Event::Unmap { range: moved });
            words.event(&Event::Translation { virt: at.start(), phys: PhysAddr::new(0x1000) });
            let frame = Frame { addr: at.start(), function: "f".to_owned() };
            words.event(&Event::AllocationStack { number: 1, frames: vec![frame.clone(), frame] });
            let freed = Some(moved.start());
            words.event(&Event::Allocate { block: at, stack: 1, freed, inherited: true });
            words.event(&Event::Allocate { block: at, stack: 1, freed: None, inherited: false });
            words.event(&Event::Release { start: at.start() });
        }
        words.event(&Event::Mark { value: 0x20_0000 });
        words.words().to_vec()
    }

    fn converted(words: &[u64]) -> Result<Vec<u64>, TraceError> {
        let kept = Words::default();
        let mut sink = NativeLayout::new(Box::new(kept.clone()), "a.oct");
        sink.words(0, words)?;
        Ok(std::mem::take(&mut *kept.0.lock().unwrap()))
    }

    #[test]
    fn engines_use_equal_addresses_of_both_layouts() {
        let words = [start(true), events(), executions()].concat();
        let native = converted(&words).unwrap();
        let (before, after) = (decoded(&words), decoded(&native));
        assert_eq!(after.addresses, before.addresses);
        assert_eq!(after.ranges, before.ranges);
        assert_eq!(after.stack, before.stack);
        assert!(after.relocation.is_empty());
        assert!(before.addresses.contains(&(0x20_0000 + 0x5555_5540_0000)));
        assert!(before.addresses.contains(&(0x1f_ffff_fff0 + 0x7fdf_ff00_0000)));
        // An address that stays is not folded.
        assert!(native.contains(&0xb400_7f00_0000_1000));
        assert!(native.contains(&u64::MAX));
        // Only addresses change.
        assert_eq!(native.len(), words.len());
        assert!(native.ends_with(&converted(&[start(true), executions()].concat()).unwrap()[16..]));
    }

    #[test]
    fn streams_without_relocation_are_refused() {
        for words in [executions(), [start(false), executions()].concat()] {
            let error = converted(&words).unwrap_err().to_string();
            assert!(error.contains("has no native layout"), "{error}");
        }
        assert!(converted(&start(false)).is_ok());
    }
}
