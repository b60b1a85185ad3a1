//! Converts segments to the touches of one stream: fetches, data, or both in program order.

use octavo_types::{AddressRoom, DataItem, Item, ItemKind, PageSize, Segment, VirtAddr};

use super::writer::{Addresses, OfGroups, TouchWriter, mark, marked};
use super::{BATCH_REFS, BATCH_TOUCHES, Rows, SPILLED, Touch, Touches};
use octavo_trace::{Segments, Stream};

/// Touches for which there is room before executions are added together. An execution that may make more than are left
/// is added item by item. In tests the end is reached.
const ROOM_TOUCHES: usize = if cfg!(test) { 64 } else { 1 << 14 };
/// No page has this number.
const NO_PAGE: u64 = u64::MAX;

/// Converts the references of one stream to touches.
pub struct Splitter {
    stream: Stream,
    /// Whether fetches and data are distinguished.
    kinds: bool,
    /// The page of the last touch, as traced, with the mark of a fetch.
    current: u64,
    /// References so far.
    refs: u64,
    batch: Touches,
    /// The current instruction, if origins of touches are requested.
    origin: Option<VirtAddr>,
}

impl Splitter {
    /// A stream without references.
    pub fn new(stream: Stream) -> Self {
        Splitter {
            stream,
            kinds: false,
            current: NO_PAGE,
            refs: 0,
            batch: Touches::default(),
            origin: None,
        }
    }

    /// Distinguishes fetches and data, in a stream of both: each touch is of one kind ([`Touch::is_fetch`]).
    pub fn with_kinds(self) -> Self {
        debug_assert_eq!(self.stream, Stream::All);
        Splitter { kinds: true, ..self }
    }

