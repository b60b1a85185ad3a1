//! Converts segments to the touches of one stream: fetches, data, or both in program order.

use octavo_types::{DataItem, Item, ItemKind, PageSize, Segment, VirtAddr};

use super::writer::{TouchWriter, mark, marked};
use super::{BATCH_REFS, BATCH_TOUCHES, Rows, SPILLED, Touch, Touches};
use octavo_trace::Stream;

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

    /// Distinguishes fetches and data: each touch is of one kind ([`Touch::is_fetch`]).
    pub fn with_kinds(self) -> Self {
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
    #[inline(always)]
    pub fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr], rows: &mut Rows) {
        let done = match self.stream {
            _ if self.origin.is_some() || segment.has_guarded() => false,
            Stream::Fetch => return self.fetches(segment, rows),
            Stream::Data => self.whole::<false, false>(segment, addresses, rows),
            Stream::All if self.kinds => self.whole::<true, true>(segment, addresses, rows),
            Stream::All => self.whole::<true, false>(segment, addresses, rows),
        };
        if !done {
            self.items(segment, addresses, rows);
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

    #[inline(never)]
    fn fetches(&mut self, segment: &Segment, rows: &mut Rows) {
        for run in segment.fetch_pages() {
            if run.spilled {
                // The second half of a reference that is counted already.
                self.refs -= 1;
                self.touch(run.page.raw(), SPILLED, true, rows);
                self.refs += 1;
            }
            if run.fetches > 0 {
                self.touch(run.page.raw(), 0, true, rows);
                self.refs += u64::from(run.fetches);
            }
        }
    }

    /// Adds all items of a segment, with or without fetches, if no data item spans two pages. Returns whether it did.
    #[inline(never)]
    fn whole<const FETCHES: bool, const KINDS: bool>(
        &mut self,
        segment: &Segment,
        addresses: &[VirtAddr],
        rows: &mut Rows,
    ) -> bool {
        let (data, pages) = (segment.data(), segment.fetch_pages());
        self.batch.touches.reserve(2 * (data.len() + pages.len()) + 1);
        let at = (self.refs - self.batch.start_refs) as u32;
        let touches = self.batch.touches.spare_capacity_mut().as_mut_ptr();
        let writer = TouchWriter::<KINDS> { touches, current: self.current, start: at, at };
        let written = match pages.len() {
            _ if !FETCHES => writer.data(data, addresses, rows),
            1 => writer.one_page(segment, addresses, rows),
            _ => writer.page_by_page(segment, addresses, rows),
        };
        let Some(writer) = written else { return false };
        self.current = writer.current;
        self.refs += u64::from(writer.at - at);
        // SAFETY: both pointers lie in the spare capacity of the batch's touches, and a touch was written at each
        // place before the pointer passed it.
        unsafe {
            let count = writer.touches.offset_from(touches) as usize;
            self.batch.touches.set_len(self.batch.touches.len() + count);
        }
        true
    }

    /// Adds the items of a segment one by one.
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
    use octavo_oracle::strategies::{RandomStream, Step, stream};
    use octavo_trace::Relocation;
    use proptest::prelude::*;

    use crate::sizes::Sizes;

    /// Touches: page, number of references before, and whether it is a second half.
    type TouchList = Vec<(u64, u64, bool)>;
    /// The instruction of each touch; empty unless requested.
    type Origins = Vec<VirtAddr>;

    fn expected(random: &RandomStream, stream: Stream) -> (TouchList, u64, Origins) {
        let mut list = NaiveReferences::default();
        random.play(&mut list);
        let (mut touches, mut refs) = (TouchList::new(), 0);
        let (mut origin, mut origins) = (VirtAddr::NULL, Origins::new());
        for reference in &list.references {
            let is_fetch = reference.kind == ItemKind::Fetch;
            origin = if is_fetch { reference.addr } else { origin };
            if !(stream == Stream::All || (stream == Stream::Fetch) == is_fetch) {
                continue;
            }
            let first = reference.addr.raw() >> 12;
            let last = (reference.addr.raw() + u64::from(reference.size_bytes) - 1) >> 12;
            for _ in 0..if reference.kind == ItemKind::Modify { 2 } else { 1 } {
                for page in first..=last {
                    if touches.last().is_none_or(|(before, ..)| *before != page) {
                        touches.push((page, refs, page > first));
                        origins.push(origin);
                    }
                }
                refs += 1;
            }
        }
        (touches, refs, origins)
    }

    fn split(
        random: &RandomStream,
        mut splitter: Splitter,
        batch_steps: usize,
    ) -> (TouchList, u64, Origins) {
        let mut rows = Rows::new(Sizes::new(vec![PageSize::BASE]), Relocation::default());
        let (mut touches, mut batch, mut refs) = (TouchList::new(), Touches::default(), 0);
        let mut origins = Origins::new();
        for (number, step) in random.steps.iter().enumerate() {
            if let Step::Segment(index, addresses) = step {
                splitter.segment(&random.segments[*index], addresses, &mut rows);
            }
            if number % batch_steps == 0 || number + 1 == random.steps.len() {
                batch = splitter.take(batch);
                assert_eq!(batch.start_refs, refs);
                refs = batch.end_refs;
                origins.extend(&batch.origins);
                for touch in &batch.touches {
                    let at = batch.start_refs + u64::from(touch.at_refs());
                    touches.push((rows.page(touch.row()).raw(), at, touch.is_spilled()));
                }
            }
        }
        (touches, refs, origins)
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn touches_match_a_naive_list(random in stream(0..200), batch_steps in 1usize..20) {
            for stream in [Stream::Fetch, Stream::Data, Stream::All] {
                let (touches, refs, origins) = expected(&random, stream);
                let (plain, traced) =
                    (Splitter::new(stream), Splitter::new(stream).with_origins());
                let none = Origins::new();
                let expected = (touches.clone(), refs, none);
                prop_assert_eq!(split(&random, plain, batch_steps), expected, "{:?}", stream);
                let expected = (touches, refs, origins);
                prop_assert_eq!(split(&random, traced, batch_steps), expected, "{:?}", stream);
            }
        }

        #[test]
        fn kinds_are_distinguished_on_request(random in stream(0..200), batch_steps in 1usize..20) {
            let mut list = NaiveReferences::default();
            random.play(&mut list);
            let (mut expected, mut refs, mut last) = (Vec::new(), 0u64, None);
            for reference in &list.references {
                let is_fetch = reference.kind == ItemKind::Fetch;
                let first = reference.addr.raw() >> 12;
                let end = (reference.addr.raw() + u64::from(reference.size_bytes) - 1) >> 12;
                for _ in 0..if reference.kind == ItemKind::Modify { 2 } else { 1 } {
                    for page in first..=end {
                        if last != Some((page, is_fetch)) {
                            last = Some((page, is_fetch));
                            expected.push((page, refs, page > first, is_fetch));
                        }
                    }
                    refs += 1;
                }
            }
            let mut rows = Rows::new(Sizes::new(vec![PageSize::BASE]), Relocation::default());
            let mut splitter = Splitter::new(Stream::All).with_kinds();
            let (mut found, mut batch) = (Vec::new(), Touches::default());
            for (number, step) in random.steps.iter().enumerate() {
                if let Step::Segment(index, addresses) = step {
                    splitter.segment(&random.segments[*index], addresses, &mut rows);
                }
                if number % batch_steps == 0 || number + 1 == random.steps.len() {
                    batch = splitter.take(batch);
                    for touch in &batch.touches {
                        let at = batch.start_refs + u64::from(touch.at_refs());
                        let page = rows.page(touch.row()).raw();
                        found.push((page, at, touch.is_spilled(), touch.is_fetch()));
                    }
                }
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!(splitter.refs(), refs);
        }
    }
}
