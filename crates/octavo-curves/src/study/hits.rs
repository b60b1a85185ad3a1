//! Executions whose references all go to pages found at once: they leave nothing but counts and times.

use octavo_trace::Segments;
use octavo_types::{DataItem, Outline, Segment, VirtAddr};

use super::front::{Front, STEP};

/// The greatest number of words that are taken at once, more than a chunk of the ring has. Each makes up to
/// two uses of a front, which [`Front::reserve`] makes room for.
const MOST_WORDS: usize = 1 << 16;

/// The executions that hit, up to where one misses.
pub struct Hits<'w> {
    /// The number of words of these executions, that of the one with a miss included.
    pub words: usize,
    /// The data item that has missed. The fetches of its execution, and the items before, have hit.
    pub missed: Option<Place<'w>>,
    /// Instructions, loads, stores and modifies of all executions whose fetches have hit, were every
    /// guarded item to execute.
    pub counts: [u32; 4],
}

/// A data item of an execution.
#[derive(Clone, Copy)]
pub struct Place<'w> {
    /// The words of the execution.
    pub execution: &'w [u64],
    /// The number of items before it.
    pub item: usize,
}

impl Place<'_> {
    /// The item's address, by its segment.
    pub fn address(self, segment: &Segment) -> VirtAddr {
        segment.data()[self.item].address(&self.execution[1..])
    }

    /// The place of the next item.
    pub fn next(self, segment: &Segment) -> Option<Self> {
        let item = self.item + 1;
        (item < segment.data().len()).then_some(Place { item, ..self })
    }
}

impl<'w> Hits<'w> {
    /// Takes the data items of an execution `from` some place on, and then executions from the beginning of
    /// `words`, until one whose segment has no outline, or whose fetches are not found at once, or until
    /// data is not found at once; not all of many words.
    #[inline(never)]
    pub fn take(
        fetch: &mut Front,
        data: &mut Front,
        segments: &Segments,
        from: Option<Place<'w>>,
        words: &'w [u64],
    ) -> Self {
        fetch.reserve();
        data.reserve();
        let rest = &words[..words.len().min(MOST_WORDS)];
        let (fetch_time, data_time) = (fetch.now(), data.now());
        Taking { fetch, data, segments, rest, fetch_time, data_time }.run(from)
    }
}

/// The times are those of the last uses in the fronts: the loop has them in registers.
struct Taking<'a, 'w> {
    fetch: &'a mut Front,
    data: &'a mut Front,
    segments: &'a Segments,
    rest: &'w [u64],
    fetch_time: u32,
    data_time: u32,
}

impl<'w> Taking<'_, 'w> {
    #[inline(always)]
    fn run(mut self, from: Option<Place<'w>>) -> Hits<'w> {
        let mut counts = [0; 4];
        let words = self.rest.len();
        let mut missed = from.and_then(|from| self.items_from(from));
        while missed.is_none() {
            let Some((outline, execution)) = self.segments.outlined(self.rest) else { break };
            if !self.fetches(outline) {
                break;
            }
            for (count, more) in counts.iter_mut().zip(outline.counts()) {
                *count += more;
            }
            // Where the next execution is depends on the number of groups. With a branch for each number
            // the processor goes on before it knows.
            let group = match outline.addresses() {
                0 => self.groups(outline, 0),
                1 => self.groups(outline, 1),
                2 => self.groups(outline, 2),
                3 => self.groups(outline, 3),
                4 => self.groups(outline, 4),
                more => self.groups(outline, more),
            };
            missed = group.and_then(|group| self.items_of(execution, group));
        }
        self.fetch.set_now(self.fetch_time);
        self.data.set_now(self.data_time);
        Hits { words: words - self.rest.len(), missed, counts }
    }

    /// The fetches of an execution; whether they were found at once. If not, nothing has happened.
    #[inline(always)]
    fn fetches(&mut self, outline: &Outline) -> bool {
        let [instructions, ..] = outline.counts();
        let Some(first) = self.fetch.guess(outline.first_page().raw(), false) else { return false };
        let Some(page) = outline.second_page() else {
            self.fetch_from(first, instructions);
            return true;
        };
        let Some(second) = self.fetch.guess(page.raw(), false) else { return false };
        self.fetch_from(first, outline.first_fetches());
        self.fetch_from(second, instructions - outline.first_fetches());
        true
    }

    #[inline(always)]
    fn fetch_from(&mut self, slot: usize, fetches: u32) {
        self.fetch_time += STEP;
        self.fetch.use_at(self.fetch_time, slot, fetches.into());
    }

    /// The first execution with its `groups` address groups, which are behind it then. Returns the first
    /// group that is not found at once.
    #[inline(always)]
    fn groups(&mut self, outline: &Outline, groups: usize) -> Option<usize> {
        let (execution, rest) = self.rest.split_at(1 + groups);
        self.rest = rest;
        let addresses = VirtAddr::slice_from_raw(&execution[1..]);
        (0..groups).find(|group| !self.group(outline, *group, addresses[*group]))
    }

    /// An address group; whether it was found at once. If not, nothing has happened.
    #[inline(always)]
    fn group(&mut self, outline: &Outline, group: usize, addr: VirtAddr) -> bool {
        let stores = outline.stores(group);
        let group = outline.group(group);
        self.data_at_once(addr, stores, group.last_whole_offset(), group.references())
    }

    /// The items of an execution from those of an address group on that was not found at once: it may span
    /// two pages. Returns the first one that is not found at once.
    #[inline(never)]
    fn items_of(&mut self, execution: &'w [u64], group: usize) -> Option<Place<'w>> {
        let data = self.segments.segment(execution[0]).data();
        let item = data.iter().position(|item| item.group as usize == group)?;
        self.items_from(Place { execution, item })
    }

    /// The items of an execution from a place on. Returns the first one that is not found at once.
    #[inline(always)]
    fn items_from(&mut self, from: Place<'w>) -> Option<Place<'w>> {
        let segment = self.segments.segment(from.execution[0]);
        let mut place = from;
        loop {
            let DataItem { stores, last_whole_offset, references, .. } = segment.data()[place.item];
            let addr = place.address(segment);
            if !self.data_at_once(addr, stores, last_whole_offset, references.into()) {
                return Some(place);
            }
            place = place.next(segment)?;
        }
    }

    /// References to data at an address, which span two pages above an offset in the first; whether they
    /// were found at once. If not, nothing has happened.
    #[inline(always)]
    fn data_at_once(
        &mut self,
        addr: VirtAddr,
        stores: bool,
        last_whole_offset: u16,
        references: u64,
    ) -> bool {
        let slot = self.data.guess_data(addr, stores, last_whole_offset);
        if let Some(slot) = slot {
            self.data_time += STEP;
            self.data.use_at(self.data_time, slot, references);
        }
        slot.is_some()
    }
}