    /// Records the instruction of each touch in [`Touches::origins`].
    pub fn with_origins(self) -> Self {
        Splitter { origin: Some(VirtAddr::NULL), ..self }
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The number of references so far.
    pub fn refs(&self) -> u64 {
        self.refs
    }

    /// Adds an execution of a segment to the batch. The caller must first [take](Splitter::take) a batch that is
    /// [full](Splitter::is_full).
    pub fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr], rows: &mut Rows) {
        let one = std::iter::once((segment, addresses));
        if self.whole_segments(one, rows) == 0 {
            self.items(segment, addresses, rows);
        }
    }

    /// As [`Splitter::segment`], for the [executions](Segments::executions) at the beginning of `words`. Returns the number
    /// of their words.
    pub fn executions(&mut self, segments: &Segments, words: &[u64], rows: &mut Rows) -> usize {
        let (mut rest, mut room) = (words, AddressRoom::new());
        loop {
            let all = segments.executions(rest);
            let all = all.map(|(number, groups)| (segments.segment(number), OfGroups(groups)));
            rest = &rest[self.whole_segments(all, rows)..];
            let Some((number, groups)) = segments.executions(rest).next() else {
                return words.len() - rest.len();
            };
            let segment = segments.segment(number);
            self.items(segment, segment.addresses(groups, &mut room), rows);
            rest = &rest[1 + groups.len()..];
        }
    }

    /// Adds executions up to one of which an item may be skipped or a data item spans two pages, or for which there may be
    /// no room. Returns how many words those added have.
    #[inline(always)]
    fn whole_segments<'s, A: Addresses>(
        &mut self,
        executions: impl Iterator<Item = (&'s Segment, A)>,
        rows: &mut Rows,
    ) -> usize {
        match self.stream {
            _ if self.origin.is_some() => 0,
            Stream::Fetch => self.write::<_, false, true, false>(executions, rows),
            Stream::Data => self.write::<_, false, false, true>(executions, rows),
            Stream::All if self.kinds => self.write::<_, true, true, true>(executions, rows),
            Stream::All => self.write::<_, false, true, true>(executions, rows),
        }
    }

    /// Whether the batch must be [taken](Splitter::take).
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.batch.touches.len() >= BATCH_TOUCHES || self.refs - self.batch.start_refs >= BATCH_REFS
    }

    /// Returns the batch so far, and begins the next one. `emptied` is a used batch, whose memory is reused.
    pub fn take(&mut self, mut emptied: Touches) -> Touches {
        emptied.touches.clear();
        emptied.origins.clear();
        (emptied.start_refs, emptied.end_refs) = (self.refs, self.refs);
        self.batch.end_refs = self.refs;
        std::mem::replace(&mut self.batch, emptied)
    }

    /// Makes the next reference touch its page, even if the last reference touched the same page. Called when the
    /// TLBs change or are emptied.
    pub fn end_touch(&mut self) {
        self.current = NO_PAGE;
    }

    #[inline(always)]
    fn touch(&mut self, page: u64, flag: u32, is_fetch: bool, rows: &mut Rows) {
        let is_marked = is_fetch && self.kinds;
        if marked(page, is_marked) != self.current {
            self.current = marked(page, is_marked);
            let at = (self.refs - self.batch.start_refs) as u32 | mark(is_marked);
            self.batch.touches.push(Touch { row: rows.row(page), at: at | flag });
            if let Some(origin) = self.origin {
                self.batch.origins.push(origin);
            }
        }
    }

    #[inline(always)]
    fn data(&mut self, item: &DataItem, addr: VirtAddr, rows: &mut Rows) {
        if item.guarded && addr == VirtAddr::NULL {
            return;
        }
        let page = addr.page(PageSize::BASE).raw();
        if addr.raw() % PageSize::BASE.bytes() <= u64::from(item.last_whole_offset) {
            self.touch(page, 0, false, rows);
            self.refs += u64::from(item.references);
            return;
        }
        // A modify that spans two pages is a load of both and then a store to both.
        for _ in 0..item.references {
            self.spanning(page, false, rows);
        }
    }

    /// Adds a reference that spans a page and the next one.
    #[inline(never)]
    fn spanning(&mut self, page: u64, is_fetch: bool, rows: &mut Rows) {
        self.touch(page, 0, is_fetch, rows);
        self.touch(page.wrapping_add(1), SPILLED, is_fetch, rows);
        self.refs += 1;
    }

    /// As [`Splitter::whole_segments`].
    #[inline(always)]
    fn write<'s, A: Addresses, const KINDS: bool, const FETCHES: bool, const DATA: bool>(
        &mut self,
        executions: impl Iterator<Item = (&'s Segment, A)>,
        rows: &mut Rows,
    ) -> usize {
        let touches = &mut self.batch.touches;
        touches.reserve(ROOM_TOUCHES);
        let room = touches.spare_capacity_mut().as_mut_ptr_range();
        let at = (self.refs - self.batch.start_refs) as u32;
        let mut writer = TouchWriter::<KINDS> { touches: room.start, current: self.current, at };
        let mut taken_words = 0;
        for (segment, addresses) in executions {
            let Some(visits) = segment.visits() else { break };
            if writer.touches.wrapping_add(2 * visits.most() + 1) > room.end {
                break;
            }
            let next = writer.execution::<FETCHES, DATA>(visits, addresses, rows);
            let Some(next) = next else { break };
            writer = next;
            taken_words += 1 + addresses.len();
        }
        self.current = writer.current;
        self.refs += u64::from(writer.at - at);
        // SAFETY: both pointers lie in the spare capacity of the batch's touches, since there was room for two touches for
        // each visit of an execution and one more, and a touch was written at each place before the pointer passed it.
        unsafe {
            let count = writer.touches.offset_from(room.start) as usize;
            touches.set_len(touches.len() + count);
        }
        taken_words
    }

    /// Adds the items of an execution one by one.
    #[inline(never)]
    fn items(&mut self, segment: &Segment, addresses: &[VirtAddr], rows: &mut Rows) {
        let mut data = segment.data().iter().zip(addresses);
        let (fetches, loads) = (self.stream != Stream::Data, self.stream != Stream::Fetch);
        for item in segment.items() {
            if item.kind == ItemKind::Fetch {
                self.origin = self.origin.map(|_| item.addr);
                if fetches {
                    self.fetch(item, rows);
                }
            } else if let (Some((item, addr)), true) = (data.next(), loads) {
                self.data(item, *addr, rows);
            }
        }
    }

    #[inline(always)]
    fn fetch(&mut self, item: &Item, rows: &mut Rows) {
        let first = item.addr.page(PageSize::BASE).raw();
        let last = item.addr.wrapping_add(u64::from(item.size_bytes) - 1);
        if last.page(PageSize::BASE).raw() == first {
            self.touch(first, 0, true, rows);
            self.refs += 1;
        } else {
            self.spanning(first, true, rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_oracle::NaiveReferences;
    use octavo_oracle::strategies::{RandomStream, stream};
    use octavo_trace::{Relocation, StreamConsumer};
    use octavo_types::{AddressPlace, Consumer, Event};
    use proptest::prelude::*;

    use crate::sizes::Sizes;
    use crate::touches::testing::through_ring;

    /// A touch: page, number of references before, whether it is a second half, whether it is a fetch.
    type Seen = (u64, u64, bool, bool);
    /// The touches of a stream, its references, and the instruction of each touch, if they are requested.
    type Found = (Vec<Seen>, u64, Vec<VirtAddr>);

    /// The touches of a stream, one reference after another.
    fn expected(random: &RandomStream, stream: Stream, kinds: bool, has_origins: bool) -> Found {
        let mut list = NaiveReferences::default();
        random.play(&mut list);
        let (mut touches, mut refs) = (Vec::<Seen>::new(), 0);
        let (mut origin, mut origins) = (VirtAddr::NULL, Vec::new());
        for reference in &list.references {
            let is_fetch = reference.kind == ItemKind::Fetch;
            origin = if is_fetch { reference.addr } else { origin };
            if !(stream == Stream::All || (stream == Stream::Fetch) == is_fetch) {
                continue;
            }
            let first = reference.addr.raw() >> 12;
            let last = (reference.addr.raw() + u64::from(reference.size_bytes) - 1) >> 12;
            let seen_as_fetch = is_fetch && kinds;
            for _ in 0..if reference.kind == ItemKind::Modify { 2 } else { 1 } {
                for page in first..=last {
                    let is_same =
                        |(other, .., kind): &Seen| (*other, *kind) == (page, seen_as_fetch);
                    if !touches.last().is_some_and(is_same) {
                        touches.push((page, refs, page > first, seen_as_fetch));
                        origins.extend(has_origins.then_some(origin));
                    }
                }
                refs += 1;
            }
        }
        (touches, refs, origins)
    }

    /// Takes at most `most_words` words of executions at once, and a batch after every `batch_calls` calls.
    struct Splitting {
        splitter: Splitter,
        rows: Rows,
        most_words: usize,
        batch_calls: usize,
        calls: usize,
        batch: Touches,
        found: Found,
    }

    impl Splitting {
        fn called(&mut self) {
            self.calls += 1;
            if self.calls.is_multiple_of(self.batch_calls) {
                self.take();
            }
        }

        fn take(&mut self) {
            let batch = self.splitter.take(std::mem::take(&mut self.batch));
            let (touches, refs, origins) = &mut self.found;
            assert_eq!(batch.start_refs, *refs);
            *refs = batch.end_refs;
            origins.extend(&batch.origins);
            for touch in &batch.touches {
                let at = batch.start_refs + u64::from(touch.at_refs());
                let page = self.rows.page(touch.row()).raw();
                touches.push((page, at, touch.is_spilled(), touch.is_fetch()));
            }
            self.batch = batch;
        }
    }

    impl Consumer for Splitting {
        fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
            self.splitter.segment(segment, addresses, &mut self.rows);
            self.called();
        }

        fn event(&mut self, _: &Event) {}
    }

    impl StreamConsumer for Splitting {
        fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
            let words = &words[..words.len().min(self.most_words)];
            let taken_words = self.splitter.executions(segments, words, &mut self.rows);
            self.called();
            taken_words
        }
    }

    /// The segment without its first item, a fetch.
    fn without_first_fetch(segment: &Segment) -> Segment {
        let mut before = None;
        let place = |item: &DataItem| {
            let leads = before.replace(item.group) != Some(item.group);
            AddressPlace { leads, offset: item.offset }
        };
        let places: Vec<_> = segment.data().iter().map(place).collect();
        Segment::with_places(segment.items()[1..].to_vec(), Vec::new(), &places).unwrap()
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn touches_match_a_naive_list(
            mut random in stream(0..200),
            begin_with_fetch in any::<u8>(),
            most_words in prop_oneof![Just(0), 1usize..30, Just(usize::MAX)],
            batch_calls in 1usize..20,
        ) {
            for (number, segment) in random.segments.iter_mut().enumerate() {
                if begin_with_fetch >> number & 1 == 0 {
                    *segment = without_first_fetch(segment);
                }
            }
            for stream in [Stream::Fetch, Stream::Data, Stream::All] {
                for (kinds, has_origins) in [(false, false), (stream == Stream::All, false), (false, true)] {
                    let mut splitter = Splitter::new(stream);
                    splitter = if kinds { splitter.with_kinds() } else { splitter };
                    splitter = if has_origins { splitter.with_origins() } else { splitter };
                    let mut splitting = Splitting {
                        splitter,
                        rows: Rows::new(Sizes::new(vec![PageSize::BASE]), Relocation::default()),
                        most_words,
                        batch_calls,
                        calls: 0,
                        batch: Touches::default(),
                        found: Found::default(),
                    };
                    through_ring(&random, &mut splitting);
                    splitting.take();
                    let expected = expected(&random, stream, kinds, has_origins);
                    prop_assert_eq!(&splitting.found, &expected, "{:?}", stream);
                }
            }
        }
    }
}
