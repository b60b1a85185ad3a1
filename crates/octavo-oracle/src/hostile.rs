//! Streams from arbitrary bytes: sequences that no program produces, but a hostile trace may contain.

use octavo_types::{
    AddrRange, AddressPlace, Consumer, Event, Frame, Item, ItemKind, MapSource, PhysAddr,
    Protection, Segment, VirtAddr, WindowPlace,
};

use crate::lowest_at_start;

/// The most items of a segment.
const MAX_ITEMS: u8 = 24;
/// The most executions of a segment by one step of a stream.
const MAX_REPEATS: u8 = 40;

/// Feeds `consumer` the stream that `bytes` describe. Any bytes describe a stream; equal bytes describe
/// equal streams.
///
/// Addresses lie around the bounds of an address space (its ends, the ends of its halves in 48 and 57 bits,
/// each power of two), on a few nearby pages, and on pages far apart. Item sizes are all those that a segment
/// may have, ranges extend up to the whole address space, and events come in any order.
pub fn play(bytes: &[u8], consumer: &mut (impl Consumer + ?Sized)) {
    let mut bytes = Bytes(bytes);
    let mut segments: Vec<Segment> = Vec::new();
    while !bytes.0.is_empty() {
        let kind = bytes.next();
        if segments.is_empty() || kind < 48 {
            segments.extend(bytes.segment());
        } else if kind < 208 {
            let segment = &segments[usize::from(bytes.next()) % segments.len()];
            let repeats = if kind < 176 { 1 } else { bytes.next() % MAX_REPEATS };
            for _ in 0..=repeats {
                let addresses: Vec<VirtAddr> = segment
                    .groups()
                    .flat_map(|items| {
                        let start = match items[0].guarded && bytes.0.len() % 3 == 0 {
                            true => VirtAddr::NULL,
                            false => bytes.addr(),
                        };
                        items.iter().map(move |item| start.wrapping_add(item.offset.into()))
                    })
                    .collect();
                consumer.segment(segment, &addresses);
            }
        } else {
            consumer.event(&bytes.event(kind));
        }
    }
}

/// A reader of bytes, which returns 0 behind the last one.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn addr(&mut self) -> VirtAddr {
        let (kind, page, offset) =
            (self.next(), u64::from(self.next()), u64::from(self.next()) << 4);
        let offset = if kind & 8 == 0 { offset } else { 4095 - (offset >> 4) };
        let near = |base: u64| base.wrapping_add(page << 12).wrapping_add(offset);
        VirtAddr::new(match kind & 7 {
            0 | 1 => near(0x40_0000),
            2 => near(0x7fff_fff0_0000),
            3 => 0x1000_0000 + (page << 21) + offset,
            4 => (page << 39).wrapping_add(offset),
            5 => near(0xffff_8000_0000_0000).wrapping_add(page << 30),
            6 => u64::MAX - (page << 12) - offset,
            _ => (1u64 << (page % 64)).wrapping_add(offset).wrapping_sub(page >> 6 << 4),
        })
    }

    fn size_bytes(&mut self) -> u16 {
        match self.next() {
            byte @ 0..128 => 1 << (byte % 8),
            byte @ 128..192 => 4096 >> (byte % 4),
            byte => u16::from(byte),
        }
    }

    fn segment(&mut self) -> Option<Segment> {
        let count = 1 + self.next() % MAX_ITEMS;
        let mut at = self.addr();
        let (mut items, mut places) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let bits = self.next();
            let kind = match bits & 7 {
                0..=3 => ItemKind::Fetch,
                4 | 5 => ItemKind::Load,
                6 => ItemKind::Store,
                _ => ItemKind::Modify,
            };
            let (guarded, atomic) = (bits & 16 != 0, bits & 32 != 0);
            let size_bytes = self.size_bytes();
            let mut addr = VirtAddr::NULL;
            if kind == ItemKind::Fetch {
                addr = if bits & 64 == 0 { at } else { self.addr() };
                at = addr.wrapping_add(u64::from(size_bytes));
            } else if bits & 8 == 0 {
                places.push(AddressPlace::OWN);
            } else {
                let offset = u16::from(self.next()) << (bits >> 4 & 3);
                places.push(AddressPlace { leads: bits & 128 != 0, offset });
            }
            items.push(Item { kind, guarded, atomic, size_bytes, addr });
        }
        Segment::with_places(items, Vec::new(), &lowest_at_start(places)).ok()
    }

    fn place(&mut self) -> WindowPlace {
        let instructions = Some(self.next()).filter(|byte| *byte < 200).map(u64::from);
        WindowPlace { instructions, milliseconds: Some(u64::from(self.next())) }
    }

    fn range(&mut self) -> AddrRange {
        let start = self.addr();
        let bytes = match self.next() {
            byte @ 0..128 => u64::from(byte) << 12,
            byte @ 128..192 => 1 << (byte % 64),
            byte @ 192..250 => u64::from(byte) << 9,
            _ => u64::MAX,
        };
        AddrRange::new(start, bytes)
    }

    /// An event of a kind from 208.
    fn event(&mut self, kind: u8) -> Event {
        let protection = Protection::from_bits(u64::from(kind >> 1 & 7));
        match kind - 208 {
            0 => {
                let count = self.next() % 4;
                let frame = |_| Frame { addr: self.addr(), function: "f".to_owned() };
                let frames = (0..count).map(frame).collect();
                Event::AllocationStack { number: u32::from(self.next() % 8), frames }
            }
            1 => {
                let freed = Some(self.addr()).filter(|addr| *addr != VirtAddr::NULL);
                let (block, stack) = (self.range(), u32::from(self.next() % 8));
                Event::Allocate { block, stack, freed, inherited: kind & 2 != 0 }
            }
            2 => Event::Release { start: self.addr() },
            3..12 => {
                let range = self.range();
                let path = format!("/file/{}", kind & 3);
                let source = match self.next() % 8 {
                    0..=2 => MapSource::Anonymous,
                    3 | 4 => MapSource::File { path, offset_bytes: self.addr().raw() },
                    5 => MapSource::Stack,
                    6 => MapSource::Heap,
                    _ => MapSource::Shared,
                };
                Event::Map { range, protection, source, flags: u64::from(self.next()) << 12 }
            }
            12..18 => Event::Unmap { range: self.range() },
            18..24 => Event::Remap { from: self.range(), to: self.range() },
            24..28 => Event::Protect { range: self.range(), protection },
            28 => {
                let (range, flags) = (self.range(), self.next());
                Event::Present { range, known: flags & 1 != 0, first: flags & 2 != 0 }
            }
            29..36 => Event::Advise { range: self.range(), advice: u64::from(self.next() % 32) },
            36 => Event::ThreadStart { thread: u32::from(self.next()) },
            37..40 => Event::ThreadSwitch { thread: u32::from(self.next()).wrapping_sub(1) },
            40 => Event::ThreadEnd { thread: u32::from(self.next()) },
            41 => Event::Fork { child: u32::from(self.next()) },
            42 => Event::Exec { path: "/bin/true".to_owned() },
            43 => Event::Signal { signal: u32::from(self.next()) },
            44 => Event::Mark { value: u64::from(self.next()) },
            45 => Event::Translation { virt: self.addr(), phys: PhysAddr::new(self.addr().raw()) },
            46 => Event::WindowBegin { at: self.place() },
            47 => Event::WindowEnd { at: self.place() },
            _ => Event::Exit { code: i32::from(self.next()) },
        }
    }
}
